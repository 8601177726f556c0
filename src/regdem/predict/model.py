"""Predicted cycles of a kernel on one SM: who waits, who issues, and what saturates.

Problem: more warps hide latency until a pipe is full; code that is inserted to have more warps
fills pipes and waits itself; slots in shared memory are taken from L1. Which side wins is to be
told before anything is run.

Method (in the line of Hong and Kim 2009, and Volkov 2016): for one warp alone, `walk` gives the
cycles T of its path, loops counted 10 times per level unless trip counts are given. Its demands on
each pipe (issue, ALU, FMA, FP64, MUFU, memory pipe, L1 wavefronts, L2 and DRAM bytes) are sums over
the same path. With N warps resident the SM needs, for N warps' work, at least T, and at least N
times the demand on each pipe; near the point where the two meet neither is reached, so that

    cycles(N) = (T^p + busiest(N)^p)^(1/p),  p = 3

and the gain of more warps fades as a pipe fills. Answers are for 64 warps' work
(`cycles(N) * 64 / N`), so that they compare across residencies; with a grid, for the whole launch,
waves and tail included.

Local memory: its footprint (frame bytes of all resident threads) competes for the part of the
unified memory that shared memory leaves to L1; what does not fit comes from L2. The share of global
loads that hit L1 shrinks with that part.

Not claimed: absolute times. Locality is assumed (`traffic`), divergence, bank conflicts and
barriers across warps are not modelled; the interval spans the three assumptions about locality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from regdem.analysis.forms import forms_of
from regdem.binary.kernel import Kernel
from regdem.isa.table import Form
from regdem.machine import Occupancy, limits
from regdem.machine.timing import Timing, timing
from regdem.predict.traffic import SCENARIOS, TYPICAL, Locality, MemoryAccess, accesses
from regdem.predict.walk import walk
from regdem.program.loops import block_weights
from regdem.program.program import Program, build

_POWER = 3.0
_REFERENCE_WARPS = 64
_SECTOR_BYTES = 32
_PIPE_OF = {
    "alu": "alu", "fma": "fma", "imad": "imad", "imad_wide": "imad", "half": "half",
    "half_mma": "half", "fp64": "fp64", "mma": "mma", "gmma": "mma", "fp64_mma": "mma",
    "uniform": "uniform", "r2ur": "uniform", "mufu": "mufu", "variable": "convert",
}  # fmt: skip
_CAUSE_OF = {
    "global": "long_scoreboard", "generic": "long_scoreboard", "local": "local_memory",
    "texture": "long_scoreboard", "surface": "long_scoreboard", "shared": "short_scoreboard",
    "other": "barrier",
}  # fmt: skip


@dataclass(frozen=True)
class Prediction:
    """Cycles an SM needs for 64 warps' work, under each assumption; what bounds it; why.

    `predicted_cycles` is the typical case, `interval` the least and the most of the three.
    `utilisation` is each pipe's share of the cycles; `stalls` one warp's cycles by cause.
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

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
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
            "notes": list(self.notes),
        }

    def _finite(self, cycles: float) -> float | None:
        return round(cycles, 1) if self.active_warps else None

    def explain(self) -> str:
        """The sum, in words."""
        if not self.active_warps:
            return f"{self.kernel}: {', '.join(self.notes)}"
        low, high = self.interval
        lines = [
            f"{self.kernel}: {self.predicted_cycles:,.0f} cycles for 64 warps' work on an SM "
            f"({low:,.0f} to {high:,.0f} by locality), bound by {self.bound_by}",
            f"  one warp alone   {self.warp_cycles:>10,.0f} cycles for "
            f"{self.warp_instructions:,.0f} instructions; {self.active_warps} warps are resident",
        ]
        for cause, cycles in sorted(self.stalls.items(), key=lambda item: -item[1]):
            lines.append(f"    {cause:<16} {cycles:>9,.0f} cycles")
        lines.append(f"  L1 has {self.l1_bytes // 1024} KiB beside shared memory; pipes:")
        for pipe, share in sorted(self.utilisation.items(), key=lambda item: -item[1])[:6]:
            lines.append(f"    {pipe:<16} {100 * share:>8.1f} %")
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)


def predict(
    kernel: Kernel,
    residency: Occupancy,
    *,
    grid_blocks: int | None = None,
    trip_count: float = 10.0,
    weights: Sequence[float] | None = None,
) -> Prediction:
    """Predicts one kernel at a residency. `trip_count`: executions per loop level; `weights`:
    executions of each block of its program, where the caller knows better.

    Raises `UnsupportedError` for code that is not understood.
    """
    from regdem.isa.decode import decode

    code = decode(kernel.code, kernel.arch)
    program = build(
        kernel.name,
        code,
        [(f.name, f.offset, f.size) for f in kernel.functions],
        {table.offset: table.targets for table in kernel.branch_tables},
    )
    model = _Model(kernel, program, residency, timing(kernel.arch), trip_count, weights)
    return model.prediction(grid_blocks)


@dataclass
class _Case:
    cycles: float
    warp_cycles: float
    busiest: str
    loads: dict[str, float]
    stalls: dict[str, float]


class _Model:
    def __init__(
        self,
        kernel: Kernel,
        program: Program,
        residency: Occupancy,
        machine: Timing,
        trip_count: float,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.kernel = kernel
        self.program = program
        self.residency = residency
        self.machine = machine
        self.forms: list[Form] = forms_of(program.code)
        self.accesses = accesses(program)
        reachable = program.reachable
        given = block_weights(program, trip_count) if weights is None else weights
        self.weights = [w if b in reachable else 0.0 for b, w in enumerate(given)]
        block_of: list[int] = program.block_of.tolist()
        self.weight: list[float] = [self.weights[b] for b in block_of]
        self.l1_bytes = self._l1_bytes()

    def _l1_bytes(self) -> int:
        """What shared memory leaves to L1: the carve-out is the least that holds all blocks."""
        o = self.residency
        used = o.active_blocks * o.allocated_shared_bytes_per_block
        sizes = limits(self.kernel.arch).carveouts_bytes
        carveout = next((size for size in sizes if size >= used), sizes[-1])
        return max(0, self.machine.l1_and_shared_bytes - carveout)

    def prediction(self, grid_blocks: int | None) -> Prediction:
        warps = self.residency.active_warps
        if warps == 0:
            return Prediction(
                self.kernel.name, float("inf"), (float("inf"), float("inf")), "nothing fits", 0,
                0.0, 0.0, notes=("the launch does not fit on an SM",),
            )  # fmt: skip
        cases = {scenario.name: self._case(scenario, warps) for scenario in SCENARIOS}
        totals = {name: self._total(case, grid_blocks) for name, case in cases.items()}
        typical = cases[TYPICAL.name]
        notes: list[str] = []
        if self.machine.borrowed:
            notes.append(f"{self.kernel.arch} has no timing of its own: that of sm_90 is used")
        if any(a.is_gather for a in self.accesses.values()):
            notes.append("some addresses come from loaded data: their locality is a guess")
        return Prediction(
            kernel=self.kernel.name,
            predicted_cycles=totals[TYPICAL.name],
            interval=(min(totals.values()), max(totals.values())),
            bound_by=self._bound(typical),
            active_warps=warps,
            warp_cycles=typical.warp_cycles,
            warp_instructions=sum(self.weight),
            utilisation={k: v / typical.cycles for k, v in typical.loads.items() if v},
            stalls=typical.stalls,
            by_scenario=totals,
            l1_bytes=self.l1_bytes,
            notes=tuple(notes),
        )

    def _total(self, case: _Case, grid_blocks: int | None) -> float:
        warps = self.residency.active_warps
        if grid_blocks is None:
            return case.cycles * _REFERENCE_WARPS / warps
        sms = limits(self.kernel.arch).reference_sms or 1
        per_wave = sms * self.residency.active_blocks
        full, rest = divmod(grid_blocks, per_wave)
        tail = 0.0
        if rest:
            blocks = -(-rest // sms)
            busy = max(case.loads.values()) * blocks / self.residency.active_blocks
            tail = _soft(case.warp_cycles, busy)
        return full * case.cycles + tail

    def _bound(self, case: _Case) -> str:
        if max(case.loads.values(), default=0.0) >= case.warp_cycles:
            return case.busiest
        if not case.stalls:
            return "issue"
        return max(case.stalls.items(), key=lambda item: item[1])[0]

    # -- one assumption -----------------------------------------------------------------------

    def _case(self, locality: Locality, warps: int) -> _Case:
        latency = self._latencies(locality, warps)
        blocks = walk(self.program, self.weights, latency, self.machine.latency["operand_read"])
        warp_cycles = 0.0
        stalls: dict[str, float] = {}
        for weight, block in zip(self.weights, blocks, strict=True):
            warp_cycles += weight * block.cycles
            for cause, cycles in block.lost.items():
                stalls[cause] = stalls.get(cause, 0.0) + weight * cycles
        loads = {k: v * warps for k, v in self._demands(locality, warps).items()}
        busiest = max(loads, key=lambda k: loads[k])
        cycles = _soft(warp_cycles, loads[busiest])
        return _Case(cycles, warp_cycles, busiest, loads, {k: v for k, v in stalls.items() if v})

    def _l1_share(self, locality: Locality) -> float:
        """Share of global loads that hit the L1 that is left."""
        return locality.l1 * (self.l1_bytes / self.machine.l1_and_shared_bytes) ** 0.5

    def _local_hit(self, warps: int) -> float:
        """Share of local accesses that hit L1: half of it, against all resident frames."""
        footprint = self.kernel.local_bytes * 32 * warps
        if footprint == 0:
            return 1.0
        return min(1.0, 0.5 * self.l1_bytes / footprint)

    def _latencies(self, locality: Locality, warps: int) -> dict[int, tuple[float, str]]:
        known = self.machine.latency
        l1 = self._l1_share(locality)
        rest = (1.0 - l1) / max(1e-9, locality.l2 + locality.dram)
        mean = l1 * known["l1"] + rest * (locality.l2 * known["l2"] + locality.dram * known["dram"])
        hit = self._local_hit(warps)
        local = hit * known["local"] + (1 - hit) * known["l2"]
        by_space = {
            "global": mean, "generic": mean, "texture": max(mean, known["texture"]),
            "surface": max(mean, known["texture"]), "shared": known["shared"], "local": local,
            "other": known["barrier"], "constant": known["constant"],
        }  # fmt: skip
        found: dict[int, tuple[float, str]] = {}
        for i, form in enumerate(self.forms):
            if not form.variable_latency:
                continue
            access = self.accesses.get(i)
            if access is not None:
                cycles = by_space[access.space]
                if access.is_atomic and access.space != "shared":
                    cycles = max(cycles, known["atomic"])
                cycles += access.wavefronts - 1
                found[i] = cycles, _CAUSE_OF[access.space]
            elif form.memory == "constant":
                found[i] = known["constant"], "constant"
            else:
                found[i] = known.get(form.latency, known["variable"]), form.latency
        return found

    def _demands(self, locality: Locality, warps: int) -> dict[str, float]:
        """Cycles of the SM that one warp's work keeps each pipe busy."""
        rate = self.machine.rate
        counts: dict[str, float] = {}
        pipe_cycles = wavefronts = l2_bytes = dram_bytes = 0.0
        l1 = self._l1_share(locality)
        rest = (1.0 - l1) / max(1e-9, locality.l2 + locality.dram)
        hit = self._local_hit(warps)
        for i, form in enumerate(self.forms):
            weight = self.weight[i]
            counts["issue"] = counts.get("issue", 0.0) + weight
            access = self.accesses.get(i)
            if access is None:
                if form.memory == "constant":
                    pipe_cycles += weight / rate["constant"]
                elif form.latency in ("shuffle", "special"):
                    pipe_cycles += weight / rate["shared"]
                elif form.latency in _PIPE_OF:
                    pipe = _PIPE_OF[form.latency]
                    counts[pipe] = counts.get(pipe, 0.0) + weight
                continue
            if access.space == "other":
                continue
            pipe_cycles += weight / rate.get(access.space, rate["memory"])
            wavefronts += weight * access.wavefronts
            bytes_moved = access.sectors * _SECTOR_BYTES * weight
            if access.space == "local":
                l2_bytes += bytes_moved * _beyond_l1(access, hit)
            elif access.space != "shared":
                beyond = rest * (locality.l2 + locality.dram) if access.is_load else 1.0
                l2_bytes += bytes_moved * beyond
                dram_bytes += bytes_moved * (rest if access.is_load else 1.0) * locality.dram
        demands = {pipe: count / rate[pipe] for pipe, count in counts.items()}
        demands["memory"] = pipe_cycles
        demands["l1"] = wavefronts / rate["wavefront"]
        demands["l2"] = l2_bytes / self.machine.l2_bytes_per_cycle
        demands["dram"] = dram_bytes / self.machine.dram_bytes_per_cycle
        return demands


def _beyond_l1(access: MemoryAccess, hit: float) -> float:
    return 1.0 - hit if access.is_load else max(0.25, 1.0 - hit)


def _soft(a: float, b: float) -> float:
    """At least the greater of two, more where they are alike."""
    top = max(a, b)
    if top <= 0.0:
        return 0.0
    return top * ((a / top) ** _POWER + (b / top) ** _POWER) ** (1.0 / _POWER)
