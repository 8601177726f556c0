"""Which instruction of the rewritten program stands for which of the original, in its order.

Problem: find, from the bytes alone, an order-preserving matching of equal instructions (equal in
every bit that isn't a register field, a code displacement or a control bit). Nothing rests on
*which* matching is found: the proof checks it, and a wrong one can only make the proof fail.

Method: instructions that may neither be added nor dropped ("anchors": memory, control, barriers)
must correspond one to one, in order. Between two anchors only pure instructions, NOPs and
accesses to slots or private local memory remain; there a longest common subsequence is taken,
and of equally long ones that which agrees best with the renaming that unambiguous stretches show.
Code in another order is matched by `matching.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regdem.check.view import CodeView

_MATCH = 64
_LONGEST_TABLE = 250_000
_SLACK = 128


@dataclass(frozen=True)
class Side:
    """One program's part of an alignment.

    `keys[i]` compare equal where instructions may match; `fixed[i]` marks anchors.
    """

    view: CodeView
    keys: Sequence[Hashable]
    fixed: Sequence[bool]


@dataclass(frozen=True)
class Alignment:
    """Matched pairs (original, rewritten) in ascending order, or where the anchors differ."""

    pairs: list[tuple[int, int]]
    unmatched_original: list[int]
    unmatched_rewritten: list[int]


def align(original: Side, rewritten: Side, *, late_entry: bool = False) -> Alignment:
    """Match two programs; anchors without a partner are listed.

    Of equally good matches the earliest are taken, so that copies come behind what they repeat.
    `late_entry` takes the latest in the stretch at the entry: where the original was rewritten
    before, its own prologue stands behind the new one, which is like it.
    """
    first = [i for i, fixed in enumerate(original.fixed) if fixed]
    second = [j for j, fixed in enumerate(rewritten.fixed) if fixed]
    anchors = _match_anchors(original, first, rewritten, second)
    matched_first = {i for i, _ in anchors}
    matched_second = {j for _, j in anchors}
    lost = [i for i in first if i not in matched_first]
    extra = [j for j in second if j not in matched_second]
    if lost or extra:
        return Alignment(anchors, lost, extra)
    segments = _segments(anchors, len(original.keys), len(rewritten.keys))
    votes = _votes(original, rewritten, anchors, segments)
    pairs: list[tuple[int, int]] = []
    for (i0, i1, j0, j1), anchor in zip(segments, [*anchors, None], strict=True):
        late = late_entry and i0 == 0
        pairs.extend(_match_segment(original, rewritten, (i0, i1, j0, j1), votes, late=late))
        if anchor is not None:
            pairs.append(anchor)
    return Alignment(pairs, [], [])


def _match_anchors(
    original: Side, first: list[int], rewritten: Side, second: list[int]
) -> list[tuple[int, int]]:
    a = [original.keys[i] for i in first]
    b = [rewritten.keys[j] for j in second]
    if a == b:
        return list(zip(first, second, strict=True))
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    middle = _common(a[head : len(a) - tail], b[head : len(b) - tail], None)
    pairs = [(x, x) for x in range(head)]
    pairs += [(head + x, head + y) for x, y in middle]
    pairs += [(len(a) - tail + x, len(b) - tail + x) for x in range(tail)]
    return [(first[x], second[y]) for x, y in pairs]


def _segments(
    anchors: list[tuple[int, int]], count_first: int, count_second: int
) -> list[tuple[int, int, int, int]]:
    """The stretches before each anchor and behind the last, as half-open ranges."""
    segments: list[tuple[int, int, int, int]] = []
    i0 = j0 = 0
    for i1, j1 in [*anchors, (count_first, count_second)]:
        segments.append((i0, i1, j0, j1))
        i0, j0 = i1 + 1, j1 + 1
    return segments


_Votes = dict[int, set[int]]


def _votes(
    original: Side,
    rewritten: Side,
    anchors: list[tuple[int, int]],
    segments: list[tuple[int, int, int, int]],
) -> _Votes:
    """For each value the places that unambiguous pairs put it in more than rarely."""
    counts: Counter[tuple[int, int]] = Counter()
    sure = list(anchors)
    for i0, i1, j0, j1 in segments:
        if list(original.keys[i0:i1]) == list(rewritten.keys[j0:j1]):
            sure.extend(zip(range(i0, i1), range(j0, j1), strict=True))
    for i, j in sure:
        counts.update(_renamed(original.view, i, rewritten.view, j))
    most: dict[int, int] = {}
    for (value, _), count in counts.items():
        most[value] = max(most.get(value, 0), count)
    votes: _Votes = {}
    for (value, place), count in counts.items():
        if 4 * count >= most[value]:
            votes.setdefault(value, set()).add(place)
    return votes


def _renamed(first: CodeView, i: int, second: CodeView, j: int) -> list[tuple[int, int]]:
    return [
        (a.first, b.first)
        for a, b in zip(first.rows[i], second.rows[j], strict=False)
        if a.bit == b.bit
    ]


def _match_segment(
    original: Side,
    rewritten: Side,
    ranges: tuple[int, int, int, int],
    votes: _Votes,
    *,
    late: bool = False,
) -> list[tuple[int, int]]:
    i0, i1, j0, j1 = ranges
    a = list(original.keys[i0:i1])
    b = list(rewritten.keys[j0:j1])
    if a == b:
        return list(zip(range(i0, i1), range(j0, j1), strict=True))
    if not a or not b:
        return []
    # What the other side has nothing like can't match. Often that is all the difference there is.
    common = set(a) & set(b)
    first = [x for x, key in enumerate(a) if key in common]
    second = [y for y, key in enumerate(b) if key in common]
    if late:
        first, second = first[::-1], second[::-1]
    left, right = [a[x] for x in first], [b[y] for y in second]
    if left == right:
        return sorted((i0 + x, j0 + y) for x, y in zip(first, second, strict=True))

    def bonus(x: int, y: int) -> int:
        renamed = _renamed(original.view, i0 + first[x], rewritten.view, j0 + second[y])
        agreeing = sum(place in votes.get(value, (value,)) for value, place in renamed)
        return 1 + (32 * agreeing) // max(1, len(renamed))

    return sorted((i0 + first[x], j0 + second[y]) for x, y in _common(left, right, bonus))


def _common(
    a: list[Hashable], b: list[Hashable], bonus: Callable[[int, int], int] | None
) -> list[tuple[int, int]]:
    """A heaviest common subsequence; a pair weighs `_MATCH` plus its bonus.

    In long sequences only pairs near the diagonal are considered: at most the difference of the
    lengths and `_SLACK` away from it.
    """
    if not a or not b:
        return []
    n, m = len(a), len(b)
    reach = m if n * m <= _LONGEST_TABLE else abs(n - m) + _SLACK
    places: dict[Hashable, list[int]] = {}
    for y, key in enumerate(b):
        places.setdefault(key, []).append(y)
    rows: list[NDArray[np.int64]] = []
    lows: list[int] = []
    for x in range(n + 1):
        middle = x * m // n
        low, high = max(0, middle - reach), min(m, middle + reach)
        row = np.zeros(high - low + 1, np.int64)
        if x:
            before = _window(rows[-1], lows[-1], low, high)
            row = before.copy()
            candidates = places.get(a[x - 1], [])
            for y in candidates[bisect_left(candidates, low) : bisect_left(candidates, high)]:
                weight = _MATCH + (0 if bonus is None else bonus(x - 1, y))
                row[y + 1 - low] = max(row[y + 1 - low], int(before[y - low]) + weight)
            row = np.maximum.accumulate(row)
        rows.append(row)
        lows.append(low)
    pairs: list[tuple[int, int]] = []
    x, y = n, m
    while x and y > lows[x]:
        here = int(rows[x][y - lows[x]])
        above = _window(rows[x - 1], lows[x - 1], y - 1, y)
        if here == int(above[1]):
            x -= 1
        elif here == int(rows[x][y - 1 - lows[x]]):
            y -= 1
        else:
            x, y = x - 1, y - 1
            pairs.append((x, y))
    return pairs[::-1]


def _window(row: NDArray[np.int64], start: int, low: int, high: int) -> NDArray[np.int64]:
    """Columns `low` to `high` of a row that begins at column `start`: constant beyond its end."""
    columns = np.clip(np.arange(low, high + 1) - start, 0, len(row) - 1)
    return row[columns]
