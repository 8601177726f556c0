"""Predicted cycles of a kernel on one SM: who waits, who issues, and what saturates.

Problem: more warps hide latency until a pipe is full; code that is inserted to have more warps
fills pipes and waits itself; slots in shared memory are taken from L1. Which side wins is to be
told before anything is run.

Method (in the line of Hong and Kim 2009, and Volkov 2016): `summary` weighs the code once: one
warp's time as a function of memory latency, and its demands on each pipe. `demand` turns them into
cycles at a residency, under one assumption about locality (`locality`). The answer is the geometric
mean over the three main assumptions; the interval spans all of them. A profile of the kernel
replaces assumptions by what was measured (`profile`).

Answers are for 64 warps' work (`cycles(N) * 64 / N`), so that they compare across residencies. With
a grid they are for the whole launch: blocks per SM at the rate of a full SM, and at the end half a
block's time alone, in which the SM drains.

Not claimed: absolute times. Divergence and shared-memory bank conflicts are not modelled. How far
predictions are off, and how often the interval holds, is measured by `bench/judge.py` and stands in
`docs/results/predictor.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from regdem.binary.kernel import Kernel
from regdem.machine import Occupancy, limits
from regdem.machine.timing import Timing, timing
from regdem.predict.demand import Case, case, fetched_from_l2, l1_left
from regdem.predict.locality import AVERAGED, SCENARIOS, TYPICAL, Locality
from regdem.predict.profile import Corrections, Profile, corrections
from regdem.predict.summary import Summary, summarise

_REFERENCE_WARPS = 64
_ERROR, _ERROR_OF_CHANGE = 0.08, 0.25
"""Of the logarithm of a speed-up: at all, and per logarithm predicted. Chosen so that about nine in
ten measured speed-ups lie in the interval (docs/results/predictor.md)."""
_BUSY, _ERROR_AT_ISSUE = 0.8, 0.05
"""Where issue slots are this busy before, gains come from fewer instructions or better schedules,
which a model of stalls judges worse: what is added to the error of another schedule."""
_ERROR_OF_ARRAYS = 0.25
"""Per share of a warp's time that it waits for arrays in local memory, indexed at run time: of a
stack or table neither the part in use is known nor how paths of lanes differ."""
_UNROLLED = 4 / 3
"""Ratio of the work of two builds' code beyond which their loops are unrolled differently."""
_ERROR_OF_UNROLLING = 0.3
"""In place of `_ERROR` there: what of it is a loop for the remaining turns is not known."""
_GUESS = "some addresses come from loaded data: their locality is a guess"


@dataclass(frozen=True)
class Prediction:
    """Cycles an SM needs for 64 warps' work (or for its part of a launch); what bounds it; why.

    `predicted_cycles` is the mean over assumptions about locality, `interval` their least and
    most, `by_scenario` all of them. `utilisation` is each pipe's share of the typical cycles;
    `stalls` one warp's cycles by cause. `memory_wait_cycles`: of a wait for global memory, on the
    typical assumption, and `places_awaited` how many places such a wait is for. `fetched_from_l2`:
    share of instructions. `array_waits`: share of a warp's time that it waits for arrays in local
    memory. `work`: see `Summary.work`. `waves`: of the grid, where it is given.
    """

    kernel: str
    predicted_cycles: float
    interval: tuple[float, float]
    bound_by: str
    active_warps: int
    warp_cycles: float
    warp_instructions: float
    utilisation: dict[str, float] = field(default_factory=dict[str, float])
    stalls: dict[str, float] = field(default_factory=dict[str, float])
    by_scenario: dict[str, float] = field(default_factory=dict[str, float])
    l1_bytes: int = 0
    notes: tuple[str, ...] = ()
    memory_wait_cycles: float = 0.0
    places_awaited: float = 0.0
    fetched_from_l2: float = 0.0
    array_waits: float = 0.0
    work: tuple[float, float] = (0.0, 0.0)
    waves: float | None = None
    is_profiled: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        body: dict[str, Any] = {
            "name": self.kernel,
            "predicted_cycles": self._finite(self.predicted_cycles),
            "interval_cycles": [self._finite(each) for each in self.interval],
            "bound_by": self.bound_by,
            "active_warps": self.active_warps,
            "warp_cycles": round(self.warp_cycles, 1),
            "warp_instructions": round(self.warp_instructions, 1),
            "utilisation_pct": {k: round(100 * v, 1) for k, v in self.utilisation.items()},
            "stall_cycles": {k: round(v, 1) for k, v in self.stalls.items()},
            "cycles_by_locality": {k: round(v, 1) for k, v in self.by_scenario.items()},
            "l1_bytes": self.l1_bytes,
            "memory_wait_cycles": round(self.memory_wait_cycles, 1),
            "places_awaited": round(self.places_awaited, 2),
            "fetched_from_l2_pct": round(100 * self.fetched_from_l2, 1),
            "notes": list(self.notes),
        }
        if self.waves is not None:
            body["waves"] = round(self.waves, 2)
        return body

    def _finite(self, cycles: float) -> float | None:
        return round(cycles, 1) if self.active_warps else None

    def explain(self) -> str:
        """The sum, in words."""
        from regdem.predict.explain import explain

        return explain(self)


def predict(
    kernel: Kernel,
    residency: Occupancy,
    *,
    grid_blocks: int | None = None,
    trip_count: float = 10.0,
    profile: Profile | None = None,
    correct: Corrections | None = None,
) -> Prediction:
    """Predicts one kernel at a residency.

    `trip_count`: executions per loop level. `profile`: what was measured of this kernel as it is;
    `correct`: what `learn` made of the profile of another build of it. Raises `UnsupportedError`
    for code that is not understood.
    """
    summary = summarise(kernel, trip_count)
    machine = timing(kernel.arch)
    if profile is not None:
        correct = corrections(summary, residency, profile, machine)
    return predict_summary(summary, residency, machine, grid_blocks, correct)


def learn(
    kernel: Kernel, residency: Occupancy, profile: Profile, *, trip_count: float = 10.0
) -> Corrections:
    """What a profile of a kernel says about the model's demands, for predicting its variants."""
    return corrections(summarise(kernel, trip_count), residency, profile, timing(kernel.arch))


def predict_summary(
    summary: Summary,
    residency: Occupancy,
    machine: Timing,
    grid_blocks: int | None = None,
    correct: Corrections | None = None,
) -> Prediction:
    """The same, of code that is weighed already."""
    warps = residency.active_warps
    if warps == 0:
        return Prediction(
            summary.name, math.inf, (math.inf, math.inf), "nothing fits", 0, 0.0, 0.0,
            notes=("the launch does not fit on an SM",),
        )  # fmt: skip
    l1_bytes = l1_left(residency, summary.arch, machine)
    launch = _Launch(summary, residency, machine, l1_bytes, correct, grid_blocks)
    cases = {s.name: launch.at(s, residency.active_blocks) for s in SCENARIOS}
    totals = {s.name: launch.total(s, cases[s.name]) for s in SCENARIOS}
    if correct is not None and correct.share < 1.0:
        plain = replace(launch, correct=None)
        alone = {s.name: plain.total(s, plain.at(s, residency.active_blocks)) for s in SCENARIOS}
        totals = {name: correct.total(name, each, alone[name]) for name, each in totals.items()}
    typical = cases[TYPICAL.name]
    averaged = [math.log(totals[s.name]) for s in AVERAGED]
    return Prediction(
        kernel=summary.name,
        predicted_cycles=math.exp(sum(averaged) / len(averaged)),
        interval=(min(totals.values()), max(totals.values())),
        bound_by=_bound(typical),
        active_warps=warps,
        warp_cycles=typical.warp_cycles,
        warp_instructions=summary.instructions,
        utilisation={k: v / typical.cycles for k, v in typical.loads.items() if v},
        stalls=dict(typical.stalls),
        by_scenario=totals,
        l1_bytes=l1_bytes,
        notes=_notes(summary, machine),
        memory_wait_cycles=typical.memory_cycles if summary.awaited else 0.0,
        places_awaited=sum(places * share for places, share in summary.awaited),
        fetched_from_l2=fetched_from_l2(summary, machine) / max(1.0, summary.instructions),
        array_waits=_array_waits(summary, typical),
        work=summary.work,
        waves=launch.waves,
        is_profiled=correct is not None,
    )


def speedup(
    before: Prediction, after: Prediction, *, is_rewrite: bool = False
) -> tuple[float, float, float]:
    """Predicted speed-up: typical, and the interval.

    `is_rewrite`: `after` has the schedule of `before`, but for what was inserted or replaced.

    The interval spans the assumptions about locality, and is widened at each end by the model's own
    error, which grows with what is predicted to change there. Equal predictions (the same code)
    have no interval. Loops that were unrolled otherwise are taken to do the same work in all
    (`repeats`). Infinite where only `after` fits on an SM, 0 where `after` does not.
    """
    if after.active_warps == 0:
        return 0.0, 0.0, 0.0
    if before.active_warps == 0:
        return math.inf, math.inf, math.inf
    if before.by_scenario == after.by_scenario:
        return 1.0, 1.0, 1.0
    times = repeats(before.work, after.work)
    each = [times * before.by_scenario[name] / c for name, c in after.by_scenario.items()]
    typical = times * before.predicted_cycles / after.predicted_cycles
    error = _ERROR if times == 1.0 else _ERROR_OF_UNROLLING
    error += _ERROR_OF_ARRAYS * max(before.array_waits, after.array_waits)
    if not is_rewrite and before.utilisation.get("issue", 0.0) >= _BUSY:
        error += _ERROR_AT_ISSUE
    least, most = min(each), max(each)
    low = math.exp(error + _ERROR_OF_CHANGE * abs(math.log(least)))
    high = math.exp(error + _ERROR_OF_CHANGE * abs(math.log(most)))
    return typical, least / low, most * high


def repeats(before: tuple[float, float], after: tuple[float, float]) -> float:
    """How often `before` runs for what `after` does once, by the loops' assumed trips; of two
    builds' `Summary.work`.

    Every loop is taken to run equally often, so a body unrolled by 4 seems four times the work. It
    is taken for that where memory and arithmetic have both changed, in one direction, by more than
    other choices of a compiler change them (docs/results/predictor.md lists where).
    """
    if not all(before) or not all(after):
        return 1.0
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    if min(ratios) > _UNROLLED or max(ratios) < 1 / _UNROLLED:
        return math.sqrt(ratios[0] * ratios[1])
    return 1.0


def _notes(summary: Summary, machine: Timing) -> tuple[str, ...]:
    notes: list[str] = []
    if machine.borrowed:
        notes.append(f"{summary.arch} has no measured latencies: those of sm_90 are used")
    if summary.of("gather").instructions:
        notes.append(_GUESS)
    if summary.is_recursive:
        notes.append("recursion: its depth is taken to be that of a loop")
    if summary.is_asynchronous:
        notes.append("bulk copies: the wait for them is not modelled")
    return tuple(notes)


def _array_waits(summary: Summary, typical: Case) -> float:
    """See `Prediction.array_waits`."""
    spills = summary.of("local_load").instructions + summary.of("local_store").instructions
    if not spills or not typical.warp_cycles:
        return 0.0
    waiting = typical.stalls.get("local_memory", 0.0) / typical.warp_cycles
    return waiting * summary.indexed / spills


def _bound(typical: Case) -> str:
    if max(typical.loads.values(), default=0.0) >= typical.warp_cycles:
        return typical.busiest
    if not typical.stalls:
        return "issue"
    return max(typical.stalls.items(), key=lambda item: item[1])[0]


@dataclass(frozen=True)
class _Launch:
    """From cycles of a full SM to those of a launch."""

    summary: Summary
    residency: Occupancy
    machine: Timing
    l1_bytes: int
    correct: Corrections | None
    grid_blocks: int | None

    @property
    def waves(self) -> float | None:
        """Rounds of resident blocks; None where the grid is not known."""
        if self.grid_blocks is None:
            return None
        return self._blocks / self.residency.active_blocks

    @property
    def _blocks(self) -> float:
        sms = limits(self.summary.arch).reference_sms or 1
        return (self.grid_blocks or 0) / sms

    def total(self, locality: Locality, full: Case) -> float:
        """Cycles of an SM for 64 warps' work, or for its part of the grid."""
        if self.grid_blocks is None:
            return full.cycles * _REFERENCE_WARPS / full.warps
        resident = self.residency.active_blocks
        if self._blocks <= resident:
            return self.at(locality, math.ceil(self._blocks)).cycles
        drain = self.machine.model["drain"] * (1.0 - resident / self._blocks)
        alone = self.at(locality, 1).cycles
        return full.cycles * self._blocks / resident + drain * alone

    def at(self, locality: Locality, blocks: int) -> Case:
        """So many resident blocks."""
        warps = max(1, blocks) * self.residency.active_warps // self.residency.active_blocks
        fix = self.correct.by_locality.get(locality.name) if self.correct else None
        block = self.residency.warps_per_block
        return case(self.summary, warps, self.l1_bytes, locality, self.machine, fix, block)
