// nvcc -arch=sm_90 -maxrregcount=32 -cubin -o spills_double.cubin spills_double.cu
// Values in double whose live ranges follow each other: ptxas spills 64-bit pairs.
extern "C" __global__ void pairs(const double *a, double *out, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double first[14], second[14];
#pragma unroll
    for (int k = 0; k < 14; ++k) first[k] = a[k * n + i];
    double sum = 0;
#pragma unroll
    for (int k = 0; k < 14; ++k) sum += first[k] * first[(k * 5 + 3) % 14];
#pragma unroll
    for (int k = 0; k < 14; ++k) second[k] = a[(k + 14) * n + i] * sum + first[13 - k];
    double total = 0;
#pragma unroll
    for (int k = 0; k < 14; ++k) total = total * second[k] + second[(k * 3 + 1) % 14];
    for (int r = 0; r < n; ++r) {
#pragma unroll
        for (int k = 0; k < 14; ++k) total = total * 0.5 + second[(k + 7) % 14];
    }
    out[i] = total + sum;
}
