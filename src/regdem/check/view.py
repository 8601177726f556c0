"""One kernel's code as the checker sees it: plain Python lists per instruction.

Problem: the proofs walk code instruction by instruction, where numpy scalars are slow, and they
compare two programs whose registers are numbered differently. This module turns a decoded
section into lists of small integers, once.

Registers are named by value numbers (`places.py`).

Invariants: `masked[i]` has every bit of the instruction except register fields that hold a value,
code displacements and control bits; two instructions with equal masked words compute the same
function of their operands, row by row. An instruction outside the table raises
`UnsupportedError`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regdem.check.places import FILE_BASE
from regdem.errors import UnsupportedError
from regdem.isa.decode import decode
from regdem.isa.decoded import IMPLICIT, DecodedCode, Role
from regdem.isa.table import Form

_FIELD_BITS = (8, 6, 3, 3)
_CONTROL_MASK_HIGH = ((1 << 21) - 1) << 41  # bits 105 to 125 of the instruction
_ALL = (1 << 64) - 1


@dataclass(frozen=True)
class OperandRow:
    """One register operand: its first value number, its width and what is done with it."""

    bit: int
    file: int
    first: int
    width: int
    reads: bool
    writes: bool


@dataclass(frozen=True)
class CodeView:
    """`n` instructions as lists.

    `guard[i]` is the guard's value number or -1; `guard_negated` its sign. `rows[i]` are the
    operands except the guard, in the decoder's order. `reads[i]` and `writes[i]` flatten them to
    value numbers, element by element, guard excluded. `target[i]` is the instruction index that a
    code displacement leads to (where a register is added, the index it is added to), else -1.
    `timing_name[i]` is the latency class and the name, "alu:IADD3", as the latency table has them.
    """

    kernel: str
    code: DecodedCode
    low: list[int]
    high: list[int]
    masked: list[int]
    name: list[str]
    control: list[str]
    memory: list[str]
    guard: list[int]
    guard_negated: list[bool]
    rows: list[tuple[OperandRow, ...]]
    reads: list[tuple[int, ...]]
    writes: list[tuple[int, ...]]
    target: list[int]
    variable_latency: list[bool]
    timing_name: list[str]

    def __len__(self) -> int:
        return len(self.low)


def view_of(kernel: str, code: bytes, arch: str) -> CodeView:
    """Decode `code` and lay it out for the checker.

    Raises `UnsupportedError` at the first instruction outside the table.
    """
    decoded = decode(code, arch)
    unknown = np.flatnonzero(decoded.form < 0)
    if len(unknown):
        index = int(unknown[0])
        low, high = (int(word) for word in decoded.words[index])
        raise UnsupportedError(
            f"instruction 0x{high:016x}_{low:016x} is not understood",
            code="unknown_instruction",
            kernel=kernel,
            offset=16 * index,
        )
    forms = decoded.table.forms
    form: list[int] = decoded.form.tolist()
    rows = _rows(decoded)
    low = decoded.words[:, 0].tolist()
    high = decoded.words[:, 1].tolist()
    control = [forms[f].control for f in form]
    return CodeView(
        kernel=kernel,
        code=decoded,
        low=low,
        high=high,
        masked=_masked(decoded),
        name=[forms[f].name for f in form],
        control=control,
        memory=[forms[f].memory for f in form],
        guard=_guards(decoded),
        guard_negated=decoded.guard_negated.tolist(),
        rows=rows,
        reads=[_elements(each, reads=True) for each in rows],
        writes=[_elements(each, reads=False) for each in rows],
        target=[_target(kernel, i, forms[form[i]], low[i], high[i]) for i in range(len(low))],
        variable_latency=[forms[f].variable_latency for f in form],
        timing_name=[f"{forms[f].latency}:{forms[f].name}" for f in form],
    )


def _rows(decoded: DecodedCode) -> list[tuple[OperandRow, ...]]:
    start: list[int] = decoded.operand_start.tolist()
    bits: list[int] = decoded.operand_bit.tolist()
    files: list[int] = decoded.operand_file.tolist()
    registers: list[int] = decoded.operand_register.tolist()
    widths: list[int] = decoded.operand_width.tolist()
    roles: list[int] = decoded.operand_role.tolist()
    operands = [
        OperandRow(
            bit, file, FILE_BASE[file] + register, width, bool(role & 1), bool(role & Role.WRITE)
        )
        for bit, file, register, width, role in zip(
            bits, files, registers, widths, roles, strict=True
        )
    ]
    return [
        tuple(row for row in operands[start[i] : start[i + 1]] if row.bit != 12)
        for i in range(len(start) - 1)
    ]


def _elements(rows: tuple[OperandRow, ...], *, reads: bool) -> tuple[int, ...]:
    found: list[int] = []
    for row in rows:
        if row.reads if reads else row.writes:
            found.extend(range(row.first, row.first + row.width))
    return tuple(found)


def read_at(view: CodeView, i: int, bit: int) -> tuple[int, ...]:
    """The values that instruction `i` reads through the register field at `bit`, as in `reads`."""
    at = 0
    for row in view.rows[i]:
        if row.reads and row.bit == bit and row.file == 0:
            return view.reads[i][at : at + row.width]
        at += row.width if row.reads else 0
    return ()


def _masked(decoded: DecodedCode) -> list[int]:
    """The words with operand fields, control bits and code displacements cleared."""
    words = decoded.words
    clear: NDArray[np.uint64] = np.zeros(words.shape, np.uint64)
    clear[:, 1] = np.uint64(_CONTROL_MASK_HIGH)
    bits = decoded.operand_bit.astype(np.int64)
    own = bits != IMPLICIT
    widths = np.array(_FIELD_BITS, np.int64)[decoded.operand_file[own]]
    for half in (0, 1):
        here = (bits[own] // 64) == half
        field = ((np.uint64(1) << widths[here].astype(np.uint64)) - np.uint64(1)) << (
            bits[own][here] % 64
        ).astype(np.uint64)
        np.bitwise_or.at(clear[:, half], decoded.operand_instruction[own][here], field)
    forms = decoded.table.forms
    present: list[int] = np.unique(decoded.form).tolist()
    for index in present:
        displacement = forms[index].displacement
        if displacement is None:
            continue
        field = sum(((1 << width) - 1) << bit for bit, width in displacement.pieces)
        here = decoded.form == index
        clear[here, 0] |= np.uint64(field & _ALL)
        clear[here, 1] |= np.uint64(field >> 64)
    kept = words & ~clear
    return [low | high << 64 for low, high in kept.tolist()]


_WITHOUT_TARGET = ("none", "exit", "bsync", "barrier", "other", "call_register")


def _target(kernel: str, i: int, form: Form, low: int, high: int) -> int:
    displacement = form.displacement
    if displacement is None:
        if form.control in _WITHOUT_TARGET:
            return -1
        raise UnsupportedError(
            f"control flow of {form.name} is not understood",
            code="control_flow",
            kernel=kernel,
            offset=16 * i,
        )
    word = low | high << 64
    value = at = 0
    for bit, width in displacement.pieces:
        value |= (word >> bit & ((1 << width) - 1)) << at
        at += width
    value -= value >> (at - 1) << at
    place = 16 * (i + 1) + displacement.unit * value
    return place // 16 if place % 16 == 0 else -1


def _guards(decoded: DecodedCode) -> list[int]:
    """The guards' value numbers; a guard of the uniform datapath is a uniform predicate."""
    guards = [-1] * len(decoded)
    rows = np.flatnonzero(decoded.operand_bit == 12).tolist()
    for row in rows:
        base = FILE_BASE[int(decoded.operand_file[row])]
        guards[int(decoded.operand_instruction[row])] = base + int(decoded.operand_register[row])
    return guards
