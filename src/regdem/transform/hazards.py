"""What rewritten code must wait for, and the control bits that make it wait.

Every variable-latency instruction makes up to two *events*: its results arrive, its sources have
been read. ptxas names events by scoreboard; here each event stands for itself, and scoreboards are
given out again afterwards (`transform/scoreboards.py`), since the original assignment leaves no
room for inserted instructions that wait briefly beside loads that take hundreds of cycles.

1. What the original waits for: a forward dataflow over the original wait masks gives the events
   that each wait covers. Those that the instruction depends on stay waited for there; those that
   only shared a scoreboard with them wait for their own first user.
2. What is new: a second dataflow keeps the outstanding events and the cycles until each
  fixed-latency
   result is ready. A value that an original instruction reads from an original one was safe before,
   and inserting only lengthens distances, so such pairs are left alone. Looked after are
   read-after-write where writer or reader was inserted, and write-after-write and write-after-read
   everywhere, since registers have changed hands. The mend is a wait, or a longer stall.
3. Scoreboards are assigned, waits become masks, and a setter is kept 2 cycles before a waiter.

ptxas marks only the last of a group of in-order loads; an event with no scoreboard that is now
waited
for uses that one's, or gets its own. A scoreboard on which a DEPBAR counts down keeps its events
and gets no others. Latencies are conservative bounds; the checker has its own, mined from ptxas's
output.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from regdem.analysis.bits import FILE_MASK, def_masks, members, use_masks
from regdem.errors import UnsupportedError
from regdem.isa.control import MAX_STALL, SCOREBOARDS, ControlWord, get_control, set_control
from regdem.isa.decoded import RegisterFile
from regdem.machine.latency import latency_table, minds_sync, sync_cycles
from regdem.program.edit import Word
from regdem.program.program import Program
from regdem.transform.scoreboards import Event, assign

FIXED_LATENCY_CYCLES = {
    "alu": 7, "fma": 7, "imad": 7, "imad_wide": 11, "half": 8, "half_mma": 11, "fp64": 14,
    "cs2r": 26, "mma": 36, "gmma": 40, "fp64_mma": 40, "uniform": 13, "r2ur": 13, "control": 13,
}  # fmt: skip
"""Cycles from issue until any consumer may read (at or above the least seen in ptxas code)."""
_STORE_DATA_CYCLES = {
    "alu": 5, "fma": 5, "imad": 5, "imad_wide": 6, "half": 6, "half_mma": 8, "fp64": 8,
}  # fmt: skip
"""The same for the data of a store to shared memory (least seen: 5 and, of double words, 7)."""
_CS2R_ORDER_SLACK = 18
"""Between two CS2R, which take equally long: 8 cycles are enough."""
_MULTI_PASS_READ_CYCLES = 10
_ROUNDS = 64
_MOST_TRIES, _TRIED_INSTRUCTIONS = 400, 60_000
"""Walks through a block in search of better scoreboards: at most, and by its length."""
_GPR = FILE_MASK[RegisterFile.GPR]
LATENCY_CYCLES = {
    "memory_global": 500, "memory_generic": 500, "memory_texture": 500, "memory_surface": 500,
    "memory_local": 60, "memory_shared": 30, "memory_constant": 40, "memory_other": 30,
    "special": 30, "mufu": 22, "shuffle": 26, "variable": 26,
}  # fmt: skip
"""Typical cycles until a result arrives (H100 and H200: L2 260 to 290, DRAM 480 to 700)."""
READ_CYCLES = 20
"""Typical cycles until a memory instruction has read its sources."""
_LONG_CYCLES = 100
_PLAIN = frozenset(
    {"alu", "fma", "imad", "imad_wide", "half", "half_mma", "fp64", "mufu", "mma", "memory_global",
     "memory_shared", "memory_local", "memory_constant"}
)  # fmt: skip
"""Instructions that wait for nothing but what they read and overwrite."""
_IN_ORDER = frozenset({"LDS", "LDSM", "LDC", "MUFU"})
"""Loads and functions whose results arrive in order, each among its own kind. Global loads
don't."""
_READ_IN_ORDER = frozenset(
    {"LDS", "LDSM", "STS", "ATOMS", "LDL", "STL", "LDG", "STG", "LD", "ST", "SHFL"}
)
"""These read their operands in order."""


@dataclass(slots=True)
class _State:
    """What is outstanding at a point; times are on a clock of its own, `now` is the point's."""

    now: int = 0
    pending: int = 0  # events, a bit each
    inserted: int = 0  # registers last written by an inserted instruction
    cs2r: int = 0  # registers last written by CS2R, whatever path led here
    quiet: int = 0  # until when a synchronisation keeps new accesses to memory back
    ready: dict[int, tuple[int, int, int]] = field(
        default_factory=lambda: dict[int, tuple[int, int, int]]()
    )
    """By register: when it may be read, stored, and when the result lands."""
    busy_reads: dict[int, int] = field(default_factory=lambda: dict[int, int]())

    def copy(self) -> _State:
        now = self.now
        return _State(
            now, self.pending, self.inserted, self.cs2r, self.quiet,
            {r: times for r, times in self.ready.items() if max(times) > now},
            {r: time for r, time in self.busy_reads.items() if time > now},
        )  # fmt: skip

    def join(self, other: _State) -> bool:
        """Takes over what is outstanding in `other`; whether anything was new."""
        ahead = self.now - other.now
        quiet = other.quiet + ahead
        changed = bool(
            (other.pending & ~self.pending)
            | (other.inserted & ~self.inserted)
            | (self.cs2r & ~other.cs2r)
            or quiet > max(self.quiet, self.now)
        )
        self.quiet = max(self.quiet, quiet)
        self.cs2r &= other.cs2r
        self.pending |= other.pending
        self.inserted |= other.inserted
        now = self.now
        over = now, now, now
        for register, theirs in other.ready.items():
            mine = self.ready.get(register, over)
            a, b, c = (max(time, now) for time in mine)
            new = max(a, theirs[0] + ahead), max(b, theirs[1] + ahead), max(c, theirs[2] + ahead)
            if new != (a, b, c):
                self.ready[register] = new
                changed = True
        for register, time in other.busy_reads.items():
            if time + ahead > max(now, self.busy_reads.get(register, now)):
                self.busy_reads[register] = time + ahead
                changed = True
        return changed


@dataclass(frozen=True)
class Moved:
    """What a new order of instructions changes for the repair of control bits.

    `original`: the program before, whose waits say what else than registers is waited for;
    `place[i]`: where its instruction i stands now. `free[k]`: instruction k stands in a stretch
    that was ordered anew: it waits for the registers it needs, of all files, and nothing else.
    `keeps[k]`: instruction k keeps the scoreboards it has. `watched`: general registers (mask)
    whose writes may have come nearer to each other.
    """

    original: Program
    place: Sequence[int]
    free: Sequence[bool]
    keeps: Sequence[bool]
    watched: int


class _Repair:
    def __init__(
        self, program: Program, inserted: Sequence[bool], moved: Moved | None = None
    ) -> None:
        code = program.code
        self.program = program
        self.inserted = inserted
        self.moved = moved
        all_uses, all_defs = use_masks(code), def_masks(code)
        own = _GPR | _taken_into_use(all_defs, inserted)
        self.uses = [m & own for m in all_uses]
        self.defs = [m & own for m in all_defs]
        # What must have arrived: without a new order, other files are as safe as they were.
        self.needed_uses = self.uses if moved is None else all_uses
        self.needed_defs = self.defs if moved is None else all_defs
        self.watched = own if moved is None else moved.watched
        self.other_defs = [bool(m & ~_GPR) for m in all_defs]
        forms = code.table.forms
        self.name = [forms[f].name for f in code.form_indices]
        self.latency = [forms[f].latency for f in code.form_indices]
        self.sync = [sync_cycles(name) for name in self.name]
        table = latency_table(code.table.arch)
        # When results land, for the order of two writes: of the first, and at least of the second.
        timed = [f"{kind}:{name}" for kind, name in zip(self.latency, self.name, strict=True)]
        self.lands = [table.arrival(name) for name in timed]
        self.lands_early = [table.earliest(name) for name in timed]
        self.variable: list[bool] = code.table.variable_latency[code.form].tolist()
        self.multi_pass = code.table.multi_pass[code.form].tolist()
        self.control = [get_control(int(hi)) for hi in code.words[:, 1].tolist()]
        self.reserved = _counted_scoreboards(program)
        self.successors = [_successors(program, b.index) for b in program.blocks]
        self.predecessors: list[list[int]] = [[] for _ in program.blocks]
        for b, nexts in enumerate(self.successors):
            for s in nexts:
                self.predecessors[s].append(b)
        self.changed = False
        self._make_events()
        self.done: list[int] = [self._done_with(e.index) for e in self.events]
        self._look_up()
        self.covered_needs = self._original_needs() if moved is None else self._carried_needs(moved)
        self.needs = [self._true_needs(i, m) for i, m in enumerate(self.covered_needs)]

    # -- events -----------------------------------------------------------------------------

    def _make_events(self) -> None:
        self.events: list[Event] = []
        self.arrives: dict[int, int] = {}
        self.has_read: dict[int, int] = {}
        for i, variable in enumerate(self.variable):
            c = self.control[i]
            if not variable and c.write_scoreboard >= SCOREBOARDS:
                continue
            kind = self.latency[i]
            if self.needed_defs[i] or c.write_scoreboard < SCOREBOARDS:
                self.arrives[i] = len(self.events)
                self.events.append(
                    Event(len(self.events), i, True, LATENCY_CYCLES.get(kind, 26),
                          c.write_scoreboard, self._keeps(i, c.write_scoreboard))
                )  # fmt: skip
            if self.uses[i] or c.read_scoreboard < SCOREBOARDS:
                self.has_read[i] = len(self.events)
                self.events.append(
                    Event(len(self.events), i, False, READ_CYCLES, c.read_scoreboard,
                          self._keeps(i, c.read_scoreboard))
                )  # fmt: skip
        free = self.moved.free if self.moved is not None else ()
        self.wanted = [
            e.scoreboard < SCOREBOARDS or (e.arrival and bool(free) and free[e.instruction])
            for e in self.events
        ]
        # The marked event that tells of an unmarked one: the next of its class in the block.
        self.cover: dict[int, int] = {}
        self.covered: dict[int, int] = {}
        for block in self.program.blocks:
            unmarked: dict[str, list[int]] = {}
            for i in range(block.start, block.end):
                e = self.arrives.get(i)
                if e is None:
                    continue
                kind = self.name[i]
                if kind not in _IN_ORDER:
                    continue
                if not self.wanted[e]:
                    unmarked.setdefault(kind, []).append(e)
                    continue
                for other in unmarked.pop(kind, ()):
                    self.cover[other] = e
                    self.covered[e] = self.covered.get(e, 0) | (1 << other)

    def _keeps(self, i: int, scoreboard: int) -> bool:
        """Whether an event of instruction `i` keeps its scoreboard."""
        stays = self.moved is not None and self.moved.keeps[i]
        return scoreboard < SCOREBOARDS and (stays or (self.reserved >> scoreboard) & 1 == 1)

    def _look_up(self) -> None:
        """What the dataflow asks for again and again, by instruction and by register."""
        self.begins = [0] * len(self.control)
        self.arriving: dict[int, int] = {}
        self.reading: dict[int, int] = {}
        for event in self.events:
            bit, j = 1 << event.index, event.instruction
            self.begins[j] |= bit
            of = self.arriving if event.arrival else self.reading
            for r in members(self.needed_defs[j] if event.arrival else self.uses[j]):
                of[r] = of.get(r, 0) | bit
        self.fixed: list[tuple[int, int, int] | None] = [
            None
            if variable
            else (
                cycles := FIXED_LATENCY_CYCLES.get(kind, 13),
                _STORE_DATA_CYCLES.get(kind, cycles),
                lands,
            )
            for variable, kind, lands in zip(self.variable, self.latency, self.lands, strict=True)
        ]
        self.written = [
            members(defs) if fixed is not None else ()
            for defs, fixed in zip(self.defs, self.fixed, strict=True)
        ]
        self.read_twice = [
            members(uses) if fixed is not None and multi_pass else ()
            for uses, fixed, multi_pass in zip(self.uses, self.fixed, self.multi_pass, strict=True)
        ]
        self.is_cs2r = [name == "CS2R" for name in self.name]

    def _done_with(self, e: int) -> int:
        """All events that are over when event `e` is."""
        result = (1 << e) | self.covered.get(e, 0)
        for other in members(result):
            event = self.events[other]
            if event.arrival and event.instruction in self.has_read:
                result |= 1 << self.has_read[event.instruction]
        return result

    def _original_needs(self) -> list[int]:
        """Per instruction the events that its original wait mask covers."""
        blocks = self.program.blocks
        states: list[list[int] | None] = [None] * len(blocks)
        for f in self.program.functions:
            states[int(self.program.block_of[f.start])] = [0] * SCOREBOARDS
        work = [b for b, s in enumerate(states) if s is not None]
        needs = [0] * len(self.control)
        while work:
            b = work.pop()
            now = list(states[b] or [0] * SCOREBOARDS)
            for i in range(blocks[b].start, blocks[b].end):
                c = self.control[i]
                for k in members(c.wait_mask):
                    if k < SCOREBOARDS:
                        needs[i] |= now[k]
                        now[k] = 0
                if c.write_scoreboard < SCOREBOARDS and i in self.arrives:
                    now[c.write_scoreboard] |= 1 << self.arrives[i]
                if c.read_scoreboard < SCOREBOARDS and i in self.has_read:
                    now[c.read_scoreboard] |= 1 << self.has_read[i]
            for s in self.successors[b]:
                old = states[s]
                new = now if old is None else [a | b for a, b in zip(old, now, strict=True)]
                if new != old:
                    states[s] = list(new)
                    work.append(s)
        return needs

    def _carried_needs(self, moved: Moved) -> list[int]:
        """The same, as the original order had it; nothing for what was ordered anew."""
        arrives, has_read, original_needs = _as_ordered(moved.original)
        event_of: dict[int, int] = {}
        for theirs, mine in ((arrives, self.arrives), (has_read, self.has_read)):
            for i, e in theirs.items():
                new = mine.get(moved.place[i])
                if new is not None:
                    event_of[e] = new
        result = [0] * len(self.control)
        for i, needs in enumerate(original_needs):
            k = moved.place[i]
            if not moved.free[k]:
                for e in members(needs):
                    if e in event_of:
                        result[k] |= 1 << event_of[e]
        return result

    def _true_needs(self, i: int, needs: int) -> int:
        """The events of `needs` that plain instruction `i` depends on, or may for another reason.

        An original wait covers all that shares its scoreboard. Where what was shared with it gets
        a scoreboard of its own, nobody has to wait for it before its first user.
        """
        form = self.program.code.table.forms[int(self.program.code.form[i])]
        if form.control != "none" or form.latency not in _PLAIN:
            return needs
        result = 0
        for e in members(needs):
            event = self.events[e]
            j = event.instruction
            if event.pinned or self.other_defs[j]:
                result |= 1 << e
            elif event.arrival:
                if not self.defs[j] or self.defs[j] & (self.uses[i] | self.defs[i]):
                    result |= 1 << e
            elif not self.uses[j] or self.uses[j] & self.defs[i]:
                result |= 1 << e
        return result

    # -- what is missing ----------------------------------------------------------------------

    def step(self, i: int, state: _State) -> None:
        """Advances `state` over instruction `i`."""
        late = self.needs[i] & state.pending
        if late:
            over = 0
            for e in members(late):
                over |= self.done[e]
            state.pending &= ~over
        state.pending |= self.begins[i]
        now = state.now
        fixed = self.fixed[i]
        if fixed is not None:
            times = now + fixed[0], now + fixed[1], now + fixed[2]
            for r in self.written[i]:
                state.ready[r] = times
            for r in self.read_twice[i]:
                state.busy_reads[r] = now + _MULTI_PASS_READ_CYCLES
        if self.sync[i]:
            state.quiet = max(state.quiet, now + self.sync[i])
        defs = self.defs[i]
        if self.is_cs2r[i]:
            state.cs2r |= defs
        else:
            state.cs2r &= ~defs
        if self.inserted[i]:
            state.inserted |= defs
        else:
            state.inserted &= ~defs
        state.now = now + max(1, self.control[i].stall)

    def mend(self, i: int, state: _State) -> None:
        """Adds what instruction `i` needs in `state`."""
        uses, defs = self.uses[i], self.defs[i]
        touched = self.needed_uses[i] | self.needed_defs[i]
        if not touched:
            return
        fresh = uses if self.inserted[i] else uses & state.inserted
        if state.pending:
            self._mend_waits(i, state.pending, touched)
        now = state.now
        late_cycles = 0
        if self.inserted[i] and minds_sync(self.latency[i]):
            late_cycles = max(0, state.quiet - now)
        is_store = self.inserted[i] and self.name[i] == "STS"
        overwritten = defs & self.watched
        for r in members(fresh | overwritten):
            known = state.ready.get(r)
            if known is None or known[0] <= now:
                continue
            ready, storable, lands = known
            bit = 1 << r
            if bit & fresh:
                late_cycles = max(late_cycles, (storable if is_store else ready) - now)
            if bit & overwritten:
                alike = bit & state.cs2r and self.is_cs2r[i]
                own = self.lands_early[i] - 1
                first = ready - now - _CS2R_ORDER_SLACK + own if alike else max(0, lands - now)
                late_cycles = max(late_cycles, first - own)
        for r in members(overwritten) if state.busy_reads else ():
            late_cycles = max(late_cycles, state.busy_reads.get(r, now) - now)
        if late_cycles > 0:
            block = self.program.blocks[int(self.program.block_of[i])]
            self._lengthen(block.index, i, late_cycles, frozenset())
            state.now += late_cycles

    def _mend_waits(self, i: int, pending: int, touched: int) -> None:
        """Waits of instruction `i`, which touches these registers, for what is `pending`."""
        defs = self.defs[i]
        concerned = 0
        for r in members(touched):
            concerned |= self.arriving.get(r, 0)
        for r in members(defs):
            concerned |= self.reading.get(r, 0)
        concerned &= pending
        if not concerned:
            return
        over = 0
        for e in members(self.needs[i] & pending):
            over |= self.done[e]
        for e in members(concerned & ~over):
            event = self.events[e]
            j = event.instruction
            if event.arrival:
                self._wait(i, e)
            elif j != i and not self._reads_in_order(j, i):
                arrival = self.arrives.get(j)
                slow = arrival is None or self.events[arrival].cycles >= _LONG_CYCLES
                if slow or self.wanted[e] or not self.wanted[arrival if arrival is not None else e]:
                    self._wait(i, e)
                else:
                    assert arrival is not None
                    self._wait(i, arrival)

    def _reads_in_order(self, first: int, second: int) -> bool:
        """Whether the second instruction can't give its result before the first has read.

        Left to ptxas's own order where there is no new one: waits are as they were there.
        """
        if self.moved is None or not (self.variable[first] and self.variable[second]):
            return False
        return self.name[first] in _READ_IN_ORDER and self.name[second] in _READ_IN_ORDER

    def _wait(self, i: int, e: int) -> None:
        if not self.wanted[e]:
            cover = self.cover.get(e)
            block = self.program.block_of[i]
            if (
                cover is not None
                and self.events[cover].instruction < i
                and self.program.block_of[self.events[cover].instruction] == block
            ):
                e = cover
            else:
                self.wanted[e] = True
        if not (self.needs[i] >> e) & 1:
            self.needs[i] |= 1 << e
            self.changed = True

    def raise_stall(self, i: int, cycles: int) -> int:
        """Lengthens the stall of `i`; returns what did not fit."""
        c = self.control[i]
        stall = min(MAX_STALL, c.stall + cycles)
        if stall != c.stall:
            self.control[i] = replace(c, stall=stall)
            self.changed = True
        return cycles - (stall - c.stall)

    def _lengthen(self, b: int, end: int, cycles: int, seen: frozenset[int]) -> None:
        """Adds `cycles` of stall before instruction `end` of block `b`, and before that."""
        block = self.program.blocks[b]
        for j in range(end - 1, block.start - 1, -1):
            cycles = self.raise_stall(j, cycles)
            if cycles <= 0:
                return
        if b in seen or not self.predecessors[b]:
            raise UnsupportedError(
                "a result is not ready in time and no stall can cover it",
                code="latency",
                kernel=self.program.name,
                offset=16 * end,
            )
        for p in self.predecessors[b]:
            self._lengthen(p, self.program.blocks[p].end, cycles, seen | {b})

    def round(self) -> None:
        """One dataflow to the fixpoint, then one pass of mends."""
        blocks = self.program.blocks
        states: list[_State | None] = [None] * len(blocks)
        for f in self.program.functions:
            states[int(self.program.block_of[f.start])] = _State()
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
            for s in self.successors[b]:
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

    # -- control words --------------------------------------------------------------------------

    def write_scoreboards(self) -> None:
        """Assigns scoreboards and turns needs into wait masks."""
        boards, waits = assign(
            self.program, self.successors, self.events, self.wanted, self.needs,
            self.done, self.reserved,
            [c.stall for c in self.control], self._tries(),
        )  # fmt: skip
        none = SCOREBOARDS + 1
        for i, c in enumerate(self.control):
            write = self.arrives.get(i)
            read = self.has_read.get(i)
            self.control[i] = ControlWord(
                c.stall,
                c.yield_bit,
                none if write is None else boards.get(write, none),
                none if read is None else boards.get(read, none),
                waits[i] | (c.wait_mask & self.reserved),
                c.reuse,
            )

    def _tries(self) -> list[int]:
        """Walks through each block that false waits are worth: only where the order is new."""
        moved = self.moved
        if moved is None:
            return []
        return [
            min(_MOST_TRIES, _TRIED_INSTRUCTIONS // (block.end - block.start + 1))
            if any(moved.free[block.start : block.end])
            else 0
            for block in self.program.blocks
        ]

    def two_cycle_rule(self) -> None:
        """A setter of a scoreboard stands at least 2 cycles before a waiter on it."""
        for block in self.program.blocks:
            nexts = [(i, i + 1) for i in range(block.start, block.end - 1)]
            nexts += [
                (block.end - 1, self.program.blocks[s].start) for s in self.successors[block.index]
            ]
            for i, j in nexts:
                c = self.control[i]
                waits = self.control[j].wait_mask
                if c.stall < 2 and any(
                    k < SCOREBOARDS and (waits >> k) & 1
                    for k in (c.write_scoreboard, c.read_scoreboard)
                ):
                    self.control[i] = replace(c, stall=2)


def _as_ordered(program: Program) -> tuple[dict[int, int], dict[int, int], list[int]]:
    """Of a program as it is: the events of arrival and of reading by instruction, and the events
    that each instruction's wait mask covers. Kept with the program."""
    known: tuple[dict[int, int], dict[int, int], list[int]] | None = program.memo.get("waits")
    if known is None:
        old = _Repair(program, [False] * len(program))
        known = old.arrives, old.has_read, old.covered_needs
        program.memo["waits"] = known
    return known


def _taken_into_use(defs: Sequence[int], inserted: Sequence[bool]) -> int:
    """Uniform registers that inserted instructions write and the original ones do not."""
    new = old = 0
    for mask, is_new in zip(defs, inserted, strict=True):
        if is_new:
            new |= mask
        else:
            old |= mask
    return new & ~old & FILE_MASK[RegisterFile.UGPR]


def _counted_scoreboards(program: Program) -> int:
    """Scoreboards that a DEPBAR counts down on (bits 44 to 46), as a mask."""
    mask = 0
    code = program.code
    for i, form in enumerate(code.form_indices):
        if code.table.forms[form].name == "DEPBAR":
            mask |= 1 << ((int(code.words[i, 0]) >> 44) & 7)
    return mask


def _successors(program: Program, b: int) -> list[int]:
    """Successors in time: also from a call into the callee, from a return to its call sites."""
    block = program.blocks[b]
    result = list(block.successors)
    last = block.end - 1
    if last in program.callee:
        result.append(int(program.block_of[program.functions[program.callee[last]].start]))
    if program.control[last] == "return":
        for site in program.calls_by_function[block.function]:
            result.append(int(program.block_of[site + 1]))
    return result


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
