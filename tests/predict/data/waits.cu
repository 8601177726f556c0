// Kernels whose waits are known. Built by
//   nvcc -arch=sm_90 -cubin -o waits.cubin waits.cu
#include <cuda_pipeline.h>

#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// Copies one turn ahead: the wait in a turn is for the copy of the turn before.
extern "C" __global__ void copied(const float *in, float *out, int turns)
{
    __shared__ float tile[2][256];
    float sum = 0;
    __pipeline_memcpy_async(&tile[0][threadIdx.x], in + INDEX, 4);
    __pipeline_commit();
    for (int k = 1; k < turns; ++k) {
        __pipeline_memcpy_async(&tile[k & 1][threadIdx.x], in + INDEX + k * 4096, 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += tile[(k + 1) & 1][threadIdx.x ^ 1];
        __syncthreads();
    }
    out[INDEX] = sum;
}

// The same, waiting for each copy at once.
extern "C" __global__ void awaited(const float *in, float *out, int turns)
{
    __shared__ float tile[256];
    float sum = 0;
    for (int k = 0; k < turns; ++k) {
        __pipeline_memcpy_async(&tile[threadIdx.x], in + INDEX + k * 4096, 4);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        sum += tile[threadIdx.x ^ 1];
        __syncthreads();
    }
    out[INDEX] = sum;
}

// A phase that waits for memory and one that computes, with and without a barrier between them.
template <bool kTogether> __device__ void phases(const float *in, float *out)
{
    __shared__ float tile[1024];
    float x = in[INDEX] + in[INDEX + 65536];
    tile[threadIdx.x] = x;
    if (kTogether) __syncthreads();
    x = tile[threadIdx.x ^ 33];
#pragma unroll
    for (int k = 0; k < 600; ++k) x = x * x + 1.5f;
    out[INDEX] = x;
}
extern "C" __global__ void together(const float *in, float *out) { phases<true>(in, out); }
extern "C" __global__ void apart(const float *in, float *out) { phases<false>(in, out); }

// Eight places at once, and eight neighbours.
extern "C" __global__ void places(const float *a, const float *b, const float *c, const float *d,
                                  float *out)
{
    out[INDEX] = a[INDEX] * b[INDEX] + c[INDEX] * d[INDEX];
}
extern "C" __global__ void neighbours(const float *a, float *out)
{
    const float *p = a + 8 * INDEX;
    out[INDEX] = p[0] * p[2] + p[4] * p[6];
}
