"""What an instruction does beyond its registers: which may change places, which never move.

Problem: a rewrite may reorder straight-line code. An instruction may pass another one unless a
register or memory carries something between them, and some may not be passed at all.

Method: a closed list. *Fences* never move and nothing passes them: control flow, barriers,
memory fences, atomics, strong or volatile accesses, asynchronous copies, clocks, waits, and
whatever isn't listed here. Everything else has an effect on nothing but registers, or exchanges
values between lanes, or is a weak access to memory. Exchanges keep their order among themselves.
Loads pass loads; of two accesses one of which is a store, one passes the other only if they can't
share a byte: their spaces differ (none of them generic), or their addresses are the same registers
with the same contents and the ranges are apart. What is read through the read-only path never
changes.

Measured: bits 77 to 80 of LDG, LD, STG and ST are 0 for weak accesses and 4 for `.CONSTANT`.

Not claimed: threads that communicate through memory with nothing but an exchange between lanes or
nothing at all between them (PTX gives `shfl` and `vote` no order of memory; volatile accesses to
shared memory have no mark in the instruction).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from regdem.check.purity import is_nop, is_pure, never_happens
from regdem.check.view import CodeView

_REGISTERS_ONLY = frozenset(
    {"HMMA", "IMMA", "BMMA", "R2UR", "FSET", "VIADDMNMX", "VIMNMX3", "I2IP", "F2IP", "P2R", "R2P"}
)
"""Functions of register operands that no rewrite may add or drop, but move."""
_LANES = frozenset({"SHFL", "VOTE", "VOTEU", "MATCH", "REDUX", "MOVM"})
_LOADS = frozenset({"LDG", "LD", "LDS", "LDSM", "LDL"})
_STORES = frozenset({"STG", "ST", "STS", "STSM", "STL"})
_ORDERED = frozenset({"LDG", "LD", "STG", "ST"})
"""Those with a memory order in bits 77 to 80."""
_OF_ALL_LANES = frozenset({"LDSM", "STSM"})
"""Accesses at addresses of other lanes."""
_WEAK, _READ_ONLY = 0, 4
_ANY = "generic"
_BYTES_OF_SIZE = (1, 1, 2, 2, 4, 8, 16, 16)
_ADDRESS_BIT = 24
_ADDRESS_MODIFIERS = 1 << 8 | 0x1F << 12 | 3 << 26
"""Bits of the high word that say how the address is made: width, scale, uniform part."""

NONE, EXCHANGE, LOAD, STORE, FENCE = range(5)
"""What an instruction does beyond its registers. Read-only loads count as `NONE`."""


def effect(view: CodeView, i: int) -> int:
    """What instruction `i` does beyond its registers."""
    if view.control[i] != "none":
        return FENCE
    if is_nop(view, i) or is_pure(view, i) or never_happens(view, i):
        return NONE
    name = view.name[i].partition(".")[0]
    if name in _REGISTERS_ONLY:
        return NONE
    if name in _LANES:
        return EXCHANGE
    if name not in _LOADS and name not in _STORES:
        return FENCE
    order = view.high[i] >> 13 & 0xF if name in _ORDERED else _WEAK
    if name in _LOADS and order == _READ_ONLY:
        return NONE
    if order != _WEAK:
        return FENCE
    return LOAD if name in _LOADS else STORE


@dataclass(frozen=True)
class _Access:
    """Bytes [low, high) from a base: registers with the number of their writes so far."""

    place: int
    instruction: int
    kind: int
    space: str
    base: tuple[tuple[int, int], ...]
    low: int
    high: int

    def is_apart(self, other: _Access) -> bool:
        """Whether the two can't share a byte."""
        if self.space != other.space:
            return _ANY not in (self.space, other.space)
        return self.base == other.base and (self.high <= other.low or other.high <= self.low)


@dataclass
class EffectOrder:
    """Follows the original through a stretch and finds effects that may not change their order.

    `place` maps each instruction to its place in the new order.
    """

    view: CodeView
    place: Mapping[int, int]
    _accesses: list[_Access] = field(default_factory=list[_Access])
    _exchange: int = -1
    _written: dict[int, int] = field(default_factory=dict[int, int])

    def behind(self, i: int) -> int | None:
        """The next instruction: an earlier one that comes behind it but must not, if any.

        Only instructions with an effect other than `FENCE` may be given.
        """
        kind = effect(self.view, i)
        found: int | None = None
        if kind == EXCHANGE:
            if self._exchange >= 0 and self.place[self._exchange] > self.place[i]:
                found = self._exchange
            self._exchange = i
        elif kind in (LOAD, STORE):
            access = self._access(i, kind)
            for other in self._accesses:
                is_passed = other.place > access.place
                if is_passed and STORE in (kind, other.kind) and not access.is_apart(other):
                    found = other.instruction
            self._accesses.append(access)
        self.wrote(i)
        return found

    def wrote(self, i: int) -> None:
        """An instruction's results; addresses that use them are others than before."""
        for value in self.view.writes[i]:
            self._written[value] = self._written.get(value, 0) + 1

    def _access(self, i: int, kind: int) -> _Access:
        view = self.view
        low, high = view.low[i], view.high[i]
        base = [(-1, high & _ADDRESS_MODIFIERS)]
        for row in view.rows[i]:
            if row.reads and (row.bit == _ADDRESS_BIT or row.file == 1):
                values = range(row.first, row.first + row.width)
                base += [(value, self._written.get(value, 0)) for value in values]
        if view.name[i] in _OF_ALL_LANES:
            base.append((-2, i))
        offset = low >> 40 & 0xFFFFFF
        offset -= offset >> 23 << 24
        size = _BYTES_OF_SIZE[high >> 9 & 7]
        place = self.place[i]
        return _Access(place, i, kind, view.memory[i], tuple(base), offset, offset + size)
