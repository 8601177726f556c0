"""The ventricular cell in numpy: O'Hara, Virag, Varro, Rudy 2011 (endocardial), many cells at once.

The reference of `cardiac_ventricle`: the same equations written from the paper's tables, gates as
data. Not claimed: physiology; conductances are scaled at random and runs last a few steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_NAMES = (
    "v nai nass ki kss cai cass cansr cajsr m hf hs j hsp jp mL hL hLp a iF iS ap iFp iSp "
    "d ff fs fcaf fcas jca nca ffp fcafp xrf xrs xs1 xs2 xk1 Jrelnp Jrelp CaMKt"
)
STATES: tuple[str, ...] = tuple(str(name) for name in _NAMES.split())

REST = (
    "-87 7 7 145 145 1e-4 1e-4 1.2 1.2 0.0074 0.7 0.7 0.7 0.45 0.7 0.0002 0.5 0.3 0.001 "
    "1 0.6 0.0005 1 0.6 1e-4 1 0.9 1 1 1 0.003 1 1 1e-4 0.5 0.3 0.0002 1 1e-7 1e-7 0.01"
)
"""A cell near its resting state, in the order of `STATES` (mV, mM, shares)."""

STEADY: dict[str, tuple[float, float]] = {
    "m": (-39.57, 9.871),
    "hf hs j jp": (-82.90, -6.086),
    "hsp": (-89.1, -6.086),
    "mL": (-42.85, 5.264),
    "hL": (-87.61, -7.488),
    "hLp": (-93.81, -7.488),
    "a": (14.34, 14.82),
    "ap": (24.34, 14.82),
    "iF iS iFp iSp": (-43.94, -5.711),
    "d": (-3.940, 4.230),
    "ff fs fcaf fcas jca ffp fcafp": (-19.58, -3.696),
    "xrf xrs": (-8.337, 6.789),
    "xs1 xs2": (-11.60, 8.932),
    "xk1": (-(2.5538 * 5.4 + 144.59), 1.5692 * 5.4 + 3.8115),
}
"""Midpoint and slope (mV) of the steady state of gates that open (slope > 0) or close with v."""

RATES: dict[str, tuple[float, float, tuple[tuple[float, float, float], ...]]] = {
    "m": (0, 1, ((6.765, -11.64, 34.77), (8.552, -77.42, -5.955))),
    "hf": (0, 1, ((1.432e-5, -1.196, -6.285), (6.149, -0.5096, 20.27))),
    "hs": (0, 1, ((0.009794, -17.95, -28.05), (0.3343, -5.730, 56.66))),
    "j": (2.038, 1, ((0.02136, -100.6, -8.281), (0.3052, -0.9941, 38.45))),
    "iF": (4.562, 1, ((0.3933, -100, -100), (0.08004, -50, 16.59))),
    "iS": (23.62, 1, ((0.001416, -96.52, -59.05), (1.780e-8, -114.1, 8.079))),
    "d": (0.6, 1, ((1, -6, -20), (1, -14, 1 / 0.09))),
    "ff": (7, 1, ((0.0045, -20, -10), (0.0045, -20, 10))),
    "fs": (1000, 1, ((0.000035, -5, -4), (0.000035, -5, 6))),
    "fcaf": (7, 1, ((0.04, 4, -7), (0.04, 4, 7))),
    "fcas": (100, 1, ((0.00012, 0, -3), (0.00012, 0, 7))),
    "xrf": (12.98, 1, ((0.3652, 31.66, 3.869), (4.123e-5, 47.78, -20.38))),
    "xrs": (1.865, 1, ((0.06629, 34.70, 7.355), (1.128e-5, 29.74, -25.94))),
    "xs1": (817.3, 1, ((2.326e-4, -48.28, 17.80), (0.001292, -210, -230))),
    "xs2": (0, 1, ((0.01, 50, 20), (0.0193, -66.54, -31))),
    "xk1": (0, 122.2, ((1, -127.2, -20.36), (1, -236.8, 69.33))),
}
"""Time constants (ms): offset + factor / sum of a exp((v - b) / c)."""

FARADAY, THERMAL = 96485.0, 8314.0 * 310.0 / 96485.0
NAO, CAO, KO = 140.0, 1.8, 5.4


def _force(z: float, v: Values, inside: Values, outside: float) -> Values:
    x = z * v / THERMAL
    return z * FARADAY * x * (inside * np.exp(x) - outside) / np.expm1(x)


def _exchanger(na: Values, ca: Values, v: Values) -> Values:
    """Na/Ca exchange: the four-state cycle's occupancies, times its net rates."""
    hca, hna = np.exp(0.167 * v / THERMAL), np.exp(0.5224 * v / THERMAL)
    inside3, outside3 = 1 + na / 88.12 * (1 + hna), 1 + NAO / 88.12 * (1 + 1 / hna)
    inside1, outside1 = 1 + na / 15 * (1 + na / 5), 13.5 + NAO / 15 * (1 + NAO / 5)
    h2, h8 = na * hna / (88.12 * inside3), NAO / (88.12 * hna * outside3)
    k1, k2, k5 = CAO * 1.5e6 / outside1, 5e3, 5e3
    k3a, k3b, k4a, k4b = 6e4 / outside3, h8 * 5e3, 6e4 / (inside3 * hca), h2 * 5e3
    k3, k4, k6 = k3a + k3b, k4a + k4b, ca * 1.5e6 / inside1
    k7, k8 = na**2 / (inside1 * 75) * h2 * 6e4, h8 * NAO**2 / (outside1 * 75) * 6e4
    x = [
        k2 * k4 * (k7 + k6) + k5 * k7 * (k2 + k3),
        k1 * k7 * (k4 + k5) + k4 * k6 * (k1 + k8),
        k1 * k3 * (k7 + k6) + k8 * k6 * (k2 + k3),
        k2 * k8 * (k4 + k5) + k3 * k5 * (k1 + k8),
    ]
    e = [part / (x[0] + x[1] + x[2] + x[3]) for part in x]
    sodium = 3 * (e[3] * k7 - e[0] * k8) + e[2] * k4b - e[1] * k3b
    return (sodium + 2 * (e[1] * k2 - e[0] * k1)) / (1 + (150e-6 / ca) ** 2)


def _pump(nai: Values, ki: Values, v: Values) -> Values:
    """Na/K pump, per unit of its density: the four-state cycle again."""
    ni = nai / (9.073 * np.exp(-0.155 * v / THERMAL / 3))
    no = NAO / (27.78 * np.exp(1.155 * v / THERMAL / 3))
    kin, kout = ki / 0.5, KO / 0.3582
    below_i, below_o = (1 + ni) ** 3 + (1 + kin) ** 2 - 1, (1 + no) ** 3 + (1 + kout) ** 2 - 1
    atp = 9.8 / 1.698e-7
    phosphate = 4.2 / (1 + 1e-7 / 1.698e-7 + nai / 224 + ki / 292)
    a = (949.5 * ni**3 / below_i, 687.2, 1899 * kout**2 / below_o, 639 * atp / (1 + atp))
    b = (
        182.4 * 0.05,
        39.4 * no**3 / below_o,
        79300 * phosphate * 1e-7 / (1 + atp),
        40 * kin**2 / below_i,
    )
    x = (
        a[3] * a[0] * a[1] + b[1] * b[3] * b[2] + a[1] * b[3] * b[2] + b[2] * a[0] * a[1],
        b[1] * b[0] * b[3] + a[0] * a[1] * a[2] + a[2] * b[0] * b[3] + a[1] * a[2] * b[3],
        a[1] * a[2] * a[3] + b[2] * b[1] * b[0] + b[1] * b[0] * a[3] + a[2] * a[3] * b[0],
        b[3] * b[2] * b[1] + a[2] * a[3] * a[0] + b[1] * a[3] * a[0] + b[2] * b[1] * a[0],
    )
    net = 3 * (x[0] * a[2] - x[1] * b[2]) + 2 * (x[3] * b[0] - x[2] * a[0])
    return net / (x[0] + x[1] + x[2] + x[3])


def _gates(v: Values) -> tuple[dict[str, Values], dict[str, Values]]:
    """Steady states and time constants of the gates that depend on the voltage only."""
    steady = {
        name: 1 / (1 + np.exp((middle - v) / slope))
        for names, (middle, slope) in STEADY.items()
        for name in names.split()
    }
    tau: dict[str, Values] = {
        name: np.asarray(offset + factor / sum(a * np.exp((v - b) / c) for a, b, c in terms))
        for name, (offset, factor, terms) in RATES.items()
    }
    rise = 1.2089 * (1 + np.exp((v - 18.4099) / -29.3814))
    tau["a"] = tau["ap"] = 1.0515 / (1 / rise + 3.5 / (1 + np.exp((v + 100) / 29.3814)))
    develop = 1.354 + 1e-4 / (np.exp((v - 167.4) / 15.89) + np.exp(-(v - 12.23) / 0.2154))
    slower = develop * (1 - 0.5 / (1 + np.exp((v + 70) / 20)))
    for name, of, factor in (
        ("hsp", "hs", 3.0),
        ("jp", "j", 1.46),
        ("mL", "m", 1.0),
        ("iFp", "iF", slower),
        ("iSp", "iS", slower),
        ("ffp", "ff", 2.5),
        ("fcafp", "fcaf", 2.5),
    ):
        tau[name] = factor * tau[of]
    for name, value in (("hL", 200.0), ("hLp", 600.0), ("jca", 75.0)):
        tau[name] = np.full_like(v, value)
    return steady, tau


def advance(state: Values, scales: Values, stimulus: float, step: float) -> Values:
    """One step of all cells: `state` is (41, cells), `scales` twelve factors of conductances."""
    y: dict[str, Values] = dict(zip(STATES, state, strict=True))
    v, cai, cass, cajsr = y["v"], y["cai"], y["cass"], y["cajsr"]
    steady, tau = _gates(v)
    bound = 0.05 * (1 - y["CaMKt"]) / (1 + 0.0015 / cass)
    active = bound + y["CaMKt"]
    camk = 1 / (1 + 0.15 / active)

    def mix(plain: Values, phosphorylated: Values) -> Values:
        return (1 - camk) * plain + camk * phosphorylated

    ena, ek = THERMAL * np.log(NAO / y["nai"]), THERMAL * np.log(KO / y["ki"])
    eks = THERMAL * np.log((KO + 0.01833 * NAO) / (y["ki"] + 0.01833 * y["nai"]))
    h, hp = (0.99 * y["hf"] + 0.01 * y[slow] for slow in ("hs", "hsp"))
    ina = scales[0] * 75 * (v - ena) * y["m"] ** 3 * mix(h * y["j"], hp * y["jp"])
    inal = scales[1] * 0.0075 * (v - ena) * y["mL"] * mix(y["hL"], y["hLp"])
    fast = 1 / (1 + np.exp((v - 213.6) / 151.2))
    i, ip = (fast * y[q] + (1 - fast) * y[s] for q, s in (("iF", "iS"), ("iFp", "iSp")))
    ito = scales[2] * 0.02 * (v - ek) * mix(y["a"] * i, y["ap"] * ip)
    share = 0.3 + 0.6 / (1 + np.exp((v - 10) / 10))
    f, fp = (0.6 * y[q] + 0.4 * y["fs"] for q in ("ff", "ffp"))
    fca, fcap = (share * y[q] + (1 - share) * y["fcas"] for q in ("fcaf", "fcafp"))
    free, held = 1 - y["nca"], y["jca"] * y["nca"]
    channel = mix(f * free + fca * held, 1.1 * (fp * free + fcap * held))
    channel = scales[3] * 1e-4 * y["d"] * channel
    ical = channel * _force(2, v, cass, 0.341 * CAO)
    icana = 1.25e-3 * channel * _force(1, v, 0.75 * y["nass"], 0.75 * NAO)
    icak = 3.574e-4 * channel * _force(1, v, 0.75 * y["kss"], 0.75 * KO)
    quick = 1 / (1 + np.exp((v + 54.81) / 38.21))
    rectify = 1 / ((1 + np.exp((v + 55) / 75)) * (1 + np.exp((v - 10) / 30)))
    ikr = scales[4] * 0.046 * (quick * y["xrf"] + (1 - quick) * y["xrs"]) * rectify * (v - ek)
    calcium = 1 + 0.6 / (1 + (3.8e-5 / cai) ** 1.4)
    iks = scales[5] * 0.0034 * calcium * y["xs1"] * y["xs2"] * (v - eks)
    inward = 1 / (1 + np.exp((v + 105.8 - 2.6 * KO) / 9.493))
    ik1 = scales[6] * 0.1908 * np.sqrt(KO) * inward * y["xk1"] * (v - ek)
    naca_i = scales[7] * 0.8 * 0.0008 * _exchanger(y["nai"], cai, v)
    naca_ss = scales[7] * 0.2 * 0.0008 * _exchanger(y["nass"], cass, v)
    inak = scales[8] * 30 * _pump(y["nai"], y["ki"], v)
    ikb = scales[9] * 0.003 / (1 + np.exp(-(v - 14.48) / 18.34)) * (v - ek)
    inab = 3.75e-10 * _force(1, v, y["nai"], NAO)
    icab = 2.5e-8 * _force(2, v, cai, 0.341 * CAO)
    ipca = scales[10] * 0.0005 * cai / (0.0005 + cai)
    steady["Jrelnp"] = -2.375 * ical / (1 + (1.5 / cajsr) ** 8)
    steady["Jrelp"] = 1.25 * steady["Jrelnp"]
    for name, full in (("Jrelnp", 4.75), ("Jrelp", 5.9375)):
        tau[name] = np.maximum(full / (1 + 0.0123 / cajsr), 0.001)
    release = scales[11] * mix(y["Jrelnp"], y["Jrelp"])
    uptake = 0.004375 * mix(cai / (cai + 0.00092), 2.75 * cai / (cai + 0.00075))
    uptake = uptake - 0.0039375 * y["cansr"] / 15
    transfer = (y["cansr"] - cajsr) / 100
    na, k = (y["nass"] - y["nai"]) / 2, (y["kss"] - y["ki"]) / 2
    ca = (cass - cai) / 0.2
    radius, length = 0.0011, 0.01
    volume = 1000 * 3.14 * radius**2 * length
    area = 2 * (2 * 3.14 * radius**2 + 2 * 3.14 * radius * length)
    outer, inner = area / (FARADAY * 0.68 * volume), area / (FARADAY * 0.02 * volume)
    ss_i, nsr_i = 0.02 / 0.68, 0.0552 / 0.68
    potassium = ito + ikr + iks + ik1 + ikb
    total = ina + inal + ical + icana + icak + potassium + naca_i + naca_ss + inak
    total = total + inab + icab + ipca

    def buffered(x: Values, *pairs: tuple[float, float]) -> Values:
        return np.asarray(1 / (1 + sum(most * half / (half + x) ** 2 for most, half in pairs)))

    slopes = {
        "v": -(total + stimulus),
        "nai": -(ina + inal + 3 * naca_i + 3 * inak + inab) * outer + na * ss_i,
        "nass": -(icana + 3 * naca_ss) * inner - na,
        "ki": -(potassium + stimulus - 2 * inak) * outer + k * ss_i,
        "kss": -icak * inner - k,
        "cai": buffered(cai, (0.05, 0.00238), (0.07, 0.0005))
        * (-(ipca + icab - 2 * naca_i) * outer / 2 - uptake * nsr_i + ca * ss_i),
        "cass": buffered(cass, (0.047, 0.00087), (1.124, 0.0087))
        * (-(ical - 2 * naca_ss) * inner / 2 + release * 0.0048 / 0.02 - ca),
        "cansr": uptake - transfer * 0.0048 / 0.0552,
        "cajsr": buffered(cajsr, (10, 0.8)) * (transfer - release),
        "nca": 1000 / (1000 / y["jca"] + (1 + 0.002 / cass) ** 4) - y["nca"] * y["jca"],
        "CaMKt": 0.05 * bound * active - 0.00068 * y["CaMKt"],
    }
    return np.stack(
        [
            y[name] + step * slopes[name]
            if name in slopes
            else steady[name] - (steady[name] - y[name]) * np.exp(-step / tau[name])
            for name in STATES
        ]
    )


def cells(rng: np.random.Generator, count: int) -> Values:
    """Cells in all phases of a beat: voltage from rest to plateau, the rest around `REST`."""
    rest = np.array(REST.split(), np.float64)
    state = rest[:, None] * (1 + 0.1 * (rng.random((len(STATES), count)) - 0.5))
    gates = slice(STATES.index("m"), STATES.index("CaMKt"))
    state[gates] = np.minimum(state[gates], 1.0)
    state[0] = -87 + 120 * rng.random(count)
    return state
