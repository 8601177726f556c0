"""Operands that are no registers: every word against the vendor's disassembler."""

from __future__ import annotations

import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from regdem.binary.cubin import Cubin
from regdem.integrations.toolkit import find_tool
from regdem.isa.control import get_control, set_control
from regdem.isa.decode import decode
from regdem.isa.encode import Word, imad_register, ldc, mov
from regdem.isa.sources import Source, constant_sources, with_source
from regdem.isa.table import table_for

TABLE = table_for("sm_90")
TESTS = Path(__file__).parent.parent
FILES = ("check/data/kernels.cubin", "transform/data/spills_double.cubin")
SOURCES = (Source("immediate", 0x40490FDB), Source("constant", 0x30218), Source("uniform", 14))
FFMA = (0x0000000302027223, 0x000FE20000000004)


def test_signs_go_with_their_operands() -> None:
    """FFMA R2, R2, R3, -R4: the register that changes its field has no sign."""
    low, high = FFMA[0], FFMA[1] | 1 << 11
    uniform = with_source(TABLE, (low, high), 64, Source("uniform", 5))
    assert uniform is not None
    assert (uniform[0] >> 63, uniform[1] >> 11 & 1, uniform[1] & 0xFF) == (1, 0, 3)
    assert with_source(TABLE, (low, high), 64, Source("immediate", 5)) is None
    second = with_source(TABLE, (low, high), 32, Source("immediate", 5))
    assert second is not None
    assert second[1] >> 11 & 1


def test_what_has_no_form_stays_a_register() -> None:
    constant = Source("constant", 0x210)
    assert with_source(TABLE, FFMA, 24, constant) is None
    assert with_source(TABLE, FFMA, 64, constant) is None  # no such form in the table
    folded = with_source(TABLE, FFMA, 32, constant)
    assert folded is not None
    assert with_source(TABLE, folded, 64, Source("uniform", 4)) is None  # one operand only


def test_moves_of_constants() -> None:
    assert constant_sources(ldc(4, 0, 0x210)) == (Source("constant", 0x210),)
    assert constant_sources((0x00000000FF057424, 0x000FE200078E00FF)) == (Source("immediate", 0),)
    assert constant_sources(mov(4, 5)) == ()
    assert constant_sources(imad_register(4, 255, 255, 5)) == ()
    low, high = ldc(4, 0, 0x210)
    assert constant_sources((low & ~(0xFF << 24) | 3 << 24, high)) == ()  # at a register's place
    pair = constant_sources((low, high & ~(7 << 9) | 5 << 9))
    assert pair == (Source("constant", 0x210), Source("constant", 0x214))


def _folds() -> list[tuple[Word, Word, int, Source]]:
    """(with a register, with a source, register, source) for all kinds of words of some kernels."""
    seen: dict[tuple[int, ...], tuple[Word, Word, int, Source]] = {}
    for file in FILES:
        for kernel in Cubin.parse((TESTS / file).read_bytes()).kernels:
            code = decode(kernel.code, kernel.arch)
            for row, bit in enumerate(code.operand_bit.tolist()):
                if bit not in (32, 64) or code.operand_file[row] or code.operand_role[row] != 1:
                    continue
                lo, hi = code.word(int(code.operand_instruction[row]))
                hi = set_control(hi, replace(get_control(hi), reuse=0))
                for k, source in enumerate(SOURCES):
                    word = with_source(TABLE, (lo, hi), bit, source)
                    key = (lo & 0xFFF, lo >> 62, hi & ((1 << 41) - 1) & ~0xFF, bit, k)
                    if word is not None:
                        register = int(code.operand_register[row])
                        seen.setdefault(key, ((lo, hi), word, register, source))
    return list(seen.values())


def test_the_decoder_takes_them() -> None:
    for before, after, _, source in _folds():
        old, new = (decode(struct.pack("<QQ", *word)) for word in (before, after))
        assert new.form[0] >= 0
        assert TABLE.forms[int(new.form[0])].name == TABLE.forms[int(old.form[0])].name
        assert len(new.operand_bit) == len(old.operand_bit) - (source.kind != "uniform")


@pytest.mark.tools
def test_the_disassembler_prints_the_source(tmp_path: Path) -> None:
    tool = find_tool("nvdisasm")
    assert tool is not None
    folds = _folds()
    assert len(folds) > 60
    texts: list[list[str]] = []
    for part in (0, 1):
        raw = tmp_path / f"{part}.bin"
        words = [(fold[0], fold[1])[part] for fold in folds]
        raw.write_bytes(b"".join(struct.pack("<QQ", *word) for word in words))
        run = subprocess.run([tool, "-b", "SM90", raw], capture_output=True, text=True, check=True)
        texts.append(re.findall(r"/\*[0-9a-f]{4}\*/\s*(.*?)\s*;", run.stdout))
    for before, after, (_, _, register, source) in zip(*texts, folds, strict=True):
        parts = zip(_operands(before), _operands(after), strict=True)
        changed = [(a, b) for a, b in parts if a != b]
        assert len(changed) == 1, (before, after)
        old, new = changed[0]
        if source.kind == "immediate":
            assert re.fullmatch(rf"\|?R{register}\|?", old), (before, after)
        else:
            assert re.sub(rf"R{register}\b", str(source), old) == new, (before, after)


def _operands(text: str) -> list[str]:
    """An instruction's parts, without what only says how the vendor names a special case."""
    plain = re.sub(r"\.(MOV|IADD|SHL|U32|64)\b", "", text)
    return re.split(r"[ ,]+", plain)
