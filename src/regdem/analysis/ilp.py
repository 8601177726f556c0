"""Parallelism inside each loop: what one warp can overlap, and what it waits for.

Problem: whether a kernel wants more warps or more registers depends on how much of its latency a
warp hides by itself. The code says so: which instructions wait for which.

Method, per loop, on its instructions in address order:
- the dependence graph of register reads after writes, with assumed latencies. Its longest path in
  one pass is the critical path; what a second and third pass add to it is the recurrence, the
  cycles an iteration can't go below whatever the hardware;
- independent chains: connected parts of the same graph once induction variables and values from
  outside the loop are taken away;
- an in-order walk of one warp with the file's own stall counts and scoreboards: cycles per
  iteration of a warp alone, loads in flight when it first waits for memory, stalls;
- warps to cover it: cycles per iteration over instructions issued, per scheduler.

Invariants: `critical_path_cycles <= recurrence over one pass` is not required, but
`recurrence_cycles <= warp_cycles` up to the assumed latencies; counts are exact.

Not claimed: the path taken through a branching body (every block counts once), cache behaviour,
or contention between warps. Latencies are `ASSUMED_CYCLES`: round figures for a first-order
answer, not measurements of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from regdem.analysis.bits import FILE_BASE
from regdem.analysis.forms import forms_of
from regdem.analysis.loop_demand import LONG_LATENCY
from regdem.isa.decoded import INSTRUCTION_BYTES, NO_SCOREBOARD, RegisterFile, Role
from regdem.isa.table import Form
from regdem.program.loops import Loop
from regdem.program.program import Program

ASSUMED_CYCLES = {
    "global": 500,
    "generic": 500,
    "texture": 500,
    "surface": 500,
    "local": 40,
    "shared": 30,
    "constant": 40,
    "other": 30,
    "none": 20,
}
"""Variable latencies by memory kind: between an L2 hit and a DRAM access for global memory on
Hopper, an L1 hit for local; conservative guesses, as published microbenchmarks give them."""

_FIXED_CYCLES = {"fp64": 8, "imad_wide": 5, "hfma": 6, "mma": 24, "uniform": 10}
_DEFAULT_FIXED_CYCLES = 4
SCHEDULERS = 4
_BASE: list[int] = [FILE_BASE[file] for file in RegisterFile]
_DATA = FILE_BASE[RegisterFile.PRED]
"""Positions below this are registers of the GPR and UGPR files."""
_PLACES = 336


@dataclass(frozen=True)
class LoopParallelism:
    """One loop. Cycles are of one warp and one iteration, with assumed latencies."""

    start_offset: int
    end_offset: int
    depth: int
    instructions: int
    issue_cycles: int
    """Sum of the stall counts: what the schedule itself takes."""
    warp_cycles: int
    """Cycles per iteration of a warp alone."""
    memory_stall_cycles: int
    """Part of `warp_cycles` spent waiting for scoreboards of long-latency loads."""
    critical_path_cycles: int
    recurrence_cycles: int
    independent_chains: int
    loads: int
    loads_in_flight: int
    """Long-latency loads outstanding when the warp first waits for one."""
    load_chain: int
    """Longest chain of long-latency loads in which each needs the one before."""
    warps_needed: int
    """Warps per SM that keep the schedulers busy over `warp_cycles`."""

    def limited_by(self, active_warps: int | None) -> str:
        """ "latency" where the resident warps can't cover the waits, else "throughput"."""
        if active_warps is None:
            return "unknown"
        return "latency" if self.warps_needed > active_warps else "throughput"

    def to_dict(self, active_warps: int | None = None) -> dict[str, Any]:
        """The JSON form."""
        return dict(vars(self)) | {"limited_by": self.limited_by(active_warps)}


def loop_parallelism(program: Program, nest: tuple[Loop, ...]) -> tuple[LoopParallelism, ...]:
    """Every reachable innermost loop that does something, in order of address.

    A turn of an outer loop is mostly turns of its inner ones, so its own figures would mislead.
    """
    parents = {loop.parent for loop in nest}
    reachable = program.reachable
    chosen = [
        loop
        for index, loop in enumerate(nest)
        if index not in parents and loop.blocks & reachable and not is_padding(program, loop)
    ]
    if not chosen:
        return ()
    forms = forms_of(program.code)
    accesses = _accesses(program)
    found = [_loop(program, loop, forms, accesses) for loop in chosen]
    return tuple(sorted(found, key=lambda loop: (loop.start_offset, loop.depth)))


@dataclass(frozen=True)
class _Accesses:
    """Per instruction the registers of all files that it reads and writes, as packed positions."""

    reads: list[list[int]]
    writes: list[list[int]]


def _accesses(program: Program) -> _Accesses:
    code = program.code
    reads: list[list[int]] = [[] for _ in range(len(code))]
    writes: list[list[int]] = [[] for _ in range(len(code))]
    instruction: list[int] = code.operand_instruction.tolist()
    file_of: list[int] = code.operand_file.tolist()
    start: list[int] = code.operand_register.tolist()
    width_of: list[int] = code.operand_width.tolist()
    role_of: list[int] = code.operand_role.tolist()
    rows = zip(instruction, file_of, start, width_of, role_of, strict=True)
    for i, file, register, width, role in rows:
        first = _BASE[file] + register
        if role & Role.READ:
            reads[i].extend(range(first, first + width))
        if role & Role.WRITE:
            writes[i].extend(range(first, first + width))
    return _Accesses(reads, writes)


def is_padding(program: Program, loop: Loop) -> bool:
    """The self-branch behind a kernel's last instruction: one block of one instruction."""
    return sum(program.blocks[b].end - program.blocks[b].start for b in loop.blocks) == 1


def fixed_cycles(form: Form) -> int:
    """Assumed cycles from issue to result of a fixed-latency instruction."""
    return _FIXED_CYCLES.get(form.latency, _DEFAULT_FIXED_CYCLES)


def result_cycles(form: Form) -> int:
    """Assumed cycles from issue to result of any instruction."""
    return ASSUMED_CYCLES[form.memory] if form.variable_latency else fixed_cycles(form)


def _loop(
    program: Program,
    loop: Loop,
    forms: list[Form],
    accesses: _Accesses,
) -> LoopParallelism:
    blocks = sorted((program.blocks[b].start, program.blocks[b].end) for b in loop.blocks)
    body = [i for start, end in blocks for i in range(start, end)]
    form_of = {i: forms[i] for i in body}
    cycles = {i: result_cycles(form) for i, form in form_of.items()}
    long_loads = {i for i, f in form_of.items() if f.reads_memory and f.memory in LONG_LATENCY}
    path, recurrence = _paths(body, accesses, cycles)
    walk = _walk(program, body, cycles, long_loads)
    unit = {i: 1 if i in long_loads else 0 for i in body}
    chain, _ = _paths(body, accesses, unit)
    return LoopParallelism(
        start_offset=blocks[0][0] * INSTRUCTION_BYTES,
        end_offset=blocks[-1][1] * INSTRUCTION_BYTES,
        depth=loop.depth,
        instructions=len(body),
        issue_cycles=sum(program.code.stall[body].tolist()),
        warp_cycles=walk.cycles,
        memory_stall_cycles=walk.memory_stall,
        critical_path_cycles=path,
        recurrence_cycles=recurrence,
        independent_chains=_chains(body, accesses),
        loads=len(long_loads),
        loads_in_flight=walk.in_flight,
        load_chain=chain,
        warps_needed=SCHEDULERS * max(1, ceil(walk.cycles / max(1, len(body)))),
    )


def _paths(body: list[int], accesses: _Accesses, cycles: dict[int, int]) -> tuple[int, int]:
    """(longest path of one pass, cycles each further pass adds)."""
    ready = [0] * _PLACES
    ends: list[int] = []
    reads, writes = accesses.reads, accesses.writes
    end = 0
    for _ in range(3):
        for i in body:
            done = cycles[i]
            if reads[i]:
                done += max([ready[r] for r in reads[i]])
            if done > end:
                end = done
            for r in writes[i]:
                ready[r] = done
        ends.append(end)
    return ends[0], ends[2] - ends[1]


def _chains(body: list[int], accesses: _Accesses) -> int:
    """Connected parts of the dependence graph of one pass, induction variables taken away.

    An induction variable is an instruction that updates its own result and otherwise reads only
    what the loop doesn't write.
    """
    reads = {i: {r for r in accesses.reads[i] if r < _DATA} for i in body}
    writes = {i: {r for r in accesses.writes[i] if r < _DATA} for i in body}
    written: set[int] = set()
    for i in body:
        written |= writes[i]
    inductive = {i for i in body if reads[i] & writes[i] and not (reads[i] - writes[i]) & written}
    parent = {i: i for i in body}

    def find(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    writer: dict[int, int] = {}
    linked: set[int] = set()
    for i in body:
        for r in reads[i]:
            source = writer.get(r)
            if source is not None and source not in inductive and i not in inductive:
                parent[find(i)] = find(source)
                linked |= {i, source}
        for r in writes[i]:
            writer[r] = i
    return max(1, len({find(i) for i in linked}))


@dataclass
class _Walk:
    cycles: int = 0
    memory_stall: int = 0
    in_flight: int = 0


def _walk(program: Program, body: list[int], cycles: dict[int, int], long_loads: set[int]) -> _Walk:
    """An in-order warp over two passes; the figures are those of the second."""
    code = program.code
    stall: list[int] = code.stall.tolist()
    wait: list[int] = code.wait_mask.tolist()
    write: list[int] = code.write_scoreboard.tolist()
    read: list[int] = code.read_scoreboard.tolist()
    done_at = [0] * 6
    slow: list[int] = [0] * 6
    result = _Walk()
    time = 0
    for _ in range(2):
        begin, waited, first_wait = time, 0, None
        for i in body:
            mask = wait[i]
            if mask:
                ready = max(done_at[b] for b in range(6) if mask >> b & 1)
                outstanding = sum(slow)
                if any(slow[b] for b in range(6) if mask >> b & 1):
                    first_wait = outstanding if first_wait is None else first_wait
                    waited += max(0, ready - time)
                for b in range(6):
                    if mask >> b & 1:
                        slow[b] = 0
                time = max(time, ready)
            if write[i] != NO_SCOREBOARD:
                done_at[write[i]] = max(done_at[write[i]], time + cycles[i])
                slow[write[i]] += i in long_loads
            if read[i] != NO_SCOREBOARD:
                done_at[read[i]] = max(done_at[read[i]], time + 10)
            time += max(1, stall[i])
        result = _Walk(time - begin, waited, first_wait or 0)
    return result
