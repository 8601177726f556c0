// A three-dimensional block (32x4x2): the fourth-order elastic-wave stencil of three displacement
// components with variable coefficients.
__device__ __forceinline__ float d1(const float *f, int i, int s)
{
    return 0.0833333333f * (f[i - 2 * s] - f[i + 2 * s]) + 0.6666666667f * (f[i + s] - f[i - s]);
}
__device__ __forceinline__ float d2(const float *f, int i, int s)
{
    return -0.0833333333f * (f[i - 2 * s] + f[i + 2 * s]) + 1.3333333333f * (f[i + s] + f[i - s]) - 2.5f * f[i];
}

extern "C" __global__ void block3d(const float *__restrict__ u, const float *__restrict__ v,
                                   const float *__restrict__ w, const float *__restrict__ lambda,
                                   const float *__restrict__ mu, float *__restrict__ au, float *__restrict__ av,
                                   float *__restrict__ aw, int nx, int ny, int nz)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x + 2;
    const int y = blockIdx.y * blockDim.y + threadIdx.y + 2;
    const int z = blockIdx.z * blockDim.z + threadIdx.z + 2;
    if (x >= nx - 2 || y >= ny - 2 || z >= nz - 2) return;
    const int sy = nx, sz = nx * ny;
    const int i = z * sz + y * sy + x;
    const float l = lambda[i], m = mu[i];
    const float lx = d1(lambda, i, 1), ly = d1(lambda, i, sy), lz = d1(lambda, i, sz);
    const float mx = d1(mu, i, 1), my = d1(mu, i, sy), mz = d1(mu, i, sz);
    const float ux = d1(u, i, 1), uy = d1(u, i, sy), uz = d1(u, i, sz);
    const float vx = d1(v, i, 1), vy = d1(v, i, sy), vz = d1(v, i, sz);
    const float wx = d1(w, i, 1), wy = d1(w, i, sy), wz = d1(w, i, sz);
    const float uxx = d2(u, i, 1), uyy = d2(u, i, sy), uzz = d2(u, i, sz);
    const float vxx = d2(v, i, 1), vyy = d2(v, i, sy), vzz = d2(v, i, sz);
    const float wxx = d2(w, i, 1), wyy = d2(w, i, sy), wzz = d2(w, i, sz);
    const float uxy = 0.5f * (d1(u, i + sy, 1) - d1(u, i - sy, 1)), uxz = 0.5f * (d1(u, i + sz, 1) - d1(u, i - sz, 1));
    const float vxy = 0.5f * (d1(v, i + sy, 1) - d1(v, i - sy, 1)), vyz = 0.5f * (d1(v, i + sz, sy) - d1(v, i - sz, sy));
    const float wxz = 0.5f * (d1(w, i + sz, 1) - d1(w, i - sz, 1)), wyz = 0.5f * (d1(w, i + sz, sy) - d1(w, i - sz, sy));
    const float div = ux + vy + wz;
    const float lap_u = uxx + uyy + uzz, lap_v = vxx + vyy + vzz, lap_w = wxx + wyy + wzz;
    au[i] = (l + m) * (uxx + vxy + wxz) + m * lap_u + lx * div + 2.0f * mx * ux + my * (uy + vx) + mz * (uz + wx);
    av[i] = (l + m) * (vyy + uxy + wyz) + m * lap_v + ly * div + 2.0f * my * vy + mx * (uy + vx) + mz * (vz + wy);
    aw[i] = (l + m) * (wzz + uxz + vyz) + m * lap_w + lz * div + 2.0f * mz * wz + mx * (uz + wx) + my * (vz + wy);
}
