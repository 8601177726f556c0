// Throughput of instruction classes on one multiprocessor: blocks of 1024 threads, eight
// independent chains a thread, 32 rounds; instructions per cycle = 32 warps * count / cycles.
#include <cstdint>

constexpr int kRounds = 32;

#define BODY8(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7)

#define RATE(name, type, letter, text)                                                                         \
    extern "C" __global__ void name(long long *cycles, type *sink, type start, type a, type b)                 \
    {                                                                                                          \
        type x[8];                                                                                             \
        _Pragma("unroll") for (int k = 0; k < 8; ++k) x[k] = start + static_cast<type>(k + threadIdx.x);       \
        __syncthreads();                                                                                       \
        const long long begin = clock64();                                                                     \
        _Pragma("unroll 4") for (int r = 0; r < kRounds; ++r)                                                  \
        {                                                                                                      \
            _Pragma("unroll") for (int k = 0; k < 8; ++k) asm volatile(text : "+" letter(x[k]) : letter(a), letter(b)); \
        }                                                                                                      \
        __syncthreads();                                                                                       \
        const long long end = clock64();                                                                       \
        type sum = 0;                                                                                          \
        _Pragma("unroll") for (int k = 0; k < 8; ++k) sum += x[k];                                             \
        sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;                                                     \
        if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;                                                \
    }

RATE(rate_lop3, uint32_t, "r", "lop3.b32 %0, %0, %1, %2, 0xe8;")
RATE(rate_imad, uint32_t, "r", "mad.lo.u32 %0, %0, %1, %2;")
RATE(rate_ffma, float, "f", "fma.rn.f32 %0, %0, %1, %2;")
RATE(rate_hfma2, uint32_t, "r", "fma.rn.f16x2 %0, %0, %1, %2;")
RATE(rate_mufu, float, "f", "ex2.approx.ftz.f32 %0, %0;")
RATE(rate_dfma, double, "d", "fma.rn.f64 %0, %0, %1, %2;")
RATE(rate_shfl, uint32_t, "r", "shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;")

// memory: loads whose addresses don't depend on each other; `zero` is 0 at run time
#define RATE_MEMORY(name, words, space, type, setup, load)                                                     \
    extern "C" __global__ void name(long long *cycles, uint32_t *sink, const uint32_t *data, uint32_t zero)    \
    {                                                                                                          \
        setup;                                                                                                 \
        uint32_t sum = 0;                                                                                      \
        __syncthreads();                                                                                       \
        const long long begin = clock64();                                                                     \
        _Pragma("unroll 4") for (int r = 0; r < kRounds; ++r)                                                  \
        {                                                                                                      \
            _Pragma("unroll") for (int k = 0; k < 8; ++k) { load; }                                            \
        }                                                                                                      \
        __syncthreads();                                                                                       \
        const long long end = clock64();                                                                       \
        sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;                                                     \
        if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;                                                \
    }

#define SHARED_SETUP(words)                                                                                    \
    __shared__ __align__(16) uint32_t ring[1024 * 4];                                                          \
    for (int k = threadIdx.x; k < 4096; k += blockDim.x) ring[k] = k;                                          \
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(ring)) + 4 * words * threadIdx.x % 16384

RATE_MEMORY(rate_lds32, 1, shared, uint32_t, SHARED_SETUP(1), uint32_t v;
            asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(v) : "r"(at)); sum ^= v)
RATE_MEMORY(rate_lds64, 2, shared, uint2, SHARED_SETUP(2), uint2 v;
            asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at)); sum ^= v.x ^ v.y)
RATE_MEMORY(rate_lds128, 4, shared, uint4, SHARED_SETUP(4), uint4 v;
            asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
            sum ^= v.x ^ v.y ^ v.z ^ v.w)
RATE_MEMORY(rate_sts32, 1, shared, uint32_t, SHARED_SETUP(1),
            asm volatile("st.volatile.shared.u32 [%0], %1;" : : "r"(at), "r"(zero) : "memory"))
// eight lines apart by an immediate; the address moves by an unknown zero, so that no two loads merge
RATE_MEMORY(rate_ldg32_l1, 1, global, uint32_t, const uint32_t *at = data + (threadIdx.x & 1023);
            for (int k = 0; k < 8; ++k) zero += at[1024 * k] & zero, uint32_t v;
            asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(v) : "l"(at + 1024 * k)); sum ^= v; if (k == 7) at += zero)
RATE_MEMORY(rate_ldg128_l1, 4, global, uint4, const uint32_t *at = data + 4 * (threadIdx.x & 1023);
            for (int k = 0; k < 8; ++k) zero += at[4096 * k] & zero, uint4 v;
            asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at + 4096 * k));
            sum ^= v.x ^ v.y ^ v.z ^ v.w; if (k == 7) at += zero)
RATE_MEMORY(rate_ldl32, 1, local, uint32_t, volatile uint32_t ring[8]; for (int k = 0; k < 8; ++k) ring[k ^ zero] = k,
            sum ^= ring[k ^ zero])
