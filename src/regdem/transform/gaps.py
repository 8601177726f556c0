"""Which values leave their registers, and through which of their idle stretches.

The unit is not the live range but the *gap*: a connected stretch of the flow graph in which a live
value is not accessed (the next-use distance of Belady, and of Braun and Hack's spilling, on a whole
function). Giving up a gap costs one load at each use it leads to, and one store per definition for
the first gap of a value; it frees the register in the whole gap. So a value that is busy in one
loop and idle through the next one gives up only the second, and short gaps, whose load would stand
right behind the store or the use before, lose against long ones.

Method:

1. Values are single live ranges, or both halves of a 64-bit value that are always accessed
   together: these move by one 64-bit access.
2. Greedy choice: the gap that relieves most over-full instructions per loop-weighted access, until
   no instruction has more live values than allowed (the ratio of Chaitin's spill metric). Scores
   fall as others are taken, so that a heap of bounds finds the best; a value's other gaps get
   cheaper when its stores are paid for, and are scored again.
3. What later choices made superfluous is taken back, dearest first.

A load under way (the result of a global load that the original code has not waited for) can't be
stored without waiting for it, which costs the overlap of all loads behind it. Such `early` stores
are a second choice of the caller: candidates with and without are made separately.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.bits import FILE_MASK
from regdem.analysis.liveness import Liveness
from regdem.analysis.webs import STACK_POINTER, Web, Webs
from regdem.isa.control import SCOREBOARDS
from regdem.isa.decoded import RegisterFile
from regdem.program.loops import block_weights
from regdem.program.program import Program
from regdem.transform.candidates import (
    EARLY_COST,
    LOAD_COST,
    RECOMPUTE_COST,
    STORE_COST,
    occupied_instructions,
)
from regdem.transform.fold import Folds
from regdem.transform.hazards import LATENCY_CYCLES
from regdem.transform.recompute import words_of
from regdem.transform.spill import LOAD_CYCLES, Access, Placement, keeps_old, place, store_positions

_NO_GUARD = 7
_SHORT_CYCLES = 40
"""A gap shorter than this hardly covers a store and a load behind it."""
_SHORT_COST = 2.0
EXPOSED_COST = 1.0
"""A load whose latency nothing covers costs so much more."""
_LONG_CYCLES = 100


@dataclass(frozen=True)
class Value:
    """What moves as one: a web, or the webs of both halves of a 64-bit value.

    `definition`: the instruction to repeat instead of loading, or None. `uniform`: without one, it
    goes to uniform registers instead of a slot. `early`: see `transform/spill.py`. `folded`: uses
    that need no register once it leaves (`transform/fold.py`).
    """

    webs: tuple[Web, ...]
    occupied: NDArray[np.bool_]
    definition: int | None
    early: bool = False
    uniform: bool = False
    folded: frozenset[int] = frozenset()

    @property
    def words(self) -> int:
        """Registers it takes."""
        return len(self.webs)

    @property
    def takes_slot(self) -> bool:
        """Whether leaving needs shared memory."""
        return self.definition is None and not self.uniform

    @property
    def points(self) -> int:
        """Where it is live, as `Web.points`."""
        result = 0
        for web in self.webs:
            result |= web.points
        return result

    def access(self) -> Access:
        """The accesses as the placement takes them."""
        first = self.webs[0]
        return Access(
            first.register,
            frozenset(first.reads) - self.folded,
            frozenset(first.writes),
            frozenset(self.occupied.nonzero()[0].tolist()),
            words=self.words,
            early=self.early,
        )


@dataclass(frozen=True)
class Gap:
    """One idle stretch of a value: instructions at which it may leave, cost of its loads."""

    value: int
    places: NDArray[np.intp]
    load_cost: float
    store_cost: float


@dataclass(frozen=True)
class Choice:
    """A value that leaves its register, and at which instructions (n,)."""

    value: Value
    away: NDArray[np.bool_]


def values_of(
    program: Program,
    webs: Webs,
    recomputable: dict[int, int],
    *,
    pairs: bool = True,
    uniform: Collection[int] = (),
    folds: Folds | None = None,
) -> list[Value]:
    """The values that may leave: webs, joined to pairs where both halves go together.

    `uniform`: the webs that may go to uniform registers. `folds`: operands that need no
    register then.
    """
    folds = folds or Folds()
    n = len(program)
    pair_of = _pairs(webs) if pairs else {}
    result: list[Value] = []
    done: set[int] = set()
    for web in webs.webs:
        if web.index in done or web.whole or web.register == STACK_POINTER or not web.reads:
            continue
        partner = pair_of.get(web.index)
        occupied = occupied_instructions(web, n)
        low = recomputable.get(web.index)
        if partner is None:
            alone = low is not None and words_of(program, low) == 1
            shared = web.index in uniform
            again = low if alone else None
            named = _named(folds, (web,), again, uniform=shared)
            result.append(Value((web,), occupied, again, uniform=shared, folded=named))
            continue
        done.add(partner.index)
        both = occupied | occupied_instructions(partner, n)
        together = low is not None and low == recomputable.get(partner.index)
        shared = web.index in uniform and partner.index in uniform
        again = low if together else None
        named = _named(folds, (web, partner), again, uniform=shared)
        result.append(Value((web, partner), both, again, uniform=shared, folded=named))
    return result


def _named(
    folds: Folds, parts: tuple[Web, ...], again: int | None, *, uniform: bool
) -> frozenset[int]:
    """Uses that name a value themselves once it has left; none where it goes to a slot."""
    if again is None and not uniform:
        return frozenset()
    return folds.uses_of(parts, uniform=uniform and again is None)


def _pairs(webs: Webs) -> dict[int, Web]:
    """Both halves of 64-bit values: web of the even register -> web of the odd one."""
    result: dict[int, Web] = {}
    taken: set[int] = set()
    for group in webs.groups:
        if group.alignment < 2:
            continue
        by_register: dict[int, list[Web]] = {}
        for index in group.webs:
            by_register.setdefault(webs.webs[index].register, []).append(webs.webs[index])
        for register, lows in by_register.items():
            if register % 2:
                continue
            for low in lows:
                for high in by_register.get(register + 1, ()):
                    if (
                        not (low.whole or high.whole or high.index in taken)
                        and low.reads
                        and set(low.reads) == set(high.reads)
                        and set(low.writes) == set(high.writes)
                    ):
                        result[low.index] = high
                        taken.update((low.index, high.index))
                        break
    return result


class _Flow:
    """Block borders of a program, for the search for gaps."""

    def __init__(self, program: Program, hot: NDArray[np.bool_], exposed_cost: float) -> None:
        self.program = program
        self.n = len(program)
        self.hot = hot
        weights = block_weights(program)
        self.weight = [weights[int(b)] for b in program.block_of]
        self.starts = np.zeros(self.n + 1, dtype=np.bool_)
        for block in program.blocks:
            self.starts[block.start] = True
        self.starts[self.n] = True
        self.clock = np.concatenate(
            ([0], np.cumsum(np.maximum(1, program.code.stall.astype(np.int64))))
        )
        self.late_cost = [exposed_cost * part for part in self._exposed()]

    def _exposed(self) -> list[float]:
        """(n,) which part of a load's latency is waited for at a use, from 0 to 1.

        A load moves up over instructions that are not full. Nothing is waited for where the use
        waits for memory anyway.
        """
        code, clock = self.program.code, self.clock.tolist()
        full: list[bool] = self.hot.tolist()
        forms = [code.table.forms[f] for f in code.form_indices]
        result = [0.0] * self.n
        for block in self.program.blocks:
            long_boards = 0
            for i in range(block.start, block.end):
                waits = int(code.wait_mask[i])
                covered = bool(waits & long_boards)
                long_boards &= ~waits
                board = int(code.write_scoreboard[i])
                if board < SCOREBOARDS:
                    is_long = LATENCY_CYCLES.get(forms[i].latency, 0) >= _LONG_CYCLES
                    long_boards = long_boards & ~(1 << board) | is_long << board
                if covered:
                    continue
                at = i
                while at > block.start and clock[i] - clock[at] < LOAD_CYCLES and not full[at - 1]:
                    at -= 1
                result[i] = max(0.0, 1.0 - (clock[i] - clock[at]) / LOAD_CYCLES)
        return result

    def runs(self, idle: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """Maximal idle stretches within blocks, as half-open ranges."""
        previous = np.concatenate(([False], idle[:-1]))
        begins = (idle & (~previous | self.starts[:-1])).nonzero()[0].tolist()
        following = np.concatenate((idle[1:], [False]))
        ends = (idle & (~following | self.starts[1:])).nonzero()[0].tolist()
        return [(a, b + 1) for a, b in zip(begins, ends, strict=True)]


def gaps_of(
    program: Program,
    live: Liveness,
    values: Sequence[Value],
    hot: NDArray[np.bool_],
    exposed_cost: float = EXPOSED_COST,
) -> list[Gap]:
    """All gaps that cross an instruction of `hot`, with their costs.

    `exposed_cost`: what a load costs more if nothing covers its latency.
    """
    flow = _Flow(program, hot, exposed_cost)
    hot_list: list[bool] = hot.tolist()
    result: list[Gap] = []
    for k, value in enumerate(values):
        if (value.occupied & hot).any():
            result.extend(_gaps_of_value(flow, live, k, value, hot_list))
    return result


def _gaps_of_value(
    flow: _Flow, live: Liveness, number: int, value: Value, hot: list[bool]
) -> list[Gap]:
    program = flow.program
    access = value.access()
    guarded = keeps_old(program, live, access)
    idle = value.occupied.copy()
    for i in (*access.reads, *access.writes):
        idle[i] = False
    store_cost = 0.0
    if value.definition is None:
        per_store = STORE_COST + (EARLY_COST if value.early else 0.0)
        store_cost = per_store * sum(flow.weight[i] for i in access.writes)
        for i, until in store_positions(program, live, access, Placement(), hot).items():
            idle[i:until] = False
    runs = flow.runs(idle)
    root = list(range(len(runs)))

    def find(x: int) -> int:
        while root[x] != x:
            root[x] = root[root[x]]
            x = root[x]
        return x

    run_at = {a: k for k, (a, _) in enumerate(runs)}
    uses: list[set[int]] = [set() for _ in runs]
    touching = access.reads | guarded
    for k, (_, end) in enumerate(runs):
        block = program.blocks[int(program.block_of[end - 1])]
        nexts = (end,) if end < block.end else tuple(
            program.blocks[s].start for s in block.successors
        )  # fmt: skip
        for start in nexts:
            other = run_at.get(start)
            if other is not None:
                root[find(other)] = find(k)
            elif start in touching:
                uses[k].add(start)
    members: dict[int, list[int]] = {}
    for k in range(len(runs)):
        members.setdefault(find(k), []).append(k)
    per_load = LOAD_COST if value.takes_slot else RECOMPUTE_COST
    found: list[Gap] = []
    for ks in members.values():
        places = np.concatenate([np.arange(*runs[k]) for k in ks])
        places = places[flow.hot[places]]
        if not len(places):
            continue
        all_uses = set[int]().union(*(uses[k] for k in ks))
        cost = per_load * sum(flow.weight[u] for u in all_uses)
        if value.takes_slot:
            cost += sum(flow.weight[u] * flow.late_cost[u] for u in all_uses)
        if value.definition is None and len(ks) == 1:
            a, b = runs[ks[0]]
            within = int(program.block_of[a]) == int(program.block_of[min(b, flow.n - 1)])
            if within and flow.clock[b] - flow.clock[a] < _SHORT_CYCLES:
                cost += _SHORT_COST * flow.weight[a]
        found.append(Gap(number, places, cost, store_cost))
    return found


def out_of_reach(
    values: Sequence[Value],
    gaps: Sequence[Gap],
    pressure: NDArray[np.int32],
    target: int,
    most_slots: int,
) -> bool:
    """Whether no choice can do: too few values are idle at some instruction, or fewer words fit.

    Values that leave at one instruction are live together, so each needs slots of its own, unless
    it can be computed again.
    """
    excess = np.maximum(pressure.astype(np.int32) - target, 0)
    if not excess.any():
        return False
    idle: dict[int, list[NDArray[np.intp]]] = {}
    words: dict[int, int] = {}
    again: set[int] = set()
    for gap in gaps:
        value = values[gap.value]
        first = value.webs[0].index
        idle.setdefault(first, []).append(gap.places)
        words[first] = value.words
        if not value.takes_slot:
            again.add(first)
    reach = np.zeros(len(excess), dtype=np.int32)
    free = np.zeros(len(excess), dtype=np.int32)
    for first, places in idle.items():
        where = np.unique(np.concatenate(places)) if len(places) > 1 else places[0]
        reach[where] += words[first]
        if first in again:
            free[where] += words[first]
    return bool((excess > reach).any() or (excess - free > most_slots).any())


def choose_gaps(
    values: Sequence[Value],
    gaps: Sequence[Gap],
    pressure: NDArray[np.int32],
    target: int,
    most_slots: int,
) -> list[Choice] | None:
    """Greedy choice until no instruction has more than `target` live values; None if impossible."""
    current = pressure.astype(np.int32).copy()
    excess = np.maximum(current - target, 0)
    by_value: dict[int, list[int]] = {}
    for k, gap in enumerate(gaps):
        by_value.setdefault(gap.value, []).append(k)
    owner = {value.webs[0].index: -1 for value in values}
    started: set[int] = set()
    taken: list[int] = []
    is_taken = [False] * len(gaps)
    slots = 0

    def score(k: int) -> float:
        gap = gaps[k]
        words = values[gap.value].words
        over = excess[gap.places]
        freed = int(np.minimum(over, words).sum())
        if not freed:
            return 0.0
        cost = gap.load_cost + (0.0 if gap.value in started else gap.store_cost)
        return freed * (1.0 + int(over.max(initial=0))) / (cost + 0.5)

    heap = [(-value, k) for k in range(len(gaps)) if (value := score(k)) > 0]
    heapq.heapify(heap)
    while excess.any():
        while heap:
            known, k = heapq.heappop(heap)
            number = gaps[k].value
            value = values[number]
            first = value.webs[0].index
            if is_taken[k] or owner[first] not in (-1, number):
                continue
            needed = 0 if number in started or not value.takes_slot else value.words
            if slots + needed > most_slots:
                continue
            now = score(k)
            if now >= -known:
                break
            if now > 0:
                heapq.heappush(heap, (-now, k))
        else:
            return None
        gap = gaps[k]
        number = gap.value
        value = values[number]
        is_taken[k] = True
        taken.append(k)
        owner[value.webs[0].index] = number
        current[gap.places] -= value.words
        excess[gap.places] = np.maximum(current[gap.places] - target, 0)
        if number not in started:
            started.add(number)
            slots += value.words if value.takes_slot else 0
            for other in by_value[number]:
                if not is_taken[other] and (again := score(other)) > 0:
                    heapq.heappush(heap, (-again, other))
    return _kept(values, gaps, taken, current, target)


def _kept(
    values: Sequence[Value],
    gaps: Sequence[Gap],
    taken: Sequence[int],
    current: NDArray[np.int32],
    target: int,
) -> list[Choice]:
    """The choice without the gaps that the others made superfluous."""
    away: dict[int, NDArray[np.bool_]] = {}
    order = sorted(taken, key=lambda k: -(gaps[k].load_cost + gaps[k].store_cost))
    for k in order:
        gap = gaps[k]
        words = values[gap.value].words
        if (current[gap.places] + words <= target).all():
            current[gap.places] += words
            continue
        mask = away.setdefault(gap.value, np.zeros(len(current), dtype=np.bool_))
        mask[gap.places] = True
    return [Choice(values[number], mask) for number, mask in sorted(away.items())]


def settled(live: Liveness, chosen: Sequence[Choice]) -> list[Choice]:
    """The choice with stores instead of recomputation where an input leaves its register, too."""
    general = FILE_MASK[RegisterFile.GPR]
    gone = [
        (sum(1 << web.register for web in choice.value.webs), choice.value.occupied)
        for choice in chosen
    ]
    result: list[Choice] = []
    for k, choice in enumerate(chosen):
        value = choice.value
        if value.definition is not None:
            inputs = live.uses[value.definition] & general
            if any(
                inputs & mask and (occupied & value.occupied).any()
                for j, (mask, occupied) in enumerate(gone)
                if j != k
            ):
                choice = Choice(replace(value, definition=None), choice.away)
        result.append(choice)
    return result


def share_slots(
    chosen: Sequence[Choice], points_of: Callable[[Choice], int] | None = None
) -> tuple[dict[int, int], int]:
    """First slot word by web (of the low half), and the words needed.

    Values whose slots are never needed together share words; 64-bit values have even ones.
    `points_of` says where a value's slot is needed (`slot_points`); by default, where it is live.
    """
    taken: list[int] = []
    slot_of: dict[int, int] = {}
    stored = [
        (c.value, c.value.points if points_of is None else points_of(c))
        for c in chosen
        if c.value.takes_slot
    ]
    stored.sort(key=lambda s: (-s[0].words, s[1] & -s[1], s[0].webs[0].index))
    for value, points in stored:
        words = value.words
        slot = 0
        while any(slot + w < len(taken) and taken[slot + w] & points for w in range(words)):
            slot += words
        while len(taken) < slot + words:
            taken.append(0)
        for w in range(words):
            taken[slot + w] |= points
        slot_of[value.webs[0].index] = slot
    return slot_of, len(taken)


def slot_points(program: Program, live: Liveness, choice: Choice) -> int:
    """Where the slot of a value holds something that a load will read, as `Web.points`.

    From its stores to its loads: less than the value's life. Later moves of stores down and of
    loads up only shorten it. In device functions the value's own life counts, so that what is live
    across a call stays apart from what the callee stores.
    """
    value = choice.value
    placement = place(program, live, value.access(), choice.away.tolist())
    code = program.code
    stores: dict[tuple[int, bool], bool] = {}
    for definition, where in placement.stores.items():
        always = code.guard[definition] == _NO_GUARD or definition in placement.unguarded
        stores[where] = stores.get(where, False) or always

    def walk(b: int, needed: bool) -> tuple[bool, int]:
        block, mask = program.blocks[b], 0
        for i in range(block.end - 1, block.start - 1, -1):
            for after in (True, False):
                bit = 1 << 2 * i + after
                needed = needed or (not after and i in placement.loads)
                if needed or (i, after) in stores:
                    mask |= bit
                if stores.get((i, after)):
                    needed = False
        return needed, mask

    entry = [False] * len(program.blocks)
    changed = True
    while changed:
        changed = False
        for block in reversed(program.blocks):
            needed, _ = walk(block.index, any(entry[s] for s in block.successors))
            changed = changed or needed != entry[block.index]
            entry[block.index] = needed
    points = 0
    for block in program.blocks:
        points |= walk(block.index, any(entry[s] for s in block.successors))[1]
        if block.function:
            points |= value.points & ((1 << 2 * block.end) - (1 << 2 * block.start))
    return points
