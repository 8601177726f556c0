// Elliptic curve BLS12-381 (G1): bucket sums of a multi-scalar multiplication. A thread adds the affine
// points of its bucket, found by signed indices, to a sum in extended Jacobian coordinates
// (X, Y, ZZ, ZZZ), ten multiplications a point, with the cases equal and opposite treated;
// field elements are 12 limbs of 32 bits in Montgomery form.
// Launch bounds: the sum, the point and three temporaries are 120 registers before any product;
// such codes ask for four blocks of 128 threads (128 registers), because chains of carries need
// four warps a scheduler to keep the multiplier busy.
#include <cstdint>

constexpr int kLimbs = 12, kThreads = 128;
constexpr uint32_t kInverse = 0xfffcfffdu;
__constant__ constexpr uint32_t kPrime[kLimbs] = {0xffffaaabu, 0xb9feffffu, 0xb153ffffu, 0x1eabfffeu, 0xf6b0f624u, 0x6730d2a0u,
                                                  0xf38512bfu, 0x64774b84u, 0x434bacd7u, 0x4b1ba7b6u, 0x397fe69au, 0x1a0111eau};
// 2^384 modulo the prime: one, in Montgomery form
__constant__ constexpr uint32_t kOne[kLimbs] = {0x0002fffdu, 0x76090000u, 0xc40c0002u, 0xebf4000bu, 0x53c758bau, 0x5f489857u,
                                                0x70525745u, 0x77ce5853u, 0xa256ec6du, 0x5c071a97u, 0xfa80e493u, 0x15f65ec3u};

struct Field { uint32_t w[kLimbs]; };

// t - p where that is not negative
__device__ __forceinline__ Field reduce(const uint32_t *t)
{
    Field r;
    uint64_t borrow = 0;
#pragma unroll
    for (int k = 0; k < kLimbs; ++k) {
        const uint64_t d = static_cast<uint64_t>(t[k]) - kPrime[k] - borrow;
        r.w[k] = static_cast<uint32_t>(d);
        borrow = d >> 63;
    }
#pragma unroll
    for (int k = 0; k < kLimbs; ++k) r.w[k] = borrow ? t[k] : r.w[k];
    return r;
}
__device__ __forceinline__ Field sub(const Field &a, const Field &b)
{
    Field r;
    uint64_t borrow = 0, carry = 0;
#pragma unroll
    for (int k = 0; k < kLimbs; ++k) {
        const uint64_t d = static_cast<uint64_t>(a.w[k]) - b.w[k] - borrow;
        r.w[k] = static_cast<uint32_t>(d);
        borrow = d >> 63;
    }
    const uint32_t mask = borrow ? 0xffffffffu : 0u;
#pragma unroll
    for (int k = 0; k < kLimbs; ++k) {
        carry += static_cast<uint64_t>(r.w[k]) + (kPrime[k] & mask);
        r.w[k] = static_cast<uint32_t>(carry);
        carry >>= 32;
    }
    return r;
}
__device__ __forceinline__ Field twice(const Field &a)
{
    uint32_t t[kLimbs];
#pragma unroll
    for (int k = 0; k < kLimbs; ++k) t[k] = (a.w[k] << 1) | (k ? a.w[k - 1] >> 31 : 0u);
    return reduce(t);
}
__device__ __forceinline__ Field mul(const Field &a, const Field &b)
{
    uint32_t t[kLimbs + 2] = {};
#pragma unroll
    for (int i = 0; i < kLimbs; ++i) {
        uint64_t carry = 0;
#pragma unroll
        for (int k = 0; k < kLimbs; ++k) {
            carry += static_cast<uint64_t>(a.w[k]) * b.w[i] + t[k];
            t[k] = static_cast<uint32_t>(carry);
            carry >>= 32;
        }
        carry += t[kLimbs];
        t[kLimbs] = static_cast<uint32_t>(carry);
        t[kLimbs + 1] = static_cast<uint32_t>(carry >> 32);
        const uint32_t m = t[0] * kInverse;
        carry = (static_cast<uint64_t>(m) * kPrime[0] + t[0]) >> 32;
#pragma unroll
        for (int k = 1; k < kLimbs; ++k) {
            carry += static_cast<uint64_t>(m) * kPrime[k] + t[k];
            t[k - 1] = static_cast<uint32_t>(carry);
            carry >>= 32;
        }
        carry += t[kLimbs];
        t[kLimbs - 1] = static_cast<uint32_t>(carry);
        t[kLimbs] = t[kLimbs + 1] + static_cast<uint32_t>(carry >> 32);
    }
    return reduce(t);
}
__device__ __forceinline__ bool is_zero(const Field &a)
{
    uint32_t any = 0;
#pragma unroll
    for (int k = 0; k < kLimbs; ++k) any |= a.w[k];
    return any == 0;
}
__device__ __forceinline__ Field load(const uint4 *p)
{
    const uint4 a = p[0], b = p[1], c = p[2];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, c.x, c.y, c.z, c.w}};
}

struct Point { Field x, y, zz, zzz; };

__device__ __forceinline__ void set(Point &sum, const Field &x, const Field &y)
{
    sum.x = x;
    sum.y = y;
#pragma unroll
    for (int k = 0; k < kLimbs; ++k) sum.zz.w[k] = sum.zzz.w[k] = kOne[k];
}
__device__ __forceinline__ void set_twice(Point &sum, const Field &x, const Field &y)
{
    const Field u = twice(y), v = mul(u, u), w = mul(u, v), s = mul(x, v), square = mul(x, x);
    const Field three = sub(twice(twice(square)), square);
    sum.x = sub(mul(three, three), twice(s));
    sum.y = sub(mul(three, sub(s, sum.x)), mul(w, y));
    sum.zz = v;
    sum.zzz = w;
}

// out[word][bucket]: X, Y, ZZ, ZZZ, 12 words each; ZZ = 0 is the point at infinity.
// An index with its top bit set subtracts the point.
extern "C" __global__ void __launch_bounds__(kThreads, 4)
    curve_add(const uint4 *__restrict__ points, const uint32_t *__restrict__ indices, const int *__restrict__ begins,
              uint32_t *__restrict__ out, int buckets)
{
    const int t = blockIdx.x * kThreads + threadIdx.x;
    if (t >= buckets) return;
    Point sum = {};
    const int end = begins[t + 1];
    for (int at = begins[t]; at < end; ++at) {
        const uint32_t index = indices[at];
        const uint4 *from = points + static_cast<size_t>(index & 0x7fffffffu) * 6;
        const Field x = load(from);
        Field y = load(from + 3);
        if (index >> 31) y = sub(Field{}, y);
        if (is_zero(sum.zz)) {
            set(sum, x, y);
            continue;
        }
        const Field p = sub(mul(x, sum.zz), sum.x), r = sub(mul(y, sum.zzz), sum.y);
        if (is_zero(p)) {
            if (is_zero(r)) set_twice(sum, x, y);
            else sum.zz = Field{};
            continue;
        }
        const Field pp = mul(p, p), ppp = mul(p, pp), q = mul(sum.x, pp);
        sum.x = sub(sub(mul(r, r), ppp), twice(q));
        sum.y = sub(mul(r, sub(q, sum.x)), mul(sum.y, ppp));
        sum.zz = mul(sum.zz, pp);
        sum.zzz = mul(sum.zzz, ppp);
    }
#pragma unroll
    for (int k = 0; k < kLimbs; ++k) {
        out[static_cast<size_t>(k) * buckets + t] = sum.x.w[k];
        out[static_cast<size_t>(kLimbs + k) * buckets + t] = sum.y.w[k];
        out[static_cast<size_t>(2 * kLimbs + k) * buckets + t] = sum.zz.w[k];
        out[static_cast<size_t>(3 * kLimbs + k) * buckets + t] = sum.zzz.w[k];
    }
}
