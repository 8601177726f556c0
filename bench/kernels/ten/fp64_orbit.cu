// FP64 with division and square root: Kepler orbits by Newton's iteration, then the state vector
// and its invariants. nvcc calls its slow-path functions for the divisions and the roots.
extern "C" __global__ void fp64_orbit(const double *__restrict__ elements, double *__restrict__ state,
                                      int iterations, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    const double a = elements[t];
    const double e = elements[n + t];
    const double mean = elements[2 * n + t];
    const double node = elements[3 * n + t];
    const double tilt = elements[4 * n + t];
    const double mu = elements[5 * n + t];

    double x = mean;
#pragma unroll 1
    for (int i = 0; i < iterations; ++i) {
        // sin and cos by a short series on a folded argument: enough for |x| < 2
        const double x2 = x * x;
        const double s = x * (1 + x2 * (-1.0 / 6 + x2 * (1.0 / 120 + x2 * (-1.0 / 5040 + x2 / 362880))));
        const double c = 1 + x2 * (-0.5 + x2 * (1.0 / 24 + x2 * (-1.0 / 720 + x2 / 40320)));
        x -= (x - e * s - mean) / (1 - e * c);
    }
    const double x2 = x * x;
    const double s = x * (1 + x2 * (-1.0 / 6 + x2 * (1.0 / 120 + x2 * (-1.0 / 5040 + x2 / 362880))));
    const double c = 1 + x2 * (-0.5 + x2 * (1.0 / 24 + x2 * (-1.0 / 720 + x2 / 40320)));
    const double root = sqrt(1 - e * e);
    const double radius = a * (1 - e * c);
    const double rate = sqrt(mu * a) / radius;
    const double px = a * (c - e), py = a * root * s;
    const double vx = -rate * s, vy = rate * root * c;
    const double cn = 1 / sqrt(1 + node * node), sn = node * cn;
    const double ct = 1 / sqrt(1 + tilt * tilt), st = tilt * ct;
    const double rx = cn * px - sn * ct * py, ry = sn * px + cn * ct * py, rz = st * py;
    const double ux = cn * vx - sn * ct * vy, uy = sn * vx + cn * ct * vy, uz = st * vy;
    const double energy = 0.5 * (ux * ux + uy * uy + uz * uz) - mu / sqrt(rx * rx + ry * ry + rz * rz);
    const double hx = ry * uz - rz * uy, hy = rz * ux - rx * uz, hz = rx * uy - ry * ux;
    const double ex = (uy * hz - uz * hy) / mu - rx / radius;
    const double ey = (uz * hx - ux * hz) / mu - ry / radius;
    const double ez = (ux * hy - uy * hx) / mu - rz / radius;
    state[t] = rx;
    state[n + t] = ry;
    state[2 * n + t] = rz;
    state[3 * n + t] = ux;
    state[4 * n + t] = uy;
    state[5 * n + t] = uz;
    state[6 * n + t] = energy;
    state[7 * n + t] = sqrt(hx * hx + hy * hy + hz * hz);
    state[8 * n + t] = sqrt(ex * ex + ey * ey + ez * ez);
}
