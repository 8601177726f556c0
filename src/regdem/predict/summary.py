"""What the model needs to know of a kernel's code, found once and weighed by executions.

Everything here is independent of how many warps are resident and of where memory accesses go: sums
of instructions per pipe, of accesses per memory space, and the time of one warp as a function of
the latencies of global and of local memory. That function is piecewise linear in either; it is
walked at a few points (`LATENCIES`) and read off in between, so that any number of assumptions
about locality, and any residency, cost nothing more. Fitting the model's constants over hundreds
of builds takes seconds for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from regdem.analysis.banks import bank_conflicts
from regdem.analysis.forms import forms_of
from regdem.binary.kernel import Kernel
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.isa.fields import get_field
from regdem.isa.table import Form
from regdem.machine.timing import Timing, timing
from regdem.predict.lanes import COPY
from regdem.predict.phases import Phase, barriers, piece_of, spans
from regdem.predict.traffic import SECTOR_BYTES, MemoryAccess, memory_use
from regdem.predict.walk import BlockWalk, Marks, walk
from regdem.predict.weights import RARE, executions, recursive
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
_ARITHMETIC = ("alu", "fma", "imad", "imad_wide", "half", "fp64", "mma", "mufu")
_NEAR = ("shared", "local_load", "local_store")
_BULK_COPIES = ("UBLK", "UTMA")
_AWAITED_AT = LATENCIES.index(600.0)
_MOST_AWAITED = 16
_GATHERED = (-1, 0)
"""The place of loads at addresses that are not known from each other."""
Stalls = dict[str, float]


@dataclass(frozen=True)
class Traffic:
    """Accesses of one kind, per warp: instructions, L1 wavefronts, bytes of sectors touched first,
    touched again after a wait, and touched again without one (`pending_bytes`)."""

    instructions: float = 0.0
    wavefronts: float = 0.0
    sector_bytes: float = 0.0
    repeated_bytes: float = 0.0
    pending_bytes: float = 0.0

    def plus(self, weight: float, access: MemoryAccess) -> Traffic:
        """One more access, `weight` times."""
        return Traffic(
            self.instructions + weight,
            self.wavefronts + weight * access.wavefronts,
            self.sector_bytes + weight * access.sectors * SECTOR_BYTES,
            self.repeated_bytes + weight * access.repeats * SECTOR_BYTES,
            self.pending_bytes + weight * access.pending * SECTOR_BYTES,
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
    """Whether it has bulk or tensor copies, the wait for which (mbarriers) is not walked."""
    fetched: tuple[tuple[int, float], ...] = ()
    """Instructions by the code bytes that come between one execution and the next: those of the
    innermost loop around them, else all."""
    phases: tuple[Phase, ...] = ()
    """Between barriers; none where there are no two of them."""
    awaited: tuple[tuple[int, float], ...] = ()
    """Of the cycles lost to global memory, the share at waits for so many places at once."""
    pending_lines_bytes: int = 0
    """Of L1 lines that a warp touches again without a wait in between."""
    slot_bytes: int = 0
    """Of the frame, what is accessed at known places: spills, and arrays that were unrolled."""
    indexed: float = 0.0
    """Accesses to local memory at other places: arrays indexed at run time."""

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

    @property
    def work(self) -> tuple[float, float]:
        """Bytes of sectors of global memory, and arithmetic instructions, of one warp."""
        far = [t for kind, t in self.traffic.items() if kind not in _NEAR]
        moved = sum(t.sector_bytes + t.repeated_bytes + t.pending_bytes for t in far)
        return moved, sum(self.pipes.get(pipe, 0.0) for pipe in _ARITHMETIC)

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
    marks = _marks(program, forms)
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
    places = {i: use.places.get(i, _GATHERED) for i, _ in fixed[1] if seen[i].is_load}
    marks = replace(marks, far=places)
    times: list[tuple[WarpTime, WarpTime]] = []
    walks: list[list[BlockWalk]] = []
    for latency in LATENCIES:
        done = _walked(program, weights, fixed, latency, locals_[0], machine, marks)
        walks.append(done)
        near = far = _time(weights, done)
        if locals_[1] != locals_[0]:
            far = _time(
                weights, _walked(program, weights, fixed, latency, locals_[1], machine, marks)
            )
        times.append((near, far))
    return Summary(
        name=name,
        arch=arch,
        instructions=sum(weight),
        conflicts=sum(
            w * c for w, c in zip(weight, bank_conflicts(program, lasting=False), strict=True)
        ),
        pipes=pipes,
        traffic=traffic,
        times=tuple(times),
        local_bytes=0,
        reused_bytes=use.reused_bytes,
        pending_lines_bytes=use.pending_bytes,
        slot_bytes=len(use.slots),
        indexed=sum((weight[i] for i in use.indexed), 0.0),
        loop_bytes=max(_loop_bytes(program), default=0),
        code_bytes=INSTRUCTION_BYTES * sum(1 for w in weight if w > 0.0),
        is_recursive=bool(recursive(program)),
        is_asynchronous=any(form.name.startswith(_BULK_COPIES) for form in forms),
        fetched=_fetched(program, weights),
        phases=_phases(program, marks, weights, seen, walks),
        awaited=_awaited(weights, walks[_AWAITED_AT]),
    )


def _loop_bytes(program: Program) -> list[int]:
    """Code bytes of each loop."""
    size = [INSTRUCTION_BYTES * (block.end - block.start) for block in program.blocks]
    return [sum(size[b] for b in loop.blocks) for loop in loops(program)]


def _fetched(program: Program, weights: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """See `Summary.fetched`. Code that never runs, or rarely, takes no room."""
    runs = [
        INSTRUCTION_BYTES * (block.end - block.start) if weight >= RARE else 0
        for block, weight in zip(program.blocks, weights, strict=True)
    ]
    around = [sum(runs)] * len(runs)
    for loop in loops(program):
        for b in loop.blocks:
            around[b] = sum(runs[each] for each in loop.blocks)
    found: dict[int, float] = {}
    for block, weight, size in zip(program.blocks, weights, around, strict=True):
        if weight:
            own = INSTRUCTION_BYTES * (block.end - block.start)
            place = max(size, own)  # all of it may be code that rarely runs
            found[place] = found.get(place, 0.0) + weight * (block.end - block.start)
    return tuple(sorted(found.items()))


def _awaited(weights: Sequence[float], done: Sequence[BlockWalk]) -> tuple[tuple[int, float], ...]:
    """See `Summary.awaited`."""
    found: dict[int, float] = {}
    for weight, block in zip(weights, done, strict=True):
        for places, cycles in block.awaited.items():
            k = min(places, _MOST_AWAITED)
            found[k] = found.get(k, 0.0) + weight * cycles
    total = sum(found.values())
    return tuple((k, each / total) for k, each in sorted(found.items()) if total and each)


def _phases(
    program: Program,
    marks: Marks,
    weights: Sequence[float],
    seen: Mapping[int, MemoryAccess],
    walks: Sequence[Sequence[BlockWalk]],
) -> tuple[Phase, ...]:
    """See `Summary.phases`."""
    if not marks.barriers:
        return ()
    of, inside, count = piece_of(program, frozenset(marks.barriers))
    if count < 2:
        return ()
    instructions, wavefronts, far = [0.0] * count, [0.0] * count, [0.0] * count
    cycles = [[0.0] * len(walks) for _ in range(count)]
    for block, weight in zip(program.blocks, weights, strict=True):
        if not weight:
            continue
        for i in range(block.start, block.end):
            k = of[i]
            instructions[k] += weight
            access = seen.get(i)
            if access is not None and access.kind:
                wavefronts[k] += weight * access.wavefronts
                if access.kind not in ("shared", "local_load", "local_store"):
                    far[k] += weight * (access.sectors + access.repeats) * SECTOR_BYTES
        for a, done in enumerate(walks):
            each = done[block.index]
            for phase, span in zip(inside[block.index], spans(each.cycles, each.cuts), strict=True):
                cycles[phase][a] += weight * span
    return tuple(
        Phase(instructions[k], wavefronts[k], far[k], tuple(cycles[k]))
        for k in range(count)
        if instructions[k]
    )


def _marks(program: Program, forms: Sequence[Form]) -> Marks:
    """What the walk must know of single instructions; the loads are filled in later."""
    words: list[list[int]] = program.code.words.tolist()
    named: dict[str, set[int]] = {}
    for i, form in enumerate(forms):
        named.setdefault(form.name, set()).add(i)
    counted: dict[int, tuple[int, int, int]] = {}
    for i in named.get("DEPBAR", ()):
        lo, hi = words[i]
        counted[i] = get_field(lo, hi, 44, 3), get_field(lo, hi, 38, 6), get_field(lo, hi, 32, 6)
    return Marks(
        barriers=barriers(program),
        copies=frozenset(named.get(COPY, ())),
        commits=frozenset(named.get("LDGDEPBAR", ())),
        counted=counted,
    )


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


def _walked(
    program: Program,
    weights: list[float],
    fixed: tuple[_Latency, list[tuple[int, float]], list[tuple[int, float]]],
    latency: float,
    local: float,
    machine: Timing,
    marks: Marks,
) -> list[BlockWalk]:
    known, far, near = fixed
    latencies = dict(known)
    latencies.update((i, (latency + more, "long_scoreboard")) for i, more in far)
    latencies.update((i, (local + more, "local_memory")) for i, more in near)
    return walk(program, weights, latencies, machine.latency["operand_read"], marks)


def _time(weights: Sequence[float], done: Sequence[BlockWalk]) -> WarpTime:
    cycles = 0.0
    lost: Stalls = {}
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
    fields["fetched"] = tuple((int(a), float(b)) for a, b in data.get("fetched", ()))
    fields["awaited"] = tuple((int(a), float(b)) for a, b in data.get("awaited", ()))
    phases = [Phase(**each) for each in data.get("phases", ())]
    fields["phases"] = tuple(replace(each, cycles=tuple(each.cycles)) for each in phases)
    fields["times"] = tuple((WarpTime(**a), WarpTime(**b)) for a, b in data["times"])
    return Summary(**fields)
