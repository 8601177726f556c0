"""Ten kernels that between them use what a rewriter can stumble over.

Every input comes from a seed; sizes fill an H200 for several waves at full size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.suite.spec import (
    Dim3,
    KernelSpec,
    Problem,
    blocks_for,
    f32,
    i32,
    read,
    rng_for,
    u32,
    update,
    write,
)


def _bits(rng: np.random.Generator, *shape: int) -> NDArray[np.uint32]:
    return rng.integers(0, 1 << 32, shape, dtype=np.uint32)


def _gather(seed: int, small: bool) -> Problem:
    rng = rng_for("gather", seed)
    threads, table, steps = (2000, 1 << 12, 5) if small else (1 << 21, 1 << 26, 24)
    return Problem(
        blocks_for(threads, 256),
        (
            read(_bits(rng, table)),
            read(rng.random(36, dtype=np.float32)),
            write(np.float32, 4, threads),
            u32(table - 1),
            i32(steps),
            i32(threads),
        ),
    )


def _fp64_orbit(seed: int, small: bool) -> Problem:
    rng = rng_for("fp64_orbit", seed)
    n = 1000 if small else 1 << 20
    elements = rng.random((6, n))
    elements[0] += 0.5
    elements[1] *= 0.7
    elements[5] += 0.5
    return Problem(blocks_for(n, 256), (read(elements), write(np.float64, 9, n), i32(8), i32(n)))


def _block_moments(seed: int, small: bool) -> Problem:
    rng = rng_for("block_moments", seed)
    n = 2000 if small else 1 << 22
    grid = blocks_for(n, 256)
    return Problem(
        grid,
        (
            read(rng.random((7, n), dtype=np.float32) - np.float32(0.5)),
            write(np.float32, n),
            write(np.float32, grid[0], 35),
            i32(n),
        ),
    )


def _dynamic_window(seed: int, small: bool) -> Problem:
    rng = rng_for("dynamic_window", seed)
    n = 2000 if small else 1 << 21
    return Problem(
        blocks_for(n, 256),
        (read(rng.random(n, dtype=np.float32)), write(np.float32, 7, n), i32(n), i32(32)),
    )


def _jump_table(seed: int, small: bool) -> Problem:
    rng = rng_for("jump_table", seed)
    n, length = (2000, 40) if small else (1 << 20, 192)
    return Problem(
        blocks_for(n, 256),
        (
            read(_bits(rng, length)),
            i32(length),
            read(_bits(rng, 4, n)),
            read(_bits(rng, 1 << 20)),
            write(np.uint32, 8, n),
            i32(n),
        ),
    )


def _local_array(seed: int, small: bool) -> Problem:
    rng = rng_for("local_array", seed)
    n, count, points = (2000, 16, 1 << 10) if small else (1 << 20, 32, 1 << 22)
    return Problem(
        blocks_for(n, 256),
        (
            read(rng.random((points, 4), dtype=np.float32)),
            read(_bits(rng, count, n)),
            write(np.float32, 14, n),
            write(np.uint32, 10, n),
            i32(count),
            u32(points - 1),
            i32(n),
        ),
    )


def _tensor_mma(seed: int, small: bool) -> Problem:
    rng = rng_for("tensor_mma", seed)
    m, n, k = (256, 64, 64) if small else (6144, 4096, 512)
    return Problem(
        (n // 32, m // 256, 1),
        (
            read((rng.random((m, k), dtype=np.float32) - np.float32(0.5)).astype(np.float16)),
            read((rng.random((n, k), dtype=np.float32) - np.float32(0.5)).astype(np.float16)),
            write(np.float32, m, n),
            i32(n),
            i32(k),
        ),
    )


def _vector_atomic(seed: int, small: bool) -> Problem:
    rng = rng_for("vector_atomic", seed)
    n, table, rounds = (2000, 1 << 10, 6) if small else (1 << 20, 1 << 23, 16)
    return Problem(
        blocks_for(n, 256),
        (
            read(_bits(rng, n, 4)),
            read(_bits(rng, table, 4)),
            update(np.repeat(np.array([0, 0xFFFFFFFF, 0], np.uint32), [4096, 1024, 1024])),
            update(np.zeros(512, np.uint64)),
            write(np.uint32, 4 * n, 4),
            u32(table - 1),
            i32(rounds),
            i32(n),
        ),
    )


def _block3d(seed: int, small: bool) -> Problem:
    rng = rng_for("block3d", seed)
    nx, ny, nz = (36, 12, 8) if small else (260, 260, 132)
    fields = [read(rng.random((nz, ny, nx), dtype=np.float32)) for _ in range(5)]
    results = [write(np.float32, nz, ny, nx) for _ in range(3)]
    grid = ((nx - 4 + 31) // 32, (ny - 4 + 3) // 4, (nz - 4 + 1) // 2)
    return Problem(grid, (*fields, *results, i32(nx), i32(ny), i32(nz)))


def _recursive_call(seed: int, small: bool) -> Problem:
    rng = rng_for("recursive_call", seed)
    n, rounds = (2000, 2) if small else (1 << 20, 3)
    problems = rng.random((rounds, n, 4), dtype=np.float32)
    problems[..., 1] += problems[..., 0] + np.float32(0.5)
    return Problem(
        blocks_for(n, 256),
        (read(problems), write(np.float32, 4, n), f32(1e-3), i32(6), i32(rounds), i32(n)),
    )


def _own(
    name: str,
    make: Callable[[int, bool], Problem],
    covers: str,
    *,
    block: Dim3 = (256, 1, 1),
    dynamic_shared_bytes: int = 0,
    stack_bytes: int = 0,
) -> KernelSpec:
    return KernelSpec(
        name=name,
        source=f"ten/{name}.cu",
        kernel=name,
        block=block,
        make=make,
        covers=covers,
        dynamic_shared_bytes=dynamic_shared_bytes,
        stack_bytes=stack_bytes,
        group="ten",
    )


TEN: tuple[KernelSpec, ...] = (
    _own("gather", _gather, "latency-bound gather loop"),
    _own("fp64_orbit", _fp64_orbit, "FP64 division and square root, slow-path calls"),
    _own("block_moments", _block_moments, "static shared memory, barriers, shuffles"),
    _own("dynamic_window", _dynamic_window, "dynamic shared memory", dynamic_shared_bytes=1280),
    _own("jump_table", _jump_table, "jump table (BRX)"),
    _own("local_array", _local_array, "dynamically indexed local arrays"),
    _own("tensor_mma", _tensor_mma, "tensor-core mma"),
    _own("vector_atomic", _vector_atomic, "128-bit loads and atomics"),
    _own("block3d", _block3d, "three-dimensional block", block=(32, 4, 2)),
    _own("recursive_call", _recursive_call, "a real, recursive function call", stack_bytes=4096),
)
