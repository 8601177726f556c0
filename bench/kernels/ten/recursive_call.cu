// A real function call: adaptive quadrature by recursion. The device function calls itself, so it
// can't be inlined and has a stack frame. Twenty running sums live across the call.
constexpr int kPowers = 20;

struct Panel {
    float a, b, fa, fm, fb, whole;
};

__device__ __forceinline__ float integrand(float x, float p, float q)
{
    return 1.0f / (0.02f + (x - p) * (x - p)) + q * x * rsqrtf(1.0f + x * x);
}

__device__ __noinline__ float refine(Panel s, float p, float q, float tolerance, int depth)
{
    const float mid = 0.5f * (s.a + s.b);
    const float left = integrand(0.5f * (s.a + mid), p, q), right = integrand(0.5f * (mid + s.b), p, q);
    const float h = (s.b - s.a) * (1.0f / 12.0f);
    const float first = h * (s.fa + 4.0f * left + s.fm), second = h * (s.fm + 4.0f * right + s.fb);
    const float error = first + second - s.whole;
    if (depth == 0 || fabsf(error) < tolerance) return first + second + error * (1.0f / 15.0f);
    return refine(Panel{s.a, mid, s.fa, left, s.fm, first}, p, q, 0.5f * tolerance, depth - 1) +
           refine(Panel{mid, s.b, s.fm, right, s.fb, second}, p, q, 0.5f * tolerance, depth - 1);
}

extern "C" __global__ void recursive_call(const float4 *__restrict__ problems, float *__restrict__ out,
                                          float tolerance, int depth, int rounds, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    float power[kPowers];
#pragma unroll
    for (int m = 0; m < kPowers; ++m) power[m] = 0;
#pragma unroll 1
    for (int k = 0; k < rounds; ++k) {
        const float4 r = problems[static_cast<size_t>(k) * n + t];
        const float fa = integrand(r.x, r.z, r.w), fb = integrand(r.y, r.z, r.w);
        const float fm = integrand(0.5f * (r.x + r.y), r.z, r.w);
        const float whole = (r.y - r.x) * (1.0f / 6.0f) * (fa + 4.0f * fm + fb);
        const float area = refine(Panel{r.x, r.y, fa, fm, fb, whole}, r.z, r.w, tolerance, depth);
#pragma unroll
        for (int m = 0; m < kPowers; ++m) power[m] = fmaf(power[m], r.x, area * (m + 1));
    }
    float sum[4] = {};
#pragma unroll
    for (int m = 0; m < kPowers; ++m) sum[m & 3] = sum[m & 3] * 0.75f + power[m];
#pragma unroll
    for (int m = 0; m < 4; ++m) out[static_cast<size_t>(m) * n + t] = sum[m];
}
