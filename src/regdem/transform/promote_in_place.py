"""Promotion without a new colouring: R1, the stack pointer, becomes the slots' address.

A kernel whose frame moves has no use for its stack pointer any more. The instructions that set R1
make way for code at the entry that computes the slots' address; nothing is renumbered. Where only
part of the frame moves, the rest is reached through a uniform register (`transform/frame_base.py`),
if one is free.

Invariants: every register but R1 holds what it held; distances between instructions only grow, so
that the repair of control bits has the entry and the uncovered loads to look after, no more. Not
claimed: that it can always be done; without a free uniform register it needs the whole frame to
move (`transform/promote_recoloured.py` does without).
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.analysis.frame import Frame
from regdem.analysis.liveness import liveness
from regdem.analysis.webs import STACK_POINTER
from regdem.binary.kernel import Kernel
from regdem.isa import encode
from regdem.program.edit import Word, apply
from regdem.program.program import Program
from regdem.transform.candidates import used_registers
from regdem.transform.demoted import RESERVED_REGISTERS
from regdem.transform.frame_base import frame_base, free_uniform_register, with_frame_base
from regdem.transform.frame_moves import (
    Moves,
    fresh_parts,
    retire_stack_pointer,
    scratch_registers,
    slot_moves,
)
from regdem.transform.frame_slots import SlotPlan
from regdem.transform.hazards import repair
from regdem.transform.promoted import Promotion, promotion_of
from regdem.transform.slots import SlotLayout, prologue


@dataclass(frozen=True)
class Rest:
    """What stays in local memory: a uniform register for its address, which is `base_bytes`."""

    uniform: int
    base_bytes: int


def rest_at(program: Program, frame: Frame) -> Rest | None:
    """How to reach what stays in the frame; None where no uniform register is free for it."""
    base = frame_base(program, frame)
    uniform = free_uniform_register(program, liveness(program))
    return None if base is None or uniform is None else Rest(uniform, base)


def promote_in_place(
    kernel: Kernel,
    program: Program,
    frame: Frame,
    plan: SlotPlan,
    where: SlotLayout | None,
    rest: Rest | None,
    first: Moves | None = None,
) -> Promotion:
    """R1 becomes the slot address; what stays in local memory has its own in `rest`.

    `where`: None if there are no slots; R1 stays then. `first`: what else is to be done.
    """
    moves = Moves({}, {}, set())
    entry: list[Word] = []
    if where is not None:
        moves = slot_moves(program, frame, plan, where, STACK_POINTER)
        retire_stack_pointer(program, frame, moves)
        scratch = scratch_registers(used_registers(liveness(program)), STACK_POINTER)
        entry = prologue(STACK_POINTER, scratch, where)
    if first is not None:
        moves.add(first)
    if rest is not None:
        entry = with_frame_base(entry, rest.uniform, rest.base_bytes)
        for access in frame.accesses:
            i = access.instruction
            if i not in plan.moved:
                word = program.code.word(i)
                moves.replace[i] = encode.by_uniform_address(word, rest.uniform)
    edited = apply(
        program,
        before={**moves.before, 0: entry + moves.before.get(0, [])},
        replace=moves.replace,
    )
    words = repair(edited.program, fresh_parts(edited, moves, len(entry)))
    highest = max(used_registers(liveness(edited.program)))
    registers = max(kernel.registers_per_thread, highest + 1 + RESERVED_REGISTERS)
    return promotion_of(kernel, program, frame, plan, where, edited, words, registers, {})
