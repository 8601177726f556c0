"""Which slot each spilled word gets: a colouring of the frame's live ranges.

ptxas gives every spilled value a place of its own in the stack frame, for the whole kernel
(measured: 296 words where at most 204 are live at once). Here the words of the frame are split into
live ranges (webs: stores and the loads they reach), and ranges that never overlap share a slot.

Slots lie in rows of one or, with `SlotLayout.wide`, two words a thread. A range keeps its word's
place within the row, so that a 64-bit access stays one instruction. Single words pay for wide rows
with a second wavefront; the width is the one whose accesses, weighted by loops, keep the memory
pipe busy for the shorter time.

What one access reaches moves together or stays. Where not all fits, the hottest per slot and length
move first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regdem.analysis.frame import WORD_BYTES, Frame, FrameAccess
from regdem.program.loops import block_weights
from regdem.program.program import Program

_INSTRUCTION_CYCLES, _WAVEFRONT_CYCLES = 2.0, 1.0
"""Time in the memory pipe of an instruction, and of 128 bytes of it (measured on sm_90)."""
_ROWS = (1, 2)
_ALWAYS = 7

Word = tuple[int, int]
"""An access (instruction) and the number of one of its words."""


@dataclass(frozen=True)
class FrameRange:
    """A live range of one word of the frame.

    `points` has bit 2i where it is live in front of instruction i, bit 2i + 1 behind it.
    """

    place_bytes: int
    words: tuple[Word, ...]
    points: int


@dataclass(frozen=True)
class SlotPlan:
    """The slot of every word that moves, and of each live range.

    `slots` counts all slots of the rows in use. `moved` holds the instructions that move.
    """

    slot: dict[Word, int]
    ranges: tuple[tuple[FrameRange, int], ...]
    slots: int
    wide: bool
    moved: frozenset[int]


def frame_ranges(program: Program, frame: Frame) -> list[FrameRange]:
    """The live ranges of all words of the frame, by place.

    A word that a device function of the section reaches is one range that is live everywhere, so
    that what is live across a call needs no points within the function.
    """
    words: dict[int, list[tuple[FrameAccess, int]]] = {}
    for access in frame.accesses:
        for k in range(access.words):
            words.setdefault(access.place_bytes + WORD_BYTES * k, []).append((access, k))
    everywhere = (1 << 2 * len(program)) - 1
    ranges: list[FrameRange] = []
    for place, each in sorted(words.items()):
        blocks = [program.blocks[int(program.block_of[a.instruction])] for a, _ in each]
        if all(block.function == 0 for block in blocks):
            ranges.extend(_ranges_of(program, place, each))
        else:
            ranges.append(FrameRange(place, tuple((a.instruction, k) for a, k in each), everywhere))
    return ranges


def _ranges_of(
    program: Program, place: int, accesses: Sequence[tuple[FrameAccess, int]]
) -> list[FrameRange]:
    """Webs of one word: its loads joined with the stores that reach them, and where each lives."""
    at = {a.instruction: (a, k) for a, k in accesses}
    parent = {i: i for i in at}

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    points = {i: 1 << 2 * i + (1 if a.is_store else 0) for i, (a, _) in at.items()}
    stores: dict[int, list[int]] = {}
    for i in sorted(i for i, (access, _) in at.items() if access.is_store):
        stores.setdefault(int(program.block_of[i]), []).append(i)
    for i, (access, _) in at.items():
        if access.is_store:
            continue
        for store, mask in _reaching(program, i, stores):
            points[i] |= mask
            if store >= 0:
                parent[find(store)] = find(i)
    # A guarded store leaves the old value where it does not happen: both are one range.
    for i, (access, _) in at.items():
        if access.is_store and program.code.guard[i] != _ALWAYS:
            for store, mask in _reaching(program, i, stores):
                points[i] |= mask
                if store >= 0:
                    parent[find(store)] = find(i)
    members: dict[int, list[int]] = {}
    for i in sorted(at):
        members.setdefault(find(i), []).append(i)
    result: list[FrameRange] = []
    for each in members.values():
        mask = 0
        for i in each:
            mask |= points[i]
        result.append(FrameRange(place, tuple((i, at[i][1]) for i in each), mask))
    return result


def _reaching(program: Program, use: int, stores: dict[int, list[int]]) -> list[tuple[int, int]]:
    """(store, points on the way) of all stores that reach the front of `use`, by walking back.

    `stores` lists the word's stores by block, ascending. A store of -1 stands for what a block
    lets through.
    """
    found: list[tuple[int, int]] = []
    seen: set[int] = set()
    work = [(int(program.block_of[use]), use)]
    while work:
        b, end = work.pop()
        block = program.blocks[b]
        for j in reversed(stores.get(b, [])):
            if j >= end:
                continue
            found.append((j, _points(j + 1, end) | 2 << 2 * j))
            if program.code.guard[j] == _ALWAYS:
                break
        else:
            found.append((-1, _points(block.start, end)))
            for p in block.predecessors:
                if p not in seen:
                    seen.add(p)
                    work.append((p, program.blocks[p].end))
    return [(store, mask | 1 << 2 * use) for store, mask in found]


def _points(start: int, end: int) -> int:
    """Both points of the instructions from `start` to `end` (exclusive)."""
    return (1 << 2 * end) - (1 << 2 * start)


def plan_slots(
    program: Program,
    frame: Frame,
    barred: frozenset[int],
    most_slots: int,
    *,
    row: int | None = None,
) -> SlotPlan:
    """Slots for the hottest groups of ranges that fit `most_slots`.

    `barred` holds accesses (instructions) that must stay in local memory. `row`: words a thread in
    a row of slots; None: whatever takes less time in shared memory.
    """
    weights = block_weights(program)
    weight = {a.instruction: weights[int(program.block_of[a.instruction])] for a in frame.accesses}
    if row is None:
        row = min(_ROWS, key=lambda words: _cycles(frame, weight, words)) if most_slots > 1 else 1
    ranges = frame_ranges(program, frame)

    def heat(group: Sequence[FrameRange]) -> float:
        """Accesses for each point of a slot that the group takes."""
        accesses = sum(weight[i] for each in group for i, _ in each.words)
        return accesses / sum(each.points.bit_count() for each in group)

    def first_point(group: Sequence[FrameRange]) -> int:
        return min((each.points & -each.points).bit_length() for each in group)

    groups = _groups(ranges, frame)
    groups = [g for g in groups if not any(i in barred for each in g for i, _ in each.words)]
    # By their beginnings, ranges of straight code need the fewest slots.
    found = _place(sorted(groups, key=first_point), frame, row, most_slots)
    if len(found.ranges) < sum(map(len, groups)):
        groups.sort(key=lambda g: (-heat(g), first_point(g), g[0].place_bytes))
        found = _place(groups, frame, row, most_slots)
    return found


def _place(
    groups: Sequence[Sequence[FrameRange]], frame: Frame, row: int, most_slots: int
) -> SlotPlan:
    """Slots for the groups in their order; those that do not fit stay."""
    rows = _Rows(row, most_slots)
    slot: dict[Word, int] = {}
    placed: list[tuple[FrameRange, int]] = []
    for group in groups:
        where = rows.place(group, frame)
        for each, number in zip(group, where or (), strict=False):
            placed.append((each, number))
            slot.update(dict.fromkeys(each.words, number))
    return SlotPlan(
        slot,
        tuple(sorted(placed, key=lambda p: (p[0].place_bytes, p[1], p[0].words))),
        rows.slots,
        row > 1,
        frozenset(i for i, _ in slot),
    )


def _cycles(frame: Frame, weight: dict[int, float], row: int) -> float:
    """Loop-weighted time in the memory pipe if every access moved, with rows of `row` words."""
    return sum(
        weight[access.instruction]
        * len(by_row(access, row))
        * (_INSTRUCTION_CYCLES + _WAVEFRONT_CYCLES * row)
        for access in frame.accesses
    )


def by_row(access: FrameAccess, per_row: int) -> list[list[int]]:
    """The numbers of an access's words, split where a row of the frame ends."""
    parts: list[list[int]] = []
    for k in range(access.words):
        word = access.place_bytes // WORD_BYTES + k
        if parts and word % per_row:
            parts[-1].append(k)
        else:
            parts.append([k])
    return parts


def _groups(ranges: Sequence[FrameRange], frame: Frame) -> list[list[FrameRange]]:
    """Ranges that some access reaches together, transitively."""
    owner = {word: n for n, each in enumerate(ranges) for word in each.words}
    parent = list(range(len(ranges)))

    def find(n: int) -> int:
        while parent[n] != n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    for access in frame.accesses:
        first = find(owner[access.instruction, 0])
        for k in range(1, access.words):
            parent[find(owner[access.instruction, k])] = first
    members: dict[int, list[FrameRange]] = {}
    for n, each in enumerate(ranges):
        members.setdefault(find(n), []).append(each)
    return list(members.values())


class _Rows:
    """Rows of slots with the points at which each of their words is taken."""

    def __init__(self, per_row: int, most_slots: int) -> None:
        self._per_row = per_row
        self._most = max(0, most_slots) // per_row
        self._taken: list[list[int]] = []

    @property
    def slots(self) -> int:
        """Slots of all rows in use."""
        return len(self._taken) * self._per_row

    def place(self, group: Sequence[FrameRange], frame: Frame) -> list[int] | None:
        """Slots for a group, or None (and nothing changed) where it does not fit.

        Ranges that one access reaches within one row of the frame share a row of slots.
        """
        before = [list(row) for row in self._taken]
        found: dict[int, int] = {}
        for piece in self._pieces(group, frame):
            row = self._row_for(piece)
            if row is None:
                self._taken = before
                return None
            for each in piece:
                column = each.place_bytes // WORD_BYTES % self._per_row
                self._taken[row][column] |= each.points
                found[id(each)] = row * self._per_row + column
        return [found[id(each)] for each in group]

    def _pieces(self, group: Sequence[FrameRange], frame: Frame) -> list[list[FrameRange]]:
        """The group's ranges by row of the frame; those that share no access there stand alone."""
        by_word = {word: each for each in group for word in each.words}
        pieces: dict[int, list[FrameRange]] = {id(each): [each] for each in group}
        for access in frame.accesses:
            if (access.instruction, 0) not in by_word:
                continue
            for part in by_row(access, self._per_row):
                first = pieces[id(by_word[access.instruction, part[0]])]
                for k in part[1:]:
                    other = pieces[id(by_word[access.instruction, k])]
                    if other is not first:
                        first.extend(other)
                        for each in other:
                            pieces[id(each)] = first
        unique: dict[int, list[FrameRange]] = {id(piece): piece for piece in pieces.values()}
        return sorted(unique.values(), key=lambda p: min((e.place_bytes, e.words) for e in p))

    def _row_for(self, piece: Sequence[FrameRange]) -> int | None:
        for number, row in enumerate(self._taken):
            if all(
                not row[each.place_bytes // WORD_BYTES % self._per_row] & each.points
                for each in piece
            ):
                return number
        if len(self._taken) == self._most:
            return None
        self._taken.append([0] * self._per_row)
        return len(self._taken) - 1
