// A cardiac ionic model in double: 24 gates with voltage-dependent rates advanced by the
// Rush-Larsen exponential step, 12 currents, four concentrations. Made-up constants of
// realistic size.
extern "C" __global__ void cardiac_ionic(const double *__restrict__ state, const double *__restrict__ conductance,
                                         double *__restrict__ out, double step, double stimulus, int stride)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= stride) return;
    const double v = state[24 * stride + t];
    const double ion0 = state[25 * stride + t], ion1 = state[26 * stride + t], ion2 = state[27 * stride + t],
                 ion3 = state[28 * stride + t];
    const double a0 = 0.1431 * (1.0 + exp(-(v + 29.05) / 16.41)), b0 = 0.0548 / (exp((v + 42.15) / 16.05) + 0.3);
    const double a1 = 0.042 * (1.0 + exp(-(v + 50.45) / 6.6)), b1 = 0.2281 / (exp((v + 14.19) / 10.0) + 0.3);
    const double a2 = 0.1813 * (1.0 + exp(-(v + 69.61) / 7.98)), b2 = 0.1272 / (exp((v + 47.65) / 28.85) + 0.3);
    const double a3 = 0.2393 * (1.0 + exp(-(v + 43.8) / 21.62)), b3 = 0.0424 / (exp((v + 61.51) / 14.37) + 0.3);
    const double a4 = 0.0748 * (1.0 + exp(-(v + 27.07) / 10.94)), b4 = 0.4117 / (exp((v + 20.84) / 20.8) + 0.3);
    const double a5 = 0.2628 * (1.0 + exp(-(v + 42.34) / 14.76)), b5 = 0.0501 / (exp((v + 13.58) / 12.53) + 0.3);
    const double a6 = 0.2786 * (1.0 + exp(-(v + 45.66) / 11.03)), b6 = 0.3011 / (exp((v + 37.19) / 14.59) + 0.3);
    const double a7 = 0.3219 * (1.0 + exp(-(v + 61.94) / 9.91)), b7 = 0.2957 / (exp((v + 41.51) / 27.25) + 0.3);
    const double a8 = 0.2972 * (1.0 + exp(-(v + 37.28) / 21.68)), b8 = 0.0767 / (exp((v + 35.09) / 24.66) + 0.3);
    const double a9 = 0.0778 * (1.0 + exp(-(v + 49.34) / 6.63)), b9 = 0.3407 / (exp((v + 55.87) / 20.61) + 0.3);
    const double a10 = 0.3527 * (1.0 + exp(-(v + 38.82) / 17.12)), b10 = 0.3053 / (exp((v + 44.79) / 18.04) + 0.3);
    const double a11 = 0.3392 * (1.0 + exp(-(v + 76.68) / 13.59)), b11 = 0.3388 / (exp((v + 13.64) / 23.43) + 0.3);
    const double a12 = 0.2659 * (1.0 + exp(-(v + 79.59) / 19.15)), b12 = 0.1566 / (exp((v + 33.15) / 22.71) + 0.3);
    const double a13 = 0.0286 * (1.0 + exp(-(v + 47.7) / 8.69)), b13 = 0.0762 / (exp((v + 13.54) / 24.9) + 0.3);
    const double a14 = 0.0691 * (1.0 + exp(-(v + 34.86) / 12.26)), b14 = 0.4383 / (exp((v + 14.83) / 17.88) + 0.3);
    const double a15 = 0.2288 * (1.0 + exp(-(v + 73.0) / 19.11)), b15 = 0.4347 / (exp((v + 26.71) / 17.14) + 0.3);
    const double a16 = 0.1563 * (1.0 + exp(-(v + 73.05) / 21.32)), b16 = 0.0924 / (exp((v + 20.57) / 13.1) + 0.3);
    const double a17 = 0.1087 * (1.0 + exp(-(v + 49.1) / 15.43)), b17 = 0.1461 / (exp((v + 10.25) / 17.22) + 0.3);
    const double a18 = 0.1603 * (1.0 + exp(-(v + 53.98) / 21.25)), b18 = 0.3514 / (exp((v + 40.93) / 21.59) + 0.3);
    const double a19 = 0.277 * (1.0 + exp(-(v + 23.24) / 20.39)), b19 = 0.3944 / (exp((v + 62.47) / 25.55) + 0.3);
    const double a20 = 0.1691 * (1.0 + exp(-(v + 43.94) / 7.66)), b20 = 0.3245 / (exp((v + 13.73) / 9.48) + 0.3);
    const double a21 = 0.0993 * (1.0 + exp(-(v + 29.74) / 11.44)), b21 = 0.0452 / (exp((v + 10.01) / 11.33) + 0.3);
    const double a22 = 0.0586 * (1.0 + exp(-(v + 41.82) / 6.41)), b22 = 0.4397 / (exp((v + 46.84) / 11.27) + 0.3);
    const double a23 = 0.1159 * (1.0 + exp(-(v + 40.84) / 11.83)), b23 = 0.079 / (exp((v + 60.94) / 29.85) + 0.3);
    const double s0 = a0 / (a0 + b0), g0 = s0 + (state[0 * stride + t] - s0) * exp(-step * (a0 + b0));
    const double s1 = a1 / (a1 + b1), g1 = s1 + (state[1 * stride + t] - s1) * exp(-step * (a1 + b1));
    const double s2 = a2 / (a2 + b2), g2 = s2 + (state[2 * stride + t] - s2) * exp(-step * (a2 + b2));
    const double s3 = a3 / (a3 + b3), g3 = s3 + (state[3 * stride + t] - s3) * exp(-step * (a3 + b3));
    const double s4 = a4 / (a4 + b4), g4 = s4 + (state[4 * stride + t] - s4) * exp(-step * (a4 + b4));
    const double s5 = a5 / (a5 + b5), g5 = s5 + (state[5 * stride + t] - s5) * exp(-step * (a5 + b5));
    const double s6 = a6 / (a6 + b6), g6 = s6 + (state[6 * stride + t] - s6) * exp(-step * (a6 + b6));
    const double s7 = a7 / (a7 + b7), g7 = s7 + (state[7 * stride + t] - s7) * exp(-step * (a7 + b7));
    const double s8 = a8 / (a8 + b8), g8 = s8 + (state[8 * stride + t] - s8) * exp(-step * (a8 + b8));
    const double s9 = a9 / (a9 + b9), g9 = s9 + (state[9 * stride + t] - s9) * exp(-step * (a9 + b9));
    const double s10 = a10 / (a10 + b10), g10 = s10 + (state[10 * stride + t] - s10) * exp(-step * (a10 + b10));
    const double s11 = a11 / (a11 + b11), g11 = s11 + (state[11 * stride + t] - s11) * exp(-step * (a11 + b11));
    const double s12 = a12 / (a12 + b12), g12 = s12 + (state[12 * stride + t] - s12) * exp(-step * (a12 + b12));
    const double s13 = a13 / (a13 + b13), g13 = s13 + (state[13 * stride + t] - s13) * exp(-step * (a13 + b13));
    const double s14 = a14 / (a14 + b14), g14 = s14 + (state[14 * stride + t] - s14) * exp(-step * (a14 + b14));
    const double s15 = a15 / (a15 + b15), g15 = s15 + (state[15 * stride + t] - s15) * exp(-step * (a15 + b15));
    const double s16 = a16 / (a16 + b16), g16 = s16 + (state[16 * stride + t] - s16) * exp(-step * (a16 + b16));
    const double s17 = a17 / (a17 + b17), g17 = s17 + (state[17 * stride + t] - s17) * exp(-step * (a17 + b17));
    const double s18 = a18 / (a18 + b18), g18 = s18 + (state[18 * stride + t] - s18) * exp(-step * (a18 + b18));
    const double s19 = a19 / (a19 + b19), g19 = s19 + (state[19 * stride + t] - s19) * exp(-step * (a19 + b19));
    const double s20 = a20 / (a20 + b20), g20 = s20 + (state[20 * stride + t] - s20) * exp(-step * (a20 + b20));
    const double s21 = a21 / (a21 + b21), g21 = s21 + (state[21 * stride + t] - s21) * exp(-step * (a21 + b21));
    const double s22 = a22 / (a22 + b22), g22 = s22 + (state[22 * stride + t] - s22) * exp(-step * (a22 + b22));
    const double s23 = a23 / (a23 + b23), g23 = s23 + (state[23 * stride + t] - s23) * exp(-step * (a23 + b23));
    const double i0 = conductance[0] * g0 * g0 * g1 * (v - (-20.1 + 13.0 * log(ion0 / (ion1 + 0.1)))),
                 i1 = conductance[1] * g2 * g2 * g3 * (v - (-17.4 + 13.0 * log(ion2 / (ion3 + 0.1)))),
                 i2 = conductance[2] * g4 * g4 * g5 * (v - (-77.1 + 13.0 * log(ion0 / (ion1 + 0.1)))),
                 i3 = conductance[3] * g6 * g6 * g7 * (v - (-74.7 + 13.0 * log(ion2 / (ion3 + 0.1)))),
                 i4 = conductance[4] * g8 * g8 * g9 * (v - (-38.6 + 13.0 * log(ion0 / (ion1 + 0.1)))),
                 i5 = conductance[5] * g10 * g10 * g11 * (v - (-50.3 + 13.0 * log(ion2 / (ion3 + 0.1)))),
                 i6 = conductance[6] * g12 * g12 * g13 * (v - (34.3 + 13.0 * log(ion0 / (ion1 + 0.1)))),
                 i7 = conductance[7] * g14 * g14 * g15 * (v - (-65.8 + 13.0 * log(ion2 / (ion3 + 0.1)))),
                 i8 = conductance[8] * g16 * g16 * g17 * (v - (-86.5 + 13.0 * log(ion0 / (ion1 + 0.1)))),
                 i9 = conductance[9] * g18 * g18 * g19 * (v - (52.6 + 13.0 * log(ion2 / (ion3 + 0.1)))),
                 i10 = conductance[10] * g20 * g20 * g21 * (v - (-10.8 + 13.0 * log(ion0 / (ion1 + 0.1)))),
                 i11 = conductance[11] * g22 * g22 * g23 * (v - (-68.0 + 13.0 * log(ion2 / (ion3 + 0.1))));
    const double total = i0 + i1 + i2 + i3 + i4 + i5 + i6 + i7 + i8 + i9 + i10 + i11;
    out[0 * stride + t] = g0;
    out[1 * stride + t] = g1;
    out[2 * stride + t] = g2;
    out[3 * stride + t] = g3;
    out[4 * stride + t] = g4;
    out[5 * stride + t] = g5;
    out[6 * stride + t] = g6;
    out[7 * stride + t] = g7;
    out[8 * stride + t] = g8;
    out[9 * stride + t] = g9;
    out[10 * stride + t] = g10;
    out[11 * stride + t] = g11;
    out[12 * stride + t] = g12;
    out[13 * stride + t] = g13;
    out[14 * stride + t] = g14;
    out[15 * stride + t] = g15;
    out[16 * stride + t] = g16;
    out[17 * stride + t] = g17;
    out[18 * stride + t] = g18;
    out[19 * stride + t] = g19;
    out[20 * stride + t] = g20;
    out[21 * stride + t] = g21;
    out[22 * stride + t] = g22;
    out[23 * stride + t] = g23;
    out[24 * stride + t] = v - step * (total - stimulus);
    out[25 * stride + t] = fmax(ion0 - step * 1e-4 * (i0 + i4 + i8) * (1.0 + 0.1 * tanh(total * 1e-3)), 1e-3);
    out[26 * stride + t] = fmax(ion1 - step * 1e-4 * (i1 + i5 + i9) * (1.0 + 0.1 * tanh(total * 1e-3)), 1e-3);
    out[27 * stride + t] = fmax(ion2 - step * 1e-4 * (i2 + i6 + i10) * (1.0 + 0.1 * tanh(total * 1e-3)), 1e-3);
    out[28 * stride + t] = fmax(ion3 - step * 1e-4 * (i3 + i7 + i11) * (1.0 + 0.1 * tanh(total * 1e-3)), 1e-3);
}
