// Viscous Burgers' equation in three dimensions and double: third-order upwind advection of three
// velocity components and their diffusion. Block 32x4x2.
__device__ __forceinline__ double upwind(const double *f, int i, int s, double speed)
{
    const double plus = (-f[i + 2 * s] + 6.0 * f[i + s] - 3.0 * f[i] - 2.0 * f[i - s]) * (1.0 / 6.0);
    const double minus = (2.0 * f[i + s] + 3.0 * f[i] - 6.0 * f[i - s] + f[i - 2 * s]) * (1.0 / 6.0);
    return speed > 0 ? speed * minus : speed * plus;
}

extern "C" __global__ void burgers_stencil(const double *__restrict__ u, double *__restrict__ out, int nx, int ny, int nz,
                                           double viscosity, double step)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x + 2, y = blockIdx.y * blockDim.y + threadIdx.y + 2,
              z = blockIdx.z * blockDim.z + threadIdx.z + 2;
    if (x >= nx - 2 || y >= ny - 2 || z >= nz - 2) return;
    const int sy = nx, sz = nx * ny, n = nx * ny * nz, i = z * sz + y * sy + x;
    const double a = u[i], b = u[n + i], c = u[2 * n + i];
#pragma unroll
    for (int d = 0; d < 3; ++d) {
        const double *f = u + d * n;
        const double advection = upwind(f, i, 1, a) + upwind(f, i, sy, b) + upwind(f, i, sz, c);
        const double spread = f[i - 1] + f[i + 1] + f[i - sy] + f[i + sy] + f[i - sz] + f[i + sz] - 6.0 * f[i];
        out[d * n + i] = f[i] + step * (viscosity * spread - advection);
    }
}
