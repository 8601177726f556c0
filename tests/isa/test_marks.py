"""Operands of some 600 instruction shapes against marks recorded from the disassembler.

`golden/marks.txt` has a line for every shape of the sources in `tools/isa/corpus` (atomics,
conversions, textures, every `mma` size, bulk copies, ...): high and low word, registers read and
written as `nvdisasm -lrm narrow` marks them, the text. Widths that the text does not show are what
a table gets wrong: each line is a case.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from regdem.isa import DecodedCode, RegisterFile, Role, decode
from regdem.isa.decoded import IMPLICIT

MARKS = Path(__file__).parent / "golden" / "marks.txt"
NAMES = {"R": "GPR", "UR": "UGPR", "P": "PRED", "UP": "UPRED"}
Access = tuple[str, str, int]


def recorded() -> list[tuple[int, int, set[Access], str]]:
    result: list[tuple[int, int, set[Access], str]] = []
    for line in MARKS.read_text(encoding="utf-8").splitlines():
        code, text = line.split(" | ")
        high, low, *marks = code.split()
        accesses: set[Access] = set()
        for mark in marks:
            found = re.fullmatch(r"([rw]):(U?[RP])(\d+)(?:-(\d+))?", mark)
            assert found, mark
            first = int(found[3])
            for number in range(first, int(found[4] or first) + 1):
                accesses.add((found[1], NAMES[found[2]], number))
        result.append((int(high, 16), int(low, 16), accesses, text))
    return result


def accesses_of(code: DecodedCode, i: int) -> set[Access]:
    result: set[Access] = set()
    for row in range(int(code.operand_start[i]), int(code.operand_start[i + 1])):
        if code.operand_bit[row] == IMPLICIT:
            continue
        file = RegisterFile(int(code.operand_file[row])).name
        first, width = int(code.operand_register[row]), int(code.operand_width[row])
        for role, name in ((Role.READ, "r"), (Role.WRITE, "w")):
            if code.operand_role[row] & role:
                result |= {(name, file, number) for number in range(first, first + width)}
    return result


def test_every_recorded_shape() -> None:
    lines = recorded()
    assert len(lines) > 500
    code = decode(np.array([(low, high) for high, low, _, _ in lines], dtype=np.uint64))
    wrong = [
        f"{text}: table {sorted(accesses_of(code, i))}, disassembler {sorted(expected)}"
        for i, (_, _, expected, text) in enumerate(lines)
        if code.form[i] < 0 or accesses_of(code, i) != expected
    ]
    assert not wrong, "\n".join(wrong)


def test_tuples_are_aligned() -> None:
    """No recorded register breaks the alignment that the table claims for its operand."""
    code = decode(np.array([(low, high) for high, low, _, _ in recorded()], dtype=np.uint64))
    assert not (code.operand_register % code.operand_alignment).any()


@pytest.mark.parametrize(
    ("low", "high", "role"),
    [(0x0000004100030804, 0x000FE20000000000, 2), (0x00000041FF030803, 0x000FE20000000000, 1)],
    ids=["R2P writes", "P2R reads"],
)
def test_predicates_named_by_a_mask(low: int, high: int, role: int) -> None:
    """The immediate 0x41 names P0 and P6; the disassembler's marks leave them out."""
    code = decode(np.array([(low | 7 << 12, high)], dtype=np.uint64))
    rows = np.flatnonzero(code.operand_bit == IMPLICIT)
    assert code.operand_register[rows].tolist() == [0, 6]
    assert set(code.operand_role[rows].tolist()) == {role}
    assert set(code.operand_file[rows].tolist()) == {RegisterFile.PRED}
