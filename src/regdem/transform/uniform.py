"""Values that all threads of a block share, kept in uniform registers that the kernel does not use.

Problem: a live range that only depends on the launch (kernel parameters, the block's index,
immediates) takes a register in every thread, though one per warp would do. Hopper has 63 uniform
registers, of which most kernels use fewer than ten.

Method: a forward dataflow numbers, for every register of all files, the value it holds as an
operation on numbered values; immediates, constant banks and the block's index begin, anything
else (memory, other lanes, the thread's index, joins of different values) has no number. A live
range with one unguarded definition whose result has a number may move: `R2UR` behind the
definition, `MOV R, UR` in front of the uses that need it. Such a value is the same at all times
and in all threads, and each uniform register is for one definition, so that it does not matter
whether threads have diverged when they write it.

Not claimed: values that are uniform only as long as threads stay together; device functions' own
values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regdem.analysis.bits import FILE_BASE, FILE_MASK, def_masks, use_masks
from regdem.analysis.webs import STACK_POINTER, Webs
from regdem.isa.decoded import FILE_SIZE, IMPLICIT, RegisterFile, Role
from regdem.isa.fields import get_field
from regdem.program.program import Program

_NAMES = """
MOV IMAD IADD3 IADD VIADD LEA LOP3 SHF SEL PRMT IABS ISETP IMNMX VIMNMX POPC FLO BREV SGXT BMSK
PLOP3 FSETP FSEL FADD FMUL FFMA FMNMX FCHK MUFU DADD DMUL DFMA DSETP HADD2 HMUL2 HFMA2 HSETP2
I2F I2FP F2I F2F I2I FRND UMOV UIADD3 UIMAD ULEA ULOP3 USHF USEL UPRMT UISETP UPLOP3 UFLO UPOPC
UBREV USGXT UBMSK LDC ULDC S2R S2UR
"""
_PURE = frozenset(_NAMES.split())
_BLOCK_INDEX = (0x25, 0x26, 0x27)
_FIELD_BITS = {
    RegisterFile.GPR: 8,
    RegisterFile.UGPR: 6,
    RegisterFile.PRED: 3,
    RegisterFile.UPRED: 3,
}
_BASE = [FILE_BASE[file] for file in RegisterFile]
_CONTROL_BITS = ((1 << 21) - 1) << 105
_Held = dict[int, int]


def free_uniform_registers(program: Program) -> list[int]:
    """Uniform registers that no instruction of the section names, highest first."""
    used = 0
    for use, define in zip(use_masks(program.code), def_masks(program.code), strict=True):
        used |= use | define
    base, count = FILE_BASE[RegisterFile.UGPR], FILE_SIZE[RegisterFile.UGPR]
    return [r for r in range(count - 1, -1, -1) if not used >> (base + r) & 1]


def aligned_first(registers: Sequence[int], words: Sequence[int]) -> list[tuple[int, ...]]:
    """Registers for values of one or two words each, in the order of `words`.

    Two words get an aligned pair, in ascending order. Raises `ValueError` where there are not
    enough (there are for as many words as `registers` has in aligned pairs).
    """
    free = set(registers)
    pairs = [r for r in registers if r % 2 == 0 and r + 1 in free]
    result: list[tuple[int, ...]] = [()] * len(words)
    for k in sorted(range(len(words)), key=lambda k: -words[k]):
        if words[k] == 2:
            first = next((r for r in pairs if r in free and r + 1 in free), None)
        else:
            first = max(free, default=None)
        if first is None:
            raise ValueError("no uniform register is left")
        result[k] = tuple(range(first, first + words[k]))
        free.difference_update(result[k])
    return result


def paired_registers(registers: Sequence[int]) -> int:
    """How many of the registers are in aligned pairs."""
    return sum(r ^ 1 in registers for r in registers)


def uniform_webs(program: Program, webs: Webs) -> set[int]:
    """The webs that may be kept in a uniform register, by index."""
    known = launch_values(program)
    return {
        web.index
        for web in webs.webs
        if not web.whole
        and web.register != STACK_POINTER
        and web.reads
        and len(web.writes) == 1
        and web.register in known.get(web.writes[0], ())
        and not _is_zero(program, web.writes[0])
    }


def is_late(program: Program, i: int) -> bool:
    """Whether the result of instruction `i` must be waited for by scoreboard, so that a move from
    a uniform register is sooner there than the instruction repeated."""
    return bool(program.code.table.variable_latency[program.code.form[i]])


def _is_zero(program: Program, i: int) -> bool:
    """Zero needs no register to come from."""
    form = program.code.table.forms[int(program.code.form[i])]
    rows = range(int(program.code.operand_start[i]), int(program.code.operand_start[i + 1]))
    name, lo = form.name, program.code.word(i)[0]
    return name == "CS2R" or (
        name == "MOV" and len(rows) == 1 and lo & 0xFFF == 0x202 and get_field(lo, 0, 32, 8) == 255
    )


class _Numbering:
    """Numbers of values; `held` maps registers (packed position) to numbers."""

    def __init__(self, program: Program) -> None:
        code = program.code
        self.program = program
        self._numbers: dict[tuple[object, ...], int] = {}
        self._names = [code.table.forms[f].name for f in code.form_indices]
        self._reads: list[list[int]] = [[] for _ in range(len(code))]
        self.writes: list[list[int]] = [[] for _ in range(len(code))]
        self._masked = [int(lo) | int(hi) << 64 for lo, hi in code.words.tolist()]
        self._guarded: list[bool] = ((code.guard != 7) | code.guard_negated).tolist()
        self._look_up()

    def _look_up(self) -> None:
        code = self.program.code
        clear = [_CONTROL_BITS] * len(code)
        columns = (
            code.operand_instruction, code.operand_file, code.operand_register,
            code.operand_width, code.operand_role, code.operand_bit,
        )  # fmt: skip
        rows: list[list[int]] = np.stack([c.astype(np.int64) for c in columns], axis=1).tolist()
        for i, file, first, width, role, bit in rows:
            if bit == 12:
                continue
            at = _BASE[file] + first
            if role & Role.READ:
                self._reads[i].extend(range(at, at + width))
            if role & Role.WRITE:
                self.writes[i].extend(range(at, at + width))
            if bit != IMPLICIT:
                clear[i] |= ((1 << _FIELD_BITS[RegisterFile(file)]) - 1) << bit
        self._masked = [w & ~c for w, c in zip(self._masked, clear, strict=True)]

    def step(self, i: int, held: _Held) -> None:
        """Advances `held` over instruction `i`."""
        writes = self.writes[i]
        if not writes:
            return
        number = -1 if self._guarded[i] else self._result(i, held)
        for k, place in enumerate(writes):
            if number < 0:
                held.pop(place, None)
            else:
                held[place] = self._number((number, k))

    def _result(self, i: int, held: _Held) -> int:
        name = self._names[i]
        if name not in _PURE:
            return -1
        if name in ("S2R", "S2UR") and self._masked[i] >> 72 & 0xFF not in _BLOCK_INDEX:
            return -1
        operands = [held.get(place, -1) for place in self._reads[i]]
        if -1 in operands:
            return -1
        return self._number((self._masked[i], *operands, "of"))

    def _number(self, key: tuple[object, ...]) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def launch_values(program: Program) -> dict[int, frozenset[int]]:
    """Per instruction the general registers it writes with what all threads of a block share."""
    numbering = _Numbering(program)
    blocks = program.blocks
    states: list[_Held | None] = [None] * len(blocks)
    work = [int(program.block_of[f.start]) for f in program.functions]
    written = _written_by_callees(program) if program.callee else 0
    for b in work:
        states[b] = {}
    while work:
        b = work.pop()
        held = dict(states[b] or {})
        for i in range(blocks[b].start, blocks[b].end):
            numbering.step(i, held)
        if blocks[b].end - 1 in program.callee:
            # What a callee may write is not known to be anything.
            held = _without(held, written)
        for s in blocks[b].successors:
            known = states[s]
            met = held if known is None else {r: n for r, n in known.items() if held.get(r) == n}
            if known is None or len(met) != len(known):
                states[s] = dict(met)
                work.append(s)
    result: dict[int, frozenset[int]] = {}
    general = FILE_MASK[RegisterFile.GPR].bit_length()
    for block in blocks:
        held = dict(states[block.index] or {})
        for i in range(block.start, block.end):
            numbering.step(i, held)
            shared = frozenset(r for r in numbering.writes[i] if r < general and r in held)
            if shared:
                result[i] = shared
    return result


def _without(held: _Held, mask: int) -> _Held:
    return {r: n for r, n in held.items() if not mask >> r & 1}


def _written_by_callees(program: Program) -> int:
    mask = 0
    defs = def_masks(program.code)
    for block in program.blocks:
        if block.function:
            for i in range(block.start, block.end):
                mask |= defs[i]
    return mask
