// Moments of sliding windows: each thread owns a column; per row a block holds its stretch in
// shared memory, and each thread walks its window twice, for the mean and for powers of the
// deviations. UNROLL copies of the inner loops are made; 40 is all of them.
//
// Compiled with -maxrregcount=92, the full unroll takes the kernel from 48 to 92 registers, with
// spills inside the row loop, and from two resident blocks of 512 threads to one:
//
//     regdem study unroll window.cu --factors 1,2,4,8,40 --threads 512
//         --nvcc-flag -maxrregcount=92 --out study
//
// window.launch.toml says how to launch it, for times (--launch window.launch.toml).
constexpr int taps = 40;
constexpr int threads = 512;
constexpr int moments = 8;

extern "C" __global__ void windows(
    const double *__restrict__ in, const double *__restrict__ weight, double *__restrict__ out,
    int rows, int pitch)
{
    __shared__ double tile[threads + taps];
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    double sum[moments] = {};
    double least = 1e300;
    for (int row = 0; row < rows; ++row) {
        __syncthreads();
        tile[threadIdx.x] = in[(size_t)row * pitch + x];
        if (threadIdx.x < taps)
            tile[threads + threadIdx.x] = in[(size_t)row * pitch + x + threads];
        __syncthreads();
        double mean = 0;
#pragma unroll UNROLL
        for (int k = 0; k < taps; ++k)
            mean += tile[threadIdx.x + k];
        mean *= 1.0 / taps;
#pragma unroll UNROLL
        for (int k = 0; k < taps; ++k) {
            const double d = tile[threadIdx.x + k] - mean;
            double power = weight[row * taps + k];
            for (int p = 0; p < moments; ++p) {
                power *= d;
                sum[p] += power;
                least = fmin(least, d);
            }
        }
    }
    for (int p = 0; p < moments; ++p) out[x + (size_t)p * pitch] = sum[p] * least;
}
