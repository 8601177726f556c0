"""Writes kernels that are chains: each operation needs the one before, with nothing between.

    python tools/latency/chains.py FOLDER [--files 400] [--compile]

Problem: `mine.py` finds the least distance that ptxas ever leaves, but in libraries rare pairs of
instructions (SHF to PRMT, FMUL to DADD) are hardly ever next to each other: independent work
stands between them, and the least seen is too much. In a chain there is nothing else to issue.

Method: a kernel keeps one value, a 32-bit word, and applies random operations of all pipes to it.
It passes from integer to floating-point, half and double operations as bits, so that every pair
of pipes meets. Every file has another seed and a few kernels. ptxas decides on instructions,
operands and distances: what is mined from the result is its own code, as with any library.

With `--compile`, nvcc makes FOLDER/*.cubin for sm_90.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from pathlib import Path

_PER_FILE = 12
_STEPS = 110

_HEADER = """\
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define I2F(x) __int_as_float(x)
#define F2I(x) __float_as_int(x)
typedef long long ll;
__device__ __forceinline__ int H2I(__half2 h) { return *reinterpret_cast<int*>(&h); }
__device__ __forceinline__ __half2 I2H(int i) { return *reinterpret_cast<__half2*>(&i); }
__device__ __forceinline__ int B2I(__nv_bfloat162 h) { return *reinterpret_cast<int*>(&h); }
__device__ __forceinline__ __nv_bfloat162 I2B(int i) {
  return *reinterpret_cast<__nv_bfloat162*>(&i);
}
__device__ __forceinline__ double I2D(int hi, int lo) { return __hiloint2double(hi, lo); }
__device__ __forceinline__ int D2I(double d) { return __double2hiint(d); }
__device__ __forceinline__ int L2I(ll l) { return (int)(l >> 32); }
#define LOP3(d, a, b, c, f) asm("lop3.b32 %0,%1,%2,%3," #f ";" : "=r"(d) : "r"(a), "r"(b), "r"(c))
#define PRMT(d, a, b, c) asm("prmt.b32 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c))
#define SHFL(d, a, b, c) asm("shf.l.wrap.b32 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c))
#define SHFR(d, a, b, c) asm("shf.r.clamp.b32 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c))
#define BFE(d, a, b, c) asm("bfe.s32 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c))
#define BFI(d, a, b, c) asm("bfi.b32 %0,%1,%2,8,9;" : "=r"(d) : "r"(a), "r"(b))
__constant__ int table[256];
"""

# x: the value; a, b, c: loaded words (also as f, g: floats, d, e: doubles); u, w: uniform words;
# l: a 64-bit word; s: shared words; p, q: global words; K: a small number.
_INTEGER = """
x = x + a
x = x + a + b
x = a - x
x = x - b - K
x = x * a
x = x * a + b
x = a * b + x
x = x * K3 + a
LOP3(x, x, a, b, 0x96)
LOP3(x, a, x, b, 0xe8)
LOP3(x, a, b, x, 0x1e)
x = x & a
x = x ^ K
PRMT(x, x, a, b)
PRMT(x, a, x, b)
PRMT(x, a, b, x)
PRMT(x, x, a, 0x6240)
x = __byte_perm(x, 0, 0x4140)
SHFL(x, x, a, b)
SHFL(x, a, x, b)
SHFL(x, a, b, x)
SHFR(x, a, b, x)
SHFR(x, x, b, K)
x = x << K
x = x >> K
x = (unsigned)x >> (b & 31)
x = x << (a & 31)
x = (x << K) + a
x = (a << K) + x
x = (x << 3) + x
x = x >> K & 255
BFE(x, x, K, 11)
BFE(x, x, a, b)
BFI(x, x, a, b)
BFI(x, a, x, b)
x = min(x, a)
x = max(a, x)
x = __vimax3_s32(x, a, b)
x = __vimin3_s32(a, b, x)
x = __viaddmax_s32(x, a, b)
x = __viaddmin_s32(a, b, x)
x = __viaddmax_s32_relu(a, x, b)
x = __vimin_s32_relu(x, a)
x = __viaddmax_u32(x, a, b)
x = __viaddmax_s16x2(x, a, b)
x = __vimax3_s16x2(a, x, b)
x = abs(x)
x = abs(x - a)
x = __sad(x, a, b)
x = __popc(x)
x = __clz(x)
x = __brev(x)
x = __ffs(x)
x = __mulhi(x, a)
x = __umulhi(a, x)
x = __dp4a(x, a, b)
x = __dp4a(a, b, x)
x = x > a ? b : c
x = x > a ? x : c
x = x == 0 ? a : x
x = a > b ? x : c
x = (x > a && b > c) ? b : a
x = (x > a) ^ (x > b) ? b : a
x = (x & 1) ? b : a
x = ((x & 1) ? a : b) ^ ((x & 2) ? b : c) ^ ((x & 4) ? c : a)
x = (x > a) + b
x = (int)(signed char)x
x = (int)(short)x
x = (unsigned char)x
asm("cvt.sat.s8.s32 %0, %1;" : "=r"(x) : "r"(x))
asm("cvt.pack.sat.s16.s32 %0, %1, %2;" : "=r"(x) : "r"(x), "r"(a))
asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(x) : "r"(x), "r"(a), "r"(b))
x = __vadd2(x, a)
x = __vavgu4(x, a)
x = __vcmpgtu4(x, a)
l = (ll)x * a + l; x = L2I(l)
l = (ll)a * x + l; x = (int)l
l = (ll)a * b + l * 3; x = L2I(l) + x
l = l + x; x = L2I(l)
l = ((ll)x << 32 | (unsigned)a) + l; x = L2I(l)
l = ((ll)a << 32 | (unsigned)x) >> (b & 63); x = (int)l
l = ((ll)x << 32 | (unsigned)a) << K; x = L2I(l)
l = min(l, (ll)x << 32 | (unsigned)a); x = L2I(l)
x = ((ll)x << 32 | (unsigned)a) > l ? b : c
x = (unsigned)x % 7
x = (unsigned)x / 10
"""
_FLOAT = """
x = F2I(I2F(x) + f)
x = F2I(f - I2F(x))
x = F2I(I2F(x) * f)
x = F2I(I2F(x) * f + g)
x = F2I(f * g + I2F(x))
x = F2I(f * I2F(x) + 1.0f)
x = F2I(I2F(x) * 1.5f + g)
x = F2I(__saturatef(I2F(x)))
x = F2I(fminf(I2F(x), f))
x = F2I(fmaxf(f, I2F(x)))
x = F2I(fmaxf(I2F(x), 0.0f))
x = F2I(fabsf(I2F(x)) + f)
x = F2I(I2F(x) > f ? g : f)
x = F2I(I2F(x) > f ? I2F(x) : g)
x = F2I(f > g ? I2F(x) : g)
x = F2I(f > g ? g : I2F(x))
x = F2I((I2F(x) > f && g > f) ? g : f)
x = F2I(__expf(I2F(x)))
x = F2I(__logf(I2F(x)))
x = F2I(__sinf(I2F(x)))
x = F2I(__fdividef(I2F(x), f))
x = F2I(rsqrtf(I2F(x)))
x = F2I(sqrtf(I2F(x)))
x = F2I(f / I2F(x))
x = F2I(I2F(x) / f)
x = F2I(floorf(I2F(x)))
x = F2I(rintf(I2F(x)))
x = F2I(truncf(I2F(x)))
x = F2I((float)x)
x = F2I((float)(unsigned)x)
x = F2I((float)(unsigned char)x)
x = F2I((float)(unsigned short)x)
x = F2I((float)(short)x)
x = F2I((float)((ll)x * a))
x = (int)I2F(x)
x = (unsigned)I2F(x)
x = __float2int_rn(I2F(x))
x = (signed char)I2F(x)
x = (unsigned short)I2F(x)
l = (ll)I2F(x); x = L2I(l)
x = (I2F(x) > f) + a
"""
_HALF = """
x = H2I(__hadd2(I2H(x), I2H(a)))
x = H2I(__hmul2(I2H(a), I2H(x)))
x = H2I(__hfma2(I2H(x), I2H(a), I2H(b)))
x = H2I(__hfma2(I2H(a), I2H(b), I2H(x)))
x = H2I(__hfma2(I2H(a), I2H(x), I2H(b)))
x = H2I(__hmax2(I2H(x), I2H(a)))
x = H2I(__hgt2(I2H(x), I2H(a)))
x = __hbgt2(I2H(x), I2H(a)) ? b : c
x = __hgt(__low2half(I2H(x)), __low2half(I2H(a))) ? b : c
x = H2I(__floats2half2_rn(I2F(x), f))
x = H2I(__floats2half2_rn(f, I2F(x)))
x = F2I(__low2float(I2H(x)))
x = F2I(__high2float(I2H(x)))
x = B2I(__hfma2(I2B(x), I2B(a), I2B(b)))
x = B2I(__hadd2(I2B(a), I2B(x)))
x = B2I(__hmax2(I2B(a), I2B(x)))
x = B2I(__floats2bfloat162_rn(I2F(x), f))
x = F2I(__low2float(I2B(x)))
x = __half2int_rn(__low2half(I2H(x)))
x = H2I(__half2half2(__int2half_rn(x)))
x = H2I(__half2half2(__float2half(I2F(x))))
x = H2I(h2exp2(I2H(x)))
x = H2I(h2rint(I2H(x)))
"""
_DOUBLE = """
x = D2I(I2D(x, a) + d)
x = D2I(I2D(a, x) * d)
x = D2I(I2D(x, a) * d + e)
x = D2I(d * e + I2D(x, b))
x = D2I(d * I2D(x, a) + e)
d = I2D(x, a) + d; x = D2I(d)
d = d * e; d = d + e; x = D2I(d) + x
d = d * e + I2D(x, a); x = __double2loint(d)
x = D2I(I2D(x, a) > d ? e : d)
x = I2D(x, a) > d ? b : c
x = D2I(fmin(I2D(x, a), d))
x = D2I(fabs(I2D(x, a)) * e)
x = D2I((double)x)
x = D2I((double)x * d)
x = D2I((double)I2F(x))
x = D2I((double)I2F(x) + e)
x = (int)I2D(x, a)
x = (int)(I2D(x, a) * d)
x = (int)(I2D(x, a) + d)
x = __double2int_rn(I2D(x, a) * d + e)
x = (unsigned)(I2D(x, a) * d + e)
x = F2I((float)I2D(x, a))
x = F2I((float)(I2D(x, a) * d))
x = F2I((float)(I2D(x, a) + d))
x = D2I(floor(I2D(x, a)))
x = D2I(floor(I2D(x, a) * d))
x = D2I(rint(I2D(x, a) + d))
l = (ll)(I2D(x, a) * d); x = L2I(l)
x = D2I((double)((ll)x << 32 | (unsigned)a))
x = D2I(d / I2D(x, a))
x = D2I(rsqrt(I2D(x, a)))
"""
_OTHER = """
x = __shfl_sync(-1, x, a)
x = __shfl_xor_sync(-1, x, K)
x = __shfl_sync(-1, a, x)
x = __shfl_up_sync(-1, x, b)
x = __ballot_sync(-1, x > a)
x = __ballot_sync(-1, I2F(x) > f)
x = __any_sync(-1, x > a) ? b : c
x = __reduce_add_sync(-1, x)
x = __reduce_min_sync(-1, x) + a
x = __match_any_sync(-1, x)
x = s[x & 255]
x = s[(x >> K & 63) + 3]
x = s[x]
x = reinterpret_cast<int2*>(s)[x].y
s[x & 255] = a
s[x] = b
s[a] = x
s[a] = x; x = x + b
atomicAdd(&s[x & 255], a)
x = atomicAdd(&s[x], 1)
x = atomicMax(&s[a], x)
x = table[x & 255]
x = table[(x << 2) + 1 & 255]
x = table[x]
x = table[(unsigned)x >> K]
x = table[min(x, a)]
x = p[x]
x = p[(unsigned)x]
x = p[x & 1023]
x = reinterpret_cast<const int4*>(p)[x].z
x = *(const int*)((const char*)p + l + x)
q[x] = a
q[a] = x
q[a] = x; x = x + b
*(int*)((char*)q + l) = x
reinterpret_cast<ll*>(q)[x] = l
reinterpret_cast<double*>(q)[a] = I2D(x, b)
atomicAdd(&q[x], a)
x = atomicAdd(&q[a], x)
x = atomicCAS(&q[a], x, b)
if (x > a) q[b] = c
if (x > a) q[b] = x
if (I2F(x) > f) s[b] = c
if (I2D(x, a) > d) s[b] = c
if (x > a) x = s[b]
if (x > a) x = x * b
if (x > a) x = F2I(I2F(x) * f)
if (x & 4) x = D2I(I2D(x, a) * d)
if (x & 4) { x = p[x]; q[b] = x; x = x * a; }
if (x == a) __syncthreads()
if (x == a) return
__syncwarp(x)
x = x + u
x = x * u + w
x = x * u
x = x & u
LOP3(x, x, u, a, 0x6a)
x = (x << K) + u
x = F2I(I2F(x) * I2F(u) + f)
x = F2I(I2F(x) + I2F(w))
x = F2I(fmaxf(I2F(x), I2F(u)))
x = x > u ? a : w
x = a > b ? x : u
x = a > b ? u : x
x = F2I(I2F(x) > I2F(u) ? I2F(w) : f)
x = D2I(I2D(x, a) * I2D(u, w))
x = min(x, u)
PRMT(x, x, u, a)
SHFL(x, x, a, u)
x = x << u
x = (ll)u * x + l >> 32
x = s[u & 255] + x
x = s[x + u]
x = p[x + u]
x = table[u & 255] + x
x = H2I(__hfma2(I2H(x), I2H(u), I2H(a)))
x = __dp4a(x, u, b)
x = __shfl_sync(-1, x, u)
"""
_UNIFORM = """
u = u + n
u = u * n
u = u * n + w
w = u * n + w
u = (u << K) + w
u = u << K
u = u >> K
u = u >> (n & 31)
u = u & w
u = u ^ n | w
u = u > n ? w : n
u = u > n ? u : w
u = min(u, w)
u = abs(u)
u = __popc(u)
u = __clz(u)
u = __brev(u)
u = __byte_perm(u, w, 0x6240)
u = __byte_perm(u, w, n)
u = n - u
w = w + u + n
u = (unsigned)u >> K & 255
u = blockIdx.x * K3 + u
w = blockIdx.y + u
u = (int)(((ll)u * n + m) >> 32)
m = m + u; u = (int)(m >> 32)
m = m + ((ll)u << 32); u = (int)m
if (u > n) q[a] = b
"""
_MIXES = (
    # weights of integer, float, half, double, other and uniform operations
    (10, 1, 0, 0, 2, 0),
    (6, 6, 1, 1, 2, 0),
    (4, 3, 6, 0, 2, 0),
    (4, 2, 1, 6, 2, 0),
    (4, 2, 1, 1, 8, 0),
    (4, 2, 1, 1, 4, 6),
    (3, 1, 0, 0, 3, 9),
)


def _operations(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


_KINDS = [_operations(t) for t in (_INTEGER, _FLOAT, _HALF, _DOUBLE, _OTHER, _UNIFORM)]


def kernel(number: int, rng: random.Random) -> str:
    """A kernel that is one chain of random operations."""
    mix = _MIXES[number % len(_MIXES)]
    lines = [
        f'extern "C" __global__ void chain_{number}'
        "(const int* __restrict__ p, int* q, int n, int v, ll m) {",
        "  __shared__ int s[1024];",
        "  int i = threadIdx.x + blockIdx.x * blockDim.x;",
        "  int x = p[i], a = p[i + 1000], b = p[i + 2000], c = p[i + 3000], u = n, w = v;",
        "  float f = I2F(p[i + 4000]), g = I2F(p[i + 5000]);",
        "  double d = I2D(p[i + 6000], p[i + 7000]), e = I2D(p[i + 8000], p[i + 9000]);",
        "  ll l = (ll)p[i + 10000] << 32 | (unsigned)p[i + 11000];",
        "  s[i & 1023] = c; __syncthreads();",
    ]
    for _ in range(_STEPS):
        operation = rng.choice(rng.choices(_KINDS, mix)[0])
        operation = operation.replace("K3", str(rng.randrange(3, 9999) | 1))
        lines.append(f"  {operation.replace('K', str(rng.randrange(1, 12)))};")
    lines.append("  q[i] = x; q[i + 1000] = u + w + (int)m; q[i + 2000] = (int)l ^ D2I(d);\n}")
    return "\n".join(lines).replace("K", "3")


def main() -> int:
    """Write, and compile if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="seed of the first file")
    parser.add_argument("--compile", action="store_true", help="with nvcc, for sm_90")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.first, arguments.first + arguments.files):
        rng = random.Random(seed)
        source = arguments.folder / f"chains_{seed}.cu"
        kernels = [kernel(number, rng) for number in range(_PER_FILE)]
        source.write_text("\n".join([_HEADER, *kernels, ""]), encoding="utf-8")
        if arguments.compile:
            command = ["nvcc", "-arch=sm_90", "-cubin", "-w", "-o"]
            subprocess.run([*command, source.with_suffix(".cubin"), source], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
