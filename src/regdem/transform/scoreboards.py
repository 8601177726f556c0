"""Gives the six scoreboards to the events that are waited for.

A scoreboard is a counter and a wait is for zero, so two events on one scoreboard make each other's
waiters wait. Block by block, in order of issue and with estimated times, each event takes the
scoreboard on which this costs the fewest cycles; the original one on a tie. Waits are then the
scoreboards of the events that an instruction needs and that may still be outstanding there.

Events on a scoreboard that a DEPBAR counts down on keep it, and it takes no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regdem.analysis.bits import members
from regdem.errors import UnsupportedError
from regdem.isa.control import SCOREBOARDS
from regdem.program.program import Program

_AFTER_BLOCK_CYCLES = 200
"""Assumed distance to a wait that lies in another block."""


@dataclass(frozen=True)
class Event:
    """Something that completes late: results arrive (`arrival`) or sources have been read.

    `cycles`: typical time it takes. `scoreboard`: the original one, 7 if none. `pinned`: it must
    keep that one.
    """

    index: int
    instruction: int
    arrival: bool
    cycles: int
    scoreboard: int
    pinned: bool


def assign(
    program: Program,
    successors: Sequence[Sequence[int]],
    events: Sequence[Event],
    wanted: Sequence[bool],
    needs: Sequence[int],
    done_with: Sequence[int],
    reserved: int,
    stalls: Sequence[int],
) -> tuple[dict[int, int], list[int]]:
    """Scoreboards by event, and the wait mask of each instruction.

    `needs[i]`: events (bits) instruction i waits for; `done_with[e]`: events over when e is;
    `wanted[e]`: whether e may be waited for at all; `reserved`: counted scoreboards (mask).
    """
    usable = [k for k in range(SCOREBOARDS) if not (reserved >> k) & 1]
    if not usable:
        raise UnsupportedError(
            "every scoreboard is used by counted waits", code="no_scoreboard", kernel=program.name
        )
    ever_needed = 0
    for mask in needs:
        ever_needed |= mask
    by_instruction: dict[int, list[int]] = {}
    for event in events:
        if wanted[event.index] and (event.pinned or (ever_needed >> event.index) & 1):
            by_instruction.setdefault(event.instruction, []).append(event.index)
    boards: dict[int, int] = {}
    for block in program.blocks:
        _assign_block(
            range(block.start, block.end), events, by_instruction, needs, done_with, usable,
            stalls, boards,
        )  # fmt: skip
    return boards, _waits(program, successors, by_instruction, needs, done_with, boards)


def _assign_block(
    instructions: range,
    events: Sequence[Event],
    by_instruction: dict[int, list[int]],
    needs: Sequence[int],
    done_with: Sequence[int],
    usable: Sequence[int],
    stalls: Sequence[int],
    boards: dict[int, int],
) -> None:
    """Assigns the events that begin in one block, by estimated times within it."""
    first_need: dict[int, int] = {}
    for i in reversed(instructions):
        for e in members(needs[i]):
            first_need[e] = i
    clock = dict.fromkeys(instructions, 0)
    now = 0
    for i in instructions:
        clock[i] = now
        now += max(1, stalls[i])
    end = now + _AFTER_BLOCK_CYCLES
    delay = 0  # waiting so far, on top of the stalls
    pending: list[list[tuple[int, float]]] = [[] for _ in range(SCOREBOARDS)]
    for i in instructions:
        time = clock[i] + delay
        over = 0
        for e in members(needs[i]):
            over |= done_with[e] | (1 << e)
        if over:
            late = max(
                (ready for queue in pending for e, ready in queue if (over >> e) & 1), default=0.0
            )
            if late > time:
                delay += int(late - time)
                time = clock[i] + delay
            pending = [[q for q in queue if not (over >> q[0]) & 1] for queue in pending]
        for e in by_instruction.get(i, ()):
            event = events[e]
            ready = time + event.cycles

            def use(other: int, here: int = i, waited: int = delay) -> float:
                where = first_need.get(other)
                if where is None or where <= here:
                    return end + waited
                return clock[where] + waited

            mine = max(use(e), ready)
            costs: list[tuple[float, int, int]] = []
            for k in usable:
                cost = 0.0
                for q, other_ready in pending[k]:
                    theirs = max(use(q), other_ready)
                    if use(e) <= use(q):
                        cost += max(0.0, other_ready - mine)
                    if use(q) <= use(e):
                        cost += max(0.0, ready - theirs)
                costs.append((cost, int(k != event.scoreboard) + len(pending[k]), k))
            board = event.scoreboard if event.pinned else min(costs)[2]
            boards[e] = board
            pending[board].append((e, ready))


def _waits(
    program: Program,
    successors: Sequence[Sequence[int]],
    by_instruction: dict[int, list[int]],
    needs: Sequence[int],
    done_with: Sequence[int],
    boards: dict[int, int],
) -> list[int]:
    """Wait masks: the scoreboards of needed events that may still be outstanding."""
    on_board = [0] * SCOREBOARDS
    for e, k in boards.items():
        on_board[k] |= 1 << e
    blocks = program.blocks
    states: list[int | None] = [None] * len(blocks)
    for f in program.functions:
        states[int(program.block_of[f.start])] = 0
    work = [b for b, s in enumerate(states) if s is not None]
    waits = [0] * len(needs)
    while work:
        b = work.pop()
        pending = states[b] or 0
        for i in range(blocks[b].start, blocks[b].end):
            late = needs[i] & pending
            for k in range(SCOREBOARDS):
                if late & on_board[k]:
                    waits[i] |= 1 << k
            for k in range(SCOREBOARDS):
                if (waits[i] >> k) & 1:
                    over = pending & on_board[k]
                    for e in members(over):
                        pending &= ~(done_with[e] | (1 << e))
            for e in by_instruction.get(i, ()):
                pending |= 1 << e
        for s in successors[b]:
            old = states[s]
            new = pending if old is None else old | pending
            if new != old:
                states[s] = new
                work.append(s)
    return waits
