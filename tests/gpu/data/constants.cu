// One use of a kernel parameter in each kind of instruction that could name it. Built with
// nvcc 13.0 -arch=sm_90 -cubin.
extern "C" __global__ void constants(const int *in, int *out, int a, int b, unsigned c, int s,
                                     float f, float g, double d, long long q, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int x = in[i];
    const float y = __int_as_float((x & 0x7fffff) | 0x3f800000);
    const double z = y;
    int *mine = out + 16 * i;
    mine[0] = x + a;                              // IADD3
    mine[1] = a - x;                              // IADD3, negated
    mine[2] = x * b + i;                          // IMAD
    mine[3] = (x & c) ^ i;                        // LOP3
    mine[4] = x < a ? i : b;                      // ISETP, SEL
    mine[5] = (int)((unsigned)x >> s);            // SHF
    mine[6] = __float_as_int(fmaf(y, f, y));      // FFMA
    mine[7] = __float_as_int(fmaf(y, -g, y));     // FFMA, negated
    const double w = fma(z, d, z);                // DFMA
    mine[8] = __double2loint(w);
    mine[9] = __double2hiint(w);
    const long long v = (long long)x * b + q;     // IMAD.WIDE
    mine[10] = (int)v;
    mine[11] = (int)(v >> 32);
    mine[12] = b + (x << 3);                      // LEA
    mine[13] = (int)__umulhi((unsigned)x, c);     // IMAD.HI
    mine[14] = max(x, a) + (x == b);              // VIMNMX, ISETP
    mine[15] = (x | c) + (x << (s & 7));
}
