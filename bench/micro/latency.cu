// Latency of instruction classes: a dependent chain of 256 instructions of one kind between two
// reads of the clock, one warp. Pointer chases for memory levels. Values are made at run time, so
// that nothing folds; the runner checks in the machine code that the chain is what it is called.
#include <cstdint>

#define REPEAT4(x) x x x x
#define REPEAT256(x) REPEAT4(REPEAT4(REPEAT4(REPEAT4(x))))

#define CHAIN(name, type, letter, text)                                                                        \
    extern "C" __global__ void name(long long *cycles, type *sink, type start, type a, type b)                 \
    {                                                                                                          \
        type x = start + static_cast<type>(threadIdx.x & 1);                                                   \
        long long best = 1ll << 60;                                                                            \
        _Pragma("unroll 1") for (int turn = 0; turn < 8; ++turn)                                               \
        {                                                                                                      \
            const long long begin = clock64();                                                                 \
            REPEAT256(asm volatile(text : "+" letter(x) : letter(a), letter(b));)                              \
            const long long end = clock64();                                                                   \
            best = end - begin < best ? end - begin : best;                                                    \
        }                                                                                                      \
        sink[threadIdx.x] = x;                                                                                 \
        if (threadIdx.x == 0) *cycles = best;                                                                  \
    }

CHAIN(chain_lop3, uint32_t, "r", "lop3.b32 %0, %0, %1, %2, 0xe8;")
CHAIN(chain_shf, uint32_t, "r", "shf.l.wrap.b32 %0, %0, %1, %2;")
CHAIN(chain_imad, uint32_t, "r", "mad.lo.u32 %0, %0, %1, %2;")
CHAIN(chain_imad_wide, unsigned long long, "l", "{.reg .u32 lo, hi; mov.b64 {lo, hi}, %0; mul.wide.u32 %0, hi, lo;}")
// two instructions a link
CHAIN(chain_vimnmx2, int32_t, "r", "max.s32 %0, %0, %1; min.s32 %0, %0, %2;")
CHAIN(chain_popc, uint32_t, "r", "popc.b32 %0, %0;")
CHAIN(chain_ffma, float, "f", "fma.rn.f32 %0, %0, %1, %2;")
CHAIN(chain_fadd, float, "f", "add.rn.f32 %0, %0, %1;")
CHAIN(chain_hfma2, uint32_t, "r", "fma.rn.f16x2 %0, %0, %1, %2;")
CHAIN(chain_mufu_ex2, float, "f", "ex2.approx.ftz.f32 %0, %0;")
CHAIN(chain_mufu_rsq, float, "f", "rsqrt.approx.ftz.f32 %0, %0;")
CHAIN(chain_dfma, double, "d", "fma.rn.f64 %0, %0, %1, %2;")
CHAIN(chain_dadd, double, "d", "add.rn.f64 %0, %0, %1;")
CHAIN(chain_dmul, double, "d", "mul.rn.f64 %0, %0, %1;")
CHAIN(chain_shfl, uint32_t, "r", "shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;")
CHAIN(chain_i2f, uint32_t, "r", "{.reg .f32 f; cvt.rn.f32.u32 f, %0; mov.b32 %0, f;}")

extern "C" __global__ void chain_empty(long long *cycles, uint32_t *sink, uint32_t start, uint32_t a, uint32_t b)
{
    long long best = 1ll << 60;
#pragma unroll 1
    for (int turn = 0; turn < 8; ++turn) {
        const long long begin = clock64();
        const long long end = clock64();
        best = end - begin < best ? end - begin : best;
    }
    sink[threadIdx.x] = start + a + b;
    if (threadIdx.x == 0) *cycles = best;
}

// chase: `first` is an absolute address of a ring of absolute addresses
#define CHASE_GLOBAL(name, how)                                                                                \
    extern "C" __global__ void name(long long *cycles, uint64_t *sink, uint64_t first, int warm, int rounds)   \
    {                                                                                                          \
        uint64_t x = first;                                                                                    \
        for (int k = 0; k < warm; ++k) asm volatile("ld.global." how ".u64 %0, [%0];" : "+l"(x));              \
        const long long begin = clock64();                                                                     \
        _Pragma("unroll 1") for (int k = 0; k < rounds; ++k)                                                   \
        {                                                                                                      \
            REPEAT4(REPEAT4(asm volatile("ld.global." how ".u64 %0, [%0];" : "+l"(x));))                       \
        }                                                                                                      \
        *sink = x;                                                                                             \
        *cycles = clock64() - begin;                                                                           \
    }

CHASE_GLOBAL(chase_l1, "ca")
CHASE_GLOBAL(chase_l2, "cg")

extern "C" __global__ void chase_shared(long long *cycles, uint64_t *sink, uint64_t first, int warm, int rounds)
{
    __shared__ uint32_t ring[256];
    const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
    for (int k = 0; k < 256; ++k) ring[k] = base + 4 * ((k + 33) & 255);
    __syncthreads();
    uint32_t x = base;
    const long long begin = clock64();
#pragma unroll 1
    for (int k = 0; k < rounds; ++k) { REPEAT4(REPEAT4(asm volatile("ld.shared.u32 %0, [%0];" : "+r"(x));)) }
    *sink = x + first + warm;
    *cycles = clock64() - begin;
}

extern "C" __global__ void chase_local(long long *cycles, uint64_t *sink, uint64_t first, int warm, int rounds)
{
    uint64_t ring[64];
    uint64_t base;
    asm volatile("cvta.to.local.u64 %0, %1;" : "=l"(base) : "l"(ring));
#pragma unroll 1
    for (int k = 0; k < 64; ++k)
        asm volatile("st.local.u64 [%0], %1;" : : "l"(base + 8 * k), "l"(base + 8 * ((k + 9) & 63)) : "memory");
    uint64_t x = base;
    for (int k = 0; k < warm; ++k) asm volatile("ld.local.u64 %0, [%0];" : "+l"(x));
    const long long begin = clock64();
#pragma unroll 1
    for (int k = 0; k < rounds; ++k) { REPEAT4(REPEAT4(asm volatile("ld.local.u64 %0, [%0];" : "+l"(x));)) }
    *sink = x + first + ring[0];
    *cycles = clock64() - begin;
}

#define C4(i) 4 * ((i + 1) & 63), 4 * ((i + 2) & 63), 4 * ((i + 3) & 63), 4 * ((i + 4) & 63)
#define C16(i) C4(i), C4(i + 4), C4(i + 8), C4(i + 12)
__constant__ uint32_t constant_ring[64] = {C16(0), C16(16), C16(32), C16(48)};

extern "C" __global__ void chase_constant(long long *cycles, uint64_t *sink, uint64_t first, int warm, int rounds)
{
    uint32_t x = (static_cast<uint32_t>(first) + 4 * threadIdx.x) & 0xfcu;
    for (int k = 0; k < warm; ++k) x = *reinterpret_cast<const uint32_t *>(reinterpret_cast<const char *>(constant_ring) + x);
    const long long begin = clock64();
#pragma unroll 1
    for (int k = 0; k < rounds; ++k) {
        REPEAT4(REPEAT4(x = *reinterpret_cast<const uint32_t *>(reinterpret_cast<const char *>(constant_ring) + x);))
    }
    *sink = x;
    *cycles = clock64() - begin;
}
