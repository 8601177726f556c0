"""Slots for the values that leave: those that are never needed together share words.

Slots are taken from L1, so there should be no more than are needed. Two ways to say where a value
needs its slot: all its life, or only from its stores to its loads (a dataflow, backward from the
loads). The second is less, but the order in which words are given out is greedy, so that the caller
takes the smaller of both.

Invariants: values with a common word are never both in need of it; a 64-bit value has an even first
word. Not claimed: the fewest words (that is colouring an interference graph).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regdem.analysis.liveness import Liveness
from regdem.program.program import Program
from regdem.transform.gap_choice import Choice
from regdem.transform.spill import needed_at_entries, place

_NO_GUARD = 7


def share_slots(
    chosen: Sequence[Choice], points_of: Callable[[Choice], int] | None = None
) -> tuple[dict[int, int], int]:
    """First slot word by web (of the low half), and the words needed.

    Values whose slots are never needed together share words; 64-bit values have even ones.
    `points_of` says where a value's slot is needed (`slot_points`); by default, where it is live.
    """
    taken: list[int] = []
    slot_of: dict[int, int] = {}
    stored = [
        (c.value, c.value.points if points_of is None else points_of(c))
        for c in chosen
        if c.value.takes_slot
    ]
    stored.sort(key=lambda s: (-s[0].words, s[1] & -s[1], s[0].webs[0].index))
    for value, points in stored:
        words = value.words
        slot = 0
        while any(slot + w < len(taken) and taken[slot + w] & points for w in range(words)):
            slot += words
        while len(taken) < slot + words:
            taken.append(0)
        for w in range(words):
            taken[slot + w] |= points
        slot_of[value.webs[0].index] = slot
    return slot_of, len(taken)


def slot_points(program: Program, live: Liveness, choice: Choice) -> int:
    """Where the slot of a value holds something that a load will read, as `Web.points`.

    From its stores to its loads: less than the value's life. Later moves of stores down and of
    loads up only shorten it. In device functions the value's own life counts, so that what is live
    across a call stays apart from what the callee stores.
    """
    value = choice.value
    placement = place(program, live, value.access(), choice.away)
    code = program.code
    stores: dict[int, bool] = {}  # by point
    for definition, (at, after) in placement.stores.items():
        always = code.guard[definition] == _NO_GUARD or definition in placement.unguarded
        stores[2 * at + after] = stores.get(2 * at + after, False) or bool(always)
    events: dict[int, list[int]] = {}
    for point in sorted(stores.keys() | {2 * i for i in placement.loads}, reverse=True):
        events.setdefault(int(program.block_of[point // 2]), []).append(point)

    def walk(b: int, needed: bool) -> tuple[bool, int]:
        block, mask = program.blocks[b], 0
        above = 2 * block.end
        for point in events.get(b, ()):
            if needed:
                mask |= (1 << above) - (2 << point)
            if point in stores or needed:
                mask |= 1 << point
            if point % 2 == 0 and point // 2 in placement.loads:
                needed = True
                mask |= 1 << point
            if stores.get(point):
                needed = False
            above = point
        if needed:
            mask |= (1 << above) - (1 << 2 * block.start)
        return needed, mask

    through = {b: (walk(b, False)[0], walk(b, True)[0]) for b in events}
    needed_in = needed_at_entries(program, through)
    ends = {p for b in needed_in for p in program.blocks[b].predecessors}
    points = _device_points(program) & value.points
    for b in sorted(ends | events.keys()):
        points |= walk(b, b in ends)[1]
    return points


def _device_points(program: Program) -> int:
    """All points of device functions."""
    known: int | None = program.memo.get("device_points")
    if known is None:
        known = 0
        for block in program.blocks:
            if block.function:
                known |= (1 << 2 * block.end) - (1 << 2 * block.start)
        program.memo["device_points"] = known
    return known
