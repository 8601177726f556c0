// Cahn-Hilliard phase separation, one explicit step: the chemical potential and its Laplacian
// from a 25-point neighbourhood, with a concentration-dependent mobility. Block 32x8.
__device__ __forceinline__ float potential(const float *c, int x, int y, int z, int nx, int ny, int nz, float k)
{
    const int xm = x ? x - 1 : nx - 1, xp = x + 1 < nx ? x + 1 : 0;
    const int ym = y ? y - 1 : ny - 1, yp = y + 1 < ny ? y + 1 : 0;
    const int zm = z ? z - 1 : nz - 1, zp = z + 1 < nz ? z + 1 : 0;
#define AT(a, b, d) c[(static_cast<size_t>(d) * ny + (b)) * nx + (a)]
    const float v = AT(x, y, z);
    return v * v * v - v - k * (AT(xm, y, z) + AT(xp, y, z) + AT(x, ym, z) + AT(x, yp, z) + AT(x, y, zm) + AT(x, y, zp) - 6.0f * v);
}

extern "C" __global__ void cahn_hilliard(const float *__restrict__ c, float *__restrict__ out, int nx, int ny, int nz,
                                         float k, float step)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
    if (x >= nx || y >= ny) return;
    const int xm = x ? x - 1 : nx - 1, xp = x + 1 < nx ? x + 1 : 0;
    const int ym = y ? y - 1 : ny - 1, yp = y + 1 < ny ? y + 1 : 0;
    const int zm = z ? z - 1 : nz - 1, zp = z + 1 < nz ? z + 1 : 0;
    const float v = AT(x, y, z), m0 = 1.0f - 0.5f * v * v;
    const float p = potential(c, x, y, z, nx, ny, nz, k);
    float sum = 0;
    const int px[6] = {xm, xp, x, x, x, x}, py[6] = {y, y, ym, yp, y, y}, pz[6] = {z, z, z, z, zm, zp};
#pragma unroll
    for (int s = 0; s < 6; ++s) {
        const float q = AT(px[s], py[s], pz[s]);
        sum += 0.5f * (m0 + 1.0f - 0.5f * q * q) * (potential(c, px[s], py[s], pz[s], nx, ny, nz, k) - p);
    }
    out[(static_cast<size_t>(z) * ny + y) * nx + x] = v + step * sum;
}
