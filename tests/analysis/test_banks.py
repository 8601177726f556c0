"""Reads of one register bank beyond the first, in both views of the operand cache."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regdem.analysis.banks import bank_conflicts
from regdem.isa.control import ControlWord, set_control
from regdem.isa.decode import decode
from regdem.isa.encode import Word, imad, nop
from regdem.program.program import Program, build

EXIT: Word = (0x000000000000794D, 0x000FEA0003800000)
FIRST_SLOT = 1
"""The reuse flag of the operand at bit 24."""


def product(ra: int, rc: int, reuse: int = 0) -> Word:
    """`IMAD R20, ra, 3, rc`: reads two registers."""
    lo, hi = imad(20, ra, 3, rc)
    return lo, set_control(hi, replace(ControlWord(), stall=4, reuse=reuse))


def program(*words: Word) -> Program:
    data = b"".join(lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in words)
    return build("k", decode(data))


@pytest.mark.parametrize("lasting", [False, True])
def test_two_reads_of_one_bank_conflict(*, lasting: bool) -> None:
    code = program(product(4, 6), product(4, 7), product(4, 4), EXIT)
    assert bank_conflicts(code, lasting=lasting) == [1, 0, 0, 0]


@pytest.mark.parametrize("lasting", [False, True])
def test_the_operand_cache_spares_the_next_read(*, lasting: bool) -> None:
    code = program(product(4, 6, FIRST_SLOT), product(4, 6), product(4, 6), EXIT)
    assert bank_conflicts(code, lasting=lasting) == [1, 0, 1, 0]


@pytest.mark.parametrize("lasting", [False, True])
def test_only_the_same_register_is_spared(*, lasting: bool) -> None:
    code = program(product(4, 6, FIRST_SLOT), product(8, 6), EXIT)
    assert bank_conflicts(code, lasting=lasting) == [1, 1, 0]


def test_the_views_differ_where_an_instruction_names_no_slot() -> None:
    code = program(product(4, 6, FIRST_SLOT), nop(), product(4, 6), EXIT)
    assert bank_conflicts(code, lasting=False) == [1, 0, 1, 0]
    assert bank_conflicts(code, lasting=True) == [1, 0, 0, 0]
