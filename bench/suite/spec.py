"""What a benchmark kernel is: source, launch shape, generated inputs, outputs to compare.

A `KernelSpec` is data plus one function that makes the inputs from a seed. The same value serves
the builder (which needs the source and the block), the runner (which needs arguments) and the
tests (which need the small size and the reference).

Invariants: a problem is a pure function of (seed, small); outputs are filled with a fixed byte
before every launch unless they are `inout`, so a word nobody writes compares equal and a word
only one variant writes does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

HostArray = NDArray[Any]
Dim3 = tuple[int, int, int]
Role = Literal["in", "out", "inout"]


@dataclass(frozen=True)
class Array:
    """A device buffer: `data` for "in" and "inout"; for "out" only its type and shape count."""

    role: Role
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: HostArray | None = None

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


Argument = Array | np.generic


def read(data: HostArray) -> Array:
    """A buffer the kernel only reads."""
    return Array("in", data.dtype, data.shape, np.ascontiguousarray(data))


def update(data: HostArray) -> Array:
    """A buffer the kernel reads and writes; restored before every launch, compared after it."""
    return Array("inout", data.dtype, data.shape, np.ascontiguousarray(data))


def write(dtype: Any, *shape: int) -> Array:
    """A buffer the kernel writes; compared after the launch."""
    return Array("out", np.dtype(dtype), tuple(shape))


def i32(value: int) -> np.generic:
    return np.int32(value)


def u32(value: int) -> np.generic:
    return np.uint32(value)


def f32(value: float) -> np.generic:
    return np.float32(value)


def f64(value: float) -> np.generic:
    return np.float64(value)


@dataclass(frozen=True)
class Problem:
    """One launch's grid and arguments, in the order of the kernel's parameters."""

    grid: Dim3
    arguments: tuple[Argument, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        """Positions of the arguments that are compared."""
        return tuple(
            k
            for k, argument in enumerate(self.arguments)
            if isinstance(argument, Array) and argument.role != "in"
        )


Reference = Callable[[Problem], dict[int, HostArray]]
"""Expected outputs by argument position, computed with numpy (float64 where that helps)."""


@dataclass(frozen=True)
class KernelSpec:
    """A kernel to measure.

    `source` is relative to `bench/kernels`; `block` is the launch's block; `make(seed, small)`
    generates a problem: full size fills an H200 for many waves, small size is for sanitizers and
    references. `tolerance` is the relative error (of the largest magnitude of an output) the
    reference may differ by.
    """

    name: str
    source: str
    kernel: str
    block: Dim3
    make: Callable[[int, bool], Problem]
    covers: str
    dynamic_shared_bytes: int = 0
    nvcc_flags: tuple[str, ...] = ()
    stack_bytes: int = 0
    reference: Reference | None = None
    tolerance: float = 1e-4
    group: str = "own"

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


def rng_for(name: str, seed: int) -> np.random.Generator:
    """The generator of a kernel's inputs: the same on every machine."""
    return np.random.default_rng([seed, *name.encode()])


def blocks_for(count: int, threads: int) -> Dim3:
    """A one-dimensional grid of enough blocks for `count` threads."""
    return ((count + threads - 1) // threads, 1, 1)


def suite_spec(
    name: str,
    make: Callable[[int, bool], Problem],
    covers: str,
    block: int | Dim3,
    *,
    reference: Reference | None = None,
    tolerance: float = 1e-4,
    dynamic_shared_bytes: int = 0,
) -> KernelSpec:
    """A kernel of the suite: its file and entry carry its name."""
    return KernelSpec(
        name=name,
        source=f"suite/{name}.cu",
        kernel=name,
        block=(block, 1, 1) if isinstance(block, int) else block,
        make=make,
        covers=covers,
        reference=reference,
        tolerance=tolerance,
        dynamic_shared_bytes=dynamic_shared_bytes,
        group="suite",
    )
