"""Cycles of an SM for a kernel at a residency, under one assumption about locality.

With N warps resident the SM needs, for N warps' work, at least the time T of one warp alone, and at
least N times one warp's demand on each pipe; near the point where the two meet neither is reached:

    memory(N), other(N) = N * (sum over pipes of demand^q)^(1/q)
    cycles(N) = ((T^m + memory(N)^m)^(p/m) + other(N)^p)^(1/p)

(`waits`; memory: bytes beyond L1), so the gain of more warps fades as pipes fill. L1 is what
shared memory leaves of unified memory.
Local memory and lines that a warp comes back to after a wait stay in it while the footprint of all
resident warps is small against it: kept = 1 / (1 + (footprint / (c * L1))^2). Where they do not
stay, neither does what other warps have loaded, so that hits for the first time are fewer, too
(with the power `kept_power` of kept). Stores and spill stores are written through to L2, and so
several stores to parts of one sector are that many. Code that does not fit into the instruction
caches comes from L2, too: its bytes move through the same port as data. The frames of the warps of
all SMs stay in L2 in the same way; what does not goes to DRAM. The constants stand in
`machine/data/timing.toml`, those of the group `model` fitted by `bench/judge.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.machine import Occupancy, limits
from regdem.machine.timing import Timing
from regdem.predict.locality import Locality
from regdem.predict.summary import Summary
from regdem.predict.waits import barrier_cycles, memory_cycles, sm_cycles

_SCHEDULED = (
    "alu", "fma", "imad", "imad_wide", "half", "fp64", "mufu", "convert", "mma", "uniform",
)  # fmt: skip
_SPECIAL = ("constant", "shuffle")
_FAR = ("load", "gather", "store", "atomic")
_LEAST = 0.05
"""Share of the modelled value that a correction leaves."""


@dataclass(frozen=True)
class Case:
    """Under one assumption: cycles for the resident warps' work, one warp's alone (its waits at
    barriers among them), the cycles each pipe is kept busy, and those that the warp waits, by
    cause. `memory_cycles`: of a wait for global memory."""

    warps: int
    cycles: float
    warp_cycles: float
    loads: Mapping[str, float]
    stalls: Mapping[str, float]
    memory_cycles: float

    @property
    def busiest(self) -> str:
        """The pipe with the greatest load."""
        return max(self.loads, key=lambda pipe: self.loads[pipe])


@dataclass(frozen=True)
class Correction:
    """Learned from a profile: a factor on a warp's time alone, and cycles that are added to its
    demand on pipes. Cycles, since what a variant adds (spills above all) is the model's.
    """

    time: float = 1.0
    pipes: Mapping[str, float] | None = None

    def demand(self, pipe: str, modelled: float) -> float:
        """A warp's demand on a pipe, corrected."""
        return max(_LEAST * modelled, modelled + (self.pipes or {}).get(pipe, 0.0))


def l1_left(residency: Occupancy, arch: str, machine: Timing) -> int:
    """Bytes that shared memory leaves to L1: the carve-out is the least that holds all blocks."""
    used = residency.active_blocks * residency.allocated_shared_bytes_per_block
    sizes = limits(arch).carveouts_bytes
    carveout = next((size for size in sizes if size >= used), sizes[-1])
    return max(0, machine.l1_and_shared_bytes - carveout)


def case(
    summary: Summary,
    warps: int,
    l1_bytes: int,
    locality: Locality,
    machine: Timing,
    correction: Correction | None = None,
    block_warps: int = 1,
) -> Case:
    """The case of `warps` resident warps, in blocks of `block_warps`, with `l1_bytes` of L1."""
    correction = correction or Correction()
    known, constants = machine.latency, machine.model
    l1_share = l1_bytes / machine.l1_and_shared_bytes
    use = _Footprint.of(summary, warps, l1_bytes, locality, constants["local_capacity"])
    near = locality.l1 * l1_share ** constants["l1_exponent"]
    near *= use.kept ** constants["kept_power"]
    room = 1.0
    if locality.crowd_bytes:
        room = min(1.0, l1_bytes / warps / locality.crowd_bytes) ** 2
    gathered = near * room
    kept = use.kept * room if summary.is_recursive else use.kept
    loads, gathers = summary.of("load").instructions, summary.of("gather").instructions
    hit = near if not gathers else (near * loads + gathered * gathers) / (loads + gathers)
    latency = memory_cycles(summary, hit, locality.dram, machine)
    lost = _lost(summary, use.frame_bytes, warps, machine)
    behind = (1.0 - lost) * known["l2"] + lost * known["dram"]
    local = kept * known["local"] + (1.0 - kept) * behind
    time = summary.time(latency, local)
    share = _Shares(near, gathered, kept, use.kept_pending, lost)
    demands = _demands(summary, locality, machine, share)
    busy = {k: warps * correction.demand(k, v) for k, v in demands.items()}
    branches = constants["branch_cycles"] * summary.pipes.get("control", 0.0)
    alone = (time.cycles + branches + constants["start_cycles"]) * correction.time
    stalls = {k: v * correction.time for k, v in time.lost.items()}
    waiting = barrier_cycles(summary, alone, latency, busy, block_warps / warps, machine)
    if waiting:
        stalls["barrier"] = stalls.get("barrier", 0.0) + waiting
    alone += waiting
    return Case(
        warps=warps,
        cycles=sm_cycles(alone, busy, machine),
        warp_cycles=alone,
        loads=busy,
        stalls=stalls,
        memory_cycles=latency,
    )


@dataclass(frozen=True)
class _Footprint:
    """What all resident warps have in L1: bytes of a thread's frame that are in use, the share of
    what a warp comes back to after a wait that has stayed there (`kept`), and of what it touches
    again while other loads are under way (`kept_pending`)."""

    frame_bytes: float
    kept: float
    kept_pending: float

    @staticmethod
    def of(
        summary: Summary, warps: int, l1_bytes: int, locality: Locality, capacity: float
    ) -> _Footprint:
        room = max(1.0, capacity * l1_bytes)
        frame = float(summary.local_bytes)
        if summary.indexed:
            array = max(0, summary.local_bytes - summary.slot_bytes)
            frame -= (1.0 - locality.array) * array
        own = 32 * frame + summary.reused_bytes
        return _Footprint(
            frame,
            1.0 / (1.0 + (warps * own / room) ** 2),
            1.0 / (1.0 + (warps * (own + summary.pending_lines_bytes) / room) ** 2),
        )


def _lost(summary: Summary, frame_bytes: float, warps: int, machine: Timing) -> float:
    """Share of the spills beyond L1 that L2 loses to DRAM."""
    sms = limits(summary.arch).reference_sms or 1
    footprint = 32 * frame_bytes * warps * sms
    if footprint == 0:
        return 0.0
    room = machine.model["local_share_of_l2"] * machine.l2_bytes
    return 1.0 / (1.0 + (room / footprint) ** 2)


@dataclass(frozen=True)
class _Shares:
    """Of sectors touched first, by loads (`near`) and gathers, that are in L1; of those touched
    again, that have stayed there (`kept`, `kept_pending`); of spills that L2 has lost to DRAM."""

    near: float
    gathered: float
    kept: float
    kept_pending: float
    lost: float


def _demands(
    summary: Summary,
    locality: Locality,
    machine: Timing,
    share: _Shares,
) -> dict[str, float]:
    """Cycles of the SM that one warp's work keeps each pipe busy."""
    rate, constants = machine.rate, machine.model
    conflicts = constants["bank_conflict_cycles"] * summary.conflicts
    found = {"issue": (summary.instructions + conflicts) / rate["issue"]}
    for pipe in _SCHEDULED:
        if pipe in summary.pipes:
            found[pipe] = summary.pipes[pipe] / rate[pipe]
    if "imad_wide" in found:
        found["imad"] = found.get("imad", 0.0) + found.pop("imad_wide")
    local_load, local_store = summary.of("local_load"), summary.of("local_store")
    spills = local_load.instructions + local_store.instructions
    accesses = sum(summary.of(kind).instructions for kind in (*_FAR, "shared"))
    accesses += constants["local_slots"] * spills
    accesses += sum(summary.pipes.get(pipe, 0.0) for pipe in _SPECIAL)
    found["memory"] = accesses / rate["memory"]
    load, gather = summary.of("load"), summary.of("gather")
    wavefronts = sum(each.wavefronts for each in summary.traffic.values())
    wavefronts += (locality.gather - 1.0) * gather.wavefronts
    found["l1"] = wavefronts / rate["wavefront"]
    read = load.sector_bytes * (1.0 - share.near)
    read += locality.gather * gather.sector_bytes * (1.0 - share.gathered)
    read += (load.repeated_bytes + gather.repeated_bytes) * (1.0 - share.kept)
    pending = constants["pending_lost"] * (load.pending_bytes + gather.pending_bytes)
    read += pending * (1.0 - share.kept_pending)
    store = summary.of("store")
    written = store.sector_bytes
    spilled = local_load.sector_bytes * (1.0 - share.kept)
    spilled += local_store.sector_bytes * max(constants["store_through"], 1.0 - share.kept)
    moved = read + written + store.repeated_bytes + store.pending_bytes + spilled
    moved += summary.of("atomic").sector_bytes
    moved += INSTRUCTION_BYTES * fetched_from_l2(summary, machine)
    found["l2"] = moved / machine.l2_bytes_per_cycle
    far = (read + written) * locality.dram + spilled * share.lost
    found["dram"] = far / machine.dram_bytes_per_cycle
    return found


def fetched_from_l2(summary: Summary, machine: Timing) -> float:
    """Instructions of one warp whose code comes from L2."""
    size, power = machine.model["code_cache_bytes"], machine.model["code_cache_power"]
    return sum(n / (1.0 + (size / around) ** power) for around, n in summary.fetched)
