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
from functools import cached_property

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
)
from regdem.transform.fold import Folds
from regdem.transform.hazards import LATENCY_CYCLES
from regdem.transform.recompute import words_of
from regdem.transform.spill import (
    LOAD_CYCLES,
    Access,
    Placement,
    keeps_old,
    needed_at_entries,
    place,
    store_positions,
)

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

    @cached_property
    def points(self) -> int:
        """Where it is live, as `Web.points`."""
        result = 0
        for web in self.webs:
            result |= web.points
        return result

    def access(self) -> Access:
        """The accesses as the placement takes them."""
        return self._access

    @cached_property
    def _access(self) -> Access:
        first = self.webs[0]
        return Access(
            first.register,
            frozenset(first.reads) - self.folded,
            frozenset(first.writes),
            self.points,
            words=self.words,
            early=self.early,
        )


@dataclass(frozen=True)
class Gap:
    """One idle stretch of a value: instructions at which it may leave (ascending, at least one),
    cost of its loads."""

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
    pair_of = _pairs(webs) if pairs else {}
    result: list[Value] = []
    done: set[int] = set()
    for web in webs.webs:
        if web.index in done or web.whole or web.register == STACK_POINTER or not web.reads:
            continue
        partner = pair_of.get(web.index)
        low = recomputable.get(web.index)
        if partner is None:
            alone = low is not None and words_of(program, low) == 1
            shared = web.index in uniform
            again = low if alone else None
            named = _named(folds, (web,), again, uniform=shared)
            result.append(Value((web,), again, uniform=shared, folded=named))
            continue
        done.add(partner.index)
        together = low is not None and low == recomputable.get(partner.index)
        shared = web.index in uniform and partner.index in uniform
        again = low if together else None
        named = _named(folds, (web, partner), again, uniform=shared)
        result.append(Value((web, partner), again, uniform=shared, folded=named))
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


@dataclass(frozen=True)
class _Stretch:
    """A connected idle stretch of a value, whatever is crowded: its instructions, the uses that it
    leads to, and what it costs more for being short."""

    places: NDArray[np.intp]
    uses: set[int]
    short_cost: float
    weight: float
    """Of its uses together."""


class GapSearch:
    """Finds gaps of one program; what does not depend on the crowded places is found once."""

    def __init__(self, program: Program, live: Liveness) -> None:
        self._program = program
        self._live = live
        n = len(program)
        weights = block_weights(program)
        self._weight = [weights[int(b)] for b in program.block_of]
        self._starts = np.zeros(n + 1, dtype=np.bool_)
        self._starts[program.block_starts] = True
        self._starts[n] = True
        stall = np.maximum(1, program.code.stall.astype(np.int64))
        self._clock: list[int] = np.concatenate(([0], np.cumsum(stall))).tolist()
        self._stretches: dict[tuple[object, ...], list[_Stretch]] = {}

    def find(
        self, values: Sequence[Value], hot: NDArray[np.bool_], exposed_cost: float = EXPOSED_COST
    ) -> list[Gap]:
        """All gaps that cross an instruction of `hot`, with their costs.

        `exposed_cost`: what a load costs more if nothing covers its latency.
        """
        late_cost = [exposed_cost * part for part in self._exposed(hot)]
        hot_points = int.from_bytes(np.packbits(np.repeat(hot, 2), bitorder="little"), "little")
        weight = self._weight
        result: list[Gap] = []
        for k, value in enumerate(values):
            if not value.points & hot_points:
                continue
            store_cost = 0.0
            if value.definition is None:
                per_store = STORE_COST + (EARLY_COST if value.early else 0.0)
                store_cost = per_store * sum(weight[i] for i in value.access().writes)
            per_load = LOAD_COST if value.takes_slot else RECOMPUTE_COST
            for stretch in self._stretches_of(value, hot):
                places = stretch.places[hot[stretch.places]]
                if not len(places):
                    continue
                cost = per_load * stretch.weight
                if value.takes_slot:
                    cost += sum(weight[u] * late_cost[u] for u in stretch.uses)
                cost += stretch.short_cost
                result.append(Gap(k, places, cost, store_cost))
        return result

    def _exposed(self, hot: NDArray[np.bool_]) -> list[float]:
        """(n,) which part of a load's latency is waited for at a use, from 0 to 1.

        A load moves up over instructions that are not full. Nothing is waited for where the use
        waits for memory anyway.
        """
        code, clock = self._program.code, self._clock
        full: list[bool] = hot.tolist()
        wait_mask: list[int] = code.wait_mask.tolist()
        write_scoreboard: list[int] = code.write_scoreboard.tolist()
        forms = [code.table.forms[f] for f in code.form_indices]
        result = [0.0] * len(code)
        for block in self._program.blocks:
            long_boards = 0
            for i in range(block.start, block.end):
                waits = wait_mask[i]
                covered = bool(waits & long_boards)
                long_boards &= ~waits
                board = write_scoreboard[i]
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

    def _stretches_of(self, value: Value, hot: NDArray[np.bool_]) -> list[_Stretch]:
        """Of an early value they depend on what is crowded, by way of its stores."""
        key: tuple[object, ...] = (
            value.webs[0].index, value.words, value.definition is None, value.folded, value.early,
        )  # fmt: skip
        busy: dict[int, int] = {}
        if value.early and value.definition is None:
            busy = store_positions(self._program, self._live, value.access(), Placement(), hot)
            key = (*key, *busy.items())
        known = self._stretches.get(key)
        if known is None:
            if not value.early and value.definition is None:
                access = value.access()
                busy = store_positions(self._program, self._live, access, Placement(), hot)
            known = self._stretches[key] = self._found(value, busy)
        return known

    def _found(self, value: Value, busy: dict[int, int]) -> list[_Stretch]:
        """`busy`: the instructions that its definitions stay up to, if it is stored."""
        program = self._program
        access = value.access()
        guarded = keeps_old(program, self._live, access)
        first, idle = _held(value.points)
        for i in (*access.reads, *access.writes):
            if 0 <= i - first < len(idle):
                idle[i - first] = False
        for i, until in busy.items():
            idle[max(0, i - first) : max(0, until - first)] = False
        runs = self._runs(first, idle)
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
        found: list[_Stretch] = []
        for ks in members.values():
            places = np.concatenate([np.arange(*runs[k]) for k in ks])
            short = 0.0
            if value.definition is None and len(ks) == 1:
                a, b = runs[ks[0]]
                same = int(program.block_of[a]) == int(
                    program.block_of[min(b, len(program) - 1)]
                )  # fmt: skip
                if same and self._clock[b] - self._clock[a] < _SHORT_CYCLES:
                    short = _SHORT_COST * self._weight[a]
            used = set[int]().union(*(uses[k] for k in ks))
            found.append(_Stretch(places, used, short, sum(self._weight[u] for u in used)))
        return found

    def _runs(self, first: int, idle: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """Maximal idle stretches within blocks, as half-open ranges."""
        starts = self._starts[first : first + len(idle) + 1]
        previous = np.concatenate(([False], idle[:-1]))
        begins = (idle & (~previous | starts[:-1])).nonzero()[0] + first
        following = np.concatenate((idle[1:], [False]))
        ends = (idle & (~following | starts[1:])).nonzero()[0] + first + 1
        return list(zip(begins.tolist(), ends.tolist(), strict=True))


def gaps_of(
    program: Program,
    live: Liveness,
    values: Sequence[Value],
    hot: NDArray[np.bool_],
    exposed_cost: float = EXPOSED_COST,
) -> list[Gap]:
    """The gaps that one `GapSearch` finds."""
    return GapSearch(program, live).find(values, hot, exposed_cost)


def _held(points: int) -> tuple[int, NDArray[np.bool_]]:
    """The first instruction of a live range, and from there on whether it holds its register."""
    first = ((points & -points).bit_length() - 1) // 2
    trimmed = points >> 2 * first
    size = (trimmed.bit_length() + 1) // 2
    data = np.frombuffer(trimmed.to_bytes((2 * size + 7) // 8, "little"), dtype=np.uint8)
    bits = np.unpackbits(data, bitorder="little")[: 2 * size]
    return first, (bits[0::2] | bits[1::2]).astype(np.bool_)


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
    # The gaps of one value never overlap, those of the same value stored early may.
    first = [value.webs[0].index for value in values]
    number_of: dict[int, int] = {}
    mixed: dict[int, list[Gap]] = {}
    for number in {gap.value: None for gap in gaps}:
        if number_of.setdefault(first[number], number) != number:
            mixed[first[number]] = []
    apart: tuple[list[Gap], list[Gap]] = [], []
    for gap in gaps:
        alike = mixed.get(first[gap.value]) if mixed else None
        if alike is None:
            apart[values[gap.value].takes_slot].append(gap)
        else:
            alike.append(gap)
    free = _words_away(apart[0], values, len(excess))
    reach = free + _words_away(apart[1], values, len(excess))
    for alike in mixed.values():
        low = min(int(gap.places[0]) for gap in alike)
        high = max(int(gap.places[-1]) for gap in alike) + 1
        away = np.zeros(high - low, dtype=np.bool_)
        for gap in alike:
            away[gap.places - low] = True
        words = values[alike[-1].value].words
        reach[low:high] += words * away
        if any(not values[gap.value].takes_slot for gap in alike):
            free[low:high] += words * away
    return bool((excess > reach).any() or (excess - free > most_slots).any())


def _words_away(
    gaps: Sequence[Gap], values: Sequence[Value], instructions: int
) -> NDArray[np.int64]:
    """(n,) how many words leave at each instruction through all `gaps`."""
    if not gaps:
        return np.zeros(instructions, dtype=np.int64)
    words = np.repeat([values[gap.value].words for gap in gaps], [len(gap.places) for gap in gaps])
    count = np.bincount(np.concatenate([gap.places for gap in gaps]), words, instructions)
    return count.astype(np.int64)


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
    if not excess.any():
        return []
    by_value: dict[int, list[int]] = {}
    for k, gap in enumerate(gaps):
        by_value.setdefault(gap.value, []).append(k)
    words = [value.words for value in values]
    needs = [value.words if value.takes_slot else 0 for value in values]
    web = [value.webs[0].index for value in values]
    owner = dict.fromkeys(web, -1)
    started: set[int] = set()
    taken: list[int] = []
    is_taken = [False] * len(gaps)
    slots = 0
    where, scores = _first_scores(gaps, excess, words)
    count_nonzero, greatest = np.count_nonzero, np.maximum.reduce

    def score(k: int) -> float:
        over = excess[where[k]]
        freed = int(count_nonzero(over))  # what is over, at most the words of the value
        if not freed:
            return 0.0
        gap = gaps[k]
        for least in range(1, words[gap.value]):
            freed += int(count_nonzero(over > least))
        cost = gap.load_cost + (0.0 if gap.value in started else gap.store_cost)
        return freed * (1.0 + int(greatest(over))) / (cost + 0.5)

    heap = [(-value, k) for k, value in enumerate(scores) if value > 0]
    heapq.heapify(heap)
    while excess.any():
        while heap:
            known, k = heapq.heappop(heap)
            number = gaps[k].value
            if is_taken[k] or owner[web[number]] not in (-1, number):
                continue
            if slots + (0 if number in started else needs[number]) > most_slots:
                continue
            now = score(k)
            if now >= -known:
                break
            if now > 0:
                heapq.heappush(heap, (-now, k))
        else:
            return None
        number = gaps[k].value
        is_taken[k] = True
        taken.append(k)
        owner[web[number]] = number
        current[where[k]] -= words[number]
        excess[where[k]] = np.maximum(current[where[k]] - target, 0)
        if number not in started:
            started.add(number)
            slots += needs[number]
            for other in by_value[number]:
                if not is_taken[other] and (again := score(other)) > 0:
                    heapq.heappush(heap, (-again, other))
    return _kept(values, gaps, taken, current, target)


def _first_scores(
    gaps: Sequence[Gap], excess: NDArray[np.int32], words: Sequence[int]
) -> tuple[list[NDArray[np.intp] | slice], list[float]]:
    """Where each gap is, as a slice if its instructions follow each other; and how much it
    relieves for what it costs while nothing is chosen (`choose_gaps`)."""
    if not gaps:
        return [], []
    counts = np.array([len(gap.places) for gap in gaps])
    ends = np.cumsum(counts)
    starts = ends - counts
    places = np.concatenate([gap.places for gap in gaps])
    over = excess[places]
    most = np.maximum.reduceat(over, starts)
    freed = np.add.reduceat(
        np.minimum(over, np.repeat([words[gap.value] for gap in gaps], counts)), starts
    )
    cost = np.array([gap.load_cost + gap.store_cost for gap in gaps])
    scores: list[float] = (freed * (1.0 + most) / (cost + 0.5)).tolist()
    jumps = np.concatenate(([0], np.cumsum(np.diff(places) != 1)))
    is_run: list[bool] = (jumps[ends - 1] == jumps[starts]).tolist()
    where: list[NDArray[np.intp] | slice] = [
        slice(int(gap.places[0]), int(gap.places[0]) + len(gap.places)) if run else gap.places
        for gap, run in zip(gaps, is_run, strict=True)
    ]
    return where, scores


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
        (sum(1 << web.register for web in choice.value.webs), choice.value.points)
        for choice in chosen
    ]
    result: list[Choice] = []
    for k, choice in enumerate(chosen):
        value = choice.value
        if value.definition is not None:
            inputs = live.uses[value.definition] & general
            if any(
                inputs & mask and _meet(points, value.points)
                for j, (mask, points) in enumerate(gone)
                if j != k
            ):
                choice = Choice(replace(value, definition=None), choice.away)
        result.append(choice)
    return result


def _meet(first: int, second: int) -> bool:
    """Whether two live ranges hold registers at one instruction, at whichever of its points."""
    both = (first | first >> 1) & (second | second >> 1)
    even = int.from_bytes(b"\x55" * (both.bit_length() // 8 + 1), "little")
    return bool(both & even)


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
    placement = place(program, live, value.access(), choice.away)
    code = program.code
    stores: dict[int, bool] = {}  # by point
    for definition, (at, after) in placement.stores.items():
        always = code.guard[definition] == _NO_GUARD or definition in placement.unguarded
        stores[2 * at + after] = stores.get(2 * at + after, False) or bool(always)
    events: dict[int, list[int]] = {}
    for point in sorted(stores.keys() | {2 * i for i in placement.loads}, reverse=True):
        events.setdefault(int(program.block_of[point // 2]), []).append(point)

    def walk(b: int, needed: bool) -> tuple[bool, int]:
        block, mask = program.blocks[b], 0
        above = 2 * block.end
        for point in events.get(b, ()):
            if needed:
                mask |= (1 << above) - (2 << point)
            if point in stores or needed:
                mask |= 1 << point
            if point % 2 == 0 and point // 2 in placement.loads:
                needed = True
                mask |= 1 << point
            if stores.get(point):
                needed = False
            above = point
        if needed:
            mask |= (1 << above) - (1 << 2 * block.start)
        return needed, mask

    through = {b: (walk(b, False)[0], walk(b, True)[0]) for b in events}
    needed_in = needed_at_entries(program, through)
    ends = {p for b in needed_in for p in program.blocks[b].predecessors}
    points = _device_points(program) & value.points
    for b in sorted(ends | events.keys()):
        points |= walk(b, b in ends)[1]
    return points


def _device_points(program: Program) -> int:
    """All points of device functions."""
    known: int | None = program.memo.get("device_points")
    if known is None:
        known = 0
        for block in program.blocks:
            if block.function:
                known |= (1 << 2 * block.end) - (1 << 2 * block.start)
        program.memo["device_points"] = known
    return known
