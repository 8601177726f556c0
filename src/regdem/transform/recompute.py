"""Rematerialisation (Briggs): values that are cheaper to compute again than to keep.

A web can be recomputed at a use if it has one unguarded definition that writes nothing else and
reads no register, and whose result is the same whenever it runs: an immediate, a constant-bank
load at a fixed address, a special register that does not change within a launch.

Or it reads registers that are at hand wherever the web is used: cheap integer arithmetic (mostly
addresses) whose inputs are live at every use and not written while the web is live. These inputs
may then not leave their registers themselves (`transform/gap_choice.py` sees to it).
"""

from __future__ import annotations

from regdem.analysis.bits import FILE_MASK
from regdem.analysis.liveness import Liveness
from regdem.analysis.webs import STACK_POINTER, Web, Webs
from regdem.isa.control import ControlWord, set_control
from regdem.isa.decoded import RegisterFile, Role
from regdem.isa.encode import Word
from regdem.isa.fields import get_field
from regdem.program.program import Program

_STABLE_SPECIAL = frozenset({0x00, 0x21, 0x22, 0x23, 0x25, 0x26, 0x27, 0x88})
"""Lane id, thread index x y z, block index x y z, rank in the cluster (measured with S2R)."""
_MOVES = frozenset({"MOV", "IMAD", "HFMA2", "LDC", "S2R"})
_CHEAP = frozenset({"MOV", "IMAD", "IADD3", "VIADD", "LEA", "SHF", "LOP3", "PRMT", "SGXT", "IABS"})


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


def recomputable_from_inputs(program: Program, live: Liveness, webs: Webs) -> dict[int, int]:
    """The webs that cheap arithmetic makes again from inputs that are live at every use.

    For a 64-bit result, both of its webs, which can be recomputed together only.
    """
    result: dict[int, int] = {}
    for web in webs.webs:
        if web.whole or len(web.writes) != 1 or not web.reads or web.register == STACK_POINTER:
            continue
        i = web.writes[0]
        if _is_cheap(program, i) and _inputs_stay(program, live, web, i):
            result[web.index] = i
    return result


def _is_cheap(program: Program, i: int) -> bool:
    """Unguarded integer arithmetic that reads registers and writes general ones in one operand."""
    code = program.code
    if code.table.forms[int(code.form[i])].name not in _CHEAP:
        return False
    if code.guard[i] != 7 or code.guard_negated[i]:
        return False
    rows = range(int(code.operand_start[i]), int(code.operand_start[i + 1]))
    written = [row for row in rows if code.operand_role[row] & Role.WRITE]
    return (
        len(rows) > 1
        and len(written) == 1
        and code.operand_role[written[0]] == Role.WRITE
        and code.operand_file[written[0]] == RegisterFile.GPR
        and int(code.operand_width[written[0]]) <= 2
        and written[0] == rows[0]
    )


def _inputs_stay(program: Program, live: Liveness, web: Web, i: int) -> bool:
    """Whether what instruction `i` reads is unchanged wherever `web` is live, and live at its
    uses."""
    general = FILE_MASK[RegisterFile.GPR]
    inputs = live.uses[i]
    if inputs & live.defs[i] or not inputs & general:
        return False
    if any(inputs & general & ~live.before[u] for u in web.reads):
        return False
    points = web.points
    while points:
        low = (points & -points).bit_length() - 1
        k = low // 2
        if k in program.callee or (k != i and live.defs[k] & inputs):
            return False
        points &= -1 << (2 * k + 2)
    return True


def words_of(program: Program, i: int) -> int:
    """Registers that a recomputable instruction writes."""
    return int(program.code.operand_width[int(program.code.operand_start[i])])


def copy_of(program: Program, i: int) -> Word:
    """The defining word with idle control bits."""
    lo, hi = program.code.word(i)
    return lo, set_control(hi, ControlWord())
