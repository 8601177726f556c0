"""Uniform registers that a rewrite took into use: one value each, the same wherever it is written.

Problem: a uniform register belongs to the warp. Where threads have diverged, one of them may write
it between another's write and read, so that following one thread proves nothing. A rewrite may keep
a value in a uniform register nevertheless, if no write can ever change what is in there.

Method: a register counts as *new* when the rewritten program moves a thread's register into it
(`R2UR`), or writes it with constants only (`ULDC`, `UMOV`), and the original does not name it. Only
plain, unguarded moves of these kinds may write it, and every one must write the same number: an
expression over immediates, constant banks and the block's index, followed through registers and
slots from the entry (`launch_values`). Such a number is the same in all threads of the block and at
all times, so that the lane that is read does not matter, nor who writes last. What a thread reads
behind a write of its own is then that number; that it has written before it reads is what the
dataflow proves, which takes the register for one more place.

Not claimed: anything about uniform registers of the original, which keep their numbers and their
instructions (`pair.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from regdem.check.expressions import SR_CGA_CTA_ID, SR_CTAID
from regdem.check.findings import Finding
from regdem.check.graph import Graph, closure_over_calls, solve
from regdem.check.places import FILE_BASE, place_name
from regdem.check.purity import is_pure, never_happens
from regdem.check.returns import copied_register
from regdem.check.state import ZERO
from regdem.check.view import CodeView

_RZ, _URZ = 255, 63
_TO_UNIFORM, _FROM_UNIFORM = 0x2CA, 0xC02
_ULDC, _UMOV = 0xAB9, 0x882
_REST_HIGH = (1 << 41) - 1
_TO_UNIFORM_HIGH = 0x000E0000
_FROM_UNIFORM_HIGH = 0x08000F00
_SPECIAL = frozenset({"S2R", "S2UR"})
_BLOCK_WIDE = frozenset({*SR_CTAID, SR_CGA_CTA_ID})

_Node = tuple[int, ...]
_Held = dict[int, _Node]
_Slots = Mapping[int, tuple[int, ...]]


def is_move_to_uniform(low: int, high: int) -> bool:
    """Whether this is `R2UR URd, Ra` with nothing else to it (guard aside)."""
    return low & 0xFFF == _TO_UNIFORM and not low >> 32 and high & _REST_HIGH == _TO_UNIFORM_HIGH


def uniform_constants(low: int, high: int) -> tuple[tuple[str, int], ...]:
    """The words (as in `operands.py`) that a plain `ULDC`, `ULDC.64` or `UMOV` moves, or none."""
    opcode, upper, rest = low & 0xFFF, low >> 32, high & _REST_HIGH
    if low >> 24 & 0xFF:
        return ()
    if opcode == _UMOV and not rest:
        return (("immediate", upper),)
    if opcode != _ULDC or rest not in (0x800, 0xA00) or upper & 0xF800003F:
        return ()
    place = (upper >> 22 & 0x1F) << 16 | upper >> 6 & 0xFFFF
    return tuple(("bank", place + 4 * k) for k in range(1 if rest == 0x800 else 2))


def copied_place(low: int, high: int) -> int | None:
    """The place that a plain 32-bit move copies, in either direction; None where it is none."""
    if is_move_to_uniform(low, high):
        source = low >> 24 & 0xFF
    elif low & 0xFFF == _FROM_UNIFORM:
        number = low >> 32
        if number > _URZ or high & _REST_HIGH != _FROM_UNIFORM_HIGH:
            return None
        return ZERO if number == _URZ else FILE_BASE[1] + number
    else:
        register = copied_register(low, high)
        if register is None:
            return None
        source = register
    return ZERO if source == _RZ else source


def is_uniform_register(place: int) -> bool:
    """Whether a place is a uniform register (no predicate)."""
    return FILE_BASE[1] <= place < FILE_BASE[2]


def new_registers(original: CodeView, rewritten: CodeView) -> frozenset[int]:
    """Uniform registers that the rewritten program moves values into and the original has not."""
    moved: set[int] = set()
    constant: set[int] = set()
    computed: set[int] = set()
    for j, places in enumerate(rewritten.writes):
        if not places or not is_uniform_register(places[0]):
            continue
        if rewritten.name[j] == "R2UR":
            moved.update(places)
        elif uniform_constants(rewritten.low[j], rewritten.high[j]):
            constant.update(places)
        else:
            computed.update(places)
    moved |= constant - computed
    return frozenset(moved - _uniform_places(original)) if moved else frozenset()


def _uniform_places(view: CodeView) -> set[int]:
    return {
        place
        for i in range(len(view))
        for place in (*view.reads[i], *view.writes[i])
        if is_uniform_register(place)
    }


def keeps_in(view: CodeView, j: int, new: frozenset[int]) -> bool:
    """Whether instruction `j` puts a value into a new uniform register."""
    low, high = view.low[j], view.high[j]
    is_plain = is_move_to_uniform(low, high) or bool(uniform_constants(low, high))
    return is_plain and bool(view.writes[j]) and new.issuperset(view.writes[j])


def reads_new(view: CodeView, j: int, new: frozenset[int]) -> bool:
    """Whether instruction `j` reads a new uniform register."""
    return bool(new) and any(place in new for place in view.reads[j])


def uniform_findings(
    view: CodeView, graph: Graph, slots: _Slots, new: frozenset[int], inserted: frozenset[int]
) -> list[Finding]:
    """What speaks against the new uniform registers of a rewritten program.

    `slots` maps LDS and STS to the places they reach; `inserted` are the instructions that are not
    the original's.
    """
    if not new:
        return []
    writers = {j for j in range(len(view)) if any(p in new for p in view.writes[j])}
    findings: list[Finding] = []

    def report(j: int, message: str) -> None:
        findings.append(Finding("uniform_write", view.kernel, 16 * j, f"{view.name[j]} {message}"))

    values = launch_values(view, graph, slots, writers)
    known: dict[int, _Node] = {}
    for j in sorted(writers):
        if j not in inserted or not keeps_in(view, j, new) or view.guard[j] >= 0:
            report(j, "writes a uniform register that is kept for one value")
            continue
        value = values.get(j)
        for k, place in enumerate(view.writes[j]):
            name = place_name(place)
            if value is None:
                report(j, f"writes {name} with what may differ between threads or times")
            elif known.setdefault(place, (*value, k)) != (*value, k):
                report(j, f"writes {name} with another value than elsewhere")
    return findings


class _Values:
    """The domain: place -> number of a value that is the same throughout the block's run.

    Numbers are hash-consed: equal ones are the same operation on the same numbers.
    """

    def __init__(self, view: CodeView, graph: Graph, slots: _Slots) -> None:
        self.view = view
        self.graph = graph
        self.slots = slots
        self._numbers: dict[tuple[int, tuple[_Node, ...]], int] = {}
        self._changed = closure_over_calls(graph, self._written) if graph.sites else {}

    def step(self, i: int, held: _Held) -> None:
        view = self.view
        words = self.slots.get(i)
        if words is not None and view.name[i] in ("STS", "STL"):
            found = [held.get(p) for p in _stored(view, i, len(words))]
            places: tuple[int, ...] = words
        else:
            places = view.writes[i]
            if not places:
                return
            found = self._results(i, words, held)
        unguarded = view.guard[i] < 0 and not never_happens(view, i)
        for place, value in zip(places, found, strict=True):
            if unguarded and value is not None:
                held[place] = value
            else:
                held.pop(place, None)

    def _results(self, i: int, words: tuple[int, ...] | None, held: _Held) -> list[_Node | None]:
        view = self.view
        nothing: list[_Node | None] = [None] * len(view.writes[i])
        if words is not None:
            return [held.get(place) for place in words]
        if len(nothing) == 1:
            source = copied_place(view.low[i], view.high[i])
            if source is not None:
                return [held.get(source)]
        if not is_pure(view, i):
            return nothing
        name = view.name[i].partition(".")[0]
        if name in _SPECIAL and (view.high[i] >> 8 & 0xFF) not in _BLOCK_WIDE:
            return nothing
        operands: list[_Node] = []
        for place in view.reads[i]:
            value = held.get(place)
            if value is None:
                return nothing
            operands.append(value)
        key = (view.masked[i], tuple(operands))
        number = self._numbers.setdefault(key, len(self._numbers))
        return [(number, k) for k in range(len(nothing))]

    def transfer(self, block: int, state: _Held) -> _Held:
        held = dict(state)
        for i in range(self.graph.start[block], self.graph.end[block]):
            self.step(i, held)
        return held

    def edge(self, block: int, state: _Held, taken: bool) -> _Held:
        del block, taken
        return state

    def meet(self, state: _Held, other: _Held) -> tuple[_Held, bool]:
        met = {place: value for place, value in state.items() if other.get(place) == value}
        return met, len(met) != len(state)

    def after_call(self, block: int, before: _Held, returned: _Held) -> _Held:
        changed = self._changed[self.graph.callee(block)]
        return {**returned, **{p: v for p, v in before.items() if not changed >> p & 1}}

    def _written(self, i: int) -> int:
        mask = 0
        for place in (*self.view.writes[i], *self.slots.get(i, ())):
            mask |= 1 << place
        return mask


def launch_values(
    view: CodeView, graph: Graph, slots: _Slots, wanted: set[int]
) -> dict[int, _Node]:
    """What each wanted instruction writes first, where that is one number all through a block's
    run."""
    domain = _Values(view, graph, slots)
    start: _Held = {ZERO: (-1,)}
    found: dict[int, _Node] = {}
    for block, state in solve(graph, domain, start).at.items():
        inside = range(graph.start[block], graph.end[block])
        if not any(i in wanted for i in inside):
            continue
        held = dict(state)
        for i in inside:
            domain.step(i, held)
            if i in wanted and view.writes[i] and view.writes[i][0] in held:
                found[i] = held[view.writes[i][0]]
    return found


def _stored(view: CodeView, i: int, words: int) -> tuple[int, ...]:
    for row in view.rows[i]:
        if row.bit == 32 and row.reads:
            return tuple(range(row.first, row.first + row.width))
    return (ZERO,) * words
