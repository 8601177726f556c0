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
_STACK_POINTER = 1
_SIZE_32 = 4
_FRAME = 1 << 25
"""Places of frame words, above all register numbers."""


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
    while len(words) % _ALIGNMENT:
        words.append(NOP)
        origin.append(-1)
    index_map[n] = label_map[n] = len(words)

    forms = program.code.table.forms
    for i, form in enumerate(program.code.form_indices):
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

    A function takes its return address in a register and may copy it before it returns; the value
    that reaches that register at each call must be the immediate address of the instruction behind
    the call. Raises `UnsupportedError` where a call's return address can't be told.
    """
    result: dict[int, int] = {}
    taken = {f: _taken_in(program, f) for f in set(program.callee.values())}
    for site, function in program.callee.items():
        places = taken[function]
        if places == set():
            continue  # a function that never returns
        address = (site + 1) * INSTRUCTION_BYTES
        found: set[int] = set()
        if places is not None and len(places) == 1:
            found = _moves_into(program, site, min(places))
        if not found or not all(
            mov >= 0
            and get_field(*program.code.word(mov), 32, 32) == address
            and _is_move(program, mov)
            for mov in found
        ):
            raise UnsupportedError(
                "the return address of a call can't be told",
                code="return_address",
                kernel=program.name,
                offset=site * INSTRUCTION_BYTES,
            )
        for mov in found:
            result[mov] = site
    return result


def _taken_in(program: Program, function: int) -> set[int] | None:
    """Places that hold the return address when `function` is entered; None if unknown.

    A place is a register, or `_FRAME` + offset for a word of the frame that the function shares
    with its caller.
    """
    found: set[int] = set()
    seen: set[tuple[int, int]] = set()
    work: list[tuple[int, int]] = []
    for i in program.returns_by_function[function]:
        register = _return_register(program, i)
        if register is None:
            return None
        work.append((i, register))
    while work:
        i, register = work.pop()
        if (i, register) in seen:
            continue
        seen.add((i, register))
        for definition in _reaching(program, i, register):
            if definition < 0:
                found.add(register)
                continue
            copied = _stored_register if register >= _FRAME else _copied_register
            source = copied(program, definition)
            if source is not None:
                work.append((definition, source))
            elif definition >= 0 and _memory_base(program, definition) >= 0:
                place = _frame_place(program, definition)
                if place is not None and (
                    place >= 2 * _FRAME or not _moves_stack(program, function)
                ):
                    work.append((definition, place))
                else:
                    # Restored from the stack: the convention gives it back in the register it
                    # came in.
                    found.add(register)
            else:
                return None
    return found


def _moves_into(program: Program, site: int, place: int) -> set[int]:
    """The instructions whose value reaches `place` at `site` through the frame; -1 is unknown."""
    result: set[int] = set()
    seen: set[tuple[int, int]] = set()
    work = [(site, place)]
    while work:
        at = work.pop()
        if at in seen:
            continue
        seen.add(at)
        for definition in _reaching(program, *at):
            source = _stored_register(program, definition) if at[1] >= _FRAME else None
            if source is not None:
                work.append((definition, source))
            else:
                result.add(definition)
    return result


def _memory_base(program: Program, i: int) -> int:
    """The place of offset 0 of what a LDL, STL (at R1), LDS or STS reaches, or -1."""
    name = program.code.table.forms[int(program.code.form[i])].name
    base = get_field(*program.code.word(i), 24, 8)
    if name in ("LDL", "STL"):
        return _FRAME if base == _STACK_POINTER else -1
    # Slots of an earlier rewrite: one place per address register and offset.
    return _FRAME * (2 + base) if name in ("LDS", "STS") else -1


def _frame_place(program: Program, i: int) -> int | None:
    """The place of a 32-bit access to the frame or to a slot."""
    lo, hi = program.code.word(i)
    base = _memory_base(program, i)
    if base < 0 or get_field(lo, hi, 73, 3) != _SIZE_32:
        return None
    return base + get_field(lo, hi, 40, 24)


def _stored_register(program: Program, i: int) -> int | None:
    """The data register of a store to the frame or to a slot, or None."""
    if i < 0 or program.code.table.forms[int(program.code.form[i])].name not in ("STL", "STS"):
        return None
    return get_field(*program.code.word(i), 32, 8)


def _moves_stack(program: Program, function: int) -> bool:
    """Whether a function has a frame of its own."""
    where = program.functions[function]
    return any(_writes(program, i, _STACK_POINTER) for i in range(where.start, where.end))


def _writes(program: Program, i: int, place: int) -> bool:
    """Whether an instruction writes a register or a word of the frame."""
    code = program.code
    if place >= _FRAME:
        lo, hi = code.word(i)
        base = _memory_base(program, i)
        if base < 0 or code.table.forms[int(code.form[i])].name not in ("STL", "STS"):
            return False
        first = base + get_field(lo, hi, 40, 24)
        size = 4 << max(0, get_field(lo, hi, 73, 3) - _SIZE_32)
        return first <= place < first + size
    return any(
        code.operand_file[row] == RegisterFile.GPR
        and code.operand_role[row] & Role.WRITE
        and 0 <= place - int(code.operand_register[row]) < int(code.operand_width[row])
        for row in _rows(program, i)
    )


def _copied_register(program: Program, i: int) -> int | None:
    """The source of a plain register copy (MOV, or IMAD.MOV with a zero product)."""
    code = program.code
    name = code.table.forms[int(code.form[i])].name
    lo, hi = code.word(i)
    if code.guard[i] != 7 or (name == "IMAD" and get_field(lo, hi, 24, 8) != 255):
        return None
    reads = [
        int(code.operand_register[row])
        for row in _rows(program, i)
        if code.operand_file[row] == RegisterFile.GPR and code.operand_role[row] & Role.READ
    ]
    return reads[0] if name in ("MOV", "IMAD") and len(reads) == 1 else None


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
    name = code.table.forms[int(code.form[i])].name
    return len(rows) == 1 and name in ("MOV", "IMAD", "MOV32I") and code.guard[i] == 7


def _reaching(program: Program, site: int, register: int) -> set[int]:
    """Definitions of a place (a GPR or a word of the frame) that reach instruction `site`.

    Only those in its function; -1 is the function's entry.
    """
    code = program.code
    found: set[int] = set()
    block = program.blocks[int(program.block_of[site])]
    entry = program.functions[block.function].start
    work = [(block.index, site)]
    seen: set[int] = set()
    while work:
        b, end = work.pop()
        block = program.blocks[b]
        for i in range(end - 1, block.start - 1, -1):
            if _writes(program, i, register):
                found.add(i)
                if code.guard[i] == 7:
                    break
        else:
            if block.start == entry:
                found.add(-1)
            for p in block.predecessors:
                if p not in seen:
                    seen.add(p)
                    work.append((p, program.blocks[p].end))
    return found
