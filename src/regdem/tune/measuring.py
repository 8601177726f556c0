"""The measuring itself, on one GPU, inside a process that may be lost.

Problem: is a variant's every output byte what the original's is, on several inputs, and how much
faster is it? A wrong answer to the first must be impossible, and of the second the noise known.

Method: the original runs twice per seed: outputs that differ then (atomics in floating point,
races) make comparison meaningless, and are reported. Arrays said to be inputs are looked at after
the original ran, since a launch that changes them can't be repeated. Then each variant runs on
every seed, from the same contents (`buffers.py`). Times are interleaved (`results.py`), on seed 0.

Invariants: expected outputs are kept on the host up to `KEEP_BYTES` over all seeds, and made again
by the original beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regdem.errors import InputError, RegdemError
from regdem.tune.buffers import (
    FILL_BYTE,
    KEEP_BYTES,
    Buffers,
    Outputs,
    Step,
    first_difference,
    pack_value,
)
from regdem.tune.clocks import Clocks, summary
from regdem.tune.interleave import time_interleaved
from regdem.tune.launch import DriverError, Function, Gpu, Launch
from regdem.tune.results import Measurement, Opened
from regdem.tune.source import LaunchSource

_LEAST_MS = 0.5


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
        self._kernel = kernel
        self._seeds = seeds
        self._rounds = rounds
        self._budget_ms = budget_ms
        self._step = step
        self._clocks = clocks
        self._tolerance = tolerance
        self._buffers = Buffers(gpu, source, step)
        self._problem = self._buffers.problem
        self._expected: dict[int, Outputs] = {}
        self._kept_bytes = 0
        self._original: Function | None = None

    # --- the original ---------------------------------------------------------------------------

    def open(self, original: bytes) -> Opened:
        """Loads the original, runs it on every seed, keeps what it writes.

        Raises InputError where the launch is no base for a comparison, DriverError where the
        original can't run.
        """
        if self._problem.stack_bytes:
            self._gpu.set_stack_bytes(self._problem.stack_bytes)
        self._buffers.allocate()
        self._step("load the original")
        self._original = self._load(original)
        for seed in reversed(range(self._seeds)):
            self._learn(seed)
        launch_ms = self._time_once()
        return Opened(self._facts(self._original), launch_ms, self._seeds)

    def _learn(self, seed: int) -> None:
        self._buffers.upload(seed)
        self._step(f"run the original on seed {seed}")
        self._run(self._function)
        expected = self._buffers.outputs()
        if seed == self._seeds - 1:
            self._check_declared(seed, expected)
        self._step(f"run the original again on seed {seed}")
        self._run(self._function)
        difference = first_difference(self._problem, expected, self._buffers.outputs())
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
        inputs = self._buffers.inputs_of(seed)
        for number, buffer in enumerate(self._problem.buffers):
            if buffer.role != "in":
                continue
            now = self._buffers.download(number)
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
            self._buffers.upload(0)
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
        self._buffers.upload(seed)
        expected = self._expected.get(seed)
        if expected is None:
            self._step(f"run the original on seed {seed}")
            self._run(self._function)
            expected = self._buffers.outputs()
        self._step(f"run on seed {seed}")
        self._run(function)
        return first_difference(self._problem, expected, self._buffers.outputs(), self._tolerance)

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

    def _run(self, function: Function) -> None:
        self._buffers.reset()
        for launch in self._buffers.launches(function):
            self._gpu.launch(launch)
        self._gpu.synchronise()

    # --- times ----------------------------------------------------------------------------------

    def _time_once(self) -> float:
        self._buffers.upload(0)
        self._step("time the original")
        timer = self._gpu.timer()
        try:
            times: list[float] = []
            for _ in range(2):
                self._buffers.restore()
                timer.start()
                for launch in self._buffers.launches(self._function):
                    self._gpu.launch(launch)
                timer.stop()
                times.append(timer.milliseconds())
            return min(times)
        finally:
            timer.close()

    def _time(
        self, functions: dict[str, Function]
    ) -> tuple[dict[str, list[float]], dict[str, Any]]:
        launches: dict[str, Sequence[Launch]] = {"original": self._buffers.launches(self._function)}
        launches |= {name: self._buffers.launches(function) for name, function in functions.items()}
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
            before=(lambda _name: self._buffers.restore()) if self._buffers.restores else None,
            least_ms=_LEAST_MS,
            limit_ms=self._budget_ms,
            progress=progress,
        )
        samples = {
            name: [round(sample, 6) for sample in timing.samples_ms]
            for name, timing in timings.items()
        }
        return samples, summary(readings)


__all__ = ["FILL_BYTE", "Bench", "pack_value"]
