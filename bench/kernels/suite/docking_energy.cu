// Protein-ligand docking: interaction energies of four poses per thread (rotation and shift of the
// ligand) with all protein atoms: steric, electrostatic and desolvation terms. Block 64.
constexpr int kPoses = 4;

extern "C" __global__ void docking_energy(const float4 *__restrict__ protein, const int *__restrict__ protein_type, int np,
                                          const float4 *__restrict__ ligand, const int *__restrict__ ligand_type, int nl,
                                          const float4 *__restrict__ field, const float *__restrict__ poses,
                                          float *__restrict__ energies, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    const int first = blockIdx.x * blockDim.x * kPoses + threadIdx.x;
    float m[kPoses][3][4], energy[kPoses];
    (void)t;
#pragma unroll
    for (int i = 0; i < kPoses; ++i) {
        const int p = min(first + i * static_cast<int>(blockDim.x), n - 1);
        float sx, cx, sy, cy, sz, cz;
        __sincosf(poses[p], &sx, &cx);
        __sincosf(poses[n + p], &sy, &cy);
        __sincosf(poses[2 * n + p], &sz, &cz);
        m[i][0][0] = cy * cz; m[i][0][1] = sx * sy * cz - cx * sz; m[i][0][2] = cx * sy * cz + sx * sz;
        m[i][1][0] = cy * sz; m[i][1][1] = sx * sy * sz + cx * cz; m[i][1][2] = cx * sy * sz - sx * cz;
        m[i][2][0] = -sy; m[i][2][1] = sx * cy; m[i][2][2] = cx * cy;
        for (int d = 0; d < 3; ++d) m[i][d][3] = poses[(3 + d) * n + p];
        energy[i] = 0;
    }
#pragma unroll 1
    for (int l = 0; l < nl; ++l) {
        const float4 a = ligand[l];
        const float4 fl = field[ligand_type[l]];
        float x[kPoses], y[kPoses], z[kPoses];
#pragma unroll
        for (int i = 0; i < kPoses; ++i) {
            x[i] = m[i][0][0] * a.x + m[i][0][1] * a.y + m[i][0][2] * a.z + m[i][0][3];
            y[i] = m[i][1][0] * a.x + m[i][1][1] * a.y + m[i][1][2] * a.z + m[i][1][3];
            z[i] = m[i][2][0] * a.x + m[i][2][1] * a.y + m[i][2][2] * a.z + m[i][2][3];
        }
#pragma unroll 1
        for (int k = 0; k < np; ++k) {
            const float4 q = protein[k];
            const float4 fp = field[protein_type[k]];
            const float reach = fl.x + fp.x, inv_reach = 1.0f / reach;
            const float hard = 2.0f * (fl.y + fp.y), charge = fl.z * fp.z * 45.0f, soak = 0.5f * (fl.w + fp.w);
#pragma unroll
            for (int i = 0; i < kPoses; ++i) {
                const float dx = x[i] - q.x, dy = y[i] - q.y, dz = z[i] - q.z;
                const float d = sqrtf(dx * dx + dy * dy + dz * dz);
                const float gap = d - reach, depth = 1.0f - d * inv_reach;
                energy[i] += gap < 0 ? depth * hard : 0.0f;
                energy[i] += gap < 4.0f ? charge * (1.0f - fmaxf(gap, 0.0f) * 0.25f) : 0.0f;
                energy[i] += gap < 6.0f ? soak * (1.0f - fmaxf(gap, 0.0f) * (1.0f / 6.0f)) : 0.0f;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < kPoses; ++i) {
        const int p = first + i * static_cast<int>(blockDim.x);
        if (p < n) energies[p] = 0.5f * energy[i];
    }
}
