"""Promotion of one kernel of a cubin, proved: the form of `regdem/rewrite.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from regdem.binary import Cubin, Kernel
from regdem.errors import UsageError
from regdem.rewrite import (
    KernelRewrite,
    Request,
    bounded,
    described,
    most_slots,
    prove_first,
    refuse_architecture,
    refuse_block,
    state_of,
)
from regdem.transform.promote import promote
from regdem.transform.promoted import PromoteOptions, Promotion


@dataclass(frozen=True)
class KernelPromotion(KernelRewrite):
    """One proved promotion."""

    promotion: Promotion

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, one entry of `kernels`."""
        return {
            **super().to_dict(),
            "promoted": [
                {
                    "frame_offset_bytes": word.frame_offset_bytes,
                    "slot": word.slot,
                    "loads": word.loads,
                    "stores": word.stores,
                    "loop_depth": word.loop_depth,
                }
                for word in self.promotion.promoted
            ],
            "recovered": [
                {
                    "frame_offset_bytes": word.frame_offset_bytes,
                    "register": f"R{word.slot}",
                    "loads": word.loads,
                    "stores": word.stores,
                    "loop_depth": word.loop_depth,
                }
                for word in self.promotion.recovered
            ],
            "local_accesses_left": self.promotion.local_accesses_left,
            "removed_instructions": self.promotion.removed_instructions,
        }


def promote_kernel(cubin: Cubin, kernel: Kernel, request: Request) -> tuple[Cubin, KernelPromotion]:
    """Moves local spills of one kernel into shared memory, and proves the result.

    `request.registers` (None: the kernel's own) is the count to stay within; what is above the
    kernel's own takes spills first. The slots keep the residency that it allows. Raises
    `UsageError`, `UnsupportedError` or `ProofError`.
    """
    refuse_architecture(kernel)
    refuse_block(kernel, request.threads.threads)
    registers = request.registers or kernel.registers_per_thread
    if registers > kernel.registers_per_thread:
        there = state_of(kernel, request, min(registers, 255), kernel.static_shared_bytes)
        if registers > 255 or not there.active_blocks:
            raise UsageError(
                f"{registers} registers can't be a target for {request.threads.threads} threads",
                kernel=kernel.name,
            )
    options = PromoteOptions(
        threads=request.threads.threads,
        most_slots=most_slots(kernel, request, registers),
        registers=registers,
    )
    made: list[Promotion] = []

    def way(options: PromoteOptions) -> Promotion:
        made.append(bounded(kernel, promote(kernel, options), request))
        return made[-1]

    # Without room for a register more, part of the frame that fits less tightly may still do.
    fewer = replace(options, most_slots=options.most_slots // 2)
    new, rewrite, verdict = prove_first(
        cubin, kernel, request, [lambda: way(options), lambda: way(fewer)]
    )
    done = described(kernel, request, rewrite, verdict)
    promotion = next(p for p in made if p is rewrite)
    return new, KernelPromotion(
        done.name, done.before, done.after, rewrite, done.verdict, done.threads, promotion
    )
