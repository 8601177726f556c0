"""Assigns registers to webs: tuple-aware colouring by occupancy.

Groups of webs (see `analysis/webs.py`) are placed one after the other. For every register the set
of points at which it is taken is one Python int; a group fits at a shift if each of its webs'
points are free in its register. No interference graph is built: with at most 255 registers the
occupancy test is the graph's answer, and faster.

Several orders are tried, and in each a group that found no place is put first and the order tried
again: (strictest and widest first; by start; by size), first
spreading: of the registers that fit, the one whose other uses lie farthest away, since an access
that is still under way makes the next writer of its register wait; then packing tightly.
When no order fits, the caller gets the group that failed in the best attempt and makes room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from regdem.analysis.webs import STACK_POINTER, Group, Webs

_PROMOTIONS = 12
_SPREAD_PROMOTIONS = 2
_FAR = 96
"""Points beyond which a register's last use no longer matters to the next."""


@dataclass(frozen=True)
class Colouring:
    """`register[w]` is the register of web w; `failed` is a group that found no place, or -1."""

    register: tuple[int, ...]
    failed: int
    placed: int


def colour(webs: Webs, limit: int, *, distinct: int = 0) -> Colouring:
    """Colours all webs with registers 0 to `limit` - 1; the stack pointer keeps its number.

    Webs of the registers in the mask `distinct` get registers of their own, shared with no other
    web of a register in `distinct` (a bijection on them). Returns the first order that succeeds,
    or the attempt that placed most.
    """
    span = 1 << (max((w.points.bit_length() for w in webs.webs), default=0) + 1)
    points = [
        w.points | (span if (distinct >> w.register) & 1 and w.whole else 0) for w in webs.webs
    ]

    tuples = _tuples(webs, points)

    def start(group: Group) -> int:
        low = [(points[w] & -points[w]).bit_length() for w in group.webs if points[w]]
        return min(low, default=0)

    def size(group: Group) -> int:
        return sum(points[w].bit_count() for w in group.webs)

    def width(group: Group) -> int:
        return group.high - group.low + 1

    orders: list[Callable[[Group], tuple[int, ...]]] = [
        lambda g: (-g.alignment, -width(g), start(g)),
        lambda g: (-int(width(g) > 1), start(g), -g.alignment),
        lambda g: (-g.alignment, -size(g)),
        lambda g: (start(g), -g.alignment),
        lambda g: (-size(g), -g.alignment),
    ]
    best: Colouring | None = None
    for spread in (True, False):
        for order in orders:
            ranked = sorted(range(len(webs.groups)), key=lambda k: order(webs.groups[k]))
            for _ in range(_SPREAD_PROMOTIONS if spread else _PROMOTIONS):
                attempt = _place(webs, tuples, ranked, limit, spread)
                if attempt.failed < 0:
                    return attempt
                if best is None or attempt.placed > best.placed:
                    best = attempt
                # What found no place goes first next time.
                ranked.remove(attempt.failed)
                ranked.insert(0, attempt.failed)
    assert best is not None
    return best


@dataclass(frozen=True)
class _Tuple:
    """A group as the search needs it: its webs as (register, points, web), points by register."""

    group: Group
    members: list[tuple[int, int, int]]
    merged: list[tuple[int, int]]
    pinned: bool


def _tuples(webs: Webs, points: list[int]) -> list[_Tuple]:
    result: list[_Tuple] = []
    for group in webs.groups:
        members = [(webs.webs[w].register, points[w], w) for w in group.webs]
        merged: dict[int, int] = {}
        for r, p, _ in members:
            merged[r] = merged.get(r, 0) | p
        result.append(_Tuple(group, members, list(merged.items()), STACK_POINTER in merged))
    return result


def _place(
    webs: Webs, tuples: list[_Tuple], ranked: list[int], limit: int, spread: bool
) -> Colouring:
    taken = [0] * limit
    register = [-1] * len(webs.webs)
    pinned = [k for k in ranked if tuples[k].pinned]
    placed = 0
    for k in [*pinned, *(k for k in ranked if not tuples[k].pinned)]:
        shift = _shift(tuples[k], taken, limit, spread)
        if shift is None:
            return Colouring(tuple(register), k, placed)
        for r, p, w in tuples[k].members:
            register[w] = r + shift
            taken[r + shift] |= p
        placed += 1
    return Colouring(tuple(register), -1, placed)


def _shift(entry: _Tuple, taken: list[int], limit: int, spread: bool) -> int | None:
    group, merged = entry.group, entry.merged

    def fits(shift: int) -> bool:
        return all(not taken[r + shift] & p for r, p in merged)

    if entry.pinned:
        return 0 if fits(0) else None
    step = group.alignment
    # Bases congruent to the original one modulo the alignment.
    bases = range(group.low % step, limit - (group.high - group.low), step)
    if not spread:
        if group.high < limit and fits(0):
            return 0
        return next((b - group.low for b in bases if fits(b - group.low)), None)
    best: int | None = None
    best_gap = -1
    for base in bases:
        shift = base - group.low
        gap = _FAR
        # Plain loops: this is the innermost part of every attempt.
        for r, p in merged:
            if taken[r + shift] & p:
                gap = -1
                break
        if gap < 0:
            continue
        for r, p in merged:
            gap = min(gap, _gap(taken[r + shift], p))
        gap += shift == 0
        if gap > best_gap:
            best, best_gap = shift, gap
    return best


def _gap(taken: int, points: int) -> int:
    """Points between this range and the nearest other use of the register, up to `_FAR`."""
    if not taken:
        return _FAR // 2
    low = (points & -points).bit_length() - 1
    high = points.bit_length()
    before = low - (taken & ((1 << low) - 1)).bit_length()
    above = taken >> high
    after = (above & -above).bit_length() - 1 if above else _FAR
    return min(before, after, _FAR)
