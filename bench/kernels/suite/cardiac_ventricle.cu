// A human ventricular cell after the equations of O'Hara, Virag, Varro and Rudy (2011, endocardial),
// in double: 41 state variables, 14 currents, calcium handling with CaMK; gates by the Rush-Larsen
// exponential step, the rest by Euler. One cell a thread, a few steps a launch with the state in
// registers, as monodomain solvers split the reaction from the diffusion.
// Block of 256 threads, as such solvers use, and no launch bounds: a step evaluates all rates from
// the old state before it advances any, so the 41 doubles and what the gates need are live at once.
constexpr int kStates = 41;

enum State {
    V, NAI, NASS, KI, KSS, CAI, CASS, CANSR, CAJSR, M, HF, HS, J, HSP, JP, ML, HL, HLP, A, IF, IS, AP, IFP, ISP,
    D, FF, FS, FCAF, FCAS, JCA, NCA, FFP, FCAFP, XRF, XRS, XS1, XS2, XK1, JRELNP, JRELP, CAMKT
};

__device__ __forceinline__ double sigmoid(double v, double middle, double slope) { return 1.0 / (1.0 + exp((middle - v) / slope)); }
__device__ __forceinline__ double boltzmann(double v, double middle, double slope) { return exp((v - middle) / slope); }
__device__ __forceinline__ double square(double x) { return x * x; }
__device__ __forceinline__ double cube(double x) { return x * x * x; }

// Goldman-Hodgkin-Katz driving force of an ion of valence z
__device__ __forceinline__ double flux_force(double z, double scaled_v, double inside, double outside)
{
    const double x = z * scaled_v, e = exp(x);
    return fabs(x) < 1e-7 ? z * 96485.0 * (inside - outside) : z * 96485.0 * x * (inside * e - outside) / (e - 1.0);
}

// Na/Ca exchange current at one site, per unit of conductance
__device__ __forceinline__ double exchanger(double na, double ca, double hna, double hca, double nao, double cao)
{
    const double kna1 = 15.0, kna2 = 5.0, kna3 = 88.12, wna = 6.0e4, wca = 6.0e4, wnaca = 5.0e3, on = 1.5e6, off = 5.0e3;
    const double h1 = 1.0 + na / kna3 * (1.0 + hna), h2 = na * hna / (kna3 * h1), h3 = 1.0 / h1;
    const double h4 = 1.0 + na / kna1 * (1.0 + na / kna2), h5 = na * na / (h4 * kna1 * kna2), h6 = 1.0 / h4;
    const double h7 = 1.0 + nao / kna3 * (1.0 + 1.0 / hna), h8 = nao / (kna3 * hna * h7), h9 = 1.0 / h7;
    const double h10 = 13.5 + nao / kna1 * (1.0 + nao / kna2), h11 = nao * nao / (h10 * kna1 * kna2), h12 = 1.0 / h10;
    const double k1 = h12 * cao * on, k3b = h8 * wnaca, k3 = h9 * wca + k3b, k4b = h2 * wnaca, k4 = h3 * wca / hca + k4b;
    const double k6 = h6 * ca * on, k7 = h5 * h2 * wna, k8 = h8 * h11 * wna;
    const double x1 = off * k4 * (k7 + k6) + off * k7 * (off + k3), x2 = k1 * k7 * (k4 + off) + k4 * k6 * (k1 + k8);
    const double x3 = k1 * k3 * (k7 + k6) + k8 * k6 * (off + k3), x4 = off * k8 * (k4 + off) + k3 * off * (k1 + k8);
    const double all = 1.0 / (x1 + x2 + x3 + x4);
    const double allosteric = 1.0 / (1.0 + square(150.0e-6 / ca));
    const double sodium = 3.0 * (x4 * k7 - x1 * k8) + x3 * k4b - x2 * k3b, calcium = x2 * off - x1 * k1;
    return allosteric * all * (sodium + 2.0 * calcium);
}

extern "C" __global__ void cardiac_ventricle(const double *__restrict__ in, const double *__restrict__ scales, double *__restrict__ out,
                                             double stimulus, double step, int steps, int n)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    double y[kStates];
#pragma unroll
    for (int k = 0; k < kStates; ++k) y[k] = in[static_cast<size_t>(k) * n + t];
    const double nao = 140.0, cao = 1.8, ko = 5.4, thermal = 8314.0 * 310.0 / 96485.0;
    const double radius = 0.0011, length = 0.01, volume = 1000.0 * 3.14 * radius * radius * length;
    const double area = 2.0 * (2.0 * 3.14 * radius * radius + 2.0 * 3.14 * radius * length);
    const double vmyo = 0.68 * volume, vnsr = 0.0552 * volume, vjsr = 0.0048 * volume, vss = 0.02 * volume;
    for (int turn = 0; turn < steps; ++turn) {
        double inf[kStates], tau[kStates];
        const double v = y[V], scaled = v / thermal;
        // CaMK and reversal potentials
        const double bound = 0.05 * (1.0 - y[CAMKT]) / (1.0 + 0.0015 / y[CASS]), active = bound + y[CAMKT];
        const double camk = 1.0 / (1.0 + 0.15 / active), plain = 1.0 - camk;
        const double ena = thermal * log(nao / y[NAI]), ek = thermal * log(ko / y[KI]);
        const double eks = thermal * log((ko + 0.01833 * nao) / (y[KI] + 0.01833 * y[NAI]));
        // fast and late sodium
        inf[M] = sigmoid(v, -39.57, 9.871);
        tau[M] = 1.0 / (6.765 * boltzmann(v, -11.64, 34.77) + 8.552 * boltzmann(v, -77.42, -5.955));
        inf[HF] = inf[HS] = inf[J] = inf[JP] = sigmoid(v, -82.90, -6.086);
        tau[HF] = 1.0 / (1.432e-5 * boltzmann(v, -1.196, -6.285) + 6.149 * boltzmann(v, -0.5096, 20.27));
        tau[HS] = 1.0 / (0.009794 * boltzmann(v, -17.95, -28.05) + 0.3343 * boltzmann(v, -5.730, 56.66));
        tau[J] = 2.038 + 1.0 / (0.02136 * boltzmann(v, -100.6, -8.281) + 0.3052 * boltzmann(v, -0.9941, 38.45));
        inf[HSP] = sigmoid(v, -89.1, -6.086);
        tau[HSP] = 3.0 * tau[HS];
        tau[JP] = 1.46 * tau[J];
        const double h = 0.99 * y[HF] + 0.01 * y[HS], hp = 0.99 * y[HF] + 0.01 * y[HSP];
        const double ina = scales[0] * 75.0 * (v - ena) * cube(y[M]) * (plain * h * y[J] + camk * hp * y[JP]);
        inf[ML] = sigmoid(v, -42.85, 5.264);
        tau[ML] = tau[M];
        inf[HL] = sigmoid(v, -87.61, -7.488);
        tau[HL] = 200.0;
        inf[HLP] = sigmoid(v, -93.81, -7.488);
        tau[HLP] = 600.0;
        const double inal = scales[1] * 0.0075 * (v - ena) * y[ML] * (plain * y[HL] + camk * y[HLP]);
        // transient outward
        inf[A] = sigmoid(v, 14.34, 14.82);
        tau[A] = tau[AP] = 1.0515 / (1.0 / (1.2089 * (1.0 + boltzmann(v, 18.4099, -29.3814))) + 3.5 / (1.0 + boltzmann(v, -100.0, 29.3814)));
        inf[IF] = inf[IS] = inf[IFP] = inf[ISP] = sigmoid(v, -43.94, -5.711);
        tau[IF] = 4.562 + 1.0 / (0.3933 * boltzmann(v, -100.0, -100.0) + 0.08004 * boltzmann(v, -50.0, 16.59));
        tau[IS] = 23.62 + 1.0 / (0.001416 * boltzmann(v, -96.52, -59.05) + 1.780e-8 * boltzmann(v, -114.1, 8.079));
        const double slower = (1.354 + 1.0e-4 / (boltzmann(v, 167.4, 15.89) + boltzmann(v, 12.23, -0.2154)))
                              * (1.0 - 0.5 / (1.0 + boltzmann(v, -70.0, 20.0)));
        tau[IFP] = slower * tau[IF];
        tau[ISP] = slower * tau[IS];
        inf[AP] = sigmoid(v, 24.34, 14.82);
        const double fast = 1.0 / (1.0 + boltzmann(v, 213.6, 151.2));
        const double i = fast * y[IF] + (1.0 - fast) * y[IS], ip = fast * y[IFP] + (1.0 - fast) * y[ISP];
        const double ito = scales[2] * 0.02 * (v - ek) * (plain * y[A] * i + camk * y[AP] * ip);
        // L-type calcium
        inf[D] = sigmoid(v, -3.940, 4.230);
        tau[D] = 0.6 + 1.0 / (boltzmann(v, -6.0, -20.0) + boltzmann(v, -14.0, 1.0 / 0.09));
        inf[FF] = inf[FS] = inf[FCAF] = inf[FCAS] = inf[JCA] = inf[FFP] = inf[FCAFP] = sigmoid(v, -19.58, -3.696);
        tau[FF] = 7.0 + 1.0 / (0.0045 * (boltzmann(v, -20.0, -10.0) + boltzmann(v, -20.0, 10.0)));
        tau[FS] = 1000.0 + 1.0 / (0.000035 * (boltzmann(v, -5.0, -4.0) + boltzmann(v, -5.0, 6.0)));
        tau[FCAF] = 7.0 + 1.0 / (0.04 * (boltzmann(v, 4.0, -7.0) + boltzmann(v, 4.0, 7.0)));
        tau[FCAS] = 100.0 + 1.0 / (0.00012 * (boltzmann(v, 0.0, -3.0) + boltzmann(v, 0.0, 7.0)));
        tau[JCA] = 75.0;
        tau[FFP] = 2.5 * tau[FF];
        tau[FCAFP] = 2.5 * tau[FCAF];
        const double share = 0.3 + 0.6 / (1.0 + boltzmann(v, 10.0, 10.0));
        const double f = 0.6 * y[FF] + 0.4 * y[FS], fp = 0.6 * y[FFP] + 0.4 * y[FS];
        const double fca = share * y[FCAF] + (1.0 - share) * y[FCAS], fcap = share * y[FCAFP] + (1.0 - share) * y[FCAS];
        const double open = y[D] * (f * (1.0 - y[NCA]) + y[JCA] * fca * y[NCA]), openp = y[D] * (fp * (1.0 - y[NCA]) + y[JCA] * fcap * y[NCA]);
        const double ratio = square(square(1.0 + 0.002 / y[CASS]));
        const double dnca = 1000.0 / (1000.0 / y[JCA] + ratio) - y[NCA] * y[JCA];
        const double permeability = scales[3] * 1.0e-4 * (plain * open + 1.1 * camk * openp);
        const double ical = permeability * flux_force(2.0, scaled, y[CASS], 0.341 * cao);
        const double icana = 1.25e-3 * permeability * flux_force(1.0, scaled, 0.75 * y[NASS], 0.75 * nao);
        const double icak = 3.574e-4 * permeability * flux_force(1.0, scaled, 0.75 * y[KSS], 0.75 * ko);
        // delayed and inward rectifiers
        inf[XRF] = inf[XRS] = sigmoid(v, -8.337, 6.789);
        tau[XRF] = 12.98 + 1.0 / (0.3652 * boltzmann(v, 31.66, 3.869) + 4.123e-5 * boltzmann(v, 47.78, -20.38));
        tau[XRS] = 1.865 + 1.0 / (0.06629 * boltzmann(v, 34.70, 7.355) + 1.128e-5 * boltzmann(v, 29.74, -25.94));
        const double quick = 1.0 / (1.0 + boltzmann(v, -54.81, 38.21));
        const double rectify = 1.0 / ((1.0 + boltzmann(v, -55.0, 75.0)) * (1.0 + boltzmann(v, 10.0, 30.0)));
        const double ikr = scales[4] * 0.046 * (quick * y[XRF] + (1.0 - quick) * y[XRS]) * rectify * (v - ek);
        inf[XS1] = inf[XS2] = sigmoid(v, -11.60, 8.932);
        tau[XS1] = 817.3 + 1.0 / (2.326e-4 * boltzmann(v, -48.28, 17.80) + 0.001292 * boltzmann(v, -210.0, -230.0));
        tau[XS2] = 1.0 / (0.01 * boltzmann(v, 50.0, 20.0) + 0.0193 * boltzmann(v, -66.54, -31.0));
        const double iks = scales[5] * 0.0034 * (1.0 + 0.6 / (1.0 + pow(3.8e-5 / y[CAI], 1.4))) * y[XS1] * y[XS2] * (v - eks);
        inf[XK1] = sigmoid(v, -(2.5538 * ko + 144.59), 1.5692 * ko + 3.8115);
        tau[XK1] = 122.2 / (boltzmann(v, -127.2, -20.36) + boltzmann(v, -236.8, 69.33));
        const double ik1 = scales[6] * 0.1908 * sqrt(ko) / (1.0 + boltzmann(v, 2.6 * ko - 105.8, 9.493)) * y[XK1] * (v - ek);
        // exchanger, pump, background
        const double hca = exp(0.167 * scaled), hna = exp(0.5224 * scaled);
        const double naca_i = scales[7] * 0.8 * 0.0008 * exchanger(y[NAI], y[CAI], hna, hca, nao, cao);
        const double naca_ss = scales[7] * 0.2 * 0.0008 * exchanger(y[NASS], y[CASS], hna, hca, nao, cao);
        const double ni = y[NAI] / (9.073 * exp(-0.155 * scaled / 3.0)), no = nao / (27.78 * exp(1.155 * scaled / 3.0));
        const double bi = cube(1.0 + ni) + square(1.0 + y[KI] / 0.5) - 1.0, bo = cube(1.0 + no) + square(1.0 + ko / 0.3582) - 1.0;
        const double atp = 9.8 / 1.698e-7, phosphate = 4.2 / (1.0 + 1.0e-7 / 1.698e-7 + y[NAI] / 224.0 + y[KI] / 292.0);
        const double a1 = 949.5 * cube(ni) / bi, b1 = 182.4 * 0.05, a2 = 687.2, b2 = 39.4 * cube(no) / bo;
        const double a3 = 1899.0 * square(ko / 0.3582) / bo, b3 = 79300.0 * phosphate * 1.0e-7 / (1.0 + atp);
        const double a4 = 639.0 * atp / (1.0 + atp), b4 = 40.0 * square(y[KI] / 0.5) / bi;
        const double x1 = a4 * a1 * a2 + b2 * b4 * b3 + a2 * b4 * b3 + b3 * a1 * a2, x2 = b2 * b1 * b4 + a1 * a2 * a3 + a3 * b1 * b4 + a2 * a3 * b4;
        const double x3 = a2 * a3 * a4 + b3 * b2 * b1 + b2 * b1 * a4 + a3 * a4 * b1, x4 = b4 * b3 * b2 + a3 * a4 * a1 + b2 * a4 * a1 + b3 * b2 * a1;
        const double pumped = 1.0 / (x1 + x2 + x3 + x4);
        const double inak = scales[8] * 30.0 * pumped * (3.0 * (x1 * a3 - x2 * b3) + 2.0 * (x4 * b1 - x3 * a1));
        const double ikb = scales[9] * 0.003 * sigmoid(v, 14.48, 18.34) * (v - ek);
        const double inab = 3.75e-10 * flux_force(1.0, scaled, y[NAI], nao), icab = 2.5e-8 * flux_force(2.0, scaled, y[CAI], 0.341 * cao);
        const double ipca = scales[10] * 0.0005 * y[CAI] / (0.0005 + y[CAI]);
        // calcium release, uptake and transfer
        const double low = square(square(square(1.5 / y[CAJSR])));
        inf[JRELNP] = -2.375 * ical / (1.0 + low);
        inf[JRELP] = 1.25 * inf[JRELNP];
        tau[JRELNP] = fmax(4.75 / (1.0 + 0.0123 / y[CAJSR]), 0.001);
        tau[JRELP] = fmax(5.9375 / (1.0 + 0.0123 / y[CAJSR]), 0.001);
        const double release = scales[11] * (plain * y[JRELNP] + camk * y[JRELP]), leak = 0.0039375 * y[CANSR] / 15.0;
        const double uptake = 0.004375 * y[CAI] * (plain / (y[CAI] + 0.00092) + 2.75 * camk / (y[CAI] + 0.00075)) - leak;
        const double transfer = (y[CANSR] - y[CAJSR]) / 100.0;
        const double move_na = (y[NASS] - y[NAI]) / 2.0, move_k = (y[KSS] - y[KI]) / 2.0, move_ca = (y[CASS] - y[CAI]) / 0.2;
        const double outer = area / (96485.0 * vmyo), inner = area / (96485.0 * vss);
        const double current = ina + inal + ito + ical + icana + icak + ikr + iks + ik1 + naca_i + naca_ss + inak + inab + ikb + ipca + icab;
        const double buffer_i = 1.0 / (1.0 + 0.05 * 0.00238 / square(0.00238 + y[CAI]) + 0.07 * 0.0005 / square(0.0005 + y[CAI]));
        const double buffer_ss = 1.0 / (1.0 + 0.047 * 0.00087 / square(0.00087 + y[CASS]) + 1.124 * 0.0087 / square(0.0087 + y[CASS]));
        const double buffer_jsr = 1.0 / (1.0 + 10.0 * 0.8 / square(0.8 + y[CAJSR]));
        const double dcamk = 0.05 * bound * active - 0.00068 * y[CAMKT];
        const double dnai = -(ina + inal + 3.0 * naca_i + 3.0 * inak + inab) * outer + move_na * vss / vmyo;
        const double dnass = -(icana + 3.0 * naca_ss) * inner - move_na;
        const double dki = -(ito + ikr + iks + ik1 + ikb + stimulus - 2.0 * inak) * outer + move_k * vss / vmyo;
        const double dkss = -icak * inner - move_k;
        const double dcai = buffer_i * (-(ipca + icab - 2.0 * naca_i) * 0.5 * outer - uptake * vnsr / vmyo + move_ca * vss / vmyo);
        const double dcass = buffer_ss * (-(ical - 2.0 * naca_ss) * 0.5 * inner + release * vjsr / vss - move_ca);
        const double dcansr = uptake - transfer * vjsr / vnsr, dcajsr = buffer_jsr * (transfer - release);
        y[V] -= step * (current + stimulus);
        y[NAI] += step * dnai;
        y[NASS] += step * dnass;
        y[KI] += step * dki;
        y[KSS] += step * dkss;
        y[CAI] += step * dcai;
        y[CASS] += step * dcass;
        y[CANSR] += step * dcansr;
        y[CAJSR] += step * dcajsr;
        y[NCA] += step * dnca;
        y[CAMKT] += step * dcamk;
#pragma unroll
        for (int k = M; k < CAMKT; ++k)
            if (k != NCA) y[k] = inf[k] - (inf[k] - y[k]) * exp(-step / tau[k]);
    }
#pragma unroll
    for (int k = 0; k < kStates; ++k) out[static_cast<size_t>(k) * n + t] = y[k];
}
