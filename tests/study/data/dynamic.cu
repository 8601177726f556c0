// Dynamic shared memory, with which NVIDIA's pragma is refused, and enough values to spill.
extern __shared__ float tile[];

extern "C" __global__ void dynamic(const float *__restrict__ x, float *__restrict__ y, int n)
{
    float kept[40];
#pragma unroll
    for (int k = 0; k < 40; ++k) kept[k] = x[threadIdx.x + k * n];
    for (int turn = 0; turn < n; ++turn) {
        tile[threadIdx.x] = x[turn];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 40; ++k) kept[k] = kept[k] * tile[k] + kept[(k + 1) % 40];
        __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < 40; ++k) y[threadIdx.x + k * n] = kept[k];
}
