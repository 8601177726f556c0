// Hash-table probe with 128-bit keys: murmur-like mixing, buckets of four keys read with 128-bit
// loads, linear probing; values are gathered and folded for several keys per thread.
#include <cstdint>

constexpr int kKeys = 4;

__device__ __forceinline__ uint64_t mix(uint64_t x)
{
    x ^= x >> 33; x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
}
__device__ __forceinline__ bool same(const uint4 &a, const uint4 &b) { return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w; }

extern "C" __global__ void hash_probe(const uint4 *__restrict__ keys, const uint4 *__restrict__ slots,
                                      const uint32_t *__restrict__ values, uint32_t *__restrict__ out, uint32_t bucket_mask,
                                      int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    uint4 key[kKeys];
    uint32_t bucket[kKeys], found[kKeys];
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
        key[k] = keys[static_cast<size_t>(k) * n + t];
        const uint64_t lo = key[k].x | static_cast<uint64_t>(key[k].y) << 32, hi = key[k].z | static_cast<uint64_t>(key[k].w) << 32;
        bucket[k] = static_cast<uint32_t>(mix(lo ^ mix(hi))) & bucket_mask;
        found[k] = ~0u;
    }
#pragma unroll 1
    for (int probe = 0; probe < 4; ++probe) {
        bool open = false;
#pragma unroll
        for (int k = 0; k < kKeys; ++k) {
            const size_t at = static_cast<size_t>((bucket[k] + probe) & bucket_mask) * 4;
            const uint4 a = slots[at], b = slots[at + 1], c = slots[at + 2], d = slots[at + 3];
            const int hit = same(a, key[k]) ? 0 : same(b, key[k]) ? 1 : same(c, key[k]) ? 2 : same(d, key[k]) ? 3 : -1;
            if (hit >= 0 && found[k] == ~0u) found[k] = values[at + hit];
            const bool full = (a.x | a.y) && (b.x | b.y) && (c.x | c.y) && (d.x | d.y);
            open |= found[k] == ~0u && full;
        }
        if (!open) break;
    }
#pragma unroll
    for (int k = 0; k < kKeys; ++k) out[static_cast<size_t>(k) * n + t] = found[k];
}
