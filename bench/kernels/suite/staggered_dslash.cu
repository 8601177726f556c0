// Staggered-fermion Dslash with long links: SU(3) matrices times colour vectors over eight
// neighbours, one and three sites away, single precision, 4-D periodic lattice. Block 64.
struct Vec { float2 c[3]; };

__device__ __forceinline__ Vec load(const float2 *v, int n, int i) { return {{v[i], v[n + i], v[2 * n + i]}}; }
__device__ __forceinline__ void multiply_add(float2 (&out)[3], const float2 *links, int n, int i, const Vec &v, float sign,
                                             bool adjoint)
{
#pragma unroll
    for (int r = 0; r < 3; ++r)
#pragma unroll
        for (int c = 0; c < 3; ++c) {
            float2 m = links[static_cast<size_t>(adjoint ? 3 * c + r : 3 * r + c) * n + i];
            if (adjoint) m.y = -m.y;
            out[r].x += sign * (m.x * v.c[c].x - m.y * v.c[c].y);
            out[r].y += sign * (m.x * v.c[c].y + m.y * v.c[c].x);
        }
}

extern "C" __global__ void staggered_dslash(const float2 *__restrict__ fat, const float2 *__restrict__ longer,
                                            const float2 *__restrict__ in, float2 *__restrict__ out, int4 size)
{
    const int n = size.x * size.y * size.z * size.w;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int at[4] = {i % size.x, i / size.x % size.y, i / (size.x * size.y) % size.z, i / (size.x * size.y * size.z)};
    const int extent[4] = {size.x, size.y, size.z, size.w};
    const int stride[4] = {1, size.x, size.x * size.y, size.x * size.y * size.z};
    float2 sum[3] = {};
#pragma unroll
    for (int d = 0; d < 4; ++d)
#pragma unroll
        for (int hop = 1; hop <= 3; hop += 2) {
            const float2 *links = (hop == 1 ? fat : longer) + static_cast<size_t>(9 * d) * n;
            const int forward = i + ((at[d] + hop) % extent[d] - at[d]) * stride[d];
            const int back = i + ((at[d] + extent[d] - hop) % extent[d] - at[d]) * stride[d];
            multiply_add(sum, links, n, i, load(in, n, forward), 1.0f, false);
            multiply_add(sum, links, n, back, load(in, n, back), -1.0f, true);
        }
#pragma unroll
    for (int c = 0; c < 3; ++c) out[static_cast<size_t>(c) * n + i] = sum[c];
}
