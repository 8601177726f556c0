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
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np

from regdem.analysis.bits import FILE_BASE
from regdem.analysis.forms import forms_of
from regdem.analysis.loop_demand import LONG_LATENCY
from regdem.isa.decoded import INSTRUCTION_BYTES, NO_SCOREBOARD, DecodedCode, RegisterFile, Role
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
_BASE = np.array([FILE_BASE[file] for file in RegisterFile], dtype=np.int64)
_DATA = FILE_BASE[RegisterFile.PRED]
"""Positions below this are registers of the GPR and UGPR files."""
_PLACES = 336
_BOARDS = [[b for b in range(6) if mask >> b & 1] for mask in range(64)]
"""The scoreboards of each wait mask."""


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
    body = _Body(program)
    found = [_loop(program, loop, body) for loop in chosen]
    return tuple(sorted(found, key=lambda loop: (loop.start_offset, loop.depth)))


class _Body:
    """The columns of a program that the walks read, as plain lists.

    `reads` and `writes`: per instruction the registers of all files, as packed positions.
    """

    def __init__(self, program: Program) -> None:
        code = program.code
        self.forms = forms_of(code)
        self.cycles = [result_cycles(form) for form in code.table.forms]
        self.long = [f.reads_memory and f.memory in LONG_LATENCY for f in code.table.forms]
        self.reads = _positions(code, Role.READ)
        self.writes = _positions(code, Role.WRITE)
        self.stall: list[int] = code.stall.tolist()
        self.wait: list[int] = code.wait_mask.tolist()
        self.write_scoreboard: list[int] = code.write_scoreboard.tolist()
        self.read_scoreboard: list[int] = code.read_scoreboard.tolist()


def _positions(code: DecodedCode, role: Role) -> list[list[int]]:
    chosen = ((code.operand_role & role) != 0).nonzero()[0]
    width = code.operand_width[chosen].astype(np.int64)
    first = _BASE[code.operand_file[chosen]] + code.operand_register[chosen]
    ends = np.cumsum(width)
    flat = np.arange(int(width.sum())) + np.repeat(first - (ends - width), width)
    instruction = np.repeat(code.operand_instruction[chosen], width)
    bounds: list[int] = np.searchsorted(instruction, np.arange(len(code) + 1)).tolist()
    positions: list[int] = flat.tolist()
    return [positions[a:b] for a, b in pairwise(bounds)]


def is_padding(program: Program, loop: Loop) -> bool:
    """The self-branch behind a kernel's last instruction: one block of one instruction."""
    return sum(program.blocks[b].end - program.blocks[b].start for b in loop.blocks) == 1


def fixed_cycles(form: Form) -> int:
    """Assumed cycles from issue to result of a fixed-latency instruction."""
    return _FIXED_CYCLES.get(form.latency, _DEFAULT_FIXED_CYCLES)


def result_cycles(form: Form) -> int:
    """Assumed cycles from issue to result of any instruction."""
    return ASSUMED_CYCLES[form.memory] if form.variable_latency else fixed_cycles(form)


def _loop(program: Program, loop: Loop, columns: _Body) -> LoopParallelism:
    blocks = sorted((program.blocks[b].start, program.blocks[b].end) for b in loop.blocks)
    body = [i for start, end in blocks for i in range(start, end)]
    form: list[int] = program.code.form[body].tolist()
    cycles = [columns.cycles[f] for f in form]
    unit = [int(columns.long[f]) for f in form]
    path, recurrence = _paths(body, columns, cycles)
    walk = _walk(body, columns, cycles, unit)
    return LoopParallelism(
        start_offset=blocks[0][0] * INSTRUCTION_BYTES,
        end_offset=blocks[-1][1] * INSTRUCTION_BYTES,
        depth=loop.depth,
        instructions=len(body),
        issue_cycles=sum([columns.stall[i] for i in body]),
        warp_cycles=walk.cycles,
        memory_stall_cycles=walk.memory_stall,
        critical_path_cycles=path,
        recurrence_cycles=recurrence,
        independent_chains=_chains(body, columns),
        loads=sum(unit),
        loads_in_flight=walk.in_flight,
        load_chain=_paths(body, columns, unit, passes=1)[0] if any(unit) else 0,
        warps_needed=SCHEDULERS * max(1, ceil(walk.cycles / max(1, len(body)))),
    )


def _paths(body: list[int], columns: _Body, cycles: list[int], passes: int = 3) -> tuple[int, int]:
    """(longest path of one pass, cycles the last pass adds)."""
    ready = [0] * _PLACES
    ends: list[int] = []
    steps = [
        (columns.reads[i], columns.writes[i], each) for i, each in zip(body, cycles, strict=True)
    ]
    end = 0
    for _ in range(passes):
        for reads, writes, each in steps:
            done = 0
            for r in reads:
                if ready[r] > done:
                    done = ready[r]
            done += each
            if done > end:
                end = done
            for r in writes:
                ready[r] = done
        ends.append(end)
    return ends[0], ends[-1] - ends[-2] if passes > 1 else 0


def _chains(body: list[int], columns: _Body) -> int:
    """Connected parts of the dependence graph of one pass, induction variables taken away.

    An induction variable is an instruction that updates its own result and otherwise reads only
    what the loop doesn't write.
    """
    reads = {i: {r for r in columns.reads[i] if r < _DATA} for i in body}
    writes = {i: {r for r in columns.writes[i] if r < _DATA} for i in body}
    written = set[int]().union(*writes.values())
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


def _walk(body: list[int], columns: _Body, cycles: list[int], long_loads: list[int]) -> _Walk:
    """An in-order warp over two passes; the figures are those of the second."""
    steps = [
        (
            columns.wait[i],
            columns.write_scoreboard[i],
            columns.read_scoreboard[i],
            max(1, columns.stall[i]),
            latency,
            is_long,
        )
        for i, latency, is_long in zip(body, cycles, long_loads, strict=True)
    ]
    done_at = [0] * 6
    slow: list[int] = [0] * 6
    result = _Walk()
    time = 0
    for _ in range(2):
        begin, waited, first_wait = time, 0, None
        for mask, write, read, stall, latency, is_long in steps:
            if mask:
                boards = _BOARDS[mask]
                ready = max([done_at[b] for b in boards])
                if any(slow[b] for b in boards):
                    first_wait = sum(slow) if first_wait is None else first_wait
                    waited += max(0, ready - time)
                    for b in boards:
                        slow[b] = 0
                time = max(time, ready)
            if write != NO_SCOREBOARD:
                done_at[write] = max(done_at[write], time + latency)
                slow[write] += is_long
            if read != NO_SCOREBOARD:
                done_at[read] = max(done_at[read], time + 10)
            time += stall
        result = _Walk(time - begin, waited, first_wait or 0)
    return result
