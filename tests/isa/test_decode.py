"""The decoder on the shipped examples: golden listings of forms, operands and control bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regdem.binary import Cubin
from regdem.errors import InputError, UnsupportedError
from regdem.isa import DecodedCode, RegisterFile, decode
from regdem.isa.decoded import FILE_SIZE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CUBINS = sorted(EXAMPLES.rglob("*.cubin"))
PREFIX = {"GPR": "R", "UGPR": "UR", "PRED": "P", "UPRED": "UP"}


def listing(code: DecodedCode) -> str:
    """One line an instruction: offset, name, operands as `role:registers`, control bits."""
    lines: list[str] = []
    for i in range(len(code)):
        form = code.table.forms[int(code.form[i])]
        operands: list[str] = []
        for row in range(int(code.operand_start[i]), int(code.operand_start[i + 1])):
            file = RegisterFile(int(code.operand_file[row])).name
            first, width = int(code.operand_register[row]), int(code.operand_width[row])
            role = ("", "r", "w", "rw")[int(code.operand_role[row])]
            last = f"-{first + width - 1}" if width > 1 else ""
            operands.append(f"{role}:{PREFIX[file]}{first}{last}")
        control = (
            f"stall {code.stall[i]} yield {code.yield_bit[i]} write {code.write_scoreboard[i]}"
            f" read {code.read_scoreboard[i]} wait {code.wait_mask[i]:06b} reuse {code.reuse[i]}"
        )
        lines.append(f"{16 * i:04x} {form.name:10} {' '.join(operands):40} {control}".rstrip())
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_recorded_listing(path: Path, golden: Callable[[str, str], None]) -> None:
    for kernel in Cubin.parse(path.read_bytes(), str(path)).kernels:
        code = decode(kernel.code)
        assert (code.form >= 0).all()
        golden(f"{path.stem}.txt", listing(code))


def test_zero_registers_have_no_rows() -> None:
    for path in CUBINS:
        for kernel in Cubin.parse(path.read_bytes(), str(path)).kernels:
            code = decode(kernel.code)
            for file in RegisterFile:
                numbers = code.operand_register[code.operand_file == file]
                assert (numbers < FILE_SIZE[file]).all()
            assert (np.diff(code.operand_start) >= 0).all()
            assert code.operand_start[-1] == len(code.operand_instruction)


def test_unknown_words_get_no_form_and_no_rows() -> None:
    words = np.array([[0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF], [0x7918, 0]], dtype=np.uint64)
    code = decode(words)
    assert code.form[0] == -1
    assert code.form[1] >= 0
    assert 0 not in code.operand_instruction


def test_nothing_to_decode() -> None:
    assert len(decode(b"")) == 0


def test_half_an_instruction() -> None:
    with pytest.raises(InputError, match="whole number"):
        decode(b"\0" * 24)


def test_other_architectures() -> None:
    with pytest.raises(UnsupportedError, match="sm_100"):
        decode(b"\0" * 16, "sm_100")
