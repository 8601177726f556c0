"""How good predictions of a kernel's builds are: order, choice, and whether the interval holds.

tau: Kendall's, of predicted against measured order, over pairs that differ by more than 1 % in
time. Regret: time of the best build over that of the chosen one, by the optimiser's own rule
(`regdem.choice`); the input can always be chosen. Gain: time of the input over that of the chosen
one. Covered: builds whose measured speed-up over the input lies in the predicted interval, 2 %
added on both sides for noise.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.judging.data import Build, Group
from regdem.choice import best_of, gain, least_gain
from regdem.machine.timing import Timing
from regdem.predict.model import Prediction, predict_summary
from regdem.predict.profile import Corrections, corrections, read_profile

TIE = 0.01
_NOISE = 1.02
_GROSS = 0.7
"""An error beyond a factor of two counts as one of two."""


@dataclass(frozen=True)
class Score:
    """Of one kernel, or part of its builds."""

    group: Group
    gains: Mapping[str, tuple[float, float, float]]
    tau: float
    regret: float
    gain: float
    chosen: str
    best: str
    covered: int
    error: float

    @property
    def loss(self) -> float:
        """What a fit makes small: error, wrong order, regret, and choices that lose."""
        lost = max(0.0, 0.98 - self.gain)
        return self.error + 0.3 * (1.0 - self.tau) + (1.0 - self.regret) + 3.0 * lost


def predictions(
    group: Group, machine: Timing, *, grid: bool, profiled: bool = False
) -> dict[str, Prediction]:
    """Of every build; `grid`: whether the launch's grid is known; `profiled`: whether the input's
    profile is."""
    first = group.builds[0]
    known: Corrections | None = None
    if profiled and first.profile is not None:
        profile = read_profile(json.dumps(first.profile))
        known = corrections(first.summary, first.residency, profile, machine)
    return {
        b.variant: predict_summary(
            b.summary, b.residency, machine, b.grid_blocks if grid else None, known
        )
        for b in group.builds
    }


def kendall(builds: Sequence[Build], cycles: Mapping[str, float]) -> float:
    """Kendall's tau over pairs that measurement can tell apart; 1 where there are none."""
    agree = total = 0
    for a, b in itertools.combinations(builds, 2):
        if abs(a.milliseconds / b.milliseconds - 1) < TIE:
            continue
        total += 1
        same = (a.milliseconds < b.milliseconds) == (cycles[a.variant] < cycles[b.variant])
        agree += 1 if same else -1
    return agree / total if total else 1.0


def score(group: Group, predicted: Mapping[str, Prediction]) -> Score:
    """Judges a kernel's predictions; the first build is the input."""
    default, *others = group.builds
    before = predicted[default.variant]
    gains = {b.variant: gain(before, predicted[b.variant], is_rewrite=b.is_binary) for b in others}
    floors = [
        least_gain(before, predicted[b.variant], is_rewrite=b.is_binary, is_order=b.is_order)
        for b in others
    ]
    place = best_of([gains[b.variant] for b in others], floors)
    chosen = default if place is None else others[place]
    best = min(group.builds, key=lambda b: b.milliseconds)
    covered = 0
    errors: list[float] = []
    for b in others:
        typical, least, most = gains[b.variant]
        real = default.milliseconds / b.milliseconds
        covered += least / _NOISE <= real <= most * _NOISE
        errors.append(min(_GROSS, abs(math.log(typical / real))))
    cycles = {name: each.predicted_cycles for name, each in predicted.items()}
    return Score(
        group=group,
        gains=gains,
        tau=kendall(group.builds, cycles),
        regret=best.milliseconds / chosen.milliseconds,
        gain=default.milliseconds / chosen.milliseconds,
        chosen=chosen.variant,
        best=best.variant,
        covered=covered,
        error=sum(errors) / len(errors),
    )


def varied(scores: Sequence[Score]) -> list[Score]:
    """Those of builds that differ in their code."""
    return [score for score in scores if not score.group.is_same_code]


def binary_only(group: Group) -> Group | None:
    """What can be made from the input alone; None where nothing was."""
    some = [b for b in group.builds if b.is_binary]
    return group.part(some) if len(some) > 1 else None


def both(
    group: Group, machine: Timing, *, grid: bool, profiled: bool = False
) -> tuple[Score, Score | None]:
    """Over all builds, and over those made from the input alone."""
    predicted = predictions(group, machine, grid=grid, profiled=profiled)
    part = binary_only(group)
    return score(group, predicted), score(part, predicted) if part else None


@dataclass(frozen=True)
class Total:
    """Over kernels: means, and the worst choice. `unchanged`: the regret of never choosing."""

    kernels: int
    builds: int
    tau: float
    regret: float
    gain: float
    worst: Score
    unchanged: float
    covered: float
    error: float


def total(scores: Sequence[Score]) -> Total:
    """Mean tau and error; geometric mean regret and gain; share of builds covered."""
    others = sum(len(s.gains) for s in scores)
    return Total(
        kernels=len(scores),
        builds=others + len(scores),
        tau=sum(s.tau for s in scores) / len(scores),
        regret=_geometric([s.regret for s in scores]),
        gain=_geometric([s.gain for s in scores]),
        worst=min(scores, key=lambda s: s.gain),
        unchanged=_geometric([s.regret / s.gain for s in scores]),
        covered=sum(s.covered for s in scores) / others,
        error=sum(s.error for s in scores) / len(scores),
    )


def _geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
