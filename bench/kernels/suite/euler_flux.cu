// Unstructured-mesh Euler flux (computational fluid dynamics): per cell, four faces with neighbour
// states, pressure, speed of sound, artificial viscosity; solid and far-field boundaries.
struct State { float rho, mx, my, mz, e; };

__device__ __forceinline__ State load(const float *v, int n, int i)
{
    return {v[i], v[n + i], v[2 * n + i], v[3 * n + i], v[4 * n + i]};
}

extern "C" __global__ void euler_flux(int n, const int *__restrict__ neighbours, const float *__restrict__ normals,
                                      const float *__restrict__ variables, const float *__restrict__ far,
                                      float *__restrict__ fluxes)
{
    const int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i >= n) return;
    constexpr float gamma = 1.4f, smoothing = 0.2f;
    const State s = load(variables, n, i);
    const float inv = 1.0f / s.rho;
    const float ux = s.mx * inv, uy = s.my * inv, uz = s.mz * inv;
    const float speed2 = ux * ux + uy * uy + uz * uz;
    const float speed = sqrtf(speed2);
    const float p = (gamma - 1.0f) * (s.e - 0.5f * s.rho * speed2);
    const float sound = sqrtf(gamma * p * inv);
    State out = {0, 0, 0, 0, 0};
#pragma unroll
    for (int f = 0; f < 4; ++f) {
        const int nb = neighbours[f * n + i];
        const float nx = normals[(3 * f + 0) * n + i], ny = normals[(3 * f + 1) * n + i],
                    nz = normals[(3 * f + 2) * n + i];
        const float area = sqrtf(nx * nx + ny * ny + nz * nz);
        if (nb >= 0) {
            const State q = load(variables, n, nb);
            const float qi = 1.0f / q.rho;
            const float vx = q.mx * qi, vy = q.my * qi, vz = q.mz * qi;
            const float v2 = vx * vx + vy * vy + vz * vz;
            const float pq = (gamma - 1.0f) * (q.e - 0.5f * q.rho * v2);
            const float cq = sqrtf(gamma * pq * qi);
            const float k = -area * smoothing * 0.5f * (speed + sqrtf(v2) + sound + cq);
            out.rho += k * (s.rho - q.rho);
            out.mx += k * (s.mx - q.mx);
            out.my += k * (s.my - q.my);
            out.mz += k * (s.mz - q.mz);
            out.e += k * (s.e - q.e);
            const float ws = 0.5f * (nx * ux + ny * uy + nz * uz), wq = 0.5f * (nx * vx + ny * vy + nz * vz);
            const float pm = 0.5f * (p + pq);
            out.rho += ws * s.rho + wq * q.rho;
            out.mx += ws * s.mx + wq * q.mx + pm * nx;
            out.my += ws * s.my + wq * q.my + pm * ny;
            out.mz += ws * s.mz + wq * q.mz + pm * nz;
            out.e += ws * (s.e + p) + wq * (q.e + pq);
        } else if (nb == -1) {
            out.mx += nx * p;
            out.my += ny * p;
            out.mz += nz * p;
        } else {
            const float fr = far[0], fx = far[1], fy = far[2], fz = far[3], fe = far[4], fp = far[5];
            const float w = 0.5f * (nx * fx + ny * fy + nz * fz) / fr, ws = 0.5f * (nx * ux + ny * uy + nz * uz);
            out.rho += w * fr + ws * s.rho;
            out.mx += w * fx + ws * s.mx + 0.5f * (p + fp) * nx;
            out.my += w * fy + ws * s.my + 0.5f * (p + fp) * ny;
            out.mz += w * fz + ws * s.mz + 0.5f * (p + fp) * nz;
            out.e += w * (fe + fp) + ws * (s.e + p);
        }
    }
    fluxes[i] = out.rho;
    fluxes[n + i] = out.mx;
    fluxes[2 * n + i] = out.my;
    fluxes[3 * n + i] = out.mz;
    fluxes[4 * n + i] = out.e;
}
