"""Decodes a whole code section at once.

Instructions are grouped by operation (bits 0 to 11); each operation's forms are matched on their
discriminating bits, and then all operand fields of all instructions are cut out together. No Python
code runs per instruction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regdem.errors import InputError
from regdem.isa.decoded import DecodedCode
from regdem.isa.table import InstructionTable, table_for

_GUARD_BIT = 12


def decode(words: bytes | NDArray[np.uint64], arch: str = "sm_90") -> DecodedCode:
    """Decodes `words`: the bytes of a section, or an (n, 2) array of low and high words.

    Raises `InputError` if the length is no multiple of 16 bytes, `UnsupportedError` if the
    architecture has no table. Instructions outside the table get form -1.
    """
    table = table_for(arch)
    if isinstance(words, bytes):
        if len(words) % 16:
            raise InputError("the code section is not a whole number of 128-bit instructions")
        words = np.frombuffer(words, dtype="<u8").reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    n = len(words)
    form = np.full(n, -1, dtype=np.int32)
    guard = _cut(low, high, _GUARD_BIT, 3).astype(np.uint8)
    opcode = (low & np.uint64(0xFFF)).astype(np.int64)
    order = np.argsort(opcode, kind="stable")
    values, starts = np.unique(opcode[order], return_index=True)
    ends = [*starts[1:].tolist(), n][: len(starts)]
    for value, start, end in zip(values.tolist(), starts.tolist(), ends, strict=True):
        rows = order[start:end]
        for candidate in table.by_opcode.get(value, ()):
            hit = rows
            for word, (mask, expected) in zip((low, high), candidate.pattern, strict=True):
                if mask:
                    hit = hit[(word[hit] & np.uint64(mask)) == np.uint64(expected)]
            form[hit] = candidate.index
    operands = _operands(low, high, table, form)
    start_of = np.zeros(n + 1, dtype=np.int32)
    np.cumsum(np.bincount(operands["instruction"], minlength=n), out=start_of[1:])
    return DecodedCode(
        table=table,
        words=words,
        form=form,
        guard=guard,
        guard_negated=_cut(low, high, 15, 1).astype(bool),
        stall=_cut(low, high, 105, 4).astype(np.uint8),
        yield_bit=_cut(low, high, 109, 1).astype(np.uint8),
        write_scoreboard=_cut(low, high, 110, 3).astype(np.uint8),
        read_scoreboard=_cut(low, high, 113, 3).astype(np.uint8),
        wait_mask=_cut(low, high, 116, 6).astype(np.uint8),
        reuse=_cut(low, high, 122, 4).astype(np.uint8),
        operand_start=start_of,
        operand_instruction=operands["instruction"].astype(np.int32),
        operand_file=operands["file"].astype(np.uint8),
        operand_role=operands["role"].astype(np.uint8),
        operand_register=operands["register"].astype(np.int16),
        operand_width=operands["width"].astype(np.uint8),
        operand_alignment=operands["alignment"].astype(np.uint8),
        operand_bit=operands["bit"].astype(np.uint8),
    )


def _cut(
    low: NDArray[np.uint64], high: NDArray[np.uint64], bit: int, width: int
) -> NDArray[np.uint64]:
    """A field of every word. No field of the table crosses the middle of the word."""
    word, shift = (low, bit) if bit < 64 else (high, bit - 64)
    return (word >> np.uint64(shift)) & np.uint64((1 << width) - 1)


def _operands(
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
    table: InstructionTable,
    form: NDArray[np.int32],
) -> dict[str, NDArray[np.int64]]:
    """The operand rows of all instructions, by instruction and then by field."""
    layout = table.layout
    known = np.flatnonzero(form >= 0)
    count = layout.count[form[known]]
    instruction = np.repeat(known, count)
    first = layout.first[form[known]]
    # Row k of an instruction is operand first + k of its form.
    start = np.cumsum(count) - count
    index = np.arange(len(instruction)) + np.repeat(first - start, count)
    place, file = layout.place[index], layout.file[index]
    word = np.where(place < 64, low[instruction], high[instruction])
    number = (word >> (place & 63).astype(np.uint64)) & layout.mask[file]
    holds = number < layout.size[file]
    by_mask = np.flatnonzero(layout.named[index] >= 0)
    holds[by_mask] = number[by_mask] & np.uint64(1) != 0
    number[by_mask] = layout.named[index[by_mask]].astype(np.uint64)
    index = index[holds]
    return {
        "instruction": instruction[holds],
        "register": number[holds].astype(np.int64),
        "file": file[holds],
        "role": layout.role[index],
        "width": layout.width[index],
        "alignment": layout.alignment[index],
        "bit": layout.bit[index],
    }
