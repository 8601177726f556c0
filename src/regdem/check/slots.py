"""Which LDS and STS of a rewritten program reach slots, and which slot each reaches.

Method: a forward analysis gives every register of the rewritten program an expression
(`expressions.py`) or none. Where the address register of a 32-, 64- or 128-bit LDS or STS has
one, the address is computed for every thread of the block. The access is to a slot when, in
every thread, it lies at or above the end of the original's own shared memory and inside the
rewritten kernel's shared section; the original's accesses are taken to stay inside the
original's section. Slots are named by (address expression's values, byte offset / 4); that two
names never share a byte is verified for all threads at once in `layout.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regdem.check.expressions import BlockShape, Expressions, operation_of
from regdem.check.graph import Graph, closure_over_calls, solve
from regdem.check.places import FILE_BASE
from regdem.check.purity import never_happens
from regdem.check.view import CodeView

WORDS_OF_SIZE = {4: 1, 5: 2, 6: 4}
"""32-bit words by the memory size field, bits 73 to 75."""

_Held = dict[int, int]


@dataclass(frozen=True)
class SharedAccess:
    """An LDS or STS whose address is known in every thread.

    `base` numbers the expression of the register part; the address is its value + `offset`.
    """

    instruction: int
    is_store: bool
    base: int
    offset: int
    words: int


@dataclass
class _Registers:
    """The domain: place (general or uniform register) -> expression number."""

    view: CodeView
    graph: Graph
    expressions: Expressions
    changed: dict[int, int]

    def step(self, i: int, held: _Held) -> None:
        view = self.view
        result: int | None = None
        if never_happens(view, i):
            return
        if view.guard[i] < 0 and len(view.writes[i]) >= 1:
            operation = operation_of(view.low[i], view.high[i])
            if operation is not None:
                result = self.expressions.result(
                    operation,
                    lambda kind, r: held.get(r if kind == "gpr" else FILE_BASE[1] + r),
                )
        general = [place for place in view.writes[i] if place < FILE_BASE[2]]
        for place in general:
            held.pop(place, None)
        if result is not None and len(general) == 1:
            held[general[0]] = result

    def transfer(self, block: int, state: _Held) -> _Held:
        held = dict(state)
        for i in range(self.graph.start[block], self.graph.end[block]):
            self.step(i, held)
        return held

    def edge(self, block: int, state: _Held, taken: bool) -> _Held:
        del block, taken
        return state

    def meet(self, state: _Held, other: _Held) -> tuple[_Held, bool]:
        met = {r: e for r, e in state.items() if other.get(r) == e}
        return met, len(met) != len(state)

    def after_call(self, block: int, before: _Held, returned: _Held) -> _Held:
        changed = self.changed[self.graph.callee(block)]
        kept = {r: e for r, e in before.items() if not changed >> r & 1}
        return {**returned, **kept}


def signed_offset(low: int) -> int:
    """The signed 24-bit byte offset of a memory instruction."""
    value = low >> 40 & 0xFFFFFF
    return value - (1 << 24) if value >> 23 else value


def shared_accesses(view: CodeView, graph: Graph, expressions: Expressions) -> list[SharedAccess]:
    """All LDS and STS of a program whose addresses have expressions, in code order."""
    wanted = {
        i
        for i, name in enumerate(view.name)
        if name in ("LDS", "STS") and not never_happens(view, i)
    }
    if not wanted:
        return []
    changed = closure_over_calls(graph, lambda i: _mask(view.writes[i])) if graph.sites else {}
    domain = _Registers(view, graph, expressions, changed)
    start: _Held = {}
    states = solve(graph, domain, start).at
    found: list[SharedAccess] = []
    for block, state in states.items():
        held = dict(state)
        for i in range(graph.start[block], graph.end[block]):
            if i in wanted:
                access = _access(view, i, held, expressions)
                if access is not None:
                    found.append(access)
            domain.step(i, held)
    return sorted(found, key=lambda access: access.instruction)


def _access(
    view: CodeView, i: int, held: Mapping[int, int], expressions: Expressions
) -> SharedAccess | None:
    words = WORDS_OF_SIZE.get(view.high[i] >> 9 & 7)
    if words is None:
        return None
    base: int | None = None
    is_store = view.name[i] == "STS"
    data = 32 if is_store else 16
    for row in view.rows[i]:
        if row.bit == data or not row.reads:
            continue
        part = held.get(row.first)
        if part is None or row.width != 1:
            return None
        base = part if base is None else expressions.intern(("add", 0, base, part))
    if base is None:
        base = expressions.intern(("imm", 0))
    return SharedAccess(i, is_store, base, signed_offset(view.low[i]), words)


def _mask(places: tuple[int, ...]) -> int:
    mask = 0
    for place in places:
        mask |= 1 << place
    return mask


@dataclass
class SlotMap:
    """Slot accesses of a program: instruction -> the slot words it reaches, as slot numbers.

    `keys[s]` is (expression number, byte offset) of slot s.
    """

    words: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    keys: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


def slot_accesses(
    accesses: list[SharedAccess],
    expressions: Expressions,
    shape: BlockShape,
    first_byte: int,
    end_byte: int,
) -> SlotMap:
    """Pick the accesses that lie in [first_byte, end_byte) of the window in every thread."""
    values: dict[int, NDArray[np.int64] | None] = {}
    canonical: dict[bytes, int] = {}
    names: dict[int, int] = {}
    slots = SlotMap()
    numbers: dict[tuple[int, int], int] = {}
    for access in accesses:
        if access.base not in values:
            computed = expressions.evaluate(access.base, shape)
            values[access.base] = None if computed is None else computed.astype(np.int64)
            if computed is not None:
                names[access.base] = canonical.setdefault(computed.tobytes(), access.base)
        base = values[access.base]
        if base is None:
            continue
        low = base + access.offset
        if int(low.min()) < first_byte or int(low.max()) + 4 * access.words > end_byte:
            continue
        keys = [(names[access.base], access.offset + 4 * w) for w in range(access.words)]
        slots.words[access.instruction] = tuple(
            numbers.setdefault(key, len(numbers)) for key in keys
        )
    slots.keys.extend(numbers)
    return slots
