// Takes half of the factor it is given, and no more than four.
constexpr int copies = UNROLL / 2 > 4 ? 4 : UNROLL / 2;

extern "C" __global__ void halved(const float *__restrict__ x, float *__restrict__ y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll copies
    for (int k = 0; k < n; ++k) sum = sum * 0.5f + x[i + k * n];
    y[i] = sum;
}
