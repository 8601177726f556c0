// Recursive (IIR) Gaussian over the columns of an RGBA image: a causal and an anticausal
// second-order pass, one column a thread, four channels at once.
__device__ __forceinline__ float4 rgba(unsigned c)
{
    return make_float4(c & 255u, (c >> 8) & 255u, (c >> 16) & 255u, c >> 24);
}
__device__ __forceinline__ unsigned pack(float4 v)
{
    const unsigned r = __saturatef(v.x / 255.0f) * 255.0f + 0.5f, g = __saturatef(v.y / 255.0f) * 255.0f + 0.5f;
    const unsigned b = __saturatef(v.z / 255.0f) * 255.0f + 0.5f, a = __saturatef(v.w / 255.0f) * 255.0f + 0.5f;
    return r | (g << 8) | (b << 16) | (a << 24);
}
__device__ __forceinline__ float4 axpy(float k, float4 x, float4 y)
{
    return make_float4(fmaf(k, x.x, y.x), fmaf(k, x.y, y.y), fmaf(k, x.z, y.z), fmaf(k, x.w, y.w));
}

extern "C" __global__ void recursive_gaussian(const unsigned *__restrict__ in, unsigned *__restrict__ out, int width,
                                              int height, float a0, float a1, float a2, float a3, float b1, float b2,
                                              float left, float right)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= width) return;
    const float4 zero = make_float4(0, 0, 0, 0);
    float4 x1 = rgba(in[x]), y1 = axpy(left, x1, zero), y2 = y1;
    for (int row = 0; row < height; ++row) {
        const float4 v = rgba(in[static_cast<size_t>(row) * width + x]);
        const float4 y = axpy(a0, v, axpy(a1, x1, axpy(-b1, y1, axpy(-b2, y2, zero))));
        out[static_cast<size_t>(row) * width + x] = pack(y);
        y2 = y1;
        y1 = y;
        x1 = v;
    }
    float4 n1 = rgba(in[static_cast<size_t>(height - 1) * width + x]), n2 = n1, z1 = axpy(right, n1, zero), z2 = z1;
    for (int row = height - 1; row >= 0; --row) {
        const size_t at = static_cast<size_t>(row) * width + x;
        const float4 v = rgba(in[at]);
        const float4 y = axpy(a2, n1, axpy(a3, n2, axpy(-b1, z1, axpy(-b2, z2, zero))));
        n2 = n1;
        n1 = v;
        z2 = z1;
        z1 = y;
        out[at] = pack(axpy(1.0f, y, rgba(out[at])));
    }
}
