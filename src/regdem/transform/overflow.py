"""Slots beyond those that fit in shared memory: words of a longer stack frame.

Problem: shared memory holds a limited number of slots (48 KiB of static shared memory a block, and
what residency leaves). Where demotion needs more, the coldest values can go to local memory, as
they would with ptxas, and only the hottest to shared memory.

Method: the frame grows at its lower end: words below R1, which no instruction of the original
reaches, and which lie in the frame once its size in the file says so. This needs an R1 that is the
stack's start plus a constant, set at the entry and never moved (`analysis/frame.py`), also not by
device functions, whose frames would lie there.

Slots are given out anew, by pairs where there are 64-bit values: those with the most loop-weighted
accesses per slot are in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regdem.analysis.frame import frame_of
from regdem.analysis.webs import STACK_POINTER
from regdem.isa import encode
from regdem.program.program import Program
from regdem.transform.frame_base import frame_base
from regdem.transform.slots import SlotLayout

_WORD_BYTES = 4
_FRAME_ALIGNMENT = 16


def may_grow_frame(program: Program) -> bool:
    """Whether words below R1 are free for the taking; see the module's text."""
    frame = frame_of(program)
    return not frame.reason and frame_base(program, frame) is not None


@dataclass(frozen=True)
class Homes:
    """Where each slot is: `shared[s]` is its number in shared memory, `local[s]` its bytes from
    R1."""

    shared: dict[int, int]
    local: dict[int, int]

    @property
    def frame_bytes(self) -> int:
        """What the frame grows by."""
        lowest = -min(self.local.values(), default=0)
        return -(-lowest // _FRAME_ALIGNMENT) * _FRAME_ALIGNMENT


def homes(heat: Sequence[float], most_shared: int, *, wide: bool) -> Homes:
    """Homes of slots by their heat (loop-weighted accesses); with `wide`, pairs stay together."""
    row = 2 if wide else 1
    rows = [list(range(s, min(s + row, len(heat)))) for s in range(0, len(heat), row)]
    order = sorted(range(len(rows)), key=lambda k: (-sum(heat[s] for s in rows[k]), k))
    kept = sorted(order[: most_shared // row])
    shared = {s: n * row + s % row for n, k in enumerate(kept) for s in rows[k]}
    local = {
        s: -_WORD_BYTES * row * (n + 1) + _WORD_BYTES * (s % row)
        for n, k in enumerate(sorted(order[most_shared // row :]))
        for s in rows[k]
    }
    return Homes(shared, local)


def load_from(
    place: Homes, slot: int, register: int, address: int, where: SlotLayout | None, words: int
) -> encode.Word:
    """A load of the value of a slot, wherever that is."""
    if slot in place.local:
        return encode.ldl(register, STACK_POINTER, place.local[slot], words=words)
    assert where is not None
    return encode.lds(register, address, where.offset(place.shared[slot]), words=words)


def store_to(
    place: Homes,
    slot: int,
    register: int,
    address: int,
    where: SlotLayout | None,
    words: int,
    guard: encode.Guard,
) -> encode.Word:
    """A store of a value to its slot, wherever that is."""
    if slot in place.local:
        at = place.local[slot]
        return encode.stl(STACK_POINTER, at, register, words=words, guard=guard)
    assert where is not None
    at = where.offset(place.shared[slot])
    return encode.sts(address, at, register, words=words, guard=guard)
