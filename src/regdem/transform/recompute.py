"""Rematerialisation (Briggs): values that are cheaper to compute again than to keep.

A web can be recomputed at a use if it has one unguarded definition that writes nothing else and
reads no register, and whose result is the same whenever it runs: an immediate, a constant-bank
load at a fixed address, a special register that does not change within a launch.
"""

from __future__ import annotations

from regdem.analysis.webs import Webs
from regdem.isa.control import ControlWord, set_control
from regdem.isa.encode import Word
from regdem.isa.fields import get_field
from regdem.program.program import Program

_STABLE_SPECIAL = frozenset({0x00, 0x21, 0x22, 0x23, 0x25, 0x26, 0x27, 0x88})
"""Lane id, thread index x y z, block index x y z, rank in the cluster (measured with S2R)."""
_MOVES = frozenset({"MOV", "IMAD", "LDC", "S2R"})


def recomputable(program: Program, webs: Webs, *, pairs: bool = False) -> dict[int, int]:
    """The webs that can be recomputed, and the instruction that defines each.

    With `pairs` also the webs of the two halves of a 64-bit constant-bank load, which can be
    recomputed together only (`words_of`).
    """
    code = program.code
    result: dict[int, int] = {}
    for web in webs.webs:
        if web.whole or len(web.writes) != 1 or not web.reads:
            continue
        i = web.writes[0]
        form = code.table.forms[int(code.form[i])]
        first, last = int(code.operand_start[i]), int(code.operand_start[i + 1])
        if form.name not in _MOVES or code.guard[i] != 7 or code.guard_negated[i]:
            continue
        width = int(code.operand_width[first])
        if last - first != 1 or width > 1 + (pairs and form.name == "LDC"):
            continue
        lo, hi = code.word(i)
        if form.name == "S2R" and get_field(lo, hi, 72, 8) not in _STABLE_SPECIAL:
            continue
        if form.name == "LDC" and get_field(lo, hi, 24, 8) != 255:
            continue
        result[web.index] = i
    return result


def words_of(program: Program, i: int) -> int:
    """Registers that a recomputable instruction writes."""
    return int(program.code.operand_width[int(program.code.operand_start[i])])


def copy_of(program: Program, i: int) -> Word:
    """The defining word with idle control bits."""
    lo, hi = program.code.word(i)
    return lo, set_control(hi, ControlWord())
