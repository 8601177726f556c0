// MD5 key search: the digests of 16-byte keys (a base plus the thread's counters) are compared
// with a short list of wanted ones. Constants are floor(2^32 |sin(i + 1)|).
#include <cstdint>

__device__ __forceinline__ uint32_t rotate(uint32_t x, int n) { return __funnelshift_l(x, x, n); }

#define STEP(f, a, b, c, d, m, k, s) { const uint32_t x = a + (f) + (m) + k; a = d; d = c; c = b; b += rotate(x, s); }
#define STEP0(a, b, c, d, m, k, s) STEP((b & c) | (~b & d), a, b, c, d, m, k, s)
#define STEP1(a, b, c, d, m, k, s) STEP((d & b) | (~d & c), a, b, c, d, m, k, s)
#define STEP2(a, b, c, d, m, k, s) STEP(b ^ c ^ d, a, b, c, d, m, k, s)
#define STEP3(a, b, c, d, m, k, s) STEP(c ^ (b | ~d), a, b, c, d, m, k, s)

__device__ __forceinline__ uint4 md5(uint32_t k0, uint32_t k1, uint32_t k2, uint32_t k3)
{
    uint32_t a = 0x67452301u, b = 0xefcdab89u, c = 0x98badcfeu, d = 0x10325476u;
    STEP0(a, b, c, d, k0, 0xd76aa478u, 7)
    STEP0(a, b, c, d, k1, 0xe8c7b756u, 12)
    STEP0(a, b, c, d, k2, 0x242070dbu, 17)
    STEP0(a, b, c, d, k3, 0xc1bdceeeu, 22)
    STEP0(a, b, c, d, 0x80u, 0xf57c0fafu, 7)
    STEP0(a, b, c, d, 0u, 0x4787c62au, 12)
    STEP0(a, b, c, d, 0u, 0xa8304613u, 17)
    STEP0(a, b, c, d, 0u, 0xfd469501u, 22)
    STEP0(a, b, c, d, 0u, 0x698098d8u, 7)
    STEP0(a, b, c, d, 0u, 0x8b44f7afu, 12)
    STEP0(a, b, c, d, 0u, 0xffff5bb1u, 17)
    STEP0(a, b, c, d, 0u, 0x895cd7beu, 22)
    STEP0(a, b, c, d, 0u, 0x6b901122u, 7)
    STEP0(a, b, c, d, 0u, 0xfd987193u, 12)
    STEP0(a, b, c, d, 128u, 0xa679438eu, 17)
    STEP0(a, b, c, d, 0u, 0x49b40821u, 22)
    STEP1(a, b, c, d, k1, 0xf61e2562u, 5)
    STEP1(a, b, c, d, 0u, 0xc040b340u, 9)
    STEP1(a, b, c, d, 0u, 0x265e5a51u, 14)
    STEP1(a, b, c, d, k0, 0xe9b6c7aau, 20)
    STEP1(a, b, c, d, 0u, 0xd62f105du, 5)
    STEP1(a, b, c, d, 0u, 0x02441453u, 9)
    STEP1(a, b, c, d, 0u, 0xd8a1e681u, 14)
    STEP1(a, b, c, d, 0x80u, 0xe7d3fbc8u, 20)
    STEP1(a, b, c, d, 0u, 0x21e1cde6u, 5)
    STEP1(a, b, c, d, 128u, 0xc33707d6u, 9)
    STEP1(a, b, c, d, k3, 0xf4d50d87u, 14)
    STEP1(a, b, c, d, 0u, 0x455a14edu, 20)
    STEP1(a, b, c, d, 0u, 0xa9e3e905u, 5)
    STEP1(a, b, c, d, k2, 0xfcefa3f8u, 9)
    STEP1(a, b, c, d, 0u, 0x676f02d9u, 14)
    STEP1(a, b, c, d, 0u, 0x8d2a4c8au, 20)
    STEP2(a, b, c, d, 0u, 0xfffa3942u, 4)
    STEP2(a, b, c, d, 0u, 0x8771f681u, 11)
    STEP2(a, b, c, d, 0u, 0x6d9d6122u, 16)
    STEP2(a, b, c, d, 128u, 0xfde5380cu, 23)
    STEP2(a, b, c, d, k1, 0xa4beea44u, 4)
    STEP2(a, b, c, d, 0x80u, 0x4bdecfa9u, 11)
    STEP2(a, b, c, d, 0u, 0xf6bb4b60u, 16)
    STEP2(a, b, c, d, 0u, 0xbebfbc70u, 23)
    STEP2(a, b, c, d, 0u, 0x289b7ec6u, 4)
    STEP2(a, b, c, d, k0, 0xeaa127fau, 11)
    STEP2(a, b, c, d, k3, 0xd4ef3085u, 16)
    STEP2(a, b, c, d, 0u, 0x04881d05u, 23)
    STEP2(a, b, c, d, 0u, 0xd9d4d039u, 4)
    STEP2(a, b, c, d, 0u, 0xe6db99e5u, 11)
    STEP2(a, b, c, d, 0u, 0x1fa27cf8u, 16)
    STEP2(a, b, c, d, k2, 0xc4ac5665u, 23)
    STEP3(a, b, c, d, k0, 0xf4292244u, 6)
    STEP3(a, b, c, d, 0u, 0x432aff97u, 10)
    STEP3(a, b, c, d, 128u, 0xab9423a7u, 15)
    STEP3(a, b, c, d, 0u, 0xfc93a039u, 21)
    STEP3(a, b, c, d, 0u, 0x655b59c3u, 6)
    STEP3(a, b, c, d, k3, 0x8f0ccc92u, 10)
    STEP3(a, b, c, d, 0u, 0xffeff47du, 15)
    STEP3(a, b, c, d, k1, 0x85845dd1u, 21)
    STEP3(a, b, c, d, 0u, 0x6fa87e4fu, 6)
    STEP3(a, b, c, d, 0u, 0xfe2ce6e0u, 10)
    STEP3(a, b, c, d, 0u, 0xa3014314u, 15)
    STEP3(a, b, c, d, 0u, 0x4e0811a1u, 21)
    STEP3(a, b, c, d, 0x80u, 0xf7537e82u, 6)
    STEP3(a, b, c, d, 0u, 0xbd3af235u, 10)
    STEP3(a, b, c, d, k2, 0x2ad7d2bbu, 15)
    STEP3(a, b, c, d, 0u, 0xeb86d391u, 21)
    return make_uint4(a + 0x67452301u, b + 0xefcdab89u, c + 0x98badcfeu, d + 0x10325476u);
}

extern "C" __global__ void md5_search(const uint4 *__restrict__ base, const uint4 *__restrict__ wanted, int count,
                                      int rounds, uint32_t *__restrict__ found, uint32_t *__restrict__ digest, int n)
{
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    const uint4 key = *base;
    uint32_t fold = 0;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
        const uint4 h = md5(key.x + t, key.y + r, key.z, key.w);
        const uint4 g = md5(key.x, key.y + t, key.z + r, key.w ^ t);
        fold = rotate(fold, 3) ^ h.x ^ h.y ^ g.z ^ g.w;
        for (int i = 0; i < count; ++i) {
            const uint4 w = wanted[i];
            if (h.x == w.x && h.y == w.y && h.z == w.z && h.w == w.w) atomicMin(&found[i], t);
            if (g.x == w.x && g.y == w.y && g.z == w.z && g.w == w.w) atomicMin(&found[i], t);
        }
    }
    digest[t] = fold;
}
