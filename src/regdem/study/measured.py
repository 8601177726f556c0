"""What a GPU said of one build: outputs, times, residency, counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Times:
    """Times of one build in milliseconds, over rounds interleaved with the other builds."""

    median_ms: float
    p10_ms: float
    p90_ms: float
    samples_ms: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "median_ms": round(self.median_ms, 6),
            "p10_ms": round(self.p10_ms, 6),
            "p90_ms": round(self.p90_ms, 6),
            "samples_ms": [round(sample, 6) for sample in self.samples_ms],
        }


@dataclass(frozen=True)
class Measurement:
    """`correct`: outputs are the first build's, byte for byte or within the tolerance asked for;
    `outputs` says so in words. `active_blocks` is what the driver says of residency; `counters` are
    ncu's, by metric name, empty where it is not found or not permitted.
    """

    correct: bool
    outputs: str
    times: Times | None
    active_blocks: int | None
    counters: dict[str, float] = field(default_factory=dict[str, float])

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "correct": self.correct,
            "outputs": self.outputs,
            "times": None if self.times is None else self.times.to_dict(),
            "active_blocks": self.active_blocks,
            "counters": self.counters,
        }
