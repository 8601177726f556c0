"""The counter of a loop: what one turn adds to it, and how often the loop turns.

Problem: an unroll factor shows most surely in the step of the loop's counter.

Method: the branch on the back edge has a guard; the comparison that made it (through copies from a
uniform predicate) reads a register and a bound. Walking backward once around the loop from the
comparison, through additions of constants and moves, must come back to the same register; the sum
of the constants is the step. Where the bound is a constant and a constant is moved into the
register in front of the loop, the turns follow.

Not claimed: counters updated by anything else (then there is no answer), and the order of blocks
in a branching body (addresses are taken as the order, which is ptxas's own for a loop's spine).
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.isa.decoded import DecodedCode, RegisterFile, Role
from regdem.isa.table import Form
from regdem.program.loops import Loop
from regdem.program.program import Program

_COMPARE = frozenset({"ISETP", "UISETP"})
_COPY_PREDICATE = frozenset({"PLOP3", "UPLOP3"})
_ADD = frozenset({"IADD3", "VIADD", "UIADD3", "IADD"})
_MOVE = frozenset({"MOV", "UMOV"})
_IMMEDIATE_FORM = 4
_ALWAYS = 7
_MOST_TURNS = 1 << 24

Place = tuple[int, int]
"""Register file and number."""


@dataclass(frozen=True)
class CounterStep:
    """`step`: what a turn adds to the register compared, in its own unit (iterations, or bytes
    where a pointer is compared). `turns`: per entry, where start and end are constants.
    """

    step: int
    turns: int | None


def counter_of(program: Program, loop: Loop, forms: list[Form]) -> CounterStep | None:
    """The counter of a loop, or None where it can't be told."""
    code = program.code
    body = [
        i
        for b in sorted(loop.blocks, key=lambda b: program.blocks[b].start)
        for i in range(program.blocks[b].start, program.blocks[b].end)
    ]
    position = {i: k for k, i in enumerate(body)}
    for block in sorted(loop.blocks, reverse=True):
        if loop.header not in program.blocks[block].successors:
            continue
        branch = program.blocks[block].end - 1
        compare = _comparison(code, forms, body, position.get(branch))
        if compare is None:
            continue
        for register in _data_reads(code, body[compare]):
            step = _step(code, forms, body, compare, register)
            if step:
                turns = _turns(program, loop, forms, body[compare], register, step)
                return CounterStep(step, turns)
    return None


def _comparison(
    code: DecodedCode, forms: list[Form], body: list[int], at: int | None
) -> int | None:
    """Position in the body of the comparison behind a branch's guard."""
    if at is None:
        return None
    wanted = _predicates(code, body[at], Role.READ)
    for k in range(at - 1, -1, -1):
        i = body[k]
        if not wanted & _predicates(code, i, Role.WRITE):
            continue
        if forms[i].name in _COMPARE:
            return k
        if forms[i].name not in _COPY_PREDICATE:
            return None
        wanted = _predicates(code, i, Role.READ)
    return None


def _step(
    code: DecodedCode, forms: list[Form], body: list[int], compare: int, start: Place
) -> int | None:
    """Sum of the constants added to `start` once around the loop, or None."""
    place, total = start, 0
    count = len(body)
    for back in range(1, count + 1):
        i = body[(compare - back) % count]
        if not _writes(code, i, place):
            continue
        if code.guard[i] != _ALWAYS:
            return None
        sources = _data_reads(code, i)
        name = forms[i].name
        constant = _immediate(code, i)
        if name in _ADD and constant is not None and len(sources) == 1:
            total += constant
        elif not (constant is None and len(sources) == 1 and _is_move(code, forms, i)):
            return None
        place = sources[0]
    return total if place == start else None


def _turns(
    program: Program, loop: Loop, forms: list[Form], compare: int, register: Place, step: int
) -> int | None:
    """Turns where the comparison is with a constant and the start is one; both told apart from
    the step's sign, and rounded up for a last, shorter turn.
    """
    code = program.code
    bound = _immediate(code, compare)
    if bound is None:
        return None
    outside = [p for p in program.blocks[loop.header].predecessors if p not in loop.blocks]
    if len(outside) != 1:
        return None
    block = program.blocks[outside[0]]
    for i in range(block.end - 1, block.start - 1, -1):
        if not _writes(code, i, register):
            continue
        start = _constant(code, forms, i)
        if start is None:
            return None
        distance = (bound - start) if step > 0 else (start - bound)
        turns = -(-distance // abs(step))
        return turns if 0 < turns < _MOST_TURNS else None
    return None


def _constant(code: DecodedCode, forms: list[Form], i: int) -> int | None:
    """The value of an instruction that writes a constant."""
    if _data_reads(code, i):
        return None
    name = forms[i].name
    immediate = _immediate(code, i)
    if name in _MOVE or name == "HFMA2":
        return immediate
    if name == "CS2R" or (name == "IMAD" and immediate is None):
        return 0
    return None


def _is_move(code: DecodedCode, forms: list[Form], i: int) -> bool:
    """MOV, or IMAD with a zero product."""
    if forms[i].name in _MOVE:
        return True
    rows = range(int(code.operand_start[i]), int(code.operand_start[i + 1]))
    reads = [r for r in rows if code.operand_role[r] & Role.READ and code.operand_bit[r] != 12]
    return forms[i].name == "IMAD" and [int(code.operand_bit[r]) for r in reads] == [64]


def _immediate(code: DecodedCode, i: int) -> int | None:
    """The signed 32-bit constant of an instruction in immediate form."""
    lo = int(code.words[i, 0])
    if (lo >> 9) & 7 != _IMMEDIATE_FORM:
        return None
    value = lo >> 32
    return value - ((value & 0x80000000) << 1)


def _predicates(code: DecodedCode, i: int, role: Role) -> set[Place]:
    rows = range(int(code.operand_start[i]), int(code.operand_start[i + 1]))
    return {
        (int(code.operand_file[row]), int(code.operand_register[row]))
        for row in rows
        if code.operand_file[row] in (RegisterFile.PRED, RegisterFile.UPRED)
        and code.operand_role[row] & role
    }


def _data_reads(code: DecodedCode, i: int) -> list[Place]:
    rows = range(int(code.operand_start[i]), int(code.operand_start[i + 1]))
    return [
        (int(code.operand_file[row]), int(code.operand_register[row]))
        for row in rows
        if code.operand_file[row] in (RegisterFile.GPR, RegisterFile.UGPR)
        and code.operand_role[row] & Role.READ
    ]


def _writes(code: DecodedCode, i: int, place: Place) -> bool:
    rows = range(int(code.operand_start[i]), int(code.operand_start[i + 1]))
    return any(
        code.operand_file[row] == place[0]
        and code.operand_role[row] & Role.WRITE
        and 0 <= place[1] - int(code.operand_register[row]) < int(code.operand_width[row])
        for row in rows
    )
