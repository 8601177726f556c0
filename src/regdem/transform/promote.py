"""Promotion: ptxas's local-memory spills become slots in shared memory (Hayes and Zhang, 2014).

The live ranges of the stack frame's private words (`analysis/frame.py`) get slots
(`transform/frame_slots.py`); their LDL and STL become LDS and STS with the same guard, data and
scoreboards, one for each row of slots that an access reaches. Cache hints fall away.

Two ways to hold the slot address:

- R1 itself, nothing renumbered (`transform/promote_in_place.py`). Where only part of the frame
  fits, the hottest words by loop-weighted accesses move, and the rest is reached through a uniform
  register.
- a register more, where no uniform register is free, or below the kernel's register count: all
  live ranges are coloured anew (`transform/promote_recoloured.py`).

Above its register count a kernel gets spills back into registers first (`transform/recover.py`).

A scoreboard that a DEPBAR counts down is left alone: accesses that use one stay.

Not claimed: that it is faster; slots take shared memory from L1 and, if too many, from residency.
"""

from __future__ import annotations

from regdem.analysis.frame import WORD_BYTES, Frame, frame_of
from regdem.binary.kernel import Kernel
from regdem.errors import UnsupportedError, UsageError
from regdem.isa.control import get_control
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.program.program import Program
from regdem.transform.demoted import program_of, require_rewritable
from regdem.transform.frame_slots import plan_slots
from regdem.transform.promote_in_place import promote_in_place, rest_at
from regdem.transform.promote_recoloured import promote_recoloured
from regdem.transform.promoted import PromoteOptions, Promotion, layout_for
from regdem.transform.recover import recover
from regdem.transform.scoreboards import counted_scoreboards

_ATTEMPTS = 8
"""Times that more slots are set aside for live ranges that must make room."""


def promote(kernel: Kernel, options: PromoteOptions) -> Promotion:
    """Moves local spills of `kernel` into shared memory.

    Raises `UsageError` where there is nothing to move, `UnsupportedError` with the reason where
    nothing may or can be moved.
    """
    require_rewritable(kernel)
    program = program_of(kernel)
    frame = frame_of(program)
    if frame.reason:
        raise UnsupportedError(
            f"the stack frame can't be told apart into words: {frame.reason}",
            code="frame_not_private",
            kernel=kernel.name,
            offset=None if frame.offset < 0 else frame.offset * INSTRUCTION_BYTES,
        )
    if not frame.accesses:
        raise UsageError(
            "there are no local spills", code="nothing_to_do", hint="nothing to promote",
            kernel=kernel.name,
        )  # fmt: skip
    barred = _counting(program, frame)
    target = options.registers or kernel.registers_per_thread
    if target > kernel.registers_per_thread:
        recovered = recover(kernel, program, frame, barred, options)
        if recovered is not None:
            return recovered
    plan = plan_slots(program, frame, barred, options.most_slots)
    if not plan.moved:
        raise UnsupportedError(
            f"no spilled word fits ({options.most_slots} slots are free)",
            code="slots_do_not_fit",
            kernel=kernel.name,
        )
    whole = len(plan.moved) == len(frame.accesses)
    rest = None if whole else rest_at(program, frame)
    if (whole or rest is not None) and target >= kernel.registers_per_thread:
        where = layout_for(kernel, program, plan.slots, plan.wide, options)
        return promote_in_place(kernel, program, frame, plan, where, rest)
    extra = 0
    for _ in range(_ATTEMPTS):
        plan = plan_slots(program, frame, barred, options.most_slots - extra)
        if not plan.moved:
            break
        slots = min(options.most_slots, plan.slots + extra)
        slots -= slots % 2 if plan.wide else 0
        where = layout_for(kernel, program, slots, plan.wide, options)
        found = promote_recoloured(kernel, program, frame, plan, where, target)
        if isinstance(found, Promotion):
            return found
        if found < 0:
            break
        extra = max(extra + 1, found)
    raise UnsupportedError(
        f"with {options.most_slots} slots for {len(_words(frame))} spilled words, no register of "
        f"the {target} can be freed for the slots' address",
        code="no_free_register",
        hint="a higher register count or fewer threads per block make room",
        kernel=kernel.name,
    )


def _counting(program: Program, frame: Frame) -> frozenset[int]:
    """Accesses whose scoreboard a DEPBAR counts down: they stay as they are."""
    counted = counted_scoreboards(program)
    controls = {
        a.instruction: get_control(int(program.code.words[a.instruction, 1]))
        for a in frame.accesses
    }
    return frozenset(
        i
        for i, c in controls.items()
        if counted & (1 << c.write_scoreboard | 1 << c.read_scoreboard)
    )


def _words(frame: Frame) -> set[int]:
    return {a.place_bytes + WORD_BYTES * k for a in frame.accesses for k in range(a.words)}


__all__ = ["promote"]
