"""Writes a colouring into the words: register fields, and the reuse flags that this upsets.

A reuse flag keeps an operand in the cache of its slot until the next instruction that reads that
slot from that bank. The cache knows register numbers, so that a flag without a taker costs
nothing; a value must not be overwritten while it is kept. A flag therefore stays where the next
original instruction that names this register in this slot, a few instructions on in the same
block, reads the same live range, and nothing writes the register before. ptxas keeps operands over
up to seven instructions, loads and stores among them (30 % of its flags skip one or more).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from regdem.analysis.webs import Webs
from regdem.isa.control import get_control, set_control
from regdem.isa.decoded import IMPLICIT, Role
from regdem.isa.encode import Word
from regdem.isa.fields import set_field
from regdem.program.program import Program

_REUSE_SLOTS = ((0, 24), (1, 32), (2, 64))
_REACH = 8
"""Instructions within which a kept operand is looked for; ptxas has up to 7 between."""


def rename(
    program: Program, webs: Webs, register: Sequence[int], origin: Sequence[int]
) -> list[Word]:
    """The words with every GPR field set to the register of its web.

    `register[w]` is the register of web w; `origin[i]` is the original index of instruction i, or
    -1 for an inserted one.
    """
    code = program.code
    words: list[Word] = [code.word(i) for i in range(len(code))]
    instruction: list[int] = code.operand_instruction.tolist()
    bit: list[int] = code.operand_bit.tolist()
    fields: dict[tuple[int, int], int] = {}
    for row, names in webs.of_row.items():
        if bit[row] == IMPLICIT:
            continue
        i = instruction[row]
        lo, hi = words[i]
        words[i] = set_field(lo, hi, bit[row], 8, register[names[0]])
        fields[i, bit[row]] = register[names[0]]
    taken = _takers(program, webs, fields, origin)
    for i, reuse in enumerate(code.reuse.tolist()):
        if not reuse:
            continue
        kept = sum(1 << slot for slot, low in _REUSE_SLOTS if (reuse >> slot) & 1 and taken(i, low))
        if kept != reuse or origin[i] < 0:
            lo, hi = words[i]
            control = replace(get_control(hi), reuse=kept if origin[i] >= 0 else 0)
            words[i] = lo, set_control(hi, control)
    return words


def _takers(
    program: Program, webs: Webs, fields: dict[tuple[int, int], int], origin: Sequence[int]
) -> Callable[[int, int], bool]:
    """Whether a value kept in the slot at bit `low` by instruction i is read there again."""
    code = program.code
    names: dict[tuple[int, int], tuple[int, ...]] = {}
    writes: dict[int, set[int]] = {}
    instruction: list[int] = code.operand_instruction.tolist()
    bit: list[int] = code.operand_bit.tolist()
    role: list[int] = code.operand_role.tolist()
    for row, of_row in webs.of_row.items():
        if role[row] & Role.READ:
            names[instruction[row], bit[row]] = of_row
        if role[row] & Role.WRITE:
            writes.setdefault(instruction[row], set()).update(of_row)

    def taken(i: int, low: int) -> bool:
        mine = names.get((i, low))
        if mine is None or not writes.get(i, set[int]()).isdisjoint(mine):
            return False
        end = program.blocks[int(program.block_of[i])].end
        for j in range(i + 1, min(end, i + 1 + _REACH)):
            if fields.get((j, low)) == fields[i, low] and origin[j] >= 0:
                return names.get((j, low)) == mine
            if not writes.get(j, set[int]()).isdisjoint(mine):
                return False
        return False

    return taken
