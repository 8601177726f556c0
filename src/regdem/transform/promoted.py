"""What a promotion is asked for, and what comes of it: the types that its ways share.

Beside the types: the layout of the slots in shared memory, and the edit for the file with the
account of what moved. Invariant: annotations name every access to a slot, so that a later rewrite
can tell them from the kernel's own shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regdem.analysis.forms import forms_of
from regdem.analysis.frame import Frame
from regdem.binary.edit import KernelEdit
from regdem.binary.kernel import SPILL_ANNOTATION, Annotation, Kernel
from regdem.errors import UnsupportedError
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.program.edit import NOP, Edited, Word
from regdem.program.loops import loop_depth
from regdem.program.program import Program
from regdem.transform.demoted import STATIC_SHARED_LIMIT_BYTES, Rewrite
from regdem.transform.frame_slots import FrameRange, SlotPlan
from regdem.transform.slots import SlotLayout, layout, may_use_dynamic


@dataclass(frozen=True)
class PromoteOptions:
    """`threads` per block of the launch; `most_slots` per thread that fit.

    `registers`: the count to stay within (None: the kernel's own); a lower one demotes as well.
    """

    threads: int
    most_slots: int
    registers: int | None = None


@dataclass(frozen=True)
class Promoted:
    """One live range of a frame word that moved: offset, slot, the accesses that reach it."""

    frame_offset_bytes: int
    slot: int
    loads: int
    stores: int
    loop_depth: int


@dataclass(frozen=True)
class Promotion(Rewrite):
    """A rewrite with the words that moved and the number of accesses that stay in local memory.

    `recovered` moved into registers, whose numbers they have for a slot.
    """

    promoted: tuple[Promoted, ...] = ()
    recovered: tuple[Promoted, ...] = ()
    local_accesses_left: int = 0
    removed_instructions: int = 0


def layout_for(
    kernel: Kernel, program: Program, slots: int, wide: bool, options: PromoteOptions
) -> SlotLayout:
    """Where `slots` words a thread lie in shared memory.

    Raises `UnsupportedError` where they are more than a block may have.
    """
    where = layout(
        slots,
        options.threads,
        kernel.static_shared_bytes,
        dynamic=may_use_dynamic(program),
        wide=wide,
    )
    if where.shared_bytes > STATIC_SHARED_LIMIT_BYTES:
        raise UnsupportedError(
            f"the slots need {where.shared_bytes} bytes of static shared memory",
            code="slots_do_not_fit",
            hint="48 KiB is the most a block can have without opting in",
            kernel=kernel.name,
        )
    return where


def promoted_ranges(
    program: Program, frame: Frame, ranges: Sequence[tuple[FrameRange, int]]
) -> tuple[Promoted, ...]:
    """The account of live ranges that moved, each with its slot (or register)."""
    depth = loop_depth(program)
    stores = {a.instruction for a in frame.accesses if a.is_store}
    return tuple(
        Promoted(
            each.place_bytes,
            slot,
            sum(i not in stores for i, _ in each.words),
            sum(i in stores for i, _ in each.words),
            max(depth[int(program.block_of[i])] for i, _ in each.words),
        )
        for each, slot in ranges
    )


def promotion_of(
    kernel: Kernel,
    program: Program,
    frame: Frame,
    plan: SlotPlan,
    where: SlotLayout | None,
    edited: Edited,
    words: Sequence[Word],
    registers: int,
    register_map: dict[int, int],
) -> Promotion:
    """The edit for the file and the account of a finished promotion.

    `words`: the code of `edited` with its control bits. `where`: None if there are no slots.
    `register_map`: old to new numbers, where one register has one.
    """
    shared_bytes = kernel.static_shared_bytes if where is None else where.shared_bytes
    removed = sum(words[int(edited.index_map[i])][0] == NOP[0] for i in frame.definitions)
    edit = KernelEdit(
        code=b"".join(lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in words),
        offset_map=edited.index_map * INSTRUCTION_BYTES,
        target_map=edited.label_map * INSTRUCTION_BYTES,
        registers_per_thread=registers,
        shared_bytes=None if where is None else shared_bytes,
        register_map=register_map,
        new_annotations=tuple(
            Annotation(SPILL_ANNOTATION, k * INSTRUCTION_BYTES)
            for k, (o, form) in enumerate(
                zip(edited.origin.tolist(), forms_of(edited.program.code), strict=True)
            )
            if o in plan.moved or (o < 0 and form.memory == "shared")
        ),
    )
    inserted = sum(
        1
        for o, word in zip(edited.origin.tolist(), words, strict=True)
        if o < 0 and word[0] != NOP[0]
    )
    return Promotion(
        edit=edit,
        registers_per_thread=registers,
        shared_bytes=shared_bytes,
        slots=plan.slots,
        demoted=(),
        rematerialised=(),
        inserted_instructions=inserted,
        method="promote",
        promoted=promoted_ranges(program, frame, plan.ranges),
        local_accesses_left=len(frame.accesses) - len(plan.moved),
        removed_instructions=removed,
    )
