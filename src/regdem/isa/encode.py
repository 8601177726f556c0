"""Encodes the few instructions that transformations insert (sm_90).

Every constructor is tested against the vendor's disassembler. Control bits are left idle (one
cycle, no scoreboards, no waits) unless given; the scheduler of the transformations fills them in.
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.isa.control import ControlWord, set_control

RZ, URZ = 255, 63
Word = tuple[int, int]

TID_X, TID_Y, TID_Z, CGA_CTA_ID = 0x21, 0x22, 0x23, 0x88
_IDLE = ControlWord()
_IMMEDIATE_BITS = 24
_LDL, _STL, _STL_UNIFORM = 0x983, 0x387, 0x987


@dataclass(frozen=True)
class Guard:
    """A guard predicate: number 0-6 (7 = always) and whether it is negated."""

    predicate: int = 7
    negated: bool = False


ALWAYS = Guard()


def _word(
    opcode: int,
    *,
    guard: Guard = ALWAYS,
    rd: int = 0,
    ra: int = 0,
    upper: int = 0,
    high: int = 0,
    control: ControlWord = _IDLE,
) -> Word:
    low = opcode | (guard.predicate << 12) | (int(guard.negated) << 15)
    low |= (rd << 16) | (ra << 24) | ((upper & 0xFFFFFFFF) << 32)
    return low, set_control(high, control)


def _offset(offset: int) -> int:
    if not -(1 << (_IMMEDIATE_BITS - 1)) <= offset < 1 << (_IMMEDIATE_BITS - 1):
        raise ValueError(f"address offset {offset} does not fit 24 bits")
    return (offset & 0xFFFFFF) << 8


def _constant(bank: int, offset: int) -> int:
    return (offset << 6) | (bank << 22)


_SIZE = {1: 0x800, 2: 0xA00}
"""Bits 73 to 75 of a memory instruction, by words."""


def lds(
    rd: int,
    ra: int,
    offset: int,
    *,
    words: int = 1,
    guard: Guard = ALWAYS,
    control: ControlWord = _IDLE,
) -> Word:
    """`LDS rd, [ra+offset]`, or `LDS.64` with two words."""
    high = _SIZE[words]
    return _word(
        0x984, guard=guard, rd=rd, ra=ra, upper=_offset(offset), high=high, control=control
    )


def sts(
    ra: int,
    offset: int,
    rb: int,
    *,
    words: int = 1,
    guard: Guard = ALWAYS,
    control: ControlWord = _IDLE,
) -> Word:
    """`STS [ra+offset], rb`, or `STS.64` with two words."""
    upper = _offset(offset) | rb
    return _word(0x388, guard=guard, ra=ra, upper=upper, high=_SIZE[words], control=control)


_LOCAL = 0x100000
"""Bit 84, as in all of ptxas's local accesses."""


def ldl(rd: int, ra: int, offset: int, *, words: int = 1, guard: Guard = ALWAYS) -> Word:
    """`LDL rd, [ra+offset]`, or `LDL.64` with two words."""
    upper, high = _offset(offset), _SIZE[words] | _LOCAL
    return _word(_LDL, guard=guard, rd=rd, ra=ra, upper=upper, high=high)


def stl(ra: int, offset: int, rb: int, *, words: int = 1, guard: Guard = ALWAYS) -> Word:
    """`STL [ra+offset], rb`, or `STL.64` with two words."""
    upper, high = _offset(offset) | rb, _SIZE[words] | _LOCAL
    return _word(_STL, guard=guard, ra=ra, upper=upper, high=high)


def mov(rd: int, rb: int, *, guard: Guard = ALWAYS, control: ControlWord = _IDLE) -> Word:
    """`MOV rd, rb`."""
    return _word(0x202, guard=guard, rd=rd, upper=rb, high=0xF00, control=control)


def s2r(rd: int, special: int) -> Word:
    """`S2R rd, SR_...` by special register number."""
    return _word(0x919, rd=rd, high=special << 8)


def imad(rd: int, ra: int, immediate: int, rc: int) -> Word:
    """`IMAD rd, ra, immediate, rc` (low 32 bits of the product, plus rc)."""
    return _word(0x824, rd=rd, ra=ra, upper=immediate, high=0x078E0200 | rc)


def imad_register(rd: int, ra: int, rb: int, rc: int) -> Word:
    """`IMAD rd, ra, rb, rc`."""
    return _word(0x224, rd=rd, ra=ra, upper=rb, high=0x078E0200 | rc)


def shift_right(rd: int, ra: int, count: int) -> Word:
    """`SHF.R.U32.HI rd, RZ, count, ra`: a logical shift right."""
    return _word(0x819, rd=rd, ra=RZ, upper=count, high=0x00011600 | ra)


def and_immediate(rd: int, ra: int, immediate: int) -> Word:
    """`LOP3.LUT rd, ra, immediate, RZ, 0xc0, !PT`: bitwise and."""
    return _word(0x812, rd=rd, ra=ra, upper=immediate, high=0x078EC000 | RZ)


def add_immediate(rd: int, ra: int, immediate: int) -> Word:
    """`VIADD rd, ra, immediate`."""
    return _word(0x836, rd=rd, ra=ra, upper=immediate)


def add(rd: int, ra: int, rb: int) -> Word:
    """`IMAD.IADD rd, ra, 0x1, rb`."""
    return imad(rd, ra, 1, rb)


def ldc(rd: int, bank: int, offset: int) -> Word:
    """`LDC rd, c[bank][offset]`."""
    return _word(0xB82, rd=rd, ra=RZ, upper=_constant(bank, offset), high=0x800)


def nop(stall: int = 1) -> Word:
    """`NOP`."""
    return _word(0x918, control=ControlWord(stall=stall, yield_bit=0))


def uldc(urd: int, bank: int, offset: int, *, words: int = 1) -> Word:
    """`ULDC urd, c[bank][offset]`, or `ULDC.64` with two words."""
    return _word(0xAB9, rd=urd, upper=_constant(bank, offset), high=_SIZE[words])


def umov(urd: int, immediate: int) -> Word:
    """`UMOV urd, immediate`."""
    return _word(0x882, rd=urd, upper=immediate)


def uniform_add_immediate(urd: int, ura: int, immediate: int) -> Word:
    """`UIADD3 urd, ura, immediate, URZ`."""
    return _word(0x890, rd=urd, ra=ura, upper=immediate, high=0x0FFFE000 | URZ)


def by_uniform_address(word: Word, uniform: int) -> Word:
    """A `LDL` or `STL` at `[R+offset]` as the same access at `[UR+offset]`.

    ptxas writes such code for frames at a fixed place (`LDL R29, [UR7+0x4]`); the general register
    of the address is RZ then. Guard, data, size, offset and control bits stay.
    """
    low, high = word
    opcode = low & 0xFFF
    if opcode not in (_LDL, _STL) or high >> 27 & 1:
        raise ValueError("neither LDL nor STL at a general register")
    low |= RZ << 24
    high |= 1 << 27
    if opcode == _LDL:
        return (low & ~(0x3F << 32)) | uniform << 32, high
    return (low & ~0xFFF) | _STL_UNIFORM, (high & ~0x3F) | uniform


def to_uniform(urd: int, ra: int) -> Word:
    """`R2UR urd, ra`: a value that all active threads share."""
    return _word(0x2CA, rd=urd, ra=ra, high=0x000E0000)


def from_uniform(rd: int, ur: int) -> Word:
    """`MOV rd, ur`."""
    return _word(0xC02, rd=rd, upper=ur, high=0x08000F00)
