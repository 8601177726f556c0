"""What crossing the next cliff is predicted to be worth, before anything is rewritten.

Problem: advice to demote is worth what the predictor says of it, and nothing where it says slower.
But a report is no place to make and prove rewrites.

Method: the code as it is, weighed once by the predictor, is put at the residency below the cliff.
For a demotion the accesses it would insert are added: the cheapest values at the peak are taken
until enough have left it, a store for each definition and a load for each use (or the instruction
that makes the value again), each counted as often as its block runs. For a promotion the frame is
taken away and its accesses are put on shared memory.

Invariants: `gain` uses the optimiser's own thresholds, so that advice and `regdem optimize` ask
the same question of the same model.

Not claimed: the rewrite's own prediction. Values that must leave other peaks, and waits that
inserted loads expose beyond `EXPOSED_CYCLES`, are not in it; `regdem optimize` makes the rewrites
and predicts what it made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regdem.binary.kernel import Kernel
from regdem.errors import UsageError
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.machine import Occupancy, occupancy, slots_that_fit
from regdem.machine.timing import timing
from regdem.predict.model import Prediction, predict_summary, speedup
from regdem.predict.summary import Summary, Traffic, WarpTime, summarise
from regdem.predict.weights import executions
from regdem.program.from_kernel import program_of
from regdem.report.model import Forecast, PeakValue

EXPOSED_CYCLES = 6.0
"""Cycles of a warp that each inserted access costs beside its issue slot. An assumption."""
LEAST_GAIN = 1.02
WORST_GAIN = 0.89
"""The optimiser's: below these it leaves a kernel as it is."""
_CHEAP = ("constant", "recomputable", "warp_uniform")
_SLOT_BYTES = 4


def forecasts(
    kernel: Kernel,
    present: Occupancy,
    cliffs: Sequence[tuple[int, int]],
    values: Sequence[PeakValue],
    local_words: int,
) -> tuple[Forecast, ...]:
    """What can be said of the kernel: `demote` or `renumber` at each cliff, and `promote`.

    cliffs: registers per thread, and how many of them have to leave the peak for that; local_words:
    words of spills in the frame.
    """
    if not present.active_blocks or not (cliffs or local_words):
        return ()
    machine = timing(kernel.arch)
    summary = summarise(kernel)
    before = predict_summary(summary, present, machine)
    found: list[Forecast] = []
    costs = _costs(kernel, values) if any(excess > 0 for _, excess in cliffs) else []
    for registers, excess in cliffs:
        there = _at(kernel, present, registers, 0)
        taken = costs[: max(0, excess)]
        shared = sum(cost for cost, cheap in taken if not cheap)
        other = sum(cost for cost, cheap in taken if cheap)
        after = predict_summary(_with_accesses(summary, shared, other), there, machine)
        kind = "demote" if excess > 0 else "renumber"
        found.append(_forecast(kind, registers, before, after, shared + other))
    if local_words:
        promoted = _promoted(kernel, present, summary, local_words, before)
        if promoted is not None:
            found.append(promoted)
    return tuple(found)


def _at(kernel: Kernel, present: Occupancy, registers: int, more_shared_bytes: int) -> Occupancy:
    launch = present.launch
    found = occupancy(
        kernel.arch,
        launch.threads,
        registers=registers,
        static_shared_bytes=launch.static_shared_bytes + more_shared_bytes,
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        barriers=launch.barriers,
        cluster=launch.cluster,
    )
    assert isinstance(found, Occupancy)
    return found


def _forecast(
    kind: str, registers: int, before: Prediction, after: Prediction, inserted: float
) -> Forecast:
    typical, least, most = speedup(before, after)
    return Forecast(
        kind=kind,
        registers=registers,
        active_warps=after.active_warps,
        speedup=typical,
        least=least,
        most=most,
        bound_by=before.bound_by,
        inserted_instructions=inserted,
        pays=typical >= LEAST_GAIN and least >= WORST_GAIN,
    )


def _costs(kernel: Kernel, values: Sequence[PeakValue]) -> list[tuple[float, bool]]:
    """What each value at the peak costs a warp to take away, the cheapest first.

    Instructions inserted, as often as they run, and whether they make the value again instead of
    storing and loading it.
    """
    program = program_of(kernel)
    weights = executions(program, 10.0)
    block_of: list[int] = program.block_of.tolist()

    def runs(offsets: Sequence[int]) -> float:
        return sum(weights[block_of[offset // INSTRUCTION_BYTES]] for offset in offsets)

    return sorted(
        (runs(v.uses) + (0.0 if v.kind in _CHEAP else runs(v.definitions)), v.kind in _CHEAP)
        for v in values
        if v.kind != "stack_pointer"
    )


def _with_accesses(summary: Summary, shared: float, other: float) -> Summary:
    """The code with so many slot accesses and other instructions more, per warp."""
    if not shared and not other:
        return summary
    cycles = shared * (1.0 + EXPOSED_CYCLES) + other
    traffic: dict[str, Any] = dict(summary.traffic)
    traffic["shared"] = _more(summary.of("shared"), shared)
    return replace(
        summary,
        instructions=summary.instructions + shared + other,
        traffic=traffic,
        times=tuple((_later(near, cycles), _later(far, cycles)) for near, far in summary.times),
    )


def _more(traffic: Traffic, accesses: float) -> Traffic:
    return replace(
        traffic,
        instructions=traffic.instructions + accesses,
        wavefronts=traffic.wavefronts + accesses,
    )


def _later(time: WarpTime, cycles: float) -> WarpTime:
    return WarpTime(time.cycles + cycles, time.lost)


def _promoted(
    kernel: Kernel, present: Occupancy, summary: Summary, words: int, before: Prediction
) -> Forecast | None:
    """The frame in slots; None where they don't fit without giving up a block, or into 48 KiB."""
    if words > slots_that_fit(present.launch, present.active_blocks):
        return None
    try:
        there = _at(
            kernel,
            present,
            kernel.registers_per_thread,
            words * _SLOT_BYTES * 32 * present.warps_per_block,
        )
    except UsageError:
        return None
    if there.active_blocks < present.active_blocks:
        return None
    kinds = ("local_load", "local_store")
    moved = sum(summary.of(kind).instructions for kind in kinds)
    traffic = {kind: each for kind, each in summary.traffic.items() if kind not in kinds}
    traffic["shared"] = _more(summary.of("shared"), moved)
    code = replace(
        summary,
        traffic=traffic,
        times=tuple((near, near) for near, _far in summary.times),
        local_bytes=0,
    )
    after = predict_summary(code, there, timing(kernel.arch))
    return _forecast("promote", kernel.registers_per_thread, before, after, 0.0)
