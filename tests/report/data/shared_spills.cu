// examples/neighbour with ptxas asked to spill into shared memory, at 32 registers.

struct Box {
    float lx, ly, lz;           // edge lengths
    float inv_lx, inv_ly, inv_lz;
};

struct Tally {
    float energy;
    float xx, yy, zz, xy, xz, yz;  // virial
};

__device__ __forceinline__ float wrapped(float d, float length, float inverse) {
    return d - length * rintf(d * inverse);
}

extern "C" __global__ void __launch_bounds__(256,8) pair_forces(
    const float4 *__restrict__ position,   // x, y, z, type as bits of w
    const float *__restrict__ charge,
    const int *__restrict__ neighbours,    // count[i] entries per particle, stride apart
    const int *__restrict__ count,
    const float4 *__restrict__ parameters, // per type pair: lj1, lj2, lj3, lj4
    float4 *__restrict__ force,
    Tally *__restrict__ tally,
    Box box, int types, int stride, float cutoff2, float coulomb, float kappa, int n)
{
    asm volatile (".pragma \"enable_smem_spilling\";");
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;

    const float4 me = position[i];
    const int my_type = __float_as_int(me.w) * types;
    const float my_charge = coulomb * charge[i];
    const int total = count[i];

    float fx = 0.f, fy = 0.f, fz = 0.f;
    Tally sum = {};

    for (int k = 0; k < total; ++k) {
        const int j = neighbours[k * stride + i];
        const float4 other = position[j];
        const float dx = wrapped(me.x - other.x, box.lx, box.inv_lx);
        const float dy = wrapped(me.y - other.y, box.ly, box.inv_ly);
        const float dz = wrapped(me.z - other.z, box.lz, box.inv_lz);
        const float r2 = dx * dx + dy * dy + dz * dz;
        if (r2 >= cutoff2) continue;

        const float4 p = parameters[my_type + __float_as_int(other.w)];
        const float inv_r = rsqrtf(r2);
        const float inv_r2 = inv_r * inv_r;
        const float inv_r6 = inv_r2 * inv_r2 * inv_r2;
        const float r = r2 * inv_r;
        const float screened = my_charge * charge[j] * inv_r * __expf(-kappa * r);
        const float magnitude =
            (inv_r6 * (p.x * inv_r6 - p.y) + screened * (1.f + kappa * r)) * inv_r2;

        fx += dx * magnitude;
        fy += dy * magnitude;
        fz += dz * magnitude;
        sum.energy += inv_r6 * (p.z * inv_r6 - p.w) + screened;
        sum.xx += dx * dx * magnitude;
        sum.yy += dy * dy * magnitude;
        sum.zz += dz * dz * magnitude;
        sum.xy += dx * dy * magnitude;
        sum.xz += dx * dz * magnitude;
        sum.yz += dy * dz * magnitude;
    }

    force[i] = make_float4(fx, fy, fz, 0.f);
    tally[i] = sum;
}
