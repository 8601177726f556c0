"""What is known of a kernel's program whatever order is chosen, and within whatever registers.

Problem: a kernel is ordered anew for several limits of registers, each in many ways. Dependences,
values and times of the original order are the same for all, and far below the limit most ways lead
to the same order.

Method: `Ground` is made once a program and kept with it (`ground_of`). It remembers what orders
cost, the start of a segment behind an order of what stands before it, and the words of whole
choices.

Invariants: nothing here depends on the options of a new order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import Webs, webs
from regdem.isa.encode import Word
from regdem.program.edit import return_addresses
from regdem.program.loops import loop_depth
from regdem.program.program import Program
from regdem.transform.listing import (
    Graph,
    Task,
    Values,
    dependences,
    hoisted,
    peak_of,
    values_of,
)
from regdem.transform.pace import block_cycles
from regdem.transform.predicates import spread
from regdem.transform.scoreboards import counted_scoreboards
from regdem.transform.segments import Segment, segments
from regdem.transform.timeline import Timeline


@dataclass(frozen=True)
class Piece:
    """A segment with what is needed to order it."""

    segment: Segment
    graph: Graph
    values: Values
    multi_pass: list[bool]
    peak: int


@dataclass
class Start:
    """A segment behind one order of what stands before it in its block."""

    piece: Piece
    task: Task
    paths: list[int]
    _hoisted: dict[int, tuple[list[int], int]] = field(
        default_factory=dict[int, tuple[list[int], int]]
    )

    def hoisted(self, reach: int) -> tuple[list[int], int]:
        """`listing.hoisted`, and the most registers in use along that order."""
        known = self._hoisted.get(reach)
        if known is None:
            places = hoisted(self.task, reach)
            peak = peak_of(self.piece.values, self.piece.multi_pass, places)
            known = self._hoisted[reach] = places, peak
        return known


class Ground:
    """See the module's text. `slots`: places of annotated accesses (`listing.dependences`).

    `costs[b]`: cycles of each block as it is; `written`: cycles with waits and bank conflicts, too.
    `words`: of whole choices of orders and registers, by whoever makes them.
    """

    def __init__(self, timeline: Timeline, found: Webs, slots: Collection[int]) -> None:
        self.timeline = timeline
        self.webs = found
        program = timeline.program
        self.depth = loop_depth(program)
        self.costs = [timeline.cost(b.index, range(b.start, b.end)) for b in program.blocks]
        self.written = block_cycles(program, timeline.late_cycles)
        self.words: dict[object, tuple[list[Word], list[int]]] = {}
        self._at = _live_counts(found, len(program))
        self._cost: dict[tuple[int, ...], int] = {}
        self._starts: dict[tuple[Segment, tuple[int, ...]], Start] = {}
        self.pieces: dict[int, list[Piece]] = {}
        counted = counted_scoreboards(program)
        for segment in segments(program, keep=return_addresses(program)):
            if not _touches(program, segment, counted):
                self.pieces.setdefault(segment.block, []).append(self._piece(segment, slots))

    def _piece(self, segment: Segment, slots: Collection[int]) -> Piece:
        timeline = self.timeline
        values = values_of(timeline, self.webs, segment, int(self._at[2 * segment.start]))
        multi_pass = timeline.multi_pass[segment.start : segment.end]
        return Piece(
            segment, dependences(timeline, segment, slots), values, multi_pass,
            peak_of(values, multi_pass, range(segment.end - segment.start)),
        )  # fmt: skip

    def cost(self, block: int, order: Sequence[int]) -> int:
        """`Timeline.cost`, remembered."""
        key = tuple(order)
        known = self._cost.get(key)
        if known is None:
            known = self._cost[key] = self.timeline.cost(block, order)
        return known

    def start(self, piece: Piece, prefix: Sequence[int]) -> Start:
        """The segment behind `prefix`, an order of its block's instructions before it."""
        key = piece.segment, tuple(prefix)
        known = self._starts.get(key)
        if known is None:
            task = self._task(piece, prefix)
            known = self._starts[key] = Start(piece, task, task.paths())
        return known

    def _task(self, piece: Piece, prefix: Sequence[int]) -> Task:
        timeline, segment = self.timeline, piece.segment
        clock = timeline.clock(segment.block, late=True)
        for i in prefix:
            clock.issue(i)
        inside = range(segment.start, segment.end)
        return Task(
            piece.graph, piece.values, piece.multi_pass,
            [clock.ready(i) for i in inside],
            [self._tail(segment, i) for i in inside],
            [timeline.pipe[i] for i in inside],
            clock.free(), clock.now,
        )  # fmt: skip

    def _tail(self, segment: Segment, i: int) -> int:
        """Cycles that must follow instruction i for the next reader of its late results."""
        timeline = self.timeline
        if not timeline.variable[i]:
            return 0
        block = timeline.program.blocks[segment.block]
        rest = timeline.length[segment.block] - (
            timeline.since[segment.end] if segment.end < block.end else
            timeline.length[segment.block]
        )  # fmt: skip
        uses = timeline.next_use[segment.block]
        away = [rest + uses[key] for key in timeline.writes[i] if key in uses]
        return max(0, timeline.late_cycles[i] - min(away)) if away else 0


def ground_of(program: Program, slots: Collection[int] = ()) -> Ground:
    """The ground of a program, with its predicates spread; kept with it."""
    key = "ground", frozenset(slots)
    known: Ground | None = program.memo.get(key)
    if known is None:
        live = liveness(program, follow_guards=True)
        apart = spread(program, live, segments(program, keep=return_addresses(program)))
        found = webs(apart, live)
        known = program.memo[key] = Ground(Timeline(apart, found), found, slots)
    return known


def _live_counts(found: Webs, instructions: int) -> NDArray[np.int32]:
    """(2 n + 2,) webs that hold a register at each point."""
    n = 2 * instructions + 2
    total = np.zeros(n, dtype=np.int32)
    for web in found.webs:
        if not web.points:
            continue
        data = np.frombuffer(web.points.to_bytes((n + 7) // 8, "little"), dtype=np.uint8)
        total += np.unpackbits(data, bitorder="little")[:n]
    return total


def _touches(program: Program, segment: Segment, boards: int) -> bool:
    """Whether a segment sets or waits for one of the scoreboards."""
    if not boards:
        return False
    code = program.code
    inside = slice(segment.start, segment.end)
    return any(
        wait & boards or (1 << write) & boards or (1 << read) & boards
        for wait, write, read in zip(
            code.wait_mask[inside].tolist(),
            code.write_scoreboard[inside].tolist(),
            code.read_scoreboard[inside].tolist(),
            strict=True,
        )
    )


__all__ = ["Ground", "Piece", "Start", "ground_of"]
