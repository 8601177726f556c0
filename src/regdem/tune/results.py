"""What measuring a variant gives, and what its times say.

Times of one session are taken in rounds: the original, the variant, the original again, forward
and backward in turn. Each round gives one ratio, the mean of the two originals over the variant,
so drifts of the clock cancel. The speed-up is the median ratio; its interval is that of the sign
test (ranks of a binomial distribution, at least 95 % where there are 6 rounds or more), which
assumes nothing about how times are distributed. The *noise* is what the same measure says of the
original against itself: the further end of that interval from 1.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

Status = Literal["identical", "different", "failed"]
CONFIDENCE = 0.95
LEAST_NOISE = 0.005
"""Gains below half a percent count as noise even where the original repeats better than that."""


def sets_of_inputs(count: int) -> str:
    """The number in words that read well."""
    return "1 set of inputs" if count == 1 else f"{count} sets of inputs"


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the median with `CONFIDENCE`; with under 6 values, their range."""
    ordered = sorted(values)
    count = len(ordered)
    if not count:
        raise ValueError("no values")
    tail, rank = 0.0, 0
    while rank < count // 2:
        tail += math.comb(count, rank) / 2**count
        if tail > (1 - CONFIDENCE) / 2:
            break
        rank += 1
    rank = max(rank - 1, 0)
    return ordered[rank], ordered[count - 1 - rank]


@dataclass(frozen=True)
class Comparison:
    """A variant against the original in one session (times in ms, ratios above 1 are faster)."""

    original_ms: float
    variant_ms: float
    speedup: float
    low: float
    high: float
    noise: float
    rounds: int

    @classmethod
    def of(
        cls, original: Sequence[float], again: Sequence[float], variant: Sequence[float]
    ) -> Comparison:
        """From samples of the same rounds. Raises ValueError without samples."""
        rows = list(zip(original, again, variant, strict=True))
        ratios = [(first + second) / 2 / max(own, 1e-9) for first, second, own in rows]
        same = [first / max(second, 1e-9) for first, second, _ in rows]
        low, high = median_interval(ratios)
        own_low, own_high = median_interval(same)
        return cls(
            original_ms=statistics.median([*original, *again]),
            variant_ms=statistics.median(variant),
            speedup=statistics.median(ratios),
            low=low,
            high=high,
            noise=max(own_high - 1, 1 - own_low, 0.0),
            rounds=len(rows),
        )

    @property
    def is_faster(self) -> bool:
        """Whether the variant beats the original by more than the noise."""
        return self.low > 1 + max(self.noise, LEAST_NOISE)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "original_ms": round(self.original_ms, 6),
            "variant_ms": round(self.variant_ms, 6),
            "speedup": round(self.speedup, 4),
            "speedup_interval": [round(self.low, 4), round(self.high, 4)],
            "noise": round(self.noise, 4),
            "rounds": self.rounds,
        }


@dataclass(frozen=True)
class Measurement:
    """One variant on one GPU: equal outputs or not, what the driver says of it, and times.

    `samples_ms` holds the rounds of "original", "again" and "variant". `difference` says where
    outputs differ first, for a variant that is "different"; `reason` why one "failed".
    """

    status: Status
    reason: str = ""
    seeds: int = 0
    facts: dict[str, int] = field(default_factory=dict[str, int])
    samples_ms: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    difference: dict[str, Any] | None = None
    clocks: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def comparison(self) -> Comparison | None:
        """The times against the original; None for a variant that was not timed."""
        samples = self.samples_ms
        if self.status != "identical" or not samples.get("variant"):
            return None
        return Comparison.of(samples["original"], samples["again"], samples["variant"])

    def to_dict(self) -> dict[str, Any]:
        """Everything, as stored."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Measurement:
        """The inverse of `to_dict`."""
        return cls(**value)


@dataclass(frozen=True)
class Opened:
    """A GPU ready to measure: the original runs, is deterministic, and takes `launch_ms`."""

    facts: dict[str, int]
    launch_ms: float
    seeds: int


class Device(Protocol):
    """What measures: a GPU behind a process of its own, or a stand-in of a test.

    Methods are called from one thread. Failures of a variant are results; what is raised ends the
    tuning on this device: RegdemError with code `launch_failed` where the original itself can't be
    measured, `gpu_lost` where the device does not come back.
    """

    @property
    def label(self) -> str:
        """A short name for progress lines, as `gpu 0`."""
        ...

    def start(self) -> dict[str, Any]:
        """Facts of the GPU: `name`, `compute_capability`, driver and clocks.

        Raises RegdemError (code `no_gpu`) where there is none.
        """
        ...

    def open(self, original: bytes) -> Opened:
        """Loads the original, makes the inputs, and keeps the expected outputs."""
        ...

    def measure(self, name: str, cubin: bytes) -> Measurement:
        """Compares a variant's outputs and times it against the original."""
        ...

    def compare(self, variants: dict[str, bytes]) -> dict[str, list[float]]:
        """Times of several variants in the same rounds, with "original" and "again"."""
        ...

    def close(self) -> None:
        """Ends it. May be called twice."""
        ...
