// Path tracing through a four-wide hierarchy of bounding boxes, as one kernel: closest hit, a shadow
// ray to the sun, a diffuse bounce. Children are visited nearest first; the rest wait on a stack in
// a local array (indexed by depth, so it stays in local memory), with their distances.
// Launch bounds: rays wait for nodes and diverge, so the kernel lives from warps: ten blocks of 128
// threads (48 registers a thread), as path tracers of one kernel ask for.
constexpr int kThreads = 128, kStack = 32, kLeaf = 2;

struct Node { float4 low_x, high_x, low_y, high_y, low_z, high_z; int4 child; };
struct Hit { float distance; int triangle; };

__device__ __forceinline__ float3 cross(float3 a, float3 b)
{
    return make_float3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
__device__ __forceinline__ float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__device__ __forceinline__ float3 along(float3 o, float3 d, float t) { return make_float3(o.x + t * d.x, o.y + t * d.y, o.z + t * d.z); }
__device__ __forceinline__ float3 unit(float3 a)
{
    const float s = rsqrtf(dot(a, a));
    return make_float3(a.x * s, a.y * s, a.z * s);
}
__device__ __forceinline__ unsigned scramble(unsigned x)
{
    x = x * 747796405u + 2891336453u;
    x = ((x >> ((x >> 28) + 4)) ^ x) * 277803737u;
    return (x >> 22) ^ x;
}
__device__ __forceinline__ float uniform(unsigned &state)
{
    state = scramble(state);
    return static_cast<float>(state >> 8) * (1.0f / 16777216.0f);
}
__device__ __forceinline__ void order(float &a, int &x, float &b, int &y)
{
    const bool swap = a < b;
    const float c = swap ? b : a, d = swap ? a : b;
    const int z = swap ? y : x, w = swap ? x : y;
    a = c;
    b = d;
    x = z;
    y = w;
}

// closest hit nearer than `limit`, or with `any` the first one found; triangle -1: none
__device__ __forceinline__ Hit trace(const Node *__restrict__ nodes, const float4 *__restrict__ triangles, float3 o, float3 d, float limit, bool any)
{
    int waiting[kStack];
    float entry[kStack];
    int top = 0, node = 0;
    Hit hit = {limit, -1};
    const float3 inverse = make_float3(1.0f / d.x, 1.0f / d.y, 1.0f / d.z);
    for (;;) {
        if (node >= 0) {
            const Node n = nodes[node];
            float near[4];
            int child[4] = {n.child.x, n.child.y, n.child.z, n.child.w};
            const float lx[4] = {n.low_x.x, n.low_x.y, n.low_x.z, n.low_x.w}, hx[4] = {n.high_x.x, n.high_x.y, n.high_x.z, n.high_x.w};
            const float ly[4] = {n.low_y.x, n.low_y.y, n.low_y.z, n.low_y.w}, hy[4] = {n.high_y.x, n.high_y.y, n.high_y.z, n.high_y.w};
            const float lz[4] = {n.low_z.x, n.low_z.y, n.low_z.z, n.low_z.w}, hz[4] = {n.high_z.x, n.high_z.y, n.high_z.z, n.high_z.w};
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float ax = (lx[k] - o.x) * inverse.x, bx = (hx[k] - o.x) * inverse.x;
                const float ay = (ly[k] - o.y) * inverse.y, by = (hy[k] - o.y) * inverse.y;
                const float az = (lz[k] - o.z) * inverse.z, bz = (hz[k] - o.z) * inverse.z;
                const float in = fmaxf(fmaxf(fminf(ax, bx), fminf(ay, by)), fmaxf(fminf(az, bz), 0.0f));
                const float leave = fminf(fminf(fmaxf(ax, bx), fmaxf(ay, by)), fminf(fmaxf(az, bz), hit.distance));
                near[k] = in <= leave ? in : 3.0e38f;
            }
            order(near[0], child[0], near[1], child[1]);
            order(near[2], child[2], near[3], child[3]);
            order(near[0], child[0], near[2], child[2]);
            order(near[1], child[1], near[3], child[3]);
            order(near[1], child[1], near[2], child[2]);
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if (near[k] < 3.0e38f) {
                    waiting[top] = child[k];
                    entry[top++] = near[k];
                }
        } else {
            for (int k = 0; k < kLeaf; ++k) {
                const int triangle = ~node * kLeaf + k;
                const float4 a = triangles[3 * triangle], b = triangles[3 * triangle + 1], c = triangles[3 * triangle + 2];
                const float3 e = make_float3(b.x, b.y, b.z), f = make_float3(c.x, c.y, c.z), p = cross(d, f);
                const float scale = 1.0f / dot(e, p);
                const float3 s = make_float3(o.x - a.x, o.y - a.y, o.z - a.z), q = cross(s, e);
                const float u = dot(s, p) * scale, v = dot(d, q) * scale, t = dot(f, q) * scale;
                if (u >= 0.0f && v >= 0.0f && u + v <= 1.0f && t > 1.0e-4f && t < hit.distance) hit = {t, triangle};
            }
            if (any && hit.triangle >= 0) return hit;
        }
        do {
            if (top == 0) return hit;
            --top;
        } while (entry[top] >= hit.distance);
        node = waiting[top];
    }
}

// rays: origin and direction, six planes of n floats; seen: a mix of the triangles on the path
extern "C" __global__ void __launch_bounds__(kThreads, 10)
    ray_bvh(const Node *__restrict__ nodes, const float4 *__restrict__ triangles, const float *__restrict__ rays,
            float *__restrict__ light, unsigned *__restrict__ seen, float3 sun, int bounces, int n)
{
    const int t = blockIdx.x * kThreads + threadIdx.x;
    if (t >= n) return;
    float3 o = make_float3(rays[t], rays[n + t], rays[2 * n + t]), d = make_float3(rays[3 * n + t], rays[4 * n + t], rays[5 * n + t]);
    float3 weight = make_float3(1, 1, 1), sum = make_float3(0, 0, 0);
    unsigned state = scramble(t), path = 0;
    for (int bounce = 0; bounce < bounces; ++bounce) {
        const Hit hit = trace(nodes, triangles, o, d, 1.0e30f, false);
        if (hit.triangle < 0) {
            const float sky = 0.5f + 0.5f * d.y;
            sum = make_float3(sum.x + weight.x * sky * 0.5f, sum.y + weight.y * sky * 0.7f, sum.z + weight.z * sky);
            break;
        }
        path = path * 31 + hit.triangle + 1;
        const float4 b = triangles[3 * hit.triangle + 1], c = triangles[3 * hit.triangle + 2];
        float3 normal = unit(cross(make_float3(b.x, b.y, b.z), make_float3(c.x, c.y, c.z)));
        if (dot(normal, d) > 0) normal = make_float3(-normal.x, -normal.y, -normal.z);
        const unsigned paint = scramble(hit.triangle);
        weight.x *= 0.3f + (paint & 255) * (0.6f / 255.0f);
        weight.y *= 0.3f + (paint >> 8 & 255) * (0.6f / 255.0f);
        weight.z *= 0.3f + (paint >> 16 & 255) * (0.6f / 255.0f);
        o = along(along(o, d, hit.distance), normal, 1.0e-4f);
        const float facing = dot(normal, sun);
        if (facing > 0 && trace(nodes, triangles, o, sun, 1.0e30f, true).triangle < 0)
            sum = make_float3(sum.x + weight.x * facing, sum.y + weight.y * facing, sum.z + weight.z * facing);
        // cosine-weighted: the normal plus a point of the unit sphere
        const float z = 2.0f * uniform(state) - 1.0f, angle = 2.0f * uniform(state), ring = sqrtf(fmaxf(1.0f - z * z, 0.0f));
        float sine, cosine;
        sincospif(angle, &sine, &cosine);
        d = unit(make_float3(normal.x * 1.001f + ring * cosine, normal.y * 1.001f + ring * sine, normal.z * 1.001f + z));
    }
    light[t] = sum.x;
    light[n + t] = sum.y;
    light[2 * n + t] = sum.z;
    seen[t] = path;
}
