// Static shared memory with barriers and shuffles: each block reduces a tile of samples of seven
// channels to covariances by warp shuffles and a shared table, then whitens its own samples.
constexpr int kChannels = 7;
constexpr int kPairs = kChannels * (kChannels + 1) / 2;

extern "C" __global__ void block_moments(const float *__restrict__ samples, float *__restrict__ scores,
                                         float *__restrict__ moments, int n)
{
    __shared__ float partial[32][kPairs + kChannels];
    __shared__ float total[kPairs + kChannels];
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    float x[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) x[c] = t < n ? samples[static_cast<size_t>(c) * n + t] : 0.0f;

    float sum[kPairs + kChannels];
    int p = 0;
#pragma unroll
    for (int a = 0; a < kChannels; ++a)
#pragma unroll
        for (int b = a; b < kChannels; ++b) sum[p++] = x[a] * x[b];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) sum[kPairs + c] = x[c];
#pragma unroll
    for (int step = 16; step > 0; step >>= 1)
#pragma unroll
        for (int k = 0; k < kPairs + kChannels; ++k) sum[k] += __shfl_xor_sync(~0u, sum[k], step);
    if (lane == 0)
#pragma unroll
        for (int k = 0; k < kPairs + kChannels; ++k) partial[warp][k] = sum[k];
    __syncthreads();
    if (threadIdx.x < kPairs + kChannels) {
        float s = 0;
        for (int w = 0; w < warps; ++w) s += partial[w][threadIdx.x];
        total[threadIdx.x] = s / blockDim.x;
        moments[static_cast<size_t>(blockIdx.x) * (kPairs + kChannels) + threadIdx.x] = total[threadIdx.x];
    }
    __syncthreads();
    float score = 0;
    p = 0;
#pragma unroll
    for (int a = 0; a < kChannels; ++a)
#pragma unroll
        for (int b = a; b < kChannels; ++b) score += total[p++] * (x[a] - total[kPairs + a]) * (x[b] - total[kPairs + b]);
    if (t < n) scores[t] = score;
}
