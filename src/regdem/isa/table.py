"""The instruction table of an architecture: forms, as data.

`tables/sm_90.json` holds one form a line. It is made by `tools/isa/build.py` from what the
vendor's disassembler says about planted words and from how ptxas schedules (see
`docs/design/isa.md`). A form is an operation (bits 0 to 11) together with values of the modifier
bits that decide its operands; the forms of one operation never overlap.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from regdem.errors import UnsupportedError
from regdem.isa.decoded import FILE_SIZE, IMPLICIT, RegisterFile
from regdem.isa.fields import Displacement

MEMORY_KINDS = (
    "none", "global", "shared", "local", "constant", "generic", "texture", "surface", "other",
)  # fmt: skip

DISPLACEMENTS = {
    "branch": Displacement(((16, 8), (34, 48)), 4),
    "bssy": Displacement(((34, 30),), 4),
    "lepc": Displacement(((24, 58),), 1),
    "absolute": Displacement(((34, 30),), 1, relative=False),
}
"""The displacement fields of sm_90, by kind (measured)."""


@dataclass(frozen=True)
class Operand:
    """A register field: file, lowest bit, role (1 read, 2 write, 3 both), width, alignment."""

    file: RegisterFile
    bit: int
    role: int
    width: int
    alignment: int


@dataclass(frozen=True)
class Form:
    """One operation with one operand layout; see `docs/design/architecture.md`."""

    index: int
    opcode: int
    match: tuple[tuple[int, int], ...]
    """(bit, value) pairs of modifier bits that select this form within its operation."""
    name: str
    operands: tuple[Operand, ...]
    memory: str
    reads_memory: bool
    writes_memory: bool
    control: str
    displacement: Displacement | None
    latency: str
    variable_latency: bool
    multi_pass: bool
    """A matrix operation: results may not overlap sources that are still to be read."""
    falls_through: bool
    """A branch that may fall through although it has no guard and no register condition."""
    implicit: tuple[tuple[RegisterFile, int, int, int], ...] = ()
    """Registers named by a mask: (file, role, lowest bit of the mask, its width). R2P and P2R move
    the predicates whose bits are set in their immediate."""

    @cached_property
    def pattern(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """`match` as (mask, value) of the low and of the high word."""
        mask = sum(1 << bit for bit, _ in self.match)
        value = sum(expected << bit for bit, expected in self.match)
        low = (1 << 64) - 1
        return (mask & low, value & low), (mask >> 64, value >> 64)


@dataclass(frozen=True)
class OperandLayout:
    """The operands of all forms in one list: form f has rows `first[f]` to `first[f] + count[f]`.

    Rows of a form are in the order of their fields. `mask` and `size` are by register file: the
    bits of a field, and how many registers hold values. `named` is -1 for a field that holds a
    register number; for a register named by a bit of a mask it is that register. `place` is the bit
    to read in either case.
    """

    first: NDArray[np.int64]
    count: NDArray[np.int64]
    file: NDArray[np.int64]
    role: NDArray[np.int64]
    width: NDArray[np.int64]
    alignment: NDArray[np.int64]
    bit: NDArray[np.int64]
    place: NDArray[np.int64]
    named: NDArray[np.int64]
    mask: NDArray[np.uint64]
    size: NDArray[np.uint64]


class InstructionTable:
    """All forms of one architecture, and their columns as numpy arrays (index = form)."""

    def __init__(self, arch: str, forms: tuple[Form, ...]) -> None:
        self.arch = arch
        self.forms = forms

    @cached_property
    def by_opcode(self) -> dict[int, list[Form]]:
        """The forms of each operation."""
        result: dict[int, list[Form]] = {}
        for form in self.forms:
            result.setdefault(form.opcode, []).append(form)
        return result

    @cached_property
    def layout(self) -> OperandLayout:
        """All operands of all forms, for the decoder."""
        rows: list[tuple[int, ...]] = []
        count = np.zeros(len(self.forms), dtype=np.int64)
        for form in self.forms:
            mine: list[tuple[int, ...]] = [
                (op.file, op.role, op.width, op.alignment, op.bit, op.bit, -1)
                for op in sorted(form.operands, key=lambda op: op.bit)
            ]
            for file, role, first, width in form.implicit:
                mine += [(file, role, 1, 1, IMPLICIT, first + k, k) for k in range(width)]
            count[form.index] = len(mine)
            rows += mine
        columns = np.array(rows, dtype=np.int64).reshape(-1, 7)
        file, role, width, alignment, bit, place, named = columns.T
        sizes = [FILE_SIZE[f] for f in RegisterFile]
        return OperandLayout(
            first=np.cumsum(count) - count,
            count=count,
            file=file,
            role=role,
            width=width,
            alignment=alignment,
            bit=bit,
            place=place,
            named=named,
            mask=np.array(sizes, dtype=np.uint64),  # the null register is all ones
            size=np.array(sizes, dtype=np.uint64),
        )

    @cached_property
    def variable_latency(self) -> NDArray[np.bool_]:
        """Whether the form signals its completion by scoreboard."""
        return np.array([f.variable_latency for f in self.forms], dtype=bool)

    @cached_property
    def multi_pass(self) -> NDArray[np.bool_]:
        """Whether the form is a matrix operation."""
        return np.array([f.multi_pass for f in self.forms], dtype=bool)

    @cached_property
    def falls_through(self) -> NDArray[np.bool_]:
        """See `Form.falls_through`."""
        return np.array([f.falls_through for f in self.forms], dtype=bool)

    @cached_property
    def memory_code(self) -> NDArray[np.uint8]:
        """Index into `MEMORY_KINDS`."""
        return np.array([MEMORY_KINDS.index(f.memory) for f in self.forms], dtype=np.uint8)

    @cached_property
    def reads_memory(self) -> NDArray[np.bool_]:
        """Whether the form reads memory."""
        return np.array([f.reads_memory for f in self.forms], dtype=bool)

    @cached_property
    def writes_memory(self) -> NDArray[np.bool_]:
        """Whether the form writes memory."""
        return np.array([f.writes_memory for f in self.forms], dtype=bool)


@lru_cache(maxsize=1)
def supported_architectures() -> tuple[str, ...]:
    """Architectures with a table, e.g. `("sm_90",)`."""
    folder = files("regdem.isa").joinpath("tables")
    return tuple(sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".json")))


def require_architecture(arch: str, kernel: str | None = None) -> None:
    """Raises `UnsupportedError` for an architecture whose instructions are not known."""
    if arch.rstrip("af") not in supported_architectures():
        known = ", ".join(supported_architectures())
        raise UnsupportedError(
            f"{arch} code can't be read yet, neither explained nor rewritten",
            code="unsupported_architecture",
            hint=f"code is read for {known}; regdem occupancy knows {arch} too",
            kernel=kernel,
        )


@lru_cache(maxsize=4)
def table_for(arch: str) -> InstructionTable:
    """The table of an architecture (`sm_90`; `sm_90a` is the same). Raises `UnsupportedError`."""
    require_architecture(arch)
    base = arch.rstrip("af")
    path = files("regdem.isa").joinpath("tables", f"{base}.json")
    rows = json.loads(path.read_text(encoding="utf-8"))["forms"]
    return InstructionTable(base, tuple(_form(k, row) for k, row in enumerate(rows)))


def _operand(text: str) -> Operand:
    file, bit, role, width, alignment = text.split()
    return Operand(
        RegisterFile[file],
        int(bit),
        {"r": 1, "w": 2, "rw": 3}[role],
        int(width),
        int(alignment),
    )


def _implicit(text: str) -> tuple[RegisterFile, int, int, int]:
    file, role, bit, width = text.split()
    return RegisterFile[file], {"r": 1, "w": 2, "rw": 3}[role], int(bit), int(width)


def _form(index: int, row: dict[str, object]) -> Form:
    displacement = str(row.get("displacement", ""))
    match = row.get("match", {})
    operands = row["operands"]
    assert isinstance(match, dict)
    assert isinstance(operands, list)
    flags = str(row.get("flags", "")).split()
    return Form(
        index=index,
        opcode=int(str(row["opcode"]), 16),
        match=tuple((int(bit), int(value)) for bit, value in match.items()),  # pyright: ignore
        name=str(row["name"]),
        operands=tuple(_operand(str(text)) for text in operands),  # pyright: ignore
        memory=str(row.get("memory", "none")),
        reads_memory="reads" in flags,
        writes_memory="writes" in flags,
        control=str(row.get("control", "none")),
        displacement=DISPLACEMENTS[displacement] if displacement else None,
        latency=str(row["latency"]),
        variable_latency="variable" in flags,
        multi_pass="multi_pass" in flags,
        falls_through="falls_through" in flags,
        implicit=tuple(_implicit(str(text)) for text in row.get("implicit", ())),  # pyright: ignore
    )
