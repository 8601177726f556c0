// Lagrangian hydrodynamics, gradients of position and velocity for the monotonic artificial
// viscosity, in double: three logical directions of each hexahedron.
extern "C" __global__ void hydro_viscosity(const int *__restrict__ corners, const double *__restrict__ position,
                                           const double *__restrict__ velocity, const double *__restrict__ volume,
                                           double *__restrict__ out, int nodes, int n)
{
    const int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= n) return;
    double p[3][8], s[3][8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int at = corners[static_cast<size_t>(k) * n + e];
#pragma unroll
        for (int d = 0; d < 3; ++d) { p[d][k] = position[d * nodes + at]; s[d][k] = velocity[d * nodes + at]; }
    }
    const double vol = volume[e], small = 1e-36, norm = 1.0 / (vol + small);
    double edge[3][3], rate[3][3];
#pragma unroll
    for (int d = 0; d < 3; ++d) {
#define SUM4(a, i, j, k, l) (a[i] + a[j] + a[k] + a[l])
        edge[0][d] = 0.25 * (SUM4(p[d], 1, 2, 6, 5) - SUM4(p[d], 0, 3, 7, 4));
        edge[1][d] = 0.25 * (SUM4(p[d], 3, 2, 6, 7) - SUM4(p[d], 0, 1, 5, 4));
        edge[2][d] = 0.25 * (SUM4(p[d], 4, 5, 6, 7) - SUM4(p[d], 0, 1, 2, 3));
        rate[0][d] = 0.25 * (SUM4(s[d], 1, 2, 6, 5) - SUM4(s[d], 0, 3, 7, 4));
        rate[1][d] = 0.25 * (SUM4(s[d], 3, 2, 6, 7) - SUM4(s[d], 0, 1, 5, 4));
        rate[2][d] = 0.25 * (SUM4(s[d], 4, 5, 6, 7) - SUM4(s[d], 0, 1, 2, 3));
    }
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const int a = (k + 1) % 3, b = (k + 2) % 3;
        const double ax = edge[a][1] * edge[b][2] - edge[a][2] * edge[b][1];
        const double ay = edge[a][2] * edge[b][0] - edge[a][0] * edge[b][2];
        const double az = edge[a][0] * edge[b][1] - edge[a][1] * edge[b][0];
        out[static_cast<size_t>(2 * k) * n + e] = vol / sqrt(ax * ax + ay * ay + az * az + small);
        out[static_cast<size_t>(2 * k + 1) * n + e] = (ax * rate[k][0] + ay * rate[k][1] + az * rate[k][2]) * norm;
    }
}
