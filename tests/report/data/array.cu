// A local array indexed at run time: local memory, and no spills. (launch bounds 256)
extern "C" __global__ void __launch_bounds__(256) array(float *out, const int *index, int n)
{
    float values[16];
    for (int i = 0; i < 16; i++) values[i] = out[i * n + threadIdx.x];
    float sum = 0;
    for (int k = 0; k < n; k++) {
        int j = index[k] & 15;
        values[j] += sum;
        sum += values[(j * 7 + k) & 15] * values[(j + k) & 15];
    }
    for (int i = 0; i < 16; i++) out[i * n + threadIdx.x] = values[i] + sum;
}
