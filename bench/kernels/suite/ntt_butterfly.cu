// 256-bit modular arithmetic: radix-2 NTT butterflies over the BN254 scalar field, Montgomery
// multiplication with 32-bit limbs; each thread does one butterfly of several stages.
#include <cstdint>

constexpr uint32_t kInverse = 0xefffffffu;
__constant__ constexpr uint32_t kPrime[8] = {0xf0000001u, 0x43e1f593u, 0x79b97091u, 0x2833e848u,
                                             0x8181585du, 0xb85045b6u, 0xe131a029u, 0x30644e72u};

struct Field { uint32_t w[8]; };

__device__ __forceinline__ Field subtract_if(const Field &a)
{
    Field r;
    uint64_t borrow = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const uint64_t d = static_cast<uint64_t>(a.w[k]) - kPrime[k] - borrow;
        r.w[k] = static_cast<uint32_t>(d);
        borrow = d >> 63;
    }
    return borrow ? a : r;
}
__device__ __forceinline__ Field add(const Field &a, const Field &b)
{
    Field r;
    uint64_t carry = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        carry += static_cast<uint64_t>(a.w[k]) + b.w[k];
        r.w[k] = static_cast<uint32_t>(carry);
        carry >>= 32;
    }
    return subtract_if(r);
}
__device__ __forceinline__ Field sub(const Field &a, const Field &b)
{
    Field r;
    uint64_t borrow = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const uint64_t d = static_cast<uint64_t>(a.w[k]) - b.w[k] - borrow;
        r.w[k] = static_cast<uint32_t>(d);
        borrow = d >> 63;
    }
    uint64_t carry = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        carry += static_cast<uint64_t>(r.w[k]) + (borrow ? kPrime[k] : 0u);
        r.w[k] = static_cast<uint32_t>(carry);
        carry >>= 32;
    }
    return r;
}
__device__ __forceinline__ Field mul(const Field &a, const Field &b)
{
    uint32_t t[10] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        uint64_t carry = 0;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            carry += static_cast<uint64_t>(a.w[k]) * b.w[i] + t[k];
            t[k] = static_cast<uint32_t>(carry);
            carry >>= 32;
        }
        carry += t[8];
        t[8] = static_cast<uint32_t>(carry);
        t[9] = static_cast<uint32_t>(carry >> 32);
        const uint32_t m = t[0] * kInverse;
        carry = (static_cast<uint64_t>(m) * kPrime[0] + t[0]) >> 32;
#pragma unroll
        for (int k = 1; k < 8; ++k) {
            carry += static_cast<uint64_t>(m) * kPrime[k] + t[k];
            t[k - 1] = static_cast<uint32_t>(carry);
            carry >>= 32;
        }
        carry += t[8];
        t[7] = static_cast<uint32_t>(carry);
        t[8] = t[9] + static_cast<uint32_t>(carry >> 32);
    }
    Field r;
#pragma unroll
    for (int k = 0; k < 8; ++k) r.w[k] = t[k];
    return subtract_if(r);
}
__device__ __forceinline__ Field load(const uint4 *p)
{
    const uint4 a = p[0], b = p[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ __forceinline__ void store(uint4 *p, const Field &f)
{
    p[0] = make_uint4(f.w[0], f.w[1], f.w[2], f.w[3]);
    p[1] = make_uint4(f.w[4], f.w[5], f.w[6], f.w[7]);
}

// radix-4 step: two stages of butterflies on values n/4 apart
extern "C" __global__ void ntt_butterfly(const uint4 *__restrict__ in, const uint4 *__restrict__ twiddles,
                                         uint4 *__restrict__ out, int quarter)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= quarter) return;
    Field a = load(in + 2 * static_cast<size_t>(t)), b = load(in + 2 * (static_cast<size_t>(quarter) + t));
    Field c = load(in + 2 * (2 * static_cast<size_t>(quarter) + t)), d = load(in + 2 * (3 * static_cast<size_t>(quarter) + t));
    const Field w = load(twiddles + 2 * static_cast<size_t>(t)), v = load(twiddles + 2 * (static_cast<size_t>(quarter) + t));
    const Field s = add(a, c), u = mul(sub(a, c), w), p = add(b, d), q = mul(sub(b, d), v);
    store(out + 2 * static_cast<size_t>(t), add(s, p));
    store(out + 2 * (static_cast<size_t>(quarter) + t), mul(sub(s, p), w));
    store(out + 2 * (2 * static_cast<size_t>(quarter) + t), add(u, q));
    store(out + 2 * (3 * static_cast<size_t>(quarter) + t), mul(sub(u, q), v));
}
