// Batched complex Fourier transforms of 4096 points in double: Stockham passes of radix 16, one
// transform a block of 256 threads, 16 points a thread in registers; points change hands through
// dynamic shared memory (rows of 16 padded to 17 against bank conflicts), twiddles come from a table.
// Launch bounds: the exchange buffer of 68 KiB admits three blocks to a multiprocessor of 228 KiB,
// so the bounds ask for three and leave 80 registers a thread.
constexpr int kPoints = 4096, kThreads = 256, kRadix = 16;

extern __shared__ double2 exchange[];

__device__ __forceinline__ double2 add(double2 a, double2 b) { return make_double2(a.x + b.x, a.y + b.y); }
__device__ __forceinline__ double2 sub(double2 a, double2 b) { return make_double2(a.x - b.x, a.y - b.y); }
__device__ __forceinline__ double2 mul(double2 a, double2 b)
{
    return make_double2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
// four points, forward: times -i is (y, -x)
__device__ __forceinline__ void transform4(double2 &a, double2 &b, double2 &c, double2 &d)
{
    const double2 s = add(a, c), t = sub(a, c), u = add(b, d), w = sub(b, d);
    a = add(s, u);
    c = sub(s, u);
    b = make_double2(t.x + w.y, t.y - w.x);
    d = make_double2(t.x - w.y, t.y + w.x);
}
// sixteen points as 4 x 4; results are left transposed: output k stands at v[4 * (k % 4) + k / 4]
__device__ __forceinline__ void transform16(double2 (&v)[kRadix])
{
    constexpr double c1 = 0.92387953251128675613, s1 = 0.38268343236508977173, h = 0.70710678118654752440;
    const double2 roots[10] = {{1, 0}, {c1, -s1}, {h, -h}, {s1, -c1}, {0, -1}, {-s1, -c1}, {-h, -h}, {-c1, -s1}, {-1, 0}, {-c1, s1}};
#pragma unroll
    for (int k = 0; k < 4; ++k) transform4(v[k], v[k + 4], v[k + 8], v[k + 12]);
#pragma unroll
    for (int row = 1; row < 4; ++row)
#pragma unroll
        for (int column = 1; column < 4; ++column) v[4 * row + column] = mul(v[4 * row + column], roots[row * column]);
#pragma unroll
    for (int row = 0; row < 4; ++row) transform4(v[4 * row], v[4 * row + 1], v[4 * row + 2], v[4 * row + 3]);
}
__device__ __forceinline__ int padded(int index) { return index + (index >> 4); }

// one Stockham pass in registers: twiddles for a stage whose sub-transforms have `done` points
template <int done> __device__ __forceinline__ void pass(double2 (&v)[kRadix], const double2 *__restrict__ twiddles)
{
    if (done > 1) {
        const int step = (threadIdx.x % done) * (kPoints / (done * kRadix));
#pragma unroll
        for (int k = 1; k < kRadix; ++k) v[k] = mul(v[k], twiddles[step * k]);
    }
    transform16(v);
}
template <int done> __device__ __forceinline__ void pass_on(double2 (&v)[kRadix])
{
    const int t = threadIdx.x, first = t / done * done * kRadix + t % done;
#pragma unroll
    for (int k = 0; k < kRadix; ++k) exchange[padded(first + k * done)] = v[4 * (k % 4) + k / 4];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kRadix; ++k) v[k] = exchange[padded(t + k * kThreads)];
}

extern "C" __global__ void __launch_bounds__(kThreads, 3)
    fft_radix16(const double2 *__restrict__ in, const double2 *__restrict__ twiddles, double2 *__restrict__ out)
{
    const int t = threadIdx.x;
    const size_t base = static_cast<size_t>(blockIdx.x) * kPoints;
    double2 v[kRadix];
#pragma unroll
    for (int k = 0; k < kRadix; ++k) v[k] = in[base + t + k * kThreads];
    pass<1>(v, twiddles);
    pass_on<1>(v);
    __syncthreads();
    pass<16>(v, twiddles);
    pass_on<16>(v);
    pass<256>(v, twiddles);
#pragma unroll
    for (int k = 0; k < kRadix; ++k) out[base + t + k * kThreads] = v[4 * (k % 4) + k / 4];
}
