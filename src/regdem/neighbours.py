"""Small steps from a kernel, each proved: an order near its own, or the same code with fewer warps.

Problem: of variants this close to each other no model says which is faster; a clock does. What
takes steps and measures them is `regdem/tune/steps.py`.

Method: an order near the kernel's is `transform/near_orders.py`. Fewer warps are resident where the
file declares more registers than the code uses; that pays where what the blocks hold in L1 together
is more than fits (measured: docs/results/throttle.md).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regdem.binary import Cubin, Kernel
from regdem.binary.edit import KernelEdit
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.machine import cliff_table
from regdem.rescheduling import most_registers
from regdem.rewrite import (
    KernelRewrite,
    Request,
    described,
    prove_first,
    refuse_architecture,
    state_of,
)
from regdem.transform.demoted import Rewrite
from regdem.transform.near_orders import near_order


def lower_residencies(kernel: Kernel, request: Request) -> list[int]:
    """Register counts with fewer blocks resident than the kernel has, the most blocks first."""
    now = state_of(kernel, request, kernel.registers_per_thread, kernel.static_shared_bytes)
    below = [c for c in cliff_table(now.launch) if 0 < c.active_blocks < now.active_blocks]
    return [c.registers_max for c in sorted(below, key=lambda c: -c.active_blocks)]


def with_registers(kernel: Kernel, registers: int) -> KernelEdit:
    """The same code, declaring so many registers."""
    places = np.arange(len(kernel.code) // INSTRUCTION_BYTES + 1) * INSTRUCTION_BYTES
    return KernelEdit(kernel.code, places, registers_per_thread=registers)


def with_fewer_warps(
    cubin: Cubin, kernel: Kernel, request: Request, registers: int
) -> tuple[Cubin, KernelRewrite]:
    """The same code at the lower residency of `registers`, proved. Raises `ProofError`."""
    refuse_architecture(kernel)
    rewrite = Rewrite(
        edit=with_registers(kernel, registers),
        registers_per_thread=registers,
        shared_bytes=kernel.static_shared_bytes,
        slots=0,
        demoted=(),
        rematerialised=(),
        inserted_instructions=0,
        method="fewer warps",
    )
    new, done, verdict = prove_first(cubin, kernel, request, [lambda: rewrite])
    return new, described(kernel, request, done, verdict)


def with_near_order(
    cubin: Cubin, kernel: Kernel, request: Request, seed: str
) -> tuple[Cubin, KernelRewrite]:
    """A kernel in an order near its own, at no lower residency, proved; `seed` says which order.

    Raises `UsageError` (`nothing_to_do`) where none of the moves drawn can be made,
    `UnsupportedError` or `ProofError`.
    """
    refuse_architecture(kernel)
    most = most_registers(kernel, request)

    def way() -> Rewrite:
        made = near_order(kernel, most, seed)
        # Declared registers may hold warps back on purpose: fewer would let more in.
        registers = max(made.registers_per_thread, kernel.registers_per_thread)
        edit = replace(made.edit, registers_per_thread=registers)
        return replace(made, edit=edit, registers_per_thread=registers)

    new, done, verdict = prove_first(cubin, kernel, request, [way])
    return new, described(kernel, request, done, verdict)


__all__ = ["lower_residencies", "with_fewer_warps", "with_near_order", "with_registers"]
