// Dynamically indexed local arrays: each thread keeps the ten nearest of its candidates in a heap
// of its own, which lives in local memory, and running sums in registers.
#include <cstdint>

constexpr int kNearest = 10;

extern "C" __global__ void local_array(const float4 *__restrict__ points, const uint32_t *__restrict__ candidates,
                                       float *__restrict__ out, uint32_t *__restrict__ ids, int count,
                                       uint32_t mask, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    float key[kNearest + 1];
    uint32_t id[kNearest + 1];
    for (int k = 0; k <= kNearest; ++k) { key[k] = 3.0e38f; id[k] = ~0u; }
    const float4 p = points[t & mask];
    float sx = 0, sy = 0, sz = 0, sw = 0, sxx = 0, syy = 0, szz = 0, sxy = 0, sxz = 0, syz = 0, near = 3.0e38f, far = 0;
    float wx = 0, wy = 0, wz = 0, w1 = 0, w2 = 0, w3 = 0;
#pragma unroll 1
    for (int c = 0; c < count; ++c) {
        const uint32_t which = candidates[static_cast<size_t>(c) * n + t] & mask;
        const float4 q = points[which];
        const float dx = q.x - p.x, dy = q.y - p.y, dz = q.z - p.z;
        const float d = dx * dx + dy * dy + dz * dz;
        sx += dx; sy += dy; sz += dz; sw += q.w;
        sxx += dx * dx; syy += dy * dy; szz += dz * dz;
        sxy += dx * dy; sxz += dx * dz; syz += dy * dz;
        near = fminf(near, d); far = fmaxf(far, d);
        const float kernel = 1.0f / (0.01f + d);
        wx += kernel * dx; wy += kernel * dy; wz += kernel * dz;
        w1 += kernel; w2 += kernel * kernel; w3 += kernel * q.w;
        if (d < key[1]) {           // a max-heap would replace the root; here key[1] is the largest
            int at = 1;
            while (true) {
                int child = 2 * at;
                if (child > kNearest) break;
                if (child < kNearest && key[child + 1] > key[child]) ++child;
                if (key[child] <= d) break;
                key[at] = key[child];
                id[at] = id[child];
                at = child;
            }
            key[at] = d;
            id[at] = which;
        }
    }
    for (int k = 0; k < kNearest; ++k) {
        out[static_cast<size_t>(k) * n + t] = key[k + 1];
        ids[static_cast<size_t>(k) * n + t] = id[k + 1];
    }
    float *rest = out + static_cast<size_t>(kNearest) * n + t;
    rest[0] = sx * sxx + sy * sxy + sz * sxz + sw;
    rest[static_cast<size_t>(n)] = sx * sxy + sy * syy + sz * syz + near;
    rest[2 * static_cast<size_t>(n)] = sx * sxz + sy * syz + sz * szz + far;
    rest[3 * static_cast<size_t>(n)] = wx * w1 + wy * w2 + wz * w3;
}
