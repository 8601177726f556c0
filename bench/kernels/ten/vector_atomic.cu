// 128-bit loads and atomics: records of four words probe a table of 16-byte entries; matches and
// digests are counted with integer atomics, whose result does not depend on their order.
#include <cstdint>

__device__ __forceinline__ uint32_t mix(uint32_t x)
{
    x ^= x >> 16; x *= 0x7feb352du;
    x ^= x >> 15; x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

extern "C" __global__ void vector_atomic(const uint4 *__restrict__ records, const uint4 *__restrict__ table,
                                         uint32_t *__restrict__ histogram, unsigned long long *__restrict__ sums,
                                         uint4 *__restrict__ digests, uint32_t mask, int rounds, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    const uint4 r = records[t];
    uint4 d0 = r, d1 = make_uint4(r.y, r.z, r.w, r.x), d2 = make_uint4(~r.x, ~r.y, ~r.z, ~r.w), d3 = d1;
    unsigned long long sum = 0, product = 1;
    uint32_t low = ~0u, high = 0, hits = 0;
    uint32_t h = mix(r.x ^ mix(r.y ^ mix(r.z ^ mix(r.w))));
#pragma unroll 1
    for (int k = 0; k < rounds; ++k) {
        const uint4 e = table[h & mask], f = table[(h >> 7) & mask], g = table[mix(h) & mask];
        d0.x ^= e.x; d0.y += e.y; d0.z ^= e.z; d0.w += e.w;
        d1.x += f.x; d1.y ^= f.y; d1.z += f.z; d1.w ^= f.w;
        d2.x ^= g.x * e.y; d2.y += g.y ^ f.z; d2.z ^= g.z; d2.w += g.w;
        d3.x += e.w ^ g.x; d3.y ^= f.x + g.w; d3.z += e.z * f.y; d3.w ^= g.z;
        sum += static_cast<unsigned long long>(e.x) * f.y;
        product = product * (2ull * g.z + 1ull);
        low = min(low, min(e.w, f.w));
        high = max(high, max(f.x, g.x));
        hits += (e.x ^ f.x ^ g.x) & 1u;
        h = mix(h + e.x + f.y + g.z);
    }
    digests[t] = d0;
    digests[static_cast<size_t>(n) + t] = d1;
    digests[2 * static_cast<size_t>(n) + t] = d2;
    digests[3 * static_cast<size_t>(n) + t] = d3;
    atomicAdd(&histogram[h & 4095u], hits);
    atomicMin(&histogram[4096 + (h & 1023u)], low);
    atomicMax(&histogram[5120 + (h & 1023u)], high);
    atomicAdd(&sums[h & 255u], sum);
    atomicXor(&sums[256 + (h & 255u)], product);
}
