"""Constants named by their users: what is folded, what is left, and what goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import webs
from regdem.binary.cubin import Cubin
from regdem.check import check_pair
from regdem.isa.control import get_control
from regdem.isa.decode import decode
from regdem.isa.encode import Word
from regdem.isa.sources import constant_sources
from regdem.transform.demote import demote
from regdem.transform.demoted import DemoteOptions, Rewrite, program_of
from regdem.transform.fold import Folding, folding, folds_of, removed
from regdem.transform.uniform import aligned_first, paired_registers

TESTS = Path(__file__).parent.parent
CUBIN = Cubin.parse((TESTS / "analysis/data/remainders.cubin").read_bytes(), "remainders")
DOTS = CUBIN.kernel("dots")
_NOP = 0x918


def proved(registers: int, *, fold: bool = True) -> Rewrite:
    done = demote(DOTS, DemoteOptions(registers, 128, 40, fold=fold, banks=True))
    new = Cubin.parse(CUBIN.with_kernel("dots", done.edit).to_bytes(), "new").kernel("dots")
    assert check_pair(DOTS, new, threads=128).findings == ()
    assert new.registers_per_thread <= registers
    return done


@pytest.mark.parametrize("registers", [18, 20, 22])
def test_folding_saves_slots_or_instructions(registers: int) -> None:
    done, plain = proved(registers), proved(registers, fold=False)
    assert done.folded
    assert not plain.folded
    assert not plain.removed_instructions
    assert (done.slots, done.cycles) < (plain.slots, plain.cycles)
    assert done.removed_instructions >= sum(f.is_gone for f in done.folded) > 0
    assert all("c[0x0]" in f.source and f.uses for f in done.folded)


def test_folds_name_what_the_definition_moves() -> None:
    program = program_of(DOTS)
    found = webs(program, liveness(program))
    folds = folds_of(program, found, banks=True)
    assert len(folds.by_instruction) >= 6
    for i, fold in folds.by_instruction.items():
        assert fold.instruction == i
        for index in fold.webs:
            web = found.webs[index]
            assert i in folds.uses_of((web,), uniform=False)
            (definition,) = web.writes
            moved = constant_sources(program.code.word(definition))
            row = int(program.code.operand_start[definition])
            element = web.register - int(program.code.operand_register[row])
            assert fold.source == moved[element]


def _edit(*, whole: bool) -> tuple[Folding, dict[int, Word], frozenset[int], set[int]]:
    """All webs whose uses can all be folded, or all others with some: what is folded, what that
    leaves, what goes, and the definitions."""
    program = program_of(DOTS)
    found = webs(program, liveness(program))
    folds = folds_of(program, found, banks=True)
    values = [
        ((web,), uses)
        for web in found.webs
        if (uses := folds.uses_of((web,), uniform=False)) and uses.issuperset(web.reads) == whole
    ]
    assert values
    edit = folding(program, folds, values, {})
    served = {parts[0].index: uses for parts, uses in values}
    words, gone = removed(program, found, served, edit.replace)
    return edit, words, gone, {parts[0].writes[0] for parts, _ in values}


def test_a_definition_goes_when_nobody_reads_it() -> None:
    edit, words, deleted, definitions = _edit(whole=True)
    gone = deleted | {i for i in words if words[i][0] & 0xFFF == _NOP}
    assert gone
    assert gone <= definitions
    assert edit.replace.keys() <= words.keys()


def test_a_definition_stays_while_somebody_reads_it() -> None:
    edit, words, deleted, definitions = _edit(whole=False)
    assert not deleted
    assert definitions.isdisjoint(words)
    assert words == edit.replace


def test_no_distance_shrinks() -> None:
    """What a definition's stall kept apart stays apart; its waits go to the next instruction."""
    program = program_of(DOTS)
    _, words, deleted, _ = _edit(whole=True)
    for i in deleted:
        old = get_control(program.code.word(i)[1])
        front = get_control(program.code.word(i - 1)[1])
        assert get_control(words[i - 1][1]).stall >= front.stall + old.stall
        behind = get_control(words[i + 1][1])
        assert behind.wait_mask & old.wait_mask == old.wait_mask


def test_folded_operands_keep_no_reuse_flag() -> None:
    edit, *_ = _edit(whole=False)
    words = b"".join(
        lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in edit.replace.values()
    )
    code = decode(words)
    assert not code.reuse.any()
    assert (code.form >= 0).all()


def test_banks_are_named_on_request_only() -> None:
    program = program_of(DOTS)
    assert not folds_of(program, webs(program, liveness(program)))


UNIFORM = Cubin.parse((TESTS / "transform/data/uniform.cubin").read_bytes(), "uniform")


@pytest.mark.parametrize(
    ("name", "registers"),
    [("shared_terms", 39), ("shared_terms", 38), ("shared_terms_call", 43)],
)
def test_uniform_registers_are_named_where_they_are_used(name: str, registers: int) -> None:
    kernel = UNIFORM.kernel(name)
    made: list[Rewrite] = []
    for fold in (True, False):
        done = demote(kernel, DemoteOptions(registers, 128, 40, fold=fold))
        new = Cubin.parse(UNIFORM.with_kernel(name, done.edit).to_bytes(), "new").kernel(name)
        assert check_pair(kernel, new, threads=128).findings == ()
        made.append(done)
    folded, plain = made
    assert folded.folded
    assert not plain.folded
    assert folded.slots <= plain.slots
    assert folded.cycles < plain.cycles
    assert all(f.source.startswith("UR") for f in folded.folded)


def test_constants_go_to_uniform_registers_without_a_register() -> None:
    """ULDC in place of LDC and R2UR: the register is given back, as with a constant operand."""
    done = demote(DOTS, DemoteOptions(18, 128, 40))
    new = Cubin.parse(CUBIN.with_kernel("dots", done.edit).to_bytes(), "new").kernel("dots")
    assert check_pair(DOTS, new, threads=128).findings == ()
    assert any(f.is_gone for f in done.folded)
    code = decode(new.code)
    assert "R2UR" not in [code.table.forms[form].name for form in code.form_indices]


def test_pairs_of_uniform_registers_are_aligned() -> None:
    free = [62, 61, 60, 59, 57, 56, 3]
    assert paired_registers(free) == 4
    numbers = aligned_first(free, [1, 2, 1, 2])
    assert numbers[1] == (60, 61)
    assert numbers[3] == (56, 57)
    assert {numbers[0], numbers[2]} == {(62,), (59,)}
    with pytest.raises(ValueError, match="no uniform register"):
        aligned_first(free, [2, 2, 2])
