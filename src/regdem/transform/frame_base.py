"""The stack frame's place in a uniform register, so that R1 can hold something else.

Problem: where only part of a frame moves to shared memory, the rest still needs its address, and
the slots need another. ptxas, held to a cap, leaves no general register free.

Method: R1 is the launch's stack start c[0x0][0x28] plus a constant, the same number in all threads
(local memory is private by address translation, not by address). So an unused uniform register can
hold it: `ULDC UR, c[0x0][0x28]; UIADD3 UR, UR, constant` at the kernel's entry, where no thread has
gone its own way, and the accesses that stay read `[UR+offset]` in place of `[R1+offset]`, a form
that ptxas itself uses. R1 is free then, and no register is renamed.

Invariants: the register is one that the section names nowhere; R1 is defined as described, or there
is no base (`None`).
"""

from __future__ import annotations

from collections.abc import Sequence

from regdem.analysis.bits import FILE_BASE, FILE_MASK
from regdem.analysis.forms import forms_of
from regdem.analysis.frame import Frame
from regdem.analysis.liveness import Liveness
from regdem.analysis.webs import STACK_POINTER
from regdem.isa import encode
from regdem.isa.control import ControlWord, set_control
from regdem.isa.decoded import RegisterFile
from regdem.isa.encode import RZ, Word
from regdem.isa.fields import get_field
from regdem.program.program import Program

STACK_START = (0, 0x28)
"""Constant bank and offset of the stack's start on sm_90 (in all of ptxas's code)."""
_UNIFORM_REGISTERS = 63
_LDC, _MOV_CONSTANT, _IMAD_MOVE_CONSTANT = 0xB82, 0xA02, 0xA24
_ADD_IMMEDIATE = (0x810, 0x836)
"""IADD3 and VIADD with an immediate."""
_ULDC_CYCLES = 12


def frame_base(program: Program, frame: Frame) -> int | None:
    """Bytes from the stack's start to where R1 points, or None where that can't be told."""
    base: int | None = None
    for i in frame.definitions:
        lo, hi = program.code.word(i)
        opcode = lo & 0xFFF
        if opcode in (_LDC, _MOV_CONSTANT, _IMAD_MOVE_CONSTANT):
            bank, offset = get_field(lo, hi, 54, 5), get_field(lo, hi, 38, 16)
            base = 0 if (bank, offset) == STACK_START and _is_plain_load(lo, hi) else None
        elif opcode in _ADD_IMMEDIATE and base is not None and _adds_to_itself(lo, hi):
            amount = lo >> 32
            base += amount - (amount >> 31 << 32)
        else:
            return None
    return base


def _is_plain_load(lo: int, hi: int) -> bool:
    if lo & 0xFFF == _MOV_CONSTANT:
        return True
    if get_field(lo, hi, 24, 8) != RZ:
        return False
    if lo & 0xFFF == _LDC:
        return get_field(lo, hi, 73, 3) == 4 and get_field(lo, hi, 78, 2) == 0
    return get_field(lo, hi, 64, 8) == RZ


def _adds_to_itself(lo: int, hi: int) -> bool:
    """R1 plus an immediate, and nothing else."""
    if get_field(lo, hi, 24, 8) != STACK_POINTER or hi >> 8 & 1:
        return False
    return lo & 0xFFF == 0x836 or get_field(lo, hi, 64, 8) == RZ


def free_uniform_register(program: Program, live: Liveness) -> int | None:
    """A uniform register that no instruction of the section names, or None."""
    mask = 0
    for use, define in zip(live.uses, live.defs, strict=True):
        mask |= use | define
    used = (mask & FILE_MASK[RegisterFile.UGPR]) >> FILE_BASE[RegisterFile.UGPR]
    if any(form.control == "call_register" for form in forms_of(program.code)):
        return None
    order = [*range(4, _UNIFORM_REGISTERS), *range(4)]
    return next((r for r in order if not used >> r & 1), None)


def with_frame_base(entry: Sequence[Word], uniform: int, base: int) -> list[Word]:
    """The prologue `entry` with instructions that leave the frame's address in `uniform`."""
    lo, hi = encode.uldc(uniform, *STACK_START)
    head = [(lo, set_control(hi, ControlWord(stall=_ULDC_CYCLES)))]
    if base:
        head.append(encode.uniform_add_immediate(uniform, uniform, base))
    return [*head, *entry]
