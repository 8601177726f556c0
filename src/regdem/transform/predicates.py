"""Predicates of a segment spread over all that are free, so that a new order is less tied.

ptxas uses few predicates where it has no reason to use more: `FSETP P0`, `@!P0 FMUL`, `FSETP P0`
again, sixteen times in a row. Scheduled as it stands, each waits for the one before. Here the
values of predicates that begin and end within a segment get names in rotation.

    live ranges of predicates in a segment → those that stay inside → the name unused for longest

A live range begins with an unguarded write and ends before the next one; guarded writes belong to
the range that they may leave as it is. Ranges that live into or out of the segment keep their
names, and so does every predicate that a form reads or writes without a field of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from regdem.analysis.bits import FILE_BASE, def_masks, use_masks
from regdem.analysis.liveness import Liveness
from regdem.isa.decode import decode
from regdem.isa.decoded import IMPLICIT, RegisterFile, Role
from regdem.isa.encode import Word
from regdem.isa.fields import set_field
from regdem.program.program import Program
from regdem.transform.segments import Segment

PREDICATES = 7
_ALL = (1 << PREDICATES) - 1
_FIELD_BITS = 3
_BASE = FILE_BASE[RegisterFile.PRED]


@dataclass
class _Range:
    """One value of a predicate: it holds `predicate` from instruction `start` until before `free`.

    `fields`: (instruction, bit) of every field that names it. `stays`: it keeps its name.
    """

    predicate: int
    start: int
    free: int
    fields: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    stays: bool = False

    def meets(self, other: _Range) -> bool:
        """Whether both hold a value at once: not if one is last read where the other begins."""
        return self.start < other.free and other.start < self.free


def spread(program: Program, live: Liveness, inside: Iterable[Segment]) -> Program:
    """`program` with the predicates of the segments `inside` renamed; itself if none can be."""
    code = program.code
    words: list[Word] = [code.word(i) for i in range(len(code))]
    seen = [(a | b) >> _BASE & _ALL for a, b in zip(use_masks(code), def_masks(code), strict=True)]
    changed = False
    for segment in inside:
        ranges = _ranges(program, live, segment, seen)
        named = _named(ranges, segment.start) or _named(ranges, segment.start, unused_only=True)
        for each, name in named or ():
            for i, bit in each.fields:
                words[i] = set_field(*words[i], bit, _FIELD_BITS, name)
            changed |= name != each.predicate
    if not changed:
        return program
    data = b"".join(lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in words)
    return replace(program, code=decode(data, code.table.arch))


def _named(
    ranges: list[_Range], start: int, *, unused_only: bool = False
) -> list[tuple[_Range, int]] | None:
    """A name for each range that may change it, the one that is free for longest.

    None where some range finds all names taken; not so with `unused_only`: its own name, or one
    that nothing in the segment has.
    """
    stay = [each for each in ranges if each.stays]
    used = {each.predicate for each in ranges}
    free = [start] * PREDICATES
    named: list[tuple[_Range, int]] = []
    for each in ranges:
        if each.stays:
            continue
        names = [
            p
            for p in range(PREDICATES)
            if free[p] <= each.start
            and not (unused_only and p in used and p != each.predicate)
            and not any(other.predicate == p and other.meets(each) for other in stay)
        ]
        if not names:
            return None
        name = min(names, key=lambda p: (free[p], p))
        free[name] = max(free[name], each.free)
        named.append((each, name))
    return named


def _ranges(program: Program, live: Liveness, segment: Segment, seen: list[int]) -> list[_Range]:
    """The ranges of predicates within a segment, by their start; `seen`: all that is touched."""
    code = program.code
    columns = (code.operand_file, code.operand_register, code.operand_bit, code.operand_role)
    low, high = int(code.operand_start[segment.start]), int(code.operand_start[segment.end])
    rows = list(zip(*(column[low:high].tolist() for column in columns), strict=True))
    first: list[int] = code.operand_start.tolist()
    found: list[_Range] = []
    now: dict[int, _Range] = {}
    hidden = 0

    def touch(p: int, i: int, bit: int, free: int) -> None:
        each = now.get(p)
        if each is None:  # it was there before the segment
            each = now[p] = _Range(p, segment.start - 1, free, stays=True)
            found.append(each)
        each.free = max(each.free, free)
        each.fields.append((i, bit))

    for i in range(segment.start, segment.end):
        mine = [
            (p, bit, role)
            for file, p, bit, role in rows[first[i] - low : first[i + 1] - low]
            if file == RegisterFile.PRED
        ]
        explicit = sum(1 << p for p in {p for p, bit, _ in mine if bit != IMPLICIT})
        hidden |= seen[i] & ~explicit
        always = code.guard[i] == PREDICATES and not code.guard_negated[i]
        for p, bit, role in mine:
            if role & Role.READ and not role & Role.WRITE:
                touch(p, i, bit, i)
        for p, bit, role in mine:
            if role & Role.WRITE and always and not role & Role.READ:
                now[p] = _Range(p, i, i + 1, [(i, bit)])
                found.append(now[p])
            elif role & Role.WRITE:
                touch(p, i, bit, i + 1)
    outward = live.after[segment.end - 1] >> _BASE
    for p, each in now.items():
        if outward >> p & 1:
            each.stays, each.free = True, segment.end
    for each in found:
        each.stays |= bool(hidden >> each.predicate & 1)
    # What lives through without being touched.
    through = live.before[segment.start] >> _BASE & outward & _ALL
    found += [
        _Range(p, segment.start - 1, segment.end, stays=True)
        for p in range(PREDICATES)
        if (through | hidden) >> p & 1 and (hidden >> p & 1 or p not in now)
    ]
    return sorted(found, key=lambda each: each.start)


__all__ = ["PREDICATES", "spread"]
