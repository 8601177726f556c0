// Two passes over a window of taps per row: mean, then weighted deviations. Rolled, the second
// pass loads the values again; fully unrolled, the compiler keeps all of them in registers, and
// they don't fit. FACTOR copies of the inner loops are made; 24 is all of them. Compile with
//
//     nvcc -arch=sm_90 -lineinfo -cubin -DFACTOR=1 -o variance_rolled.cubin variance.cu
//     nvcc -arch=sm_90 -lineinfo -cubin -DFACTOR=24 -o variance_unrolled.cubin variance.cu
#ifndef FACTOR
#define FACTOR 1
#endif
constexpr int taps = 24;
constexpr int factor = FACTOR;
constexpr int moments = 6;

extern "C" __global__ void __launch_bounds__(256, 4) variance(
    const double *__restrict__ in, const double *__restrict__ weight, double *__restrict__ out,
    const int *__restrict__ start, int rows, int pitch)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    double sum[moments] = {};
    for (int row = 0; row < rows; ++row) {
        const double *__restrict__ line = in + (size_t)start[row] * pitch + x;
        double mean = 0;
#pragma unroll factor
        for (int k = 0; k < taps; ++k)
            mean += line[(size_t)k * pitch];
        mean *= 1.0 / taps;
#pragma unroll factor
        for (int k = 0; k < taps; ++k) {
            const double d = line[(size_t)k * pitch] - mean;
            double power = weight[row * taps + k];
            for (int p = 0; p < moments; ++p) {
                power *= d;
                sum[p] += power;
            }
        }
    }
    for (int p = 0; p < moments; ++p) out[x + (size_t)p * pitch] = sum[p];
}
