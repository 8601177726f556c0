// Small kernels for the tests of the checker, compiled by
//   nvcc -arch=sm_90 -cubin -o kernels.cubin kernels.cu
// Between them: three-dimensional blocks, static and dynamic shared memory, barriers, shuffles,
// loops, guarded code, double precision with slow-path calls, a real function call, a jump table,
// 128-bit loads, atomics, integer division, special functions.

extern __shared__ int dynamic_words[];

extern "C" __global__ void shared_block(int* out, int n, int seed) {
  __shared__ int words[512];
  int linear = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  words[(linear * 5) & 511] = n;
  __syncthreads();
  int value = words[(linear * 7) & 511];
  for (int i = 0; i < n; i++) value = value * seed + words[(value ^ i) & 511];
  out[linear] = value;
  if (n > 3) out[linear + 5] = value % seed;
}

extern "C" __global__ void dynamic_block(int* out, int n, int seed) {
  int linear = threadIdx.x + blockDim.x * threadIdx.y;
  dynamic_words[linear] = seed;
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < n; i++) sum += dynamic_words[(linear ^ i) & 255] * i;
  out[linear] = sum;
}

extern "C" __global__ void doubles(double* out, const double* in, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) {
    double x = in[i * blockDim.x + threadIdx.x];
    if (x > 0) sum += sqrt(x) / (x + 1.5); else sum -= x / 3.1;
  }
  out[threadIdx.x + blockIdx.x * blockDim.x] = sum;
}

__noinline__ __device__ int step(int x, int y) { return x > y ? x * y + 3 : x / y; }

extern "C" __global__ void calls(int* out, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) {
    s += step(s, i + 1);
    if (s & 1) s = step(i, s | 1) ^ s;
  }
  out[threadIdx.x] = s;
}

extern "C" __global__ void jumps(int* out, const int* in, int n) {
  int a = threadIdx.x, b = n;
  for (int i = 0; i < n; i++) {
    switch (in[i]) {
      case 0: a += b; break;
      case 1: a *= 3; break;
      case 2: b ^= a; break;
      case 3: a -= 77; b = a * a; break;
      case 4: a = ~a; break;
      case 5: b = b / 7 + a; break;
      case 6: a |= 5; break;
      case 7: b = __brev(a); break;
      case 8: a = __popc(b) + a; break;
      default: a ^= b;
    }
  }
  out[threadIdx.x] = a + b;
}

extern "C" __global__ void vectors(float4* out, const float4* in, int* hits, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 s = make_float4(0, 0, 0, 0);
  for (int k = 0; k < n; k++) {
    float4 v = in[i + k * 64];
    s.x += v.x * v.y; s.y += v.y; s.z = fmaxf(s.z, v.z); s.w += __expf(v.w);
    if (v.x > 1.0f) atomicAdd(hits + (k & 15), 1);
  }
  out[i] = s;
}

extern "C" __global__ void shuffles(float* out, const float* in, int n) {
  float s = 0;
  for (int k = threadIdx.x; k < n; k += blockDim.x) s += in[k] * in[k + 1];
  for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffff, s, d);
  if ((threadIdx.x & 31) == 0) out[threadIdx.x >> 5] = s;
}

extern "C" __global__ void guarded(int* out, const int* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int a = i < n ? in[i] : 0;
  int b = a > 5 ? in[i + 1] : a;
  int c = (a & b) ? in[i + 2] * b : b - a;
  if (c > 100) { c = c * c + a; if (b > 3) c -= in[b & 63]; }
  out[i] = a + b * c + (c > b ? a : i);
}

extern "C" __global__ void gather(float* out, const int* index, const float* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0, t = 1;
  int at = i;
  for (int k = 0; k < n; k++) {
    at = index[at];
    float v = in[at];
    s = s * 0.5f + v;
    t = t + s * v;
  }
  out[i] = s / t;
}

extern "C" __global__ void stencil(float* out, const float* in, int w, int h, float c0, float c1) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
  const float* p = in + y * w + x;
  float s = c0 * p[0] + c1 * (p[-1] + p[1] + p[-w] + p[w]);
  s += c0 * c1 * (p[-w - 1] + p[-w + 1] + p[w - 1] + p[w + 1]);
  out[y * w + x] = s + sinf(s);
}
