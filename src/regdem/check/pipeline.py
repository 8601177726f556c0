"""What is in flight at each point of a program: the timing side of the hazard check.

Model of one warp of sm_70 and later, as far as correctness goes:

- an instruction issues and, if of fixed latency, reads its operands (ptxas overwrites them in the
  very next cycle, so that no distance is asked for); the next one issues at least `stall` cycles
  later (at least one);
- a *fixed-latency* instruction's result is in its register a known number of cycles after issue,
  and nothing waits for it: a consumer that comes too early reads the old value;
- a *variable-latency* instruction tells by a scoreboard: its write scoreboard counts up at issue
  and down when the result is there, its read scoreboard when the operands have been read. An
  instruction with a wait mask issues when all the scoreboards named are zero. `DEPBAR.LE SBn, k`
  waits until at most k are outstanding;
- instructions of one *order group* deliver results in order, and those of one *read group* read
  their operands in order, so a wait for a later one covers earlier ones; ptxas relies on both;
- what touches memory behind a barrier must leave it time to take effect (`SYNC_CYCLES`);
- the scoreboard is raised late: an instruction that waits for it must come at least
  `SCOREBOARD_DELAY_CYCLES` behind the one that sets it.

A state holds the producers that may still be in flight, over all paths to a point, each with the
least number of cycles since its issue; where paths join, sets are united and ages take the least.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from regdem.check.graph import Graph, closure_over_calls, solve
from regdem.check.places import FILE_BASE
from regdem.check.scoreboards import (
    OVER,
    SCOREBOARDS,
    after_wait,
    also_covered,
    covered_by,
)
from regdem.check.view import CodeView
from regdem.machine.latency import OF_HIGH_HALF, SYNC

SCOREBOARD_DELAY_CYCLES = 2
"""Measured on H200: at 1 a wait may miss the scoreboard; ptxas never goes below 2."""
LONGEST_FIXED_CYCLES = 48
"""No fixed-latency result takes longer; older ones are forgotten."""
_UNIFORM_READ_CYCLES = 6
"""Behind which every uniform operand is read; about what a branch takes."""
_MANY = 63
_PREDICATES = ((1 << (FILE_BASE[3] + 8)) - 1) & ~((1 << FILE_BASE[2]) - 1)


@dataclass
class Outstanding:
    """A variable-latency instruction in flight.

    `write` and `read` say what still covers its results and its operands (`scoreboards.py`);
    `later_write` and `later_read` count later instructions on its scoreboards, for DEPBAR.
    """

    write: int
    read: int
    later_write: int = 0
    later_read: int = 0


@dataclass
class InFlight:
    """Ages are issue times relative to now, as numbers <= 0.

    `synced` are the synchronisations that may not have taken effect.
    `regarded` are the guarded instructions in flight whose guard was overwritten since: they may
    no longer be told apart from instructions under the opposite guard.
    """

    fixed: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    variable: dict[int, Outstanding] = field(default_factory=dict[int, Outstanding])
    set_at: dict[int, int] = field(default_factory=dict[int, int])
    synced: dict[int, int] = field(default_factory=dict[int, int])
    regarded: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Timing:
    """Per instruction, what the model needs to know.

    `group[i]` is the order group of a variable-latency instruction, -1 for a fixed-latency one;
    `read_group[i]` its read group.
    `late_reads[i]` are the places whose read a read scoreboard guards: general registers only;
    predicates and uniform registers are read at issue. `operands[i]` are (mask of places, role
    word) of every operand read, the guard included.
    `late_half[i]` is the high half of the result of IMAD.WIDE, which comes later than the low one;
    `uniform_reads[i]` the uniform registers that an instruction reads not at issue but shortly
    after.
    `sync[i]`: cycles that a synchronisation takes to take effect, else 0; `minds_sync[i]`: whether
    an instruction must not come sooner behind one.
    `depbar[i]` is (scoreboard, count) of a DEPBAR.LE, else None.
    """

    stall: list[int]
    wait: list[int]
    write_scoreboard: list[int]
    read_scoreboard: list[int]
    group: list[int]
    read_group: list[int]
    reads: list[int]
    late_reads: list[int]
    writes: list[int]
    operands: list[tuple[tuple[int, str], ...]]
    depbar: list[tuple[int, int] | None]
    late_half: list[int]
    uniform_reads: list[int]
    sync: list[int]
    minds_sync: list[bool]


class Observer(Protocol):
    """Who is told about every dependence; ages in cycles."""

    def fixed(self, kind: str, producer: int, consumer: int, role: str, age: int) -> None:
        """`consumer` depends on fixed-latency `producer`, issued `age` cycles before."""
        ...

    def pending(self, kind: str, producer: int, consumer: int, cover: int) -> None:
        """`consumer` issues while an access of variable-latency `producer` is in flight."""
        ...

    def early_wait(self, scoreboard: int, consumer: int, age: int) -> None:
        """`consumer` waits for a scoreboard set fewer cycles before than it takes to be raised."""
        ...


class Pipeline:
    """The domain of the fixpoint; `observe` walks the result once."""

    def __init__(self, view: CodeView, timing: Timing, graph: Graph) -> None:
        self.view = view
        self.timing = timing
        self.graph = graph
        self._made: dict[int, int] = (
            closure_over_calls(graph, lambda i: 1 << i) if graph.sites else {}
        )

    def observe(self, observer: Observer) -> None:
        """Solve, then report every dependence along every path to `observer`."""
        states = solve(self.graph, self, InFlight()).at
        for block in sorted(states):
            self._run(block, states[block], observer)

    # -- domain -------------------------------------------------------------------------------

    def transfer(self, block: int, state: InFlight) -> InFlight:
        """What is in flight behind `block`."""
        return self._run(block, state, None)

    def edge(self, block: int, state: InFlight, taken: bool) -> InFlight:
        """Edges cost nothing: the branch's stall counts on both."""
        del block, taken
        return state

    def meet(self, state: InFlight, other: InFlight) -> tuple[InFlight, bool]:
        """What may be in flight on either path."""
        fixed = dict(state.fixed)
        for i, (time, places) in other.fixed.items():
            mine = fixed.get(i)
            fixed[i] = (time, places) if mine is None else (max(time, mine[0]), places | mine[1])
        variable = dict(state.variable)
        for i, theirs in other.variable.items():
            mine = variable.get(i)
            variable[i] = (
                theirs
                if mine is None
                else Outstanding(
                    mine.write | theirs.write,
                    mine.read | theirs.read,
                    min(mine.later_write, theirs.later_write),
                    min(mine.later_read, theirs.later_read),
                )
            )
        regarded = state.regarded | other.regarded
        set_at, synced = _latest(state.set_at, other.set_at), _latest(state.synced, other.synced)
        met = InFlight(fixed, variable, set_at, synced, regarded)
        return met, met != state

    def after_call(self, block: int, before: InFlight, returned: InFlight) -> InFlight:
        """What the callee left, and what was in flight before this call and still is."""
        made = self._made[self.graph.callee(block)]
        return InFlight(
            {i: e for i, e in returned.fixed.items() if made >> i & 1 or i in before.fixed},
            {i: e for i, e in returned.variable.items() if made >> i & 1 or i in before.variable},
            returned.set_at,
            returned.synced,
            returned.regarded | before.regarded,
        )

    # -- one block ----------------------------------------------------------------------------

    def _run(self, block: int, state: InFlight, observer: Observer | None) -> InFlight:
        timing = self.timing
        now = 0
        fixed = dict(state.fixed)
        variable = {i: Outstanding(**vars(e)) for i, e in state.variable.items()}
        set_at = dict(state.set_at)
        synced = dict(state.synced)
        regarded = set(state.regarded)
        recent: dict[int, int] = {}  # uniform readers that may not have read yet
        for i in range(self.graph.start[block], self.graph.end[block]):
            wait = timing.wait[i]
            bar = timing.depbar[i]
            if wait:
                _wait(variable, wait)
                if observer is not None:
                    for scoreboard, time in set_at.items():
                        if wait >> scoreboard & 1 and now - time < SCOREBOARD_DELAY_CYCLES:
                            observer.early_wait(scoreboard, i, now - time)
            if bar is not None:
                _depbar(variable, timing, *bar)
            writes = timing.writes[i]
            if observer is not None:
                self._report(i, now, fixed, variable, regarded, observer)
                for reader, time in recent.items():
                    if timing.uniform_reads[reader] & writes:
                        observer.fixed("WAR", reader, i, "", now - time)
                for barrier, time in synced.items():
                    if timing.minds_sync[i] and now - time < timing.sync[barrier]:
                        observer.fixed(SYNC, barrier, i, "", now - time)
            recent = {r: t for r, t in recent.items() if now - t < _UNIFORM_READ_CYCLES}
            if timing.uniform_reads[i]:
                recent[i] = now
            if writes:
                self._overwrite(i, writes, fixed)
                if writes & _PREDICATES:
                    for p in (*fixed, *variable):
                        if self.view.guard[p] >= 0 and writes >> self.view.guard[p] & 1:
                            regarded.add(p)
            regarded.discard(i)
            if timing.sync[i]:
                synced[i] = now
            if timing.group[i] < 0:
                if writes:
                    fixed[i] = (now, writes)
            else:
                self._issue_variable(i, variable)
            for scoreboard in (timing.write_scoreboard[i], timing.read_scoreboard[i]):
                if scoreboard < SCOREBOARDS:
                    set_at[scoreboard] = now
            now += max(1, timing.stall[i])
            if len(fixed) > 2 * LONGEST_FIXED_CYCLES:
                fixed = {p: e for p, e in fixed.items() if now - e[0] <= LONGEST_FIXED_CYCLES}
        return InFlight(
            {
                p: (time - now, places)
                for p, (time, places) in fixed.items()
                if now - time <= LONGEST_FIXED_CYCLES
            },
            variable,
            {s: t - now for s, t in set_at.items() if now - t < SCOREBOARD_DELAY_CYCLES},
            {s: t - now for s, t in synced.items() if now - t < timing.sync[s]},
            frozenset(regarded & (fixed.keys() | variable.keys())),
        )

    def _overwrite(self, i: int, writes: int, fixed: dict[int, tuple[int, int]]) -> None:
        """Later readers see this write, not older ones (unless it is guarded)."""
        if self.view.guard[i] >= 0:
            return
        for producer, (time, places) in list(fixed.items()):
            if places & writes:
                left = places & ~writes
                if left:
                    fixed[producer] = (time, left)
                else:
                    del fixed[producer]

    def _issue_variable(self, i: int, variable: dict[int, Outstanding]) -> None:
        timing = self.timing
        write, read = timing.write_scoreboard[i], timing.read_scoreboard[i]
        group, read_group = timing.group[i], timing.read_group[i]
        has_write, has_read = write < SCOREBOARDS, read < SCOREBOARDS
        for p, entry in variable.items():
            if has_write and timing.write_scoreboard[p] == write:
                entry.later_write = min(_MANY, entry.later_write + 1)
            if has_read and timing.read_scoreboard[p] == read:
                entry.later_read = min(_MANY, entry.later_read + 1)
            if has_write and entry.write and timing.group[p] == group:
                entry.write = also_covered(entry.write, write)
            if entry.read and timing.read_group[p] == read_group:
                if has_read:
                    entry.read = also_covered(entry.read, read)
                if has_write:
                    entry.read = also_covered(entry.read, write)
        if not has_write and has_read and not timing.writes[i] & ~_PREDICATES:
            write = read  # a predicate result of an atomic is there when its operands were read
        variable[i] = Outstanding(
            covered_by(write) if timing.writes[i] else OVER,
            covered_by(read, write) if timing.late_reads[i] else OVER,
        )

    def _report(
        self,
        i: int,
        now: int,
        fixed: dict[int, tuple[int, int]],
        variable: dict[int, Outstanding],
        regarded: set[int],
        observer: Observer,
    ) -> None:
        timing = self.timing
        reads, writes = timing.reads[i], timing.writes[i]
        both = reads | writes
        for producer, (time, places) in fixed.items():
            if not places & both or self._exclusive(producer, i, regarded):
                continue
            if places & reads:
                late = places & timing.late_half[producer]
                for operand, role in timing.operands[i]:
                    if places & operand:
                        word = role + OF_HIGH_HALF if late & operand else role
                        observer.fixed("RAW", producer, i, word, now - time)
            if places & writes:
                observer.fixed("WAW", producer, i, "", now - time)
        for producer, entry in variable.items():
            if self._exclusive(producer, i, regarded):
                continue
            written = timing.writes[producer] if entry.write else 0
            if written & reads:
                observer.pending("RAW", producer, i, entry.write)
            elif written & writes and timing.group[producer] != timing.group[i]:
                observer.pending("WAW", producer, i, entry.write)
            unread = timing.late_reads[producer] if entry.read else 0
            if unread & writes and timing.read_group[producer] != timing.read_group[i]:
                observer.pending("WAR", producer, i, entry.read)

    def _exclusive(self, producer: int, consumer: int, regarded: set[int]) -> bool:
        """Whether the two run under opposite values of one predicate: never in one thread."""
        view = self.view
        return (
            view.guard[consumer] >= 0
            and view.guard[producer] == view.guard[consumer]
            and view.guard_negated[producer] != view.guard_negated[consumer]
            and producer not in regarded
        )


def _latest(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
    joined = dict(a)
    for key, time in b.items():
        joined[key] = max(time, joined.get(key, time))
    return joined


def _wait(variable: dict[int, Outstanding], wait: int) -> None:
    for p, entry in list(variable.items()):
        left = after_wait(entry.write, wait)
        entry.read = after_wait(entry.read, wait)
        if entry.write and not left:
            entry.read = OVER  # a result is there only after its operands were read
        entry.write = left
        if not entry.write and not entry.read:
            del variable[p]


def _depbar(variable: dict[int, Outstanding], timing: Timing, scoreboard: int, count: int) -> None:
    """At most `count` of the scoreboard's instructions are in flight: older ones are over.

    This holds for instructions that finish in order, for which alone the form is used.
    """
    bit = 1 << scoreboard
    for p, entry in list(variable.items()):
        if timing.write_scoreboard[p] == scoreboard and entry.later_write >= count:
            entry.write = after_wait(entry.write, bit)
            entry.read = after_wait(entry.read, bit)
        if timing.read_scoreboard[p] == scoreboard and entry.later_read >= count:
            entry.read = after_wait(entry.read, bit)
        if not entry.write and not entry.read:
            del variable[p]
