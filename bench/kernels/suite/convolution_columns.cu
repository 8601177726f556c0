// The column pass of a separable convolution: a tile with halo in shared memory, eight results a
// thread, radius 8. Block 16x8.
constexpr int kRadius = 8, kX = 16, kY = 8, kSteps = 8;

extern "C" __global__ void convolution_columns(const float *__restrict__ in, const float *__restrict__ taps,
                                               float *__restrict__ out, int width, int height)
{
    __shared__ float tile[kX][(kSteps + 2) * kY + 1];
    const int x = blockIdx.x * kX + threadIdx.x;
    const int y0 = (blockIdx.y * kSteps - 1) * kY + threadIdx.y;
#pragma unroll
    for (int s = 0; s < kSteps + 2; ++s) {
        const int y = y0 + s * kY;
        tile[threadIdx.x][threadIdx.y + s * kY] = y >= 0 && y < height ? in[static_cast<size_t>(y) * width + x] : 0.0f;
    }
    float tap[2 * kRadius + 1];
#pragma unroll
    for (int k = 0; k <= 2 * kRadius; ++k) tap[k] = taps[k];
    __syncthreads();
#pragma unroll
    for (int s = 1; s <= kSteps; ++s) {
        float sum = 0;
#pragma unroll
        for (int k = -kRadius; k <= kRadius; ++k) sum = fmaf(tap[kRadius - k], tile[threadIdx.x][threadIdx.y + s * kY + k], sum);
        const int y = y0 + s * kY;
        if (y < height) out[static_cast<size_t>(y) * width + x] = sum;
    }
}
