// Tensor cores: each warp multiplies a 32x32 tile through mma.sync.m16n8k16 (half in, float out),
// fragments loaded straight from device memory with a software pipeline of one step.
#include <cstdint>

__device__ __forceinline__ void mma16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// a: m x k halves, row major, two per word; b: n x k halves, row major (so column major for mma)
extern "C" __global__ void tensor_mma(const uint32_t *__restrict__ a, const uint32_t *__restrict__ b,
                                      float *__restrict__ c, int n, int k)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int group = lane >> 2, quad = lane & 3;
    const int row = (blockIdx.y * (blockDim.x >> 5) + warp) * 32;
    const int col = blockIdx.x * 32;
    const int words = k >> 1;
    float acc[2][4][4] = {};
    const uint32_t *pa = a + static_cast<size_t>(row + group) * words + quad;
    const uint32_t *pb = b + static_cast<size_t>(col + group) * words + quad;
#pragma unroll 1
    for (int step = 0; step < words; step += 8) {
        uint32_t fa[2][4], fb[4][2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t *at = pa + static_cast<size_t>(16 * i) * words + step;
            fa[i][0] = at[0];
            fa[i][1] = at[8 * static_cast<size_t>(words)];
            fa[i][2] = at[4];
            fa[i][3] = at[8 * static_cast<size_t>(words) + 4];
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const uint32_t *at = pb + static_cast<size_t>(8 * j) * words + step;
            fb[j][0] = at[0];
            fb[j][1] = at[4];
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) mma16816(acc[i][j], fa[i], fb[j]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float *at = c + static_cast<size_t>(row + 16 * i + group) * n + col + 8 * j + 2 * quad;
            *reinterpret_cast<float2 *>(at) = make_float2(acc[i][j][0], acc[i][j][1]);
            *reinterpret_cast<float2 *>(at + 8 * static_cast<size_t>(n)) = make_float2(acc[i][j][2], acc[i][j][3]);
        }
}
