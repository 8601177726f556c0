"""The decoded form of a code section: parallel numpy arrays, one row per 128-bit instruction.

Dense arrays inside, objects at the edge: analyses index these arrays; nothing here is mutable by
convention, and an edit is made on the encoded words, followed by a new decode.

Register operands are stored as one flat table in compressed-row form: the operands of
instruction `i` are rows `operand_start[i]` to `operand_start[i + 1]`. Operands that name the
zero register or the true predicate (RZ, URZ, PT, UPT) hold no value and have no row. The guard
predicate is a row like any other (`operand_bit == 12`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from regdem.isa.table import InstructionTable

INSTRUCTION_BYTES = 16
IMPLICIT = 255
"""`operand_bit` of an operand with no field of its own (never renamed on its own)."""


class RegisterFile(IntEnum):
    """The four register files that hold values."""

    GPR = 0
    UGPR = 1
    PRED = 2
    UPRED = 3


class Role(IntEnum):
    """What an instruction does with an operand; BOTH is READ | WRITE."""

    READ = 1
    WRITE = 2
    BOTH = 3


FILE_SIZE = {
    RegisterFile.GPR: 255,
    RegisterFile.UGPR: 63,
    RegisterFile.PRED: 7,
    RegisterFile.UPRED: 7,
}
"""Registers that hold values, per file on sm_90 (the next number is RZ, URZ, PT, UPT)."""

NO_SCOREBOARD = 7


@dataclass(frozen=True)
class DecodedCode:
    """`n` instructions of one code section, decoded.

    Shapes: every array is (n,) unless said otherwise; m is the total number of operands.
    `form` indexes `table.forms`; -1 marks an instruction outside the table, whose operand rows
    are missing and which callers must refuse by name or treat as touching everything.
    """

    table: InstructionTable
    words: NDArray[np.uint64]  # (n, 2): low word, high word
    form: NDArray[np.int32]
    guard: NDArray[np.uint8]  # predicate number 0-6, 7 = always
    guard_negated: NDArray[np.bool_]
    stall: NDArray[np.uint8]  # cycles, 0-15
    yield_bit: NDArray[np.uint8]  # bit 109 as encoded
    write_scoreboard: NDArray[np.uint8]  # 0-5, 7 = none
    read_scoreboard: NDArray[np.uint8]  # 0-5, 7 = none
    wait_mask: NDArray[np.uint8]  # bit k: wait until scoreboard k is zero
    reuse: NDArray[np.uint8]  # bit 0 Ra, 1 Rb, 2 Rc, 3 (unknown meaning)
    operand_start: NDArray[np.int32]  # (n + 1,)
    operand_instruction: NDArray[np.int32]  # (m,)
    operand_file: NDArray[np.uint8]  # (m,) RegisterFile
    operand_role: NDArray[np.uint8]  # (m,) Role
    operand_register: NDArray[np.int16]  # (m,) first register of the tuple
    operand_width: NDArray[np.uint8]  # (m,) registers in the tuple: 1, 2, 3, 4, 8, ...
    operand_alignment: NDArray[np.uint8]  # (m,) first register must be a multiple of this
    operand_bit: NDArray[np.uint8]  # (m,) lowest bit of the field in the word, or IMPLICIT

    def __len__(self) -> int:
        return len(self.form)

    def word(self, i: int) -> tuple[int, int]:
        """The low and the high word of instruction `i`."""
        return int(self.words[i, 0]), int(self.words[i, 1])

    @property
    def form_indices(self) -> list[int]:
        """`form` as a list."""
        indices: list[int] = self.form.tolist()
        return indices
