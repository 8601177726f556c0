"""What each innermost loop asks of the warps around it: issue, loads, and stalls for memory.

Problem: how many warps hide a kernel's memory latency depends on how much it issues between two
loads and on how many loads it has outstanding when it first waits. Both stand in the code: a
load names a scoreboard, and the instruction that needs its value waits for that scoreboard.

Method: walk the loop's instructions in address order, twice, so that loads of one iteration that
are waited on in the next are seen, and count on the second walk. A wait on a scoreboard with
outstanding long-latency loads is one stall; when it ends, everything outstanding has had the same
time and is taken as arrived. A kernel with no loop is one stretch, walked once.

A loop that was unrolled leaves a remainder: the same work, fewer turns of it at a time. It has the
memory accesses of another loop, k times fewer of every kind, and about k times less floating-point
arithmetic. It runs a few turns where the other runs all; its few loads in flight say nothing about
the kernel. Where there are only loads, and nothing else to compare, it can't be told.

Invariants: `stalls <= loads + 1`, `instructions` counts each instruction of the loop once.

Not claimed: the path taken through a branching body (every block counts), or which cache answers a
load. Loads are those of global, generic, texture and surface memory that signal by scoreboard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from regdem.isa.decoded import INSTRUCTION_BYTES, NO_SCOREBOARD
from regdem.program.loops import loops
from regdem.program.program import Program

_ARITHMETIC = ""
_FLOATING = ("FADD", "FMUL", "FFMA", "DADD", "DMUL", "DFMA", "HADD", "HMUL", "HFMA", "MUFU", "HMMA")
_AGREES = 0.15
"""Floating-point work may differ by so much: at the seams of turns some of it is joined."""
LONG_LATENCY = frozenset({"global", "generic", "texture", "surface"})


@dataclass(frozen=True)
class LoopDemand:
    """One innermost loop (or, at depth 0, a kernel with none).

    `instructions`: issued per iteration. `stall_cycles`: sum of the stall counts. `loads`:
    long-latency loads; `stalls`: times a warp waits for them. `remainder_of_offset`: start of the
    unrolled loop of which this does the last turns, None for any other loop.
    """

    start_offset: int
    end_offset: int
    depth: int
    instructions: int
    stall_cycles: int
    loads: int
    stalls: int
    remainder_of_offset: int | None = None

    @property
    def issue_cycles_per_load(self) -> float:
        """Instructions per load: the cycles of its scheduler a warp takes for each."""
        return self.instructions / max(1, self.loads)

    @property
    def loads_in_flight(self) -> float:
        """Loads outstanding when the warp first waits, on average."""
        return self.loads / max(1, self.stalls)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "depth": self.depth,
            "instructions": self.instructions,
            "stall_cycles": self.stall_cycles,
            "loads": self.loads,
            "stalls": self.stalls,
            "issue_cycles_per_load": self.issue_cycles_per_load,
            "loads_in_flight": self.loads_in_flight,
            "remainder_of_offset": self.remainder_of_offset,
        }


def loop_demands(program: Program) -> tuple[LoopDemand, ...]:
    """The innermost loops of the kernel's reachable code, by address; never empty."""
    nest = loops(program)
    reachable = program.reachable
    parents = {loop.parent for loop in nest}
    inner = [
        loop
        for index, loop in enumerate(nest)
        if index not in parents and loop.blocks & reachable and not _idle(program, loop.blocks)
    ]
    if not inner:
        return (_demand(program, reachable, 0),)
    demands = [_demand(program, loop.blocks, loop.depth) for loop in inner]
    work = [_work(program, loop.blocks) for loop in inner]
    for k, loop in enumerate(inner):
        for j, other in enumerate(inner):
            if loop.parent == other.parent and _is_part(work[k], work[j]):
                main = demands[j].start_offset
                demands[k] = replace(demands[k], remainder_of_offset=main)
    return tuple(sorted(demands, key=lambda demand: demand.start_offset))


def _work(program: Program, blocks: Iterable[int]) -> Counter[str]:
    """Memory accesses by name, and floating-point instructions under `_ARITHMETIC`."""
    forms = program.code.table.forms
    found: Counter[str] = Counter()
    for b in blocks:
        for i in range(program.blocks[b].start, program.blocks[b].end):
            form = forms[int(program.code.form[i])]
            if form.memory not in ("none", "constant", "other"):
                found[form.name] += 1
            elif form.name.startswith(_FLOATING):
                found[_ARITHMETIC] += 1
    return found


def _is_part(part: Counter[str], whole: Counter[str]) -> bool:
    """Whether `whole` is the work of `part` some times over."""
    accesses = part.keys() - {_ARITHMETIC}
    if accesses != whole.keys() - {_ARITHMETIC} or not accesses or len(part) < 2:
        return False
    times, rest = divmod(whole[min(accesses)], part[min(accesses)])
    if rest or times < 2 or any(whole[name] != times * part[name] for name in accesses):
        return False
    arithmetic = times * part[_ARITHMETIC]
    return abs(whole[_ARITHMETIC] - arithmetic) <= max(1, _AGREES * arithmetic)


def _idle(program: Program, blocks: frozenset[int]) -> bool:
    """The self-branch that pads the end of a kernel."""
    return sum(program.blocks[b].end - program.blocks[b].start for b in blocks) == 1


def _demand(program: Program, blocks: Iterable[int], depth: int) -> LoopDemand:
    spans = sorted((program.blocks[b].start, program.blocks[b].end) for b in blocks)
    body = [i for start, end in spans for i in range(start, end)]
    long_loads = _long_loads(program)
    outstanding: dict[int, int] = {}
    _walk(program, body, long_loads, outstanding)
    if depth:
        stalls = _walk(program, body, long_loads, outstanding)
    else:
        stalls = _walk(program, body, long_loads, {})
    loads = sum(1 for i in body if i in long_loads)
    return LoopDemand(
        start_offset=spans[0][0] * INSTRUCTION_BYTES,
        end_offset=spans[-1][1] * INSTRUCTION_BYTES,
        depth=depth,
        instructions=len(body),
        stall_cycles=sum(int(program.code.stall[i]) for i in body),
        loads=loads,
        stalls=max(stalls, 1) if loads else 0,
    )


def _walk(
    program: Program, body: list[int], long_loads: frozenset[int], outstanding: dict[int, int]
) -> int:
    """Stalls on one walk; `outstanding` (loads per scoreboard) is carried from walk to walk."""
    code = program.code
    stalls = 0
    for i in body:
        mask = int(code.wait_mask[i])
        if any(count and mask >> board & 1 for board, count in outstanding.items()):
            stalls += 1
            outstanding.clear()
        board = int(code.write_scoreboard[i])
        if i in long_loads and board != NO_SCOREBOARD:
            outstanding[board] = outstanding.get(board, 0) + 1
    return stalls


def _long_loads(program: Program) -> frozenset[int]:
    forms = program.code.table.forms
    slow = [form.reads_memory and form.memory in LONG_LATENCY for form in forms]
    return frozenset(i for i, f in enumerate(program.code.form.tolist()) if f >= 0 and slow[f])
