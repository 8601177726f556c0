"""How an address differs from lane to lane, as far as the code shows it.

Problem: a warp's load touches one sector or thirty-two, and that decides what the memory system
has to do for it. Whether lanes read the same word, neighbouring words or words a structure apart
often stands in the code: the address is computed from the thread index by additions, shifts and
multiplications with constants.

Method: a forward walk in address order with a value for each register: an affine function of the
lane (`coefficient` per lane, and the value itself where it is a known constant), loaded from memory
(what a gather's address depends on), or varying in an unknown way. A block begins with what its
predecessors left, joined; loops are settled by a fixed number of walks. Thread indices y and z,
block indices, constants and kernel parameters are the same in all lanes; blocks at least 32 threads
wide are assumed. Words kept in shared or local memory are followed by their offset, so that a
spilled address is still known.

Not claimed: correctness for any use but estimates. Overflow is ignored, calls change nothing, and a
value that went through an operation not listed counts as varying.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from regdem.analysis.forms import forms_of
from regdem.isa.decoded import RegisterFile, Role
from regdem.isa.fields import get_field
from regdem.program.program import Program

_RZ, _PT = 255, 7
COPY = "LDGSTS"
"""The asynchronous copy from global to shared memory, an access of both."""
_WALKS = 3
_WRAP = 1 << 32
_STACK = 1
"""The stack pointer."""
_WORDS = {5: 2, 6: 4}
"""Words of an access by its size field."""
_TID_X, _LANE = 0x21, 0x00
_FAR = frozenset({"global", "generic", "texture", "surface"})
_REGISTER, _UNIFORM_B, _UNIFORM_C = 1, 6, 7
_IMMEDIATE_B, _IMMEDIATE_C = 4, 2


class Lanes(NamedTuple):
    """A register over the lanes. `kind`: "affine", "varying" or "loaded"."""

    kind: str
    coefficient: int = 0
    constant: int | None = None

    @property
    def is_uniform(self) -> bool:
        """The same in all lanes."""
        return self.kind == "affine" and self.coefficient == 0


UNIFORM = Lanes("affine")
ZERO = Lanes("affine", 0, 0)
VARYING = Lanes("varying")
LOADED = Lanes("loaded")


@dataclass(frozen=True)
class Address:
    """An access: its address over the lanes, the register that holds it with the number of its
    definition (accesses with the same pair are at known distances), and the offset in bytes."""

    lanes: Lanes
    base: tuple[int, int]
    offset: int


def addresses(program: Program) -> dict[int, Address]:
    """The address of every memory instruction with an address register."""
    walker = _Walker(program)
    for _ in range(_WALKS):
        walker.run()
    return walker.found


def _join(values: list[Lanes]) -> Lanes:
    """The class of a value that depends on all of these in an unknown way."""
    if any(v.kind == "loaded" for v in values):
        return LOADED
    if all(v.is_uniform for v in values):
        return UNIFORM
    return VARYING


def _plus(values: list[Lanes]) -> Lanes:
    if any(v.kind != "affine" for v in values):
        return _join(values)
    constants = [v.constant for v in values]
    total = None if None in constants else sum(c for c in constants if c is not None)
    return Lanes("affine", sum(v.coefficient for v in values), total)


def _times(a: Lanes, b: Lanes) -> Lanes:
    if a == ZERO or b == ZERO:
        return ZERO
    if b.coefficient or b.kind != "affine":
        a, b = b, a
    if a.kind != "affine" or b.kind != "affine" or b.coefficient:
        return _join([a, b])
    if b.constant is not None:
        product = None if a.constant is None else a.constant * b.constant
        wrapped = (a.coefficient * b.constant + _WRAP // 2) % _WRAP - _WRAP // 2
        return Lanes("affine", wrapped, product)
    return UNIFORM if a.is_uniform else VARYING


def _meet(a: Lanes, b: Lanes) -> Lanes:
    """What is known of a register that holds one or the other."""
    if a == b:
        return a
    if a.kind == "loaded" or b.kind == "loaded":
        return LOADED
    if a.kind == b.kind == "affine" and a.coefficient == b.coefficient:
        return Lanes("affine", a.coefficient)
    return VARYING


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


class _State:
    """What is known at a point: registers, numbers of their values, predicates that differ from
    lane to lane (`varying`; `loaded` where they depend on loaded data), and words kept in shared
    or local memory."""

    def __init__(self) -> None:
        self.values = [UNIFORM] * 256
        self.numbers = [0] * 256
        self.varying = 0
        self.loaded = 0
        self.slots: dict[tuple[str, int], tuple[Lanes, int]] = {}

    def copy(self) -> _State:
        """A state of its own."""
        new = _State()
        new.values, new.numbers = list(self.values), list(self.numbers)
        new.varying, new.loaded, new.slots = self.varying, self.loaded, dict(self.slots)
        return new

    def predicate(self, number: int) -> Lanes:
        """A predicate over the lanes."""
        if self.loaded >> number & 1:
            return LOADED
        return VARYING if self.varying >> number & 1 else UNIFORM

    def join(self, other: _State) -> None:
        """Only what holds here and there."""
        if other.values != self.values:
            self.values = list(map(_meet, self.values, other.values))
        if other.numbers != self.numbers:
            self.numbers = list(map(max, self.numbers, other.numbers))
        self.varying |= other.varying
        self.loaded |= other.loaded
        for place, (lanes, number) in other.slots.items():
            mine = self.slots.get(place)
            if mine is None:
                self.slots[place] = lanes, number
            elif mine != (lanes, number):
                self.slots[place] = _meet(mine[0], lanes), max(mine[1], number)


class _Walker:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.code = program.code
        self.forms = forms_of(program.code)
        self.words: list[list[int]] = program.code.words.tolist()
        self.guard: list[int] = program.code.guard.tolist()
        self.first: list[int] = program.code.operand_start.tolist()
        self.file: list[int] = program.code.operand_file.tolist()
        self.role: list[int] = program.code.operand_role.tolist()
        self.register: list[int] = program.code.operand_register.tolist()
        self.width: list[int] = program.code.operand_width.tolist()
        self.left: dict[int, _State] = {}
        self.found: dict[int, Address] = {}

    def run(self) -> None:
        """One walk over all blocks."""
        for block in self.program.blocks:
            known = [self.left[p] for p in block.predecessors if p in self.left]
            state = known[0].copy() if known else _State()
            for other in known[1:]:
                state.join(other)
            state.values[_RZ] = ZERO
            for i in range(block.start, block.end):
                self._step(i, state)
            self.left[block.index] = state

    def _step(self, i: int, state: _State) -> None:
        lo, hi = self.words[i]
        form = self.forms[i]
        if form.memory not in ("none", "constant", "other"):
            self._memory(i, lo, hi, state)
            return
        values = state.values
        if form.name == COPY:
            number = lo >> 24 & 255
            offset = _signed_offset(lo)
            self.found[i] = Address(values[number], (number, state.numbers[number]), offset)
        written: list[tuple[int, int]] = []
        predicates = 0
        read: list[Lanes] = []
        for row in range(self.first[i], self.first[i + 1]):
            file, register = self.file[row], self.register[row]
            if file == RegisterFile.GPR:
                if self.role[row] & Role.READ:
                    read.append(values[register])
                if self.role[row] & Role.WRITE:
                    written.append((register, self.width[row]))
            elif file == RegisterFile.PRED:
                if self.role[row] & Role.WRITE:
                    predicates |= 1 << register
                else:
                    read.append(state.predicate(register))
        if predicates:
            kind = _join(read)
            state.varying = state.varying & ~predicates | (predicates if kind == VARYING else 0)
            state.loaded = state.loaded & ~predicates | (predicates if kind == LOADED else 0)
        if not written:
            return
        result = VARYING
        if form.latency != "shuffle":
            result = self._result(form.name, lo, hi, values, read)
        for number, width in written:
            for place in range(number, min(number + width, _RZ)):
                new = result if place == number else _high(result)
                state.numbers[place] = i + 1
                if self.guard[i] != _PT and values[place] != new:
                    under = state.predicate(self.guard[i])
                    old = values[place]
                    new = _meet(old, new) if under.is_uniform else _join([old, new, under])
                values[place] = new

    def _result(self, name: str, lo: int, hi: int, values: list[Lanes], read: list[Lanes]) -> Lanes:
        form = get_field(lo, hi, 9, 3)
        a, c = values[get_field(lo, hi, 24, 8)], values[get_field(lo, hi, 64, 8)]
        if form in (_IMMEDIATE_B, _IMMEDIATE_C):
            b = Lanes("affine", 0, _signed(get_field(lo, hi, 32, 32)))
        elif form == _REGISTER:
            b = values[get_field(lo, hi, 32, 8)]
        else:
            b = UNIFORM
        if form in (_IMMEDIATE_C, 3, _UNIFORM_C):
            b, c = c, b
        return self._operation(name, lo, hi, (a, b, c), read)

    def _operation(
        self, name: str, lo: int, hi: int, abc: tuple[Lanes, Lanes, Lanes], read: list[Lanes]
    ) -> Lanes:
        a, b, c = abc
        match name:
            case "S2R":
                source = get_field(lo, hi, 72, 8)
                return Lanes("affine", 1) if source in (_TID_X, _LANE) else UNIFORM
            case "IMAD":
                return _plus([_times(a, b), c])
            case "IADD3":
                return _plus([_negate(a, hi >> 8), _negate(b, lo >> 63), _negate(c, hi >> 11)])
            case "VIADD":
                return _plus([a, b])
            case "MOV":
                return b
            case "HFMA2" if not read:
                return Lanes("affine", 0, _signed(get_field(lo, hi, 32, 32)))
            case "LEA":
                shift = get_field(lo, hi, 75, 5)
                if hi >> 16 & 1:
                    return _high(_join([a, b, c]))
                return _plus([_times(a, Lanes("affine", 0, 1 << shift)), b])
            case "SHF":
                return self._shift(hi, a, b, c)
            case "LOP3":
                others = [v for v in (a, b, c) if not v.is_uniform]
                return others[0] if len(others) == 1 else _join(read)
            case _:
                others = [v for v in read if not v.is_uniform]
                if name in ("SEL", "VIMNMX", "IABS") and len(others) == 1:
                    return others[0]
                return _join(read)

    def _shift(self, hi: int, a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        right, upper = hi >> 12 & 1, hi >> 16 & 1
        value = c if right and upper else a
        if value.kind != "affine" or b.constant is None:
            return _join([a, b, c])
        count = b.constant & 63
        if not right:
            if upper:
                return _high(value)
            return _times(value, Lanes("affine", 0, 1 << count))
        if value.coefficient == 0:
            return UNIFORM
        return UNIFORM if abs(value.coefficient) * 32 <= 1 << count else VARYING

    def _memory(self, i: int, lo: int, hi: int, state: _State) -> None:
        form = self.forms[i]
        number = lo >> 24 & 255
        offset = _signed_offset(lo)
        values, numbers = state.values, state.numbers
        lanes = values[number]
        self.found[i] = Address(lanes, (number, numbers[number]), offset)
        slot = lanes.kind == "affine" if form.memory == "shared" else form.memory == "local"
        slot = slot and (form.memory == "shared" or number in (_STACK, _RZ))
        if slot and form.writes_memory and not form.reads_memory:
            data = lo >> 32 & 255
            for k in range(_WORDS.get(get_field(lo, hi, 73, 3), 1)):
                if data + k <= _RZ:
                    state.slots[form.memory, offset + 4 * k] = values[data + k], numbers[data + k]
        if not form.reads_memory:
            return
        for row in range(self.first[i], self.first[i + 1]):
            if self.file[row] != RegisterFile.GPR or not self.role[row] & Role.WRITE:
                continue
            for k in range(self.width[row]):
                place = self.register[row] + k
                known, numbers[place] = (VARYING if form.memory not in _FAR else LOADED), i + 1
                if slot:
                    kept = state.slots.get((form.memory, offset + 4 * k))
                    if kept is not None:
                        known, numbers[place] = kept
                elif form.memory in _FAR and lanes.is_uniform:
                    known = UNIFORM
                values[place] = known


def _signed_offset(lo: int) -> int:
    """The offset of an access in bytes."""
    offset = lo >> 40 & 0xFFFFFF
    return offset - (1 << 24) if offset >> 23 else offset


def _negate(value: Lanes, bit: int) -> Lanes:
    if not bit & 1 or value.kind != "affine":
        return value
    constant = None if value.constant is None else -value.constant
    return Lanes("affine", -value.coefficient, constant)


def _high(value: Lanes) -> Lanes:
    """The upper half of a pair: the same in all lanes as a rule."""
    return UNIFORM if value.kind == "affine" else value
