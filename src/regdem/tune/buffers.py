"""The buffers of a problem on a device: one seed's contents at a time, put back before each launch.

Invariants: before a compared launch every output byte is 0xA5 or, where the kernel reads the array
too, its first value; so a word nobody writes compares equal and a word only one kernel writes does
not. Host copies of inputs are kept up to `KEEP_BYTES` over all seeds, and made again beyond that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regdem.errors import InputError
from regdem.tune.launch import Argument, DeviceArray, DriverError, Function, Gpu, Launch
from regdem.tune.problem import BufferArgument, HostArray, OneLaunch, Problem
from regdem.tune.source import LaunchSource

FILL_BYTE = 0xA5
KEEP_BYTES = 4 << 30
"""Inputs kept on the host between variants, and as much again for expected outputs."""
_OUT_OF_MEMORY = 2
_SHOWN = 32
Outputs = dict[int, NDArray[np.uint8]]
Step = Callable[[str], None]


def pack_value(raw: bytes) -> np.generic:
    """Bytes passed by value, as the launch layer takes them."""
    return np.frombuffer(raw, dtype=np.dtype((np.void, len(raw))))[0]


def first_difference(
    problem: Problem, expected: Outputs, found: Outputs, tolerance: float = 0.0
) -> dict[str, Any] | None:
    """Where outputs differ: argument, bytes, and the first differing elements; None: nowhere.

    tolerance: relative difference up to which floating-point elements count as equal.
    """
    for number, wanted in expected.items():
        got = found[number]
        if np.array_equal(wanted, got):
            continue
        buffer = problem.buffers[number]
        if tolerance > 0 and _close(wanted, got, buffer.dtype, tolerance):
            continue
        places = np.flatnonzero(wanted != got)
        kind = np.dtype("u2" if buffer.dtype == "bfloat16" else buffer.dtype)
        elements = np.unique(places // kind.itemsize)[:_SHOWN]
        return {
            "argument": buffer.name,
            "dtype": buffer.dtype,
            "first_byte": int(places[0]),
            "different_bytes": int(places.size),
            "bytes": int(wanted.size),
            "elements": [
                {
                    "index": int(k),
                    "expected": _element(wanted, kind, int(k)),
                    "found": _element(got, kind, int(k)),
                }
                for k in elements
            ],
        }
    return None


def _close(wanted: NDArray[np.uint8], got: NDArray[np.uint8], dtype: str, tolerance: float) -> bool:
    """Whether all elements are equal, both no numbers, or within the tolerance of the larger."""
    if dtype == "bfloat16":
        pair = [data.view(np.uint16).astype(np.uint32) << np.uint32(16) for data in (wanted, got)]
        first, second = (bits.view(np.float32).astype(np.float64) for bits in pair)
    elif np.dtype(dtype).kind not in "fc":
        return False
    else:
        kind = np.dtype(dtype)
        exact = np.complex128 if kind.kind == "c" else np.float64
        first, second = (data.view(kind).astype(exact) for data in (wanted, got))
    with np.errstate(invalid="ignore"):
        near = np.abs(first - second) <= tolerance * np.maximum(np.abs(first), np.abs(second))
    return bool(np.all(near | (first == second) | (np.isnan(first) & np.isnan(second))))


def _element(data: NDArray[np.uint8], kind: np.dtype[Any], index: int) -> dict[str, str]:
    raw = data[index * kind.itemsize : (index + 1) * kind.itemsize].tobytes()
    value = np.frombuffer(raw, kind)[0]
    return {"hex": raw.hex(), "value": str(value)}


class Buffers:
    """Allocations for one problem. `step(words)` is called before what may take long."""

    def __init__(self, gpu: Gpu, source: LaunchSource, step: Step) -> None:
        self.problem: Problem = source.problem(0)
        self._gpu = gpu
        self._source = source
        self._step = step
        self._inputs: dict[int, dict[int, HostArray]] = {}
        self._arrays: list[DeviceArray] = []
        self._pristine: dict[int, DeviceArray] = {}
        self._loaded_seed: int | None = None

    @property
    def restores(self) -> bool:
        """Whether the kernel changes what it reads, so that a launch can't simply be repeated."""
        return bool(self._pristine)

    def allocate(self) -> None:
        """Takes the device memory. Raises InputError where there is not so much."""
        try:
            for number, buffer in enumerate(self.problem.buffers):
                self._arrays.append(self._gpu.allocate(buffer.nbytes))
                if buffer.role == "inout":
                    self._pristine[number] = self._gpu.allocate(buffer.nbytes)
        except DriverError as error:
            if error.result != _OUT_OF_MEMORY:
                raise
            raise InputError(
                f"the arrays ({self.problem.total_bytes} bytes) don't fit in the GPU's memory",
                hint="make them smaller",
                code="bad_launch",
            ) from error

    def inputs_of(self, seed: int) -> dict[int, HostArray]:
        """The first contents by buffer. Raises InputError where shapes depend on the seed."""
        known = self._inputs.get(seed)
        if known is not None:
            return known
        self._step(f"make the inputs of seed {seed}")
        problem = self.problem if seed == 0 else self._source.problem(seed)
        if problem.shape() != self.problem.shape():
            raise InputError(
                f"seed {seed} has other sizes or launch shapes than seed 0",
                hint="only contents may depend on the seed",
                code="bad_launch",
            )
        made = {
            number: buffer.contents()
            for number, buffer in enumerate(problem.buffers)
            if buffer.make is not None
        }
        size = sum(data.nbytes for data in made.values())
        held = sum(data.nbytes for each in self._inputs.values() for data in each.values())
        if held + size <= KEEP_BYTES:
            self._inputs[seed] = made
        return made

    def upload(self, seed: int) -> None:
        """The contents of a seed, unless they are there."""
        if self._loaded_seed == seed:
            return
        self._loaded_seed = None
        for number, data in self.inputs_of(seed).items():
            self._gpu.upload(self._arrays[number], data)
            if number in self._pristine:
                self._gpu.upload(self._pristine[number], data)
        self._loaded_seed = seed

    def restore(self) -> None:
        """Arrays that are read and written, as they were first."""
        for number, copy in self._pristine.items():
            self._gpu.copy(self._arrays[number], copy)

    def reset(self) -> None:
        """All that is compared: 0xA5 in every byte, or as it was first."""
        for number in self.problem.outputs:
            if number not in self._pristine:
                self._gpu.fill(self._arrays[number], FILL_BYTE)
        self.restore()

    def download(self, number: int) -> NDArray[np.uint8]:
        """The bytes of one buffer."""
        return self._gpu.download(self._arrays[number])

    def outputs(self) -> Outputs:
        """The bytes of all that is compared, by buffer number."""
        return {number: self.download(number) for number in self.problem.outputs}

    def launches(self, function: Function) -> tuple[Launch, ...]:
        """The problem's launches of one function."""
        return tuple(self._launch(function, each) for each in self.problem.launches)

    def _launch(self, function: Function, one: OneLaunch) -> Launch:
        arguments: list[Argument] = [
            self._arrays[each.index] if isinstance(each, BufferArgument) else pack_value(each.raw)
            for each in one.arguments
        ]
        return Launch(function, one.grid, one.block, one.dynamic_shared_bytes, tuple(arguments))
