"""Demotion by live range: idle stretches of values leave, and everything is coloured anew.

The default granularity. Which values leave, and where, is chosen by counting live values; whether
tuples then find aligned registers is known only after colouring.

    choice of gaps → slots → loads and stores → webs again → colouring
          ↑                                                      │ no
          └──────────── where registers were short ──────────────┘

Method: rounds of choice and colouring, each with what the last one showed (`shortage.py`). Choice
and colouring are greedy, so that neither more ways nor better costs lead to better code in every
case: in programs that are not too long it is done with and without uniform registers, folding and
the cost of latency, and the fastest by estimate is taken.

Invariants: what comes back has at most the registers and slots asked for. Not claimed: that no
other choice would be faster, or would reach a target that is refused as out of reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.liveness import Liveness
from regdem.errors import UnsupportedError
from regdem.program.program import Program
from regdem.transform.crowding import occupancy
from regdem.transform.demoted import DemoteOptions, Rewrite, Spilled
from regdem.transform.finish import finish
from regdem.transform.fold import Folding, folding, moved_by
from regdem.transform.gap_choice import Choice, choose_gaps, out_of_reach, settled
from regdem.transform.gaps import Gap
from regdem.transform.insertion import MovedValue, insert
from regdem.transform.original import Original, polished, webs_of
from regdem.transform.overflow import may_grow_frame
from regdem.transform.shortage import Shortage
from regdem.transform.slot_sharing import share_slots, slot_points
from regdem.transform.uniform import aligned_first, free_uniform_registers
from regdem.transform.values import Value

_SharedSlots = tuple[dict[int, int], int]
"""First slots by web, and their number (`slot_sharing.share_slots`)."""
_LONGEST_TWICE = 3000
"""Instructions up to which a choice is made without uniform registers and with folding, too."""
_LONGEST_THRICE = 1500
"""Instructions up to which one is also made without the cost of latency."""
_CLEARLY = 0.99
"""Where uniform registers save slots, they are left out only if that is so much faster: what slots
take from L1 is not counted."""
_ROUNDS = 20
"""Times that a choice is made again with what colouring showed."""


class _HopelessError(UnsupportedError):
    """So many more values are live than registers and slots that no choice can help."""


def by_live_range(original: Original, limit: int, options: DemoteOptions) -> Rewrite:
    """The one of several rewrites that is estimated to run fastest, with and without folding.

    `limit`: registers that may be used. Raises `UnsupportedError` where none of them fits, with the
    reason of the last try.
    """
    may_fold = bool(original.folds(options))
    try:
        best, way = _cheapest(original, limit, replace(options, fold=False))
    except UnsupportedError:
        if not may_fold:
            raise
        return _cheapest(original, limit, options)[0]
    if not may_fold or original.instructions > _LONGEST_TWICE:
        return best
    costs = [way.exposed_cost]
    if original.instructions <= _LONGEST_THRICE:
        costs.append(0.0 if way.exposed_cost else options.exposed_cost)
    for cost in costs:
        with suppress(UnsupportedError):
            way = replace(options, exposed_cost=cost)
            folded = _in_one_way(original, limit, way)
            most = best.cycles * (_CLEARLY if folded.slots > best.slots else 1.0)
            if folded.folded and folded.cycles <= most:
                best = folded
    return best


def _cheapest(
    original: Original, limit: int, options: DemoteOptions
) -> tuple[Rewrite, DemoteOptions]:
    """The fastest by estimate of some ways, and the way.

    Choice and colouring are greedy, so that neither more ways nor better costs lead to a better
    result in every case: with and without uniform registers, with and without a cost of latency.
    """
    try:
        done = [_in_one_way(original, limit, options)]
    except _HopelessError:
        raise
    except UnsupportedError:
        plain = replace(options, uniform=False, exposed_cost=0.0)
        return _in_one_way(original, limit, plain), plain
    ways = [options]
    if original.instructions <= _LONGEST_THRICE:
        way = replace(options, exposed_cost=0.0)
        with suppress(UnsupportedError):
            done.append(_in_one_way(original, limit, way))
            ways.append(way)
    best = min(done, key=lambda rewrite: rewrite.cycles)
    way = ways[done.index(best)]
    if best.uniform and original.instructions <= _LONGEST_TWICE:
        plain = replace(way, uniform=False)
        with suppress(UnsupportedError):
            other = _in_one_way(original, limit, plain)
            if _better(best, other) is other:
                return other, plain
    return best, way


def _better(first: Rewrite, second: Rewrite) -> Rewrite:
    """The faster of two rewrites by estimate; the one with more slots only if clearly faster."""
    first_weight = _CLEARLY if first.slots < second.slots else 1.0
    second_weight = _CLEARLY if second.slots < first.slots else 1.0
    return second if second_weight * second.cycles < first_weight * first.cycles else first


def _in_one_way(original: Original, limit: int, options: DemoteOptions) -> Rewrite:
    """Rounds of choice and colouring with these options, until the registers are enough."""
    kernel, program, found = original.kernel, original.program, original.found
    shared, folds, ways = original.shared(options), original.folds(options), original.ways(options)
    pressure = original.pressure
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
    search = original.search
    for values in original.values(options):
        shortage = Shortage(len(program), limit)
        for _ in range(_ROUNDS):
            crowd = pressure + shortage.lost
            gaps = search.find(values, crowd > target, options.exposed_cost)
            choice = _choice(original, values, gaps, crowd, target, most)
            if choice is None:
                if shortage.lost.any() and not shortage.is_even:
                    shortage.give_up_evenly()
                    continue
                idle = not out_of_reach(values, gaps, crowd, target, 2 * len(values))
                tried.append(
                    f"more slots needed than the {most} that fit"
                    if idle
                    else "no idle live ranges left"
                )
                break
            chosen, slots = choice
            evicted = sum(
                (c.away * c.value.words for c in chosen), start=np.zeros(len(program), np.int32)
            )
            free = target - crowd + evicted
            room = shortage.room(free)
            registers = _uniform_registers(program, chosen)
            edit = folding(
                program,
                folds,
                [(c.value.webs, c.value.folded) for c in chosen],
                {web: numbers[0] for web, numbers in registers.items()},
            )
            spilled = _spill(original, chosen, slots, room, options, registers, edit)
            if spilled.slots > most:
                tried.append(f"{spilled.slots} slots needed, {most} fit")
                if not shortage.lost.any() or shortage.is_even:
                    break
                shortage.give_up_evenly()
                continue
            spilled.edited = edited = original.known(spilled.edited)
            new_webs = webs_of(edited.program)
            colouring = shortage.fit(edited, new_webs, free, room)
            if colouring is not None:
                colouring = polished(edited.program, new_webs, colouring)
                return finish(kernel, spilled, new_webs, colouring, "live-range")
            tried.append("tuples did not fit")
    raise UnsupportedError(
        f"{options.registers} registers can't be reached ({tried[-1]})",
        code="target_out_of_reach" if "slots" not in tried[-1] else "slots_do_not_fit",
        hint=f"the kernel needs {int(pressure.max(initial=0))} live values at its peak",
        kernel=kernel.name,
    )


def _choice(
    original: Original,
    values: Sequence[Value],
    gaps: Sequence[Gap],
    crowd: NDArray[np.int32],
    target: int,
    most: int,
) -> tuple[list[Choice], _SharedSlots] | None:
    """What leaves, and its slots; None where no choice does.

    Slots are shared, so more values than slots may be chosen at first.
    """
    if out_of_reach(values, gaps, crowd, target, most):
        return None
    result: tuple[list[Choice], _SharedSlots] | None = None
    for words in (4 * most, most):
        chosen = choose_gaps(values, gaps, crowd, target, words)
        if chosen is None:
            return None
        chosen = settled(original.live, chosen)
        result = chosen, _slots(original.program, original.live, chosen)
        if result[1][1] <= most:
            break
    return result


def _slots(program: Program, live: Liveness, chosen: Sequence[Choice]) -> _SharedSlots:
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
    original: Original,
    chosen: Sequence[Choice],
    shared: _SharedSlots,
    room: list[int] | None,
    options: DemoteOptions,
    uniform: dict[int, tuple[int, ...]],
    folded: Folding,
) -> Spilled:
    """The program with the loads and stores of what is chosen."""
    slot_of, slots = shared
    values: list[MovedValue] = []
    for choice in chosen:
        value = choice.value
        web = value.webs[0].index
        whole = replace(value, folded=frozenset()).access() if web in folded.by_register else None
        constants = (
            moved_by(original.program, value.webs) if options.fold and web in uniform else ()
        )
        values.append(
            MovedValue(
                value.access(), web, slot_of.get(web, -1), value.definition, choice.away,
                uniform.get(web, ()), whole, constants, value.webs,
            )
        )  # fmt: skip
    return insert(
        original.kernel,
        original.program,
        original.live,
        values,
        slots,
        options,
        room=room,
        folded=folded,
        found=original.found if options.fold else None,
    )
