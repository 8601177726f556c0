"""Measures the builds of a study on a GPU, by tune's measuring process and ncu.

Problem: whether builds compute the same, and how fast each is, under the same conditions.

Method: the first build is the reference. Every other one is launched on the same inputs, of every
seed, and its outputs compared; then all that agree are timed in the same interleaved rounds, the
first build twice, so that its difference from itself shows the noise. Counters come from ncu, if it
is found and the driver permits them: each build launched once more under it. The launch is tune's
(`regdem.tune.spec`), and so is the process that may die of a faulting kernel.

Not claimed: counters of more than the first launch of a sequence.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from regdem.errors import RegdemError
from regdem.machine import BlockShape
from regdem.study.counters import counters_of
from regdem.study.measured import Measurement, Times
from regdem.study.run import Measured
from regdem.tune.process import GpuProcess, Settings
from regdem.tune.results import Measurement as TuneMeasurement
from regdem.tune.results import Opened
from regdem.tune.source import open_launch

NO_GPU = "no GPU here"


class MeasuringDevice(Protocol):
    """What of tune's devices a study needs (`regdem.tune.results.Device`)."""

    def start(self) -> dict[str, Any]:
        """Facts of the GPU. Raises RegdemError (`no_gpu`)."""
        ...

    def open(self, original: bytes) -> Opened:
        """Runs the first build."""
        ...

    def measure(self, name: str, cubin: bytes) -> TuneMeasurement:
        """Compares another build with it."""
        ...

    def compare(self, variants: dict[str, bytes]) -> dict[str, list[float]]:
        """Times builds in the same rounds, the first as "original" and "again"."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class GpuMeasurer:
    """One launch on one GPU. Raises InputError or UsageError for a launch that can't be read.

    `device` and `counters` take the place of a GPU's process and of ncu in tests.
    """

    def __init__(
        self,
        launch: str,
        *,
        gpu: int = 0,
        rounds: int = 25,
        seeds: int = 3,
        tolerance: float = 0.0,
        device: Callable[[Settings], MeasuringDevice] | None = None,
        counters: Callable[..., tuple[dict[str, dict[str, float]], str | None]] = counters_of,
    ) -> None:
        self._source = open_launch(launch)
        self._problem = self._source.problem(0)
        self._gpu = gpu
        self._rounds = rounds
        self._seeds = seeds if self._source.varies else 1
        self._tolerance = tolerance
        self._device = device
        self._counters = counters

    @property
    def block(self) -> BlockShape:
        """Threads per block of the launch."""
        return BlockShape(*self._problem.block)

    @property
    def dynamic_shared_bytes(self) -> int:
        """Dynamic shared memory of the launch."""
        return self._problem.dynamic_shared_bytes

    def measure(self, kernel: str, cubins: Mapping[str, bytes]) -> Measured:
        """Runs all builds; without a GPU says so. Raises RegdemError where the first can't run."""
        settings = Settings(
            launch=self._source.text,
            kernel=kernel,
            seeds=self._seeds,
            rounds=self._rounds,
            tolerance=self._tolerance,
        )
        make = self._device
        device = GpuProcess(self._gpu, settings) if make is None else make(settings)
        try:
            facts = device.start()
        except RegdemError as error:
            device.close()
            if error.code != "no_gpu":
                raise
            return Measured({}, None, NO_GPU, NO_GPU)
        try:
            found, noise = self._all(device, cubins)
        finally:
            device.close()
        counted, reason = self._counters(
            self._source.text, kernel, {name: cubins[name] for name in found}, self._gpu
        )
        for name, counters in counted.items():
            old = found[name]
            found[name] = Measurement(
                old.correct, old.outputs, old.times, old.active_blocks, counters
            )
        return Measured(found, facts, None, reason, noise)

    def _all(
        self, device: MeasuringDevice, cubins: Mapping[str, bytes]
    ) -> tuple[dict[str, Measurement], float]:
        names = list(cubins)
        first = device.open(cubins[names[0]])
        status: dict[str, TuneMeasurement] = {
            name: device.measure(name, cubins[name]) for name in names[1:]
        }
        same = [name for name in names[1:] if status[name].status == "identical"]
        samples = device.compare({name: cubins[name] for name in same})
        found = {
            names[0]: Measurement(
                True,
                f"the reference, on {first.seeds} input set{'' if first.seeds == 1 else 's'}",
                _times([*samples["original"], *samples["again"]]),
                first.facts.get("active_blocks"),
            )
        }
        words = (
            f"within {self._tolerance:g} of the first build's, relatively"
            if self._tolerance
            else "the first build's, byte for byte"
        )
        for name in names[1:]:
            one = status[name]
            correct = one.status == "identical"
            found[name] = Measurement(
                correct,
                words if correct else f"{one.status}: {one.reason}",
                _times(samples[name]) if name in samples else None,
                one.facts.get("active_blocks"),
            )
        noise = statistics.median(samples["original"]) / statistics.median(samples["again"])
        return found, abs(noise - 1)


def _times(samples: Sequence[float]) -> Times | None:
    if not samples:
        return None
    ordered = sorted(samples)
    last = len(ordered) - 1
    return Times(
        median_ms=statistics.median(ordered),
        p10_ms=ordered[round(0.1 * last)],
        p90_ms=ordered[round(0.9 * last)],
        samples_ms=tuple(samples),
    )
