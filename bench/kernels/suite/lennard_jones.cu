// Lennard-Jones forces, energy and virial in double precision over neighbour lists of a fixed
// length, with a cut-off and two species.
extern "C" __global__ void lennard_jones(const double *__restrict__ position, const int *__restrict__ neighbours,
                                         const int *__restrict__ species, const double *__restrict__ table,
                                         double *__restrict__ force, double *__restrict__ energy, double cutoff2,
                                         int length, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double x = position[i], y = position[n + i], z = position[2 * n + i];
    const int kind = species[i];
    double fx = 0, fy = 0, fz = 0, e = 0, wxx = 0, wyy = 0, wzz = 0, wxy = 0;
#pragma unroll 2
    for (int k = 0; k < length; ++k) {
        const int j = neighbours[static_cast<size_t>(k) * n + i];
        const double dx = x - position[j], dy = y - position[n + j], dz = z - position[2 * n + j];
        const double r2 = dx * dx + dy * dy + dz * dz;
        if (r2 < cutoff2) {
            const double *c = table + 4 * (kind + species[j]);
            const double inv2 = 1.0 / r2, inv6 = inv2 * inv2 * inv2;
            const double f = inv2 * inv6 * (c[0] * inv6 - c[1]);
            e += inv6 * (c[2] * inv6 - c[3]);
            fx += f * dx;
            fy += f * dy;
            fz += f * dz;
            wxx += f * dx * dx;
            wyy += f * dy * dy;
            wzz += f * dz * dz;
            wxy += f * dx * dy;
        }
    }
    force[i] = fx;
    force[n + i] = fy;
    force[2 * n + i] = fz;
    energy[i] = e;
    energy[n + i] = wxx + wyy + wzz + wxy;
}
