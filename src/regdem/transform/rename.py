"""Writes a colouring into the words: register fields, and the reuse flags that this upsets.

A reuse flag keeps an operand for the next instruction in the same slot. It survives only between
two instructions that were neighbours in the original and still are, and that still name one
register in that slot; everywhere else it is cleared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regdem.analysis.webs import Webs
from regdem.isa.control import get_control, set_control
from regdem.isa.decoded import IMPLICIT
from regdem.isa.encode import Word
from regdem.isa.fields import get_field, set_field
from regdem.program.program import Program

_REUSE_SLOTS = ((0, 24), (1, 32), (2, 64))


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
    for i, reuse in enumerate(code.reuse.tolist()):
        if not reuse:
            continue
        kept = 0
        neighbours = i + 1 < len(words) and origin[i] >= 0 and origin[i + 1] == origin[i] + 1
        for slot, low in _REUSE_SLOTS:
            if not (reuse >> slot) & 1 or not neighbours:
                continue
            mine, nexts = fields.get((i, low)), fields.get((i + 1, low))
            before = [get_field(*code.word(k), low, 8) for k in (i, i + 1)]
            if mine is not None and mine == nexts and before[0] == before[1]:
                kept |= 1 << slot
        if kept != reuse:
            lo, hi = words[i]
            words[i] = lo, set_control(hi, replace(get_control(hi), reuse=kept))
    return words
