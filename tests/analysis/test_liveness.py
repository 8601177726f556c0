"""Live registers: small hand-made sections, and the counts that the disassembler prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from regdem.analysis.bits import (
    FILE_MASK,
    def_masks,
    def_words,
    file_mask,
    members,
    use_masks,
    use_words,
)
from regdem.analysis.liveness import liveness
from regdem.binary import Cubin
from regdem.isa import RegisterFile, decode, encode
from regdem.program.from_kernel import program_of
from regdem.program.program import Program, build

ROOT = Path(__file__).resolve().parents[2]
CUBINS = sorted((ROOT / "examples").rglob("*.cubin"))
EXIT = (0x000000000000794D, 0x000FEA0003800000)


def section(*words: tuple[int, int]) -> Program:
    return build("k", decode(np.array(words, dtype=np.uint64)), [], None)


def live_gpr(program: Program) -> list[list[int]]:
    """Registers live before each instruction."""
    return [members(file_mask(m, RegisterFile.GPR)) for m in liveness(program).before]


def test_definition_kills_and_use_gives_birth() -> None:
    program = section(encode.s2r(4, encode.TID_X), encode.add(5, 4, 4), encode.sts(5, 0, 4), EXIT)
    assert live_gpr(program) == [[], [4], [4, 5], []]


def test_guarded_definition_does_not_kill() -> None:
    low, high = encode.add(5, 4, 4)
    guarded = (low & ~0xF000) | 1 << 12, high
    program = section(encode.s2r(4, encode.TID_X), guarded, encode.sts(5, 0, 4), EXIT)
    assert live_gpr(program)[1] == [4, 5]
    assert members(file_mask(liveness(program).before[1], RegisterFile.PRED)) == [1]


def test_pressure_counts_dead_results() -> None:
    program = section(encode.s2r(4, encode.TID_X), EXIT)
    live = liveness(program)
    assert live.pressure(RegisterFile.GPR).tolist() == [1, 0]
    assert live.max_live(RegisterFile.GPR) == 1
    assert live.max_live(RegisterFile.UGPR) == 0


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_masks_and_words_agree(path: Path) -> None:
    for kernel in Cubin.parse(path.read_bytes(), str(path)).kernels:
        code = program_of(kernel).code
        for words, masks in (
            (use_words(code), use_masks(code)),
            (def_words(code), def_masks(code)),
        ):
            assert [int.from_bytes(row.tobytes(), "little") for row in words] == masks


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_dataflow_equations_hold(path: Path) -> None:
    """before = uses | (after & ~kills); after = the union over successors."""
    for kernel in Cubin.parse(path.read_bytes(), str(path)).kernels:
        program = program_of(kernel)
        live = liveness(program)
        for block in program.blocks:
            last = block.end - 1
            joined = 0
            for s in block.successors:
                joined |= live.before[program.blocks[s].start]
            if block.successors:
                assert live.after[last] == joined
            for i in range(block.start, last):
                assert live.after[i] == live.before[i + 1]
            for i in range(block.start, block.end):
                assert live.uses[i] & ~live.before[i] == 0


@pytest.mark.tools
@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_counts_equal_the_disassemblers(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "verify_live.py"), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "kernels" in run.stdout


def guarded(word: tuple[int, int], predicate: int, *, negated: bool = False) -> tuple[int, int]:
    return (word[0] & ~0xF000) | predicate << 12 | int(negated) << 15, word[1]


def first_live(*words: tuple[int, int]) -> list[int]:
    """Registers live at the start when guards are followed."""
    live = liveness(section(*words, EXIT), follow_guards=True)
    return members(file_mask(live.before[0], RegisterFile.GPR))


def test_guards_are_followed() -> None:
    define, use = encode.s2r(5, encode.TID_X), encode.sts(2, 0, 5)
    # Defined and used under one guard.
    assert first_live(guarded(define, 1), guarded(use, 1)) == [2]
    # Another guard, no guard, or the other sign may need the old value.
    assert first_live(guarded(define, 1), guarded(use, 2)) == [2, 5]
    assert first_live(guarded(define, 1), use) == [2, 5]
    assert first_live(guarded(define, 1), guarded(use, 1, negated=True)) == [2, 5]
    # Both signs define it.
    assert first_live(guarded(define, 1), guarded(define, 1, negated=True), use) == [2]
    # Each user's guard has a definition of its own.
    assert first_live(
        guarded(define, 1), guarded(use, 1), guarded(define, 2), guarded(use, 2)
    ) == [2]  # fmt: skip


def test_a_guard_that_changes_is_another_guard() -> None:
    define, use = encode.s2r(5, encode.TID_X), encode.sts(2, 0, 5)
    compare = (0x000000FF0700720C, 0x000FDA0003F05270)  # ISETP P0 from R7
    written = compare[0], (compare[1] & ~(7 << 17)) | 1 << 17  # P1 instead
    program = section(guarded(define, 1), written, guarded(use, 1), EXIT)
    predicates = FILE_MASK[RegisterFile.PRED]
    assert liveness(program).defs[1] & predicates
    live = liveness(program, follow_guards=True)
    assert 5 in members(file_mask(live.before[0], RegisterFile.GPR))
