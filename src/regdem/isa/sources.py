"""A source operand that is no general register: constant-bank word, immediate, uniform register.

Bits 9 to 11 of an operation say what stands in bits 32 to 63, and whether the second and the third
source have changed fields (measured; `docs/design/isa.md`):

    1  Ra Rb Rc    2, 3, 7  Ra Rb and an immediate, a constant word, a uniform register for Rc
                   4, 5, 6  Ra and an immediate, a constant word, a uniform register for Rb, Rc

With 2, 3 and 7 the register Rb goes to bits 64 to 71. The signs go with their operands: bit 63 is
that of what stands in bits 32 to 63, bit 75 that of bits 64 to 71. FADD, DADD and DSETP have two
sources, and forms 2, 3 and 7 for the second.

`with_source` gives the word with one register operand replaced. Only the operations of a closed
list are known to have the same meaning otherwise, and of these only the forms in the table, which
the vendor's disassembler accepts. Signs and absolute values of the operand stay where the form has
them; an immediate has neither, so that a register with one is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from regdem.isa.control import get_control, set_control
from regdem.isa.encode import RZ, Word
from regdem.isa.table import InstructionTable

Kind = Literal["immediate", "constant", "uniform"]

_FOR_B = {"immediate": 4, "constant": 5, "uniform": 6}
_FOR_C = {"immediate": 2, "constant": 3, "uniform": 7}
_FORM_BIT, _UNIFORM_BIT = 9, 91 - 64
_SECOND, _THIRD = 32, 64
_TWO_SOURCES = frozenset({0x021, 0x029, 0x02A})
"""FADD, DADD, DSETP."""
_SECOND_MAY = frozenset(
    {0x007, 0x008, 0x009, 0x00B, 0x00C, 0x010, 0x011, 0x012, 0x019, 0x020, 0x021, 0x023, 0x024,
     0x025, 0x027, 0x028, 0x029, 0x02A, 0x02B, 0x036, 0x048}
)  # fmt: skip
"""SEL FSEL FMNMX FSETP ISETP IADD3 LEA LOP3 SHF FMUL FADD FFMA IMAD, .WIDE, .HI, DMUL DADD DSETP
DFMA VIADD VIMNMX."""
_THIRD_MAY = frozenset({0x023, 0x024, 0x025, 0x027, 0x02B})
"""FFMA IMAD, .WIDE, .HI, DFMA."""
_DOUBLE = frozenset({0x028, 0x029, 0x02A, 0x02B})
_SIGN, _ABSOLUTE, _THIRD_SIGN = 1 << 63, 1 << 62, 1 << (75 - 64)


@dataclass(frozen=True, order=True)
class Source:
    """An operand value: an immediate (32 bits), a constant word (bank << 16 | byte offset), or the
    number of a uniform register."""

    kind: Kind
    value: int

    def __str__(self) -> str:
        if self.kind == "constant":
            return f"c[0x{self.value >> 16:x}][0x{self.value & 0xFFFF:x}]"
        return f"UR{self.value}" if self.kind == "uniform" else f"0x{self.value:x}"


def with_source(table: InstructionTable, word: Word, bit: int, source: Source) -> Word | None:
    """`word` with the general register at `bit` replaced by `source`, and no reuse flags.

    Of a 64-bit operand, `source` is the low half; the high half is the next word or register. None
    where no form of the operation has that operand.
    """
    low, high = word
    base = low & 0x1FF
    if low >> _FORM_BIT & 7 != 1 or high >> _UNIFORM_BIT & 1 or low >> 40 & 0x3FFFFF:
        return None
    if base in _DOUBLE and source.kind == "immediate":
        return None
    is_second = bit == _SECOND and base in _SECOND_MAY
    if not is_second and not (bit == _THIRD and base in _THIRD_MAY):
        return None
    forms = _FOR_B if is_second and base not in _TWO_SOURCES else _FOR_C
    opcode = base | forms[source.kind] << _FORM_BIT
    if opcode not in table.by_opcode:
        return None
    if is_second:
        signs = low & (_SIGN | _ABSOLUTE)
    elif low & _ABSOLUTE:
        return None
    else:
        signs = _SIGN if high & _THIRD_SIGN else 0
        high = high & ~(0xFF | _THIRD_SIGN) | low >> _SECOND & 0xFF
        high |= _THIRD_SIGN if low & _SIGN else 0
    if source.kind == "immediate" and signs:
        return None
    low = low & 0xFFFFF000 | opcode | signs | _field(source)
    high |= (source.kind == "uniform") << _UNIFORM_BIT
    return low, set_control(high, replace(get_control(high), reuse=0))


def _field(source: Source) -> int:
    if source.kind == "constant":
        return (source.value & 0xFFFF) << 38 | source.value >> 16 << 54
    return source.value << 32


def constant_sources(word: Word) -> tuple[Source, ...]:
    """What a move of immediates or constant words puts into its destinations; none if it is none.

    MOV, IMAD.MOV and LDC of 32 and 64 bits, at a fixed place; the guard is not looked at.
    """
    low, high = word
    opcode = low & 0xFFF
    if opcode == 0xB82:
        if low >> 24 & 0xFF != RZ or high >> 14 & 3:
            return ()
        words = {4: 1, 5: 2}.get(high >> 9 & 7, 0)
    elif opcode in (0x802, 0xA02):
        words = int(high >> 8 & 0xF == 0xF)
    else:
        moves = low >> 24 & 0xFF == RZ and high & 0xFF == RZ and not high >> 8 & 0xD
        words = int(opcode in (0x424, 0x624) and moves)
    if opcode in (0x802, 0x424):
        return (Source("immediate", low >> 32),) * words
    if high >> _UNIFORM_BIT & 1 or low & (_SIGN | _ABSOLUTE):
        return ()
    place = (low >> 54 & 0x1F) << 16 | low >> 38 & 0xFFFF
    return tuple(Source("constant", place + 4 * k) for k in range(words))
