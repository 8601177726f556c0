"""A new order within blocks: fewer waits.

ptxas orders instructions for the registers it means to use. Where more are free, up to the count at
which residency would fall, loads can be issued earlier and their users later; where instructions
were inserted, waits can be filled. Kernels differ, so nothing is taken for better: every segment is
ordered in several ways (`listing.py`), each is timed (`timeline.py`), and the original order stays
unless another one saves `Options.least_gain` of the block, in the model.

    program → webs → order of each segment → webs in the new order → registers → words
            → stalls → waits and scoreboards → edit

Invariants: instructions are permuted within segments (`segments.py`) only, so that no address
changes; true dependences, the order of accesses to one value, and that of memory are kept
(`listing.dependences`). Registers keep their numbers where that is possible (`recolour.py`).

Not claimed: that it is faster. Nothing here is trusted: `check/` proves the result from the bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regdem.analysis.webs import Webs
from regdem.binary.edit import KernelEdit
from regdem.binary.kernel import SPILL_ANNOTATION, Kernel
from regdem.errors import UnsupportedError, UsageError
from regdem.isa.control import get_control, set_control
from regdem.isa.decode import decode
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.isa.encode import Word
from regdem.program.program import Program
from regdem.transform.colour import Colouring
from regdem.transform.demoted import RESERVED_REGISTERS, Rewrite, program_of, require_rewritable
from regdem.transform.ground import Ground, Piece, ground_of
from regdem.transform.hazards import repair
from regdem.transform.late_events import Moved
from regdem.transform.listing import (
    ordered,
)
from regdem.transform.pace import block_cycles
from regdem.transform.recolour import keep_numbers, moved_webs
from regdem.transform.rename import rename
from regdem.transform.restall import restall, reuse_flags
from regdem.transform.segments import Segment

_LARGEST = 700
"""Instructions of a segment beyond which only the cheap ways are tried."""
_SLACKS = (0, 2, 4, 8, 16)
"""Registers below the limit from which on the original order leads: one try each."""
_REACHES = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
"""Places by which results that take long are asked for earlier: one try each."""
_STEP, _MOST_LESS = 1, 6
"""Registers given up in a segment where colouring fails: at a time, and at most."""
_ROUNDS = 24
_NEVER = 1 << 60
_PER_LOOP = 10
_WORTH = 0.99
"""Other scoreboards alone are worth it where they save more than this leaves."""


@dataclass(frozen=True)
class RescheduleOptions:
    """`registers` per thread to stay within.

    `least_gain`: the share of a block's cycles that a new order must save, and `least_cycles` at
    least; `enough_cycles` are enough in any block.
    """

    registers: int
    least_gain: float = 0.03
    least_cycles: int = 3
    enough_cycles: int = 40


@dataclass(frozen=True)
class Reordered:
    """A block in another order. `cycles`: a warp's through it, in the model, before and after."""

    block: int
    loop_depth: int
    instructions: int
    moved: int
    cycles_before: int
    cycles_after: int


@dataclass(frozen=True)
class Rescheduling(Rewrite):
    """A rewrite with the blocks that stand in a new order."""

    reordered: tuple[Reordered, ...] = ()


def reschedule(kernel: Kernel, options: RescheduleOptions) -> Rescheduling:
    """A new order of `kernel`'s instructions, within `options.registers`.

    Raises `UsageError` (`nothing_to_do`) where no order is better, `UnsupportedError` where the
    kernel can't be rewritten.
    """
    return rescheduled(kernel, plan_of(kernel, options))


def plan_of(kernel: Kernel, options: RescheduleOptions, kind: type[Plan] | None = None) -> Plan:
    """What may be ordered anew in `kernel`; `kind`: a `Plan` that chooses orders another way."""
    require_rewritable(kernel)
    slots = {
        a.offset // INSTRUCTION_BYTES for a in kernel.annotations if a.kind == SPILL_ANNOTATION
    }
    return (kind or Plan)(ground_of(program_of(kernel), slots), options)


def rescheduled(kernel: Kernel, plan: Plan) -> Rescheduling:
    """`kernel` in the order that `plan` chooses; raises as `reschedule` does."""
    program, found, options = plan.timeline.program, plan.webs, plan.options
    limit = options.registers - RESERVED_REGISTERS
    before = plan.ground.written
    for _ in range(_ROUNDS):
        chosen = plan.chosen(limit)
        renewed = moved_webs(plan.timeline, found, plan.order(chosen), list(chosen))
        colouring = keep_numbers(renewed, limit, len(program))
        if colouring.failed >= 0:
            group = renewed.groups[colouring.failed]
            plan.tighten(chosen, [renewed.webs[w].points for w in group.webs])
            continue
        try:
            words, after = _best_words(plan, chosen, colouring)
        except UnsupportedError as error:
            if error.code not in ("latency", "hazards_unsettled"):
                raise
            plan.give_up(chosen, _block_at(program, error.offset))
            continue
        worse = [
            b
            for b in sorted({segment.block for segment in chosen})
            if not plan.is_worth(b, before[b], after[b])
        ]
        if not worse:
            if not chosen and plan.weighed(after) > _WORTH * plan.weighed(before):
                break
            return _finished(kernel, plan, chosen, colouring, words, before, after)
        for b in worse:
            plan.give_up(chosen, b)
    raise UsageError(
        "no other order is better", code="nothing_to_do", kernel=kernel.name,
        hint=f"within {options.registers} registers, by the model",
    )  # fmt: skip


def _block_at(program: Program, offset: int | None) -> int | None:
    """The block of a code offset; None where it isn't known."""
    if offset is None or not 0 <= offset < INSTRUCTION_BYTES * len(program):
        return None
    return int(program.block_of[offset // INSTRUCTION_BYTES])


Chosen = dict[Segment, list[int]]
"""The new order of each segment that gets one, as places of its old one."""


class Plan:
    """What is to be ordered anew, for one kernel, and what has turned out not to do."""

    def __init__(self, ground: Ground, options: RescheduleOptions) -> None:
        self.ground = ground
        self.timeline = ground.timeline
        self.webs = ground.webs
        self.options = options
        self.depth = ground.depth
        self.pieces = ground.pieces
        self._less: dict[Segment, int] = {}
        self._known: dict[tuple[int, int], Chosen] = {}

    def chosen(self, limit: int) -> Chosen:
        """The segments to be ordered anew within `limit` live values, with their orders."""
        result: Chosen = {}
        for b in self.pieces:
            known = self._known.get((b, limit))
            if known is None:
                known = self._known[b, limit] = self._of_block(b, limit)
            result.update(known)
        return result

    def order(self, chosen: Chosen) -> list[int]:
        """The instructions of the whole program in the new order."""
        result = list(range(len(self.timeline.program)))
        for segment, places in chosen.items():
            result[segment.start : segment.end] = [segment.start + k for k in places]
        return result

    def tighten(self, chosen: Chosen, points: Sequence[int]) -> None:
        """Registers run out for a group with these points: fewer for the segments it crosses."""
        held = 0
        for mine in points:
            held |= mine
        for segment in chosen:
            window = (1 << (2 * segment.end)) - (1 << (2 * segment.start))
            if held & window:
                self._less[segment] = self._less.get(segment, 0) + _STEP
                self._forget(segment.block)

    def give_up(self, chosen: Chosen, block: int | None) -> None:
        """The segments of a block stay as they are; all do where it is None or has none."""
        given_up = [segment for segment in chosen if segment.block == block] or list(chosen)
        for segment in given_up:
            self._less[segment] = _NEVER
            self._forget(segment.block)

    def _forget(self, block: int) -> None:
        self._known = {key: known for key, known in self._known.items() if key[0] != block}

    def weighed(self, cycles: Sequence[int]) -> int:
        """The cycles of all blocks, those of loops more."""
        return sum(c * _PER_LOOP**d for c, d in zip(cycles, self.depth, strict=True))

    def is_worth(self, block: int, before: int, after: int) -> bool:
        """Whether what was written is better enough, with all waits and bank conflicts."""
        gained = before - after
        return gained >= min(self.options.least_cycles, self.options.least_gain * before) / 2

    def _of_block(self, b: int, limit: int) -> Chosen:
        block = self.timeline.program.blocks[b]
        order = list(range(block.start, block.end))
        cost = self.ground.costs[b]
        result: Chosen = {}
        for piece in self.pieces[b]:
            less = self._less.get(piece.segment, 0)
            if less > _MOST_LESS:
                continue
            found = self._faster(block.start, order, piece, limit - less, cost)
            if found is not None:
                result[piece.segment], order, cost = found
        return result

    def _put(self, start: int, order: list[int], piece: Piece, places: list[int]) -> list[int]:
        """The block's order with this segment's places in another one."""
        segment = piece.segment
        low, high = segment.start - start, segment.end - start
        return [*order[:low], *(segment.start + k for k in places), *order[high:]]

    def _faster(
        self, start: int, order: list[int], piece: Piece, limit: int, cost: int
    ) -> tuple[list[int], list[int], int] | None:
        """(places, the block's order, its cost) of the fastest way, if it is worth it."""
        b = piece.segment.block
        options = self.options
        needed = min(
            max(options.least_cycles, options.least_gain * self.ground.costs[b]),
            options.enough_cycles,
        )
        if cost - self._floor(order) < needed:
            return None
        best: tuple[list[int], list[int], int] | None = None
        for places in self._tries(piece, order[: piece.segment.start - start], limit):
            new = self._put(start, order, piece, places)
            if self.timeline.clock(b, late=False).ready(new[0]) > 0:
                continue  # nothing in the block could hold it back
            there = self.ground.cost(b, new)
            if there < (cost if best is None else best[2]):
                best = (places, new, there)
        return None if best is None or cost - best[2] < needed else best

    def _floor(self, order: Sequence[int]) -> int:
        """Cycles that no order can save: issue, and the busiest pipe."""
        busy: dict[str, int] = {}
        for i in order:
            pipe, cycles = self.timeline.pipe[i]
            busy[pipe] = busy.get(pipe, 0) + cycles
        return max(len(order), *busy.values()) if order else 0

    def _tries(self, piece: Piece, prefix: Sequence[int], limit: int) -> Iterable[list[int]]:
        start = self.ground.start(piece, prefix)
        task, paths = start.task, start.paths
        limit = max(limit, piece.peak)
        seen: set[int] = set()
        large = len(task.ready) > _LARGEST
        for slack in _SLACKS[:1] if large else _SLACKS:
            soft = limit - slack
            if soft in seen:
                continue
            seen.add(soft)
            places = ordered(task, paths, limit, soft)
            if places is not None:
                yield places
        places = ordered(task, paths, limit, limit, steady=True)
        if places is not None:
            yield places
        for reach in _REACHES:
            if reach > 2 * len(task.ready):
                break
            places, peak = start.hoisted(reach)
            if peak > limit:
                break
            yield places


def _best_words(plan: Plan, chosen: Chosen, colouring: Colouring) -> tuple[list[Word], list[int]]:
    """The words, and the cycles of each block; the same orders and registers are written once."""
    orders = tuple((segment, tuple(places)) for segment, places in chosen.items())
    key = orders, colouring.register
    known = plan.ground.words.get(key)
    if known is None:
        known = plan.ground.words[key] = _written(plan, chosen, colouring)
    return known


def _written(plan: Plan, chosen: Chosen, colouring: Colouring) -> tuple[list[Word], list[int]]:
    """The words, and the cycles of each block.

    Where nothing moves, ptxas's scoreboards may do better or worse than new ones: a block keeps
    them if that is better for it, looked at alone; or all do, or none, if that is best.
    """
    program = plan.timeline.program
    late = [plan.timeline.late_cycles[i] for i in plan.order(chosen)]
    blocks = range(len(program.blocks))
    moved = {segment.block for segment in chosen}

    def written(keeping: set[int]) -> tuple[list[Word], list[int]]:
        words = _words(plan, chosen, colouring, keeping)
        return words, block_cycles(_with_words(program, words), late)

    old = written({b for b in blocks if b not in moved})
    new = written(set[int]())
    better = {b for b in blocks if b not in moved and old[1][b] <= new[1][b]}
    ways = [old, new]
    if better:
        ways.append(written(better))
    return min(ways, key=lambda way: plan.weighed(way[1]))


def _words(
    plan: Plan, chosen: Chosen, colouring: Colouring, keeping: Collection[int]
) -> list[Word]:
    """The words in their new order, with registers, stalls, waits and scoreboards.

    `keeping`: blocks that keep their scoreboards. Raises `UnsupportedError` where no control bits
    do.
    """
    found = plan.webs
    timeline = plan.timeline
    program = timeline.program
    n = len(program)
    order = plan.order(chosen)
    place = [0] * n
    for k, i in enumerate(order):
        place[i] = k
    free = [False] * n
    for segment in chosen:
        free[segment.start : segment.end] = [True] * (segment.end - segment.start)
    words = rename(program, found, colouring.register, list(range(n)))
    stalls = restall(timeline, order, free)
    changed = {segment.block for segment in chosen}
    flags = reuse_flags(timeline, order, changed)
    block_of: list[int] = program.block_of.tolist()
    placed: list[Word] = []
    for k, i in enumerate(order):
        lo, hi = words[i]
        control = get_control(hi)
        if block_of[i] in changed:
            stall = stalls[k]
            calm = control.yield_bit if stall == control.stall else int(stall <= 2)
            calm = max(calm, int(flags[k] > 0))
            hi = set_control(hi, replace(control, stall=stall, reuse=flags[k], yield_bit=calm))
        placed.append((lo, hi))
    watched = 0
    for web in found.webs:
        new = colouring.register[web.index]
        if new != web.register or any(free[i] for i in web.writes):
            watched |= 1 << new
    keeps = [not free[i] and block_of[i] in keeping for i in order]
    moved = Moved(program, place, [free[i] for i in order], keeps, watched)
    return repair(_with_words(program, placed), [False] * n, moved)


def _finished(
    kernel: Kernel,
    plan: Plan,
    chosen: Chosen,
    colouring: Colouring,
    words: Sequence[Word],
    before: Sequence[int],
    after: Sequence[int],
) -> Rescheduling:
    """The edit for the file, and what was done."""
    program, found = plan.timeline.program, plan.webs
    n = len(program)
    order = plan.order(chosen)
    index = np.zeros(n + 1, dtype=np.int64)
    index[np.array(order)] = np.arange(n)
    index[n] = n
    highest = max(
        colouring.register[w.index] for w in found.webs if w.points or w.reads or w.writes
    )
    registers = highest + 1 + RESERVED_REGISTERS
    edit = KernelEdit(
        code=b"".join(lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in words),
        offset_map=index * INSTRUCTION_BYTES,
        target_map=np.arange(n + 1, dtype=np.int64) * INSTRUCTION_BYTES,
        registers_per_thread=registers,
        register_map=_register_map(found, colouring),
    )
    reordered: list[Reordered] = []
    for b in sorted({segment.block for segment in chosen}):
        block = program.blocks[b]
        moved = sum(order[k] != k for k in range(block.start, block.end))
        reordered.append(
            Reordered(b, plan.depth[b], block.end - block.start, moved, before[b], after[b])
        )
    return Rescheduling(
        edit=edit,
        registers_per_thread=registers,
        shared_bytes=kernel.static_shared_bytes,
        slots=0,
        demoted=(),
        rematerialised=(),
        inserted_instructions=0,
        method="reschedule",
        reordered=tuple(reordered),
        reordered_blocks=len(reordered),
    )


def _with_words(program: Program, words: Sequence[Word]) -> Program:
    data = b"".join(lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in words)
    return replace(program, code=decode(data, program.code.table.arch))


def _register_map(found: Webs, colouring: Colouring) -> dict[int, int]:
    """Old to new register numbers, for those whose webs all got one number."""
    new: dict[int, set[int]] = {}
    for web in found.webs:
        new.setdefault(web.register, set()).add(colouring.register[web.index])
    return {r: next(iter(s)) for r, s in new.items() if len(s) == 1}


__all__ = [
    "Chosen", "Piece", "Plan", "Reordered", "RescheduleOptions", "Rescheduling", "plan_of",
    "reschedule", "rescheduled",
]  # fmt: skip
