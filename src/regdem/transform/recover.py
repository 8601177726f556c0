"""Recovery: spilled values come back into registers, where the count may rise.

Problem: a kernel that was held to a register count (by launch bounds, by a cap) spills, and is
shipped that way. Where fewer resident blocks would do, or the count's allocation unit leaves a few
registers, its spills need not be in memory at all.

Method: register numbers that the section names nowhere serve as slots for live ranges of the frame
(`transform/frame_slots.py`, as for shared memory). A store to the frame becomes a move into the
slot's register, a load a move out of it. Nothing is renamed; the moves take the places of the
accesses, with their guards and waits.

Not claimed: the schedule of a compiler that had the registers in the first place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regdem.analysis.frame import Frame, FrameAccess
from regdem.analysis.liveness import Liveness, liveness
from regdem.analysis.webs import STACK_POINTER
from regdem.binary.kernel import Kernel
from regdem.isa import encode
from regdem.isa.control import ControlWord, get_control
from regdem.isa.encode import RZ, Word
from regdem.program.program import Program
from regdem.transform.candidates import used_registers
from regdem.transform.demoted import RESERVED_REGISTERS
from regdem.transform.frame_moves import Moves, is_unmarked
from regdem.transform.frame_slots import SlotPlan, plan_slots
from regdem.transform.promote_in_place import promote_in_place, rest_at
from regdem.transform.promoted import PromoteOptions, Promotion, layout_for, promoted_ranges
from regdem.transform.slots import SlotLayout

_NO_SLOTS = SlotPlan({}, (), 0, False, frozenset())


def recover(
    kernel: Kernel,
    program: Program,
    frame: Frame,
    barred: frozenset[int],
    options: PromoteOptions,
) -> Promotion | None:
    """Spills in registers that the higher count allows, and in slots what is left of them."""
    assert options.registers is not None
    live = liveness(program)
    spare = spare_registers(live, options.registers - RESERVED_REGISTERS)
    plan = plan_recovery(program, frame, barred, spare)
    if not plan.moved:
        return None
    first = Moves({}, {}, set())
    for access in frame.accesses:
        if access.instruction in plan.moved:
            first.put(access.instruction, register_words(program, access, plan, spare))
    first.uncovered = {a.instruction for a in frame.accesses if is_unmarked(program, a)}
    left = without(frame, plan.moved)
    slots = plan_slots(program, left, barred, options.most_slots)
    rest = None
    where: SlotLayout | None = None
    if slots.moved:
        whole = len(slots.moved) == len(left.accesses)
        rest = None if whole else rest_at(program, frame)
        if whole or rest is not None:
            where = layout_for(kernel, program, slots.slots, slots.wide, options)
    done = promote_in_place(
        kernel, program, left, slots if where is not None else _NO_SLOTS, where, rest, first
    )
    homes = [(each, spare[number]) for each, number in plan.ranges]
    gone = np.zeros(len(program), dtype=np.bool_)  # no accesses to memory any more
    gone[list(plan.moved)] = True
    return replace(
        done,
        edit=replace(done.edit, removed=gone),
        recovered=promoted_ranges(program, frame, homes),
        method="recover" if where is None else "recover+promote",
    )


def spare_registers(live: Liveness, limit: int) -> list[int]:
    """Numbers below `limit` that no instruction of the section names, ascending."""
    used = {*used_registers(live), STACK_POINTER}
    return [r for r in range(limit) if r not in used]


def plan_recovery(
    program: Program, frame: Frame, barred: frozenset[int], spare: list[int]
) -> SlotPlan:
    """Live ranges of the frame that get a register; `slot` counts within `spare`."""
    return plan_slots(program, frame, barred, len(spare), row=1)


def without(frame: Frame, moved: frozenset[int]) -> Frame:
    """The frame's accesses but those that moved.

    What moves is closed: a load and all stores that reach it move together.
    """
    return replace(frame, accesses=tuple(a for a in frame.accesses if a.instruction not in moved))


def register_words(
    program: Program, access: FrameAccess, plan: SlotPlan, spare: list[int]
) -> list[Word]:
    """Moves in place of one access; the first waits as it did, the last has its stall."""
    i = access.instruction
    code = program.code
    guard = encode.Guard(int(code.guard[i]), bool(code.guard_negated[i]))
    old = get_control(int(code.words[i, 1]))
    words: list[Word] = []
    for k in range(access.words):
        data = RZ if access.register == RZ else access.register + k
        home = spare[plan.slot[i, k]]
        control = ControlWord(
            stall=old.stall if k == access.words - 1 else 1,
            yield_bit=old.yield_bit,
            wait_mask=old.wait_mask if k == 0 else 0,
        )
        target, source = (home, data) if access.is_store else (data, home)
        words.append(encode.mov(target, source, guard=guard, control=control))
    return words
