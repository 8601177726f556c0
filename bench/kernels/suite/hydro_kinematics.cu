// Lagrangian hydrodynamics, element kinematics in double: volume of a hexahedron, characteristic
// length, and the velocity gradient at the mid-step from shape-function derivatives.
__device__ __forceinline__ double triple(double ax, double ay, double az, double bx, double by, double bz, double cx,
                                         double cy, double cz)
{
    return ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx);
}

__device__ __forceinline__ double volume(const double (&x)[8], const double (&y)[8], const double (&z)[8])
{
    const double v0 = triple(x[3] - x[1] + x[7] - x[2], y[3] - y[1] + y[7] - y[2], z[3] - z[1] + z[7] - z[2],
                             x[6] - x[3], y[6] - y[3], z[6] - z[3], x[2] - x[0], y[2] - y[0], z[2] - z[0]);
    const double v1 = triple(x[4] - x[3] + x[5] - x[7], y[4] - y[3] + y[5] - y[7], z[4] - z[3] + z[5] - z[7],
                             x[6] - x[4], y[6] - y[4], z[6] - z[4], x[7] - x[0], y[7] - y[0], z[7] - z[0]);
    const double v2 = triple(x[1] - x[4] + x[2] - x[5], y[1] - y[4] + y[2] - y[5], z[1] - z[4] + z[2] - z[5],
                             x[6] - x[1], y[6] - y[1], z[6] - z[1], x[5] - x[0], y[5] - y[0], z[5] - z[0]);
    return (v0 + v1 + v2) * (1.0 / 12.0);
}

__device__ __forceinline__ double face(const double (&x)[8], const double (&y)[8], const double (&z)[8], int a, int b,
                                       int c, int d)
{
    const double fx = (x[c] - x[a]) - (x[d] - x[b]), fy = (y[c] - y[a]) - (y[d] - y[b]), fz = (z[c] - z[a]) - (z[d] - z[b]);
    const double gx = (x[c] - x[a]) + (x[d] - x[b]), gy = (y[c] - y[a]) + (y[d] - y[b]), gz = (z[c] - z[a]) + (z[d] - z[b]);
    const double fg = fx * gx + fy * gy + fz * gz;
    return (fx * fx + fy * fy + fz * fz) * (gx * gx + gy * gy + gz * gz) - fg * fg;
}

extern "C" __global__ void hydro_kinematics(const int *__restrict__ corners, const double *__restrict__ position,
                                            const double *__restrict__ velocity, const double *__restrict__ reference,
                                            double *__restrict__ out, double half_step, int nodes, int n)
{
    const int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= n) return;
    double x[8], y[8], z[8], u[8], v[8], w[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int p = corners[static_cast<size_t>(k) * n + e];
        x[k] = position[p]; y[k] = position[nodes + p]; z[k] = position[2 * nodes + p];
        u[k] = velocity[p]; v[k] = velocity[nodes + p]; w[k] = velocity[2 * nodes + p];
    }
    const double vol = volume(x, y, z), ratio = vol / reference[e];
    double area = face(x, y, z, 0, 1, 2, 3);
    area = fmax(area, face(x, y, z, 4, 5, 6, 7));
    area = fmax(area, face(x, y, z, 0, 1, 5, 4));
    area = fmax(area, face(x, y, z, 1, 2, 6, 5));
    area = fmax(area, face(x, y, z, 2, 3, 7, 6));
    area = fmax(area, face(x, y, z, 3, 0, 4, 7));
#pragma unroll
    for (int k = 0; k < 8; ++k) { x[k] -= half_step * u[k]; y[k] -= half_step * v[k]; z[k] -= half_step * w[k]; }
    double j[3][3];
#define DERIVATIVE(row, a) \
    j[row][0] = 0.125 * ((a[6] - a[0]) + (a[5] - a[3]) - (a[7] - a[1]) - (a[4] - a[2])); \
    j[row][1] = 0.125 * ((a[6] - a[0]) - (a[5] - a[3]) + (a[7] - a[1]) - (a[4] - a[2])); \
    j[row][2] = 0.125 * ((a[6] - a[0]) + (a[5] - a[3]) + (a[7] - a[1]) + (a[4] - a[2]));
    DERIVATIVE(0, x) DERIVATIVE(1, y) DERIVATIVE(2, z)
    double c[3][3];
#pragma unroll
    for (int r = 0; r < 3; ++r)
#pragma unroll
        for (int s = 0; s < 3; ++s)
            c[r][s] = j[(r + 1) % 3][(s + 1) % 3] * j[(r + 2) % 3][(s + 2) % 3] -
                      j[(r + 1) % 3][(s + 2) % 3] * j[(r + 2) % 3][(s + 1) % 3];
    const double det = 8.0 * (j[0][0] * c[0][0] + j[0][1] * c[0][1] + j[0][2] * c[0][2]);
    double gx[4], gy[4], gz[4];
    constexpr int sign[4][3] = {{-1, -1, -1}, {1, -1, -1}, {1, 1, -1}, {-1, 1, -1}};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        gx[k] = sign[k][0] * c[0][0] + sign[k][1] * c[0][1] + sign[k][2] * c[0][2];
        gy[k] = sign[k][0] * c[1][0] + sign[k][1] * c[1][1] + sign[k][2] * c[1][2];
        gz[k] = sign[k][0] * c[2][0] + sign[k][1] * c[2][1] + sign[k][2] * c[2][2];
    }
    const double inv = 1.0 / det;
    double dxx = 0, dyy = 0, dzz = 0, dxy = 0, dxz = 0, dyz = 0;
    constexpr int other[4] = {6, 7, 4, 5};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const double du = u[k] - u[other[k]], dv = v[k] - v[other[k]], dw = w[k] - w[other[k]];
        dxx += gx[k] * du; dyy += gy[k] * dv; dzz += gz[k] * dw;
        dxy += gx[k] * dv + gy[k] * du;
        dxz += gx[k] * dw + gz[k] * du;
        dyz += gy[k] * dw + gz[k] * dv;
    }
    const double third = (dxx + dyy + dzz) * inv / 3.0;
    out[e] = ratio;
    out[n + e] = 4.0 * vol / sqrt(area);
    out[2 * n + e] = dxx * inv - third;
    out[3 * n + e] = dyy * inv - third;
    out[4 * n + e] = dzz * inv - third;
    out[5 * n + e] = 0.5 * inv * (dxy + dxz + dyz);
}
