// Values that all threads share, live through a loop full of values of each thread's own.
//
//     nvcc -arch=sm_90 -cubin uniform.cu -o uniform.cubin

__device__ __noinline__ float far(float x, float y) { return x * y + sqrtf(x + y); }

template <bool Calls>
__device__ void relax(const float4 *__restrict__ in, float *out, int n, int steps, float a, float b,
                      float c, float d) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float u = a * b + c, v = b * c - d, w = c * d + a, x = a * a - b * d;
  const float shift = (float)blockIdx.x * a + b;
  float4 s0 = in[i], s1 = in[i + n], s2 = in[i + 2 * n], s3 = in[i + 3 * n];
  for (int k = 0; k < steps; ++k) {
    const float4 p = in[i + (k + 4) * n], q = in[i + (k + 5) * n], r = in[i + (k + 6) * n];
    s0.x += p.x * q.y; s0.y += p.y * q.z; s0.z += p.z * q.w; s0.w += p.w * q.x;
    s1.x += q.x * r.y; s1.y += q.y * r.z; s1.z += q.z * r.w; s1.w += q.w * r.x;
    s2.x += r.x * p.y; s2.y += r.y * p.z; s2.z += r.z * p.w; s2.w += r.w * p.x;
    s3.x += p.x * r.x; s3.y += q.y * p.y; s3.z += r.z * q.z; s3.w += p.w * r.w;
    if (s0.x > 1.0f) {
      s0.x = s0.x * u + v;
      s1.y = s1.y * w + x;
      s2.z = s2.z * u + shift;
      if (Calls) s3.w += far(s0.y, s1.z);
    }
  }
  out[i] = s0.x + s0.y + s0.z + s0.w + s1.x + s1.y + s1.z + s1.w;
  out[i + n] = s2.x + s2.y + s2.z + s2.w + s3.x + s3.y + s3.z + s3.w;
}

extern "C" __global__ void shared_terms(const float4 *in, float *out, int n, int steps, float a,
                                        float b, float c, float d) {
  relax<false>(in, out, n, steps, a, b, c, d);
}

extern "C" __global__ void shared_terms_call(const float4 *in, float *out, int n, int steps,
                                             float a, float b, float c, float d) {
  relax<true>(in, out, n, steps, a, b, c, d);
}
