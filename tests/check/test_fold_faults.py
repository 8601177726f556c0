"""Operands that name constants: right ones are proved, every planted fault is rejected."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from fold_faults import CASES, THREADS, Folded, accepted

from regdem.binary.cubin import Cubin
from regdem.check import check_pair, operands
from regdem.check.operands import moved_constants, named_operand, unfolded
from regdem.check.places import CONSTANTS
from regdem.check.view import view_of
from regdem.isa.sources import Source, constant_sources, with_source
from regdem.isa.table import table_for

DATA = Path(__file__).parent / "data" / "kernels.cubin"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_faults_are_caught(case: tuple[str, str, int, bool]) -> None:
    bench = Folded(*case)
    assert bench.folded
    verdict = check_pair(bench.original, bench.rewritten, threads=THREADS)
    assert verdict.findings == ()
    planted = list(accepted(bench, 3))
    assert len({kind for kind, _, _ in planted}) >= 5
    assert [fault for fault in planted if fault[2]] == []


def _register_words() -> list[tuple[int, int]]:
    words: list[tuple[int, int]] = []
    for kernel in Cubin.parse(DATA.read_bytes()).kernels:
        words += struct.iter_unpack("<QQ", kernel.code)
    return sorted({(lo, hi & (1 << 41) - 1) for lo, hi in words})


@pytest.mark.parametrize(
    "source", [Source("immediate", 77), Source("constant", 0x30218), Source("uniform", 8)], ids=str
)
def test_the_form_with_registers_is_found_again(source: Source) -> None:
    table = table_for("sm_90")
    kinds = {"immediate": "immediate", "constant": "bank", "uniform": "uniform"}
    found: set[str] = set()
    for low, high in _register_words():
        for bit in (32, 64):
            word = with_source(table, (low, high), bit, source)
            if word is None:
                continue
            found.add(table.by_opcode[low & 0xFFF][0].name)
            operand = named_operand(*word)
            assert operand is not None
            assert (operand.bit, operand.kind, operand.value) == (
                bit, kinds[source.kind], source.value,
            )  # fmt: skip
            plain = operand.low, operand.high & (1 << 41) - 1
            field = 0xFF << bit
            assert plain[0] | plain[1] << 64 == (low | high << 64) & ~field
    assert {"FFMA", "IMAD", "IADD3", "ISETP", "LOP3"} <= found


def test_constants_that_move_are_those_of_the_encoder() -> None:
    for low, high in _register_words():
        mine = moved_constants(low, high)
        theirs = constant_sources((low, high))
        kinds = {"immediate": "immediate", "constant": "bank"}
        assert mine in ((), tuple((kinds[s.kind], s.value) for s in theirs))


def test_programs_without_folds_stay_as_they_are() -> None:
    kernel = Cubin.parse(DATA.read_bytes()).kernels[0]
    view = view_of(kernel.name, kernel.code, kernel.arch)
    seen = unfolded(view, view, ())
    assert (seen.original, seen.rewritten) == (view, view)
    assert not seen.folded
    assert not seen.numbers


def test_words_beyond_the_last_number_are_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Folded(*CASES[0])
    monkeypatch.setattr(operands, "CONSTANTS", (CONSTANTS[0], CONSTANTS[0] + 1))
    verdict = check_pair(bench.original, bench.rewritten, threads=THREADS)
    assert verdict.verdict == "rejected"


def test_an_immediate_that_is_an_address_is_no_constant() -> None:
    bench = Folded(*CASES[0])
    view = view_of("", bench.original.code, "sm_90")
    moves = [i for i in range(len(view)) if moved_constants(view.low[i], view.high[i])]
    words = {word for i in moves for word in moved_constants(view.low[i], view.high[i])}
    numbers = dict(zip(sorted(words), range(*CONSTANTS), strict=False))
    for i in moves:
        assert operands.copied_constants(view, i, numbers, ())
        assert operands.copied_constants(view, i, numbers, {i}) == []
