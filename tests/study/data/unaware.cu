// Uses the define, but not on a loop, and has a loop that no factor changes.
extern "C" __global__ void unaware(const float *__restrict__ x, float *__restrict__ y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    static_assert(UNROLL > 0, "a factor");
    float sum = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) sum += x[i + k * n];
    y[i] = sum;
}
