// Stiff kinetics (ionic or chemical): one linearly implicit step of twelve coupled species in
// double; Jacobian and LU factorisation live in registers, fill all 255 and spill.
constexpr int kSpecies = 12;

extern "C" __global__ void stiff_kinetics(const double *__restrict__ state, const double *__restrict__ rates,
                                          double *__restrict__ out, double step, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    double y[kSpecies], f[kSpecies], a[kSpecies][kSpecies];
#pragma unroll
    for (int k = 0; k < kSpecies; ++k) y[k] = state[static_cast<size_t>(k) * n + t];
    const double heat = 1.0 / (1.0 + 0.1 * y[0]);
#pragma unroll
    for (int i = 0; i < kSpecies; ++i) {
        f[i] = 0;
#pragma unroll
        for (int j = 0; j < kSpecies; ++j) {
            const double r = rates[i * kSpecies + j] * heat;
            f[i] += r * y[j] * y[(i + j) % kSpecies];
            a[i][j] = (i == j ? 1.0 : 0.0) - step * r * y[(i + j) % kSpecies];
        }
    }
#pragma unroll
    for (int k = 0; k < kSpecies; ++k) {
        const double inv = 1.0 / a[k][k];
#pragma unroll
        for (int i = k + 1; i < kSpecies; ++i) {
            const double l = a[i][k] * inv;
#pragma unroll
            for (int j = k + 1; j < kSpecies; ++j) a[i][j] -= l * a[k][j];
            f[i] -= l * f[k];
        }
    }
#pragma unroll
    for (int k = kSpecies - 1; k >= 0; --k) {
        double s = f[k];
#pragma unroll
        for (int j = k + 1; j < kSpecies; ++j) s -= a[k][j] * f[j];
        f[k] = s / a[k][k];
    }
#pragma unroll
    for (int k = 0; k < kSpecies; ++k) out[static_cast<size_t>(k) * n + t] = y[k] + step * f[k];
}
