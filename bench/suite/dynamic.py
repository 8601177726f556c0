"""Kernels with launch bounds or dynamic shared memory, as performance engineers write them.

These fill what the rest of the suite has few of: a register limit chosen by the author, at which
nvcc itself spills, and shared memory sized at launch, which NVIDIA's shared-memory pragma does not
go with. The reason for each bound stands at the head of its source.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.suite.paper import array_of
from bench.suite.spec import (
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
    update,
    write,
)
from bench.suite.ventricle import advance, cells

BLS12_381 = int(
    "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab",
    16,
)


def _scalar(problem: Problem, position: int) -> float:
    value = problem.arguments[position]
    assert isinstance(value, np.generic)
    return float(value)


def _cardiac_ventricle(seed: int, small: bool) -> Problem:
    rng = rng_for("cardiac_ventricle", seed)
    n, steps = (1000, 3) if small else (1 << 18, 5)
    return Problem(
        blocks_for(n, 256),
        (
            read(cells(rng, n)),
            read(rng.random(12) * 0.4 + 0.8),
            write(np.float64, 41, n),
            f64(-40.0),
            f64(0.005),
            i32(steps),
            i32(n),
        ),
    )


def _ventricle_reference(problem: Problem) -> dict[int, HostArray]:
    state, scales = array_of(problem, 0), array_of(problem, 1)
    stimulus, step, steps = (_scalar(problem, k) for k in (3, 4, 5))
    for _ in range(int(steps)):
        state = advance(state, scales, stimulus, step)
    return {2: state}


def _fft_radix16(seed: int, small: bool) -> Problem:
    rng = rng_for("fft_radix16", seed)
    batch = 3 if small else 2048
    angle = np.arange(4096) * (-2 * np.pi / 4096)
    return Problem(
        (batch, 1, 1),
        (
            read(rng.random((batch, 4096, 2)) - 0.5),
            read(np.stack([np.cos(angle), np.sin(angle)], axis=1)),
            write(np.float64, batch, 4096, 2),
        ),
    )


def _fft_reference(problem: Problem) -> dict[int, HostArray]:
    out = np.fft.fft(array_of(problem, 0).view(np.complex128)[..., 0])
    return {2: np.stack([out.real, out.imag], axis=-1)}


def _small_cholesky(seed: int, small: bool) -> Problem:
    """Normal equations: a diagonally dominant packed lower triangle and a right-hand side."""
    rng = rng_for("small_cholesky", seed)
    n = 1000 if small else 1 << 18
    matrices = rng.random((n, 78)) - 0.5
    matrices[:, [row * (row + 3) // 2 for row in range(12)]] += 8.0
    return Problem(
        blocks_for(n, 128),
        (read(matrices), read(rng.random((n, 12))), write(np.float64, n, 12), i32(n)),
    )


def _cholesky_reference(problem: Problem) -> dict[int, HostArray]:
    packed, sides = array_of(problem, 0), array_of(problem, 1)
    rows, columns = np.tril_indices(12)
    full = np.zeros((len(packed), 12, 12))
    full[:, rows, columns] = packed
    full[:, columns, rows] = packed
    return {2: np.linalg.solve(full, sides[..., None])[..., 0]}


def _spectral_tensor(seed: int, small: bool) -> Problem:
    rng = rng_for("spectral_tensor", seed)
    elements = 6 if small else 4096
    factors = rng.random((10, elements, 512)) * 0.2 - 0.1
    factors[[0, 4, 8, 9]] += 1.0
    return Problem(
        ((elements + 3) // 4, 1, 1),
        (
            read(rng.random((3, elements, 512)) - 0.5),
            read(factors),
            read(rng.random((8, 8)) - 0.5),
            write(np.float64, 3, elements, 512),
            f64(1.2),
            f64(0.8),
            i32(elements),
        ),
    )


def _tensor_reference(problem: Problem) -> dict[int, HostArray]:
    u = array_of(problem, 0).reshape(3, -1, 8, 8, 8)
    factors, derive = array_of(problem, 1), array_of(problem, 2)
    inverse = factors[:9].reshape(3, 3, *u.shape[1:])
    axes = ("im,cekjm->cekji", "jm,cekmi->cekji", "km,cemji->cekji")
    along = np.stack([np.einsum(axis, derive, u) for axis in axes])
    gradient = np.einsum("rcekji,rdekji->cdekji", along, inverse)
    trace = np.einsum("ccekji->ekji", gradient)
    stress = 0.8 * (gradient + gradient.swapaxes(0, 1))
    stress = stress + 1.2 * trace * np.eye(3)[:, :, None, None, None, None]
    stress = stress * factors[9].reshape(u.shape[1:])
    flux = np.einsum("cdekji,rdekji->rcekji", stress, inverse)
    back = ("mi,cekjm->cekji", "mj,cekmi->cekji", "mk,cemji->cekji")
    total = sum(np.einsum(axis, derive, flux[r]) for r, axis in enumerate(back))
    return {3: np.asarray(total).reshape(3, -1, 512)}


def _sgemm_tile(seed: int, small: bool) -> Problem:
    rng = rng_for("sgemm_tile", seed)
    m, n, k = (256, 384, 80) if small else (4096, 4096, 1024)

    def matrix(rows: int, columns: int) -> HostArray:
        return rng.random((rows, columns), dtype=np.float32) - np.float32(0.5)

    return Problem(
        (n // 128, m // 128, 1),
        (
            read(matrix(m, k)),
            read(matrix(k, n)),
            update(matrix(m, n)),
            f32(1.5),
            f32(-0.5),
            i32(m),
            i32(n),
            i32(k),
        ),
    )


def _sgemm_reference(problem: Problem) -> dict[int, HostArray]:
    a, b, c = (array_of(problem, k).astype(np.float64) for k in range(3))
    return {2: 1.5 * (a @ b) - 0.5 * c}


def _spread_bits(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Ten bits to every third place (a Morton code's coordinate)."""
    for shift, mask in ((16, 0x030000FF), (8, 0x0300F00F), (4, 0x030C30C3), (2, 0x09249249)):
        x = (x | (x << np.uint32(shift))) & np.uint32(mask)
    return x


def four_wide_tree(corners: NDArray[np.float32]) -> tuple[HostArray, HostArray]:
    """Nodes and triangles (a corner and two edges) of a complete four-wide box hierarchy.

    `corners` is (2 * 4^k, 3 corners, 3); leaves hold two triangles in Morton order. A node is 28
    words: low and high of four children along x, y and z, and four indices, ~leaf for a leaf.
    """
    middle = np.clip(corners.mean(axis=1), 0, 1)
    cell = (middle * 1023).astype(np.uint32)
    code = np.bitwise_or.reduce([_spread_bits(cell[:, a]) << np.uint32(a) for a in range(3)])
    corners = corners[np.argsort(code, kind="stable")]
    triangles = np.zeros((len(corners), 3, 4), np.float32)
    triangles[:, 0, :3] = corners[:, 0]
    triangles[:, 1:, :3] = corners[:, 1:] - corners[:, :1]
    pairs = corners.reshape(len(corners) // 2, 6, 3)
    low, high = pairs.min(axis=1) - np.float32(1e-5), pairs.max(axis=1) + np.float32(1e-5)
    levels: list[HostArray] = []
    children = ~np.arange(len(low), dtype=np.int32)
    while len(low) > 1:
        low4, high4 = low.reshape(-1, 4, 3), high.reshape(-1, 4, 3)
        node = np.zeros((len(low4), 7, 4), np.float32)
        for axis in range(3):
            node[:, 2 * axis], node[:, 2 * axis + 1] = low4[:, :, axis], high4[:, :, axis]
        node[:, 6] = children.reshape(-1, 4).view(np.float32)
        levels.append(node)
        low, high = low4.min(axis=1), high4.max(axis=1)
        first = sum(4**k for k in range(round(np.log(len(low)) / np.log(4))))
        children = np.arange(first, first + len(low), dtype=np.int32)
    return np.concatenate(levels[::-1]), triangles


def _sun() -> NDArray[np.float32]:
    return np.array([0.48, 0.6, 0.64], np.float32)


def _ray_bvh(seed: int, small: bool) -> Problem:
    """A cube of small triangles, seen by a pinhole camera in front of it."""
    rng = rng_for("ray_bvh", seed)
    count, side, size = (512, 32, 0.15) if small else (1 << 17, 640, 0.02)
    place = rng.random((count, 1, 3), dtype=np.float32)
    shape = (rng.random((count, 3, 3), dtype=np.float32) - np.float32(0.5)) * np.float32(size)
    nodes, triangles = four_wide_tree(place + shape)
    n = side * side
    # camera rays in tiles of 8 x 4, a warp each
    pixel = np.arange(n)
    tile, inside = pixel // 32, pixel % 32
    x = (tile % (side // 8)) * 8 + inside % 8
    y = (tile // (side // 8)) * 4 + inside // 8
    aim = np.stack([(x + 0.5) / side - 0.5, (y + 0.5) / side - 0.5, np.full(n, 1.2)])
    aim /= np.sqrt(np.sum(aim * aim, axis=0))
    origin = np.broadcast_to(np.array([[0.5], [0.5], [-1.0]]), (3, n))
    return Problem(
        blocks_for(n, 128),
        (
            read(nodes),
            read(triangles),
            read(np.concatenate([origin, aim]).astype(np.float32)),
            write(np.float32, 3, n),
            write(np.uint32, n),
            np.void(_sun().tobytes()),
            i32(4),
            i32(n),
        ),
    )


def _scramble(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    x = x * np.uint32(747796405) + np.uint32(2891336453)
    x = ((x >> ((x >> np.uint32(28)) + np.uint32(4))) ^ x) * np.uint32(277803737)
    return (x >> np.uint32(22)) ^ x


def _nearest(o: HostArray, d: HostArray, triangles: HostArray) -> tuple[HostArray, HostArray]:
    """Distance and index (-1: none) of the nearest triangle of each ray, every one tried."""
    corner, e, f = (triangles[:, k, :3].astype(np.float64) for k in range(3))
    p = np.cross(d[:, None, :], f[None])
    s = o[:, None, :] - corner[None]
    q = np.cross(s, e[None])
    scale = 1 / np.einsum("tk,rtk->rt", e, p)
    u, v = np.einsum("rtk,rtk->rt", s, p) * scale, np.einsum("rk,rtk->rt", d, q) * scale
    t = np.einsum("tk,rtk->rt", f, q) * scale
    t = np.where((u >= 0) & (v >= 0) & (u + v <= 1) & (t > 1e-4), t, np.inf)
    best = t.argmin(axis=1)
    distance = np.take_along_axis(t, best[:, None], axis=1)[:, 0]
    return distance, np.where(np.isfinite(distance), best, -1)


def _ray_reference(problem: Problem) -> dict[int, HostArray]:
    """Paths by trying every triangle, in double: a few rays may pass an edge on the other side.

    Compared is the mix of triangles only: one path that differs changes its light entirely.
    """
    triangles, rays = array_of(problem, 1), array_of(problem, 2).astype(np.float64)
    n = rays.shape[1]
    o, d = rays[:3].T.copy(), rays[3:].T.copy()
    state, path = _scramble(np.arange(n, dtype=np.uint32)), np.zeros(n, np.uint32)
    alive: HostArray = np.arange(n)
    for _ in range(4):
        distance, hit = _nearest(o[alive], d[alive], triangles)
        distance, alive, hit = distance[hit >= 0], alive[hit >= 0], hit[hit >= 0]
        path[alive] = path[alive] * np.uint32(31) + hit.astype(np.uint32) + np.uint32(1)
        normal = np.cross(triangles[hit, 1, :3].astype(float), triangles[hit, 2, :3].astype(float))
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        normal *= -np.sign(np.sum(normal * d[alive], axis=1))[:, None]
        o[alive] += d[alive] * distance[:, None] + 1e-4 * normal
        draws: list[HostArray] = []
        for _ in range(2):
            state[alive] = _scramble(state[alive])
            draws.append((state[alive] >> np.uint32(8)) / 16777216.0)
        z, angle = 2 * draws[0] - 1, 2 * np.pi * draws[1]
        ring = np.sqrt(np.maximum(1 - z * z, 0))
        turn = 1.001 * normal + np.stack([ring * np.cos(angle), ring * np.sin(angle), z], axis=1)
        d[alive] = turn / np.linalg.norm(turn, axis=1, keepdims=True)
    return {4: path}


def _limbs(values: list[int]) -> NDArray[np.uint32]:
    data = b"".join(value.to_bytes(48, "little") for value in values)
    return np.frombuffer(data, np.uint32).reshape(-1, 12)


@functools.cache
def _roots(count: int) -> tuple[tuple[int, int], ...]:
    """Points of y^2 = x^3 + 4, the first `count` by x."""
    found: list[tuple[int, int]] = []
    x = 0
    while len(found) < count:
        x += 1
        square = (x**3 + 4) % BLS12_381
        y: int = pow(square, (BLS12_381 + 1) // 4, BLS12_381)
        if y * y % BLS12_381 == square:
            found.append((x, y))
    return tuple(found)


def curve_points(rng: np.random.Generator, count: int) -> list[tuple[int, int]]:
    """Affine points of the curve: chains P, P + Q, P + 2Q, ... advanced together.

    Chains share one inversion a step (Montgomery's trick).
    """
    chains = min(count, 512)
    points = list(_roots(2 * chains)[:chains])
    steps = list(_roots(2 * chains)[chains:])
    order: list[int] = rng.permutation(chains).tolist()
    steps = [steps[k] for k in order]
    done = list(points)
    while len(done) < count:
        gaps: list[int] = [(q[0] - p[0]) % BLS12_381 for p, q in zip(points, steps, strict=True)]
        prefix: list[int] = [1]
        for gap in gaps:
            prefix.append(prefix[-1] * gap % BLS12_381)
        inverse: int = pow(prefix[-1], -1, BLS12_381)
        for k in range(chains - 1, -1, -1):
            slope = inverse * prefix[k] * (steps[k][1] - points[k][1]) % BLS12_381
            inverse = inverse * gaps[k] % BLS12_381
            x = (slope * slope - points[k][0] - steps[k][0]) % BLS12_381
            points[k] = (x, (slope * (points[k][0] - x) - points[k][1]) % BLS12_381)
        done += points
    return done[:count]


def _curve_add(seed: int, small: bool) -> Problem:
    """Buckets of 6 to 10 points; the small problem has doublings and opposites among them."""
    rng = rng_for("curve_add", seed)
    table, buckets = (128, 200) if small else (1 << 14, 1 << 18)
    points = _limbs(
        [(c << 384) % BLS12_381 for point in curve_points(rng, table) for c in point]
    ).reshape(table, 24)
    sizes = rng.integers(6, 11, buckets)
    begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    indices = rng.integers(0, table, int(begins[-1])).astype(np.uint32)
    indices |= rng.integers(0, 2, len(indices)).astype(np.uint32) << np.uint32(31)
    if small:
        indices[begins[10] + 1] = indices[begins[10]]
        indices[begins[20] + 1] = indices[begins[20]] ^ np.uint32(1 << 31)
        begins[31:] = np.concatenate([begins[30:31], begins[31:-1]])
    return Problem(
        blocks_for(buckets, 128),
        (
            read(points),
            read(indices),
            read(begins),
            write(np.uint32, 48, buckets),
            i32(buckets),
        ),
    )


def _curve_reference(problem: Problem) -> dict[int, HostArray]:
    """The same sums in the same coordinates, with Python's integers."""
    p = BLS12_381
    back = pow(1 << 384, -1, p)
    flat = array_of(problem, 0).reshape(-1, 12)
    numbers: list[int] = [int.from_bytes(row.tobytes(), "little") * back % p for row in flat]
    indices: list[int] = array_of(problem, 1).tolist()
    begins: list[int] = array_of(problem, 2).tolist()
    out: list[int] = []
    for begin, end in itertools.pairwise(begins):
        x, y, zz, zzz = 0, 0, 0, 0
        for index in indices[begin:end]:
            at = index & 0x7FFFFFFF
            px, py = numbers[2 * at], numbers[2 * at + 1]
            py = (p - py) % p if index >> 31 else py
            gap, rise = (px * zz - x) % p, (py * zzz - y) % p
            if zz == 0:
                x, y, zz, zzz = px, py, 1, 1
            elif gap:
                square, cube = gap**2 % p, gap**3 % p
                shared = x * square % p
                x = (rise**2 - cube - 2 * shared) % p
                y = (rise * (shared - x) - y * cube) % p
                zz, zzz = zz * square % p, zzz * cube % p
            elif rise:
                zz = 0
            else:
                tangent, v, w = 3 * px**2 % p, 4 * py**2 % p, 8 * py**3 % p
                x = (tangent**2 - 2 * px * v) % p
                y, zz, zzz = (tangent * (px * v - x) - w * py) % p, v, w
        out += [x, y, zz, zzz]
    words = _limbs([(value << 384) % p for value in out]).reshape(-1, 48)
    return {3: np.ascontiguousarray(words.T)}


def _attention_decode(seed: int, small: bool) -> Problem:
    """Sequences of different lengths in a cache of the longest one."""
    rng = rng_for("attention_decode", seed)
    batch, heads, longest = (3, 2, 600) if small else (16, 8, 4096)
    lengths = rng.integers(longest * 3 // 4, longest + 1, batch, dtype=np.int32)
    if small:
        lengths[:] = 515, 600, 513
    parts, all_heads = (longest + 255) // 256, batch * heads

    def normal(*shape: int) -> HostArray:
        return (rng.random((*shape, 128), dtype=np.float32) - np.float32(0.5)).astype(np.float16)

    return Problem(
        (parts, all_heads, 1),
        (
            read(normal(all_heads, 8)),
            read(normal(all_heads, longest)),
            read(normal(all_heads, longest)),
            read(lengths),
            write(np.float32, all_heads, parts, 8, 128),
            write(np.float32, all_heads, parts, 8),
            f32(4.0 * 1.44269504 / 128.0**0.5),
            i32(longest),
            i32(heads),
        ),
    )


def _attention_reference(problem: Problem) -> dict[int, HostArray]:
    q, k, v = (array_of(problem, p).astype(np.float64) for p in range(3))
    lengths, heads = array_of(problem, 3), int(_scalar(problem, 8))
    parts, all_heads, _ = problem.grid
    out, logs = np.zeros((all_heads, parts, 8, 128)), np.full((all_heads, parts, 8), -1e30)
    for head in range(all_heads):
        for part in range(parts):
            at = slice(part * 256, min(part * 256 + 256, int(lengths[head // heads])))
            if at.start >= at.stop:
                continue
            weights = np.exp2(_scalar(problem, 6) * (q[head] @ k[head, at].T))
            total = weights.sum(axis=1)
            out[head, part] = weights @ v[head, at] / total[:, None]
            logs[head, part] = np.log2(total)
    return {4: out, 5: logs}


def _spec(
    name: str,
    make: Callable[[int, bool], Problem],
    covers: str,
    block: int,
    reference: Callable[[Problem], dict[int, HostArray]],
    tolerance: float,
    shared: int = 0,
) -> KernelSpec:
    return suite_spec(
        name,
        make,
        covers,
        block,
        reference=reference,
        tolerance=tolerance,
        dynamic_shared_bytes=shared,
    )


DYNAMIC: tuple[KernelSpec, ...] = (
    _spec(
        "cardiac_ventricle",
        _cardiac_ventricle,
        "human ventricular cell, 41 states, double; 255 registers, spills",
        256,
        _ventricle_reference,
        1e-10,
    ),
    _spec(
        "fft_radix16",
        _fft_radix16,
        "Fourier transforms of 4096 points, double, (256, 3), dynamic shared",
        256,
        _fft_reference,
        1e-12,
        (4096 + 256) * 16,
    ),
    _spec(
        "small_cholesky",
        _small_cholesky,
        "12 x 12 Cholesky solves in registers, (128, 3), dynamic shared",
        128,
        _cholesky_reference,
        1e-11,
        128 * 13 * 8,
    ),
    _spec(
        "spectral_tensor",
        _spectral_tensor,
        "matrix-free elasticity of order 7, (256, 2), dynamic shared",
        256,
        _tensor_reference,
        1e-11,
        (1 + 4 * 9) * 8 * 9 * 8,
    ),
    _spec(
        "sgemm_tile",
        _sgemm_tile,
        "single-precision matrix product, (256, 2), dynamic shared",
        256,
        _sgemm_reference,
        1e-5,
        2 * 16 * (132 + 128) * 4,
    ),
    _spec(
        "ray_bvh",
        _ray_bvh,
        "path tracing, stack in local memory, (128, 10)",
        128,
        _ray_reference,
        0.02,
    ),
    _spec(
        "curve_add",
        _curve_add,
        "BLS12-381 bucket sums, 381-bit Montgomery, (128, 4)",
        128,
        _curve_reference,
        0.0,
    ),
    _spec(
        "attention_decode",
        _attention_decode,
        "one decoding step of grouped-query attention, half, (128, 3), dynamic shared",
        128,
        _attention_reference,
        1e-5,
        (8 * 8 * 128 + 2 * 8 * 8) * 4,
    ),
)
