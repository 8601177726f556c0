"""What completes late in a program, and which of it each instruction waited for as it came.

Every variable-latency instruction makes up to two *events*: its results arrive, its sources have
been read. ptxas names events by scoreboard; here each event stands for itself, since scoreboards
are given out again after a rewrite (`transform/scoreboards.py`).

Method: a forward dataflow over the original wait masks gives the events that each wait covers.
Those that the instruction depends on stay waited for there; those that only shared a scoreboard
with them wait for their own first user (`transform/hazards.py`). Where instructions stand in a new
order (`Moved`), the waits are those of the program before, and what was ordered anew has none.

ptxas marks only the last of a group of in-order loads: an unmarked event is over when the next
marked one of its kind is. A scoreboard on which a DEPBAR counts down keeps its events.

Invariants: an event has one instruction; what is waited for here was waited for in the original.
Not claimed: that it is enough. What inserting and moving add is found by `transform/hazards.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regdem.analysis.bits import FILE_MASK, def_masks, members, use_masks
from regdem.isa.control import SCOREBOARDS, get_control
from regdem.isa.decoded import RegisterFile
from regdem.program.program import Program
from regdem.transform.latencies import LATENCY_CYCLES, READ_CYCLES
from regdem.transform.scoreboards import Event, counted_scoreboards

_GPR = FILE_MASK[RegisterFile.GPR]
_PLAIN = frozenset(
    {"alu", "fma", "imad", "imad_wide", "half", "half_mma", "fp64", "mufu", "mma", "memory_global",
     "memory_shared", "memory_local", "memory_constant"}
)  # fmt: skip
"""Instructions that wait for nothing but what they read and overwrite."""
_IN_ORDER = frozenset({"LDS", "LDSM", "LDC", "MUFU"})
"""Loads and functions whose results arrive in order, each among its own kind. Global loads
don't."""


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


class LateEvents:
    """The late events of a program, the registers they concern, and who waits for them.

    `inserted[i]`: instruction i is not of the original. By instruction: `name`, `latency` (class),
    `variable` (whether a scoreboard tells of it), `control` (as it came), `uses` and `defs` (masks
    of the registers looked after: general ones, and uniform ones taken into use),
    `needed_uses` and `needed_defs` (of those that must have arrived). `watched`: registers whose
    order of writes is looked after. `reserved`: scoreboards (mask) that a DEPBAR counts down on.
    `successors`: blocks next in time, by block.

    Masks of events have a bit for each index in `events`. `arrives` and `has_read` give the event
    of an instruction, `begins[i]` those that it starts, `arriving` and `reading` those that concern
    a register, `done[e]` those that are over when e is; `cover` gives the marked event that tells
    of an unmarked one; `wanted[e]`: whether e may be waited for. `covered_needs[i]`: what the
    original wait of an instruction covers; `needs[i]`: what of it the instruction has to wait for.
    """

    def __init__(
        self, program: Program, inserted: Sequence[bool], moved: Moved | None = None
    ) -> None:
        code = program.code
        self.program = program
        self.moved = moved
        all_uses, all_defs = use_masks(code), def_masks(code)
        own = _GPR | _taken_into_use(all_defs, inserted)
        self.uses = [m & own for m in all_uses]
        self.defs = [m & own for m in all_defs]
        # What must have arrived: without a new order, other files are as safe as they were.
        self.needed_uses = self.uses if moved is None else all_uses
        self.needed_defs = self.defs if moved is None else all_defs
        self.watched = own if moved is None else moved.watched
        self._other_defs = [bool(m & ~_GPR) for m in all_defs]
        forms = code.table.forms
        self.name = [forms[f].name for f in code.form_indices]
        self.latency = [forms[f].latency for f in code.form_indices]
        self.variable: list[bool] = code.table.variable_latency[code.form].tolist()
        self.control = [get_control(int(hi)) for hi in code.words[:, 1].tolist()]
        self.reserved = counted_scoreboards(program)
        self.successors = [_successors(program, b.index) for b in program.blocks]
        self._make_events()
        self.done: list[int] = [self._done_with(e.index) for e in self.events]
        self._look_up()
        self.covered_needs = self._original_needs() if moved is None else self._carried_needs(moved)
        self.needs = [self._true_needs(i, m) for i, m in enumerate(self.covered_needs)]

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
        self._covered: dict[int, int] = {}
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
                    self._covered[e] = self._covered.get(e, 0) | (1 << other)

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

    def _done_with(self, e: int) -> int:
        """All events that are over when event `e` is."""
        result = (1 << e) | self._covered.get(e, 0)
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
            if event.pinned or self._other_defs[j]:
                result |= 1 << e
            elif event.arrival:
                if not self.defs[j] or self.defs[j] & (self.uses[i] | self.defs[i]):
                    result |= 1 << e
            elif not self.uses[j] or self.uses[j] & self.defs[i]:
                result |= 1 << e
        return result


def _as_ordered(program: Program) -> tuple[dict[int, int], dict[int, int], list[int]]:
    """Of a program as it is: the events of arrival and of reading by instruction, and the events
    that each instruction's wait mask covers. Kept with the program."""
    known: tuple[dict[int, int], dict[int, int], list[int]] | None = program.memo.get("waits")
    if known is None:
        old = LateEvents(program, [False] * len(program))
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
