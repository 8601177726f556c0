"""Bank-aware colouring: still a colouring, and with fewer operands that share a bank."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_colour import assert_sound
from words import EXIT, program

from regdem.analysis.banks import bank_conflicts
from regdem.analysis.liveness import liveness
from regdem.analysis.webs import Webs, webs
from regdem.binary.cubin import Cubin
from regdem.isa.encode import imad_register, s2r
from regdem.program.program import Program
from regdem.transform.colour import Colouring, colour
from regdem.transform.demoted import program_of
from regdem.transform.finish import _with_words  # pyright: ignore[reportPrivateUsage]
from regdem.transform.polish import polish
from regdem.transform.rename import rename

ROOT = Path(__file__).resolve().parents[2]
NEIGHBOUR = ROOT / "examples" / "neighbour" / "neighbour.cubin"
KERNELS = ROOT / "tests" / "check" / "data" / "kernels.cubin"
FILES = {"pair_forces": NEIGHBOUR, "doubles": KERNELS, "vectors": KERNELS, "calls": KERNELS}


def count(code: Program, found: Webs, colouring: Colouring) -> int:
    words = rename(code, found, colouring.register, list(range(len(code))))
    return sum(bank_conflicts(_with_words(code, words), lasting=False))


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_colouring_stays_one(name: str) -> None:
    code = program_of(Cubin.parse(FILES[name].read_bytes()).kernel(name))
    found = webs(code, liveness(code))
    before = colour(found, 64)
    after = polish(code, found, before)
    limit = 1 + max(before.register[w.index] for w in found.webs if w.points)
    assert_sound(found, after, limit)
    assert count(code, found, after) <= count(code, found, before)


def test_conflicts_of_a_kernel_fall() -> None:
    code = program_of(Cubin.parse(NEIGHBOUR.read_bytes()).kernel("pair_forces"))
    found = webs(code, liveness(code))
    before = colour(found, 64)
    assert count(code, found, polish(code, found, before)) < count(code, found, before)


def test_three_operands_of_one_bank_are_parted() -> None:
    """R4, R6 and R8 feed one product; there is room in odd registers."""
    code = program([s2r(4, 0x21), s2r(6, 0x21), s2r(8, 0x21), s2r(5, 0x21),
                    imad_register(10, 4, 6, 8), imad_register(10, 10, 5, 10), EXIT])  # fmt: skip
    found = webs(code, liveness(code))
    numbers = Colouring(tuple(w.register for w in found.webs), (), len(found.groups))
    after = polish(code, found, numbers)
    by_register = {w.register: after.register[w.index] for w in found.webs}
    assert len({by_register[r] % 2 for r in (4, 6, 8)}) == 2
    assert_sound(found, after, 11)
