"""Hydrodynamics, stencils, lattices and reactor physics of the suite."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.suite.paper import array_of
from bench.suite.spec import (
    Dim3,
    HostArray,
    KernelSpec,
    Problem,
    blocks_for,
    f32,
    f64,
    i32,
    read,
    rng_for,
    suite_spec,
    write,
)


def hexahedra(side: int, rng: np.random.Generator) -> tuple[NDArray[np.int32], HostArray]:
    """Corners (8, elements) and jittered node positions (3, nodes) of a cube of hexahedra."""
    nodes = side + 1
    base = np.arange(side**3, dtype=np.int64)
    x, y, z = base % side, base // side % side, base // side**2
    origin = (z * nodes + y) * nodes + x
    steps = (0, 1, nodes + 1, nodes)
    corners = [origin + s for s in steps] + [origin + s + nodes * nodes for s in steps]
    grid = np.stack(np.meshgrid(*[np.arange(nodes)] * 3, indexing="ij")[::-1]).reshape(3, -1)
    return np.stack(corners).astype(np.int32), grid + 0.2 * (rng.random(grid.shape) - 0.5)


def _hydro_kinematics(seed: int, small: bool) -> Problem:
    rng = rng_for("hydro_kinematics", seed)
    side = 10 if small else 96
    corners, position = hexahedra(side, rng)
    n, nodes = corners.shape[1], position.shape[1]
    return Problem(
        blocks_for(n, 128),
        (
            read(corners),
            read(position),
            read(rng.random((3, nodes)) - 0.5),
            read(rng.random(n) + 0.5),
            write(np.float64, 6, n),
            f64(0.005),
            i32(nodes),
            i32(n),
        ),
    )


def _hydro_viscosity(seed: int, small: bool) -> Problem:
    rng = rng_for("hydro_viscosity", seed)
    side = 10 if small else 96
    corners, position = hexahedra(side, rng)
    n, nodes = corners.shape[1], position.shape[1]
    return Problem(
        blocks_for(n, 256),
        (
            read(corners),
            read(position),
            read(rng.random((3, nodes)) - 0.5),
            read(rng.random(n) + 0.5),
            write(np.float64, 6, n),
            i32(nodes),
            i32(n),
        ),
    )


def _hydro_hourglass(seed: int, small: bool) -> Problem:
    rng = rng_for("hydro_hourglass", seed)
    side = 10 if small else 96
    corners, position = hexahedra(side, rng)
    n, nodes = corners.shape[1], position.shape[1]
    return Problem(
        blocks_for(n, 256),
        (
            read(corners),
            read(position),
            read(rng.random((3, nodes)) - 0.5),
            *(read(rng.random(n) + 0.5) for _ in range(3)),
            write(np.float64, 24, n),
            f64(3.0),
            i32(nodes),
            i32(n),
        ),
    )


_AROUND = (
    (1, 2, 3, 4, 5, 7), (2, 3, 0, 5, 6, 4), (3, 0, 1, 6, 7, 5), (0, 1, 2, 7, 4, 6),
    (7, 6, 5, 0, 3, 1), (4, 7, 6, 1, 0, 2), (5, 4, 7, 2, 1, 3), (6, 5, 4, 3, 2, 0),
)  # fmt: skip
_MODES = np.array(
    [
        [1, 1, -1, -1, -1, -1, 1, 1],
        [1, -1, -1, 1, -1, 1, 1, -1],
        [1, -1, 1, -1, 1, -1, 1, -1],
        [-1, 1, -1, 1, 1, -1, 1, -1],
    ],
    dtype=np.float64,
)


def _hourglass_reference(problem: Problem) -> dict[int, HostArray]:
    corners = array_of(problem, 0).reshape(8, -1)
    position = array_of(problem, 1).reshape(3, -1)[:, corners]
    velocity = array_of(problem, 2).reshape(3, -1)[:, corners]
    volume, sound, mass = (array_of(problem, k) for k in (3, 4, 5))

    def slope(a: HostArray, b: HostArray, r: tuple[int, ...]) -> HostArray:
        a0, a1, a2, a3, a4, a5 = (a[k] for k in r)
        b0, b1, b2, b3, b4, b5 = (b[k] for k in r)
        total = (a1 + a2) * (b0 + b1) - (a0 + a1) * (b1 + b2) + (a0 + a4) * (b3 + b4)
        total += (a3 + a5) * (b2 + b5) - (a3 + a4) * (b0 + b4) - (a2 + a5) * (b3 + b5)
        return total / 12.0

    x, y, z = position
    slopes = np.stack([[slope(y, z, r), slope(z, x, r), slope(x, y, r)] for r in _AROUND], axis=1)
    along = np.einsum("ik,dkn->din", _MODES, position)
    gamma = _MODES[:, :, None] - np.einsum("dkn,din->ikn", slopes, along) / volume
    scale = -problem.arguments[7] * 0.01 * sound * mass / np.cbrt(volume)
    h = np.einsum("ikn,dkn->din", gamma, velocity)
    force = scale * np.einsum("ikn,din->dkn", gamma, h)
    return {6: force.reshape(24, -1)}


def _grid3(nx: int, ny: int, nz: int, halo: int, block: Dim3) -> Dim3:
    x, y, z = ((size - 2 * halo + b - 1) // b for size, b in zip((nx, ny, nz), block, strict=True))
    return (x, y, z)


def _seismic_stencil(seed: int, small: bool) -> Problem:
    rng = rng_for("seismic_stencil", seed)
    size = (40, 16, 12) if small else (232, 168, 136)
    shape = size[::-1]
    return Problem(
        _grid3(*size, 4, (32, 4, 1)),
        (
            read(rng.random((3, *shape))),
            read(rng.random(shape) + 0.5),
            read(rng.random(shape) + 0.5),
            read(rng.random(shape) + 0.5),
            write(np.float64, 3, *shape),
            *map(i32, size),
        ),
    )


def _mixture_covariance(seed: int, small: bool) -> Problem:
    rng = rng_for("mixture_covariance", seed)
    n, components, per_block = (4000, 2, 1024) if small else (1 << 21, 8, 2048)
    return Problem(
        ((n + per_block - 1) // per_block, components, 1),
        (
            read(rng.random((6, n), dtype=np.float32)),
            read(rng.random((components, n), dtype=np.float32)),
            read(rng.random((components, 6), dtype=np.float32)),
            write(np.float32, components, (n + per_block - 1) // per_block, 22),
            i32(n),
            i32(per_block),
        ),
    )


def _mixture_reference(problem: Problem) -> dict[int, HostArray]:
    samples, weights, means = (array_of(problem, k).astype(np.float64) for k in range(3))
    blocks, components, _ = problem.grid
    out = np.zeros((components, blocks, 22))
    for c in range(components):
        gap = samples - means[c][:, None]
        rows = [weights[c] * gap[a] * gap[b] for a in range(6) for b in range(a + 1)]
        for k, row in enumerate([*rows, weights[c]]):
            for b in range(blocks):
                out[c, b, k] = row[b * 1024 : (b + 1) * 1024].sum()
    return {3: out}


def _cahn_hilliard(seed: int, small: bool) -> Problem:
    rng = rng_for("cahn_hilliard", seed)
    nx, ny, nz = (32, 16, 8) if small else (256, 256, 192)
    return Problem(
        (nx // 32, ny // 8, nz),
        (
            read(rng.random((nz, ny, nx), dtype=np.float32) * 2 - 1),
            write(np.float32, nz, ny, nx),
            i32(nx),
            i32(ny),
            i32(nz),
            f32(0.5),
            f32(0.01),
        ),
    )


def _cahn_reference(problem: Problem) -> dict[int, HostArray]:
    c = array_of(problem, 0).astype(np.float64)

    def around(field: HostArray) -> list[HostArray]:
        return [np.roll(field, shift, axis) for axis in (2, 1, 0) for shift in (1, -1)]

    total = sum(around(c))
    potential = c**3 - c - 0.5 * (total - 6 * c)
    mobility = 1 - 0.5 * c * c
    flow = sum(
        0.5 * (mobility + m) * (p - potential)
        for m, p in zip(around(mobility), around(potential), strict=True)
    )
    return {1: c + 0.01 * np.asarray(flow)}


def _burgers_stencil(seed: int, small: bool) -> Problem:
    rng = rng_for("burgers_stencil", seed)
    size = (36, 12, 8) if small else (260, 196, 132)
    return Problem(
        _grid3(*size, 2, (32, 4, 2)),
        (
            read(rng.random((3, *size[::-1])) - 0.5),
            write(np.float64, 3, *size[::-1]),
            *map(i32, size),
            f64(0.1),
            f64(0.01),
        ),
    )


def _multipole_lookup(seed: int, small: bool) -> Problem:
    rng = rng_for("multipole_lookup", seed)
    n, nuclides, windows, poles = (500, 8, 20, 4) if small else (1 << 20, 160, 100, 4)
    count = nuclides * windows
    shape = (12, 32)
    pole = rng.random((count * poles, 4))
    pole[:, 1] += 0.05
    return Problem(
        blocks_for(n, 256),
        (
            read(rng.random(n) * 0.98 + 0.01),
            read(rng.integers(0, 12, n, dtype=np.int32)),
            read(rng.integers(0, nuclides, shape, dtype=np.int32)),
            read(rng.integers(4, 32, 12, dtype=np.int32)),
            read(rng.random(shape)),
            read(pole),
            read(rng.random((count * poles, 4))),
            read(rng.random((count, 4))),
            i32(windows),
            i32(poles),
            write(np.float64, 4, n),
            i32(n),
        ),
    )


def _lattice_d3q19(seed: int, small: bool) -> Problem:
    rng = rng_for("lattice_d3q19", seed)
    nx, ny, nz = (64, 4, 4) if small else (192, 128, 64)
    weights = np.array([1 / 3] + [1 / 18] * 6 + [1 / 36] * 12)
    f = weights[:, None, None, None] * (1 + 0.1 * rng.random((19, nz, ny, nx)))
    return Problem(
        ((nx + 63) // 64, ny, nz),
        (
            read(f),
            write(np.float64, 19, nz, ny, nx),
            i32(nx),
            i32(ny),
            i32(nz),
            f64(1.2),
            f64(0.9),
            f64(1e-4),
        ),
    )


def _lattice_reference(problem: Problem) -> dict[int, HostArray]:
    cx = [0, 1, -1, 0, 0, 0, 0, 1, -1, 1, -1, 1, -1, 1, -1, 0, 0, 0, 0]
    cy = [0, 0, 0, 1, -1, 0, 0, 1, -1, -1, 1, 0, 0, 0, 0, 1, -1, 1, -1]
    cz = [0, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 1, -1, -1, 1, 1, -1, -1, 1]
    pulled = array_of(problem, 0)
    f = np.stack([np.roll(pulled[q], (cz[q], cy[q], cx[q]), axis=(0, 1, 2)) for q in range(19)])
    rho = f.sum(0)
    ux, uy, uz = (np.tensordot(np.array(c), f, axes=1) / rho for c in (cx, cy, cz))
    ux = ux + 1e-4
    square = 1.5 * (ux**2 + uy**2 + uz**2)
    out = np.empty_like(f)
    out[0] = f[0] - 1.2 * (f[0] - rho / 3 * (1 - square))
    for q in range(1, 19, 2):
        w = 1 / 18 if q < 7 else 1 / 36
        c = 3 * (cx[q] * ux + cy[q] * uy + cz[q] * uz)
        plus, minus = 0.5 * (f[q] + f[q + 1]), 0.5 * (f[q] - f[q + 1])
        a = 1.2 * (plus - w * rho * (1 + 0.5 * c * c - square))
        b = 0.9 * (minus - w * rho * c)
        out[q], out[q + 1] = f[q] - a - b, f[q + 1] - a + b
    return {1: out}


def _staggered_dslash(seed: int, small: bool) -> Problem:
    rng = rng_for("staggered_dslash", seed)
    size = (8, 8, 4, 4) if small else (32, 32, 32, 24)
    n = int(np.prod(size))
    return Problem(
        blocks_for(n, 64),
        (
            read(rng.random((4, 9, n, 2), dtype=np.float32) - np.float32(0.5)),
            read(rng.random((4, 9, n, 2), dtype=np.float32) - np.float32(0.5)),
            read(rng.random((3, n, 2), dtype=np.float32) - np.float32(0.5)),
            write(np.float32, 3, n, 2),
            _int4(size),
        ),
    )


def _int4(values: tuple[int, int, int, int]) -> np.generic:
    """An int4 kernel parameter: 16 bytes as one numpy scalar."""
    return np.void(np.array(values, np.int32).tobytes())


def _dslash_reference(problem: Problem) -> dict[int, HostArray]:
    fat, longer, vectors = (
        array_of(problem, k).astype(np.float64).view(np.complex128)[..., 0] for k in range(3)
    )
    size = (8, 8, 4, 4)
    n = vectors.shape[1]
    index = np.arange(n).reshape(size[::-1])
    out = np.zeros_like(vectors)
    for d in range(4):
        for hop, links in ((1, fat), (3, longer)):
            matrix = links[d].reshape(3, 3, n)
            forward = np.roll(index, -hop, axis=3 - d).reshape(-1)
            back = np.roll(index, hop, axis=3 - d).reshape(-1)
            out += np.einsum("rcn,cn->rn", matrix, vectors[:, forward])
            out -= np.einsum("crn,cn->rn", matrix[:, :, back].conj(), vectors[:, back])
    return {3: np.stack([out.real, out.imag], axis=-1)}


def _bispectrum(seed: int, small: bool) -> Problem:
    rng = rng_for("bispectrum", seed)
    n, length = (500, 8) if small else (1 << 19, 24)
    return Problem(
        blocks_for(n, 128),
        (
            read((rng.random((3, length, n)) - 0.5) * 6.0),
            read(rng.integers(length // 2, length + 1, n, dtype=np.int32)),
            write(np.float64, 5, n),
            f64(4.7),
            i32(length),
            i32(n),
        ),
    )


def _cardiac_ionic(seed: int, small: bool) -> Problem:
    rng = rng_for("cardiac_ionic", seed)
    n = 1000 if small else 1 << 19
    state = rng.random((29, n))
    state[24] = state[24] * 120 - 80
    state[25:] = state[25:] * 10 + 0.5
    return Problem(
        blocks_for(n, 128),
        (
            read(state),
            read(rng.random(12)),
            write(np.float64, 29, n),
            f64(0.02),
            f64(3.0),
            i32(n),
        ),
    )


def _stiff_kinetics(seed: int, small: bool) -> Problem:
    rng = rng_for("stiff_kinetics", seed)
    n = 1000 if small else 1 << 19
    return Problem(
        blocks_for(n, 128),
        (
            read(rng.random((12, n))),
            read(rng.random((12, 12)) - 0.5),
            write(np.float64, 12, n),
            f64(0.05),
            i32(n),
        ),
    )


def _kinetics_reference(problem: Problem) -> dict[int, HostArray]:
    y, rates = array_of(problem, 0).T, array_of(problem, 1)
    heat = 1.0 / (1.0 + 0.1 * y[:, 0])
    i, j = np.meshgrid(np.arange(12), np.arange(12), indexing="ij")
    r = rates[None] * heat[:, None, None]
    partner = y[:, (i + j) % 12]
    f = np.sum(r * y[:, None, :] * partner, axis=2)
    matrix = np.eye(12)[None] - 0.05 * r * partner
    return {2: (y + 0.05 * np.linalg.solve(matrix, f[..., None])[..., 0]).T}


def _spectral_cubature(seed: int, small: bool) -> Problem:
    rng = rng_for("spectral_cubature", seed)
    lines = 1000 if small else 36 << 14
    return Problem(
        blocks_for(lines, 128),
        (
            read(rng.random((18, lines))),
            read(rng.random((8, 6)) - 0.5),
            read(rng.random((8, 6)) - 0.5),
            read(rng.random((24, lines))),
            write(np.float64, 18, lines),
            i32(lines),
        ),
    )


def _cubature_reference(problem: Problem) -> dict[int, HostArray]:
    u = array_of(problem, 0).reshape(3, 6, -1)
    interpolate, derive = array_of(problem, 1), array_of(problem, 2)
    g = array_of(problem, 3).reshape(8, 3, -1)
    a = np.einsum("qk,dkn->dqn", interpolate, u)
    b = np.einsum("qk,dkn->dqn", derive, u)
    speed = np.einsum("qdn,dqn->qn", g, a)
    f, h = speed[None] * b, g[None, :, 0] * a * a
    r = np.einsum("qk,dqn->dkn", interpolate, f) - np.einsum("qk,dqn->dkn", derive, h)
    return {4: r.reshape(18, -1)}


_REFERENCES: dict[str, tuple[Callable[[Problem], dict[int, HostArray]], float]] = {
    "hydro_hourglass": (_hourglass_reference, 1e-10),
    "mixture_covariance": (_mixture_reference, 1e-4),
    "cahn_hilliard": (_cahn_reference, 1e-4),
    "lattice_d3q19": (_lattice_reference, 1e-10),
    "staggered_dslash": (_dslash_reference, 1e-4),
    "stiff_kinetics": (_kinetics_reference, 1e-9),
    "spectral_cubature": (_cubature_reference, 1e-10),
}


def _spec(
    name: str, make: Callable[[int, bool], Problem], covers: str, block: int | Dim3 = 256
) -> KernelSpec:
    reference, tolerance = _REFERENCES.get(name, (None, 1e-4))
    return suite_spec(name, make, covers, block, reference=reference, tolerance=tolerance)


PHYSICS: tuple[KernelSpec, ...] = (
    _spec("hydro_kinematics", _hydro_kinematics, "Lagrangian kinematics of elements, double", 128),
    _spec("hydro_viscosity", _hydro_viscosity, "Lagrangian hydrodynamics: monotonic Q, double"),
    _spec("hydro_hourglass", _hydro_hourglass, "Lagrangian hydrodynamics: hourglass force, double"),
    _spec("seismic_stencil", _seismic_stencil, "fourth-order seismic stencil", (32, 4, 1)),
    _spec("mixture_covariance", _mixture_covariance, "Gaussian-mixture covariance"),
    _spec("cahn_hilliard", _cahn_hilliard, "Cahn-Hilliard stencil", (32, 8, 1)),
    _spec("burgers_stencil", _burgers_stencil, "Burgers stencil, double", (32, 4, 2)),
    _spec("multipole_lookup", _multipole_lookup, "multipole cross sections"),
    _spec("lattice_d3q19", _lattice_d3q19, "lattice Boltzmann D3Q19", 64),
    _spec("staggered_dslash", _staggered_dslash, "staggered Dslash", 64),
    _spec("bispectrum", _bispectrum, "SNAP-like bispectrum", 128),
    _spec("cardiac_ionic", _cardiac_ionic, "cardiac ionic model, Rush-Larsen", 128),
    _spec("stiff_kinetics", _stiff_kinetics, "implicit ionic kinetics; 255 registers, spills", 128),
    _spec("spectral_cubature", _spectral_cubature, "spectral-element cubature", 128),
)
