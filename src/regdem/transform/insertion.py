"""Inserts the loads and stores of the values that leave their registers.

The last step before colouring, for both granularities of demotion: each value has its accesses, the
instructions at which it is away, and where it goes (a slot, uniform registers, or nowhere, since it
is computed again). What comes out is a valid program in the original register numbers, with shorter
live ranges.

Method: slots get homes, the hottest in shared memory; each value gets its loads and stores
(`transform/spill.py`), loads move up and stores down over instructions with free registers; the
entry gets the code that computes the thread's slot address; definitions that nobody reads any more
go.

Invariants: values move under their own register number; the new code of the entry takes numbers
that hold nothing there. Not claimed: that the result fits a number of registers; colouring tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.liveness import Liveness
from regdem.analysis.webs import Web, Webs
from regdem.binary.kernel import SPILL_ANNOTATION, Kernel
from regdem.isa import encode
from regdem.isa.sources import Source
from regdem.program.edit import Word, apply, identity
from regdem.program.loops import block_weights, loop_depth
from regdem.program.program import Program
from regdem.transform.candidates import used_registers
from regdem.transform.demoted import Demoted, DemoteOptions, Spilled
from regdem.transform.fold import Folding, removed
from regdem.transform.overflow import homes, load_from, store_to
from regdem.transform.paper import ELIMINATE, spread, unreduced
from regdem.transform.recompute import copy_of
from regdem.transform.slots import (
    SCRATCH_REGISTERS,
    SlotLayout,
    layout,
    may_use_dynamic,
    prologue,
)
from regdem.transform.spill import (
    Access,
    Placement,
    hoist,
    insertions,
    place,
    sink,
    store_positions,
)


@dataclass(frozen=True)
class MovedValue:
    """A value to move: its accesses, first web, first slot (-1: none), the instruction to repeat
    instead of loading, where it may be away, and the uniform registers it goes to."""

    access: Access
    web: int
    slot: int
    definition: int | None
    away: Sequence[bool] | NDArray[np.bool_]
    uniform: tuple[int, ...] = ()
    whole: Access | None = None
    """With the uses that name its uniform registers themselves."""
    constants: tuple[Source, ...] = ()
    """What its uniform registers may be loaded with, instead of by way of its register."""
    webs: tuple[Web, ...] = ()


def free_registers(live: Liveness) -> list[int]:
    """Unused numbers to write new code in: the slot address, and the prologue's scratch."""
    used = set(used_registers(live))
    free = [r for r in range(254, 1, -1) if r not in used][: 1 + SCRATCH_REGISTERS]
    if len(free) <= SCRATCH_REGISTERS:
        # Nothing is live at entry, so scratch may take any numbers.
        free += list(range(2, 2 + SCRATCH_REGISTERS))[: 1 + SCRATCH_REGISTERS - len(free)]
    return free


def insert(
    kernel: Kernel,
    program: Program,
    live: Liveness,
    values: Sequence[MovedValue],
    slots: int,
    options: DemoteOptions,
    *,
    room: list[int] | None = None,
    idle: list[int] | None = None,
    folded: Folding | None = None,
    found: Webs | None = None,
) -> Spilled:
    """Inserts the loads and stores of all values, which take `slots` words.

    `room`: registers free at each instruction, for loads to stand earlier and stores later; None:
    they don't. `idle`: the registers (masks) that the paper's rescheduling may use there.
    `folded`: uses that name their operands themselves. `found`: all webs; definitions that nobody
    reads any more go. Raises `UnsupportedError` where the slots can't be laid out.
    """
    folded = folded or Folding()
    before: dict[int, list[Word]] = {}
    after: dict[int, list[Word]] = {}
    where: SlotLayout | None = None
    address, *scratch = free_registers(live)
    depth = loop_depth(program)
    wide = any(value.access.words > 1 and value.slot >= 0 for value in values)
    most_shared = options.most_slots if options.local_slots else slots + slots % 2
    at = homes(_heat(program, values, slots), most_shared, wide=wide)
    if at.shared:
        where = layout(
            len(at.shared),
            options.threads,
            kernel.static_shared_bytes,
            dynamic=may_use_dynamic(program),
            wide=wide,
        )
    count = (where.slots if where else 0) + len(at.local)
    result = Spilled(identity(program), count, where, at.frame_bytes)
    placed = _placements(program, live, values, options, room, idle)
    for value, placement in placed:
        access = value.access
        if not access.reads and not (value.uniform and placement.stores):
            continue
        if value.definition is not None:
            copy = copy_of(program, value.definition)
            loads, stores = insertions(program, placement, copy, None, before, after)
        elif value.uniform:
            loads, stores = _by_uniform(program, value, placement, before, after)
        else:

            def store(guard: encode.Guard, slot: int = value.slot, of: Access = access) -> Word:
                return store_to(at, slot, of.register, address, where, of.words, guard)

            load = load_from(at, value.slot, access.register, address, where, access.words)
            loads, stores = insertions(program, placement, load, store, before, after)
        deepest = max((depth[int(program.block_of[i])] for i in placement.loads), default=0)
        entry = Demoted(
            access.register, value.web, value.slot, loads, stores, deepest, access.words,
            access.early,
        )  # fmt: skip
        if value.definition is not None:
            result.rematerialised.append(entry)
        else:
            (result.uniform if value.uniform else result.demoted).append(entry)
    if where is not None:
        again = _begins_with_slots(kernel, program)
        words = prologue(address, scratch, where, again=again)
        before[0] = words + before.get(0, [])
    new, gone = folded.replace, frozenset[int]()
    if found is not None:
        new, gone = removed(program, found, _served(placed), new)
        result.removed = len(gone)
    result.edited = apply(program, before=before, after=after, replace=new, delete=gone)
    result.folded.extend(
        replace(each, is_gone=found is not None and found.webs[each.web].writes[0] in gone)
        for each in folded.values
    )
    return result


def _placements(
    program: Program,
    live: Liveness,
    values: Sequence[MovedValue],
    options: DemoteOptions,
    room: list[int] | None,
    idle: list[int] | None,
) -> list[tuple[MovedValue, Placement]]:
    """Where each value's loads and stores stand, after all moves over other instructions."""
    placed = [(value, _placed(program, live, value)) for value in values]
    if options.order != "live-range" and ELIMINATE not in options.paper_passes:
        for value, placement in placed:
            unreduced(program, live, value.access, value.away, placement)
    if idle is not None:
        for value, placement in placed:
            spread(program, value.access, placement, idle)
    if room is not None:
        for value, placement in placed:
            if not value.constants:
                sink(program, live, value.whole or value.access, placement, value.away, room)
        for value, placement in placed:
            hoist(program, value.access, placement, room)
    return placed


def _heat(program: Program, values: Sequence[MovedValue], slots: int) -> list[float]:
    """Loop-weighted accesses of each slot: about what its values' uses and definitions cost."""
    weights = block_weights(program)
    heat = [0.0] * slots
    for value in values:
        if value.slot < 0:
            continue
        each = (*value.access.reads, *value.access.writes)
        heat[value.slot] += sum(weights[int(program.block_of[i])] for i in each)
    return heat


def _by_uniform(
    program: Program,
    value: MovedValue,
    placement: Placement,
    before: dict[int, list[Word]],
    after: dict[int, list[Word]],
) -> tuple[int, int]:
    """Inserts what puts a value into its uniform registers and takes it from there."""
    register = value.access.register
    loads = stores = 0
    for k, ur in enumerate(value.uniform):

        def keep(guard: encode.Guard, k: int = k, ur: int = ur) -> Word:
            assert guard == encode.ALWAYS
            if not value.constants:
                return encode.to_uniform(ur, register + k)
            source = value.constants[k]
            if source.kind == "immediate":
                return encode.umov(ur, source.value)
            return encode.uldc(ur, source.value >> 16, source.value & 0xFFFF)

        copy = encode.from_uniform(register + k, ur)
        some = insertions(program, placement, copy, keep, before, after)
        loads, stores = loads + some[0], stores + some[1]
    return loads, stores


def _served(placed: Sequence[tuple[MovedValue, Placement]]) -> dict[int, set[int]]:
    """Of each web that can do without its definition: the uses that do."""
    return {
        web.index: (set(web.reads) - value.access.reads) | placement.loads
        for value, placement in placed
        if value.definition is not None or value.constants
        for web in value.webs
    }


def _placed(program: Program, live: Liveness, value: MovedValue) -> Placement:
    """Loads and stores of one value. Uses that name its uniform registers need its stores, too."""
    result = place(program, live, value.access, value.away, store=value.definition is None)
    if value.constants:
        is_used = bool(result.loads) or value.whole is not None
        result.stores = {i: (i, True) for i in value.access.writes} if is_used else {}
    elif value.uniform and value.whole is not None:
        result.stores.clear()
        store_positions(program, live, value.whole, result, value.away)
    return result


def _begins_with_slots(kernel: Kernel, program: Program) -> bool:
    """Whether a kernel with slots begins with the code of `slots.prologue` in its first order."""
    first = program.code.table.forms[int(program.code.form[0])].name
    return first == "S2R" and any(n.kind == SPILL_ANNOTATION for n in kernel.annotations)
