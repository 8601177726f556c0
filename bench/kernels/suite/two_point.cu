// Two-point correlation on a k-d tree: per query, pairs inside eight radii, with boxes of nodes to
// take or to skip whole subtrees. Heap order, 3 dimensions.
constexpr int kBins = 8;

extern "C" __global__ void two_point(const float4 *__restrict__ points, const float4 *__restrict__ low,
                                     const float4 *__restrict__ high, const int *__restrict__ counts, int nodes,
                                     const float4 *__restrict__ queries, const float *__restrict__ radii2,
                                     int *__restrict__ out, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    const float4 q = queries[t];
    float r2[kBins];
    int inside[kBins];
#pragma unroll
    for (int b = 0; b < kBins; ++b) { r2[b] = radii2[b]; inside[b] = 0; }
    int stack[24];
    int top = 0;
    stack[top++] = 0;
    while (top > 0) {
        const int node = stack[--top];
        const float4 lo = low[node], hi = high[node], p = points[node];
        const float nx = fmaxf(fmaxf(lo.x - q.x, q.x - hi.x), 0.0f), fx = fmaxf(fabsf(q.x - lo.x), fabsf(q.x - hi.x));
        const float ny = fmaxf(fmaxf(lo.y - q.y, q.y - hi.y), 0.0f), fy = fmaxf(fabsf(q.y - lo.y), fabsf(q.y - hi.y));
        const float nz = fmaxf(fmaxf(lo.z - q.z, q.z - hi.z), 0.0f), fz = fmaxf(fabsf(q.z - lo.z), fabsf(q.z - hi.z));
        const float near2 = nx * nx + ny * ny + nz * nz, far2 = fx * fx + fy * fy + fz * fz;
        if (near2 > r2[kBins - 1]) continue;
        const int size = counts[node];
        bool open = false;
#pragma unroll
        for (int b = 0; b < kBins; ++b) open |= near2 <= r2[b] && far2 > r2[b];
        if (!open) {
#pragma unroll
            for (int b = 0; b < kBins; ++b) inside[b] += far2 <= r2[b] ? size : 0;
            continue;
        }
        // partly inside: bins that hold the whole subtree would be counted twice below, so all
        // bins are counted point by point
        const float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
        const float d2 = dx * dx + dy * dy + dz * dz;
#pragma unroll
        for (int b = 0; b < kBins; ++b) inside[b] += d2 <= r2[b];
        if (2 * node + 1 < nodes) stack[top++] = 2 * node + 1;
        if (2 * node + 2 < nodes) stack[top++] = 2 * node + 2;
    }
#pragma unroll
    for (int b = 0; b < kBins; ++b) out[static_cast<size_t>(b) * n + t] = inside[b];
}
