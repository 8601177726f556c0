// Elastic seismic waves, fourth-order summation-by-parts style stencil in double with variable
// coefficients averaged between points: three displacement components. Block 32x4.
__device__ __forceinline__ double divided(const double *f, const double *c, const double *g, int i, int s)
{
    // c-weighted second difference with the coefficient carried along s
    const double m1 = c[i - s] * g[i - s], m0 = c[i] * g[i], p1 = c[i + s] * g[i + s];
    const double m2 = c[i - 2 * s] * g[i - 2 * s], p2 = c[i + 2 * s] * g[i + 2 * s];
    const double a = m1 - 0.75 * (m0 + m2), b = m2 + p1 + 3.0 * (m0 + m1), d = m1 + p2 + 3.0 * (p1 + m0),
                 h = p1 - 0.75 * (m0 + p2);
    const double f0 = f[i];
    return (a * (f[i - 2 * s] - f0) + b * (f[i - s] - f0) + d * (f[i + s] - f0) + h * (f[i + 2 * s] - f0)) * (1.0 / 6.0);
}
__device__ __forceinline__ double mixed(const double *f, const double *c, int i, int s, int r)
{
    double sum = 0;
#pragma unroll
    for (int k = -2; k <= 2; ++k) {
        if (k == 0) continue;
        const double w = k == -2 ? 1 : k == -1 ? -8 : k == 1 ? 8 : -1;
        const int at = i + k * s;
        sum += w * c[at] * (f[at - 2 * r] - 8.0 * f[at - r] + 8.0 * f[at + r] - f[at + 2 * r]);
    }
    return sum * (1.0 / 144.0);
}

extern "C" __global__ void seismic_stencil(const double *__restrict__ u, const double *__restrict__ mu,
                                           const double *__restrict__ lambda, const double *__restrict__ stretch,
                                           double *__restrict__ out, int nx, int ny, int nz)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x + 4, y = blockIdx.y * blockDim.y + threadIdx.y + 4,
              z = blockIdx.z * blockDim.z + threadIdx.z + 4;
    if (x >= nx - 4 || y >= ny - 4 || z >= nz - 4) return;
    const int sy = nx, sz = nx * ny, n = nx * ny * nz, i = z * sz + y * sy + x;
    const double *v = u + n, *w = u + 2 * n;
    const double ru = 2.0 * divided(u, mu, stretch, i, 1) + divided(u, lambda, stretch, i, 1) + divided(u, mu, stretch, i, sy) +
                      divided(u, mu, stretch, i, sz) + mixed(v, lambda, i, 1, sy) + mixed(v, mu, i, sy, 1) +
                      mixed(w, lambda, i, 1, sz) + mixed(w, mu, i, sz, 1);
    const double rv = 2.0 * divided(v, mu, stretch, i, sy) + divided(v, lambda, stretch, i, sy) + divided(v, mu, stretch, i, 1) +
                      divided(v, mu, stretch, i, sz) + mixed(u, mu, i, 1, sy) + mixed(u, lambda, i, sy, 1) +
                      mixed(w, lambda, i, sy, sz) + mixed(w, mu, i, sz, sy);
    const double rw = 2.0 * divided(w, mu, stretch, i, sz) + divided(w, lambda, stretch, i, sz) + divided(w, mu, stretch, i, 1) +
                      divided(w, mu, stretch, i, sy) + mixed(u, mu, i, 1, sz) + mixed(u, lambda, i, sz, 1) +
                      mixed(v, mu, i, sy, sz) + mixed(v, lambda, i, sz, sy);
    out[i] = ru;
    out[n + i] = rv;
    out[2 * n + i] = rw;
}
