"""Demotion of register numbers, in one of the orders of the RegDem paper (arXiv 1907.02894).

A register that is demoted leaves at every access. Every other register is renamed by a bijection,
which carries ptxas's own hazards over unchanged; only the short ranges around the accesses of
demoted registers (the paper's temporaries) are coloured by liveness.

Method: registers are taken in the order asked for until the rest could fit, then one step of the
order at a time until colouring succeeds. The paper's post-passes (`transform/paper.py`) are left
out one after the other where the code does not fit with them.

Invariants: a demoted register has one slot of its own. Not claimed: that it is as good as demotion
by live range; it is there to compare with.
"""

from __future__ import annotations

from regdem.analysis.liveness import Liveness, liveness
from regdem.analysis.webs import STACK_POINTER, call_touched, webs
from regdem.binary.kernel import Kernel
from regdem.errors import UnsupportedError
from regdem.program.program import Program
from regdem.transform.candidates import access_of, register_order, used_registers
from regdem.transform.colour import colour
from regdem.transform.demoted import DemoteOptions, Rewrite
from regdem.transform.finish import finish
from regdem.transform.insertion import MovedValue, free_registers, insert
from regdem.transform.paper import (
    RESCHEDULE,
    SUBSTITUTE,
    fallbacks,
    idle_registers,
    substituted,
)


def by_register(
    kernel: Kernel, program: Program, live: Liveness, limit: int, options: DemoteOptions
) -> Rewrite:
    """The kernel with register numbers demoted in `options.order`, within `limit` registers.

    Raises `UnsupportedError` where the slots or the candidates run out first.
    """
    order = register_order(program, live, options.order)
    used = set(used_registers(live))
    address = free_registers(live)[0]
    touched = call_touched(program, live)
    hot = [True] * len(program)
    picked: list[int] = []
    need = len(used) + 2 - limit  # the paper's two: the address and one temporary
    for registers in order:
        picked.extend(registers)
        if len(picked) < need:
            continue
        if len(picked) > options.most_slots:
            break
        whole = webs(program, live, sum(1 << r for r in used)).webs
        by_register = {w.register: w for w in whole}
        accesses = [
            access_of(by_register[r], touched_by_calls=bool((touched >> r) & 1)) for r in picked
        ]
        still = sum(1 << r for r in used if r not in picked)
        kept = still | (1 << address)
        for passes in fallbacks(options.paper_passes):
            idle = idle_registers(live, still)
            values = [
                MovedValue(
                    access, slot, slot, None,
                    substituted(program, access, idle) if SUBSTITUTE in passes else hot,
                )
                for slot, access in enumerate(accesses)
            ]  # fmt: skip
            moves = idle if RESCHEDULE in passes else None
            spilled = insert(kernel, program, live, values, len(picked), options, idle=moves)
            new_live = liveness(spilled.edited.program)
            new_webs = webs(spilled.edited.program, new_live, kept)
            colouring = colour(new_webs, limit, distinct=kept & ~(1 << STACK_POINTER))
            if colouring.failed < 0:
                return finish(kernel, spilled, new_webs, colouring, options.order)
    raise UnsupportedError(
        f"{options.registers} registers can't be reached by demoting register numbers",
        code="slots_do_not_fit" if len(picked) > options.most_slots else "target_out_of_reach",
        hint=f"{len(picked)} slots needed, {options.most_slots} fit; try --candidates live-range",
        kernel=kernel.name,
    )
