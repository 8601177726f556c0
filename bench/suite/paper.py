"""The paper's nine benchmarks, written from their algorithms, with inputs that fill an H200."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from bench.suite.spec import (
    Array,
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


def array_of(problem: Problem, position: int) -> HostArray:
    """The input data of an argument."""
    argument = problem.arguments[position]
    assert isinstance(argument, Array)
    assert argument.data is not None
    return argument.data


def near(rng: np.random.Generator, count: int, length: int, spread: int) -> NDArray[np.int32]:
    """`length` neighbours of each of `count` items, within `spread` of it (wrapped)."""
    lists = rng.integers(1, min(spread, count), (length, count), dtype=np.int32)
    lists += np.arange(count, dtype=np.int32)
    np.subtract(lists, count, out=lists, where=lists >= count)
    return lists


def embedded(rng: np.random.Generator, count: int, dimensions: int) -> NDArray[np.float32]:
    """Points near a three-dimensional surface of a higher space, as real data lie."""
    hidden = rng.random((count, 3), dtype=np.float32)
    spread = np.random.default_rng(7).random((3, dimensions), dtype=np.float32)
    return hidden @ spread + rng.random((count, dimensions), dtype=np.float32) * np.float32(0.05)


def kd_order(points: NDArray[np.float32]) -> NDArray[np.int64]:
    """A balanced k-d tree of 2^k - 1 points in heap order: the point index of every node."""
    count, dimensions = points.shape
    tree = np.empty(count, np.int64)
    level = np.arange(count)[None, :]
    first, depth = 0, 0
    while level.shape[1] >= 1:
        axis = depth % dimensions
        order = np.argsort(points[level, axis], axis=1, kind="stable")
        level = np.take_along_axis(level, order, axis=1)
        middle = level.shape[1] // 2
        tree[first : first + level.shape[0]] = level[:, middle]
        first += level.shape[0]
        depth += 1
        if level.shape[1] == 1:
            break
        left, right = level[:, :middle], level[:, middle + 1 :]
        level = np.stack([left, right], axis=1).reshape(-1, middle)
    return tree


def vp_order(points: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """A balanced vantage-point tree of 2^k - 1 points in heap order, and every node's radius."""
    count = points.shape[0]
    tree = np.empty(count, np.int64)
    radius = np.zeros(count, np.float32)
    level = np.arange(count)[None, :]
    first = 0
    while True:
        tree[first : first + level.shape[0]] = level[:, 0]
        if level.shape[1] == 1:
            return tree, radius
        rest = level[:, 1:]
        gaps = points[rest] - points[level[:, :1]]
        distance = np.sqrt(np.sum(gaps * gaps, axis=2, dtype=np.float64))
        order = np.argsort(distance, axis=1, kind="stable")
        rest = np.take_along_axis(rest, order, axis=1)
        distance = np.take_along_axis(distance, order, axis=1)
        half = rest.shape[1] // 2
        middle = 0.5 * (distance[:, half - 1] + distance[:, half])
        radius[first : first + level.shape[0]] = middle
        first += level.shape[0]
        level = np.stack([rest[:, :half], rest[:, half:]], axis=1).reshape(-1, half)


def _euler_flux(seed: int, small: bool) -> Problem:
    rng = rng_for("euler_flux", seed)
    n = 1000 if small else 1 << 20
    neighbours = near(rng, n, 4, 400)
    edge = rng.random((4, n), dtype=np.float32)
    neighbours[edge < 0.02] = -1
    neighbours[edge > 0.98] = -2
    variables = rng.random((5, n), dtype=np.float32)
    variables[0] += 0.5
    variables[4] += 3.0
    far = np.array([1.4, 1.2, 0.1, 0.0, 3.2, 1.0], np.float32)
    return Problem(
        blocks_for(n, 192),
        (
            i32(n),
            read(neighbours),
            read(rng.random((12, n), dtype=np.float32) - np.float32(0.5)),
            read(variables),
            read(far),
            write(np.float32, 5, n),
        ),
    )


def _quality_cluster(seed: int, small: bool) -> Problem:
    rng = rng_for("quality_cluster", seed)
    seeds = 32 if small else 1 << 15
    points = rng.random((seeds, 2), dtype=np.float32)
    lists = rng.integers(0, seeds, (seeds, 512), dtype=np.int32)
    return Problem(
        (seeds, 1, 1),
        (
            read(points),
            read(lists),
            write(np.int32, seeds),
            write(np.float32, seeds),
            f32(0.45),
            i32(48),
        ),
    )


def _md5_search(seed: int, small: bool) -> Problem:
    rng = rng_for("md5_search", seed)
    n, rounds = (2000, 2) if small else (1 << 22, 8)
    base = rng.integers(0, 1 << 32, 4, dtype=np.uint32)
    wanted = rng.integers(0, 1 << 32, (4, 4), dtype=np.uint32)
    key = base.copy()
    key[0] += np.uint32(n // 2)
    wanted[0] = np.frombuffer(hashlib.md5(key.tobytes()).digest(), np.uint32)
    return Problem(
        blocks_for(n, 256),
        (
            read(base),
            read(wanted),
            i32(4),
            i32(rounds),
            update(np.full(4, 0xFFFFFFFF, np.uint32)),
            write(np.uint32, n),
            i32(n),
        ),
    )


def _md5_reference(problem: Problem) -> dict[int, HostArray]:
    found = np.full(4, 0xFFFFFFFF, np.uint32)
    count = problem.arguments[6]
    assert isinstance(count, np.generic)
    found[0] = int(count) // 2
    return {4: found}


def _lennard_jones(seed: int, small: bool) -> Problem:
    rng = rng_for("lennard_jones", seed)
    n, length = (1000, 16) if small else (1 << 20, 48)
    table = np.array([48, 24, 4, 4, 40, 22, 3.5, 3.7, 36, 20, 3, 3.3], np.float64)
    return Problem(
        blocks_for(n, 256),
        (
            read(rng.random((3, n)) * 12.0),
            read(near(rng, n, length, 2000)),
            read(rng.integers(0, 2, n, dtype=np.int32)),
            read(table),
            write(np.float64, 3, n),
            write(np.float64, 2, n),
            f64(40.0),
            i32(length),
            i32(n),
        ),
    )


def _lennard_jones_reference(problem: Problem) -> dict[int, HostArray]:
    position, lists = array_of(problem, 0), array_of(problem, 1)
    kinds, table = array_of(problem, 2), array_of(problem, 3).reshape(3, 4)
    gap = position[:, None, :] - position[:, lists]
    r2 = np.sum(gap * gap, axis=0)
    c = table[kinds[None, :] + kinds[lists]]
    inside = r2 < 40.0
    inv2 = 1.0 / r2
    inv6 = inv2**3
    f = np.where(inside, inv2 * inv6 * (c[..., 0] * inv6 - c[..., 1]), 0.0)
    return {4: np.sum(f * gap, axis=1)}


def _recursive_gaussian(seed: int, small: bool) -> Problem:
    rng = rng_for("recursive_gaussian", seed)
    width, height = (512, 32) if small else (1 << 20, 24)
    image = rng.integers(0, 1 << 32, (height, width), dtype=np.uint32)
    sigma = 5.0
    alpha = 1.695 / sigma
    ema, ema2 = np.exp(-alpha), np.exp(-2 * alpha)
    k = (1 - ema) ** 2 / (1 + 2 * alpha * ema - ema2)
    a0, a1 = k, k * (alpha - 1) * ema
    a2, a3 = k * (alpha + 1) * ema, -k * ema2
    b1, b2 = -2 * ema, ema2
    left, right = (a0 + a1) / (1 + b1 + b2), (a2 + a3) / (1 + b1 + b2)
    numbers = [f32(value) for value in (a0, a1, a2, a3, b1, b2, left, right)]
    return Problem(
        blocks_for(width, 64),
        (read(image), write(np.uint32, height, width), i32(width), i32(height), *numbers),
    )


def _convolution_columns(seed: int, small: bool) -> Problem:
    rng = rng_for("convolution_columns", seed)
    width, height = (64, 128) if small else (6144, 4096)
    taps = rng.random(17, dtype=np.float32)
    return Problem(
        (width // 16, height // 64, 1),
        (
            read(rng.random((height, width), dtype=np.float32)),
            read(taps / taps.sum()),
            write(np.float32, height, width),
            i32(width),
            i32(height),
        ),
    )


def _convolution_reference(problem: Problem) -> dict[int, HostArray]:
    image, taps = array_of(problem, 0).astype(np.float64), array_of(problem, 1)
    height = image.shape[0]
    padded = np.pad(image, ((8, 8), (0, 0)))
    total = sum(float(taps[8 - k]) * padded[8 + k : 8 + k + height] for k in range(-8, 9))
    return {2: np.asarray(total)}


def _kd_nearest(seed: int, small: bool) -> Problem:
    rng = rng_for("kd_nearest", seed)
    nodes, n = ((1 << 9) - 1, 500) if small else ((1 << 15) - 1, 1 << 20)
    points = embedded(rng, nodes, 7)
    tree = points[kd_order(points)]
    return Problem(
        blocks_for(n, 192),
        (
            read(tree.T.copy()),
            i32(nodes),
            read(embedded(rng, n, 7).T.copy()),
            write(np.int32, n),
            write(np.float32, n),
            i32(n),
        ),
    )


def _kd_reference(problem: Problem) -> dict[int, HostArray]:
    tree, queries = array_of(problem, 0), array_of(problem, 2)
    gap = tree[:, None, :].astype(np.float64) - queries[:, :, None]
    return {4: np.min(np.sum(gap * gap, axis=0), axis=1)}


def _two_point(seed: int, small: bool) -> Problem:
    rng = rng_for("two_point", seed)
    nodes, n = ((1 << 9) - 1, 500) if small else ((1 << 12) - 1, 1 << 19)
    points = rng.random((nodes, 3), dtype=np.float32)
    tree = points[kd_order(points)]
    low, high = tree.copy(), tree.copy()
    counts = np.ones(nodes, np.int32)
    for node in range(nodes // 2 - 1, -1, -1):
        for child in (2 * node + 1, 2 * node + 2):
            low[node] = np.minimum(low[node], low[child])
            high[node] = np.maximum(high[node], high[child])
            counts[node] += counts[child]
    queries = rng.random((n, 3), dtype=np.float32)
    queries = queries[np.argsort(np.floor(queries[:, 0] * 16) * 16 + queries[:, 1] * 16)]
    wide = [np.pad(data, ((0, 0), (0, 1))) for data in (tree, low, high, queries)]
    radii = np.linspace(0.02, 0.16, 8, dtype=np.float32) ** 2
    return Problem(
        blocks_for(n, 256),
        (
            read(wide[0]),
            read(wide[1]),
            read(wide[2]),
            read(counts),
            i32(nodes),
            read(wide[3]),
            read(radii),
            write(np.int32, 8, n),
            i32(n),
        ),
    )


def _two_point_reference(problem: Problem) -> dict[int, HostArray]:
    tree, queries, radii = (array_of(problem, k) for k in (0, 5, 6))
    gap = tree[None, :, :3].astype(np.float64) - queries[:, None, :3]
    d2 = np.sum(gap * gap, axis=2)
    return {7: np.stack([np.sum(d2 <= r, axis=1) for r in radii])}


def _vp_search(seed: int, small: bool) -> Problem:
    rng = rng_for("vp_search", seed)
    nodes, n = ((1 << 9) - 1, 500) if small else ((1 << 14) - 1, 1 << 20)
    points = embedded(rng, nodes, 8)
    tree, radius = vp_order(points)
    points = points[tree]
    queries = embedded(rng, n, 8)
    return Problem(
        blocks_for(n, 256),
        (
            read(points[:, :4].copy()),
            read(points[:, 4:].copy()),
            read(radius),
            i32(nodes),
            read(queries[:, :4].copy()),
            read(queries[:, 4:].copy()),
            write(np.int32, n, 4),
            write(np.float32, n, 4),
            i32(n),
        ),
    )


def _vp_reference(problem: Problem) -> dict[int, HostArray]:
    points = np.hstack([array_of(problem, 0), array_of(problem, 1)]).astype(np.float64)
    queries = np.hstack([array_of(problem, 4), array_of(problem, 5)])
    gap = points[None, :, :] - queries[:, None, :]
    distance = np.sqrt(np.sum(gap * gap, axis=2))
    return {7: np.sort(distance, axis=1)[:, :4]}


PAPER: tuple[KernelSpec, ...] = (
    suite_spec("euler_flux", _euler_flux, "unstructured-mesh Euler flux", 192),
    suite_spec("quality_cluster", _quality_cluster, "quality-threshold clustering", 64),
    suite_spec("md5_search", _md5_search, "MD5 key search", 256, reference=_md5_reference),
    suite_spec(
        "lennard_jones",
        _lennard_jones,
        "Lennard-Jones with neighbour lists, double",
        256,
        reference=_lennard_jones_reference,
        tolerance=1e-9,
    ),
    suite_spec("recursive_gaussian", _recursive_gaussian, "recursive Gaussian", 64),
    suite_spec(
        "convolution_columns",
        _convolution_columns,
        "separable convolution, columns",
        (16, 8, 1),
        reference=_convolution_reference,
    ),
    suite_spec(
        "kd_nearest", _kd_nearest, "k-d tree nearest neighbour, 7-d", 192, reference=_kd_reference
    ),
    suite_spec(
        "two_point",
        _two_point,
        "two-point correlation on a k-d tree",
        256,
        reference=_two_point_reference,
        tolerance=0.02,
    ),
    suite_spec("vp_search", _vp_search, "vantage-point tree search", 256, reference=_vp_reference),
)
