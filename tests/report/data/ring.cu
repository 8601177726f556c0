// A recurrence over an array that only a full unroll keeps in registers. FACTOR 24 is all turns: the
// array is in registers, some of them spilled; with fewer it is indexed at run time. Compile with
//
//     nvcc -arch=sm_90 -lineinfo -cubin -DFACTOR=24 -o ring_full.cubin ring.cu
//     nvcc -arch=sm_90 -lineinfo -cubin -DFACTOR=6 -o ring_part.cubin ring.cu
constexpr int turns = 24;
constexpr int factor = FACTOR;

extern "C" __global__ void __launch_bounds__(256, 4)
    ring(const double *__restrict__ in, double *__restrict__ out, int pitch, int steps)
{
    __shared__ double tile[256];
    const int t = threadIdx.x, x = blockIdx.x * blockDim.x + t;
    tile[t] = in[x];
    __syncthreads();
    double a[turns];
#pragma unroll
    for (int i = 0; i < turns; i++) a[i] = in[x + i * pitch];
    for (int k = 0; k < steps; k++) {
        const double v = tile[(t + k) & 255];
#pragma unroll factor
        for (int i = 0; i < turns; i++)
            a[i] = a[i] * v + a[(i + 7) % turns] + in[(k * turns + i) * pitch + x];
    }
#pragma unroll
    for (int i = 0; i < turns; i++) out[x + i * pitch] = a[i];
}
