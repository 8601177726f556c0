// Singular value decomposition of 3x3 matrices: Jacobi rotations of A^T A with an accumulated
// basis, then U by Gram-Schmidt.
extern "C" __global__ void svd3(const float *__restrict__ in, float *__restrict__ out, int sweeps, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    float a[3][3], s[3][3], v[3][3];
#pragma unroll
    for (int k = 0; k < 9; ++k) a[k / 3][k % 3] = in[static_cast<size_t>(k) * n + t];
#pragma unroll
    for (int i = 0; i < 3; ++i)
#pragma unroll
        for (int j = 0; j < 3; ++j) {
            s[i][j] = a[0][i] * a[0][j] + a[1][i] * a[1][j] + a[2][i] * a[2][j];
            v[i][j] = i == j;
        }
#pragma unroll 1
    for (int sweep = 0; sweep < sweeps; ++sweep) {
#pragma unroll
        for (int k = 0; k < 3; ++k) {
            const int p = k == 2 ? 1 : 0, q = k == 0 ? 1 : 2;
            const float off = s[p][q], gap = s[q][q] - s[p][p];
            const float r = fabsf(gap) + sqrtf(gap * gap + 4.0f * off * off) + 1e-30f;
            const float tan = 2.0f * off * (gap < 0 ? -1.0f : 1.0f) / r;
            const float c = rsqrtf(1.0f + tan * tan), d = tan * c;
#pragma unroll
            for (int i = 0; i < 3; ++i) {
                const float x = s[i][p], y = s[i][q];
                s[i][p] = c * x - d * y;
                s[i][q] = d * x + c * y;
            }
#pragma unroll
            for (int i = 0; i < 3; ++i) {
                const float x = s[p][i], y = s[q][i];
                s[p][i] = c * x - d * y;
                s[q][i] = d * x + c * y;
                const float g = v[i][p], h = v[i][q];
                v[i][p] = c * g - d * h;
                v[i][q] = d * g + c * h;
            }
        }
    }
    float u[3][3], sigma[3];
#pragma unroll
    for (int j = 0; j < 3; ++j) {
        float w[3];
#pragma unroll
        for (int i = 0; i < 3; ++i) w[i] = a[i][0] * v[0][j] + a[i][1] * v[1][j] + a[i][2] * v[2][j];
        sigma[j] = sqrtf(w[0] * w[0] + w[1] * w[1] + w[2] * w[2]);
        const float inv = 1.0f / fmaxf(sigma[j], 1e-20f);
#pragma unroll
        for (int i = 0; i < 3; ++i) u[i][j] = w[i] * inv;
    }
#pragma unroll
    for (int k = 0; k < 9; ++k) {
        out[static_cast<size_t>(k) * n + t] = u[k / 3][k % 3];
        out[static_cast<size_t>(k + 9) * n + t] = v[k / 3][k % 3];
    }
#pragma unroll
    for (int k = 0; k < 3; ++k) out[static_cast<size_t>(k + 18) * n + t] = sigma[k];
}
