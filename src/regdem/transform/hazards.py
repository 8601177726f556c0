"""What rewritten code must wait for, and the control bits that make it wait.

Inserting, renaming and moving make new pairs of instructions that depend on each other. Results of
variable latency must be waited for by scoreboard, those of fixed latency by stalls.

1. What the original waits for: the events of `transform/late_events.py`. The original assignment of
   scoreboards leaves no room for inserted instructions that wait briefly beside loads that take
   hundreds of cycles, so each event stands for itself until the end.
2. What is new: a second dataflow (`transform/outstanding.py`) keeps the outstanding events and the
   cycles until each fixed-latency result is ready. A value that an original instruction reads from
   an original one was safe before, and inserting only lengthens distances, so such pairs are left
   alone. Looked after are read-after-write where writer or reader was inserted, and
   write-after-write and write-after-read everywhere, since registers have changed hands. The mend
   is a wait, or a longer stall; both steps are repeated until nothing changes.
3. Scoreboards are assigned (`transform/scoreboards.py`), waits become masks, and a setter is kept
   2 cycles before a waiter.

An event with no scoreboard that is now waited for uses that of the marked one behind it, or gets
its own. A scoreboard on which a DEPBAR counts down keeps its events and gets no others.

Invariants: stalls only grow, and waits are only added, so that the rounds end. Not claimed: the
fewest cycles, nor that latencies are exact: they are conservative bounds, and the checker has its
own, mined from ptxas's output.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from regdem.analysis.bits import members
from regdem.errors import UnsupportedError
from regdem.isa.control import MAX_STALL, SCOREBOARDS, ControlWord, set_control
from regdem.machine.latency import latency_table, minds_sync, sync_cycles
from regdem.program.edit import Word
from regdem.program.program import Program
from regdem.transform.late_events import LateEvents, Moved
from regdem.transform.latencies import FIXED_LATENCY_CYCLES, LONG_CYCLES, STORE_DATA_CYCLES
from regdem.transform.outstanding import Outstanding
from regdem.transform.scoreboards import assign

_CS2R_ORDER_SLACK = 18
"""Between two CS2R, which take equally long: 8 cycles are enough."""
_MULTI_PASS_READ_CYCLES = 10
_ROUNDS = 64
_MOST_TRIES, _TRIED_INSTRUCTIONS = 400, 60_000
"""Walks through a block in search of better scoreboards: at most, and by its length."""
_READ_IN_ORDER = frozenset(
    {"LDS", "LDSM", "STS", "ATOMS", "LDL", "STL", "LDG", "STG", "LD", "ST", "SHFL"}
)
"""These read their operands in order."""


class _Repair:
    """Rounds of dataflow and mends: `control` words, and whether the last round `changed` any."""

    def __init__(
        self, program: Program, inserted: Sequence[bool], moved: Moved | None = None
    ) -> None:
        late = LateEvents(program, inserted, moved)
        code = program.code
        self.changed = False
        self._program = program
        self._inserted = inserted
        self._late = late
        # What the mends change.
        self.control = list(late.control)
        self._wanted = list(late.wanted)
        self._needs = list(late.needs)
        self._predecessors: list[list[int]] = [[] for _ in program.blocks]
        for b, nexts in enumerate(late.successors):
            for s in nexts:
                self._predecessors[s].append(b)
        self._sync = [sync_cycles(name) for name in late.name]
        self._is_cs2r = [name == "CS2R" for name in late.name]
        table = latency_table(code.table.arch)
        # When results land, for the order of two writes: of the first, and at least of the second.
        timed = [f"{kind}:{name}" for kind, name in zip(late.latency, late.name, strict=True)]
        lands = [table.arrival(name) for name in timed]
        self._lands_early = [table.earliest(name) for name in timed]
        multi_pass: list[bool] = code.table.multi_pass[code.form].tolist()
        # Of fixed latency: cycles until a result may be read, stored, and has landed.
        self._fixed: list[tuple[int, int, int] | None] = [
            None
            if variable
            else (
                cycles := FIXED_LATENCY_CYCLES.get(kind, 13),
                STORE_DATA_CYCLES.get(kind, cycles),
                landing,
            )
            for variable, kind, landing in zip(late.variable, late.latency, lands, strict=True)
        ]
        self._written = [
            members(defs) if fixed is not None else ()
            for defs, fixed in zip(late.defs, self._fixed, strict=True)
        ]
        self._read_twice = [
            members(uses) if fixed is not None and passes else ()
            for uses, fixed, passes in zip(late.uses, self._fixed, multi_pass, strict=True)
        ]

    def step(self, i: int, state: Outstanding) -> None:
        """Advances `state` over instruction `i`."""
        facts = self._late
        late = self._needs[i] & state.pending
        if late:
            over = 0
            for e in members(late):
                over |= facts.done[e]
            state.pending &= ~over
        state.pending |= facts.begins[i]
        now = state.now
        fixed = self._fixed[i]
        if fixed is not None:
            times = now + fixed[0], now + fixed[1], now + fixed[2]
            for r in self._written[i]:
                state.ready[r] = times
            for r in self._read_twice[i]:
                state.busy_reads[r] = now + _MULTI_PASS_READ_CYCLES
        if self._sync[i]:
            state.quiet = max(state.quiet, now + self._sync[i])
        defs = facts.defs[i]
        if self._is_cs2r[i]:
            state.cs2r |= defs
        else:
            state.cs2r &= ~defs
        if self._inserted[i]:
            state.inserted |= defs
        else:
            state.inserted &= ~defs
        state.now = now + max(1, self.control[i].stall)

    def mend(self, i: int, state: Outstanding) -> None:
        """Adds what instruction `i` needs in `state`."""
        facts = self._late
        uses, defs = facts.uses[i], facts.defs[i]
        touched = facts.needed_uses[i] | facts.needed_defs[i]
        if not touched:
            return
        fresh = uses if self._inserted[i] else uses & state.inserted
        if state.pending:
            self._mend_waits(i, state.pending, touched)
        now = state.now
        late_cycles = 0
        if self._inserted[i] and minds_sync(facts.latency[i]):
            late_cycles = max(0, state.quiet - now)
        is_store = self._inserted[i] and facts.name[i] == "STS"
        overwritten = defs & facts.watched
        for r in members(fresh | overwritten):
            known = state.ready.get(r)
            if known is None or known[0] <= now:
                continue
            ready, storable, lands = known
            bit = 1 << r
            if bit & fresh:
                late_cycles = max(late_cycles, (storable if is_store else ready) - now)
            if bit & overwritten:
                alike = bit & state.cs2r and self._is_cs2r[i]
                own = self._lands_early[i] - 1
                first = ready - now - _CS2R_ORDER_SLACK + own if alike else max(0, lands - now)
                late_cycles = max(late_cycles, first - own)
        for r in members(overwritten) if state.busy_reads else ():
            late_cycles = max(late_cycles, state.busy_reads.get(r, now) - now)
        if late_cycles > 0:
            block = self._program.blocks[int(self._program.block_of[i])]
            self._lengthen(block.index, i, late_cycles, frozenset())
            state.now += late_cycles

    def _mend_waits(self, i: int, pending: int, touched: int) -> None:
        """Waits of instruction `i`, which touches these registers, for what is `pending`."""
        facts = self._late
        defs = facts.defs[i]
        concerned = 0
        for r in members(touched):
            concerned |= facts.arriving.get(r, 0)
        for r in members(defs):
            concerned |= facts.reading.get(r, 0)
        concerned &= pending
        if not concerned:
            return
        over = 0
        for e in members(self._needs[i] & pending):
            over |= facts.done[e]
        for e in members(concerned & ~over):
            event = facts.events[e]
            j = event.instruction
            if event.arrival:
                self._wait(i, e)
            elif j != i and not self._reads_in_order(j, i):
                arrival = facts.arrives.get(j)
                slow = arrival is None or facts.events[arrival].cycles >= LONG_CYCLES
                if (
                    slow
                    or self._wanted[e]
                    or not self._wanted[arrival if arrival is not None else e]
                ):
                    self._wait(i, e)
                else:
                    assert arrival is not None
                    self._wait(i, arrival)

    def _reads_in_order(self, first: int, second: int) -> bool:
        """Whether the second instruction can't give its result before the first has read.

        Left to ptxas's own order where there is no new one: waits are as they were there.
        """
        facts = self._late
        if facts.moved is None or not (facts.variable[first] and facts.variable[second]):
            return False
        return facts.name[first] in _READ_IN_ORDER and facts.name[second] in _READ_IN_ORDER

    def _wait(self, i: int, e: int) -> None:
        facts = self._late
        if not self._wanted[e]:
            cover = facts.cover.get(e)
            block = self._program.block_of[i]
            if (
                cover is not None
                and facts.events[cover].instruction < i
                and self._program.block_of[facts.events[cover].instruction] == block
            ):
                e = cover
            else:
                self._wanted[e] = True
        if not (self._needs[i] >> e) & 1:
            self._needs[i] |= 1 << e
            self.changed = True

    def _raise_stall(self, i: int, cycles: int) -> int:
        """Lengthens the stall of `i`; returns what did not fit."""
        c = self.control[i]
        stall = min(MAX_STALL, c.stall + cycles)
        if stall != c.stall:
            self.control[i] = replace(c, stall=stall)
            self.changed = True
        return cycles - (stall - c.stall)

    def _lengthen(self, b: int, end: int, cycles: int, seen: frozenset[int]) -> None:
        """Adds `cycles` of stall before instruction `end` of block `b`, and before that."""
        block = self._program.blocks[b]
        for j in range(end - 1, block.start - 1, -1):
            cycles = self._raise_stall(j, cycles)
            if cycles <= 0:
                return
        if b in seen or not self._predecessors[b]:
            raise UnsupportedError(
                "a result is not ready in time and no stall can cover it",
                code="latency",
                kernel=self._program.name,
                offset=16 * end,
            )
        for p in self._predecessors[b]:
            self._lengthen(p, self._program.blocks[p].end, cycles, seen | {b})

    def round(self) -> None:
        """One dataflow to the fixpoint, then one pass of mends."""
        blocks = self._program.blocks
        states: list[Outstanding | None] = [None] * len(blocks)
        for f in self._program.functions:
            states[int(self._program.block_of[f.start])] = Outstanding()
        work = [b for b, s in enumerate(states) if s is not None]
        queued = set(work)
        while work:
            b = heapq.heappop(work)  # in order of address: few blocks come twice
            queued.discard(b)
            known = states[b]
            assert known is not None
            state = known.copy()
            for i in range(blocks[b].start, blocks[b].end):
                self.step(i, state)
            for s in self._late.successors[b]:
                other = states[s]
                if other is None:
                    states[s] = state.copy()
                elif not other.join(state):
                    continue
                if s not in queued:
                    queued.add(s)
                    heapq.heappush(work, s)
        for b, known in enumerate(states):
            if known is None:
                continue
            now = known.copy()
            for i in range(blocks[b].start, blocks[b].end):
                self.mend(i, now)
                self.step(i, now)

    def write_scoreboards(self) -> None:
        """Assigns scoreboards and turns needs into wait masks."""
        facts = self._late
        boards, waits = assign(
            self._program, facts.successors, facts.events, self._wanted, self._needs,
            facts.done, facts.reserved,
            [c.stall for c in self.control], self._tries(),
        )  # fmt: skip
        none = SCOREBOARDS + 1
        for i, c in enumerate(self.control):
            write = facts.arrives.get(i)
            read = facts.has_read.get(i)
            self.control[i] = ControlWord(
                c.stall,
                c.yield_bit,
                none if write is None else boards.get(write, none),
                none if read is None else boards.get(read, none),
                waits[i] | (c.wait_mask & facts.reserved),
                c.reuse,
            )

    def _tries(self) -> list[int]:
        """Walks through each block that false waits are worth: only where the order is new."""
        moved = self._late.moved
        if moved is None:
            return []
        return [
            min(_MOST_TRIES, _TRIED_INSTRUCTIONS // (block.end - block.start + 1))
            if any(moved.free[block.start : block.end])
            else 0
            for block in self._program.blocks
        ]

    def two_cycle_rule(self) -> None:
        """A setter of a scoreboard stands at least 2 cycles before a waiter on it."""
        for block in self._program.blocks:
            nexts = [(i, i + 1) for i in range(block.start, block.end - 1)]
            nexts += [
                (block.end - 1, self._program.blocks[s].start)
                for s in self._late.successors[block.index]
            ]
            for i, j in nexts:
                c = self.control[i]
                waits = self.control[j].wait_mask
                if c.stall < 2 and any(
                    k < SCOREBOARDS and (waits >> k) & 1
                    for k in (c.write_scoreboard, c.read_scoreboard)
                ):
                    self.control[i] = replace(c, stall=2)


def repair(program: Program, inserted: Sequence[bool], moved: Moved | None = None) -> list[Word]:
    """The words of `program` with control bits that cover every hazard an edit may have made.

    `inserted[i]` says that instruction i is not of the original; `moved` what stands in another
    order, with stalls that fit fixed-latency results already. Raises `UnsupportedError` where no
    legal control word does it.
    """
    work = _Repair(program, inserted, moved)
    for _ in range(_ROUNDS):
        work.changed = False
        work.round()
        if not work.changed:
            break
    else:
        raise UnsupportedError(
            "control bits do not settle", code="hazards_unsettled", kernel=program.name
        )
    work.write_scoreboards()
    work.two_cycle_rule()
    return [
        (int(lo), set_control(int(hi), c))
        for (lo, hi), c in zip(program.code.words.tolist(), work.control, strict=True)
    ]
