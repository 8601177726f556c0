"""Dataflow equivalence: both programs, step by step, with a symbolic state.

Idea (regalloc2's checker, as a translation validator between two machine programs): run original
and rewritten program along the same paths and keep, for every place of the rewritten program,
which values of the original it holds (`state.py`). Then

- every register operand of every instruction of the original must be held by the corresponding
  operand of its partner, element by element, at least where the instruction's guard is true;
- the two guards must be the same value; the instructions are equal in all other bits;
- results are then equal: each destination holds the original's new value, and all other copies
  of the old value are stale;
- inserted instructions write places only: moves, slot accesses and copies of pure instructions
  of the original pass facts on, everything else leaves its destination unknown;
- dropped instructions happen in the original only: moves and private local accesses pass values
  on, other pure ones make their value one that only an inserted copy can produce again;
- the rewritten program's private stack words are places, too: only a store that is still there
  fills one, and a load that is still there must find the original's word in it.

Where straight-line code was reordered, the original is run in that order, proved to be as good
(`order.py`); registers then have versions, which become the registers' values at a *commit*.

Since all effects on memory, other threads and control flow come from matched instructions, in
the same order, with equal operands, the programs do the same. Not claimed: anything about
timing (that is `hazards`), about the numbers of slots (that is `layout`), or about programs whose
result depends on registers they never wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from regdem.check.expressions import RZ
from regdem.check.findings import Finding
from regdem.check.graph import closure_over_calls, solve
from regdem.check.locals import data_reads
from regdem.check.operands import Word, copied_constants
from regdem.check.order import Commit
from regdem.check.places import FILE_BASE, MEMORY_BASE, place_name
from regdem.check.product import Product
from regdem.check.purity import is_nop, is_pure, never_happens
from regdem.check.returns import copied_register
from regdem.check.state import ALWAYS, NOTHING, UNKNOWN, ZERO, Facts, State
from regdem.check.uniform import copied_place
from regdem.check.view import CodeView, read_at

_MOST_FINDINGS = 20
_SRZ = 0xFF
"""The special register that is always zero."""
_Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PureFact:
    """A pure instruction of the original as something to recompute."""

    bit: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class Programs:
    """Both programs and what was found out about each alone.

    `private` maps LDL and STL of the original to the values they reach; `slots` maps LDS and STS
    of the rewritten program to the places they reach. Accesses in `located` have partners with an
    equal address, whatever its register. `commits` come behind instructions of the original
    (`order.py`). `constants` are the values of words that operands name (`operands.py`); what the
    instructions in `addresses` (of the original, of the rewritten program) move is none of them.
    """

    original: CodeView
    rewritten: CodeView
    private: dict[int, tuple[int, ...]]
    slots: dict[int, tuple[int, ...]]
    product: Product
    located: frozenset[int] = frozenset()
    commits: Mapping[int, Commit] = field(default_factory=dict[int, Commit])
    constants: Mapping[Word, int] = field(default_factory=dict[Word, int])
    addresses: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())


@dataclass
class _Facts:
    """The original's pure instructions, by what they compute."""

    by_masked: dict[int, list[PureFact]] = field(default_factory=dict[int, list[PureFact]])
    of_instruction: dict[int, int] = field(default_factory=dict[int, int])
    touching: dict[int, int] = field(default_factory=dict[int, int])  # value -> mask of facts


def _loose(programs: Programs) -> set[int]:
    """Masked instructions of which the programs have different numbers, or that moved.

    Only a copy of one of these can stand for another instruction than its partner.
    """
    steps = programs.product.steps
    return {programs.rewritten.masked[j] for i, j in steps if i < 0} | {
        programs.original.masked[i] for i, j in steps if j < 0
    }


def _pure_facts(programs: Programs) -> _Facts:
    view = programs.original
    facts = _Facts()
    loose = _loose(programs)
    numbers: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
    for i in range(len(view)):
        if view.masked[i] not in loose or view.guard[i] >= 0:
            continue
        if not view.writes[i] or not is_pure(view, i):
            continue
        if set(view.reads[i]) & set(view.writes[i]):
            continue
        key = (view.masked[i], view.reads[i], view.writes[i])
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(numbers)
            fact = PureFact(1 << number, view.reads[i], view.writes[i])
            facts.by_masked.setdefault(view.masked[i], []).append(fact)
            for value in (*view.reads[i], *view.writes[i]):
                facts.touching[value] = facts.touching.get(value, 0) | 1 << number
        facts.of_instruction[i] = 1 << number
    return facts


@dataclass(frozen=True)
class _Step:
    """What one step does, looked up once."""

    i: int
    j: int
    guard: int  # condition of the original's guard, or ALWAYS
    guard_place: int  # place of the rewritten guard, or -1
    negated: int
    reads: _Pairs
    writes: _Pairs
    values: int  # mask of values the original writes
    copies: _Pairs  # values (destination, source) where the original copies
    moves: _Pairs  # places (destination, source) where the rewritten program copies
    recompute: tuple[PureFact, ...]
    stale: int  # facts about the original that end here
    fresh: int  # and that begins here
    commit: Commit | None  # what the original's versions become behind this step
    changed: int  # mask of values that the original writes here or by the commit


class DataflowCheck:
    """The domain of the fixpoint, and the reporting pass behind it."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.graph = programs.product.graph
        self._facts = _pure_facts(programs)
        slots = [place for words in programs.slots.values() for place in words]
        self._first_frame_place = max(slots, default=MEMORY_BASE - 1) + 1
        self._steps = [self._look_up(i, j) for i, j in programs.product.steps]
        self._findings: list[Finding] = []
        self._reporting = False
        if self.graph.sites:
            self._values = closure_over_calls(self.graph, lambda k: self._steps[k].changed)
            self._places = closure_over_calls(self.graph, self._written_places)
            self._stale = closure_over_calls(self.graph, lambda k: self._steps[k].stale)
        else:
            self._values = {}
            self._places = {}
            self._stale = {}

    def findings(self) -> list[Finding]:
        """Solve, then walk every reachable block once and report."""
        values = 0
        for step in self._steps:
            values |= step.values
            for value, _ in step.reads:
                values |= 1 << value
        for words in self.programs.private.values():
            for word in words:
                values |= 1 << word
        for commit in self.programs.commits.values():
            values &= ~commit.dead
        entry = State.entry(values, self.programs.constants.values())
        states = solve(self.graph, self, entry).at
        self._reporting = True
        for block in sorted(states):
            self.transfer(block, states[block])
            if len(self._findings) >= _MOST_FINDINGS:
                break
        return self._findings

    # -- domain -------------------------------------------------------------------------------

    def transfer(self, block: int, state: State) -> State:
        """The state behind the last step of `block`."""
        state = state.copy()
        for k in range(self.graph.start[block], self.graph.end[block]):
            step = self._steps[k]
            if step.i < 0:
                self._inserted(step, state)
            elif step.j < 0:
                self._dropped(step, state)
            else:
                self._matched(step, state)
            if step.commit is not None:
                state.commit(step.commit.register_of, step.commit.dead)
        return state

    def edge(self, block: int, state: State, taken: bool) -> State:
        """What a branch or exit tells about its guard."""
        k = self.graph.end[block] - 1
        step = self._steps[k]
        if step.guard < 0 or step.i < 0:
            return state
        view = self.programs.original
        kind = view.control[step.i]
        if kind not in ("branch", "exit", "return", "call", "indirect"):
            return state
        if not taken and (view.rows[step.i] or (view.high[step.i] >> 23 & 0xF) != 7):
            return state
        state = state.copy()
        state.assume(step.guard if taken else step.guard ^ 1)
        return state

    def meet(self, state: State, other: State) -> tuple[State, bool]:
        """What holds on both paths."""
        return state.met_with(other)

    def after_call(self, block: int, before: State, returned: State) -> State:
        """See `State.after_call`."""
        callee = self.graph.callee(block)
        values, places, stale = self._values[callee], self._places[callee], self._stale[callee]
        return before.after_call(returned, values, places, stale)

    # -- steps --------------------------------------------------------------------------------

    def _matched(self, step: _Step, state: State) -> None:
        guard = step.guard
        if guard >= 0 and not state.holds(step.guard_place, guard >> 1):
            name = self._value_name(guard >> 1, step)
            self._report("guard", step, f"the guard isn't the original's {name}")
        for value, place in step.reads:
            if not state.holds(place, value, guard):
                name = self._value_name(value, step)
                message = f"{self._place_name(place)} doesn't hold the original's {name} here"
                self._report("stale_operand", step, message)
        if not step.writes and not step.copies:
            return
        also = self._recomputed(step, state)
        before = {source: state.facts(source) for _, source in step.moves}
        if step.copies:
            state.copy_values(step.copies, guard)
        else:
            state.redefine(step.values, guard)
        state.available &= ~step.stale
        stale = step.values
        sources = dict(step.moves)
        contents: list[tuple[int, Facts]] = []
        for value, place in step.writes:
            always = 1 << value
            if place in sources:
                always |= before[sources[place]][0] & ~stale
            always |= also.get(place, 0) & ~stale
            contents.append((place, (always, {})))
        state.write(contents, guard)
        state.available |= step.fresh

    def _dropped(self, step: _Step, state: State) -> None:
        if step.copies:
            state.copy_values(step.copies, step.guard)
        elif step.values:
            state.redefine(step.values, step.guard)
        state.available = (state.available & ~step.stale) | step.fresh

    def _inserted(self, step: _Step, state: State) -> None:
        if not step.writes:
            return
        guard = ALWAYS
        if step.guard_place >= 0:
            predicate = state.predicate_in(step.guard_place)
            guard = UNKNOWN if predicate < 0 else 2 * predicate + step.negated
        also = self._recomputed(step, state)
        sources = dict(step.moves)
        contents: list[tuple[int, Facts]] = []
        for _, place in step.writes:
            if place in sources:
                always, under = state.facts(sources[place])
                contents.append((place, (always | also.get(place, 0), under)))
            else:
                contents.append((place, (also[place], {}) if place in also else NOTHING))
        state.write(contents, guard)

    def _recomputed(self, step: _Step, state: State) -> dict[int, int]:
        """Place -> values it gets because the instruction repeats a pure one of the original."""
        found: dict[int, int] = {}
        places = self.programs.rewritten
        for fact in step.recompute:
            if not state.available & fact.bit:
                continue
            reads = places.reads[step.j]
            if all(state.holds(p, v) for v, p in zip(fact.reads, reads, strict=True)):
                for value, place in zip(fact.writes, places.writes[step.j], strict=True):
                    found[place] = found.get(place, 0) | 1 << value
        return found

    def _value_name(self, value: int, step: _Step) -> str:
        """A value in words; a version goes by its register's name."""
        if not any(commit.dead >> value & 1 for commit in self.programs.commits.values()):
            return _name(value)
        view = self.programs.original
        if value == view.guard[step.i]:
            return f"P{view.low[step.i] >> 12 & 7}"
        names = _names(view, step.i)
        return next((place_name(r) for r, v in names.items() if v == value), "value")

    def _place_name(self, place: int) -> str:
        if place < self._first_frame_place:
            return place_name(place)
        return f"stack word {place - self._first_frame_place}"

    def _report(self, kind: str, step: _Step, message: str) -> None:
        if not self._reporting or len(self._findings) >= _MOST_FINDINGS:
            return
        view = self.programs.rewritten
        text = f"{view.name[step.j]}: {message}"
        self._findings.append(Finding(kind, view.kernel, 16 * step.j, text))

    # -- looking up ---------------------------------------------------------------------------

    def _written_places(self, k: int) -> int:
        mask = 0
        for _, place in self._steps[k].writes:
            mask |= 1 << place
        return mask

    def _look_up(self, i: int, j: int) -> _Step:
        original, rewritten = self.programs.original, self.programs.rewritten
        guard = ALWAYS
        guard_place = -1
        negated = 0
        values = stale = fresh = 0
        copies: list[tuple[int, int]] = []
        if i >= 0:
            if original.guard[i] >= 0:
                guard = 2 * original.guard[i] + original.guard_negated[i]
            copies = self._original_copies(i)
            for value in (*original.writes[i], *(c[0] for c in copies)):
                values |= 1 << value
                stale |= self._facts.touching.get(value, 0)
            fresh = self._facts.of_instruction.get(i, 0)
        moves: list[tuple[int, int]] = []
        recompute: tuple[PureFact, ...] = ()
        written: tuple[int, ...] = ()
        if j >= 0:
            guard_place = rewritten.guard[j]
            negated = int(rewritten.guard_negated[j])
            moves = [] if i >= 0 and j in self.programs.slots else self._rewritten_moves(i, j)
            written = rewritten.writes[j]
            if i < 0 and rewritten.name[j] in ("STS", "STL"):
                written = tuple(place for place, _ in moves)
            if written and is_pure(rewritten, j):
                recompute = tuple(self._facts.by_masked.get(rewritten.masked[j], ()))
        both = i >= 0 and j >= 0
        reads: _Pairs = ()
        if both and i in self.programs.located:
            reads = tuple(zip(data_reads(original, i), data_reads(rewritten, j), strict=True))
        elif both:
            reads = tuple(zip(original.reads[i], rewritten.reads[j], strict=True))
        writes = (
            tuple(zip(original.writes[i], written, strict=True))
            if both
            else tuple((-1, place) for place in written)
        )
        frame = self._frame_words(i) if both else ()
        if frame and original.name[i] == "STL":
            writes += frame
            places = [place for _, place in frame]
            moves += zip(places, _stored(rewritten, j, len(places)), strict=True)
        else:
            reads += frame
        if i >= 0 and never_happens(original, i):
            reads, writes, copies, moves = (), (), [], []
            values = stale = fresh = 0
        commit = self.programs.commits.get(i)
        changed = values
        for register in () if commit is None else commit.register_of.values():
            changed |= 1 << register
            stale |= self._facts.touching.get(register, 0)
            fresh &= ~self._facts.touching.get(register, 0)
        return _Step(
            i=i,
            j=j,
            guard=guard,
            guard_place=guard_place,
            negated=negated,
            reads=reads,
            writes=writes,
            values=values,
            copies=tuple(copies),
            moves=tuple(moves),
            recompute=recompute,
            stale=stale,
            fresh=fresh,
            commit=commit,
            changed=changed,
        )

    def _frame_words(self, i: int) -> _Pairs:
        """(value, place) of the stack words that a matched private access reaches.

        The address is the original's: its register is an operand like any other, its offset is
        equal.
        """
        words = self.programs.private.get(i, ())
        return tuple((word, self._first_frame_place + word - MEMORY_BASE) for word in words)

    def _original_copies(self, i: int) -> list[tuple[int, int]]:
        view = self.programs.original
        words = self.programs.private.get(i)
        if words is not None:
            if view.name[i] == "LDL":
                return list(zip(view.writes[i], words, strict=True))
            return list(zip(words, _stored(view, i, len(words)), strict=True))
        if view.name[i] == "CS2R" and view.high[i] >> 8 & 0xFF == _SRZ:
            return [(value, ZERO) for value in view.writes[i]]
        source = copied_register(view.low[i], view.high[i])
        if source is None or len(view.writes[i]) != 1:
            return copied_constants(view, i, self.programs.constants, self.programs.addresses[0])
        return [(view.writes[i][0], ZERO if source == RZ else _names(view, i)[source])]

    def _rewritten_moves(self, i: int, j: int) -> list[tuple[int, int]]:
        view = self.programs.rewritten
        slots = self.programs.slots.get(j)
        if slots is not None:
            if view.name[j] in ("LDS", "LDL"):
                return list(zip(view.writes[j], slots, strict=True))
            return list(zip(slots, _stored(view, j, len(slots)), strict=True))
        if view.name[j] == "CS2R" and view.high[j] >> 8 & 0xFF == _SRZ:
            return [(place, ZERO) for place in view.writes[j]]
        source = copied_place(view.low[j], view.high[j])
        if source is None or len(view.writes[j]) != 1:
            numbers, addresses = self.programs.constants, self.programs.addresses[1]
            return copied_constants(view, j, numbers, addresses, uniform=i < 0)
        return [(view.writes[j][0], source)]


def _stored(view: CodeView, i: int, words: int) -> tuple[int, ...]:
    """The places a store of `words` words takes its data from."""
    return read_at(view, i, 32) or (ZERO,) * words


def _names(view: CodeView, i: int) -> dict[int, int]:
    """For each register that instruction `i` reads, the value it has there (`order.py`)."""
    registers = (row.first + e for row in view.rows[i] if row.reads for e in range(row.width))
    return dict(zip(registers, view.reads[i], strict=True))


def _name(value: int) -> str:
    return place_name(value) if value < FILE_BASE[3] + 8 else f"local word {value - MEMORY_BASE}"


def may_be_dropped(programs_private: dict[int, tuple[int, ...]], view: CodeView, i: int) -> bool:
    """Whether the rewritten program may lack this instruction of the original."""
    return is_nop(view, i) or is_pure(view, i) or i in programs_private


def may_be_inserted(slots: dict[int, tuple[int, ...]], view: CodeView, j: int) -> bool:
    """Whether the rewritten program may have this instruction on its own."""
    return is_nop(view, j) or is_pure(view, j) or j in slots
