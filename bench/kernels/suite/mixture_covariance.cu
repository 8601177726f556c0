// Gaussian-mixture M step: the weighted covariance of one component, six dimensions, by block
// partial sums in shared memory.
constexpr int kDim = 6, kPairs = kDim * (kDim + 1) / 2, kThreads = 256;

extern "C" __global__ void mixture_covariance(const float *__restrict__ samples, const float *__restrict__ weights,
                                              const float *__restrict__ means, float *__restrict__ partial, int n,
                                              int per_block)
{
    __shared__ float sums[kPairs + 1][kThreads / 32];
    __shared__ float mean[kDim];
    const int t = threadIdx.x;
    if (t < kDim) mean[t] = means[blockIdx.y * kDim + t];
    __syncthreads();
    float sum[kPairs + 1];
#pragma unroll
    for (int k = 0; k <= kPairs; ++k) sum[k] = 0;
    const int first = blockIdx.x * per_block, last = min(first + per_block, n);
    for (int i = first + t; i < last; i += kThreads) {
        float d[kDim];
#pragma unroll
        for (int k = 0; k < kDim; ++k) d[k] = samples[static_cast<size_t>(k) * n + i] - mean[k];
        const float w = weights[static_cast<size_t>(blockIdx.y) * n + i];
        int p = 0;
#pragma unroll
        for (int a = 0; a < kDim; ++a)
#pragma unroll
            for (int b = 0; b <= a; ++b) sum[p++] += w * d[a] * d[b];
        sum[kPairs] += w;
    }
#pragma unroll
    for (int k = 0; k <= kPairs; ++k) {
#pragma unroll
        for (int step = 16; step > 0; step >>= 1) sum[k] += __shfl_xor_sync(~0u, sum[k], step);
        if ((t & 31) == 0) sums[k][t >> 5] = sum[k];
    }
    __syncthreads();
    if (t <= kPairs) {
        float s = 0;
#pragma unroll
        for (int k = 0; k < kThreads / 32; ++k) s += sums[t][k];
        partial[(static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x) * (kPairs + 1) + t] = s;
    }
}
