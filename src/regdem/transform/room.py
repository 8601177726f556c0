"""Room for a register: demotes idle live ranges of a program whose slot address is at hand.

Promotion of part of a frame needs a register for the slots' address where ptxas, held to a cap,
left none. This pass frees registers the way `transform/by_live_range.py` does (choice of idle live
ranges, one load and one store around what crosses the crowded instructions, values that can be
computed again first), into slots that were set aside behind the promoted words, through the same
address register.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import Webs, allocation_pressure, webs
from regdem.isa import encode
from regdem.program.edit import Edited, Word, apply
from regdem.program.loops import loop_depth
from regdem.program.program import Program
from regdem.transform.candidates import Candidate, access_of, choose_webs, web_candidates
from regdem.transform.colour import Colouring, colour
from regdem.transform.crowding import shortfall
from regdem.transform.demoted import Demoted
from regdem.transform.recompute import copy_of, recomputable
from regdem.transform.slots import SlotLayout
from regdem.transform.spill import insertions, place

_SLACK = (0, 1, 2, 4, 6)
"""Registers below the limit to aim at, since tuples leave holes."""
_MOST_VALUES = 256


@dataclass(frozen=True)
class Room:
    """A program that fits: the edit, its webs with a colouring, and what was moved for it."""

    edited: Edited
    webs: Webs
    colouring: Colouring
    demoted: tuple[Demoted, ...]
    rematerialised: tuple[Demoted, ...]


def make_room(
    program: Program, address: int, limit: int, where: SlotLayout, first_slot: int
) -> Room | int:
    """Demotes live ranges until registers 0 to `limit` - 1 are enough.

    Where they can't be: the slots that are needed for that, or -1 where no number of slots helps.

    `address` holds the slots' address everywhere but in the entry's first instructions; slots from
    `first_slot` to the end of `where` are free.
    """
    live = liveness(program)
    found = webs(program, live)
    pressure = allocation_pressure(program, live)
    if int(pressure[0]) > limit:
        return -1
    ways = recomputable(program, found)
    free_slots = where.slots - first_slot
    needed = -1
    for slack in _SLACK:
        target = limit - slack
        hot = (pressure > target).tolist()
        candidates = [
            c for c in web_candidates(program, live, found, ways, hot) if c.web.register != address
        ]
        chosen = choose_webs(candidates, pressure, target, _MOST_VALUES, ways)
        if chosen is None:
            return needed
        slot_of = _share_slots(chosen, ways, first_slot)
        needed = max(slot_of.values(), default=first_slot - 1) + 1 - first_slot
        if needed > free_slots:
            return needed
        edited, demoted, again = _insert(program, address, chosen, ways, slot_of, where, hot)
        new_webs = webs(edited.program, liveness(edited.program))
        if shortfall(new_webs, limit, len(edited.program)).any():
            continue
        colouring = colour(new_webs, limit)
        if colouring.failed < 0:
            return Room(edited, new_webs, colouring, tuple(demoted), tuple(again))
    return needed + 2


def _share_slots(
    chosen: Sequence[Candidate], ways: dict[int, int], first_slot: int
) -> dict[int, int]:
    """Slots by web; live ranges that never overlap share one."""
    taken: list[int] = []
    slot_of: dict[int, int] = {}
    stored = [c.web for c in chosen if c.web.index not in ways]
    for web in sorted(stored, key=lambda w: (w.points & -w.points, w.index)):
        slot = next((k for k, points in enumerate(taken) if not points & web.points), len(taken))
        if slot == len(taken):
            taken.append(0)
        taken[slot] |= web.points
        slot_of[web.index] = first_slot + slot
    return slot_of


def _insert(
    program: Program,
    address: int,
    chosen: Sequence[Candidate],
    ways: dict[int, int],
    slot_of: dict[int, int],
    where: SlotLayout,
    hot: list[bool],
) -> tuple[Edited, list[Demoted], list[Demoted]]:
    live = liveness(program)
    depth = loop_depth(program)
    before: dict[int, list[Word]] = {}
    after: dict[int, list[Word]] = {}
    demoted: list[Demoted] = []
    again: list[Demoted] = []
    for candidate in chosen:
        web = candidate.web
        value = access_of(web, early=candidate.early)
        definition = ways.get(web.index)
        placement = place(program, live, value, hot, store=definition is None)
        slot = slot_of.get(web.index, -1)
        if definition is not None:
            copy = copy_of(program, definition)
            loads, stores = insertions(program, placement, copy, None, before, after)
        else:
            offset = where.offset(slot)

            def store(
                guard: encode.Guard, offset: int = offset, register: int = web.register
            ) -> Word:
                return encode.sts(address, offset, register, guard=guard)

            load = encode.lds(web.register, address, offset)
            loads, stores = insertions(program, placement, load, store, before, after)
        deepest = max((depth[int(program.block_of[i])] for i in placement.loads), default=0)
        entry = Demoted(web.register, web.index, slot, loads, stores, deepest)
        (demoted if definition is None else again).append(entry)
    return apply(program, before=before, after=after), demoted, again
