"""How long one warp takes through a program alone: issue, stalls and waits, block by block.

The control bits say everything but the latencies: after an instruction the warp may not issue for
its stall count; before one it waits for the scoreboards of its mask. Each block is walked in order
with the times at which scoreboards will be zero; what is still outstanding at its end is carried
into its successors, from the heaviest predecessor (two passes settle loops). The cycles lost are
charged to what was waited for.

Asynchronous copies (LDGSTS) set no scoreboard of their own: LDGDEPBAR sets one that is done when
all copies before it are, and DEPBAR.LE waits until at most so many of those are outstanding, the
last of them.

Not claimed: what bulk and tensor copies are waited for (mbarriers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from regdem.isa.control import SCOREBOARDS
from regdem.program.program import Program

_PASSES = 2
_MOST_OUTSTANDING = 16
"""Uses of a scoreboard that are told apart."""


Place = tuple[int, int]


@dataclass
class BlockWalk:
    """Cycles of one execution of a block: all, and those lost by cause.

    `cuts`: cycles at which its barriers were passed. `awaited`: cycles lost waiting for global
    memory, by how many places in memory were under way.
    """

    instructions: int = 0
    cycles: float = 0.0
    lost: dict[str, float] = field(default_factory=dict[str, float])
    cuts: list[float] = field(default_factory=list[float])
    awaited: dict[int, float] = field(default_factory=dict[int, float])


@dataclass(frozen=True)
class Marks:
    """Instructions that need a word of their own.

    `far`: loads whose latency is that of global memory, with a name for the place they load from
    (loads with the same name are neighbours). `barriers`: of a block's threads. `copies`:
    asynchronous ones; `commits`: which set a scoreboard for all copies before. `counted`: by place
    of a DEPBAR the scoreboard, how many uses may stay outstanding, and the mask of scoreboards that
    must be zero besides.
    """

    far: Mapping[int, Place] = field(default_factory=dict[int, "Place"])
    barriers: Set[int] = frozenset()
    copies: Set[int] = frozenset()
    commits: Set[int] = frozenset()
    counted: Mapping[int, tuple[int, int, int]] = field(
        default_factory=dict[int, tuple[int, int, int]]
    )


@dataclass
class _Board:
    """A scoreboard: when it is zero and why not before, when each use ends, what is loaded."""

    ready: float = 0.0
    cause: str = ""
    uses: list[float] = field(default_factory=list[float])
    places: frozenset[Place] = frozenset()

    def set(self, ready: float, cause: str, place: Place | None = None) -> None:
        """One more use."""
        if ready > self.ready:
            self.ready, self.cause = ready, cause
        if len(self.uses) == _MOST_OUTSTANDING:
            del self.uses[0]
        self.uses.append(ready)
        if place is not None:
            self.places |= {place}

    def later(self, now: float) -> _Board:
        """What is left of it when `now` becomes the start of time."""
        if self.ready <= now:
            return _Board()
        left = [use - now for use in self.uses if use > now]
        return _Board(self.ready - now, self.cause, left, self.places)


@dataclass
class _State:
    """What is outstanding at a point: scoreboards, and until when copies are."""

    boards: list[_Board]
    copied: float = 0.0

    def later(self, now: float) -> _State:
        """The same when `now` becomes the start of time."""
        return _State([b.later(now) for b in self.boards], max(0.0, self.copied - now))


def walk(
    program: Program,
    weights: Sequence[float],
    latency: Mapping[int, tuple[float, str]],
    read_cycles: float,
    marks: Marks | None = None,
) -> list[BlockWalk]:
    """Walks every block. `latency[i]`: cycles and cause of a variable-latency instruction."""
    walker = _Walker(program, latency, read_cycles, marks or Marks())
    out: list[tuple[_State, float] | None] = [None] * len(program.blocks)
    result = [BlockWalk() for _ in program.blocks]
    for _ in range(_PASSES):
        for block in program.blocks:
            known = [p for p in block.predecessors if out[p] is not None]
            before = out[max(known, key=lambda p: (weights[p], p))] if known else None
            if before is None:
                before = _State([_Board() for _ in range(SCOREBOARDS)]), 0.0
            state = before[0].later(before[1])
            done = walker.through(block.start, block.end, state)
            result[block.index] = done
            out[block.index] = state, done.cycles
    return result


class _Walker:
    def __init__(
        self,
        program: Program,
        latency: Mapping[int, tuple[float, str]],
        read_cycles: float,
        marks: Marks,
    ) -> None:
        code = program.code
        self.stall: list[int] = code.stall.tolist()
        self.waits: list[int] = code.wait_mask.tolist()
        self.write: list[int] = code.write_scoreboard.tolist()
        self.read: list[int] = code.read_scoreboard.tolist()
        self.latency = latency
        self.read_cycles = read_cycles
        self.marks = marks

    def through(self, start: int, end: int, state: _State) -> BlockWalk:
        """One block; `state` becomes what is outstanding behind it, on the block's clock."""
        marks, latency = self.marks, self.latency
        now = 0.0
        done = BlockWalk(end - start)
        for i in range(start, end):
            mask = self.waits[i]
            counted = marks.counted.get(i)
            if mask or counted:
                now = self._wait(now, mask, counted, state, done)
            if i in latency:
                cycles, cause = latency[i]
                ready = now + cycles
                if i in marks.copies:
                    state.copied = max(state.copied, ready)
                elif i in marks.commits and state.copied > now:
                    ready, cause = state.copied, "async_copy"
                if self.write[i] < SCOREBOARDS:
                    state.boards[self.write[i]].set(ready, cause, marks.far.get(i))
                if self.read[i] < SCOREBOARDS:
                    read = now + self.read_cycles
                    state.boards[self.read[i]].set(read, "operand_read")
            step = max(1, self.stall[i])
            if step > 1:
                done.lost["fixed_latency"] = done.lost.get("fixed_latency", 0.0) + step - 1
            now += step
            if i in marks.barriers:
                done.cuts.append(now)
        done.cycles = now
        return done

    def _wait(
        self,
        now: float,
        mask: int,
        counted: tuple[int, int, int] | None,
        state: _State,
        done: BlockWalk,
    ) -> float:
        """When the warp goes on."""
        last, cause, is_far = now, "", False
        if counted:
            board, most, others = counted
            mask |= others
            uses = state.boards[board].uses
            if len(uses) > most and uses[-1 - most] > last:
                last, cause = uses[-1 - most], state.boards[board].cause
        for k in range(SCOREBOARDS):
            if mask >> k & 1:
                board = state.boards[k]
                if board.ready > last:
                    last, cause = board.ready, board.cause
                    is_far = bool(board.places)
        if cause:
            done.lost[cause] = done.lost.get(cause, 0.0) + last - now
        if is_far:
            under_way = frozenset[Place]().union(
                *(board.places for board in state.boards if board.ready > now)
            )
            count = len(under_way)
            done.awaited[count] = done.awaited.get(count, 0.0) + last - now
        for k in range(SCOREBOARDS):
            if mask >> k & 1:
                state.boards[k].places = frozenset()
        return last


__all__ = ["BlockWalk", "Marks", "Place", "walk"]
