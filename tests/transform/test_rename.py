"""Renaming: register fields follow the webs, and reuse flags that no longer hold are cleared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from words import EXIT, program

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import webs
from regdem.binary.cubin import Cubin
from regdem.isa.control import get_control, set_control
from regdem.isa.encode import Word, imad_register, lds, sts
from regdem.isa.fields import get_field
from regdem.program.program import Program
from regdem.transform.demote import demote
from regdem.transform.demoted import DemoteOptions, program_of
from regdem.transform.rename import rename

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = Cubin.parse((ROOT / "examples" / "neighbour" / "neighbour.cubin").read_bytes())
KERNEL = EXAMPLE.kernel("pair_forces")


def reused(word: Word, slots: int) -> Word:
    control = replace(get_control(word[1]), reuse=slots)
    return word[0], set_control(word[1], control)


def renamed(
    code: Program, register: Callable[[int], int] | None = None, origin: list[int] | None = None
) -> list[Word]:
    found = webs(code, liveness(code))
    numbers = [register(w.register) if register else w.register for w in found.webs]
    return rename(code, found, numbers, origin or list(range(len(code))))


def flags(words: list[Word]) -> list[int]:
    return [get_control(hi).reuse for _, hi in words]


def pair() -> list[Word]:
    """Two products with R4 in their first slot; the first keeps it for the second."""
    return [reused(imad_register(8, 4, 5, 6), 1), imad_register(9, 4, 7, 6), EXIT]


def test_fields_follow_the_webs() -> None:
    words = renamed(program(pair()), lambda r: r + 10)
    lo, hi = words[0]
    assert [get_field(lo, hi, bit, 8) for bit in (16, 24, 32, 64)] == [18, 14, 15, 16]


def test_identity_changes_nothing() -> None:
    code = program_of(KERNEL)
    before = [code.code.word(i) for i in range(len(code))]
    after = renamed(code)
    assert [(lo, set_control(hi, replace(get_control(hi), reuse=0))) for lo, hi in after] == [
        (lo, set_control(hi, replace(get_control(hi), reuse=0))) for lo, hi in before
    ]
    assert all(new & ~old == 0 for new, old in zip(flags(after), flags(before), strict=True))


def test_reuse_survives_a_bijection() -> None:
    assert flags(renamed(program(pair()), lambda r: r + 10))[0] == 1


def test_reuse_survives_an_inserted_store() -> None:
    first, second, end = pair()
    assert flags(renamed(program([first, sts(20, 0, 5), second, end]), origin=[0, -1, 1, 2]))[0]


def test_reuse_is_cleared_where_the_register_is_loaded_between() -> None:
    """R4 was given up and loaded again: another live range."""
    first, second, end = pair()
    assert not flags(renamed(program([first, lds(4, 20, 0), second, end]), origin=[0, -1, 1, 2]))[0]


def test_reuse_is_cleared_where_the_taker_is_far_away() -> None:
    first, second, end = pair()
    between = [imad_register(10 + k, 5, 6, 7) for k in range(8)]
    code = program([first, *between, second, end])
    assert not flags(renamed(code))[0]


@pytest.mark.parametrize("origin", [[-1, 1, 2], [0, -1, 1]])
def test_reuse_is_cleared_at_inserted_instructions(origin: list[int]) -> None:
    assert flags(renamed(program(pair()), origin=origin))[0] == 0


def test_reuse_is_cleared_where_the_neighbour_names_another_register() -> None:
    words = pair()
    words[1] = imad_register(9, 3, 7, 6)
    assert flags(renamed(program(words)))[0] == 0


def test_reuse_is_cleared_where_one_register_became_two() -> None:
    """R4 is written between its two readers: they are two webs, with two registers now."""
    words = [reused(imad_register(4, 4, 5, 6), 1), imad_register(9, 4, 7, 6), EXIT]
    code = program(words)
    found = webs(code, liveness(code))
    numbers = [w.register for w in found.webs]
    (second,) = (w.index for w in found.webs if w.register == 4 and 1 in w.reads)
    numbers[second] = 12
    assert flags(rename(code, found, numbers, [0, 1, 2]))[0] == 0


@pytest.mark.parametrize("order", ["live-range", "cfg"])
def test_reuse_in_a_demoted_kernel(order: str) -> None:
    """Every flag that is left names a register that is read in that slot a little later."""
    done = demote(KERNEL, DemoteOptions(40, 256, 40, order))
    new = EXAMPLE.with_kernel(KERNEL.name, done.edit)
    code = program_of(Cubin.parse(new.to_bytes()).kernel(KERNEL.name)).code
    kept = 0
    for i, mask in enumerate(code.reuse.tolist()):
        for slot, bit in enumerate((24, 32, 64)):
            if (mask >> slot) & 1:
                kept += 1
                nexts = [get_field(*code.word(j), bit, 8) for j in range(i + 1, i + 9)]
                assert get_field(*code.word(i), bit, 8) in nexts
    assert kept
