// A latency-bound gather loop: every thread walks a random table through device memory and
// keeps running moments of what it finds. One dependent load in flight per thread: only warps
// hide its latency.
#include <cstdint>

constexpr int kMoments = 36;

extern "C" __global__ void gather(const uint32_t *__restrict__ next, const float *__restrict__ weight,
                                  float *__restrict__ out, uint32_t mask, int steps, int threads)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= threads) return;
    uint32_t at = (static_cast<uint32_t>(t) * 2654435761u) & mask;
    float moment[kMoments];
#pragma unroll
    for (int k = 0; k < kMoments; ++k) moment[k] = weight[k];
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
        at = next[at] & mask;
        const float x = static_cast<float>(at & 1023u) * (1.0f / 1024.0f);
#pragma unroll
        for (int k = 0; k < kMoments; ++k) moment[k] = fmaf(moment[k], x, 0.125f * (k + 1));
    }
    float sum[4] = {};
#pragma unroll
    for (int k = 0; k < kMoments; ++k) sum[k & 3] = sum[k & 3] * 0.75f + moment[k];
#pragma unroll
    for (int k = 0; k < 4; ++k) out[static_cast<size_t>(k) * threads + t] = sum[k];
}
