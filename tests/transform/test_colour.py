"""Colouring: disjoint, aligned, within the limit; what does not fit is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import STACK_POINTER, Group, Web, Webs, webs
from regdem.binary.cubin import Cubin
from regdem.isa.decoded import RegisterFile
from regdem.transform.colour import (
    Colouring,
    _Fit,  # pyright: ignore[reportPrivateUsage]
    _Neighbours,  # pyright: ignore[reportPrivateUsage]
    _Search,  # pyright: ignore[reportPrivateUsage]
    _tuples,  # pyright: ignore[reportPrivateUsage]
    colour,
)
from regdem.transform.demoted import program_of

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "pair_forces": ROOT / "examples" / "neighbour" / "neighbour.cubin",
    "doubles": ROOT / "tests" / "check" / "data" / "kernels.cubin",
    "vectors": ROOT / "tests" / "check" / "data" / "kernels.cubin",
    "calls": ROOT / "tests" / "check" / "data" / "kernels.cubin",
}


def made(*webs_of: tuple[int, int], groups: tuple[Group, ...] | None = None) -> Webs:
    """Webs from (register, points); each is a group of its own unless `groups` are given."""
    listed = tuple(Web(k, register, points) for k, (register, points) in enumerate(webs_of))
    alone = tuple(Group((w.index,), 1, w.register, w.register) for w in listed)
    return Webs(listed, groups if groups is not None else alone, {})


def assert_sound(found: Webs, done: Colouring, limit: int) -> None:
    assert done.failed == -1
    taken: dict[int, int] = {}
    for web in found.webs:
        register = done.register[web.index]
        assert 0 <= register < limit
        assert not taken.get(register, 0) & web.points
        taken[register] = taken.get(register, 0) | web.points
        if web.register == STACK_POINTER:
            assert register == STACK_POINTER
    for group in found.groups:
        shifts = {done.register[w] - found.webs[w].register for w in group.webs}
        assert len(shifts) == 1
        assert shifts.pop() % group.alignment == 0


@pytest.mark.parametrize("name", sorted(FILES))
def test_kernels(name: str) -> None:
    kernel = Cubin.parse(FILES[name].read_bytes()).kernel(name)
    program = program_of(kernel)
    found = webs(program, liveness(program))
    limit = kernel.registers_per_thread - 2
    done = colour(found, limit)
    assert_sound(found, done, limit)
    code = program.code
    for row, named in found.of_row.items():
        assert code.operand_file[row] == RegisterFile.GPR
        numbers = [done.register[w] for w in named]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[0] % int(code.operand_alignment[row]) == 0


def test_disjoint_ranges_share_a_register() -> None:
    found = made((9, 0b0011), (10, 0b1100))
    assert colour(found, 1).register == (0, 0)


def test_overlapping_ranges_do_not() -> None:
    found = made((9, 0b0110), (10, 0b1100))
    done = colour(found, 1)
    assert done.failed in (0, 1)
    assert done.placed == 1
    assert_sound(found, colour(found, 2), 2)


def test_distinct_registers_are_not_shared() -> None:
    found = made((9, 0b0011), (10, 0b1100))
    for web in found.webs:
        web.whole = True
    done = colour(found, 2, distinct=1 << 9 | 1 << 10)
    assert sorted(done.register) == [0, 1]
    assert colour(found, 1, distinct=1 << 9 | 1 << 10).failed >= 0


def test_pairs_keep_their_alignment() -> None:
    """R9 is taken throughout, so an aligned pair finds no place among three registers."""
    pair = Group((1, 2), 2, 4, 5)
    found = made((STACK_POINTER, 0b1111), (4, 0b1111), (5, 0b1111),
                 groups=(Group((0,), 1, 1, 1), pair))  # fmt: skip
    assert colour(found, 3).failed == 1
    done = colour(found, 4)
    assert done.register == (STACK_POINTER, 2, 3)


@pytest.mark.parametrize("fit", list(_Fit))
def test_places_are_the_same_tried_one_by_one_and_looked_up(fit: _Fit) -> None:
    kernel = Cubin.parse(FILES["pair_forces"].read_bytes()).kernel("pair_forces")
    program = program_of(kernel)
    found = webs(program, liveness(program))
    limit = kernel.registers_per_thread + 6
    tuples = _tuples(found, limit, 0)
    order = sorted(range(len(tuples)), key=lambda k: tuples[k].first)
    looked_up = _Neighbours(tuples)
    for k in order:
        looked_up.of(k)
    results: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for neighbours in (looked_up, _Neighbours(tuples)):
        search = _Search(tuples, neighbours, limit, fit, 100)
        unplaced = search.run(order)
        results.append((unplaced, search.registers(len(found.webs))))
    assert results[0] == results[1]
