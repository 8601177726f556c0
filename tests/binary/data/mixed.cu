// Small kernels that between them have what a cubin can refer to code with: a call, a jump table,
// shared memory of both kinds, a function-like slow path, a system call and warp-wide operations.
#include <cooperative_groups.h>
#include <cstdio>

extern __shared__ float dynamic[];

template <class T>
__device__ __noinline__ T slow(T x, int n) {
    T a[12];
    for (int i = 0; i < 12; i++) a[i] = x * i;
    for (int i = 0; i < n; i++) a[(i * 7) % 12] += x;
    return a[n % 12];
}

__global__ void plain(float *a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = a[i] / a[i + 1];
}

__global__ __launch_bounds__(256, 2) void shared(float *a, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = a[t];
    __syncthreads();
    for (int i = 0; i < n; i++) a[t] += s[(t + i) & 255];
}

__global__ void dynamic_call(float *a, int n) {
    dynamic[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = slow(dynamic[n], n) + __shfl_xor_sync(~0u, a[n], 1);
}

__global__ void table(int *a, int n) {
    int v = a[threadIdx.x];
    switch (n) {
        case 0: v = v * 3 + 1; break;
        case 1: v ^= a[3]; break;
        case 2: v = __popc(v); break;
        case 3: v += a[5]; break;
        case 4: v = atomicAdd(a + 9, v); break;
        case 5: v = __clz(v); break;
        case 6: v = a[v]; break;
    }
    a[threadIdx.x] = v;
}

__global__ void prints(int n) {
    printf("%d\n", n);
    auto g = cooperative_groups::coalesced_threads();
    if (n > 3) g.sync();
}
