"""Which instructions may change places: straight-line segments, and the order of memory inside.

A segment is a stretch of one block without a *fence*. A fence keeps its place and everything on its
side of it: control flow, barriers, waits that count, clock reads, asynchronous copies, atomics,
accesses stronger than weak, and whatever is not listed here as depending on its operands only.

Within a segment, memory is kept in order where it could matter: stores stay in order, and a load
and a store unless they are in spaces that share no byte. Loads pass loads. Constant memory, and
what is read as read-only, does not change. Instructions that exchange values between lanes stay in
order among themselves and with memory. Slots of an earlier rewrite are known by their annotations:
private words of a thread, which only accesses to the same ones can touch.

Measured: weak accesses to global memory carry 0 in bits 77 to 80, read-only ones 4; volatile,
relaxed, acquire and release ones something else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from regdem.isa.fields import get_field
from regdem.isa.table import Form
from regdem.program.program import Program

_REGISTERS_ONLY_NAMES = """
MOV IMAD IADD3 VIADD LEA LOP3 SHF SEL PRMT IABS ISETP VIMNMX POPC FLO BREV SGXT BMSK
PLOP3 FSETP FSEL FADD FMUL FFMA FMNMX FCHK MUFU DADD DMUL DFMA DSETP HADD2 HMUL2 HFMA2
HSETP2 HSET2 HMNMX2 I2F I2FP F2I F2F F2FP I2I FRND I2IP VABSDIFF VABSDIFF4 IDP UMOV UIADD3
UIMAD ULEA ULOP3 USHF USEL UPRMT UISETP UPLOP3 UFLO UPOPC UBREV USGXT LDC ULDC NOP
HMMA IMMA R2UR FSET VIADDMNMX VIMNMX3 F2IP
"""
_REGISTERS_ONLY = frozenset(_REGISTERS_ONLY_NAMES.split())
_LANES = frozenset({"SHFL", "VOTE", "VOTEU", "MATCH", "REDUX"})
_LOADS = frozenset({"LDG", "LD", "LDS", "LDSM", "LDL"})
_STORES = frozenset({"STG", "ST", "STS", "STL"})
_SPECIAL = frozenset({"S2R", "S2UR"})
_STABLE_SPECIAL = frozenset({0x00, 0x21, 0x22, 0x23, 0x25, 0x26, 0x27, 0x88})
"""Lane, thread and block indices, rank in the cluster: the same for a thread's whole life."""
_SRZ = 0xFF
_WEAK, _READ_ONLY = 0, 4
_STRENGTH_BIT, _STRENGTH_WIDTH = 77, 4
_SIZE_BIT = 73
_OFFSET_BIT, _OFFSET_WIDTH = 40, 24
_BYTES = (1, 1, 2, 2, 4, 8, 16, 16)
_SLOT = "slot"


@dataclass(frozen=True)
class Segment:
    """Instructions `start` (inclusive) to `end` (exclusive) of block `block`."""

    block: int
    start: int
    end: int


def segments(program: Program, fewest: int = 3, keep: Collection[int] = ()) -> Iterator[Segment]:
    """All segments of at least `fewest` instructions, in order. `keep`: more fences."""
    fence = fences(program)
    for i in keep:
        fence[i] = True
    for block in program.blocks:
        start = block.start
        for i in range(block.start, block.end + 1):
            if i < block.end and not fence[i]:
                continue
            if i - start >= fewest:
                yield Segment(block.index, start, i)
            start = i + 1


def fences(program: Program) -> list[bool]:
    """Per instruction whether it keeps its place."""
    forms = program.code.table.forms
    words = program.code.words.tolist()
    return [
        is_fence(forms[f], int(lo), int(hi))
        for f, (lo, hi) in zip(program.code.form_indices, words, strict=True)
    ]


def is_fence(form: Form, lo: int, hi: int) -> bool:
    """Whether nothing may pass an instruction."""
    if form.control != "none":
        return True
    if form.name in _REGISTERS_ONLY or form.name in _LANES:
        return False
    if form.name in _SPECIAL:
        return get_field(lo, hi, 72, 8) not in _STABLE_SPECIAL
    if form.name == "CS2R":
        return get_field(lo, hi, 72, 8) != _SRZ
    if form.name in _LOADS or form.name in _STORES:
        strength = _strength(form, lo, hi)
        return strength != _WEAK and (strength != _READ_ONLY or form.name in _STORES)
    return True


def _strength(form: Form, lo: int, hi: int) -> int:
    if form.memory not in ("global", "generic"):
        return _WEAK
    return get_field(lo, hi, _STRENGTH_BIT, _STRENGTH_WIDTH)


@dataclass(frozen=True)
class MemoryAccess:
    """An access of a segment: space, whether it writes, and the bytes [low, high) of a slot."""

    space: str
    is_store: bool
    low: int = 0
    high: int = 0

    def keeps_order(self, other: MemoryAccess) -> bool:
        """Whether the two must stay in order."""
        if "lane" in (self.space, other.space):
            return True
        if not self.is_store and not other.is_store:
            return False
        if _SLOT in (self.space, other.space):
            return self.space == other.space and self.low < other.high and other.low < self.high
        if self.is_store and other.is_store:
            return True
        return self.space == other.space or "generic" in (self.space, other.space)


def memory_order(
    program: Program, segment: Segment, slots: Collection[int]
) -> Iterator[tuple[int, int]]:
    """Pairs (earlier, later) of instructions whose order memory or other lanes may see.

    `slots`: accesses to slots of an earlier rewrite, all at the offset from one address that names
    the slot.
    """
    known: list[tuple[int, MemoryAccess]] = []
    forms = program.code.table.forms
    for i in range(segment.start, segment.end):
        form = forms[int(program.code.form[i])]
        access = _access(form, *program.code.word(i), is_slot=i in slots)
        if access is None:
            continue
        for j, other in known:
            if access.keeps_order(other):
                yield j, i
        known.append((i, access))


def _access(form: Form, lo: int, hi: int, *, is_slot: bool) -> MemoryAccess | None:
    if form.name in _LANES:
        return MemoryAccess("lane", True)
    is_store = form.name in _STORES
    if form.name not in _LOADS and not is_store:
        return None
    if _strength(form, lo, hi) == _READ_ONLY:
        return None
    if is_slot:
        low = get_field(lo, hi, _OFFSET_BIT, _OFFSET_WIDTH)
        return MemoryAccess(_SLOT, is_store, low, low + _BYTES[get_field(lo, hi, _SIZE_BIT, 3)])
    return MemoryAccess(form.memory, is_store)


__all__ = ["MemoryAccess", "Segment", "fences", "is_fence", "memory_order", "segments"]
