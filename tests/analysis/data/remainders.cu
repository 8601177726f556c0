// Loops that nvcc splits in a main loop and a remainder, and loops that are not alike. Built with
// nvcc 13.0 -arch=sm_90 -cubin.
extern "C" __global__ void dots(const float *x, const float *y, float *out, int n)
{
    float s = 0;
    #pragma unroll 4
    for (int i = threadIdx.x; i < n; i += blockDim.x) s = fmaf(x[i], y[i], s);
    out[threadIdx.x] = s;
}
extern "C" __global__ void rows(const float *x, float *out, int n, int m)
{
    for (int r = 0; r < m; ++r) {
        float s = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[r * n + i] * s;
        out[r * blockDim.x + threadIdx.x] = s;
    }
}
extern "C" __global__ void unlike(const float *x, const int *at, float *out, int n)
{
    float s = 0;
    int k = threadIdx.x;
    #pragma unroll 1
    for (int i = 0; i < n; ++i) k = at[k];
    #pragma unroll 1
    for (int i = 0; i < n; ++i) s += x[i] * x[i + n] + x[i + 2 * n] * x[i + 3 * n];
    out[threadIdx.x] = s + k;
}
extern "C" __global__ void copies(const double *x, double *out, int n)
{
    #pragma unroll 8
    for (int i = threadIdx.x; i < n; i += 32) out[i] = sqrt(x[i]) + x[i + 1];
}
