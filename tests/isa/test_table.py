"""The shipped table: every row makes sense, and no word belongs to two forms."""

from __future__ import annotations

from itertools import combinations

import pytest

from regdem.errors import UnsupportedError
from regdem.isa.decoded import RegisterFile
from regdem.isa.table import MEMORY_KINDS, Form, supported_architectures, table_for

TABLE = table_for("sm_90")
WIDTH = {RegisterFile.GPR: 8, RegisterFile.UGPR: 6, RegisterFile.PRED: 3, RegisterFile.UPRED: 3}
CONTROL = {
    "none", "branch", "call", "call_register", "return", "indirect", "exit", "bssy", "bsync",
    "barrier", "warpsync", "other",
}  # fmt: skip


def bits_of(form: Form) -> list[int]:
    return [op.bit + k for op in form.operands for k in range(WIDTH[op.file])]


def test_architectures() -> None:
    assert "sm_90" in supported_architectures()
    assert table_for("sm_90a").forms == TABLE.forms
    with pytest.raises(UnsupportedError, match="sm_75"):
        table_for("sm_75")


def test_forms_are_numbered_and_grouped() -> None:
    assert [form.index for form in TABLE.forms] == list(range(len(TABLE.forms)))
    assert sum(len(forms) for forms in TABLE.by_opcode.values()) == len(TABLE.forms)


@pytest.mark.parametrize("opcode", sorted(TABLE.by_opcode), ids=hex)
def test_forms_of_one_operation_never_overlap(opcode: int) -> None:
    for a, b in combinations(TABLE.by_opcode[opcode], 2):
        first, second = dict(a.match), dict(b.match)
        common = first.keys() & second.keys()
        assert any(first[bit] != second[bit] for bit in common), (a.name, a.match, b.match)


@pytest.mark.parametrize("form", TABLE.forms, ids=lambda f: f"{f.index}-{f.name}")
def test_form_is_well_formed(form: Form) -> None:
    assert 0 <= form.opcode < 1 << 12
    assert form.name.isupper() or form.name.isalnum()
    fields = bits_of(form)
    assert len(fields) == len(set(fields)), "operand fields overlap"
    assert not set(fields) & {bit for bit, _ in form.match}, "a field selects the form"
    assert not set(fields) & set(range(12)), "a field is part of the operation"
    assert all(bit < 105 for bit, _ in form.match), "control bits select no form"
    for op in form.operands:
        assert op.role in (1, 2, 3)
        assert op.alignment in (1, 2, 4, 8)
        assert op.width == 1 or op.alignment > 1
        assert not (op.file in (RegisterFile.PRED, RegisterFile.UPRED) and op.width != 1)
        assert not (op.bit < 64 < op.bit + WIDTH[op.file]), "fields do not cross the words"
    assert form.memory in MEMORY_KINDS
    assert form.control in CONTROL
    if form.memory == "none":
        assert not form.reads_memory
        assert not form.writes_memory
    if form.control in ("branch", "call", "bssy", "warpsync"):
        assert form.displacement is not None
    if form.latency.startswith("memory_"):
        assert form.variable_latency


def test_pattern_is_the_match_in_two_words() -> None:
    for form in TABLE.forms:
        (low_mask, low), (high_mask, high) = form.pattern
        for bit, expected in form.match:
            mask, value = (low_mask, low) if bit < 64 else (high_mask, high)
            assert (mask >> (bit % 64)) & 1
            assert (value >> (bit % 64)) & 1 == expected
        assert low_mask.bit_count() + high_mask.bit_count() == len(form.match)


def test_branches_that_fall_through_without_a_condition() -> None:
    flags = {(f.name, dict(f.match).get(91), f.falls_through) for f in TABLE.by_opcode[0x947]}
    assert ("BRA", 1, True) in flags  # BRA.DIV
    assert ("BRA", 0, False) in flags


def test_warpsync_jumps_only_when_collective() -> None:
    for opcode in (0x348, 0x948):
        for form in TABLE.by_opcode[opcode]:
            collective = dict(form.match)[86] == 1
            assert (form.control == "warpsync") is collective
            assert (form.displacement is not None) is collective
