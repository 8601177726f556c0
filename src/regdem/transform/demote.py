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

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.liveness import Liveness, liveness
from regdem.analysis.webs import (
    STACK_POINTER,
    Web,
    Webs,
    allocation_pressure,
    call_touched,
    webs,
)
from regdem.binary.kernel import SPILL_ANNOTATION, Kernel
from regdem.errors import UnsupportedError, UsageError
from regdem.isa import encode
from regdem.isa.sources import Source
from regdem.program.edit import Edited, Word, apply, identity
from regdem.program.loops import block_weights, loop_depth
from regdem.program.program import Program
from regdem.transform.candidates import (
    NO_ORDER,
    ORDERS,
    access_of,
    register_order,
    used_registers,
)
from regdem.transform.colour import Colouring, colour, occupancy
from regdem.transform.demoted import (
    RESERVED_REGISTERS,
    Demoted,
    DemoteOptions,
    Rewrite,
    Spilled,
    program_of,
)
from regdem.transform.finish import estimated_cycles, finish
from regdem.transform.fold import Folding, Folds, folding, folds_of, moved_by, removed
from regdem.transform.gap_choice import Choice, choose_gaps, out_of_reach, settled
from regdem.transform.gaps import GapSearch
from regdem.transform.overflow import homes, load_from, may_grow_frame, store_to
from regdem.transform.paper import (
    ELIMINATE,
    RESCHEDULE,
    SUBSTITUTE,
    fallbacks,
    idle_registers,
    spread,
    substituted,
    unreduced,
)
from regdem.transform.polish import polish
from regdem.transform.recompute import copy_of, recomputable, recomputable_from_inputs
from regdem.transform.shortage import Shortage
from regdem.transform.slot_sharing import share_slots, slot_points
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
from regdem.transform.uniform import (
    aligned_first,
    free_uniform_registers,
    is_late,
    paired_registers,
    uniform_webs,
)
from regdem.transform.values import Value, values_of

Kept = TypeVar("Kept")
_LONGEST_TWICE = 3000
"""Instructions up to which a choice is made without uniform registers and with folding, too."""
_LONGEST_THRICE = 1500
"""Instructions up to which one is also made without the cost of latency."""
_CLEARLY = 0.99
"""Where uniform registers save slots, they are left out only if that is so much faster: what slots
take from L1 is not counted."""
_ROUNDS = 20
"""Times that a choice is made again with what colouring showed."""


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
        return _cheaper(_Origin(kernel, program, live), limit, options)
    if options.order == NO_ORDER:
        raise UnsupportedError(
            f"{options.registers} registers can't be reached by renumbering",
            code="target_out_of_reach",
            kernel=kernel.name,
        )
    return _by_register(kernel, program, live, limit, options)


class _HopelessError(UnsupportedError):
    """So many more values are live than registers and slots that no choice can help."""


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


def _free_registers(live: Liveness) -> list[int]:
    """Unused numbers to write the new code in: the slot address, and the prologue's scratch."""
    used = set(used_registers(live))
    free = [r for r in range(254, 1, -1) if r not in used][: 1 + SCRATCH_REGISTERS]
    if len(free) <= SCRATCH_REGISTERS:
        # Nothing is live at entry, so scratch may take any numbers.
        free += list(range(2, 2 + SCRATCH_REGISTERS))[: 1 + SCRATCH_REGISTERS - len(free)]
    return free


class _Origin:
    """What is known of a kernel to be demoted, whatever is tried.

    `search`, its live ranges and what may be folded are kept with the program, for other targets.
    """

    def __init__(self, kernel: Kernel, program: Program, live: Liveness) -> None:
        self.kernel = kernel
        self.program = program
        self.live = live
        self.instructions = len(program)
        self._edited: dict[tuple[bytes, ...], Edited] = {}

    def known(self, edited: Edited) -> Edited:
        """The same edited program as it was met first, with what is known of it."""
        code = edited.program.code
        maps = (edited.index_map, edited.label_map, edited.origin)
        key = code.words.tobytes(), *(each.tobytes() for each in maps)
        return self._edited.setdefault(key, edited)

    @property
    def found(self) -> Webs:
        """The live ranges."""
        return _webs_of(self.program)

    @property
    def pressure(self) -> NDArray[np.int32]:
        """(n,) registers that must be distinct at each instruction."""
        return self._kept("pressure", lambda: allocation_pressure(self.program, self.live))

    @property
    def search(self) -> GapSearch:
        """Where values may leave their registers."""
        return self._kept("gaps", lambda: GapSearch(self.program, self.live))

    def shared(self, options: DemoteOptions) -> frozenset[int]:
        """The webs that may go to uniform registers: no more than there are, the least read
        first."""
        if not options.uniform:
            return frozenset()
        return self._kept("shared", self._shared)

    def _shared(self) -> frozenset[int]:
        found = self.found
        room = paired_registers(free_uniform_registers(self.program))
        webs_of = uniform_webs(self.program, found)
        least = sorted(webs_of, key=lambda w: (len(found.webs[w].reads), w))
        return frozenset(least[:room])

    def folds(self, options: DemoteOptions) -> Folds:
        """Operands that may be named otherwise."""
        if not options.fold:
            return Folds()
        shared, banks = self.shared(options), options.banks
        return self._kept(
            ("folds", shared, banks),
            lambda: folds_of(self.program, self.found, shared, banks=banks),
        )

    def recomputable(self, options: DemoteOptions) -> dict[int, int]:
        """The instruction to repeat for each web that can be computed again."""
        return self._kept("recomputable", self._recomputable) if options.rematerialise else {}

    def _recomputable(self) -> dict[int, int]:
        ways = recomputable_from_inputs(self.program, self.live, self.found)
        return ways | recomputable(self.program, self.found, pairs=True)

    def ways(self, options: DemoteOptions) -> dict[int, int]:
        """The same without what goes to uniform registers instead."""
        shared, folds, found = self.shared(options), self.folds(options), self.found
        return {
            web: i
            for web, i in self.recomputable(options).items()
            if web not in shared
            or not (is_late(self.program, i) or folds.are_most_of(found.webs[web]))
        }

    def values(self, options: DemoteOptions) -> Iterator[list[Value]]:
        """What may leave, best first: 64-bit values as one, halves alone, with loads under way."""
        key = options.rematerialise, options.uniform, options.fold, options.banks
        for early in (False, True):
            for pairs in (True, False):
                yield self._kept(
                    (key, early, pairs),
                    partial(self._values, options, early=early, pairs=pairs),
                )

    def _values(self, options: DemoteOptions, *, early: bool, pairs: bool) -> list[Value]:
        values = values_of(
            self.program,
            self.found,
            self.ways(options),
            pairs=pairs,
            uniform=self.shared(options),
            folds=self.folds(options),
        )
        return values + [replace(v, early=True) for v in values if early and v.takes_slot]

    def _kept(self, name: Hashable, make: Callable[[], Kept]) -> Kept:
        return _kept(self.program, name, make)


def _kept(program: Program, name: Hashable, make: Callable[[], Kept]) -> Kept:
    """What `make` gives, the first time, and then again."""
    known: Kept | None = program.memo.get(("demote", name))
    if known is None:
        known = program.memo["demote", name] = make()
    return known


def _webs_of(program: Program) -> Webs:
    return _kept(program, "webs", lambda: webs(program, liveness(program, follow_guards=True)))


def _polished(program: Program, found: Webs, colouring: Colouring) -> Colouring:
    return _kept(program, colouring, lambda: polish(program, found, colouring))


def _cheaper(origin: _Origin, limit: int, options: DemoteOptions) -> Rewrite:
    """The one of several rewrites that is estimated to run fastest, with and without folding."""
    may_fold = bool(origin.folds(options))
    try:
        best, way = _cheapest(origin, limit, replace(options, fold=False))
    except UnsupportedError:
        if not may_fold:
            raise
        return _cheapest(origin, limit, options)[0]
    if not may_fold or origin.instructions > _LONGEST_TWICE:
        return best
    costs = [way.exposed_cost]
    if origin.instructions <= _LONGEST_THRICE:
        costs.append(0.0 if way.exposed_cost else options.exposed_cost)
    for cost in costs:
        with suppress(UnsupportedError):
            way = replace(options, exposed_cost=cost)
            folded = _by_live_range(origin, limit, way)
            most = best.cycles * (_CLEARLY if folded.slots > best.slots else 1.0)
            if folded.folded and folded.cycles <= most:
                best = folded
    return best


def _cheapest(origin: _Origin, limit: int, options: DemoteOptions) -> tuple[Rewrite, DemoteOptions]:
    """The fastest by estimate of some ways, and the way.

    Choice and colouring are greedy, so that neither more ways nor better costs lead to a better
    result in every case: with and without uniform registers, with and without a cost of latency.
    """
    try:
        done = [_by_live_range(origin, limit, options)]
    except _HopelessError:
        raise
    except UnsupportedError:
        plain = replace(options, uniform=False, exposed_cost=0.0)
        return _by_live_range(origin, limit, plain), plain
    ways = [options]
    if origin.instructions <= _LONGEST_THRICE:
        way = replace(options, exposed_cost=0.0)
        with suppress(UnsupportedError):
            done.append(_by_live_range(origin, limit, way))
            ways.append(way)
    best = min(done, key=lambda rewrite: rewrite.cycles)
    way = ways[done.index(best)]
    if best.uniform and origin.instructions <= _LONGEST_TWICE:
        plain = replace(way, uniform=False)
        with suppress(UnsupportedError):
            other = _by_live_range(origin, limit, plain)
            if _better(best, other) is other:
                return other, plain
    return best, way


def _better(first: Rewrite, second: Rewrite) -> Rewrite:
    """The faster of two rewrites by estimate; the one with more slots only if clearly faster."""
    first_weight = _CLEARLY if first.slots < second.slots else 1.0
    second_weight = _CLEARLY if second.slots < first.slots else 1.0
    return second if second_weight * second.cycles < first_weight * first.cycles else first


def _by_live_range(origin: _Origin, limit: int, options: DemoteOptions) -> Rewrite:
    kernel, program, live, found = origin.kernel, origin.program, origin.live, origin.found
    shared, folds, ways = origin.shared(options), origin.folds(options), origin.ways(options)
    pressure = origin.pressure
    if int(pressure[0]) > limit:
        raise UnsupportedError("values are live at entry", code="live_at_entry", kernel=kernel.name)
    further = options.local_slots
    if further and not may_grow_frame(program):
        further = 0
    most = options.most_slots + further
    tried: list[str] = []
    target = limit - 1  # one holds the slots' address
    again = [web.points for web in found.webs if web.index in ways or web.index in shared]
    if int((pressure - target - occupancy(again, len(program))).max(initial=0)) > most:
        raise _HopelessError(
            f"{options.registers} registers can't be reached (more slots needed than the {most}"
            " that fit)",
            code="slots_do_not_fit",
            hint=f"the kernel needs {int(pressure.max(initial=0))} live values at its peak",
            kernel=kernel.name,
        )
    search = origin.search
    for values in origin.values(options):
        shortage = Shortage(len(program), limit)
        for _ in range(_ROUNDS):
            crowd = pressure + shortage.lost
            gaps = search.find(values, crowd > target, options.exposed_cost)
            chosen = None
            if not out_of_reach(values, gaps, crowd, target, most):
                chosen = choose_gaps(values, gaps, crowd, target, 4 * most)
                chosen = None if chosen is None else settled(live, chosen)
            slots = None if chosen is None else _slots(program, live, chosen)
            if slots is not None and slots[1] > most:
                chosen = choose_gaps(values, gaps, crowd, target, most)
                chosen = None if chosen is None else settled(live, chosen)
                slots = None if chosen is None else _slots(program, live, chosen)
            if chosen is None and shortage.lost.any() and not shortage.is_even:
                shortage.give_up_evenly()
                continue
            if chosen is None:
                idle = not out_of_reach(values, gaps, crowd, target, 2 * len(values))
                tried.append(
                    f"more slots needed than the {most} that fit"
                    if idle
                    else "no idle live ranges left"
                )
                break
            evicted = sum(
                (c.away * c.value.words for c in chosen), start=np.zeros(len(program), np.int32)
            )
            free = target - crowd + evicted
            room = shortage.room(free)
            assert slots is not None
            registers = _uniform_registers(program, chosen)
            edit = folding(
                program,
                folds,
                [(c.value.webs, c.value.folded) for c in chosen],
                {web: numbers[0] for web, numbers in registers.items()},
            )
            spilled = _spill(
                kernel, program, live, found, chosen, slots, room, options, registers, edit
            )
            if spilled.slots > most:
                tried.append(f"{spilled.slots} slots needed, {most} fit")
                if not shortage.lost.any() or shortage.is_even:
                    break
                shortage.give_up_evenly()
                continue
            spilled.edited = edited = origin.known(spilled.edited)
            new_webs = _webs_of(edited.program)
            colouring = shortage.fit(edited, new_webs, free, room)
            if colouring is not None:
                colouring = _polished(edited.program, new_webs, colouring)
                return finish(kernel, spilled, new_webs, colouring, "live-range")
            tried.append("tuples did not fit")
    raise UnsupportedError(
        f"{options.registers} registers can't be reached ({tried[-1]})",
        code="target_out_of_reach" if "slots" not in tried[-1] else "slots_do_not_fit",
        hint=f"the kernel needs {int(pressure.max(initial=0))} live values at its peak",
        kernel=kernel.name,
    )


@dataclass(frozen=True)
class _Item:
    """A value to move: its accesses, web, first slot (-1: none), the instruction to repeat instead
    of loading, where it may be away, and the uniform registers it goes to."""

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


def _slots(
    program: Program, live: Liveness, chosen: Sequence[Choice]
) -> tuple[dict[int, int], int]:
    """Slots by web, and their number: no more than are needed, since slots are taken from L1."""
    loose = share_slots(chosen)
    if not loose[1]:
        return loose
    tight = share_slots(chosen, lambda choice: slot_points(program, live, choice))
    return min(tight, loose, key=lambda found: found[1])


def _uniform_registers(program: Program, chosen: Sequence[Choice]) -> dict[int, tuple[int, ...]]:
    """Uniform registers for the values that go to some, by their first web."""
    values = [c.value for c in chosen if c.value.definition is None and c.value.uniform]
    numbers = aligned_first(free_uniform_registers(program), [value.words for value in values])
    return {value.webs[0].index: each for value, each in zip(values, numbers, strict=True)}


def _spill(
    kernel: Kernel,
    program: Program,
    live: Liveness,
    found: Webs,
    chosen: Sequence[Choice],
    shared: tuple[dict[int, int], int],
    room: list[int] | None,
    options: DemoteOptions,
    uniform: dict[int, tuple[int, ...]],
    folded: Folding,
) -> Spilled:
    slot_of, slots = shared
    items = [
        _Item(
            choice.value.access(),
            choice.value.webs[0].index,
            slot_of.get(choice.value.webs[0].index, -1),
            choice.value.definition,
            choice.away,
            uniform.get(choice.value.webs[0].index, ()),
            replace(choice.value, folded=frozenset()).access()
            if choice.value.webs[0].index in folded.by_register
            else None,
            moved_by(program, choice.value.webs)
            if options.fold and choice.value.webs[0].index in uniform
            else (),
            choice.value.webs,
        )
        for choice in chosen
    ]
    return _insert(
        kernel,
        program,
        live,
        items,
        slots,
        room,
        options,
        folded=folded,
        found=found if options.fold else None,
    )


def _heat(program: Program, items: Sequence[_Item], slots: int) -> list[float]:
    """Loop-weighted accesses of each slot: about what its values' uses and definitions cost."""
    weights = block_weights(program)
    heat = [0.0] * slots
    for item in items:
        if item.slot < 0:
            continue
        each = (*item.access.reads, *item.access.writes)
        heat[item.slot] += sum(weights[int(program.block_of[i])] for i in each)
    return heat


def _insert(
    kernel: Kernel,
    program: Program,
    live: Liveness,
    items: Sequence[_Item],
    slots: int,
    room: list[int] | None,
    options: DemoteOptions,
    idle: list[int] | None = None,
    folded: Folding | None = None,
    found: Webs | None = None,
) -> Spilled:
    """Inserts the loads and stores of all values.

    `room`: registers free at each instruction, for loads to stand earlier and stores later; None:
    they don't. `folded`: uses that name their operands themselves. `found`: all webs;
    definitions that nobody reads any more go.
    """
    folded = folded or Folding()
    before: dict[int, list[Word]] = {}
    after: dict[int, list[Word]] = {}
    where: SlotLayout | None = None
    address, *scratch = _free_registers(live)
    depth = loop_depth(program)
    wide = any(item.access.words > 1 and item.slot >= 0 for item in items)
    most_shared = options.most_slots if options.local_slots else slots + slots % 2
    at = homes(_heat(program, items, slots), most_shared, wide=wide)
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
    placed = [(item, _placed(program, live, item)) for item in items]
    if options.order != "live-range" and ELIMINATE not in options.paper_passes:
        for item, placement in placed:
            unreduced(program, live, item.access, item.away, placement)
    if idle is not None:
        for item, placement in placed:
            spread(program, item.access, placement, idle)
    if room is not None:
        for item, placement in placed:
            if not item.constants:
                sink(program, live, item.whole or item.access, placement, item.away, room)
        for item, placement in placed:
            hoist(program, item.access, placement, room)
    for item, placement in placed:
        value = item.access
        if not value.reads and not (item.uniform and placement.stores):
            continue
        if item.definition is not None:
            copy = copy_of(program, item.definition)
            loads, stores = insertions(program, placement, copy, None, before, after)
        elif item.uniform:
            loads, stores = _by_uniform(program, item, placement, before, after)
        else:

            def store(guard: encode.Guard, slot: int = item.slot, access: Access = value) -> Word:
                return store_to(at, slot, access.register, address, where, access.words, guard)

            load = load_from(at, item.slot, value.register, address, where, value.words)
            loads, stores = insertions(program, placement, load, store, before, after)
        deepest = max((depth[int(program.block_of[i])] for i in placement.loads), default=0)
        entry = Demoted(
            value.register, item.web, item.slot, loads, stores, deepest, value.words, value.early
        )
        if item.definition is not None:
            result.rematerialised.append(entry)
        else:
            (result.uniform if item.uniform else result.demoted).append(entry)
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


def _by_uniform(
    program: Program,
    item: _Item,
    placement: Placement,
    before: dict[int, list[Word]],
    after: dict[int, list[Word]],
) -> tuple[int, int]:
    """Inserts what puts a value into its uniform registers and takes it from there."""
    register = item.access.register
    loads = stores = 0
    for k, ur in enumerate(item.uniform):

        def keep(guard: encode.Guard, k: int = k, ur: int = ur) -> Word:
            assert guard == encode.ALWAYS
            if not item.constants:
                return encode.to_uniform(ur, register + k)
            source = item.constants[k]
            if source.kind == "immediate":
                return encode.umov(ur, source.value)
            return encode.uldc(ur, source.value >> 16, source.value & 0xFFFF)

        copy = encode.from_uniform(register + k, ur)
        some = insertions(program, placement, copy, keep, before, after)
        loads, stores = loads + some[0], stores + some[1]
    return loads, stores


def _served(placed: Sequence[tuple[_Item, Placement]]) -> dict[int, set[int]]:
    """Of each web that can do without its definition: the uses that do."""
    return {
        web.index: (set(web.reads) - item.access.reads) | placement.loads
        for item, placement in placed
        if item.definition is not None or item.constants
        for web in item.webs
    }


def _placed(program: Program, live: Liveness, item: _Item) -> Placement:
    """Loads and stores of one value. Uses that name its uniform registers need its stores, too."""
    result = place(program, live, item.access, item.away, store=item.definition is None)
    if item.constants:
        is_used = bool(result.loads) or item.whole is not None
        result.stores = {i: (i, True) for i in item.access.writes} if is_used else {}
    elif item.uniform and item.whole is not None:
        result.stores.clear()
        store_positions(program, live, item.whole, result, item.away)
    return result


def _begins_with_slots(kernel: Kernel, program: Program) -> bool:
    """Whether a kernel with slots begins with the code of `slots.prologue` in its first order."""
    first = program.code.table.forms[int(program.code.form[0])].name
    return first == "S2R" and any(n.kind == SPILL_ANNOTATION for n in kernel.annotations)


def _by_register(
    kernel: Kernel, program: Program, live: Liveness, limit: int, options: DemoteOptions
) -> Rewrite:
    order = register_order(program, live, options.order)
    used = set(used_registers(live))
    address = _free_registers(live)[0]
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
                _Item(
                    access, slot, slot, None,
                    substituted(program, access, idle) if SUBSTITUTE in passes else hot,
                )
                for slot, access in enumerate(accesses)
            ]  # fmt: skip
            moves = idle if RESCHEDULE in passes else None
            spilled = _insert(kernel, program, live, values, len(picked), None, options, moves)
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
