// Nearest neighbour in seven dimensions on a k-d tree in heap order; depth-first with a stack of
// pruned branches.
constexpr int kDim = 7;

extern "C" __global__ void kd_nearest(const float *__restrict__ tree, int nodes, const float *__restrict__ queries,
                                      int *__restrict__ nearest, float *__restrict__ distance, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    float q[kDim];
#pragma unroll
    for (int d = 0; d < kDim; ++d) q[d] = queries[static_cast<size_t>(d) * n + t];
    int stack[24];
    float bound[24];
    int top = 0, best = -1, node = 0, axis = 0;
    float best2 = 3.0e38f;
    int axes[24];
    while (true) {
        if (node < nodes) {
            float d2 = 0, split = 0;
#pragma unroll
            for (int d = 0; d < kDim; ++d) {
                const float diff = q[d] - tree[static_cast<size_t>(d) * nodes + node];
                d2 = fmaf(diff, diff, d2);
                if (d == axis) split = diff;
            }
            if (d2 < best2 || (d2 == best2 && node < best)) { best2 = d2; best = node; }
            const int near = 2 * node + (split > 0 ? 2 : 1), far = 2 * node + (split > 0 ? 1 : 2);
            axis = axis == kDim - 1 ? 0 : axis + 1;
            if (far < nodes) { stack[top] = far; bound[top] = split * split; axes[top] = axis; ++top; }
            node = near;
            continue;
        }
        do {
            if (top == 0) {
                nearest[t] = best;
                distance[t] = best2;
                return;
            }
            --top;
        } while (bound[top] >= best2);
        node = stack[top];
        axis = axes[top];
    }
}
