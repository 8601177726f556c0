// The four nearest by a vantage-point tree in heap order: the distance to a node's point against
// its radius decides which side comes first and whether the other can be skipped.
extern "C" __global__ void vp_search(const float4 *__restrict__ points, const float4 *__restrict__ extra,
                                     const float *__restrict__ radius, int nodes, const float4 *__restrict__ queries,
                                     const float4 *__restrict__ more, int4 *__restrict__ ids,
                                     float4 *__restrict__ distances, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    const float4 q = queries[t], r = more[t];
    float d0 = 3.0e38f, d1 = 3.0e38f, d2 = 3.0e38f, d3 = 3.0e38f;
    int i0 = -1, i1 = -1, i2 = -1, i3 = -1;
    int stack[24];
    float gap[24];
    int top = 0, node = 0;
    while (true) {
        if (node < nodes) {
            const float4 p = points[node], e = extra[node];
            const float d = sqrtf((p.x - q.x) * (p.x - q.x) + (p.y - q.y) * (p.y - q.y) + (p.z - q.z) * (p.z - q.z) +
                                  (p.w - q.w) * (p.w - q.w) + (e.x - r.x) * (e.x - r.x) + (e.y - r.y) * (e.y - r.y) +
                                  (e.z - r.z) * (e.z - r.z) + (e.w - r.w) * (e.w - r.w));
            if (d < d3) {
                d3 = d; i3 = node;
                if (d3 < d2) { const float x = d2; d2 = d3; d3 = x; const int i = i2; i2 = i3; i3 = i; }
                if (d2 < d1) { const float x = d1; d1 = d2; d2 = x; const int i = i1; i1 = i2; i2 = i; }
                if (d1 < d0) { const float x = d0; d0 = d1; d1 = x; const int i = i0; i0 = i1; i1 = i; }
            }
            const float side = d - radius[node];
            const int near = 2 * node + (side > 0 ? 2 : 1), far = 2 * node + (side > 0 ? 1 : 2);
            if (far < nodes) { stack[top] = far; gap[top] = fabsf(side); ++top; }
            node = near;
            continue;
        }
        do {
            if (top == 0) {
                ids[t] = make_int4(i0, i1, i2, i3);
                distances[t] = make_float4(d0, d1, d2, d3);
                return;
            }
            --top;
        } while (gap[top] >= d3);
        node = stack[top];
    }
}
