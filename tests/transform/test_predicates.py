"""Predicates spread over free names: what lives inside a segment is renamed, nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from words import EXIT, branch, program

from regdem.analysis.liveness import liveness
from regdem.isa.decoded import RegisterFile, Role
from regdem.isa.encode import Word
from regdem.isa.fields import set_field
from regdem.program.program import Program
from regdem.transform.predicates import spread
from regdem.transform.segments import segments

_FSETP: Word = (0xC2FC00000C00780B, 0x000FC80003F0E000)
"""`FSETP.GEU.AND P0, PT, R12, -126, PT`."""
_FMUL: Word = (0x3F0000000C0C7820, 0x000FC80000400000)
"""`FMUL R12, R12, 0.5`."""


def compare(p: int, guard: int = 7) -> Word:
    return set_field(*set_field(*_FSETP, 81, 3, p), 12, 3, guard)


def halve(p: int) -> Word:
    return set_field(*_FMUL, 12, 3, p)


def renamed(words: list[Word]) -> list[tuple[int, ...]]:
    """Per instruction the predicates that it names, after spreading."""
    before = program([*words, EXIT])
    after = spread(before, liveness(before, follow_guards=True), segments(before, fewest=1))
    return [named(after, i) for i in range(len(words))]


def named(whole: Program, i: int) -> tuple[int, ...]:
    code = whole.code
    rows = range(int(code.operand_start[i]), int(code.operand_start[i + 1]))
    return tuple(
        int(code.operand_register[r]) for r in rows if code.operand_file[r] == RegisterFile.PRED
    )


def test_each_value_gets_a_name_of_its_own() -> None:
    assert renamed([compare(0), halve(0)] * 3) == [(0,), (0,), (1,), (1,), (2,), (2,)]


def test_a_value_that_lives_out_keeps_its_name_and_is_not_overwritten() -> None:
    words = [compare(1), compare(0), halve(0), compare(0), halve(0), halve(1), branch(0, 1)]
    found = renamed(words)
    assert found[0] == found[5] == found[6] == (1,)
    assert found[1] == found[2] != (1,)
    assert found[3] == found[4] != (1,)
    assert found[1] != found[3]


def test_a_value_from_before_keeps_its_name() -> None:
    assert renamed([halve(0), compare(0), halve(0)])[0] == (0,)


def test_a_guarded_write_belongs_to_the_value_it_may_leave() -> None:
    found = renamed([compare(0), compare(2), compare(0, guard=2), halve(0), compare(0), halve(0)])
    assert found[0][0] == found[2][1] == found[3][0]


def test_where_names_run_out_only_unused_ones_are_taken() -> None:
    """Values that keep their names lie in the way of a rotation through all."""
    keep = [compare(p) for p in range(1, 6)]
    words = [halve(6), compare(0), halve(0), *keep, compare(0), halve(0), compare(6), halve(6)]
    words += [halve(p) for p in range(1, 6)] + [branch(0, 6)]
    before = program([*words, EXIT])
    after = spread(before, liveness(before, follow_guards=True), segments(before, fewest=1))
    assert values(before, len(words)) == values(after, len(words))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 7)), min_size=1, max_size=80
    ),
    st.integers(0, 6),
)
def test_every_use_reads_the_value_it_read(steps: list[tuple[bool, int, int]], out: int) -> None:
    words = [compare(p, g) if writes else halve(p) for writes, p, g in steps] + [branch(0, out)]
    before = program([*words, EXIT])
    after = spread(before, liveness(before, follow_guards=True), segments(before, fewest=1))
    assert values(before, len(words)) == values(after, len(words))


def values(whole: Program, n: int) -> list[list[int]]:
    """Per instruction a number for each predicate value that it reads: its last full write, with
    all guarded ones since."""
    code = whole.code
    held: dict[int, int] = {}
    made: dict[tuple[int, ...], int] = {}
    found: list[list[int]] = []
    for i in range(n):
        rows = range(int(code.operand_start[i]), int(code.operand_start[i + 1]))
        mine = [
            (int(code.operand_register[r]), int(code.operand_role[r]))
            for r in rows
            if code.operand_file[r] == RegisterFile.PRED
        ]
        found.append([held.get(p, -1) for p, role in mine if role & Role.READ])
        for p, role in mine:
            if role & Role.WRITE:
                old = (held.get(p, -1),) if int(code.guard[i]) != 7 else ()
                held[p] = made.setdefault((i, *old), len(made))
    return found
