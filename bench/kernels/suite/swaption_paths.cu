// Swaption prices by Monte Carlo in a one-factor market model of twelve forward rates, one path a
// thread, counter-based random numbers and Box-Muller pairs.
#include <cstdint>

constexpr int kRates = 12;

__device__ __forceinline__ uint32_t hash(uint32_t x)
{
    x ^= x >> 16; x *= 0x21f0aaadu;
    x ^= x >> 15; x *= 0x735a2d97u;
    return x ^ (x >> 15);
}

extern "C" __global__ void swaption_paths(const float *__restrict__ forward, const float *__restrict__ volatility,
                                          float *__restrict__ payoff, float strike, float tenor, int steps, uint32_t seed,
                                          int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    float rate[kRates], sigma[kRates];
#pragma unroll
    for (int k = 0; k < kRates; ++k) { rate[k] = forward[k]; sigma[k] = volatility[k]; }
    const float root = sqrtf(tenor);
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
        const uint32_t h = hash(seed + t * 2654435761u + s), g = hash(h ^ 0x5bd1e995u);
        const float u1 = (h + 1.0f) * 2.3283064e-10f, u2 = g * 2.3283064e-10f;
        const float z = sqrtf(-2.0f * __logf(fminf(u1, 1.0f))) * __cosf(6.2831853f * u2) * root;
        float drift = 0;
#pragma unroll
        for (int k = 0; k < kRates; ++k) {
            drift += tenor * rate[k] * sigma[k] / (1.0f + tenor * rate[k]);
            rate[k] *= __expf(sigma[k] * (drift * tenor - 0.5f * sigma[k] * tenor + z));
        }
    }
    float discount = 1, annuity = 0;
#pragma unroll
    for (int k = 0; k < kRates; ++k) {
        discount /= 1.0f + tenor * rate[k];
        annuity += tenor * discount;
    }
    payoff[t] = fmaxf(1.0f - discount - strike * annuity, 0.0f);
}
