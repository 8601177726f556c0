"""Assigns registers to webs: tuple-aware colouring by occupancy, mended by ejection.

Groups of webs (see `analysis/webs.py`) are placed one after the other. For every register the set
of points at which it is taken is one Python int; a group fits at a shift if each of its webs'
points are free in its register.

What finds no place takes the place of others (partial colouring with a tabu list: Blöchliger and
Zufferey, 2008). Of all shifts the one is taken whose occupants weigh least; they lose their place
and are placed again later. A group weighs more each time it is ejected, and may not come back to
where it was for a while, so the search does not go in circles. Only here the overlaps of groups
are looked up, for the groups that take part; the interference graph as a whole is never built.

Four searches, the first that places all counts: strictest and widest first, spreading (of the
registers that fit, the one whose other uses lie farthest away, since an access that is still under
way makes the next writer of its register wait); by start, each into the narrowest hole; strictest
and widest first, packing; by start, packing.

Invariants: at no point do two groups share a register; aligned groups stay aligned. Not claimed:
that a colouring is found wherever one exists (`transform/crowding.py` tells where none can).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.webs import STACK_POINTER, Webs

_FAR = 96
"""Points beyond which a register's last use no longer matters to the next."""
_WITHIN = (1 << _FAR) - 1
_PATIENCE = 1000
"""Ejections without any gain before a search is given up; four times as many in all."""
_TABU = 10
_BROKEN_PAIR = 1 << 20
_NEVER = 1 << 60


class _Fit(Enum):
    """Which of several free places is taken."""

    FARTHEST = "farthest from other uses"
    FIRST = "the original one, else the lowest"
    TIGHTEST = "right behind another use, beside a register that is taken"


@dataclass(frozen=True)
class Colouring:
    """`register[w]` is the register of web w, -1 if it has none; `placed` counts placed groups.

    `unplaced` are the groups that found no place.
    """

    register: tuple[int, ...]
    unplaced: tuple[int, ...]
    placed: int

    @property
    def failed(self) -> int:
        """The first group that found no place, or -1."""
        return self.unplaced[0] if self.unplaced else -1


@dataclass(frozen=True)
class _Tuple:
    """A group as the search needs it.

    `members`: its webs as (register, web); `merged`: points by register; `points`: all of them,
    the first and the one behind the last; `shifts`: where it may go.
    """

    members: tuple[tuple[int, int], ...]
    merged: tuple[tuple[int, int], ...]
    points: int
    first: int
    last: int
    alignment: int
    width: int
    pinned: bool
    shifts: range


def colour(webs: Webs, limit: int, *, distinct: int = 0) -> Colouring:
    """Colours all webs with registers 0 to `limit` - 1; the stack pointer keeps its number.

    Webs of the registers in the mask `distinct` get registers of their own, shared with no other
    web of a register in `distinct` (a bijection on them). Returns the first search that succeeds,
    or the attempt that placed most.
    """
    tuples = _tuples(webs, limit, distinct)
    widest = sorted(
        range(len(tuples)),
        key=lambda k: (-tuples[k].alignment, -tuples[k].width, tuples[k].first),
    )
    earliest = sorted(range(len(tuples)), key=lambda k: (tuples[k].first, -tuples[k].alignment))
    neighbours = _Neighbours(tuples)
    best: Colouring | None = None
    for order, fit, patience in (
        (widest, _Fit.FARTHEST, _PATIENCE // 4),
        (earliest, _Fit.TIGHTEST, _PATIENCE),
        (widest, _Fit.FIRST, _PATIENCE),
        (earliest, _Fit.FIRST, _PATIENCE // 4),
    ):
        search = _Search(tuples, neighbours, limit, fit, patience)
        unplaced = search.run(order)
        if best is None or len(unplaced) < len(best.unplaced):
            best = Colouring(search.registers(len(webs.webs)), unplaced, search.placed)
        if not unplaced:
            break
    assert best is not None
    return best


def _tuples(webs: Webs, limit: int, distinct: int) -> list[_Tuple]:
    span = 1 << (max((w.points.bit_length() for w in webs.webs), default=0) + 1)
    result: list[_Tuple] = []
    for group in webs.groups:
        merged: dict[int, int] = {}
        points = 0
        for name in group.webs:
            web = webs.webs[name]
            mine = web.points | (span if (distinct >> web.register) & 1 and web.whole else 0)
            merged[web.register] = merged.get(web.register, 0) | mine
            points |= mine
        pinned = STACK_POINTER in merged
        # Bases congruent to the original one modulo the alignment.
        lowest = group.low % group.alignment - group.low
        shifts = range(lowest, limit - group.high, group.alignment)
        if pinned:
            shifts = range(1) if group.high < limit else range(0)
        result.append(
            _Tuple(
                tuple((webs.webs[w].register, w) for w in group.webs),
                tuple(merged.items()),
                points,
                (points & -points).bit_length() - 1 if points else 0,
                points.bit_length(),
                group.alignment,
                group.high - group.low + 1,
                pinned,
                shifts,
            )
        )
    return result


@dataclass(frozen=True)
class _Obstacles:
    """The groups in a group's way: group `others[j]` placed at shift s blocks s + `distances[j]`.

    `others` ascend; no pair occurs twice.
    """

    others: NDArray[np.int32]
    distances: NDArray[np.int32]


_MIDDLE = 512
"""Where a shift of 0 stands in an array over shifts."""
_NAME_BITS = 10
"""Bits of what is smaller than `2 * _MIDDLE`, in the names of ranges."""
_NOWHERE = 2 * _MIDDLE
"""Where a group without a place stands: shifts and distances are below 256, so it is in no way."""
_BUCKET = 7
"""Points, as a power of two, whose ranges are kept in one list."""


class _Neighbours:
    """The groups whose ranges overlap with a group's, looked up when they are asked for.

    All ranges are kept as intervals of points, listed by the stretches of points they cross.
    """

    def __init__(self, tuples: Sequence[_Tuple]) -> None:
        self._tuples = tuples
        self._known: dict[int, _Obstacles] = {}
        name: list[int] = []
        begin: list[int] = []
        end: list[int] = []
        for k, entry in enumerate(tuples):
            for register, points in entry.merged:
                for first, last in _intervals(points):
                    name.append((k << _NAME_BITS) + _MIDDLE + register)
                    begin.append(first)
                    end.append(last)
        names = np.array(name, dtype=np.int64)
        begins = np.array(begin, dtype=np.int32)
        ends = np.array(end, dtype=np.int32)
        lowest, highest = begins >> _BUCKET, (ends - 1) >> _BUCKET
        each = highest - lowest + 1
        interval = np.repeat(np.arange(len(names)), each)
        within = np.arange(len(interval)) - np.repeat(np.cumsum(each) - each, each)
        bucket = lowest[interval] + within
        order = np.argsort(bucket, kind="stable")
        self._name = names[interval[order]]
        self._begin = begins[interval[order]]
        self._end = ends[interval[order]]
        count = int(highest.max(initial=0)) + 2
        self._offset: list[int] = np.searchsorted(bucket[order], np.arange(count + 1)).tolist()

    def knows(self, k: int) -> bool:
        """Whether what is in the way of group k was looked up before."""
        return k in self._known

    def of(self, k: int) -> _Obstacles:
        """What is in the way of group k."""
        found = self._known.get(k)
        if found is None:
            found = self._known[k] = self._look_up(k)
        return found

    def _look_up(self, k: int) -> _Obstacles:
        keys = [
            self._overlapping(points) - register
            for register, points in self._tuples[k].merged
            if points
        ] or [np.zeros(0, dtype=np.int64)]
        key = np.concatenate(keys) if len(keys) != 1 else keys[0]
        key.sort()
        fresh = np.ones(len(key), dtype=np.bool_)
        np.not_equal(key[1:], key[:-1], out=fresh[1:])
        others = key >> _NAME_BITS
        fresh &= others != k
        distances = (key[fresh] & (2 * _MIDDLE - 1)) - _MIDDLE
        return _Obstacles(others[fresh].astype(np.int32), distances.astype(np.int32))

    def _overlapping(self, points: int) -> NDArray[np.int64]:
        """The names of the intervals that share points with a range; some of them twice."""
        first, last = (points & -points).bit_length() - 1, points.bit_length()
        low = self._offset[first >> _BUCKET]
        high = self._offset[(last - 1 >> _BUCKET) + 1]
        begin, end, name = self._begin[low:high], self._end[low:high], self._name[low:high]
        if points.bit_count() == last - first:
            return name[(begin < last) & (end > first)]
        held = np.zeros(last - first + 1, dtype=np.int32)
        np.cumsum(_bits(points >> first, last - first), out=held[1:])
        inside = np.clip(end, first, last) - first, np.clip(begin, first, last) - first
        return name[held[inside[0]] > held[inside[1]]]


def _bits(mask: int, count: int) -> NDArray[np.uint8]:
    """The lowest bits of a mask."""
    data = np.frombuffer(mask.to_bytes((count + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(data, bitorder="little")[:count]


def _intervals(points: int) -> list[tuple[int, int]]:
    """The maximal runs of points, as half-open ranges."""
    if not points:
        return []
    first, last = (points & -points).bit_length() - 1, points.bit_length()
    if points.bit_count() == last - first:
        return [(first, last)]
    edges = np.diff(_bits(points >> first, last - first + 1), prepend=np.uint8(0)).nonzero()[0]
    found: list[int] = (edges + first).tolist()
    return list(zip(found[0::2], found[1::2], strict=True))


class _Search:
    """One search: a partial colouring that is completed, ejecting what is in the way."""

    def __init__(
        self,
        tuples: Sequence[_Tuple],
        neighbours: _Neighbours,
        limit: int,
        fit: _Fit,
        patience: int,
    ) -> None:
        self._tuples = tuples
        self._neighbours = neighbours
        self._fit = fit
        self._patience = patience
        self._taken = [0] * limit
        self._shift: list[int | None] = [None] * len(tuples)
        # The same for numpy; what has no place stands where no shift can be.
        self._at = np.full(len(tuples), _NOWHERE, dtype=np.int64)
        self._window = [
            slice(t.shifts.start + _MIDDLE, t.shifts[-1] + _MIDDLE + 1, t.shifts.step)
            if t.shifts
            else slice(0)
            for t in tuples
        ]
        self._weight = np.array([_NEVER if t.pinned else 1 for t in tuples], dtype=np.float64)
        self._blocked = np.zeros(_NOWHERE + _MIDDLE, dtype=np.bool_)
        self._tabu: dict[int, dict[int, int]] = {}
        self._steps = 0
        self.placed = 0

    def run(self, order: Sequence[int]) -> tuple[int, ...]:
        """Places all groups, pinned ones first, then in `order`; returns what found no place."""
        ranked = sorted(order, key=lambda k: not self._tuples[k].pinned)
        queue = list(enumerate(ranked))
        rank = len(queue)
        ejections, since, fewest = 0, 0, rank
        patience, most = self._patience, 4 * self._patience
        while queue:
            _, k = heapq.heappop(queue)
            self._steps += 1
            shift = self._free_shift(k)
            if shift is None:
                if ejections >= most or since >= patience:
                    return (k, *(k for _, k in sorted(queue)))
                shift, ejected = self._make_way(k)
                if shift is None:
                    return (k, *(k for _, k in sorted(queue)))
                for other in ejected:
                    self._take(other)
                    heapq.heappush(queue, (rank, other))
                    rank += 1
                ejections += len(ejected)
                since += len(ejected)
            self._put(k, shift)
            if len(queue) < fewest:
                fewest, since = len(queue), 0
        return ()

    def registers(self, count: int) -> tuple[int, ...]:
        """The register of each of `count` webs, -1 for those of groups without a place."""
        register = [-1] * count
        for entry, shift in zip(self._tuples, self._shift, strict=True):
            if shift is not None:
                for r, web in entry.members:
                    register[web] = r + shift
        return tuple(register)

    def _put(self, k: int, shift: int) -> None:
        for r, p in self._tuples[k].merged:
            self._taken[r + shift] |= p
        self._shift[k] = shift
        self._at[k] = shift + _MIDDLE
        self.placed += 1

    def _take(self, k: int) -> None:
        shift = self._shift[k]
        assert shift is not None
        for r, p in self._tuples[k].merged:
            self._taken[r + shift] ^= p
        self._shift[k], self._at[k] = None, _NOWHERE
        self._weight[k] += 1
        until = self._steps + _TABU + (7 * self._steps + k) % _TABU
        self._tabu.setdefault(k, {})[shift] = until
        self.placed -= 1

    def _free_shift(self, k: int) -> int | None:
        """A shift at which nothing is in the way."""
        entry, taken = self._tuples[k], self._taken
        shifts = entry.shifts
        if not shifts:
            return None
        if self._fit == _Fit.FIRST:
            if 0 in shifts and not any(taken[r] & p for r, p in entry.merged):
                return 0
            return next(iter(self._free(k, first=True)), None)
        places = self._free(k)
        if not places:
            return None
        return (
            self._farthest(k, places) if self._fit == _Fit.FARTHEST else self._tightest(k, places)
        )

    def _free(self, k: int, *, first: bool = False) -> Sequence[int]:
        """The shifts at which nothing is in the way, ascending; only the `first` of them."""
        shifts, taken = self._tuples[k].shifts, self._taken
        if self._neighbours.knows(k):
            obstacles = self._neighbours.of(k)
            reached = self._at[obstacles.others]
            reached += obstacles.distances
            blocked = self._blocked
            blocked[:] = False
            blocked[reached] = True
            at = blocked[self._window[k]]
            lowest = int(at.argmin())
            if at[lowest]:
                return ()
            if first:
                return (shifts[lowest],)
            start, step = shifts.start, shifts.step
            free: list[int] = (~at).nonzero()[0].tolist()
            return [start + step * place for place in free]
        # To look up what is in the way takes longer than to try them all once.
        places: Sequence[int] = shifts
        for r, points in self._tuples[k].merged:
            places = [shift for shift in places if not taken[shift + r] & points]
        return places[:1] if first else places

    def _farthest(self, k: int, places: Sequence[int]) -> int:
        """The place where other uses of the registers lie farthest away, up to `_FAR` points; the
        original one among equals, else the first."""
        taken, merged = self._taken, self._tuples[k].merged
        bounds = [((p & -p).bit_length() - 1, p.bit_length()) for _, p in merged]
        best, most = places[0], -1
        for shift in places:
            least = _FAR
            for (r, _), (low, high) in zip(merged, bounds, strict=True):
                there = taken[r + shift]
                if not there:
                    least = min(least, _FAR // 2)
                    continue
                near = there >> max(0, low - _FAR)
                below = min(low, _FAR)
                gap = below - (near & ((1 << below) - 1)).bit_length()
                if gap < least:
                    least = gap
                above = near >> below + high - low & _WITHIN
                if above:
                    gap = (above & -above).bit_length() - 1
                    if gap < least:
                        least = gap
                if least < most:
                    break
            if least + (shift == 0) > most:
                best, most = shift, least + (shift == 0)
                if least >= _FAR and (shift == 0 or 0 not in places):
                    break
        return best

    def _tightest(self, k: int, places: Sequence[int]) -> int:
        """The place with the fewest points left unused in front of the group, and no free pair of
        registers broken; the first among equals."""
        entry, taken = self._tuples[k], self._taken
        first, points = entry.first, entry.points
        below = (1 << first) - 1
        registers = [r for r, _ in entry.merged]
        lowest, is_single = registers[0], entry.alignment == 1
        best, least = places[0], _NEVER
        for shift in places:
            waste = 0
            for r in registers:
                waste += first - (taken[r + shift] & below).bit_length()
            if is_single and waste < least:
                partner = (lowest + shift) ^ 1
                if partner < len(taken) and not taken[partner] & points:
                    waste += _BROKEN_PAIR
            if waste < least:
                best, least = shift, waste
        return best

    def _make_way(self, k: int) -> tuple[int | None, list[int]]:
        """The shift whose occupants weigh least, and these; no shift if all are barred."""
        obstacles = self._neighbours.of(k)
        others = obstacles.others
        reached = self._at[others]
        reached += obstacles.distances
        weigh = np.bincount(reached, self._weight[others], minlength=2 * _MIDDLE)
        for shift, until in self._tabu.get(k, {}).items():
            if until > self._steps:
                weigh[shift + _MIDDLE] = _NEVER
        shifts = self._tuples[k].shifts
        if not shifts:
            return None, []
        at = weigh[self._window[k]]
        least = int(at.argmin())
        if at[least] >= _NEVER:
            return None, []
        self._weight[k] += 1
        best = shifts[least]
        ejected: list[int] = others[reached == best + _MIDDLE].tolist()
        return best, ejected
