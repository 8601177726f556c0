"""Fields, displacements and control bits: what is written is read, and nothing else moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regdem.isa.control import ControlWord, get_control, set_control
from regdem.isa.fields import (
    Displacement,
    get_displacement,
    get_field,
    set_displacement,
    set_field,
)
from regdem.isa.table import DISPLACEMENTS

WORDS = st.integers(0, (1 << 64) - 1)
SCOREBOARDS = st.sampled_from([0, 1, 2, 3, 4, 5, 7])
CONTROLS = st.builds(
    ControlWord,
    stall=st.integers(0, 15),
    yield_bit=st.integers(0, 1),
    write_scoreboard=SCOREBOARDS,
    read_scoreboard=SCOREBOARDS,
    wait_mask=st.integers(0, 63),
    reuse=st.integers(0, 15),
)
CONTROL_BITS = ((1 << 21) - 1) << 41


@given(WORDS, WORDS, st.integers(0, 127), st.integers(1, 64), st.data())
def test_field_round_trip(lo: int, hi: int, bit: int, width: int, data: st.DataObject) -> None:
    width = min(width, 128 - bit)
    value = data.draw(st.integers(0, (1 << width) - 1))
    new = set_field(lo, hi, bit, width, value)
    assert get_field(*new, bit, width) == value
    keep = ~(((1 << width) - 1) << bit)
    assert (new[0] | new[1] << 64) & keep == (lo | hi << 64) & keep


def test_field_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        set_field(0, 0, 16, 8, 256)
    with pytest.raises(ValueError, match="does not fit"):
        set_field(0, 0, 16, 8, -1)


@given(WORDS, WORDS, st.sampled_from(sorted(DISPLACEMENTS)), st.data())
def test_displacement_round_trip(lo: int, hi: int, kind: str, data: st.DataObject) -> None:
    form = DISPLACEMENTS[kind]
    limit = 1 << (form.bits - 1)
    units = data.draw(st.integers(-limit, limit - 1))
    new = set_displacement(lo, hi, form, units * form.unit)
    assert get_displacement(*new, form) == units * form.unit
    touched = sum(((1 << width) - 1) << bit for bit, width in form.pieces)
    assert (new[0] | new[1] << 64) & ~touched == (lo | hi << 64) & ~touched


def test_displacement_that_does_not_fit() -> None:
    form = Displacement(((16, 8), (34, 4)), 4)
    with pytest.raises(ValueError, match="cannot be encoded"):
        set_displacement(0, 0, form, 4 << 11)
    with pytest.raises(ValueError, match="cannot be encoded"):
        set_displacement(0, 0, form, 6)


@given(WORDS, CONTROLS)
def test_control_round_trip(hi: int, control: ControlWord) -> None:
    new = set_control(hi, control)
    assert get_control(new) == control.legal()
    assert new & ~CONTROL_BITS == hi & ~CONTROL_BITS
    assert set_control(new, get_control(new)) == new


@given(CONTROLS)
def test_legal_control_words(control: ControlWord) -> None:
    """The combinations that the disassembler rejects never come out."""
    legal = control.legal()
    assert legal.legal() == legal
    if legal.stall == 0 or legal.stall >= 12:
        assert legal.yield_bit == 0
    if legal.reuse:
        assert legal.yield_bit == 1
        assert legal.stall <= 11
    assert (legal.stall, legal.wait_mask) == (control.stall, control.wait_mask)


@pytest.mark.parametrize(
    "control",
    [
        ControlWord(stall=16),
        ControlWord(wait_mask=64),
        ControlWord(write_scoreboard=6),
        ControlWord(read_scoreboard=8),
    ],
)
def test_control_out_of_range(control: ControlWord) -> None:
    with pytest.raises(ValueError, match=r"out of range|no such scoreboard"):
        set_control(0, control)
