// Dynamic shared memory: a polynomial (Savitzky-Golay like) fit in a sliding window over a tile
// whose size is a launch argument.
extern __shared__ float tile[];

extern "C" __global__ void dynamic_window(const float *__restrict__ signal, float *__restrict__ fit, int n,
                                          int half_window)
{
    const int base = blockIdx.x * blockDim.x;
    const int width = blockDim.x + 2 * half_window;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const int at = base + i - half_window;
        tile[i] = signal[at < 0 ? 0 : (at >= n ? n - 1 : at)];
    }
    __syncthreads();
    const int t = base + threadIdx.x;
    float m0 = 0, m1 = 0, m2 = 0, m3 = 0, m4 = 0, m5 = 0, m6 = 0, y0 = 0, y1 = 0, y2 = 0, y3 = 0, q0 = 0, q1 = 0, q2 = 0, q3 = 0, q4 = 0;
    float p1 = 0, p2 = 0, p3 = 0, p4 = 0, p5 = 0, p6 = 0, p7 = 0, p8 = 0;
    float low = 3.4e38f, high = -3.4e38f, rough = 0, last = tile[threadIdx.x];
#pragma unroll 4
    for (int k = -half_window; k <= half_window; ++k) {
        const float y = tile[threadIdx.x + half_window + k];
        const float x = k * 0.125f;
        const float w = 1.0f / (1.0f + x * x);
        const float wx = w * x, wx2 = wx * x, wx3 = wx2 * x, wx4 = wx3 * x;
        m0 += w; m1 += wx; m2 += wx2; m3 += wx3; m4 += wx4; m5 += wx4 * x; m6 += wx4 * x * x;
        y0 += w * y; y1 += wx * y; y2 += wx2 * y; y3 += wx3 * y;
        low = fminf(low, y); high = fmaxf(high, y);
        rough += fabsf(y - last);
        last = y;
        q0 += w * y * y; q1 += wx * y * y; q2 += wx2 * y * y; q3 += wx3 * y * y; q4 += wx4 * y * y;
        p1 += y * y; p2 += y * p1; p3 += x * p2; p4 += w * p3;
        p5 = p5 * x + y; p6 = p6 * w + p5; p7 = fmaf(p7, x, p6); p8 = fmaf(p8, w, p7);
    }
    // Cramer-free elimination of the 4x4 normal equations
    const float r1 = m1 / m0, r2 = m2 / m0, r3 = m3 / m0;
    const float b11 = m2 - r1 * m1, b12 = m3 - r1 * m2, b13 = m4 - r1 * m3, c1 = y1 - r1 * y0;
    const float b22 = m4 - r2 * m2, b23 = m5 - r2 * m3, c2 = y2 - r2 * y0;
    const float b33 = m6 - r3 * m3, c3 = y3 - r3 * y0;
    const float s2 = b12 / b11, s3 = b13 / b11;
    const float d22 = b22 - s2 * b12, d23 = b23 - s2 * b13, e2 = c2 - s2 * c1;
    const float d33 = b33 - s3 * b13, e3 = c3 - s3 * c1;
    const float u3 = d23 / d22;
    const float z3 = (e3 - u3 * e2) / (d33 - u3 * d23);
    const float z2 = (e2 - d23 * z3) / d22;
    const float z1 = (c1 - b12 * z2 - b13 * z3) / b11;
    const float z0 = (y0 - m1 * z1 - m2 * z2 - m3 * z3) / m0;
    if (t < n) {
        fit[t] = z0;
        fit[n + t] = z1;
        fit[2 * n + t] = z2;
        fit[3 * n + t] = z3;
        fit[4 * n + t] = (high - low) * rough;
        fit[5 * n + t] = q0 * z0 + q1 * z1 + q2 * z2 + q3 * z3 + q4;
        fit[6 * n + t] = p1 * z0 + p2 * z1 + p3 * z2 + p4 * z3 + p5 * p6 + p7 * p8;
    }
}
