"""Inserting, replacing and deleting instructions, with every code address kept right.

An edit is described against the instruction indices of one program and gives a new program. What is
put *before* instruction p belongs to p: every jump to p runs it. What is put *after* p belongs to
p's fall-through alone: a jump to p + 1 does not run it. Displacements, branch tables, functions and
return addresses are carried over; `Edited.index_map` says where each old instruction went.

Return addresses are plain immediates (`MOV R20, 0x120`, no relocation, possibly far from the call),
found as the definition of the callee's return register that reaches the call; a kernel where that
is not unique is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regdem.errors import UnsupportedError
from regdem.isa.decode import decode
from regdem.isa.decoded import INSTRUCTION_BYTES, RegisterFile, Role
from regdem.isa.fields import get_field, set_displacement, set_field
from regdem.program.program import Program, build

Word = tuple[int, int]
NOP: Word = (0x0000000000007918, 0x000FC00000000000)
_ALIGNMENT = 8  # instructions: sections are padded to 128 bytes


@dataclass(frozen=True)
class Edited:
    """A new program and where the old instructions are in it.

    `index_map[i]` is the new index of old instruction i (its successor's place if it was deleted),
    with one entry more for the end; `label_map[i]` is where a jump to i lands; `origin[k]` is the
    old index of new instruction k, or -1.
    """

    program: Program
    index_map: NDArray[np.int64]
    label_map: NDArray[np.int64]
    origin: NDArray[np.int32]


def apply(
    program: Program,
    *,
    before: Mapping[int, Sequence[Word]] | None = None,
    after: Mapping[int, Sequence[Word]] | None = None,
    replace: Mapping[int, Word] | None = None,
    delete: frozenset[int] = frozenset(),
) -> Edited:
    """Applies an edit and builds the new program (decoded again from its words)."""
    before, after, replace = before or {}, after or {}, replace or {}
    returns = return_addresses(program)
    n = len(program)
    words: list[Word] = []
    origin: list[int] = []
    index_map = np.zeros(n + 1, dtype=np.int64)
    label_map = np.zeros(n + 1, dtype=np.int64)
    rows = program.code.words.tolist()
    for i in range(n):
        label_map[i] = len(words)
        for word in before.get(i, ()):
            words.append(word)
            origin.append(-1)
        index_map[i] = len(words)
        if i not in delete:
            lo, hi = rows[i]
            words.append(replace.get(i, (lo, hi)))
            origin.append(i)
        for word in after.get(i, ()):
            words.append(word)
            origin.append(-1)
    index_map[n] = label_map[n] = len(words)
    while len(words) % _ALIGNMENT:
        words.append(NOP)
        origin.append(-1)

    forms = program.code.table.forms
    for i, form in enumerate(program.code.form.tolist()):
        displacement = forms[form].displacement
        if displacement is None or i in delete:
            continue
        at = int(index_map[i])
        lo, hi = words[at]
        if program.target[i] >= 0:
            goal = int(label_map[program.target[i]]) * INSTRUCTION_BYTES
            base = (at + 1) * INSTRUCTION_BYTES if displacement.relative else 0
            words[at] = set_displacement(lo, hi, displacement, goal - base)
        elif forms[form].control in ("return", "indirect", "call_register"):
            # Relative to the start of the section: the register holds a section offset.
            words[at] = set_displacement(lo, hi, displacement, -(at + 1) * INSTRUCTION_BYTES)
    for mov, call in returns.items():
        at = int(index_map[mov])
        lo, hi = words[at]
        address = (int(index_map[call]) + 1) * INSTRUCTION_BYTES
        words[at] = set_field(lo, hi, 32, 32, address)

    array = np.array(words, dtype=np.uint64).reshape(-1, 2)
    functions = [
        (
            f.name,
            int(label_map[f.start]) * INSTRUCTION_BYTES,
            int(label_map[f.end] - label_map[f.start]) * INSTRUCTION_BYTES,
        )
        for f in program.functions
    ]
    tables = {
        int(index_map[site]) * INSTRUCTION_BYTES: [
            int(label_map[t]) * INSTRUCTION_BYTES for t in targets
        ]
        for site, targets in program.tables.items()
    }
    new = build(program.name, decode(array, program.code.table.arch), functions, tables)
    return Edited(new, index_map, label_map, np.array(origin, dtype=np.int32))


def compose(first: Edited, second: Edited) -> Edited:
    """The edit that is `first` followed by `second` (an edit of `first.program`)."""
    origin = np.where(second.origin >= 0, first.origin[np.maximum(second.origin, 0)], -1)
    return Edited(
        second.program,
        second.index_map[first.index_map],
        second.label_map[first.label_map],
        origin.astype(np.int32),
    )


def identity(program: Program) -> Edited:
    """The edit that changes nothing."""
    n = len(program)
    index = np.arange(n + 1, dtype=np.int64)
    return Edited(program, index, index.copy(), np.arange(n, dtype=np.int32))


def return_addresses(program: Program) -> dict[int, int]:
    """The instructions that hold a return address as an immediate, and the call each is for.

    Raises `UnsupportedError` where a call's return address can't be told.
    """
    result: dict[int, int] = {}
    for site, function in program.callee.items():
        registers = {_return_register(program, i) for i in program.returns_by_function[function]}
        if not registers:
            continue
        register = registers.pop()
        found = None if registers or register is None else _reaching(program, site, register)
        address = (site + 1) * INSTRUCTION_BYTES
        for mov in found or ():
            lo, hi = (int(w) for w in program.code.words[mov])
            if get_field(lo, hi, 32, 32) != address or not _is_move(program, mov):
                found = None
                break
            result[mov] = site
        if not found:
            raise UnsupportedError(
                "the return address of a call can't be told",
                code="return_address",
                kernel=program.name,
                offset=site * INSTRUCTION_BYTES,
            )
    return result


def _rows(program: Program, i: int) -> range:
    return range(int(program.code.operand_start[i]), int(program.code.operand_start[i + 1]))


def _return_register(program: Program, i: int) -> int | None:
    code = program.code
    for row in _rows(program, i):
        if code.operand_file[row] == RegisterFile.GPR and code.operand_role[row] & Role.READ:
            return int(code.operand_register[row])
    return None


def _is_move(program: Program, i: int) -> bool:
    """An unguarded immediate move: one register written, none read."""
    code = program.code
    rows = _rows(program, i)
    name = code.table.forms[code.form[i]].name
    return len(rows) == 1 and name in ("MOV", "IMAD", "MOV32I") and code.guard[i] == 7


def _reaching(program: Program, site: int, register: int) -> set[int] | None:
    """Definitions of a GPR that reach instruction `site` in its function; None if one is unknown."""
    code = program.code
    found: set[int] = set()
    block = program.blocks[program.block_of[site]]
    work = [(block.index, site)]
    seen: set[int] = set()
    while work:
        b, end = work.pop()
        block = program.blocks[b]
        for i in range(end - 1, block.start - 1, -1):
            if any(
                code.operand_file[row] == RegisterFile.GPR
                and code.operand_role[row] & Role.WRITE
                and 0 <= register - int(code.operand_register[row]) < int(code.operand_width[row])
                for row in _rows(program, i)
            ):
                found.add(i)
                break
        else:
            if not block.predecessors:
                return None
            for p in block.predecessors:
                if p not in seen:
                    seen.add(p)
                    work.append((p, program.blocks[p].end))
    return found
