// Kernels that spill under a register cap. Built by
//   nvcc -arch=sm_90 -maxrregcount=24 -cubin -o spills.cubin spills.cu
extern "C" __global__ void single(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v[20];
#pragma unroll
    for (int k = 0; k < 20; ++k) v[k] = in[i + k * n];
    float s = 0;
    for (int r = 0; r < n; ++r) {
        float x = in[r];
#pragma unroll
        for (int k = 0; k < 20; ++k) s += v[k] * x;
    }
#pragma unroll
    for (int k = 0; k < 20; ++k) out[i + k * n] = s * v[k];
}

extern "C" __global__ void twice(const double *in, double *out, int n) {
    __shared__ double part[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double v[12];
#pragma unroll
    for (int k = 0; k < 12; ++k) v[k] = in[i + k * n];
    part[threadIdx.x & 31] = v[0];
    __syncthreads();
    double s = part[(threadIdx.x + 1) & 31];
    for (int r = 0; r < n; ++r) {
        double x = in[r];
#pragma unroll
        for (int k = 0; k < 12; ++k) s += v[k] / (x + k);
    }
#pragma unroll
    for (int k = 0; k < 12; ++k) out[i + k * n] = s * v[k];
}

extern "C" __global__ void array(const int *in, int *out, int n) {
    int v[16];
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = in[k];
    for (int k = 0; k < n; ++k) v[in[k] & 15] += k;
    out[threadIdx.x] = v[n & 15];
}

extern "C" __global__ void plain(const float *in, float *out) {
    out[threadIdx.x] = in[threadIdx.x] + 1.0f;
}

extern __shared__ float window[];
extern "C" __global__ void dynamic(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    window[threadIdx.x] = in[i];
    __syncthreads();
    float v[20];
#pragma unroll
    for (int k = 0; k < 20; ++k) v[k] = in[i + k * n];
    float s = 0;
    for (int r = 0; r < n; ++r) {
        float x = window[r];
#pragma unroll
        for (int k = 0; k < 20; ++k) s += v[k] * x;
    }
#pragma unroll
    for (int k = 0; k < 20; ++k) out[i + k * n] = s * v[k];
}
