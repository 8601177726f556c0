"""Register demotion: a kernel with fewer registers, whose displaced values live in shared memory.

The phases, in order:

    program → webs → choice of live ranges → loads, stores, prologue → webs again → colouring
            → renaming → control bits → edit

Two granularities. `live-range` splits registers into webs, demotes the idle ones and recolours all.
The paper's orders (`cfg`, `static`, `conflict`) demote register numbers; every other register is
renamed by a bijection, which carries ptxas's own hazards over unchanged, and only the short ranges
around the accesses of demoted registers (the temporaries) are coloured by liveness.

With the order `none` nothing is demoted: registers get other numbers, waits other scoreboards, and
the target may be the kernel's own count.

Nothing here is trusted: `check/` proves the result from the bytes before anything is written.
"""

from __future__ import annotations

from regdem.analysis.liveness import Liveness, liveness
from regdem.analysis.webs import allocation_pressure, webs
from regdem.binary.kernel import Kernel
from regdem.errors import UnsupportedError, UsageError
from regdem.program.edit import identity
from regdem.program.program import Program
from regdem.transform.by_live_range import by_live_range
from regdem.transform.by_register import by_register
from regdem.transform.candidates import NO_ORDER, ORDERS
from regdem.transform.colour import Colouring, colour
from regdem.transform.demoted import (
    RESERVED_REGISTERS,
    DemoteOptions,
    Rewrite,
    Spilled,
    program_of,
    require_rewritable,
)
from regdem.transform.finish import estimated_cycles, finish
from regdem.transform.original import Original
from regdem.transform.polish import polish


def demote(kernel: Kernel, options: DemoteOptions) -> Rewrite:
    """Rewrites `kernel` to `options.registers`.

    Raises `UsageError` for an impossible target, `UnsupportedError` for a kernel that can't be
    rewritten, with the reason.
    """
    _refuse(kernel, options)
    program = program_of(kernel)
    live = liveness(program, follow_guards=True)
    limit = options.registers - RESERVED_REGISTERS
    if options.registers == kernel.registers_per_thread:
        return _at_its_count(kernel, program, live)
    renumbered = _renumber(kernel, program, live, limit)
    if renumbered is not None:
        return renumbered
    if options.order == "live-range":
        return by_live_range(Original(kernel, program, live), limit, options)
    if options.order == NO_ORDER:
        raise UnsupportedError(
            f"{options.registers} registers can't be reached by renumbering",
            code="target_out_of_reach",
            kernel=kernel.name,
        )
    return by_register(kernel, program, live, limit, options)


def _refuse(kernel: Kernel, options: DemoteOptions) -> None:
    if options.order not in (*ORDERS, NO_ORDER):
        names = ", ".join((*ORDERS, NO_ORDER))
        raise UsageError(f"no such candidate order: {options.order}", hint=names)
    if not 16 <= options.registers <= 255:
        raise UsageError(
            f"{options.registers} registers per thread can't be a target",
            hint="between 16 and 255",
            kernel=kernel.name,
        )
    if options.registers >= kernel.registers_per_thread + (options.order == NO_ORDER):
        raise UsageError(
            f"the kernel already uses {kernel.registers_per_thread} registers",
            code="nothing_to_do",
            hint=f"the target {options.registers} is not lower",
            kernel=kernel.name,
        )
    require_rewritable(kernel)


def _renumber(kernel: Kernel, program: Program, live: Liveness, limit: int) -> Rewrite | None:
    """Renumbering alone, where the live values already fit."""
    if int(allocation_pressure(program, live).max(initial=0)) > limit:
        return None
    found = webs(program, live)
    colouring = colour(found, limit)
    if colouring.failed >= 0:
        return None
    colouring = polish(program, found, colouring)
    return finish(kernel, Spilled(identity(program), 0, None), found, colouring, "renumber")


def _at_its_count(kernel: Kernel, program: Program, live: Liveness) -> Rewrite:
    """The kernel's own registers with fewer conflicts, and waits that are not shared in vain."""
    found = webs(program, live)
    own = Colouring(tuple(w.register for w in found.webs), (), len(found.groups))
    colouring = polish(program, found, own)
    done = finish(kernel, Spilled(identity(program), 0, None), found, colouring, "renumber")
    if done.cycles >= estimated_cycles(program):
        raise UsageError(
            "other register numbers and scoreboards would not be better",
            code="nothing_to_do",
            kernel=kernel.name,
        )
    return done
