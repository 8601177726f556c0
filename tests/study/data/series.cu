// One loop of unknown length: unrolled, it has a remainder.
extern "C" __global__ void series(
    const float *__restrict__ x, float *__restrict__ y, float a, int n, int stride)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll UNROLL
    for (int k = 0; k < n; ++k) sum = sum * a + x[i + k * stride];
    y[i] = sum;
}
