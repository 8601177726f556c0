// Integers only, in code instead of a pragma, with the define as a constant of a template.
template <int copies>
__device__ unsigned mix(unsigned h, const unsigned *__restrict__ word)
{
#pragma unroll
    for (int k = 0; k < copies; ++k) h = (h ^ word[k]) * 0x01000193u;
    return h;
}

extern "C" __global__ void words(const unsigned *__restrict__ in, unsigned *__restrict__ out, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = 0x811c9dc5u;
#pragma unroll 1
    for (int k = 0; k + UNROLL <= n; k += UNROLL) h = mix<UNROLL>(h, in + k);
    out[i] = h;
}
