"""Which instructions a rewrite may add or drop: those whose only effect is their result.

A pure instruction computes its destinations from its register operands, its own bits, constant
banks and special registers that keep their value for a thread's whole life. It touches no memory
that can change, no other lane, no barrier and no scoreboard register. The list is by name and
closed: what isn't listed is not pure.
"""

from __future__ import annotations

from regdem.check.expressions import INVARIANT_SPECIAL_REGISTERS
from regdem.check.view import CodeView

_ARITHMETIC_NAMES = """
MOV IMAD IADD3 IADD VIADD LEA LOP3 SHF SEL PRMT IABS ISETP IMNMX VIMNMX POPC FLO BREV SGXT BMSK
PLOP3 FSETP FSEL FADD FMUL FFMA FMNMX FCHK MUFU DADD DMUL DFMA DSETP DMNMX HADD2 HMUL2 HFMA2
HSETP2 HSET2 HMNMX2 I2F I2FP F2I F2F F2FP I2I FRND I2IP VABSDIFF VABSDIFF4 IDP UMOV UIADD3
UIMAD ULEA ULOP3 USHF USEL UPRMT UISETP UPLOP3 UFLO UPOPC UBREV USGXT UBMSK
"""
_ARITHMETIC = frozenset(_ARITHMETIC_NAMES.split())
_CONSTANT_LOADS = frozenset({"LDC", "ULDC"})
_SPECIAL = frozenset({"S2R", "S2UR"})
_NO_OPERATION = "NOP"


def is_pure(view: CodeView, i: int) -> bool:
    """Whether instruction `i` has no effect but its result, and has that."""
    if view.control[i] != "none" or never_happens(view, i):
        return False
    name = view.name[i].partition(".")[0]
    if name in _ARITHMETIC or name in _CONSTANT_LOADS:
        return True
    number = view.high[i] >> 8 & 0xFF
    if name in _SPECIAL:
        return number in INVARIANT_SPECIAL_REGISTERS
    return name == "CS2R" and number == 0xFF  # SRZ: zero


def never_happens(view: CodeView, i: int) -> bool:
    """Whether the guard of instruction `i` is always false (`@!PT`)."""
    return view.guard[i] < 0 and view.guard_negated[i]


def is_nop(view: CodeView, i: int) -> bool:
    """Whether instruction `i` does nothing at all."""
    return view.name[i] == _NO_OPERATION
