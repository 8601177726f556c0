// Lagrangian hydrodynamics, hourglass control in double: the Flanagan-Belytschko force on the eight
// corners of each hexahedron, with the volume's derivatives computed from the corners on the way.
__device__ __forceinline__ double derivative(const double (&a)[8], const double (&b)[8], int i, int j, int k, int l,
                                             int m, int n)
{
    const double sum = (a[j] + a[k]) * (b[i] + b[j]) - (a[i] + a[j]) * (b[j] + b[k]) + (a[i] + a[m]) * (b[l] + b[m]) -
                       (a[l] + a[m]) * (b[i] + b[m]) - (a[k] + a[n]) * (b[l] + b[n]) + (a[l] + a[n]) * (b[k] + b[n]);
    return sum * (1.0 / 12.0);
}

extern "C" __global__ void hydro_hourglass(const int *__restrict__ corners, const double *__restrict__ position,
                                           const double *__restrict__ velocity, const double *__restrict__ volume,
                                           const double *__restrict__ sound, const double *__restrict__ mass,
                                           double *__restrict__ force, double strength, int nodes, int n)
{
    const int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= n) return;
    int at[8];
    double x[8], y[8], z[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        at[k] = corners[static_cast<size_t>(k) * n + e];
        x[k] = position[at[k]]; y[k] = position[nodes + at[k]]; z[k] = position[2 * nodes + at[k]];
    }
    constexpr int around[8][6] = {{1, 2, 3, 4, 5, 7}, {2, 3, 0, 5, 6, 4}, {3, 0, 1, 6, 7, 5}, {0, 1, 2, 7, 4, 6},
                                  {7, 6, 5, 0, 3, 1}, {4, 7, 6, 1, 0, 2}, {5, 4, 7, 2, 1, 3}, {6, 5, 4, 3, 2, 0}};
    constexpr int mode[4][8] = {{1, 1, -1, -1, -1, -1, 1, 1}, {1, -1, -1, 1, -1, 1, 1, -1},
                                {1, -1, 1, -1, 1, -1, 1, -1}, {-1, 1, -1, 1, 1, -1, 1, -1}};
    double hx[4], hy[4], hz[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        hx[i] = hy[i] = hz[i] = 0.0;
#pragma unroll
        for (int k = 0; k < 8; ++k) { hx[i] += mode[i][k] * x[k]; hy[i] += mode[i][k] * y[k]; hz[i] += mode[i][k] * z[k]; }
    }
    const double vol = volume[e], inverse = 1.0 / vol;
    double gamma[4][8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int(&r)[6] = around[k];
        const double dx = derivative(y, z, r[0], r[1], r[2], r[3], r[4], r[5]);
        const double dy = derivative(z, x, r[0], r[1], r[2], r[3], r[4], r[5]);
        const double dz = derivative(x, y, r[0], r[1], r[2], r[3], r[4], r[5]);
#pragma unroll
        for (int i = 0; i < 4; ++i) gamma[i][k] = mode[i][k] - inverse * (dx * hx[i] + dy * hy[i] + dz * hz[i]);
    }
    const double scale = -strength * 0.01 * sound[e] * mass[e] / cbrt(vol);
#pragma unroll
    for (int d = 0; d < 3; ++d) {
        double u[8], h[4];
#pragma unroll
        for (int k = 0; k < 8; ++k) u[k] = velocity[static_cast<size_t>(d) * nodes + at[k]];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            h[i] = 0.0;
#pragma unroll
            for (int k = 0; k < 8; ++k) h[i] += gamma[i][k] * u[k];
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            double sum = 0.0;
#pragma unroll
            for (int i = 0; i < 4; ++i) sum += gamma[i][k] * h[i];
            force[(static_cast<size_t>(d) * 8 + k) * n + e] = scale * sum;
        }
    }
}
