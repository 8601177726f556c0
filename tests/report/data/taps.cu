// A loop of 12 turns, always unrolled, inside one of which FACTOR turns are unrolled: the copies of
// its line are a product, and those of what nvcc adds for the last turns. Compile with
//
//     nvcc -arch=sm_90 -lineinfo -cubin -DFACTOR=1 -o taps_rolled.cubin taps.cu
//     nvcc -arch=sm_90 -lineinfo -cubin -DFACTOR=8 -o taps_unrolled.cubin taps.cu
constexpr int outputs = 12;
constexpr int factor = FACTOR;

extern "C" __global__ void __launch_bounds__(256)
    taps(const double *__restrict__ x, const double *__restrict__ w, double *__restrict__ y, int n,
         int count)
{
    __shared__ double row[256 + 64];
    const int t = threadIdx.x, g = blockIdx.x * 256 + t;
    row[t] = x[g];
    if (t < 64) row[256 + t] = x[g + 256];
    __syncthreads();
    double sum[outputs] = {};
#pragma unroll factor
    for (int k = 0; k < count; k++) {
        const double v = row[t + k];
#pragma unroll
        for (int j = 0; j < outputs; j++)
            sum[j] = fma(v, w[k * outputs + j], sum[j]);
    }
#pragma unroll
    for (int j = 0; j < outputs; j++) y[j * n + g] = sum[j];
}
