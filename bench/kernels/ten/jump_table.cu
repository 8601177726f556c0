// A jump table: a small register machine of sixteen operations on 28 registers with a trace, dispatched by an
// indirect branch (BRX). The front end turns a dense switch into a tree of comparisons, so the
// dispatch is written as PTX brx.idx. All threads of a grid run one program on their own data.
#include <cstdint>

constexpr int kRegisters = 28;
constexpr int kTrace = 8;

__device__ __forceinline__ void step(uint32_t (&r)[kRegisters], uint32_t word, const uint32_t *memory)
{
    asm volatile("{\n"
        ".reg .u32 a, b, w;\n"
        ".reg .u64 p;\n"
        ".reg .pred q;\n"
        "mov.u32 w, %28;\n"
        "and.b32 a, w, 15;\n"
        "TABLE: .branchtargets L0, L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11, L12, L13, L14, L15;\n"
        "brx.idx a, TABLE;\n"
        "L0: xor.b32 a, %1, w; add.u32 %0, %0, a; xor.b32 %16, %16, %20; bra DONE;\n"
        "L1: or.b32 a, %3, 1; mul.lo.u32 %1, %2, a; add.u32 %17, %17, %21; bra DONE;\n"
        "L2: shf.l.wrap.b32 a, %4, %5, %6; xor.b32 %2, %2, a; sub.u32 %18, %18, %22; bra DONE;\n"
        "L3: popc.b32 a, %7; mad.lo.u32 %3, %8, 9, a; xor.b32 %19, %19, %23; bra DONE;\n"
        "L4: max.u32 a, %9, %10; min.u32 b, %9, %10; sub.u32 %4, a, b; add.u32 %20, %20, %24; bra DONE;\n"
        "L5: lop3.b32 %5, %11, %12, %13, 0xca; xor.b32 %21, %21, %25; bra DONE;\n"
        "L6: add.u32 a, %15, w; mul.hi.u32 a, %14, a; add.u32 %6, %6, a; add.u32 %22, %22, %26; bra DONE;\n"
        "L7: shl.b32 a, %7, 13; xor.b32 %7, %7, a; shr.u32 a, %7, 17; xor.b32 %7, %7, a; add.u32 %23, %23, %27;"
        " bra DONE;\n"
        "L8: min.u32 a, %0, %2; add.u32 %8, a, w; xor.b32 %24, %24, %16; bra DONE;\n"
        "L9: brev.b32 a, %1; xor.b32 %9, a, %3; add.u32 %25, %25, %17; bra DONE;\n"
        "L10: xor.b32 a, %4, w; and.b32 a, a, 0xfffff; mad.wide.u32 p, a, 4, %29; ld.global.nc.u32 a, [p];"
        " add.u32 %10, %10, a; xor.b32 %26, %26, %18; bra DONE;\n"
        "L11: and.b32 a, %6, 1023; add.u32 a, a, 1; div.u32 %11, %5, a; add.u32 %27, %27, %19; bra DONE;\n"
        "L12: clz.b32 a, %7; mad.lo.u32 %12, a, %8, %20; bra DONE;\n"
        "L13: add.u32 a, %9, %10; xor.b32 %13, %13, a; setp.gt.u32 q, a, w; @q add.u32 %14, %14, %21; bra DONE;\n"
        "L14: max.u32 a, %11, %12; sub.u32 %14, a, w; xor.b32 %15, %15, %22; bra DONE;\n"
        "L15: mad.lo.u32 %15, %13, 0x9e3779b9, %15; xor.b32 %0, %0, %23;\n"
        "DONE:\n"
        "}"
        : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3]), "+r"(r[4]), "+r"(r[5]), "+r"(r[6]), "+r"(r[7]),
          "+r"(r[8]), "+r"(r[9]), "+r"(r[10]), "+r"(r[11]), "+r"(r[12]), "+r"(r[13]), "+r"(r[14]), "+r"(r[15]),
          "+r"(r[16]), "+r"(r[17]), "+r"(r[18]), "+r"(r[19]), "+r"(r[20]), "+r"(r[21]), "+r"(r[22]), "+r"(r[23]),
          "+r"(r[24]), "+r"(r[25]), "+r"(r[26]), "+r"(r[27])
        : "r"(word), "l"(memory));
}

// program: length words; input: 4 x n words; memory: 2^20 words; out: 8 x n words
extern "C" __global__ void jump_table(const uint32_t *__restrict__ program, int length,
                                      const uint32_t *__restrict__ input, const uint32_t *__restrict__ memory,
                                      uint32_t *__restrict__ out, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    uint32_t r[kRegisters], trace[kTrace] = {};
#pragma unroll
    for (int k = 0; k < kRegisters; ++k) r[k] = input[static_cast<size_t>(k & 3) * n + t] * (2u * k + 1u);
#pragma unroll 1
    for (int pc = 0; pc < length; ++pc) {
        step(r, program[pc], memory);
#pragma unroll
        for (int k = 0; k < kTrace; ++k) trace[k] = __funnelshift_l(trace[k], trace[k], 5) ^ r[3 * k];
    }
#pragma unroll
    for (int k = 0; k < kRegisters; ++k) trace[k % kTrace] = trace[k % kTrace] * 31u + r[k];
#pragma unroll
    for (int k = 0; k < kTrace; ++k) out[static_cast<size_t>(k) * n + t] = trace[k];
}
