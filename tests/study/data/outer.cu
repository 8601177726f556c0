// An outer loop unrolled over an inner one that isn't.
extern "C" __global__ void outer(const float *__restrict__ x, float *__restrict__ y, int n, int m)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll UNROLL
    for (int r = 0; r < 16; ++r) {
        float part = y[i + r];
#pragma unroll 1
        for (int k = 0; k < n; ++k) part = part * 1.5f + x[i + k * m + r];
        sum += part * part;
    }
    y[i] = sum;
}
