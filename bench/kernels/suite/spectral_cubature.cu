// Spectral elements: interpolation of a degree-5 field to cubature points along one direction,
// geometric factors, and the weighted residual back, one line of a tensor-product element a
// thread, in double. Block 36 would waste lanes, so a block holds lines of many elements.
constexpr int kNodes = 6, kPoints = 8;

extern "C" __global__ void spectral_cubature(const double *__restrict__ field, const double *__restrict__ interpolate,
                                             const double *__restrict__ derive, const double *__restrict__ factors,
                                             double *__restrict__ out, int lines)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= lines) return;
    double u[3][kNodes], r[3][kNodes];
#pragma unroll
    for (int d = 0; d < 3; ++d)
#pragma unroll
        for (int k = 0; k < kNodes; ++k) {
            u[d][k] = field[static_cast<size_t>(d * kNodes + k) * lines + t];
            r[d][k] = 0;
        }
#pragma unroll 2
    for (int q = 0; q < kPoints; ++q) {
        double a[3], b[3];
#pragma unroll
        for (int d = 0; d < 3; ++d) {
            a[d] = 0;
            b[d] = 0;
#pragma unroll
            for (int k = 0; k < kNodes; ++k) {
                a[d] = fma(interpolate[q * kNodes + k], u[d][k], a[d]);
                b[d] = fma(derive[q * kNodes + k], u[d][k], b[d]);
            }
        }
        const double g0 = factors[static_cast<size_t>(3 * q) * lines + t], g1 = factors[static_cast<size_t>(3 * q + 1) * lines + t],
                     g2 = factors[static_cast<size_t>(3 * q + 2) * lines + t];
        const double speed = g0 * a[0] + g1 * a[1] + g2 * a[2];
#pragma unroll
        for (int d = 0; d < 3; ++d) {
            const double f = speed * b[d], g = g0 * a[d] * a[d];
#pragma unroll
            for (int k = 0; k < kNodes; ++k) r[d][k] += interpolate[q * kNodes + k] * f - derive[q * kNodes + k] * g;
        }
    }
#pragma unroll
    for (int d = 0; d < 3; ++d)
#pragma unroll
        for (int k = 0; k < kNodes; ++k) out[static_cast<size_t>(d * kNodes + k) * lines + t] = r[d][k];
}
