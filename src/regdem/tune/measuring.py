"""The measuring itself, on one GPU, inside a process that may be lost.

Problem: is a variant's every output byte what the original's is, on several inputs, and how much
faster is it? A wrong answer to the first must be impossible, and of the second the noise known.

Method: buffers are allocated once and filled per seed. Before every checked launch outputs are
filled with 0xA5 and changed inputs put back, so that a word nobody writes compares equal and a
word only one of the two writes does not. The original runs twice per seed: outputs that differ
then (atomics in floating point, races) make comparison meaningless, and are reported. Arrays said
to be inputs are looked at after the original ran, since a launch that changes them can't be
repeated. Times are interleaved (`results.py`), on seed 0.

Invariants: contents live on the device for one seed at a time; expected outputs are kept on the
host up to `KEEP_BYTES` over all seeds and made again by the original beyond that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regdem.errors import InputError, RegdemError
from regdem.tune.clocks import Clocks, summary
from regdem.tune.launch import (
    Argument,
    DeviceArray,
    DriverError,
    Function,
    Gpu,
    Launch,
    time_interleaved,
)
from regdem.tune.problem import BufferArgument, HostArray, OneLaunch, Problem
from regdem.tune.results import Measurement, Opened
from regdem.tune.source import LaunchSource

FILL_BYTE = 0xA5
KEEP_BYTES = 4 << 30
"""Inputs and expected outputs kept on the host between variants, each."""
_SHOWN = 32
_OUT_OF_MEMORY = 2
_LEAST_MS = 0.5
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


class Bench:
    """One kernel on one GPU. `step(words)` is called before everything that may hang or fault."""

    def __init__(
        self,
        gpu: Gpu,
        source: LaunchSource,
        kernel: str,
        *,
        seeds: int,
        rounds: int,
        budget_ms: float,
        step: Step,
        clocks: Clocks | None = None,
        tolerance: float = 0.0,
    ) -> None:
        self._gpu = gpu
        self._source = source
        self._kernel = kernel
        self._seeds = seeds
        self._rounds = rounds
        self._budget_ms = budget_ms
        self._step = step
        self._clocks = clocks
        self._tolerance = tolerance
        self._problem: Problem = source.problem(0)
        self._inputs: dict[int, dict[int, HostArray]] = {}
        self._expected: dict[int, Outputs] = {}
        self._kept_bytes = 0
        self._arrays: list[DeviceArray] = []
        self._pristine: dict[int, DeviceArray] = {}
        self._loaded_seed: int | None = None
        self._original: Function | None = None

    # --- the original ---------------------------------------------------------------------------

    def open(self, original: bytes) -> Opened:
        """Loads the original, runs it on every seed, keeps what it writes.

        Raises InputError where the launch is no base for a comparison, DriverError where the
        original can't run.
        """
        if self._problem.stack_bytes:
            self._gpu.set_stack_bytes(self._problem.stack_bytes)
        self._allocate()
        self._step("load the original")
        self._original = self._load(original)
        for seed in reversed(range(self._seeds)):
            self._learn(seed)
        launch_ms = self._time_once()
        return Opened(self._facts(self._original), launch_ms, self._seeds)

    def _allocate(self) -> None:
        try:
            for number, buffer in enumerate(self._problem.buffers):
                self._arrays.append(self._gpu.allocate(buffer.nbytes))
                if buffer.role == "inout":
                    self._pristine[number] = self._gpu.allocate(buffer.nbytes)
        except DriverError as error:
            if error.result != _OUT_OF_MEMORY:
                raise
            raise InputError(
                f"the arrays ({self._problem.total_bytes} bytes) don't fit in the GPU's memory",
                hint="make them smaller",
                code="bad_launch",
            ) from error

    def _learn(self, seed: int) -> None:
        self._upload(seed)
        self._step(f"run the original on seed {seed}")
        self._run(self._function)
        expected = self._outputs()
        if seed == self._seeds - 1:
            self._check_declared(seed, expected)
        self._step(f"run the original again on seed {seed}")
        self._run(self._function)
        difference = first_difference(self._problem, expected, self._outputs())
        if difference is not None:
            raise InputError(
                f"two runs of the unmodified kernel differ in {difference['argument']} "
                f"({difference['different_bytes']} bytes), so outputs can't be compared",
                hint="leave that array out of the outputs, or make the kernel deterministic",
                code="not_deterministic",
                kernel=self._kernel,
            )
        size = sum(data.size for data in expected.values())
        if self._kept_bytes + size <= KEEP_BYTES:
            self._kept_bytes += size
            self._expected[seed] = expected

    def _check_declared(self, seed: int, outputs: Outputs) -> None:
        """The launch does something, and leaves alone what it is said to leave alone."""
        inputs = self._inputs_of(seed)
        for number, buffer in enumerate(self._problem.buffers):
            if buffer.role != "in":
                continue
            now = self._gpu.download(self._arrays[number])
            if not np.array_equal(now, inputs[number].view(np.uint8).reshape(-1)):
                raise InputError(
                    f"{buffer.name} is said to be an input, but the kernel changes it",
                    hint='say "output": "inout"',
                    code="bad_launch",
                    kernel=self._kernel,
                )
        for number, data in outputs.items():
            before: Any = FILL_BYTE
            if self._problem.buffers[number].role == "inout":
                before = inputs[number].view(np.uint8).reshape(-1)
            if np.any(data != before):
                return
        raise InputError(
            "the unmodified kernel writes none of the outputs",
            hint="check grid, block, sizes and the order of the arguments",
            code="bad_launch",
            kernel=self._kernel,
        )

    # --- variants -------------------------------------------------------------------------------

    def measure(self, cubin: bytes) -> Measurement:
        """Outputs on every seed, then times. Sticky driver errors are raised, others returned."""
        self._step("load")
        try:
            function = self._load(cubin)
        except DriverError as error:
            return self._failure("load", error)
        try:
            facts = self._facts(function)
            for seed in reversed(range(self._seeds)):
                difference = self._check(function, seed)
                if difference is not None:
                    where = difference["argument"]
                    return Measurement(
                        "different",
                        f"seed {seed}: {difference['different_bytes']} of {difference['bytes']} "
                        f"bytes of {where} differ",
                        self._seeds,
                        facts,
                        difference={"seed": seed, **difference},
                    )
            samples, clocks = self._time({"variant": function})
            return Measurement("identical", "", self._seeds, facts, samples, None, clocks)
        except DriverError as error:
            return self._failure("run", error)
        finally:
            self._unload(function)

    def compare(self, cubins: dict[str, bytes]) -> dict[str, list[float]]:
        """Times of several variants in the same rounds, with "original" and "again"."""
        functions: dict[str, Function] = {}
        try:
            for name, cubin in cubins.items():
                functions[name] = self._load(cubin)
            self._upload(0)
            samples, _ = self._time(functions)
            return samples
        finally:
            for function in functions.values():
                self._unload(function)

    def _failure(self, when: str, error: DriverError) -> Measurement:
        if error.sticky:
            raise error
        return Measurement("failed", f"{when}: {error.message}")

    def _check(self, function: Function, seed: int) -> dict[str, Any] | None:
        self._upload(seed)
        expected = self._expected.get(seed)
        if expected is None:
            self._step(f"run the original on seed {seed}")
            self._run(self._function)
            expected = self._outputs()
        self._step(f"run on seed {seed}")
        self._run(function)
        return first_difference(self._problem, expected, self._outputs(), self._tolerance)

    # --- on the device --------------------------------------------------------------------------

    @property
    def _function(self) -> Function:
        assert self._original is not None, "open() comes first"
        return self._original

    def _load(self, cubin: bytes) -> Function:
        return self._gpu.load(cubin, self._kernel, self._problem.dynamic_shared_bytes)

    def _unload(self, function: Function) -> None:
        try:
            self._gpu.unload(function)
        except RegdemError:
            return  # a lost context: whoever sees the first error ends the process

    def _facts(self, function: Function) -> dict[str, int]:
        x, y, z = self._problem.block
        return dict(vars(self._gpu.facts(function, x * y * z, self._problem.dynamic_shared_bytes)))

    def _inputs_of(self, seed: int) -> dict[int, HostArray]:
        known = self._inputs.get(seed)
        if known is not None:
            return known
        self._step(f"make the inputs of seed {seed}")
        problem = self._problem if seed == 0 else self._source.problem(seed)
        if problem.shape() != self._problem.shape():
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

    def _upload(self, seed: int) -> None:
        if self._loaded_seed == seed:
            return
        self._loaded_seed = None
        for number, data in self._inputs_of(seed).items():
            self._gpu.upload(self._arrays[number], data)
            if number in self._pristine:
                self._gpu.upload(self._pristine[number], data)
        self._loaded_seed = seed

    def _restore(self) -> None:
        for number, copy in self._pristine.items():
            self._gpu.copy(self._arrays[number], copy)

    def _run(self, function: Function) -> None:
        for number in self._problem.outputs:
            if number not in self._pristine:
                self._gpu.fill(self._arrays[number], FILL_BYTE)
        self._restore()
        for launch in self._launches(function):
            self._gpu.launch(launch)
        self._gpu.synchronise()

    def _outputs(self) -> Outputs:
        return {k: self._gpu.download(self._arrays[k]) for k in self._problem.outputs}

    def _launches(self, function: Function) -> tuple[Launch, ...]:
        return tuple(self._launch(function, each) for each in self._problem.launches)

    def _launch(self, function: Function, one: OneLaunch) -> Launch:
        arguments: list[Argument] = [
            self._arrays[each.index] if isinstance(each, BufferArgument) else pack_value(each.raw)
            for each in one.arguments
        ]
        return Launch(function, one.grid, one.block, one.dynamic_shared_bytes, tuple(arguments))

    # --- times ----------------------------------------------------------------------------------

    def _time_once(self) -> float:
        self._upload(0)
        self._step("time the original")
        timer = self._gpu.timer()
        try:
            times: list[float] = []
            for _ in range(2):
                self._restore()
                timer.start()
                for launch in self._launches(self._function):
                    self._gpu.launch(launch)
                timer.stop()
                times.append(timer.milliseconds())
            return min(times)
        finally:
            timer.close()

    def _time(
        self, functions: dict[str, Function]
    ) -> tuple[dict[str, list[float]], dict[str, Any]]:
        launches: dict[str, Sequence[Launch]] = {"original": self._launches(self._function)}
        launches |= {name: self._launches(function) for name, function in functions.items()}
        launches["again"] = launches["original"]
        readings: list[dict[str, Any]] = []

        def progress(turn: int) -> None:
            self._step(f"time, round {turn}")
            if self._clocks is not None and turn % 8 == 0:
                readings.append(self._clocks.read())

        self._step("time, first launches")
        timings = time_interleaved(
            self._gpu,
            launches,
            rounds=self._rounds,
            warm_up=2,
            before=(lambda _name: self._restore()) if self._pristine else None,
            least_ms=_LEAST_MS,
            limit_ms=self._budget_ms,
            progress=progress,
        )
        samples = {
            name: [round(sample, 6) for sample in timing.samples_ms]
            for name, timing in timings.items()
        }
        return samples, summary(readings)
