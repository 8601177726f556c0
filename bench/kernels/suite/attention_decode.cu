// Attention of one decoding step, in half, grouped queries: eight query heads share a key and value
// head of 128 dimensions. A block takes 256 keys of one sequence; 16 lanes read a key's 256 bytes,
// eight rows of lanes take eight keys at a time and keep their own running maximum, sum and output;
// dynamic shared memory, sized by the group, holds those for the merge. Parts are combined later by
// their logarithms.
// Launch bounds: queries and outputs are 128 registers a thread, so the author gives up the fourth
// block of 128 threads and asks for three (168 registers), enough to keep 32 KiB of loads on their way.
#include <cuda_fp16.h>

constexpr int kGroup = 8, kDepth = 128, kWide = 8, kLanes = kDepth / kWide, kThreads = 128, kRows = kThreads / kLanes, kPart = 256;
constexpr float kLeast = -1.0e30f;

extern __shared__ float merge[];

__device__ __forceinline__ void widen(const uint4 &packed, float (&to)[kWide])
{
    const __half2 *pair = reinterpret_cast<const __half2 *>(&packed);
#pragma unroll
    for (int k = 0; k < kWide / 2; ++k) {
        const float2 f = __half22float2(pair[k]);
        to[2 * k] = f.x;
        to[2 * k + 1] = f.y;
    }
}

// grid: parts, sequences x heads. `logs` is log2 of the part's sum of exponentials.
extern "C" __global__ void __launch_bounds__(kThreads, 3)
    attention_decode(const uint4 *__restrict__ queries, const uint4 *__restrict__ keys, const uint4 *__restrict__ values,
                     const int *__restrict__ lengths, float *__restrict__ out, float *__restrict__ logs, float scale, int longest, int heads)
{
    const int lane = threadIdx.x % kLanes, row = threadIdx.x / kLanes, head = blockIdx.y;
    const int begin = blockIdx.x * kPart, end = min(begin + kPart, lengths[head / heads]);
    float q[kGroup][kWide], sum[kGroup][kWide] = {}, most[kGroup], total[kGroup] = {};
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
        widen(queries[(head * kGroup + g) * kLanes + lane], q[g]);
        most[g] = kLeast;
#pragma unroll
        for (int d = 0; d < kWide; ++d) q[g][d] *= scale;
    }
#pragma unroll 2
    for (int first = begin; first < end; first += kRows) {
        const bool valid = first + row < end;
        const size_t at = (static_cast<size_t>(head) * longest + (valid ? first + row : end - 1)) * kLanes + lane;
        const uint4 packed_k = keys[at], packed_v = values[at];
        float k[kWide], v[kWide], score[kGroup];
        widen(packed_k, k);
#pragma unroll
        for (int g = 0; g < kGroup; ++g) {
            score[g] = 0;
#pragma unroll
            for (int d = 0; d < kWide; ++d) score[g] += q[g][d] * k[d];
#pragma unroll
            for (int step = kLanes / 2; step > 0; step /= 2) score[g] += __shfl_xor_sync(0xffffffffu, score[g], step);
        }
        widen(packed_v, v);
#pragma unroll
        for (int g = 0; g < kGroup; ++g) {
            const float now = valid ? fmaxf(most[g], score[g]) : most[g];
            const float keep = exp2f(most[g] - now), weight = valid ? exp2f(score[g] - now) : 0.0f;
            most[g] = now;
            total[g] = total[g] * keep + weight;
#pragma unroll
            for (int d = 0; d < kWide; ++d) sum[g][d] = sum[g][d] * keep + weight * v[d];
        }
    }
    // merge[g][row][depth], then the rows' maxima and sums
    float *maxima = merge + kGroup * kRows * kDepth, *sums = maxima + kGroup * kRows;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
        float *to = merge + (g * kRows + row) * kDepth + lane * kWide;
        *reinterpret_cast<float4 *>(to) = make_float4(sum[g][0], sum[g][1], sum[g][2], sum[g][3]);
        *reinterpret_cast<float4 *>(to + 4) = make_float4(sum[g][4], sum[g][5], sum[g][6], sum[g][7]);
        if (lane == 0) {
            maxima[g * kRows + row] = most[g];
            sums[g * kRows + row] = total[g];
        }
    }
    __syncthreads();
    const size_t part = static_cast<size_t>(head) * gridDim.x + blockIdx.x;
    const int depth = threadIdx.x;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
        float top = kLeast, all = 0, result = 0;
#pragma unroll
        for (int r = 0; r < kRows; ++r) top = fmaxf(top, maxima[g * kRows + r]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const float weight = exp2f(maxima[g * kRows + r] - top);
            all += weight * sums[g * kRows + r];
            result += weight * merge[(g * kRows + r) * kDepth + depth];
        }
        out[(part * kGroup + g) * kDepth + depth] = all > 0 ? result / all : 0.0f;
        if (depth == 0) logs[part * kGroup + g] = all > 0 ? top + log2f(all) : kLeast;
    }
}
