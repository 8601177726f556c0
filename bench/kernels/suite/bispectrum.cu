// A SNAP-like bispectrum step: per neighbour, Wigner-like matrices built by recursion from the
// Cayley-Klein parameters, summed into a truncated density, then contracted. Double, 2J = 4.
extern "C" __global__ void bispectrum(const double *__restrict__ offsets, const int *__restrict__ counts,
                                      double *__restrict__ out, double cutoff, int length, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    double re[15], im[15];
#pragma unroll
    for (int k = 0; k < 15; ++k) { re[k] = 0; im[k] = 0; }
#pragma unroll 1
    for (int k = 0; k < counts[t]; ++k) {
        const size_t at = static_cast<size_t>(k) * n + t, plane = static_cast<size_t>(length) * n;
        const double x = offsets[at], y = offsets[plane + at], z = offsets[2 * plane + at];
        const double r = sqrt(x * x + y * y + z * z), z0 = r / (0.6 * cutoff + r);
        const double inv = 1.0 / sqrt(r * r + z0 * z0);
        const double ar = z0 * inv, ai = -z * inv, br = y * inv, bi = -x * inv;
        const double fade = r < cutoff ? 0.5 * (1.0 + 1.0 - 2.0 * r * r / (cutoff * cutoff)) : 0.0;
        double ur[5], ui[5];
        ur[0] = fade; ui[0] = 0;
        re[0] += fade;
        int to = 1;
#pragma unroll
        for (int j = 1; j < 5; ++j) {
            double pr = 0, pi = 0;
#pragma unroll
            for (int m = 0; m < j; ++m) {
                const double cr = ur[m], ci = ui[m], w = 1.0 / (1.0 + m);
                ur[m] = pr + ar * cr + ai * ci;
                ui[m] = pi + ar * ci - ai * cr;
                pr = -w * (br * cr + bi * ci);
                pi = -w * (br * ci - bi * cr);
            }
            ur[j] = pr; ui[j] = pi;
#pragma unroll
            for (int m = 0; m <= j; ++m) { re[to] += ur[m]; im[to] += ui[m]; ++to; }
        }
    }
#pragma unroll
    for (int j = 0; j < 5; ++j) {
        double b = 0;
        const int base = j * (j + 1) / 2;
#pragma unroll
        for (int m = 0; m <= j; ++m) {
            const int other = 14 - base - m;
            b += re[base + m] * (re[other] + re[m]) + im[base + m] * (im[other] - im[m]);
        }
        out[static_cast<size_t>(j) * n + t] = b;
    }
}
