// Batched normal equations of twelve unknowns (an affine registration, a local fit): Cholesky
// factorisation and solve in double, one system a thread, the packed lower triangle in registers.
// Systems lie one after the other, so that a block stages them through dynamic shared memory, 13
// words of each at a time (odd: no bank conflicts), to keep global loads coalesced.
// Launch bounds: the divisions and roots of one system are a serial chain, so warps have to hide
// it; three blocks of 128 threads leave 168 registers for a triangle that needs 156.
constexpr int kSize = 12, kPacked = kSize * (kSize + 1) / 2, kSlab = 13, kThreads = 128;

extern __shared__ double stage[];

__device__ __forceinline__ int at(int row, int column) { return row * (row + 1) / 2 + column; }

// `width` words from `first` on of each of the block's systems, `stride` words apart
template <int width> __device__ __forceinline__ void fetch(const double *__restrict__ data, int stride, int first, int n, double *mine)
{
    const int begin = blockIdx.x * kThreads;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < width; ++k) {
        const int i = k * kThreads + threadIdx.x, system = i / width, word = i % width;
        if (begin + system < n) stage[system * kSlab + word] = data[static_cast<size_t>(begin + system) * stride + first + word];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < width; ++k) mine[k] = stage[threadIdx.x * kSlab + k];
}

extern "C" __global__ void __launch_bounds__(kThreads, 3)
    small_cholesky(const double *__restrict__ matrices, const double *__restrict__ sides, double *__restrict__ out, int n)
{
    double a[kPacked], x[kSize];
#pragma unroll
    for (int slab = 0; slab < kPacked / kSlab; ++slab) fetch<kSlab>(matrices, kPacked, slab * kSlab, n, a + slab * kSlab);
    fetch<kSize>(sides, kSize, 0, n, x);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
        double pivot = a[at(j, j)];
#pragma unroll
        for (int k = 0; k < j; ++k) pivot -= a[at(j, k)] * a[at(j, k)];
        const double inverse = rsqrt(pivot);
        a[at(j, j)] = inverse;
#pragma unroll
        for (int i = j + 1; i < kSize; ++i) {
            double s = a[at(i, j)];
#pragma unroll
            for (int k = 0; k < j; ++k) s -= a[at(i, k)] * a[at(j, k)];
            a[at(i, j)] = s * inverse;
        }
    }
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
#pragma unroll
        for (int k = 0; k < i; ++k) x[i] -= a[at(i, k)] * x[k];
        x[i] *= a[at(i, i)];
    }
#pragma unroll
    for (int i = kSize - 1; i >= 0; --i) {
#pragma unroll
        for (int k = i + 1; k < kSize; ++k) x[i] -= a[at(k, i)] * x[k];
        x[i] *= a[at(i, i)];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kSize; ++k) stage[threadIdx.x * kSlab + k] = x[k];
    __syncthreads();
    const int begin = blockIdx.x * kThreads;
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
        const int i = k * kThreads + threadIdx.x, system = i / kSize, word = i % kSize;
        if (begin + system < n) out[static_cast<size_t>(begin + system) * kSize + word] = stage[system * kSlab + word];
    }
}
