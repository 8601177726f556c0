// Lattice Boltzmann D3Q19 with two relaxation times, pull scheme, periodic box, a force. Block 64.
__constant__ constexpr int cx[19] = {0, 1, -1, 0, 0, 0, 0, 1, -1, 1, -1, 1, -1, 1, -1, 0, 0, 0, 0};
__constant__ constexpr int cy[19] = {0, 0, 0, 1, -1, 0, 0, 1, -1, -1, 1, 0, 0, 0, 0, 1, -1, 1, -1};
__constant__ constexpr int cz[19] = {0, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 1, -1, -1, 1, 1, -1, -1, 1};

extern "C" __global__ void lattice_d3q19(const double *__restrict__ in, double *__restrict__ out, int nx, int ny, int nz,
                                         double even, double odd, double force)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
    if (x >= nx) return;
    const int n = nx * ny * nz;
    double f[19];
#pragma unroll
    for (int q = 0; q < 19; ++q) {
        int a = x - cx[q], b = y - cy[q], c = z - cz[q];
        a = a < 0 ? nx - 1 : a == nx ? 0 : a;
        b = b < 0 ? ny - 1 : b == ny ? 0 : b;
        c = c < 0 ? nz - 1 : c == nz ? 0 : c;
        f[q] = in[static_cast<size_t>(q) * n + (c * ny + b) * nx + a];
    }
    double rho = 0, ux = 0, uy = 0, uz = 0;
#pragma unroll
    for (int q = 0; q < 19; ++q) {
        rho += f[q];
        ux += cx[q] * f[q];
        uy += cy[q] * f[q];
        uz += cz[q] * f[q];
    }
    const double inv = 1.0 / rho;
    ux = ux * inv + force;
    uy *= inv;
    uz *= inv;
    const double square = 1.5 * (ux * ux + uy * uy + uz * uz);
    const int i = (z * ny + y) * nx + x;
    out[i] = f[0] - even * (f[0] - rho * (1.0 / 3.0) * (1.0 - square));
#pragma unroll
    for (int q = 1; q < 19; q += 2) {
        const double w = q < 7 ? 1.0 / 18.0 : 1.0 / 36.0;
        const double c = 3.0 * (cx[q] * ux + cy[q] * uy + cz[q] * uz);
        const double plus = 0.5 * (f[q] + f[q + 1]), minus = 0.5 * (f[q] - f[q + 1]);
        const double eq_plus = w * rho * (1.0 + 0.5 * c * c - square), eq_minus = w * rho * c;
        const double a = even * (plus - eq_plus), b = odd * (minus - eq_minus);
        out[static_cast<size_t>(q) * n + i] = f[q] - a - b;
        out[static_cast<size_t>(q + 1) * n + i] = f[q + 1] - a + b;
    }
}
