"""What waits take, and how they and the pipes overlap.

**Memory.** A warp that waits for several loads goes on when the latest has arrived, and of many
loads that lie in different places one is likely to miss. Where each hits L1 with probability h and
L2 or better with g, the latest of k comes from L1 with h^k and from L2 or nearer with g^k:

    cycles = L1 h^k + L2 (g^k - h^k) + DRAM (1 - g^k)

Neighbouring loads hit or miss together: k counts address registers, not loads, and of those beyond
the first the share `loads_apart`.

**Overlap.** Where memory is busy, waits for it are longer: one warp's time T and what all warps
move beyond L1 (`memory`) are added softly, and other pipes overlap with both:

    cycles(T, busy) = ((T^m + memory^m)^(p/m) + other^p)^(1/p)

**Barriers.** Between two barriers, no warp of a block does what comes behind the second. A block of
w warps alone takes for each phase i what its warps' waits T_i and their load on the pipes ask for,
together

    alone = sum over phases of cycles(T_i, busy_i(w))

where without barriers it would take the same of the sums. Other blocks' warps fill its waits as
always; so the difference is put on one warp's time, with which the block alone takes as long:

    cycles(T', busy(w)) = alone

With phases that are alike T' is T. It grows where one phase waits and another is busy, and counts
the more, the fewer blocks are resident: few blocks with many warps each have nothing to fill with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from regdem.machine.timing import Timing
from regdem.predict.phases import Phase
from regdem.predict.summary import LATENCIES, Summary

_BEYOND = ("l2", "dram")


def memory_cycles(summary: Summary, hit: float, dram: float, machine: Timing) -> float:
    """Of a wait for global memory. `hit`: share of places in L1; `dram`: of the rest, beyond L2."""
    known = machine.latency
    near, within = hit, hit + (1.0 - hit) * (1.0 - dram)
    apart = machine.model["loads_apart"]
    cycles = total = 0.0
    for places, share in summary.awaited or ((1, 1.0),):
        k = 1.0 + apart * (places - 1)
        first, second = near**k, within**k
        each = first * known["l1"] + (second - first) * known["l2"] + (1.0 - second) * known["dram"]
        cycles += share * each
        total += share
    return cycles / total


def barrier_cycles(
    summary: Summary,
    alone: float,
    latency: float,
    busy: Mapping[str, float],
    share: float,
    machine: Timing,
) -> float:
    """What barriers add to one warp's time `alone`, at a latency of global memory.

    `busy`: cycles that all resident warps keep each pipe busy; `share`: of one block among them.
    """
    if not summary.phases:
        return 0.0
    whole = _Whole.of(summary, latency)
    together = 0.0
    for phase in summary.phases:
        part = {pipe: share * load * whole.part(phase, pipe) for pipe, load in busy.items()}
        own = alone * _cycles(phase, latency) / whole.cycles
        together += sm_cycles(own, part, machine)
    mine = {pipe: share * load for pipe, load in busy.items()}
    return max(0.0, warp_cycles(together, mine, machine) - alone)


@dataclass(frozen=True)
class _Whole:
    """Sums over phases."""

    instructions: float
    wavefronts: float
    far_bytes: float
    cycles: float

    @staticmethod
    def of(summary: Summary, latency: float) -> _Whole:
        some = summary.phases
        return _Whole(
            sum(p.instructions for p in some),
            sum(p.wavefronts for p in some),
            sum(p.far_bytes for p in some),
            sum(_cycles(p, latency) for p in some),
        )

    def part(self, phase: Phase, pipe: str) -> float:
        """A phase's part in the demand on a pipe."""
        mine, all_ = phase.instructions, self.instructions
        if pipe in ("l1", "memory") and self.wavefronts:
            mine, all_ = phase.wavefronts, self.wavefronts
        elif pipe in ("l2", "dram") and self.far_bytes:
            mine, all_ = phase.far_bytes, self.far_bytes
        return mine / all_


def _cycles(phase: Phase, latency: float) -> float:
    """A phase's time alone, as `Summary.time` interpolates."""
    a = 0
    while a + 2 < len(LATENCIES) and latency > LATENCIES[a + 1]:
        a += 1
    share = (latency - LATENCIES[a]) / (LATENCIES[a + 1] - LATENCIES[a])
    return phase.cycles[a] + share * (phase.cycles[a + 1] - phase.cycles[a])


def sm_cycles(alone: float, busy: Mapping[str, float], machine: Timing) -> float:
    """What an SM takes: from one warp's time alone and the cycles that each pipe is kept busy."""
    memory, other = _pipe_cycles(busy, machine)
    constants = machine.model
    waits = soft_max((alone, memory), constants["memory_softness"])
    return soft_max((waits, other), constants["softness"])


def warp_cycles(cycles: float, busy: Mapping[str, float], machine: Timing) -> float:
    """The inverse: one warp's time alone where the SM takes `cycles`; 0 if pipes explain all."""
    memory, other = _pipe_cycles(busy, machine)
    constants = machine.model
    waits = _rest(cycles, other, constants["softness"])
    return _rest(waits, memory, constants["memory_softness"])


def soft_max(values: tuple[float, ...], power: float) -> float:
    """At least the greatest; more where several are alike."""
    top = max(values, default=0.0)
    if top <= 0.0:
        return 0.0
    return top * sum((value / top) ** power for value in values) ** (1.0 / power)


def _pipe_cycles(busy: Mapping[str, float], machine: Timing) -> tuple[float, float]:
    """The time that what lies beyond L1 takes, and all other pipes."""
    power = machine.model["pipe_softness"]
    memory = soft_max(tuple(v for pipe, v in busy.items() if pipe in _BEYOND), power)
    other = soft_max(tuple(v for pipe, v in busy.items() if pipe not in _BEYOND), power)
    return memory, other


def _rest(total: float, part: float, power: float) -> float:
    return max(0.0, total**power - part**power) ** (1.0 / power)


__all__ = ["barrier_cycles", "memory_cycles", "sm_cycles", "soft_max", "warp_cycles"]
