// Single-precision matrix product C = alpha A B + beta C (rows contiguous): tiles of 128 x 128, 8 x 8
// results a thread in registers, tiles of 16 columns of A and rows of B double-buffered in dynamic
// shared memory while the next are on their way in registers; A is stored transposed, rows padded.
// Fast path of such a library: m and n are multiples of 128, k of 16.
// Launch bounds: (256, 2) is what this tile is written for: 64 sums, 16 operands and 16 words on
// their way fit 128 registers, and one block computes while the other waits at a barrier.
constexpr int kTile = 128, kDepth = 16, kThreads = 256, kRowA = kTile + 4;

extern __shared__ float tiles[];

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sgemm_tile(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, float alpha, float beta, int m, int n, int k)
{
    constexpr int kSize = kDepth * (kRowA + kTile);
    const int t = threadIdx.x, x = t % 16, y = t / 16;
    const int row0 = blockIdx.y * kTile, column0 = blockIdx.x * kTile;
    // a thread brings four columns of two rows of A and four columns of two rows of B
    const int rowA = t / 4, wordA = t % 4 * 4, rowB = t / 32, wordB = t % 32 * 4;
    const float *from_a = a + static_cast<size_t>(row0 + rowA) * k + wordA;
    const float *from_b = b + static_cast<size_t>(rowB) * n + column0 + wordB;
    float4 next_a[2], next_b[2];
    float sum[8][8] = {};

    auto load = [&](int depth) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            next_a[h] = *reinterpret_cast<const float4 *>(from_a + static_cast<size_t>(h) * 64 * k + depth);
            next_b[h] = *reinterpret_cast<const float4 *>(from_b + static_cast<size_t>(depth + h * 8) * n);
        }
    };
    auto store = [&](float *tile) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float *to = tile + wordA * kRowA + rowA + h * 64;
            to[0] = next_a[h].x;
            to[kRowA] = next_a[h].y;
            to[2 * kRowA] = next_a[h].z;
            to[3 * kRowA] = next_a[h].w;
            *reinterpret_cast<float4 *>(tile + kDepth * kRowA + (rowB + h * 8) * kTile + wordB) = next_b[h];
        }
    };

    load(0);
    store(tiles);
    __syncthreads();
    for (int depth = 0, now = 0; depth < k; depth += kDepth, now ^= 1) {
        const bool more = depth + kDepth < k;
        if (more) load(depth + kDepth);
        const float *tile_a = tiles + now * kSize, *tile_b = tile_a + kDepth * kRowA;
#pragma unroll
        for (int p = 0; p < kDepth; ++p) {
            float left[8], right[8];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                *reinterpret_cast<float4 *>(left + 4 * h) = *reinterpret_cast<const float4 *>(tile_a + p * kRowA + h * 64 + y * 4);
                *reinterpret_cast<float4 *>(right + 4 * h) = *reinterpret_cast<const float4 *>(tile_b + p * kTile + h * 64 + x * 4);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[i][j] += left[i] * right[j];
        }
        if (more) store(tiles + (now ^ 1) * kSize);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = row0 + (i / 4) * 64 + y * 4 + i % 4;
            float4 *to = reinterpret_cast<float4 *>(c + static_cast<size_t>(row) * n + column0 + h * 64 + x * 4);
            const float4 old = *to;
            *to = make_float4(alpha * sum[i][4 * h] + beta * old.x, alpha * sum[i][4 * h + 1] + beta * old.y,
                              alpha * sum[i][4 * h + 2] + beta * old.z, alpha * sum[i][4 * h + 3] + beta * old.w);
        }
}
