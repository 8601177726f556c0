"""Orders near the one that a kernel has: a few instructions moved, the rest left where they stand.

Problem: which of two good orders the machine runs faster, no model here knows: they differ in
which of the warps' requests meet. A clock can tell, if there is something to choose from.

Method: some instructions, more often of segments where warps spend most cycles, are given other
places, near or far; those that they depend on come along, and all else keeps its order as far as
dependences allow. How many is drawn, too, evenly by its logarithm: in a kernel of thousands of
instructions one move can't be told from noise. Stalls, waits and scoreboards are made anew
(`reschedule.py`).

Invariants: those of `reschedule.py`; the same seed gives the same order.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Sequence

from regdem.binary.kernel import Kernel
from regdem.transform.ground import Ground, Piece
from regdem.transform.listing import Graph
from regdem.transform.reschedule import (
    Chosen,
    Plan,
    RescheduleOptions,
    Rescheduling,
    plan_of,
    rescheduled,
)

_PER_LOOP = 10
_MOST_DOUBLINGS = 6
"""The most moves of a step, as a power of two."""
_FAR = (2.0, 8.0, 32.0)
"""Places by which an instruction is moved: standard deviations, one drawn for each."""


class NearPlan(Plan):
    """Orders drawn once with `rng`; where one can't be had, its segment keeps the order it has."""

    def __init__(self, ground: Ground, options: RescheduleOptions) -> None:
        super().__init__(ground, options)
        self._orders: Chosen | None = None
        self.rng = random.Random(0)

    def draw(self) -> Chosen:
        """Segments with their new orders."""
        pieces = [piece for of_block in self.pieces.values() for piece in of_block]
        if not pieces:
            return {}
        count = round(2 ** self.rng.uniform(0, _MOST_DOUBLINGS))
        drawn = Counter(
            self.rng.choices(range(len(pieces)), [self._weight(piece) for piece in pieces], k=count)
        )
        return {
            pieces[k].segment: with_moves(
                pieces[k].graph,
                self.timeline.variable[pieces[k].segment.start :],
                self.rng,
                moves,
            )
            for k, moves in drawn.items()
        }

    def _weight(self, piece: Piece) -> float:
        """Cycles of the segment, those in loops more."""
        segment = piece.segment
        block = self.timeline.program.blocks[segment.block]
        share = (segment.end - segment.start) / (block.end - block.start)
        cycles = self.ground.written[segment.block]
        return share * cycles * _PER_LOOP ** self.depth[segment.block]

    def chosen(self, limit: int) -> Chosen:
        """The orders, drawn at the first call."""
        del limit
        if self._orders is None:
            self._orders = self.draw()
        return self._orders

    def tighten(self, chosen: Chosen, points: Sequence[int]) -> None:
        """Registers ran out: the segments that the group crosses keep their order."""
        held = 0
        for mine in points:
            held |= mine
        for segment in list(chosen):
            window = (1 << (2 * segment.end)) - (1 << (2 * segment.start))
            if held & window:
                del chosen[segment]

    def give_up(self, chosen: Chosen, block: int | None) -> None:
        """A block whose control bits can't be made keeps its order; all do if it isn't known."""
        for segment in [s for s in chosen if s.block == block] or list(chosen):
            del chosen[segment]

    def is_worth(self, block: int, before: int, after: int) -> bool:
        """Every order is: the clock decides."""
        del block, before, after
        return True


def with_moves(graph: Graph, is_slow: Sequence[bool], rng: random.Random, moves: int) -> list[int]:
    """An order of a segment with some places moved. `is_slow[k]`: whether k has a late result.

    Every other move, if it can be, is of an instruction that takes long: what waits for it matters.
    """
    n = len(graph.before)
    slow = [k for k in range(n) if is_slow[k]]
    wish = [float(k) for k in range(n)]
    for _ in range(moves):
        k = rng.choice(slow) if slow and rng.random() < 0.5 else rng.randrange(n)
        there = wish[k] + rng.gauss(0, rng.choice(_FAR))
        waiting = [(k, there)]
        while waiting:  # what it depends on comes along
            moved, place = waiting.pop()
            wish[moved] = place
            waiting += [(p, place - 0.01) for p in graph.before[moved] if wish[p] > place]
    return nearest(graph, wish)


def nearest(graph: Graph, wish: Sequence[float]) -> list[int]:
    """The places of a segment in the order of their wishes, as far as dependences allow."""
    waiting = [len(set(before)) for before in graph.before]
    after: list[list[int]] = [[] for _ in waiting]
    for k, before in enumerate(graph.before):
        for p in set(before):
            after[p].append(k)
    ready = [(wish[k], k) for k, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, k = heapq.heappop(ready)
        order.append(k)
        for later in after[k]:
            waiting[later] -= 1
            if waiting[later] == 0:
                heapq.heappush(ready, (wish[later], later))
    return order


def near_order(kernel: Kernel, registers: int, seed: str) -> Rescheduling:
    """`kernel` in an order near the one it has, within `registers`; `seed` says which.

    Raises `UsageError` (`nothing_to_do`) where none of the moves can be made, `UnsupportedError`
    where the kernel can't be rewritten.
    """
    plan = plan_of(kernel, RescheduleOptions(registers), NearPlan)
    assert isinstance(plan, NearPlan)
    plan.rng = random.Random(seed)
    return rescheduled(kernel, plan)


__all__ = ["NearPlan", "near_order", "nearest", "with_moves"]
