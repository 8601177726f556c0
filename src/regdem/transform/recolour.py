"""Registers for webs whose instructions have changed places, with as few new numbers as possible.

ptxas chose numbers with register banks and operand reuse in mind, so a web keeps its number where
nothing else is there in the new order. Webs that collide move, the one with fewer accesses first,
to a register of the same parity (there are two banks), the one whose other uses are farthest away.
Where none is free, what is in the way of least weight makes way; where that does not end soon, all
webs are coloured anew (`colour.py`), unless there are very many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from regdem.analysis.webs import STACK_POINTER, Webs
from regdem.transform.colour import Colouring, colour
from regdem.transform.crowding import shortfall
from regdem.transform.listing import begins
from regdem.transform.segments import Segment
from regdem.transform.timeline import Timeline

_FAR = 96
_PATIENCE = 500
"""Ejections before the search is given up."""
_GRUDGE = 8
_MANY = 700
"""Groups beyond which searching on takes too long."""


def moved_webs(
    timeline: Timeline, webs: Webs, order: Sequence[int], changed: Sequence[Segment]
) -> Webs:
    """The same webs where instruction `order[k]` stands at k, which differs in `changed` only.

    Accesses keep their original indices; `points` are those of the new order.
    """
    points = [web.points for web in webs.webs]
    for segment in changed:
        _move_points(timeline, webs, order, segment, points)
    return Webs(
        tuple(
            web if web.points == mine else replace(web, points=mine)
            for web, mine in zip(webs.webs, points, strict=True)
        ),
        webs.groups,
        webs.of_row,
    )


def _move_points(
    timeline: Timeline,
    webs: Webs,
    order: Sequence[int],
    segment: Segment,
    points: list[int],
) -> None:
    start, end = segment.start, segment.end
    block_start = timeline.program.blocks[segment.block].start
    touched = {
        key
        for i in range(start, end)
        for key in (*(key for key, _ in timeline.reads[i]), *timeline.writes[i])
        if key >= 0
    }
    live = {w for w in touched if webs.webs[w].points >> (2 * end) & 1}
    ends = dict.fromkeys(live, 2 * end - 1)  # the last point of the range that is being walked
    window = (1 << (2 * end)) - (1 << (2 * start))
    for w in touched:
        points[w] &= ~window
    for k in range(end - 1, start - 1, -1):
        i = order[k]
        multi_pass = timeline.multi_pass[i]
        for w in timeline.writes[i]:
            if w < 0:
                continue
            if w not in ends:
                ends[w] = 2 * k + 1
            if begins(webs, w, i, block_start, multi_pass=multi_pass):
                first = 2 * k if multi_pass else 2 * k + 1
                points[w] |= (1 << (ends.pop(w) + 1)) - (1 << first)
        for w, _ in timeline.reads[i]:
            if w >= 0 and w not in ends:
                ends[w] = 2 * k
    for w, last in ends.items():
        points[w] |= (1 << (last + 1)) - (1 << (2 * start))


def keep_numbers(webs: Webs, limit: int, instructions: int) -> Colouring:
    """Registers 0 to `limit` - 1 for all webs, most of them as they were.

    Where not all fit, `unplaced` are the groups that found no place.
    """
    table = _Table(webs, limit)
    groups = sorted(range(len(webs.groups)), key=table.rank)
    homeless = [k for k in groups if not table.put(k, 0)]
    homeless.sort(key=lambda k: (-webs.groups[k].alignment, table.rank(k)))
    queue = deque(homeless)
    ejections = 0
    patience = _PATIENCE if len(groups) <= _MANY else _PATIENCE // 8
    while queue:
        k = queue.popleft()
        shift = table.best_free(k)
        if shift is None:
            shift, others = table.least_resistance(k)
            ejections += len(others)
            if shift is None or ejections > patience:
                unplaced = (k, *queue)
                if len(groups) <= _MANY and not shortfall(webs, limit, instructions).any():
                    return colour(webs, limit)
                return Colouring(tuple(table.register), unplaced, len(groups) - len(unplaced))
            for other in others:
                table.take(other)
            queue.extend(others)
        table.put(k, shift)
    return Colouring(tuple(table.register), (), len(groups))


class _Table:
    """Who holds which register, and when."""

    def __init__(self, webs: Webs, limit: int) -> None:
        self._limit = limit
        self._groups = webs.groups
        self._members = [[webs.webs[w] for w in group.webs] for group in webs.groups]
        self._taken = [0] * limit
        self._held: list[dict[int, int]] = [{} for _ in range(limit)]  # group -> points
        self._shift: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._weight = [1] * len(webs.groups)
        self._is_pinned = [
            any(web.register == STACK_POINTER for web in members) for members in self._members
        ]
        self.register = [-1] * len(webs.webs)

    def rank(self, k: int) -> tuple[bool, int, int]:
        """Who is placed first: the stack pointer, then the most accessed."""
        members = self._members[k]
        return (
            not self._is_pinned[k],
            -sum(len(web.reads) + len(web.writes) for web in members),
            k,
        )

    def put(self, k: int, shift: int) -> bool:
        """Places a group if it fits there."""
        members, taken = self._members[k], self._taken
        mine: dict[int, int] = {}
        for web in members:
            at = web.register + shift
            known = mine.get(at, 0)
            if at >= self._limit or (taken[at] | known) & web.points:
                return False
            mine[at] = known | web.points
        for web in members:
            at = web.register + shift
            taken[at] |= web.points
            self._held[at][k] = self._held[at].get(k, 0) | web.points
            self.register[web.index] = at
        self._shift[k] = shift
        return True

    def take(self, k: int) -> None:
        """Takes a group's registers away; it will be harder the next time."""
        shift = self._left[k] = self._shift.pop(k)
        for web in self._members[k]:
            at = web.register + shift
            self._taken[at] &= ~web.points
            self._held[at].pop(k, None)
            self.register[web.index] = -1
        self._weight[k] += 1

    def _shifts(self, k: int) -> range:
        group = self._groups[k]
        return range(
            group.low % group.alignment - group.low, self._limit - group.high, group.alignment
        )

    def best_free(self, k: int) -> int | None:
        """Where nothing is in the way: of one's own parity, far from other uses."""
        best: tuple[int, int, int] | None = None
        taken = self._taken
        members = [(web.register, web.points) for web in self._members[k]]
        for shift in self._shifts(k):
            for register, points in members:
                if taken[register + shift] & points:
                    break
            else:
                gap = min(_gap(taken[register + shift], points) for register, points in members)
                rank = (shift & 1, -gap, shift)
                if best is None or rank < best:
                    best = rank
        return None if best is None else best[2]

    def least_resistance(self, k: int) -> tuple[int | None, list[int]]:
        """The shift whose occupants weigh least, and these."""
        best: int | None = None
        least, occupants = 0, list[int]()
        held, weights, pinned = self._held, self._weight, self._is_pinned
        members = [(web.register, web.points) for web in self._members[k]]
        is_single = len(members) == 1
        for shift in self._shifts(k):
            others = [
                other
                for register, points in members
                for other, theirs in held[register + shift].items()
                if theirs & points
            ]
            if not is_single:
                others = list(dict.fromkeys(others))
            weight = _GRUDGE if shift == self._left.get(k) else 0  # not back to where it came from
            for other in others:
                if pinned[other]:
                    break
                weight += weights[other] * len(self._members[other])
            else:
                if best is None or weight < least:
                    best, least, occupants = shift, weight, others
        self._weight[k] += 1
        return best, occupants


def _gap(taken: int, points: int) -> int:
    """Points between a range and the nearest other use of the register, up to `_FAR`."""
    if not taken or not points:
        return _FAR // 2
    low = (points & -points).bit_length() - 1
    high = points.bit_length()
    before = low - (taken & ((1 << low) - 1)).bit_length()
    above = taken >> high
    after = (above & -above).bit_length() - 1 if above else _FAR
    return min(before, after, _FAR)


__all__ = ["keep_numbers", "moved_webs"]
