"""Times of several launches, taken in turns, so that drifts of the clock meet all alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from regdem.tune.launch import Gpu, Launch


@dataclass(frozen=True)
class Timing:
    """Times of one variant over interleaved rounds, in milliseconds."""

    median_ms: float
    p10_ms: float
    p90_ms: float
    rounds: int
    samples_ms: tuple[float, ...]

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        if not samples:
            raise ValueError("no samples")
        ordered = sorted(samples)
        last = len(ordered) - 1
        return cls(
            median_ms=statistics.median(ordered),
            p10_ms=ordered[round(0.1 * last)],
            p90_ms=ordered[round(0.9 * last)],
            rounds=len(ordered),
            samples_ms=tuple(samples),
        )


def time_interleaved(
    gpu: Gpu,
    launches: Mapping[str, Launch | Sequence[Launch]],
    *,
    rounds: int,
    warm_up: int = 2,
    before: Callable[[str], None] | None = None,
    least_ms: float = 0.0,
    limit_ms: float = float("inf"),
    progress: Callable[[int], None] | None = None,
) -> dict[str, Timing]:
    """Times launches A, B, C, A, B, C, ... so that drifts of the clock meet all alike.

    A sequence of launches is timed as one.
    `before(name)`, if given, is called (untimed) before every timed launch, to restore buffers
    the kernel changes. Where one launch takes less than `least_ms`, several are timed together
    and the time is divided (only without `before`). Where all rounds would take more than
    `limit_ms`, fewer are made, but at least five. `progress(round)` is called before each.
    """
    series = {k: (v,) if isinstance(v, Launch) else tuple(v) for k, v in launches.items()}
    timer = gpu.timer()
    repeats: dict[str, int] = {}
    round_ms = 0.0
    try:
        for name in series:
            once = 0.0
            for _ in range(max(warm_up, 1)):
                if before is not None:
                    before(name)
                timer.start()
                for launch in series[name]:
                    gpu.launch(launch)
                timer.stop()
                once = timer.milliseconds()
            repeats[name] = 1
            if before is None and 0.0 < once < least_ms:
                repeats[name] = min(64, int(least_ms / once) + 1)
            round_ms += once * repeats[name]
        if round_ms * rounds > limit_ms:
            rounds = min(rounds, max(5, int(limit_ms / round_ms)))
        samples: dict[str, list[float]] = {name: [] for name in series}
        for turn in range(rounds):
            if progress is not None:
                progress(turn)
            order = list(series) if turn % 2 == 0 else list(reversed(series))
            for name in order:
                if before is not None:
                    before(name)
                timer.start()
                for _ in range(repeats[name]):
                    for launch in series[name]:
                        gpu.launch(launch)
                timer.stop()
                samples[name].append(timer.milliseconds() / repeats[name])
        return {name: Timing.of(values) for name, values in samples.items()}
    finally:
        timer.close()
