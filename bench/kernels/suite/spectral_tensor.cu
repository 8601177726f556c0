// Matrix-free linear elasticity on hexahedra of order 7 (8 nodes a direction), in double: gradient
// by sum factorisation, stress at the nodes, transposed gradient. 64 threads an element hold a
// column of nodes each, walk through its layers and share one layer at a time; four elements a block.
// Dynamic shared memory is sized by the order: the derivative matrix, and per element a layer of
// the field and two of the flux, rows padded by one.
// Launch bounds: two blocks of 256 threads, the least that keeps loads of the ten geometric factors
// of a node in flight while the other block waits at a barrier.
constexpr int kNodes = 8, kRow = kNodes + 1, kLayer = kNodes * kRow, kElements = 4;
constexpr int kColumn = kNodes * kNodes, kVolume = kColumn * kNodes, kThreads = kColumn * kElements;

extern __shared__ double layers[];

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    spectral_tensor(const double *__restrict__ field, const double *__restrict__ factors, const double *__restrict__ derive,
                    double *__restrict__ out, double lambda, double mu, int elements)
{
    const int lane = threadIdx.x % kColumn, part = threadIdx.x / kColumn, i = lane % kNodes, j = lane / kNodes;
    const int element = blockIdx.x * kElements + part;
    const bool real = element < elements;
    double *d = layers, *u = layers + kLayer + part * 9 * kLayer, *fr = u + 3 * kLayer, *fs = fr + 3 * kLayer;
    if (part == 0) d[j * kRow + i] = derive[j * kNodes + i];
    const size_t node = static_cast<size_t>(real ? element : 0) * kVolume + lane, all = static_cast<size_t>(elements) * kVolume;
    double q[3][kNodes], r[3][kNodes];
#pragma unroll
    for (int c = 0; c < 3; ++c)
#pragma unroll
        for (int k = 0; k < kNodes; ++k) {
            q[c][k] = field[c * all + node + k * kColumn];
            r[c][k] = 0;
        }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kNodes; ++k) {
        double g[9];
#pragma unroll
        for (int m = 0; m < 9; ++m) g[m] = factors[m * all + node + k * kColumn];
        const double weight = factors[9 * all + node + k * kColumn];
        double qt[3] = {}, qr[3] = {}, qs[3] = {};
#pragma unroll
        for (int c = 0; c < 3; ++c) {
            u[c * kLayer + j * kRow + i] = q[c][k];
#pragma unroll
            for (int m = 0; m < kNodes; ++m) qt[c] += d[k * kRow + m] * q[c][m];
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < 3; ++c)
#pragma unroll
            for (int m = 0; m < kNodes; ++m) {
                qr[c] += d[i * kRow + m] * u[c * kLayer + j * kRow + m];
                qs[c] += d[j * kRow + m] * u[c * kLayer + m * kRow + i];
            }
        double gradient[3][3];
#pragma unroll
        for (int c = 0; c < 3; ++c)
#pragma unroll
            for (int m = 0; m < 3; ++m) gradient[c][m] = qr[c] * g[m] + qs[c] * g[3 + m] + qt[c] * g[6 + m];
        const double spread = lambda * (gradient[0][0] + gradient[1][1] + gradient[2][2]);
#pragma unroll
        for (int c = 0; c < 3; ++c) {
            double stress[3], ft = 0, flux_r = 0, flux_s = 0;
#pragma unroll
            for (int m = 0; m < 3; ++m) {
                stress[m] = weight * (mu * (gradient[c][m] + gradient[m][c]) + (c == m ? spread : 0.0));
                flux_r += stress[m] * g[m];
                flux_s += stress[m] * g[3 + m];
                ft += stress[m] * g[6 + m];
            }
            fr[c * kLayer + j * kRow + i] = flux_r;
            fs[c * kLayer + j * kRow + i] = flux_s;
#pragma unroll
            for (int m = 0; m < kNodes; ++m) r[c][m] += d[k * kRow + m] * ft;
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < 3; ++c)
#pragma unroll
            for (int m = 0; m < kNodes; ++m)
                r[c][k] += d[m * kRow + i] * fr[c * kLayer + j * kRow + m] + d[m * kRow + j] * fs[c * kLayer + m * kRow + i];
    }
    if (!real) return;
#pragma unroll
    for (int c = 0; c < 3; ++c)
#pragma unroll
        for (int k = 0; k < kNodes; ++k) out[c * all + node + k * kColumn] = r[c][k];
}
