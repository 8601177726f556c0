"""Accesses to the stack frame, rewritten to slots in shared memory.

LDL and STL become LDS and STS with the same guard, data and scoreboards, one for each row of slots
that an access reaches. Cache hints fall away. An instruction that set R1 leaves a NOP with its
stall and waits, so that no distance shrinks.

A load that relied on a later one of its kind to signal for both is `uncovered` when only one of
them moves: the repair of control bits gives it a scoreboard of its own.

Invariants: an access keeps its place; the first of its words waits as it did, the last has its
stall. Not claimed: that R1 is free; the caller says which register holds the slots' address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regdem.analysis.forms import forms_of
from regdem.analysis.frame import Frame, FrameAccess
from regdem.analysis.webs import STACK_POINTER
from regdem.isa import encode
from regdem.isa.control import ControlWord, get_control, set_control
from regdem.isa.decoded import NO_SCOREBOARD
from regdem.isa.encode import RZ
from regdem.program.edit import NOP, Edited, Word
from regdem.program.program import Program
from regdem.transform.frame_slots import SlotPlan, by_row
from regdem.transform.slots import SCRATCH_REGISTERS, SlotLayout


@dataclass
class Moves:
    """Replacements for the accesses that move."""

    before: dict[int, list[Word]]
    replace: dict[int, Word]
    uncovered: set[int]
    """Original instructions that need a scoreboard of their own now, or distances of their own."""

    def put(self, i: int, words: Sequence[Word]) -> None:
        """`words` in place of instruction `i`."""
        *first, last = words
        if first:
            self.before[i] = first
        self.replace[i] = last

    def add(self, other: Moves) -> None:
        """What `other` has, too, for other instructions."""
        self.before |= other.before
        self.replace |= other.replace
        self.uncovered |= other.uncovered | other.replace.keys()


def slot_moves(
    program: Program, frame: Frame, plan: SlotPlan, where: SlotLayout, address: int
) -> Moves:
    """LDS and STS, by `address`, for all accesses that `plan` moves."""
    moves = Moves({}, {}, set())
    moved = {a.instruction: a for a in frame.accesses if a.instruction in plan.moved}
    for i, access in moved.items():
        moves.put(i, _shared_words(program, access, plan, where, address))
    if len(moved) != len(frame.accesses):
        moves.uncovered = {a.instruction for a in frame.accesses if is_unmarked(program, a)}
    return moves


def is_unmarked(program: Program, access: FrameAccess) -> bool:
    """Whether this is a load that a later one of its kind signals for."""
    board = program.code.write_scoreboard[access.instruction]
    return not access.is_store and board == NO_SCOREBOARD


def _shared_words(
    program: Program,
    access: FrameAccess,
    plan: SlotPlan,
    where: SlotLayout,
    address: int,
) -> list[Word]:
    """LDS or STS for each row; the first waits as the original did, the last keeps its stall."""
    i = access.instruction
    code = program.code
    guard = encode.Guard(int(code.guard[i]), bool(code.guard_negated[i]))
    control = replace(get_control(int(code.words[i, 1])), reuse=0)
    words: list[Word] = []
    parts = by_row(access, 2 if where.wide else 1)
    for part in parts:
        register = access.register if access.register == RZ else access.register + part[0]
        offset = where.offset(plan.slot[i, part[0]])
        mine = control if part is parts[-1] else replace(control, stall=1, yield_bit=1)
        if access.is_store:
            word = encode.sts(address, offset, register, words=len(part), guard=guard, control=mine)
        else:
            word = encode.lds(register, address, offset, words=len(part), guard=guard, control=mine)
        words.append(word)
    return words


def scratch_registers(used: Sequence[int], address: int) -> list[int]:
    """Registers for the prologue; nothing is live at entry, so those in use may be taken."""
    free = [r for r in used if r not in (STACK_POINTER, address)]
    free += [r for r in range(2, 8) if r not in free and r != address]
    return free[:SCRATCH_REGISTERS]


def retire_stack_pointer(program: Program, frame: Frame, moves: Moves) -> None:
    """What set R1 becomes a NOP with its stall and waits."""
    code = program.code
    latency = [form.latency for form in forms_of(code)]
    for i in frame.definitions:
        old = get_control(int(code.words[i, 1]))
        left = ControlWord(stall=old.stall, yield_bit=old.yield_bit, wait_mask=old.wait_mask)
        moves.replace[i] = NOP[0], set_control(NOP[1], left)
        if old.write_scoreboard != NO_SCOREBOARD:
            # What it signalled for besides itself, in order, signals for itself now.
            moves.uncovered.update(
                j
                for j in range(i)
                if latency[j] == latency[i] and code.write_scoreboard[j] == NO_SCOREBOARD
            )


def fresh_parts(edited: Edited, moves: Moves, entry: int) -> list[bool]:
    """What the repair of control bits must look after from scratch.

    The prologue, and accesses that have lost what signalled for them. A moved access is as safe as
    it was: same registers, same scoreboards.
    """
    origin = edited.origin.tolist()
    fresh = [k < entry or (o >= 0 and o in moves.uncovered) for k, o in enumerate(origin)]
    for i in moves.uncovered & moves.before.keys():
        end = int(edited.index_map[i])
        for k in range(end - len(moves.before[i]), end):
            fresh[k] = True
    return fresh
