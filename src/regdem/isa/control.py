"""The control bits of an instruction (bits 105 to 125): the only module that writes them.

Legal combinations, as the vendor's disassembler enforces them (measured): the yield bit (109)
must be clear where the stall count is 0 or 12 to 15; reuse flags need bit 109 set and a stall
count of at most 11.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from regdem.isa.decoded import NO_SCOREBOARD

MAX_STALL = 15
SCOREBOARDS = 6
_SHIFT = 105 - 64
_MASK = ((1 << 21) - 1) << _SHIFT


@dataclass(frozen=True)
class ControlWord:
    """Scheduling of one instruction: stall in cycles, scoreboards 0-5 (7 = none)."""

    stall: int = 1
    yield_bit: int = 1
    write_scoreboard: int = NO_SCOREBOARD
    read_scoreboard: int = NO_SCOREBOARD
    wait_mask: int = 0
    reuse: int = 0

    def legal(self) -> ControlWord:
        """The nearest legal control word: yield and reuse bits give way to the stall count."""
        clear = self.stall == 0 or self.stall >= 12
        yield_bit = 0 if clear else self.yield_bit
        reuse = self.reuse if yield_bit and not clear else 0
        if yield_bit == self.yield_bit and reuse == self.reuse:
            return self
        return replace(self, yield_bit=yield_bit, reuse=reuse)


def get_control(hi: int) -> ControlWord:
    """The control bits of the high word."""
    return _control_of((hi & _MASK) >> _SHIFT)


@lru_cache(maxsize=1 << 16)
def _control_of(bits: int) -> ControlWord:
    return ControlWord(
        stall=bits & 15,
        yield_bit=(bits >> 4) & 1,
        write_scoreboard=(bits >> 5) & 7,
        read_scoreboard=(bits >> 8) & 7,
        wait_mask=(bits >> 11) & 63,
        reuse=(bits >> 17) & 15,
    )


def set_control(hi: int, control: ControlWord) -> int:
    """The high word with `control` in it, made legal. Raises `ValueError` for values out of
    range."""
    c = control.legal()
    if not (0 <= c.stall <= MAX_STALL and 0 <= c.wait_mask < 64 and 0 <= c.reuse < 16):
        raise ValueError(f"control word out of range: {c}")
    if not (c.write_scoreboard in (*range(6), 7) and c.read_scoreboard in (*range(6), 7)):
        raise ValueError(f"no such scoreboard: {c}")
    bits = (
        c.stall
        | (c.yield_bit << 4)
        | (c.write_scoreboard << 5)
        | (c.read_scoreboard << 8)
        | (c.wait_mask << 11)
        | (c.reuse << 17)
    )
    return (hi & ~_MASK) | (bits << _SHIFT)
