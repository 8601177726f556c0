"""Promotion: ptxas's local-memory spills become slots in shared memory (Hayes and Zhang, 2014).

The live ranges of the stack frame's private words (`analysis/frame.py`) get slots
(`transform/frame_slots.py`); their LDL and STL become LDS and STS with the same guard, data and
scoreboards, one for each row of slots that an access reaches. Cache hints fall away.

Two ways to hold the slot address:

- R1 itself: the instructions that set the stack pointer make way for the slot address. Nothing is
  renumbered. Where only part of the frame fits, the hottest words by loop-weighted accesses move,
  and the rest is reached through a uniform register (`transform/frame_base.py`).
- a register more, where no uniform register is free. All live ranges are coloured anew within the
  given register count; where that fails, some are demoted into slots of their own
  (`transform/room.py`). The same path takes a kernel below its register count, spills and all.

An instruction that set R1 leaves a NOP with its stall and waits, so that no distance shrinks.
A load that relied on a later one of its kind to signal for both gets a scoreboard of its own when
only one of them moves. A scoreboard that a DEPBAR counts down is left alone: accesses that use one
stay.

Not claimed: that it is faster; slots take shared memory from L1 and, if too many, from residency.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regdem.analysis.forms import forms_of
from regdem.analysis.frame import WORD_BYTES, Frame, FrameAccess, frame_of
from regdem.analysis.liveness import liveness
from regdem.analysis.webs import STACK_POINTER, allocation_pressure, webs
from regdem.binary.edit import KernelEdit
from regdem.binary.kernel import SPILL_ANNOTATION, Annotation, Kernel
from regdem.errors import UnsupportedError, UsageError
from regdem.isa import encode
from regdem.isa.control import ControlWord, get_control, set_control
from regdem.isa.decode import decode
from regdem.isa.decoded import INSTRUCTION_BYTES, NO_SCOREBOARD, DecodedCode
from regdem.isa.encode import RZ
from regdem.program.edit import NOP, Edited, Word, apply, compose
from regdem.program.loops import loop_depth
from regdem.program.program import Program
from regdem.transform.candidates import used_registers
from regdem.transform.colour import colour
from regdem.transform.demoted import (
    RESERVED_REGISTERS,
    STATIC_SHARED_LIMIT_BYTES,
    Demoted,
    Rewrite,
    program_of,
)
from regdem.transform.frame_base import frame_base, free_uniform_register, with_frame_base
from regdem.transform.frame_slots import FrameRange, SlotPlan, by_row, plan_slots
from regdem.transform.hazards import repair
from regdem.transform.recover import (
    plan_recovery,
    register_words,
    spare_registers,
    without,
)
from regdem.transform.rename import rename
from regdem.transform.room import make_room
from regdem.transform.slots import (
    SCRATCH_REGISTERS,
    SlotLayout,
    layout,
    may_use_dynamic,
    prologue,
)

_NO_SLOTS = SlotPlan({}, (), 0, False, frozenset())
_ATTEMPTS = 8
"""Times that more slots are set aside for live ranges that must make room."""


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


def promote(kernel: Kernel, options: PromoteOptions) -> Promotion:
    """Moves local spills of `kernel` into shared memory.

    Raises `UsageError` where there is nothing to move, `UnsupportedError` with the reason where
    nothing may or can be moved.
    """
    _refuse(kernel)
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
        recovered = _recovered(kernel, program, frame, barred, options)
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
    rest = None if whole else _rest_at(program, frame)
    if (whole or rest is not None) and target >= kernel.registers_per_thread:
        where = _layout(kernel, program, plan.slots, plan.wide, options)
        return _by_stack_pointer(kernel, program, frame, plan, where, rest)
    extra = 0
    for _ in range(_ATTEMPTS):
        plan = plan_slots(program, frame, barred, options.most_slots - extra)
        if not plan.moved:
            break
        slots = min(options.most_slots, plan.slots + extra)
        slots -= slots % 2 if plan.wide else 0
        where = _layout(kernel, program, slots, plan.wide, options)
        found = _coloured(kernel, program, frame, plan, where, target)
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


def _layout(
    kernel: Kernel, program: Program, slots: int, wide: bool, options: PromoteOptions
) -> SlotLayout:
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


def _refuse(kernel: Kernel) -> None:
    if kernel.reconfigures_registers:
        raise UnsupportedError(
            "the kernel moves registers between warps (setmaxnreg)",
            code="setmaxnreg",
            kernel=kernel.name,
        )
    if kernel.is_relocatable:
        raise UnsupportedError(
            "the object is relocatable: its functions are not linked yet",
            code="relocatable",
            hint="rewrite the linked cubin",
            kernel=kernel.name,
        )


def _counted_scoreboards(program: Program) -> frozenset[int]:
    """Scoreboards that a DEPBAR counts down on (bits 44 to 46)."""
    code = program.code
    return frozenset(
        (int(code.words[i, 0]) >> 44) & 7
        for i, form in enumerate(forms_of(code))
        if form.name == "DEPBAR"
    )


def _counting(program: Program, frame: Frame) -> frozenset[int]:
    """Accesses whose scoreboard a DEPBAR counts down: they stay as they are."""
    counted = _counted_scoreboards(program)
    controls = {
        a.instruction: get_control(int(program.code.words[a.instruction, 1]))
        for a in frame.accesses
    }
    return frozenset(
        i for i, c in controls.items() if counted & {c.write_scoreboard, c.read_scoreboard}
    )


@dataclass
class _Moves:
    """Replacements for the accesses that move."""

    before: dict[int, list[Word]]
    replace: dict[int, Word]
    uncovered: set[int]
    """Original instructions that need a scoreboard of their own now, or distances of their own."""

    def put(self, i: int, words: Sequence[Word]) -> None:
        """`words` in place of instruction `i`."""
        *first, last = words
        if first:
            self.before[i] = first
        self.replace[i] = last

    def add(self, other: _Moves) -> None:
        """What `other` has, too, for other instructions."""
        self.before |= other.before
        self.replace |= other.replace
        self.uncovered |= other.uncovered | other.replace.keys()


def _moves(
    program: Program, frame: Frame, plan: SlotPlan, where: SlotLayout, address: int
) -> _Moves:
    moves = _Moves({}, {}, set())
    moved = {a.instruction: a for a in frame.accesses if a.instruction in plan.moved}
    for i, access in moved.items():
        moves.put(i, _shared_words(program, access, plan, where, address))
    if len(moved) != len(frame.accesses):
        moves.uncovered = {a.instruction for a in frame.accesses if _is_unmarked(program, a)}
    return moves


def _is_unmarked(program: Program, access: FrameAccess) -> bool:
    """Whether this is a load that a later one of its kind signals for."""
    board = program.code.write_scoreboard[access.instruction]
    return not access.is_store and board == NO_SCOREBOARD


def _shared_words(
    program: Program,
    access: FrameAccess,
    plan: SlotPlan,
    where: SlotLayout,
    address: int,
) -> list[Word]:
    """LDS or STS for each row; the first waits as the original did, the last keeps its stall."""
    i = access.instruction
    code = program.code
    guard = encode.Guard(int(code.guard[i]), bool(code.guard_negated[i]))
    control = replace(get_control(int(code.words[i, 1])), reuse=0)
    words: list[Word] = []
    parts = by_row(access, 2 if where.wide else 1)
    for part in parts:
        register = access.register if access.register == RZ else access.register + part[0]
        offset = where.offset(plan.slot[i, part[0]])
        mine = control if part is parts[-1] else replace(control, stall=1, yield_bit=1)
        if access.is_store:
            word = encode.sts(address, offset, register, words=len(part), guard=guard, control=mine)
        else:
            word = encode.lds(register, address, offset, words=len(part), guard=guard, control=mine)
        words.append(word)
    return words


def _scratch(used: Sequence[int], address: int) -> list[int]:
    """Registers for the prologue; nothing is live at entry, so those in use may be taken."""
    free = [r for r in used if r not in (STACK_POINTER, address)]
    free += [r for r in range(2, 8) if r not in free and r != address]
    return free[:SCRATCH_REGISTERS]


def _retire_stack_pointer(program: Program, frame: Frame, moves: _Moves) -> None:
    """What set R1 becomes a NOP with its stall and waits."""
    code = program.code
    latency = [form.latency for form in forms_of(code)]
    for i in frame.definitions:
        old = get_control(int(code.words[i, 1]))
        left = ControlWord(stall=old.stall, yield_bit=old.yield_bit, wait_mask=old.wait_mask)
        moves.replace[i] = NOP[0], set_control(NOP[1], left)
        if old.write_scoreboard != NO_SCOREBOARD:
            # What it signalled for besides itself, in order, signals for itself now.
            moves.uncovered.update(
                j
                for j in range(i)
                if latency[j] == latency[i] and code.write_scoreboard[j] == NO_SCOREBOARD
            )


def _recovered(
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
    first = _Moves({}, {}, set())
    for access in frame.accesses:
        if access.instruction in plan.moved:
            first.put(access.instruction, register_words(program, access, plan, spare))
    first.uncovered = {a.instruction for a in frame.accesses if _is_unmarked(program, a)}
    left = without(frame, plan.moved)
    slots = plan_slots(program, left, barred, options.most_slots)
    rest = None
    where: SlotLayout | None = None
    if slots.moved:
        whole = len(slots.moved) == len(left.accesses)
        rest = None if whole else _rest_at(program, frame)
        if whole or rest is not None:
            where = _layout(kernel, program, slots.slots, slots.wide, options)
    done = _by_stack_pointer(
        kernel, program, left, slots if where is not None else _NO_SLOTS, where, rest, first
    )
    homes = [(each, spare[number]) for each, number in plan.ranges]
    gone = np.zeros(len(program), dtype=np.bool_)  # no accesses to memory any more
    gone[list(plan.moved)] = True
    return replace(
        done,
        edit=replace(done.edit, removed=gone),
        recovered=_ranges(program, frame, homes),
        method="recover" if where is None else "recover+promote",
    )


@dataclass(frozen=True)
class _Rest:
    """What stays in local memory: a uniform register for its address, which is `base_bytes`."""

    uniform: int
    base_bytes: int


def _rest_at(program: Program, frame: Frame) -> _Rest | None:
    base = frame_base(program, frame)
    uniform = free_uniform_register(program, liveness(program))
    return None if base is None or uniform is None else _Rest(uniform, base)


def _by_stack_pointer(
    kernel: Kernel,
    program: Program,
    frame: Frame,
    plan: SlotPlan,
    where: SlotLayout | None,
    rest: _Rest | None,
    first: _Moves | None = None,
) -> Promotion:
    """R1 becomes the slot address; what stays in local memory has its own in `rest`.

    `where`: None if there are no slots; R1 stays then. `first`: what else is to be done.
    """
    moves = _Moves({}, {}, set())
    entry: list[Word] = []
    if where is not None:
        moves = _moves(program, frame, plan, where, STACK_POINTER)
        _retire_stack_pointer(program, frame, moves)
        scratch = _scratch(used_registers(liveness(program)), STACK_POINTER)
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
    words = repair(edited.program, _fresh(edited, moves, len(entry)))
    highest = max(used_registers(liveness(edited.program)))
    registers = max(kernel.registers_per_thread, highest + 1 + RESERVED_REGISTERS)
    return _promotion(kernel, program, frame, plan, where, edited, words, registers, {})


def _coloured(
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
    moves = _moves(program, frame, plan, where, address)
    if whole:
        _retire_stack_pointer(program, frame, moves)
    entry = prologue(address, _scratch(used, address), where)
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
    program_after = dataclasses.replace(edited.program, code=_decoded(edited.program, renamed))
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
    result = _promotion(kernel, program, frame, plan, where, edited, words, count, names)
    return dataclasses.replace(
        result,
        slots=where.slots,
        demoted=demoted,
        rematerialised=again,
        method="promote+demote" if demoted or again else "promote",
    )


def _decoded(program: Program, words: Sequence[Word]) -> DecodedCode:
    data = b"".join(lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in words)
    return decode(data, program.code.table.arch)


def _fresh(edited: Edited, moves: _Moves, entry: int) -> list[bool]:
    """What the repair of control bits must look after from scratch.

    The prologue, and accesses that have lost what signalled for them. A moved access is as safe as
    it was: same registers, same scoreboards.
    """
    origin = edited.origin.tolist()
    fresh = [k < entry or (o >= 0 and o in moves.uncovered) for k, o in enumerate(origin)]
    for i in moves.uncovered & moves.before.keys():
        end = int(edited.index_map[i])
        for k in range(end - len(moves.before[i]), end):
            fresh[k] = True
    return fresh


def _words(frame: Frame) -> set[int]:
    return {a.place_bytes + WORD_BYTES * k for a in frame.accesses for k in range(a.words)}


def _ranges(
    program: Program, frame: Frame, ranges: Sequence[tuple[FrameRange, int]]
) -> tuple[Promoted, ...]:
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


def _promotion(
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
        promoted=_ranges(program, frame, plan.ranges),
        local_accesses_left=len(frame.accesses) - len(plan.moved),
        removed_instructions=removed,
    )


__all__ = ["PromoteOptions", "Promoted", "Promotion", "promote"]
