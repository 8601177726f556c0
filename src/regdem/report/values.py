"""The values that make up the peak: where they come from and why they are still there.

A value that is expensive to keep and cheap to make again is the first to go. What a value is
follows from its one definition: an immediate, a constant-bank load or special register, a copy of
uniform registers. What it does follows from its accesses: untouched in the innermost loop around
the peak, it is only held for later.
"""

from __future__ import annotations

from collections.abc import Callable

from regdem.analysis.webs import STACK_POINTER, Web, Webs
from regdem.isa.decoded import INSTRUCTION_BYTES, DecodedCode, RegisterFile, Role
from regdem.program.loops import Loop
from regdem.program.program import Program
from regdem.report.model import PeakValue, SourceLine

HELD_DISTANCE = 64
_RECOMPUTABLE = frozenset({"S2R", "CS2R", "LDC", "ULDC"})

LineAt = Callable[[int], SourceLine | None]


def peak_values(
    program: Program, webs: Webs, nest: tuple[Loop, ...], peak: int, line_at: LineAt
) -> tuple[PeakValue, ...]:
    """The webs that hold a register at instruction `peak`, by register."""
    at = 3 << (2 * peak)
    near = _neighbourhood(program, nest, peak)
    depth = _depths(program, nest)
    found = [
        _value(program, webs, web, near, depth, line_at) for web in webs.webs if web.points & at
    ]
    return tuple(sorted(found, key=lambda value: (value.register, value.web)))


def _neighbourhood(program: Program, nest: tuple[Loop, ...], peak: int) -> Callable[[int], bool]:
    block = int(program.block_of[peak])
    around = [loop for loop in nest if block in loop.blocks]
    if not around:
        return lambda i: abs(i - peak) <= HELD_DISTANCE
    innermost = max(around, key=lambda loop: loop.depth).blocks
    return lambda i: int(program.block_of[i]) in innermost


def _depths(program: Program, nest: tuple[Loop, ...]) -> list[int]:
    depth = [0] * len(program.blocks)
    for loop in nest:
        for b in loop.blocks:
            depth[b] = max(depth[b], loop.depth)
    return depth


def _value(
    program: Program,
    webs: Webs,
    web: Web,
    near: Callable[[int], bool],
    depth: list[int],
    line_at: LineAt,
) -> PeakValue:
    group = webs.groups[web.group]
    accesses = sorted({*web.reads, *web.writes})
    first = min(web.writes, default=accesses[0] if accesses else 0)
    return PeakValue(
        web=web.index,
        register=web.register,
        width=group.high - group.low + 1,
        kind=_kind(program.code, web, near),
        definitions=tuple(INSTRUCTION_BYTES * i for i in sorted(set(web.writes))),
        uses=tuple(INSTRUCTION_BYTES * i for i in sorted(set(web.reads))),
        length=(web.points.bit_count() + 1) // 2,
        loop_depth=max((depth[int(program.block_of[i])] for i in accesses), default=0),
        source=line_at(INSTRUCTION_BYTES * first),
    )


def _kind(code: DecodedCode, web: Web, near: Callable[[int], bool]) -> str:
    if web.register == STACK_POINTER:
        return "stack_pointer"
    origin = definition_kind(code, web)
    if origin is not None:
        return origin
    if not any(near(i) for i in (*web.reads, *web.writes)):
        return "held"
    return "working"


def definition_kind(code: DecodedCode, web: Web) -> str | None:
    """What a web's one definition makes it: "constant", "recomputable", "warp_uniform" or None."""
    if len(set(web.writes)) != 1 or web.whole:
        return None
    i = web.writes[0]
    form = code.table.forms[int(code.form[i])]
    files = {
        int(code.operand_file[row])
        for row in range(int(code.operand_start[i]), int(code.operand_start[i + 1]))
        if code.operand_role[row] & Role.READ and code.operand_bit[row] != 12
    }
    if code.guard[i] != 7 or RegisterFile.GPR in files or RegisterFile.PRED in files:
        return None
    if form.name in _RECOMPUTABLE:
        return "recomputable" if RegisterFile.UGPR not in files else "warp_uniform"
    if form.memory not in ("none", "constant"):
        return None
    if files:
        return "warp_uniform"
    operand_form = int(code.words[i, 0] >> 9) & 7
    return "recomputable" if operand_form in (3, 5) else "constant"
