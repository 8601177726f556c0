"""Runs straight-line words on symbols, for tests that compare two orders of instructions.

A value is the tuple of what made it: the instruction without register fields and control bits, and
its operands. Memory is what has been stored so far. Nothing of it is shared with the transformation
or with the checker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regdem.isa.control import ControlWord, set_control
from regdem.isa.decode import decode
from regdem.isa.decoded import Role
from regdem.isa.encode import Word
from regdem.isa.fields import set_field

Value = tuple[Any, ...]
_WIDTH = {0: 8, 1: 6, 2: 3, 3: 3}


def stores_of(words: Sequence[Word]) -> list[Value]:
    """What a program stores, in order: the store, its operands, and what it was guarded by."""
    data = b"".join(half.to_bytes(8, "little") for word in words for half in word)
    code = decode(data)
    held: dict[tuple[int, int], Value] = {}
    stores: list[Value] = []
    done: dict[str, int] = {}
    for i in range(len(code)):
        form = code.table.forms[int(code.form[i])]
        lo, hi = code.word(i)
        hi = set_control(hi, ControlWord())
        reads: list[Value] = []
        places: list[tuple[int, int]] = []
        for row in range(int(code.operand_start[i]), int(code.operand_start[i + 1])):
            file, first = int(code.operand_file[row]), int(code.operand_register[row])
            each = [(file, first + k) for k in range(int(code.operand_width[row]))]
            if code.operand_role[row] & Role.READ:
                reads += [held.get(place, ("entry", place)) for place in each]
            if code.operand_role[row] & Role.WRITE:
                places += each
            if int(code.operand_bit[row]) < 128:
                lo, hi = set_field(lo, hi, int(code.operand_bit[row]), _WIDTH[file], 0)
        guarded = bool(code.guard[i] != 7)
        value: Value = (form.name, lo, hi, *reads)
        read_only = hi >> 13 & 0xF == 4
        if form.reads_memory and form.memory != "constant" and not read_only:
            value = (*value, "after", done.get(form.memory, 0))
        if form.writes_memory:
            stores.append(value)
            done[form.memory] = done.get(form.memory, 0) + 1
        for k, place in enumerate(places):
            old = held.get(place, ("entry", place)) if guarded else ()
            held[place] = ("result", k, value, old)
    return stores
