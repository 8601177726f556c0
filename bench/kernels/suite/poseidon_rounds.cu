// Poseidon-like permutation over the prime 2^64 - 2^32 + 1: a state of eight words, x^7 boxes, a
// circulant mixing matrix; full rounds with generated constants.
#include <cstdint>

constexpr uint64_t kPrime = 0xffffffff00000001ull;

__device__ __forceinline__ uint64_t reduce(uint64_t lo, uint64_t hi)
{
    const uint64_t top = hi >> 32, mid = hi & 0xffffffffull;
    uint64_t r = lo - top;
    if (lo < top) r -= 0xffffffffull;
    const uint64_t m = mid * 0xffffffffull, s = r + m;
    return s < m ? s + 0xffffffffull : s;
}
__device__ __forceinline__ uint64_t mul(uint64_t a, uint64_t b) { return reduce(a * b, __umul64hi(a, b)); }
__device__ __forceinline__ uint64_t add(uint64_t a, uint64_t b)
{
    const uint64_t s = a + b;
    return s < a ? s + 0xffffffffull : s;
}

extern "C" __global__ void poseidon_rounds(const uint64_t *__restrict__ in, const uint64_t *__restrict__ constants,
                                           uint64_t *__restrict__ out, int rounds, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    uint64_t s[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) s[k] = in[static_cast<size_t>(k) * n + t];
    constexpr unsigned row[8] = {7, 1, 3, 8, 8, 3, 4, 9};
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const uint64_t x = add(s[k], constants[8 * r + k]), x2 = mul(x, x), x4 = mul(x2, x2);
            s[k] = mul(mul(x, x2), x4);
        }
        uint64_t m[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            uint64_t lo = 0, hi = 0;
#pragma unroll
            for (int k = 0; k < 8; ++k) {
                const uint64_t p = s[k] * row[(k + 8 - i) & 7];
                hi += __umul64hi(s[k], row[(k + 8 - i) & 7]);
                lo += p;
                hi += lo < p;
            }
            m[i] = reduce(lo, hi);
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) s[k] = m[k];
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) out[static_cast<size_t>(k) * n + t] = s[k] >= kPrime ? s[k] - kPrime : s[k];
}
