"""Promotion with a new colouring: the slots' address takes a register like any other value.

Where part of the frame stays in local memory and no uniform register is free to reach it, R1 keeps
the frame and the slots need a register more; a kernel may also be promoted below its register
count. Both need all live ranges coloured anew within a number of registers.

Method: the accesses are rewritten by an unused number, the result is coloured. Where it does not
fit, some live ranges are demoted into slots of their own (`transform/room.py`), for which the
caller sets slots aside.

Invariants: the result has at most the registers asked for. Not claimed: that a failure means that
it can't be done; colouring and the choice of what makes room are greedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regdem.analysis.frame import Frame
from regdem.analysis.liveness import liveness
from regdem.analysis.webs import STACK_POINTER, allocation_pressure, webs
from regdem.binary.kernel import Kernel
from regdem.isa.decode import decode
from regdem.isa.decoded import DecodedCode
from regdem.program.edit import Word, apply, compose
from regdem.program.program import Program
from regdem.transform.candidates import used_registers
from regdem.transform.colour import colour
from regdem.transform.demoted import RESERVED_REGISTERS, Demoted
from regdem.transform.frame_moves import retire_stack_pointer, scratch_registers, slot_moves
from regdem.transform.frame_slots import SlotPlan
from regdem.transform.hazards import repair
from regdem.transform.promoted import Promotion, promotion_of
from regdem.transform.rename import rename
from regdem.transform.room import make_room
from regdem.transform.slots import SlotLayout, prologue


def promote_recoloured(
    kernel: Kernel,
    program: Program,
    frame: Frame,
    plan: SlotPlan,
    where: SlotLayout,
    registers: int,
) -> Promotion | int:
    """All live ranges coloured anew, within `registers`.

    Where they don't fit: the slots to set aside for that, or -1 where none help. The address is
    R1 if the whole frame moves, else a register more.
    """
    used = used_registers(liveness(program))
    whole = len(plan.moved) == len(frame.accesses)
    unused = [r for r in range(254, 1, -1) if r not in used]
    if not whole and not unused:
        return -1
    address = STACK_POINTER if whole else unused[0]
    moves = slot_moves(program, frame, plan, where, address)
    if whole:
        retire_stack_pointer(program, frame, moves)
    entry = prologue(address, scratch_registers(used, address), where)
    edited = apply(
        program,
        before={**moves.before, 0: entry + moves.before.get(0, [])},
        replace=moves.replace,
    )
    limit = registers - RESERVED_REGISTERS
    live = liveness(edited.program)
    found = webs(edited.program, live)
    fits = int(allocation_pressure(edited.program, live).max(initial=0)) <= limit
    colouring = colour(found, limit) if fits else None
    demoted: tuple[Demoted, ...] = ()
    again: tuple[Demoted, ...] = ()
    if colouring is None or colouring.failed >= 0:
        room = make_room(edited.program, address, limit, where, plan.slots)
        if isinstance(room, int):
            return room
        edited = compose(edited, room.edited)
        found, colouring, demoted, again = (
            room.webs,
            room.colouring,
            room.demoted,
            room.rematerialised,
        )
    origin = edited.origin.tolist()
    renamed = rename(edited.program, found, colouring.register, origin)
    program_after = replace(edited.program, code=_decoded(edited.program, renamed))
    words = repair(program_after, [o < 0 or o in moves.uncovered for o in origin])
    highest = max(
        (colouring.register[w.index] for w in found.webs if w.points or w.reads or w.writes),
        default=STACK_POINTER,
    )
    new: dict[int, set[int]] = {}
    for web in found.webs:
        new.setdefault(web.register, set()).add(colouring.register[web.index])
    names = {r: next(iter(s)) for r, s in new.items() if len(s) == 1 and r != address}
    count = highest + 1 + RESERVED_REGISTERS
    result = promotion_of(kernel, program, frame, plan, where, edited, words, count, names)
    return replace(
        result,
        slots=where.slots,
        demoted=demoted,
        rematerialised=again,
        method="promote+demote" if demoted or again else "promote",
    )


def _decoded(program: Program, words: Sequence[Word]) -> DecodedCode:
    data = b"".join(lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in words)
    return decode(data, program.code.table.arch)
