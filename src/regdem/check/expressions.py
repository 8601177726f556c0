"""Addresses as expressions, evaluated for every thread of a block.

Problem: a rewritten kernel reaches its slots through an address register that inserted
instructions compute. The checker may not believe who inserted them, so it rebuilds what the
register holds from the bytes: a hash-consed expression over thread indices, block dimensions,
constants and constant-bank words, through the few integer operations listed here. An expression
is then evaluated with numpy for *every* thread of the block; disjointness, alignment and range of
slots become plain comparisons, with no algebra to trust.

Invariants: an instruction that isn't listed, or that has a modifier that isn't understood, has no
expression (`None`); nothing is approximated. All arithmetic is modulo 2**32.

Encodings are those of sm_90 (`docs/design/check.md` lists them).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

RZ = 255
URZ = 63

SR_LANEID = 0x00
SR_TID_X = 0x21
SR_TID_Y = 0x22
SR_TID_Z = 0x23
SR_CTAID = (0x25, 0x26, 0x27)
SR_CGA_CTA_ID = 0x88
INVARIANT_SPECIAL_REGISTERS = frozenset({SR_LANEID, SR_TID_X, SR_TID_Y, SR_TID_Z, *SR_CTAID, 0x88})
"""Special registers that keep their value for a thread's whole life."""

_MASK32 = 0xFFFFFFFF

Values = NDArray[np.uint32]
Node = tuple[str | int, ...]


@dataclass(frozen=True)
class Source:
    """One operand of an evaluable instruction, before registers are looked up.

    `kind` is "gpr", "ugpr", "imm" or "const"; `value` is a register number, a 32-bit number, or
    bank << 16 | byte offset.
    """

    kind: str
    value: int
    negated: bool = False


@dataclass(frozen=True)
class Operation:
    """What an evaluable instruction computes: `name` over `sources`, 32 bits wide."""

    name: str
    sources: tuple[Source, ...]
    parameter: int = 0


def _alu_sources(lo: int, hi: int, uniform: bool) -> tuple[Source, Source, Source] | None:
    """Operands A, B and C of the common layout, negations included.

    Bits 9-11 of the low word say what stands in bits 32-63 and whether B and C are swapped.
    """
    file = "ugpr" if uniform else "gpr"
    mask = 0x3F if uniform else 0xFF
    form = lo >> 9 & 7
    first = Source(file, lo >> 24 & mask, bool(hi >> 8 & 1))
    third = Source(file, hi & mask, bool(hi >> 11 & 1))
    negated = bool(lo >> 63 & 1)
    if form == 1:
        return first, Source(file, lo >> 32 & mask, negated), third
    if form == 2:
        return first, third, Source("imm", lo >> 32)
    if form == 4:
        return first, Source("imm", lo >> 32), third
    constant = Source("const", (lo >> 54 & 0x1F) << 16 | (lo >> 38 & 0xFFFF), negated)
    if form == 3:
        return first, third, constant
    if form == 5:
        return first, constant, third
    uniform_source = Source("ugpr", lo >> 32 & 0x3F, negated)
    if form == 6:
        return first, uniform_source, third
    if form == 7:
        return first, third, uniform_source
    return None


def _special(lo: int, hi: int) -> Operation | None:
    number = hi >> 8 & 0xFF
    if number not in INVARIANT_SPECIAL_REGISTERS:
        return None
    return Operation("special", (), number)


def _constant_load(lo: int, hi: int) -> Operation | None:
    """LDC and ULDC of one 32-bit word at a fixed place."""
    indexed = (lo >> 24 & 0xFF) != RZ if (lo & 0xFFF) == 0xB82 else (lo >> 24 & 0x3F) not in (0, 63)
    if indexed or (hi >> 9 & 7) != 4 or (hi >> 14 & 3) != 0:
        return None
    return Operation("move", (Source("const", (lo >> 54 & 0x1F) << 16 | (lo >> 38 & 0xFFFF)),))


def operation_of(lo: int, hi: int) -> Operation | None:
    """The operation of an instruction word, or None where it isn't one of those understood.

    The guard is not looked at: a guarded instruction has a result only where the guard holds,
    and callers must treat it so.
    """
    opcode = lo & 0xFFF
    if opcode in (0x919, 0x9C3):
        return _special(lo, hi)
    if opcode in (0xB82, 0xAB9):
        return _constant_load(lo, hi)
    base = lo & 0x1FF
    uniform = bool(base & 0x80)
    handler = _ALU.get(base & 0x17F)
    if handler is None or base not in _KNOWN_BASES:
        return None
    sources = _alu_sources(lo, hi, uniform)
    return None if sources is None else handler(sources, hi)


_Sources = tuple[Source, Source, Source]


def _move(sources: _Sources, hi: int) -> Operation | None:
    source = sources[2] if sources[2].kind in ("imm", "const") else sources[1]
    if source.negated or (hi >> 8 & 0xF) not in (0, 0xF):
        return None
    return Operation("move", (source,))


def _multiply_add(sources: _Sources, hi: int) -> Operation | None:
    if sources[0].negated or sources[1].negated or hi >> 10 & 1:
        return None
    return Operation("multiply_add", sources)


def _add3(sources: _Sources, hi: int) -> Operation | None:
    return None if hi >> 10 & 1 else Operation("add3", sources)


def _add(sources: _Sources, hi: int) -> Operation | None:
    del hi
    return Operation("add", sources[:2])


def _shift_add(sources: _Sources, hi: int) -> Operation | None:
    if hi >> 9 & 3 or hi >> 16 & 1:
        return None
    return Operation("shift_add", sources[:2], hi >> 11 & 0x1F)


def _logic(sources: _Sources, hi: int) -> Operation | None:
    plain = tuple(Source(s.kind, s.value) for s in sources)
    return Operation("logic", plain, hi >> 8 & 0xFF)


def _shift(sources: _Sources, hi: int) -> Operation | None:
    flags = hi >> 8 & 0x1FF
    first, amount, third = sources
    if flags == 0x116 and first == Source("gpr", RZ):  # .R.U32.HI of RZ and the value
        return Operation("shift_right", (third, Source(amount.kind, amount.value)))
    if flags == 0x006:  # .L.U32
        return Operation("shift_left", (first, Source(amount.kind, amount.value)))
    return None


_ALU: dict[int, Callable[[_Sources, int], Operation | None]] = {
    0x002: _move,
    0x024: _multiply_add,
    0x010: _add3,
    0x036: _add,
    0x011: _shift_add,
    0x012: _logic,
    0x019: _shift,
}
_KNOWN_BASES = frozenset(
    (0x002, 0x082, 0x024, 0x0A4, 0x010, 0x090, 0x036, 0x011, 0x091, 0x012, 0x092, 0x019)
)


@dataclass(frozen=True)
class BlockShape:
    """The launch a block of threads belongs to; thread indices in linear order, x fastest."""

    x: int
    y: int = 1
    z: int = 1
    dynamic_shared_bytes: int = 0
    cluster_rank: int = 0

    @property
    def threads(self) -> int:
        """Threads in the block."""
        return self.x * self.y * self.z

    def special(self, number: int) -> Values | None:
        """The values of a special register in all threads, or None where it isn't known."""
        linear = np.arange(self.threads, dtype=np.uint32)
        if number == SR_TID_X:
            return linear % np.uint32(self.x)
        if number == SR_TID_Y:
            return linear // np.uint32(self.x) % np.uint32(self.y)
        if number == SR_TID_Z:
            return linear // np.uint32(self.x * self.y)
        if number == SR_LANEID:
            return linear % np.uint32(32)
        if number == SR_CGA_CTA_ID:
            return np.full(self.threads, self.cluster_rank, np.uint32)
        return None

    def constant(self, address: int) -> int | None:
        """The word at bank << 16 | offset on sm_90, or None where it isn't known."""
        known = {0x00: self.x, 0x04: self.y, 0x08: self.z, 0x2C: self.dynamic_shared_bytes}
        return known.get(address)


@dataclass
class Expressions:
    """Hash-consed expressions: equal numbers mean equal values in every thread."""

    nodes: list[Node] = field(default_factory=list[Node])
    _index: dict[Node, int] = field(default_factory=dict[Node, int])

    def intern(self, node: Node) -> int:
        """The number of `node`, new or known."""
        number = self._index.get(node)
        if number is None:
            number = len(self.nodes)
            self._index[node] = number
            self.nodes.append(node)
        return number

    def source(self, source: Source, registers: Callable[[str, int], int | None]) -> int | None:
        """The number of an operand; `registers(kind, number)` answers for registers."""
        if source.kind == "imm":
            return self.intern(("imm", source.value & _MASK32))
        if source.kind == "const":
            base: int | None = self.intern(("const", source.value))
        elif source.value == (RZ if source.kind == "gpr" else URZ):
            return self.intern(("imm", 0))
        else:
            base = registers(source.kind, source.value)
        if base is None or not source.negated:
            return base
        return self.intern(("negate", base))

    def result(
        self, operation: Operation, registers: Callable[[str, int], int | None]
    ) -> int | None:
        """The number of an operation's result, or None where an operand is unknown."""
        operands: list[int] = []
        for source in operation.sources:
            number = self.source(source, registers)
            if number is None:
                return None
            operands.append(number)
        if operation.name == "move":
            return operands[0]
        return self.intern((operation.name, operation.parameter, *operands))

    def evaluate(self, number: int, shape: BlockShape) -> Values | None:
        """Values of an expression in all threads of `shape`; None where a leaf is unknown."""
        done: dict[int, Values | None] = {}
        for each in self._below(number):
            done[each] = _evaluate(self.nodes[each], done, shape)
        return done[number]

    def _below(self, number: int) -> list[int]:
        """The expression's parts in an order in which parts come first."""
        seen: set[int] = set()
        todo = [number]
        while todo:
            each = todo.pop()
            if each in seen:
                continue
            seen.add(each)
            todo.extend(_operands(self.nodes[each]))
        return sorted(seen)  # operands are interned before their users


def _operands(node: Node) -> list[int]:
    if node[0] in ("imm", "const"):
        return []
    first = 1 if node[0] == "negate" else 2
    return [int(part) for part in node[first:]]


def _evaluate(node: Node, done: dict[int, Values | None], shape: BlockShape) -> Values | None:
    name = node[0]
    if name == "imm":
        return np.full(shape.threads, int(node[1]), np.uint32)
    if name == "const":
        word = shape.constant(int(node[1]))
        return None if word is None else np.full(shape.threads, word, np.uint32)
    if name == "special":
        return shape.special(int(node[1]))
    values: list[Values] = []
    for part in _operands(node):
        value = done[part]
        if value is None:
            return None
        values.append(value)
    if name == "negate":
        return (np.uint32(0) - values[0]).astype(np.uint32)
    return _COMPUTE[str(name)](values, int(node[1]))


def _logic_value(values: list[Values], table: int) -> Values:
    a, b, c = values
    result = np.zeros_like(a)
    for row in range(8):
        if table >> row & 1:
            result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result


def _shifted(value: Values, amount: Values, left: bool) -> Values:
    small = np.minimum(amount, np.uint32(31))
    moved = value << small if left else value >> small
    return np.where(amount > 31, np.uint32(0), moved).astype(np.uint32)


_COMPUTE: dict[str, Callable[[list[Values], int], Values]] = {
    "multiply_add": lambda v, _: v[0] * v[1] + v[2],
    "add3": lambda v, _: v[0] + v[1] + v[2],
    "add": lambda v, _: v[0] + v[1],
    "shift_add": lambda v, p: (v[0] << np.uint32(p)) + v[1],
    "logic": _logic_value,
    "shift_right": lambda v, _: _shifted(v[0], v[1], left=False),
    "shift_left": lambda v, _: _shifted(v[0], v[1], left=True),
}
