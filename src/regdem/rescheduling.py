"""A new order within blocks for one kernel of a cubin, proved: the form of `regdem/rewrite.py`.

On its own, within the registers that leave the residency as it is; or behind another rewrite of the
same kernel, whose edit and the new order then become one edit, proved against the original.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from regdem.binary import Cubin, Kernel
from regdem.binary.edit import KernelEdit
from regdem.binary.kernel import Annotation
from regdem.errors import ProofError, UnsupportedError, UsageError
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.machine import cliff_table
from regdem.predict.model import predict
from regdem.predict.summary import summarise
from regdem.promotion import KernelPromotion
from regdem.rewrite import (
    KernelRewrite,
    Request,
    described,
    prove_first,
    refuse_architecture,
    state_of,
)
from regdem.transform.demoted import Rewrite
from regdem.transform.promoted import Promotion
from regdem.transform.reschedule import RescheduleOptions, Rescheduling, reschedule

_MOST_REGISTERS = 255
_LEAST_GAIN = 1.005
"""What one warp alone must gain, or the kernel be predicted to, for an order to be worth it."""
_LEAST_LOSS = 0.8
"""What a kernel may be predicted to lose where a warp alone gains: whether it is chosen is for the
predictor or the clock to say."""
_L2_CYCLES, _LOCAL_CYCLES = 300.0, 30.0


@dataclass(frozen=True)
class KernelRescheduling(KernelRewrite):
    """One proved new order."""

    rescheduling: Rescheduling

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, one entry of `kernels`."""
        return {
            **super().to_dict(),
            "reordered": [
                {
                    "block": each.block,
                    "loop_depth": each.loop_depth,
                    "instructions": each.instructions,
                    "moved": each.moved,
                    "cycles_before": each.cycles_before,
                    "cycles_after": each.cycles_after,
                }
                for each in self.rescheduling.reordered
            ],
        }


def most_registers(kernel: Kernel, request: Request) -> int:
    """The highest register count that leaves the residency of a kernel as it is."""
    now = state_of(kernel, request, kernel.registers_per_thread, kernel.static_shared_bytes)
    counts = [
        cliff.registers_max
        for cliff in cliff_table(now.launch)
        if cliff.active_blocks == now.active_blocks
    ]
    return min(_MOST_REGISTERS, max(counts, default=kernel.registers_per_thread))


def reschedule_kernel(
    cubin: Cubin, kernel: Kernel, request: Request
) -> tuple[Cubin, KernelRescheduling]:
    """A better order of a kernel's instructions, and the proof.

    `request.registers` (None: what leaves the residency as it is) is the count to stay within.
    Raises `UsageError` (`nothing_to_do`) where none is predicted to be better, `UnsupportedError`
    or `ProofError`.
    """
    refuse_architecture(kernel)
    registers = request.registers or most_registers(kernel, request)
    if not 16 <= registers <= _MOST_REGISTERS:
        raise UsageError(
            f"{registers} registers per thread can't be a limit",
            hint=f"between 16 and {_MOST_REGISTERS}",
            kernel=kernel.name,
        )
    made: list[Rescheduling] = []

    def way(least: float) -> Callable[[], Rescheduling]:
        def run() -> Rescheduling:
            made.append(reschedule(kernel, RescheduleOptions(registers, least_gain=least)))
            return made[-1]

        return run

    def wanted(after: Kernel) -> None:
        _refuse_no_gain(kernel, after, request)

    new, rewrite, verdict = prove_first(cubin, kernel, request, [way(0.03)], wanted)
    done = described(kernel, request, rewrite, verdict)
    order = next(each for each in made if each is rewrite)
    return new, KernelRescheduling(
        done.name, done.before, done.after, rewrite, done.verdict, done.threads, order
    )


Done = TypeVar("Done", bound=KernelRewrite)


def scheduled(
    cubin: Cubin, kernel: Kernel, request: Request, made: tuple[Cubin, Done]
) -> tuple[Cubin, Done]:
    """A rewrite of `kernel` with its instructions in a better order, proved as a whole.

    `made` is what another rewrite gave. It stays within `request.registers`, or if that is None
    within what leaves the residency as it is. Raises as `reschedule_kernel` does.
    """
    between, done = made
    middle = between.kernel(kernel.name)
    registers = request.registers or most_registers(middle, request)
    registers = max(registers, middle.registers_per_thread)

    def both() -> Rewrite:
        order = reschedule(middle, RescheduleOptions(registers))
        return replace(
            done.rewrite,
            edit=composed(done.rewrite.edit, order.edit),
            registers_per_thread=order.registers_per_thread,
            reordered_blocks=len(order.reordered),
        )

    def wanted(after: Kernel) -> None:
        _refuse_no_gain(middle, after, request)

    new, rewrite, verdict = prove_first(cubin, kernel, request, [both], wanted)
    told = described(kernel, request, rewrite, verdict)
    after, verdict = told.after, told.verdict
    if isinstance(done, KernelPromotion):
        assert isinstance(rewrite, Promotion)
        return new, replace(done, after=after, rewrite=rewrite, verdict=verdict, promotion=rewrite)
    return new, replace(done, after=after, rewrite=rewrite, verdict=verdict)


def with_new_order(
    cubin: Cubin, kernel: Kernel, request: Request, made: tuple[Cubin, Done]
) -> tuple[Cubin, Done]:
    """The same, or `made` as it is where no order is better or none is proved."""
    try:
        return scheduled(cubin, kernel, request, made)
    except (UsageError, UnsupportedError, ProofError):
        return made


def composed(first: KernelEdit, second: KernelEdit) -> KernelEdit:
    """One edit that does what `first` does and then `second` (of the code that `first` gives)."""
    place = second.offset_map
    label = second.offset_map if second.target_map is None else second.target_map
    labels = first.offset_map if first.target_map is None else first.target_map
    names = second.register_map
    return replace(
        first,
        code=second.code,
        offset_map=place[first.offset_map // INSTRUCTION_BYTES],
        target_map=label[labels // INSTRUCTION_BYTES],
        registers_per_thread=second.registers_per_thread or first.registers_per_thread,
        shared_bytes=first.shared_bytes if second.shared_bytes is None else second.shared_bytes,
        register_map={r: names[n] for r, n in first.register_map.items() if n in names},
        new_annotations=(
            *(
                Annotation(each.kind, int(place[each.offset // INSTRUCTION_BYTES]))
                for each in first.new_annotations
            ),
            *second.new_annotations,
        ),
    )


def _refuse_no_gain(before: Kernel, after: Kernel, request: Request) -> None:
    """Raises `UsageError` where the new order isn't predicted to be faster.

    What limits a kernel is known less well than what a warp waits for: an order that saves a warp
    time is worth it unless the kernel as a whole is predicted to lose.
    """
    cycles: list[float] = []
    alone: list[float] = []
    for each in (before, after):
        there = state_of(each, request, each.registers_per_thread, each.static_shared_bytes)
        cycles.append(predict(each, there).predicted_cycles)
        alone.append(summarise(each).time(_L2_CYCLES, _LOCAL_CYCLES).cycles)
    gain, warp = cycles[0] / cycles[1], alone[0] / alone[1]
    if gain < _LEAST_LOSS or max(gain, warp) < _LEAST_GAIN:
        raise UsageError(
            "no other order is predicted to be faster",
            code="nothing_to_do",
            kernel=before.name,
        )


__all__ = [
    "KernelRescheduling", "composed", "most_registers", "reschedule_kernel", "scheduled",
    "with_new_order",
]  # fmt: skip
