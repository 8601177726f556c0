// Quality-threshold clustering: a block grows the candidate cluster of one seed by adding, again
// and again, the point that widens the diameter least. Each thread owns eight candidates.
constexpr int kOwn = 8, kThreads = 64, kPoints = kOwn * kThreads;

extern "C" __global__ void quality_cluster(const float2 *__restrict__ points, const int *__restrict__ lists,
                                           int *__restrict__ sizes, float *__restrict__ widths, float limit,
                                           int rounds)
{
    __shared__ float2 at[kPoints];
    __shared__ float best_value[2];
    __shared__ int best_index[2];
    const int t = threadIdx.x;
    float x[kOwn], y[kOwn], far[kOwn];
    const float2 seed = points[blockIdx.x];
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
        const float2 p = points[lists[static_cast<size_t>(blockIdx.x) * kPoints + k * kThreads + t]];
        at[k * kThreads + t] = p;
        x[k] = p.x;
        y[k] = p.y;
        far[k] = hypotf(p.x - seed.x, p.y - seed.y);
    }
    __syncthreads();
    int size = 1;
    float width = 0;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
        float value = 3.0e38f;
        int index = kPoints;
#pragma unroll
        for (int k = 0; k < kOwn; ++k)
            if (far[k] < value) { value = far[k]; index = k * kThreads + t; }
        for (int step = 16; step > 0; step >>= 1) {
            const float v = __shfl_xor_sync(~0u, value, step);
            const int i = __shfl_xor_sync(~0u, index, step);
            if (v < value || (v == value && i < index)) { value = v; index = i; }
        }
        if ((t & 31) == 0) { best_value[t >> 5] = value; best_index[t >> 5] = index; }
        __syncthreads();
        const bool second = best_value[1] < best_value[0] ||
                            (best_value[1] == best_value[0] && best_index[1] < best_index[0]);
        value = best_value[second];
        index = best_index[second];
        __syncthreads();
        if (value > limit) break;
        const float2 p = at[index];
        width = fmaxf(width, value);
        ++size;
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
            const float d = sqrtf((x[k] - p.x) * (x[k] - p.x) + (y[k] - p.y) * (y[k] - p.y));
            far[k] = index == k * kThreads + t ? 3.0e38f : fmaxf(far[k], d);
        }
    }
    if (t == 0) { sizes[blockIdx.x] = size; widths[blockIdx.x] = width; }
}
