"""Which values leave their registers, and through which of their idle stretches.

The problem: at some instructions more values are live than there are registers. The idle stretches
(`transform/gaps.py`) relieve some of these instructions each, at a cost; slots are limited.

Method:

1. Greedy choice: the gap that relieves most over-full instructions per loop-weighted access, until
   no instruction has more live values than allowed (the ratio of Chaitin's spill metric). Scores
   fall as others are taken, so that a heap of bounds finds the best; a value's other gaps get
   cheaper when its stores are paid for, and are scored again.
2. What later choices made superfluous is taken back, dearest first.
3. A value that was to be computed again, from an input that leaves too, is stored instead.

Invariants: with what is chosen, no instruction has more live values than the target, and no live
range leaves in two ways. Before that, `out_of_reach` tells cheaply where no choice can do.

Not claimed: a least cost. The choice is greedy, and the caller makes several.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.bits import FILE_MASK
from regdem.analysis.liveness import Liveness
from regdem.isa.decoded import RegisterFile
from regdem.transform.gaps import Gap
from regdem.transform.values import Value


@dataclass(frozen=True)
class Choice:
    """A value that leaves its register, and at which instructions (n,)."""

    value: Value
    away: NDArray[np.bool_]


def out_of_reach(
    values: Sequence[Value],
    gaps: Sequence[Gap],
    pressure: NDArray[np.int32],
    target: int,
    most_slots: int,
) -> bool:
    """Whether no choice can do: too few values are idle at some instruction, or fewer words fit.

    Values that leave at one instruction are live together, so each needs slots of its own, unless
    it can be computed again.
    """
    excess = np.maximum(pressure.astype(np.int32) - target, 0)
    if not excess.any():
        return False
    # The gaps of one value never overlap, those of the same value stored early may.
    first = [value.webs[0].index for value in values]
    number_of: dict[int, int] = {}
    mixed: dict[int, list[Gap]] = {}
    for number in {gap.value: None for gap in gaps}:
        if number_of.setdefault(first[number], number) != number:
            mixed[first[number]] = []
    apart: tuple[list[Gap], list[Gap]] = [], []
    for gap in gaps:
        alike = mixed.get(first[gap.value]) if mixed else None
        if alike is None:
            apart[values[gap.value].takes_slot].append(gap)
        else:
            alike.append(gap)
    free = _words_away(apart[0], values, len(excess))
    reach = free + _words_away(apart[1], values, len(excess))
    for alike in mixed.values():
        low = min(int(gap.places[0]) for gap in alike)
        high = max(int(gap.places[-1]) for gap in alike) + 1
        away = np.zeros(high - low, dtype=np.bool_)
        for gap in alike:
            away[gap.places - low] = True
        words = values[alike[-1].value].words
        reach[low:high] += words * away
        if any(not values[gap.value].takes_slot for gap in alike):
            free[low:high] += words * away
    return bool((excess > reach).any() or (excess - free > most_slots).any())


def _words_away(
    gaps: Sequence[Gap], values: Sequence[Value], instructions: int
) -> NDArray[np.int64]:
    """(n,) how many words leave at each instruction through all `gaps`."""
    if not gaps:
        return np.zeros(instructions, dtype=np.int64)
    words = np.repeat([values[gap.value].words for gap in gaps], [len(gap.places) for gap in gaps])
    count = np.bincount(np.concatenate([gap.places for gap in gaps]), words, instructions)
    return count.astype(np.int64)


def choose_gaps(
    values: Sequence[Value],
    gaps: Sequence[Gap],
    pressure: NDArray[np.int32],
    target: int,
    most_slots: int,
) -> list[Choice] | None:
    """Greedy choice until no instruction has more than `target` live values; None if impossible."""
    current = pressure.astype(np.int32).copy()
    excess = np.maximum(current - target, 0)
    if not excess.any():
        return []
    by_value: dict[int, list[int]] = {}
    for k, gap in enumerate(gaps):
        by_value.setdefault(gap.value, []).append(k)
    words = [value.words for value in values]
    needs = [value.words if value.takes_slot else 0 for value in values]
    web = [value.webs[0].index for value in values]
    owner = dict.fromkeys(web, -1)
    started: set[int] = set()
    taken: list[int] = []
    is_taken = [False] * len(gaps)
    slots = 0
    where, scores = _first_scores(gaps, excess, words)
    count_nonzero, greatest = np.count_nonzero, np.maximum.reduce

    def score(k: int) -> float:
        over = excess[where[k]]
        freed = int(count_nonzero(over))  # what is over, at most the words of the value
        if not freed:
            return 0.0
        gap = gaps[k]
        for least in range(1, words[gap.value]):
            freed += int(count_nonzero(over > least))
        cost = gap.load_cost + (0.0 if gap.value in started else gap.store_cost)
        return freed * (1.0 + int(greatest(over))) / (cost + 0.5)

    heap = [(-value, k) for k, value in enumerate(scores) if value > 0]
    heapq.heapify(heap)
    while excess.any():
        while heap:
            known, k = heapq.heappop(heap)
            number = gaps[k].value
            if is_taken[k] or owner[web[number]] not in (-1, number):
                continue
            if slots + (0 if number in started else needs[number]) > most_slots:
                continue
            now = score(k)
            if now >= -known:
                break
            if now > 0:
                heapq.heappush(heap, (-now, k))
        else:
            return None
        number = gaps[k].value
        is_taken[k] = True
        taken.append(k)
        owner[web[number]] = number
        current[where[k]] -= words[number]
        excess[where[k]] = np.maximum(current[where[k]] - target, 0)
        if number not in started:
            started.add(number)
            slots += needs[number]
            for other in by_value[number]:
                if not is_taken[other] and (again := score(other)) > 0:
                    heapq.heappush(heap, (-again, other))
    return _kept(values, gaps, taken, current, target)


def _first_scores(
    gaps: Sequence[Gap], excess: NDArray[np.int32], words: Sequence[int]
) -> tuple[list[NDArray[np.intp] | slice], list[float]]:
    """Where each gap is, as a slice if its instructions follow each other; and how much it
    relieves for what it costs while nothing is chosen (`choose_gaps`)."""
    if not gaps:
        return [], []
    counts = np.array([len(gap.places) for gap in gaps])
    ends = np.cumsum(counts)
    starts = ends - counts
    places = np.concatenate([gap.places for gap in gaps])
    over = excess[places]
    most = np.maximum.reduceat(over, starts)
    freed = np.add.reduceat(
        np.minimum(over, np.repeat([words[gap.value] for gap in gaps], counts)), starts
    )
    cost = np.array([gap.load_cost + gap.store_cost for gap in gaps])
    scores: list[float] = (freed * (1.0 + most) / (cost + 0.5)).tolist()
    jumps = np.concatenate(([0], np.cumsum(np.diff(places) != 1)))
    is_run: list[bool] = (jumps[ends - 1] == jumps[starts]).tolist()
    where: list[NDArray[np.intp] | slice] = [
        slice(int(gap.places[0]), int(gap.places[0]) + len(gap.places)) if run else gap.places
        for gap, run in zip(gaps, is_run, strict=True)
    ]
    return where, scores


def _kept(
    values: Sequence[Value],
    gaps: Sequence[Gap],
    taken: Sequence[int],
    current: NDArray[np.int32],
    target: int,
) -> list[Choice]:
    """The choice without the gaps that the others made superfluous."""
    away: dict[int, NDArray[np.bool_]] = {}
    order = sorted(taken, key=lambda k: -(gaps[k].load_cost + gaps[k].store_cost))
    for k in order:
        gap = gaps[k]
        words = values[gap.value].words
        if (current[gap.places] + words <= target).all():
            current[gap.places] += words
            continue
        mask = away.setdefault(gap.value, np.zeros(len(current), dtype=np.bool_))
        mask[gap.places] = True
    return [Choice(values[number], mask) for number, mask in sorted(away.items())]


def settled(live: Liveness, chosen: Sequence[Choice]) -> list[Choice]:
    """The choice with stores instead of recomputation where an input leaves its register, too."""
    general = FILE_MASK[RegisterFile.GPR]
    gone = [
        (sum(1 << web.register for web in choice.value.webs), choice.value.points)
        for choice in chosen
    ]
    result: list[Choice] = []
    for k, choice in enumerate(chosen):
        value = choice.value
        if value.definition is not None:
            inputs = live.uses[value.definition] & general
            if any(
                inputs & mask and _meet(points, value.points)
                for j, (mask, points) in enumerate(gone)
                if j != k
            ):
                choice = Choice(replace(value, definition=None), choice.away)
        result.append(choice)
    return result


def _meet(first: int, second: int) -> bool:
    """Whether two live ranges hold registers at one instruction, at whichever of its points."""
    both = (first | first >> 1) & (second | second >> 1)
    even = int.from_bytes(b"\x55" * (both.bit_length() // 8 + 1), "little")
    return bool(both & even)
