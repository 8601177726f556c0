// Macroscopic neutron cross sections by the windowed multipole method: per nuclide of the
// material, a window's poles with a rational approximation of the Faddeeva function, and a
// background polynomial.
struct Complex { double re, im; };
__device__ __forceinline__ Complex mul(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
__device__ __forceinline__ Complex div(Complex a, Complex b)
{
    const double d = 1.0 / (b.re * b.re + b.im * b.im);
    return {(a.re * b.re + a.im * b.im) * d, (a.im * b.re - a.re * b.im) * d};
}

extern "C" __global__ void multipole_lookup(const double *__restrict__ energies, const int *__restrict__ materials,
                                            const int *__restrict__ nuclides, const int *__restrict__ lengths,
                                            const double *__restrict__ densities, const double4_16a *__restrict__ poles,
                                            const double4_16a *__restrict__ residues, const double4_16a *__restrict__ background,
                                            int windows, int per_window, double *__restrict__ out, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    const double e = energies[t], root = sqrt(e), broad = 0.05 / root;
    const int material = materials[t];
    double total = 0, absorption = 0, fission = 0, elastic = 0;
#pragma unroll 1
    for (int k = 0; k < lengths[material]; ++k) {
        const int nuclide = nuclides[material * 32 + k];
        const int window = min(static_cast<int>(e * windows), windows - 1);
        const size_t base = (static_cast<size_t>(nuclide) * windows + window);
        const double4_16a b = background[base];
        double st = b.x + b.y * root, sa = b.z * e, sf = b.w * e * root;
#pragma unroll 1
        for (int p = 0; p < per_window; ++p) {
            const double4_16a pole = poles[base * per_window + p], r = residues[base * per_window + p];
            const Complex z = {(root - pole.x) / broad, -pole.y / broad};
            // w(z) for |z| not small: i z (z^2 - 2.5) / (sqrt(pi) (z^4 - 3 z^2 + 0.75))
            const Complex z2 = mul(z, z), z4 = mul(z2, z2);
            const Complex top = mul({-z.im, z.re}, {z2.re - 2.5, z2.im});
            const Complex w = div(top, {z4.re - 3.0 * z2.re + 0.75 + 1e-9, z4.im - 3.0 * z2.im});
            const Complex phase = mul(w, {pole.z, pole.w});
            st += r.x * phase.re - r.y * phase.im;
            sa += r.z * w.re;
            sf += r.w * w.im;
        }
        const double density = densities[material * 32 + k];
        total += density * st;
        absorption += density * sa;
        fission += density * sf;
        elastic += density * (st - sa);
    }
    out[t] = total;
    out[n + t] = absorption;
    out[2 * n + t] = fission;
    out[3 * n + t] = elastic;
}
