"""Control-flow graphs of hand-made sections, and what edits do to their addresses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from regdem.errors import UnsupportedError
from regdem.isa import decode, encode
from regdem.isa.fields import get_field, set_displacement
from regdem.isa.table import DISPLACEMENTS
from regdem.program.edit import apply, compose, identity, return_addresses
from regdem.program.loops import loop_depth, loops
from regdem.program.program import Program, build

Word = tuple[int, int]
EXIT: Word = (0x000000000000794D, 0x000FEA0003800000)
NOP = encode.nop()
ADD = encode.add(4, 4, 4)


def guarded(word: Word, predicate: int) -> Word:
    return (word[0] & ~0xF000) | (predicate << 12), word[1]


def jump(at: int, to: int, *, predicate: int = 7) -> Word:
    """`BRA` from instruction `at` to instruction `to`."""
    word = set_displacement(
        0x0000000000007947, 0x000FEA0003800000, DISPLACEMENTS["branch"], 16 * (to - at - 1)
    )
    return guarded(word, predicate)


def call(at: int, to: int) -> Word:
    """`CALL.REL.NOINC`."""
    return set_displacement(
        0x0000000000007944, 0x000FEA0003C00000, DISPLACEMENTS["branch"], 16 * (to - at - 1)
    )


def give_back(at: int, register: int) -> Word:
    """`RET.REL.NODEC` through a register pair that holds a section offset."""
    low = 0x0000000000007950 | register << 24
    return set_displacement(low, 0x000FEA0003C3FFFF, DISPLACEMENTS["branch"], -16 * (at + 1))


def indirect(at: int, register: int) -> Word:
    """`BRX`."""
    low = 0x0000000000007949 | register << 24
    return set_displacement(low, 0x000FEA000383FFFF, DISPLACEMENTS["branch"], -16 * (at + 1))


def move(register: int, value: int) -> Word:
    """`MOV register, value`."""
    return 0x7802 | register << 16 | value << 32, 0x000FE20000000F00


def section(
    words: Sequence[Word],
    functions: Sequence[tuple[str, int, int]] = (),
    tables: dict[int, list[int]] | None = None,
) -> Program:
    code = decode(np.array(words, dtype=np.uint64))
    return build("k", code, [(n, 16 * s, 16 * e) for n, s, e in functions], tables)


LOOP = [ADD, ADD, jump(2, 1, predicate=0), EXIT, jump(4, 4), NOP, NOP, NOP]


def edges(program: Program) -> set[tuple[int, int]]:
    """Edges as (last instruction, first instruction)."""
    return {
        (block.end - 1, program.blocks[s].start)
        for block in program.blocks
        for s in block.successors
    }


def test_loop() -> None:
    program = section(LOOP)
    assert edges(program) >= {(0, 1), (2, 1), (2, 3)}
    assert (3, 4) not in edges(program)
    nest = loops(program)
    inner = [loop for loop in nest if program.blocks[loop.header].start == 1]
    assert len(inner) == 1
    depth = loop_depth(program)
    at = [depth[int(b)] for b in program.block_of[:4]]
    assert at == [0, 1, 1, 0]


def test_guarded_exit_falls_through() -> None:
    program = section([ADD, guarded(EXIT, 1), ADD, EXIT])
    assert edges(program) == {(1, 2)}


def test_exit_with_a_condition_falls_through() -> None:
    low, high = EXIT
    conditional = low, (high & ~(7 << 23)) | 1 << 23  # EXIT P1
    assert edges(section([ADD, conditional, ADD, EXIT])) == {(1, 2)}


def test_unguarded_branch_does_not_fall_through() -> None:
    program = section([jump(0, 2), ADD, EXIT, NOP])
    assert (0, 2) in edges(program)
    assert (0, 1) not in edges(program)
    unreachable = {0, 1, 2} - {program.blocks[b].start for b in program.reachable}
    assert unreachable == {1}


def test_divergence_branch_falls_through_without_a_condition() -> None:
    low, high = jump(0, 2)
    divergent = low | 2 << 32 | 63 << 24, high | 1 << (91 - 64)
    assert {(0, 1), (0, 2)} <= edges(section([divergent, ADD, EXIT, NOP]))


def test_jump_table() -> None:
    words = [ADD, indirect(1, 6), EXIT, EXIT, EXIT, NOP, NOP, NOP]
    program = section(words, tables={16: [48, 64]})
    assert {(1, 3), (1, 4)} <= edges(program)
    assert (1, 2) not in edges(program)
    with pytest.raises(UnsupportedError, match="branch table"):
        section(words)


def test_unknown_instruction_is_named() -> None:
    with pytest.raises(UnsupportedError, match="not in the instruction table") as caught:
        section([ADD, (0xFFFFFFFFFFFFFFFF, 0), EXIT])
    assert caught.value.offset == 16


def test_branch_out_of_the_section() -> None:
    with pytest.raises(UnsupportedError, match="leaves the code section"):
        section([jump(0, 100), EXIT])


@pytest.mark.parametrize("count", [1, 3, 17])
def test_insertion_before_is_run_by_jumps(count: int) -> None:
    program = section(LOOP)
    edited = apply(program, before={1: [NOP] * count})
    new = edited.program
    assert int(edited.label_map[1]) == 1
    assert int(edited.index_map[1]) == 1 + count
    assert int(new.target[int(edited.index_map[2])]) == 1
    assert len(new) % 8 == 0
    assert [int(o) for o in edited.origin if o >= 0] == list(range(len(program)))


def test_insertion_after_belongs_to_the_fall_through() -> None:
    program = section(LOOP)
    edited = apply(program, after={0: [NOP, NOP]})
    assert int(edited.label_map[1]) == 3
    assert int(edited.program.target[int(edited.index_map[2])]) == 3
    assert (int(edited.index_map[4])) == int(edited.program.target[int(edited.index_map[4])])


def test_replacement_and_deletion() -> None:
    program = section(LOOP)
    edited = apply(program, replace={0: NOP}, delete=frozenset({1}))
    new = edited.program
    assert new.code.word(0) == NOP
    assert int(new.target[int(edited.index_map[2])]) == int(edited.label_map[1]) == 1
    assert 1 not in edited.origin


def test_compose_and_identity() -> None:
    program = section(LOOP)
    first = apply(program, before={1: [NOP]})
    second = apply(first.program, after={0: [ADD]})
    both = compose(first, second)
    assert both.index_map[1] == second.index_map[first.index_map[1]]
    assert sorted(int(o) for o in both.origin if o >= 0) == list(range(len(program)))
    same = compose(identity(program), first)
    assert (same.index_map == first.index_map).all()
    assert (same.origin == first.origin).all()


def with_call() -> Program:
    words = [
        ADD, move(20, 16 * 4), move(21, 0), call(3, 8), ADD, EXIT, jump(6, 6), NOP,
        ADD, give_back(9, 20), NOP, NOP, NOP, NOP, NOP, NOP,
    ]  # fmt: skip
    return section(words, [("k", 0, 8), ("slow", 8, 8)])


def test_call_and_its_return_address() -> None:
    program = with_call()
    assert dict(program.callee) == {3: 1}
    assert return_addresses(program) == {1: 3}
    assert [int(program.block_of[8])] == [
        b for b in program.reachable if program.blocks[b].start == 8
    ]


def test_edit_moves_the_return_address() -> None:
    edited = apply(with_call(), before={2: [NOP], 4: [NOP, NOP]}, after={8: [NOP]})
    new = edited.program
    site = int(edited.index_map[3])
    low, high = new.code.word(int(edited.index_map[1]))
    assert get_field(low, high, 32, 32) == 16 * (site + 1)
    assert return_addresses(new) == {int(edited.index_map[1]): site}
    ret = int(edited.index_map[9])
    assert new.code.word(ret) == give_back(ret, 20)
    assert new.functions[1].start == int(edited.label_map[8])


def test_return_address_that_cannot_be_told() -> None:
    words = list(with_call().code.words.tolist())
    words[1] = ADD
    program = section([(int(a), int(b)) for a, b in words], [("k", 0, 8), ("slow", 8, 8)])
    with pytest.raises(UnsupportedError, match="return address"):
        apply(program, before={0: [NOP]})


def test_edit_moves_jump_tables() -> None:
    words = [ADD, indirect(1, 6), EXIT, EXIT, EXIT, NOP, NOP, NOP]
    edited = apply(section(words, tables={16: [48, 64]}), before={1: [NOP], 4: [NOP, NOP]})
    site = int(edited.index_map[1])
    assert dict(edited.program.tables) == {site: (4, 5)}
    assert edited.program.code.word(site) == indirect(site, 6)
