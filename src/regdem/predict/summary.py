"""What the model needs to know of a kernel's code, found once and weighed by executions.

Everything here is independent of how many warps are resident and of where memory accesses go: sums
of instructions per pipe, of accesses per memory space, and the time of one warp as a function of
the latencies of global and of local memory. That function is piecewise linear in either; it is
walked at a few points (`LATENCIES`) and read off in between, so that any number of assumptions
about locality, and any residency, cost nothing more. Fitting the model's constants over hundreds
of builds takes seconds for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from regdem.analysis.forms import forms_of
from regdem.binary.kernel import Kernel
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.isa.table import Form
from regdem.machine.timing import Timing, timing
from regdem.predict.banks import conflicts
from regdem.predict.traffic import SECTOR_BYTES, MemoryAccess, memory_use
from regdem.predict.walk import walk
from regdem.predict.weights import executions, recursive
from regdem.program.loops import loops
from regdem.program.program import Program, build

LATENCIES = (30.0, 150.0, 300.0, 600.0, 1200.0)
"""Cycles of a global access at which the walk is done."""
LOCAL_LATENCIES = (30.0, 330.0)
"""The same for local memory."""
PIPE_OF = {
    "alu": "alu", "fma": "fma", "imad": "imad", "imad_wide": "imad_wide", "half": "half",
    "half_mma": "half", "fp64": "fp64", "mma": "mma", "gmma": "mma", "fp64_mma": "mma",
    "uniform": "uniform", "r2ur": "uniform", "mufu": "mufu", "variable": "convert",
    "control": "control", "memory_constant": "constant", "shuffle": "shuffle", "special": "shuffle",
}  # fmt: skip
_CAUSE_OF = {
    "global": "long_scoreboard", "generic": "long_scoreboard", "local": "local_memory",
    "texture": "long_scoreboard", "surface": "long_scoreboard", "shared": "short_scoreboard",
    "other": "barrier",
}  # fmt: skip
_COPIES = ("LDGSTS", "UBLK", "UTMA")
Stalls = dict[str, float]


@dataclass(frozen=True)
class Traffic:
    """Accesses of one kind, per warp: instructions, L1 wavefronts, bytes of sectors touched first
    and of sectors touched again after a wait."""

    instructions: float = 0.0
    wavefronts: float = 0.0
    sector_bytes: float = 0.0
    repeated_bytes: float = 0.0

    def plus(self, weight: float, access: MemoryAccess) -> Traffic:
        """One more access, `weight` times."""
        return Traffic(
            self.instructions + weight,
            self.wavefronts + weight * access.wavefronts,
            self.sector_bytes + weight * access.sectors * SECTOR_BYTES,
            self.repeated_bytes + weight * access.repeats * SECTOR_BYTES,
        )


@dataclass(frozen=True)
class WarpTime:
    """One warp alone at given latencies: cycles, and those lost by cause."""

    cycles: float
    lost: Stalls

    def between(self, other: WarpTime, share: float) -> WarpTime:
        """Linear interpolation."""
        names = self.lost.keys() | other.lost.keys()
        return WarpTime(
            self.cycles + share * (other.cycles - self.cycles),
            {
                k: self.lost.get(k, 0.0) + share * (other.lost.get(k, 0.0) - self.lost.get(k, 0.0))
                for k in names
            },
        )


@dataclass(frozen=True)
class Summary:
    """A kernel's code, weighed. Counts are warp instructions of one warp.

    `pipes`: by pipe of the machine's rates. `traffic`: by `MemoryAccess.kind`. `conflicts`:
    additional operand reads (`banks`). `local_bytes`: of a thread. `reused_bytes`: of L1 lines a
    warp comes back to. `times[a][b]`: the walk at `LATENCIES[a]`, `LOCAL_LATENCIES[b]`.
    """

    name: str
    arch: str
    instructions: float
    conflicts: float
    pipes: Mapping[str, float]
    traffic: Mapping[str, Traffic]
    times: tuple[tuple[WarpTime, WarpTime], ...]
    local_bytes: int
    reused_bytes: int
    loop_bytes: int
    code_bytes: int
    is_recursive: bool = False
    is_asynchronous: bool = False
    """Whether it copies without waiting for each copy (LDGSTS, bulk and tensor copies)."""

    def time(self, latency: float, local: float) -> WarpTime:
        """One warp alone, at latencies of global and local accesses in cycles."""
        a = 0
        while a + 2 < len(LATENCIES) and latency > LATENCIES[a + 1]:
            a += 1
        share = (latency - LATENCIES[a]) / (LATENCIES[a + 1] - LATENCIES[a])
        near = self.times[a][0].between(self.times[a + 1][0], share)
        if "local_load" not in self.traffic:
            return near
        far = self.times[a][1].between(self.times[a + 1][1], share)
        low, high = LOCAL_LATENCIES
        return near.between(far, (local - low) / (high - low))

    def of(self, kind: str) -> Traffic:
        """The traffic of a kind; nothing where there is none."""
        return self.traffic.get(kind, Traffic())


def summarise(kernel: Kernel, trip_count: float = 10.0) -> Summary:
    """The summary of a kernel. Raises `UnsupportedError` for code that is not understood.

    The same code is weighed once: the last few summaries are kept.
    """
    functions = tuple((f.name, f.offset, f.size) for f in kernel.functions)
    tables = tuple((table.offset, tuple(table.targets)) for table in kernel.branch_tables)
    known = _summarise(kernel.name, kernel.arch, kernel.code, functions, tables, trip_count)
    depth = trip_count if known.is_recursive else 1.0
    return replace(known, local_bytes=int(kernel.local_bytes * depth))


@lru_cache(maxsize=64)
def _summarise(
    name: str,
    arch: str,
    code: bytes,
    functions: tuple[tuple[str, int, int], ...],
    tables: tuple[tuple[int, tuple[int, ...]], ...],
    trip_count: float,
) -> Summary:
    from regdem.isa.decode import decode

    program = build(name, decode(code, arch), list(functions), dict(tables))
    return summary_of(name, arch, program, trip_count)


def summary_of(
    name: str,
    arch: str,
    program: Program,
    trip_count: float = 10.0,
    weights: list[float] | None = None,
) -> Summary:
    """The same, of a program that is there already; without a frame.

    `weights`: executions of each block, where the caller knows better than `trip_count`.
    """
    machine = timing(arch)
    forms = forms_of(program.code)
    use = memory_use(program)
    seen = use.accesses
    weights = executions(program, trip_count) if weights is None else weights
    block_of: list[int] = program.block_of.tolist()
    weight = [weights[b] for b in block_of]
    pipes: dict[str, float] = {}
    traffic: dict[str, Traffic] = {}
    for i, form in enumerate(forms):
        w = weight[i]
        access = seen.get(i)
        if w == 0.0:
            continue
        if access is not None:
            kind = access.kind
            if kind:
                traffic[kind] = traffic.get(kind, Traffic()).plus(w, access)
        elif form.latency in PIPE_OF:
            pipe = PIPE_OF[form.latency]
            pipes[pipe] = pipes.get(pipe, 0.0) + w
    fixed = _fixed(forms, seen, machine)
    locals_: tuple[float, ...] = LOCAL_LATENCIES if "local_load" in traffic else (30.0, 30.0)
    times: list[tuple[WarpTime, WarpTime]] = []
    for latency in LATENCIES:
        near = _time(program, weights, fixed, latency, locals_[0], machine)
        far = near
        if locals_[1] != locals_[0]:
            far = _time(program, weights, fixed, latency, locals_[1], machine)
        times.append((near, far))
    return Summary(
        name=name,
        arch=arch,
        instructions=sum(weight),
        conflicts=sum(w * c for w, c in zip(weight, conflicts(program), strict=True)),
        pipes=pipes,
        traffic=traffic,
        times=tuple(times),
        local_bytes=0,
        reused_bytes=use.reused_bytes,
        loop_bytes=max(_loop_bytes(program), default=0),
        code_bytes=INSTRUCTION_BYTES * sum(1 for w in weight if w > 0.0),
        is_recursive=bool(recursive(program)),
        is_asynchronous=any(form.name.startswith(_COPIES) for form in forms),
    )


def _loop_bytes(program: Program) -> list[int]:
    """Code bytes of each loop."""
    size = [INSTRUCTION_BYTES * (block.end - block.start) for block in program.blocks]
    return [sum(size[b] for b in loop.blocks) for loop in loops(program)]


_Latency = dict[int, tuple[float, str]]


def _fixed(
    forms: list[Form], seen: Mapping[int, MemoryAccess], machine: Timing
) -> tuple[_Latency, list[tuple[int, float]], list[tuple[int, float]]]:
    """Latencies that don't depend on locality; the instructions that go to global memory with
    what their wavefronts add; the same for local memory."""
    known = machine.latency
    found: _Latency = {}
    far: list[tuple[int, float]] = []
    local: list[tuple[int, float]] = []
    for i, form in enumerate(forms):
        if not form.variable_latency:
            continue
        access = seen.get(i)
        if access is None:
            name = "constant" if form.memory == "constant" else form.latency
            found[i] = known.get(name, known["variable"]), name
            continue
        more = access.wavefronts - 1
        if access.space == "local":
            local.append((i, more))
        elif access.space in ("shared", "other"):
            base = known["barrier" if access.space == "other" else "shared"]
            found[i] = base + more, _CAUSE_OF[access.space]
        elif access.is_atomic:
            found[i] = known["atomic"] + more, _CAUSE_OF[access.space]
        else:
            far.append((i, more))
    return found, far, local


def _time(
    program: Program,
    weights: list[float],
    fixed: tuple[_Latency, list[tuple[int, float]], list[tuple[int, float]]],
    latency: float,
    local: float,
    machine: Timing,
) -> WarpTime:
    known, far, near = fixed
    latencies = dict(known)
    latencies.update((i, (latency + more, "long_scoreboard")) for i, more in far)
    latencies.update((i, (local + more, "local_memory")) for i, more in near)
    cycles = 0.0
    lost: Stalls = {}
    done = walk(program, weights, latencies, machine.latency["operand_read"])
    for weight, block in zip(weights, done, strict=True):
        cycles += weight * block.cycles
        for cause, each in block.lost.items():
            lost[cause] = lost.get(cause, 0.0) + weight * each
    return WarpTime(cycles, {k: v for k, v in lost.items() if v})


def to_json(summary: Summary) -> dict[str, Any]:
    """Plain data, for a cache."""
    return asdict(summary)


def from_json(data: dict[str, Any]) -> Summary:
    """The inverse of `to_json`."""
    fields: dict[str, Any] = dict(data)
    fields["traffic"] = {kind: Traffic(**each) for kind, each in data["traffic"].items()}
    fields["times"] = tuple((WarpTime(**a), WarpTime(**b)) for a, b in data["times"])
    return Summary(**fields)
