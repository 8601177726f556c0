"""Gives the six scoreboards to the events that are waited for.

A scoreboard is a counter and a wait is for zero, so two events on one scoreboard make each other's
waiters wait. Block by block, in order of issue and with estimated times, each event takes the
scoreboard on which this costs the fewest cycles; the original one on a tie. Waits are then the
scoreboards of the events that an instruction needs and that may still be outstanding there.

Events come too fast for that where a dozen loads from memory are issued in a row: they would take
all six, and every short event behind them (a slot's load, the sources of a load being read) would
share with one and wait for it. So each block is tried with fewer scoreboards for long events, the
others kept for short ones or not, and the assignment is taken under which a walk through the block,
with all false waits, is shortest. A second pass knows what is outstanding when a block begins: no
load is put on a scoreboard that is soon waited for because of an earlier block. In code ordered
anew, the false waits that cost most are then looked at one by one: another scoreboard for the event
that is waited for, or for the one that is meant, where the walk gets shorter.

Events on a scoreboard that a DEPBAR counts down on keep it, and it takes no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regdem.analysis.bits import members
from regdem.analysis.forms import forms_of
from regdem.errors import UnsupportedError
from regdem.isa.control import SCOREBOARDS
from regdem.program.program import Program
from regdem.transform.latencies import LONG_CYCLES

_AFTER_BLOCK_CYCLES = 200
"""Assumed distance to a wait that is not known."""
_FAR_CYCLES = 2000
"""A wait that is farther away than this is of no account."""
_OPENING_CYCLES = 25.0
"""What it costs that a long event takes a free scoreboard beyond its block, which others lack."""
_FEWEST_FOR_LONG = 2
_PASSES = 3
_MOST_CULPRITS = 8
_LEAST_GAIN_CYCLES = 2.0


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


def counted_scoreboards(program: Program) -> int:
    """Scoreboards that a DEPBAR counts down on (bits 44 to 46), as a mask."""
    code = program.code
    mask = 0
    for i, form in enumerate(forms_of(code)):
        if form.name == "DEPBAR":
            mask |= 1 << ((int(code.words[i, 0]) >> 44) & 7)
    return mask


def assign(
    program: Program,
    successors: Sequence[Sequence[int]],
    events: Sequence[Event],
    wanted: Sequence[bool],
    needs: Sequence[int],
    done_with: Sequence[int],
    reserved: int,
    stalls: Sequence[int],
    tries: Sequence[int] = (),
) -> tuple[dict[int, int], list[int]]:
    """Scoreboards by event, and the wait mask of each instruction.

    `needs[i]`: events (bits) instruction i waits for; `done_with[e]`: events over when e is;
    `wanted[e]`: whether e may be waited for at all; `reserved`: counted scoreboards (mask);
    `tries[b]`: walks through block b that may be spent on false waits (none, if it is empty).
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
    over = [_all_over(mask, done_with) for mask in needs]
    later = _later_needs(program, successors, needs, stalls)
    entering = [0] * len(program.blocks)
    tasks = [
        _Block(
            range(block.start, block.end), events, by_instruction, needs, over, done_with, stalls,
            block.index in successors[block.index],
            later[block.index],
        )
        for block in program.blocks
    ]  # fmt: skip
    known: list[dict[int, int] | None] = [None] * len(tasks)
    waits: list[int] = []
    for _ in range(_PASSES):
        is_new = False
        for block, task in zip(program.blocks, tasks, strict=True):
            foreign = {
                e: boards[e]
                for e in members(entering[block.index])
                if events[e].instruction not in task.instructions
            }
            if known[block.index] != foreign:
                known[block.index] = foreign
                is_new = True
                most = tries[block.index] if tries else 0
                boards.update(task.assigned(foreign, usable, most))
        if not is_new:
            break
        waits, entering = _waits(program, successors, by_instruction, needs, done_with, boards)
    return boards, waits


def _all_over(needed: int, done_with: Sequence[int]) -> int:
    """The events that are over once the `needed` ones are."""
    result = needed
    for e in members(needed):
        result |= done_with[e]
    return result


def _shares(usable: Sequence[int]) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Scoreboards for long events and for short ones, to be tried."""
    yield usable, usable
    for count in range(len(usable) - 1, min(_FEWEST_FOR_LONG, len(usable)) - 1, -1):
        yield usable[:count], usable
        yield usable[:count], usable[count:]


class _Block:
    """What the assignment for one block rests on, whatever is under way when it begins.

    `over[i]`: events that are over once what instruction i needs is. `repeats`: the block is a loop
    by itself. `later`: cycles from its end to the next need of an event, where there is one.
    """

    def __init__(
        self,
        instructions: range,
        events: Sequence[Event],
        by_instruction: dict[int, list[int]],
        needs: Sequence[int],
        over: Sequence[int],
        done_with: Sequence[int],
        stalls: Sequence[int],
        repeats: bool,
        later: dict[int, int],
    ) -> None:
        self.instructions = instructions
        self._events = events
        self._done_with = done_with
        self._repeats = repeats
        self._later = later
        self._foreign: dict[int, int] = {}
        """Events begun elsewhere that may be outstanding at its start, with their scoreboards;
        short ones are taken to be about to end, long ones to have just begun."""
        # The instructions that need something, or at which an event begins; the times between.
        self._steps: list[tuple[int, int, int, int, Sequence[int]]] = []
        self._first_need: dict[int, int] = {}
        self._clock: dict[int, int] = {}
        now = 0
        for i in instructions:
            self._clock[i] = now
            begun = by_instruction.get(i, ())
            if needs[i] or begun:
                self._steps.append((i, now, needs[i], over[i], begun))
                for e in members(needs[i]):
                    self._first_need.setdefault(e, i)
            now += max(1, stalls[i])
        self._length = now
        self._begun = [e for _, _, _, _, begun in self._steps for e in begun]

    def assigned(
        self, foreign: dict[int, int], usable: Sequence[int], tries: int = 0
    ) -> dict[int, int]:
        """Scoreboards of the events that begin in the block; `tries`: see `assign`.

        `foreign`: see there.
        """
        self._foreign = foreign
        if not self._begun:
            return {}
        is_long = [self._events[e].cycles >= LONG_CYCLES for e in self._begun]
        ways = [self._tried(usable, usable, keep=True), self._tried(usable, usable)]
        if sum(is_long) >= 2 and not all(is_long):
            ways += [self._tried(*share) for share in _shares(usable)]
        best = min(ways, key=self._cycles)
        return self._improved(best, usable, tries) if tries else best

    def _improved(
        self, boards: dict[int, int], usable: Sequence[int], tries: int
    ) -> dict[int, int]:
        """Fewer false waits, the costliest first."""
        cycles = self._cycles(boards)
        while tries > 0:
            false: dict[int, float] = {}
            self._cycles(boards, false)
            culprits = sorted(false, key=lambda e: -false[e])[:_MOST_CULPRITS]
            better = None
            for e in culprits:
                if e not in boards or self._events[e].pinned:
                    continue
                for k in usable:
                    if k == boards[e]:
                        continue
                    tries -= 1
                    other = {**boards, e: k}
                    there = self._cycles(other)
                    if there < cycles - _LEAST_GAIN_CYCLES:
                        better, cycles = other, there
                if better is not None:
                    break
            if better is None:
                break
            boards = better
        return boards

    def _tried(
        self, for_long: Sequence[int], for_short: Sequence[int], *, keep: bool = False
    ) -> dict[int, int]:
        """By estimated times; long events take one of `for_long`, others one of `for_short`.

        With `keep`, events that had a scoreboard keep it.
        """
        events, first_need, later = self._events, self._first_need, self._later
        clock, end = self._clock, self._length
        boards: dict[int, int] = {}
        delay = 0  # waiting so far, on top of the stalls

        def use(e: int, here: int) -> int:
            """When it is needed, without what is waited for until then."""
            where = first_need.get(e)
            if where is None or where <= here:
                return end + later.get(e, _AFTER_BLOCK_CYCLES)
            return clock[where]

        # By scoreboard: event, when it will be over, when it is needed.
        pending: list[list[tuple[int, float, int]]] = [[] for _ in range(SCOREBOARDS)]
        for e, k in self._foreign.items():
            still = self._still(e)
            if e in first_need or still:
                pending[k].append((e, still, use(e, -1)))
        for i, now, _, over, begun in self._steps:
            time = now + delay
            if over:
                late: float = time
                for k, queue in enumerate(pending):
                    if not queue:
                        continue
                    left = [q for q in queue if not over >> q[0] & 1]
                    if len(left) == len(queue):
                        continue
                    for e, ready, _ in queue:
                        if ready > late and over >> e & 1:
                            late = ready
                    pending[k] = left
                if late > time:
                    delay += int(late - time)
                    time = now + delay
            for e in begun:
                event = events[e]
                cycles = event.cycles
                ready = time + cycles
                used = use(e, i)
                allowed = for_long if cycles >= LONG_CYCLES else for_short
                if event.pinned or (keep and event.scoreboard in for_long):
                    board = event.scoreboard
                else:
                    opening = 0.0
                    if cycles >= LONG_CYCLES and first_need.get(e, -1) <= i:
                        opening = _OPENING_CYCLES
                    board = self._cheapest(
                        allowed, pending, used, ready, delay, opening, event.scoreboard
                    )
                boards[e] = board
                pending[board].append((e, ready, used))
        return boards

    @staticmethod
    def _cheapest(
        allowed: Sequence[int],
        pending: Sequence[Sequence[tuple[int, float, int]]],
        used: int,
        ready: int,
        delay: int,
        opening: float,
        original: int,
    ) -> int:
        """The scoreboard on which an event costs least; `opening`: what a free one costs."""
        mine = max(used + delay, ready)
        best, least = -1, (0.0, 0)
        for k in allowed:
            cost = 0.0
            for _, other_ready, other_use in pending[k]:
                if used <= other_use and other_ready > mine:
                    cost += other_ready - mine
                if other_use <= used:
                    free_at = other_use + delay
                    if other_ready > free_at:
                        free_at = other_ready
                    if ready > free_at:
                        cost += ready - free_at
            if opening and not pending[k]:
                cost += opening
            key = cost, (k != original) + len(pending[k])
            if best < 0 or key < least:
                best, least = k, key
        return best

    def _still(self, e: int) -> float:
        """Cycles that an event begun elsewhere still takes."""
        cycles = self._events[e].cycles
        return float(cycles) if cycles >= LONG_CYCLES else 0.0

    def _cycles(self, boards: dict[int, int], false: dict[int, float] | None = None) -> float:
        """A walk through the block with these scoreboards; twice through it where it repeats.

        `false` takes the cycles lost to events that were only on the same scoreboard, by these and
        by what was meant.
        """
        events, done_with = self._events, self._done_with
        waited = 0.0  # on top of the stalls
        pending = 0
        ready: dict[int, float] = {}
        on_board = [0] * SCOREBOARDS
        for e, k in self._foreign.items():
            on_board[k] |= 1 << e
            pending |= 1 << e
            ready[e] = self._still(e)
        for e, k in boards.items():
            on_board[k] |= 1 << e
        for lap in range(2 if self._repeats else 1):
            waited += lap * self._length
            for _, now, needed, _, begun in self._steps:
                late = needed & pending
                if late:
                    over = 0
                    for held in on_board:
                        if late & held:
                            over |= held & pending
                    time = now + waited
                    if false is not None:
                        self._blame(over, late, ready, time, false)
                    gone = over
                    for e in members(over):
                        if ready[e] > time:
                            time = ready[e]
                        gone |= done_with[e]
                    pending &= ~gone
                    waited = time - now
                for e in begun:
                    pending |= 1 << e
                    ready[e] = now + waited + events[e].cycles
        return self._length + waited

    def _blame(
        self, over: int, late: int, ready: dict[int, float], time: float, false: dict[int, float]
    ) -> None:
        """Cycles that a wait for `late` takes longer because of all that it is `over` with."""
        meant = max(members(late), key=lambda e: ready[e])
        worst = max(members(over), key=lambda e: ready[e])
        lost = ready[worst] - max(time, ready[meant])
        if lost > 0:
            for e in (worst, meant):
                false[e] = false.get(e, 0.0) + lost


def _later_needs(
    program: Program,
    successors: Sequence[Sequence[int]],
    needs: Sequence[int],
    stalls: Sequence[int],
) -> list[dict[int, int]]:
    """By block, the cycles from its end to the first need of each event, on the shortest way."""
    blocks = program.blocks
    first: list[dict[int, int]] = []
    length: list[int] = []
    for block in blocks:
        clock = 0
        found: dict[int, int] = {}
        for i in range(block.start, block.end):
            for e in members(needs[i]):
                found.setdefault(e, clock)
            clock += max(1, stalls[i])
        first.append(found)
        length.append(clock)
    later: list[dict[int, int]] = [{} for _ in blocks]
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            mine = later[block.index]
            for s in successors[block.index]:
                for e, cycles in first[s].items():
                    if cycles < mine.get(e, _FAR_CYCLES):
                        mine[e] = cycles
                        changed = True
                for e, cycles in later[s].items():
                    away = cycles + length[s]
                    if e not in first[s] and away < mine.get(e, _FAR_CYCLES):
                        mine[e] = away
                        changed = True
    return later


def _waits(
    program: Program,
    successors: Sequence[Sequence[int]],
    by_instruction: dict[int, list[int]],
    needs: Sequence[int],
    done_with: Sequence[int],
    boards: dict[int, int],
) -> tuple[list[int], list[int]]:
    """Wait masks: the scoreboards of needed events that may still be outstanding.

    And the events that may be outstanding at the start of each block.
    """
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
    return waits, [state or 0 for state in states]
