"""The interference graph of the GPR webs, and how many registers it needs.

Problem: the count a kernel was given is not the count it needs. How far would renumbering alone
go, and if a count is out of reach, which values stand in the way?

Method: two webs interfere iff their points overlap. A sweep over the webs' live intervals, in order
of their first points, gives each web one mask: the intervals open where one of its own begins, and
those that begin while it is open (a contiguous stretch, since intervals are numbered in order).
Webs that one operand names as a tuple form a group that keeps its distances, and a colour is the
first register of a group, a multiple of its alignment. The order is smallest-last (Matula and
Beck), which is Chaitin's simplification with Briggs' optimism for every number of colours at once;
each group then takes the lowest numbers it can. Orders by program point and by size are tried as
well, and the best result stands. R1, the stack pointer, keeps its number.

Invariants: `colouring.register_of` is a legal assignment (webs that interfere differ, tuples are
aligned); `colours` is at least `clique`, the most registers live at one point.

Not claimed: that `colours` is the least possible. Colouring with tuples is NP-hard; between
`clique` and `colours` lies what an exact solver may find.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import islice

from regdem.analysis.bits import members
from regdem.analysis.webs import STACK_POINTER, Webs

REGISTER_LIMIT = 255
EXHAUSTIVE_GROUPS = 600
"""Above so many groups only the cheap orders are tried."""
_EVEN = int("01" * 128, 2)
_ODD = _EVEN << 1
_FEW = 12
"""So many are looked at one by one."""
_BITS = [1 << r for r in range(REGISTER_LIMIT + 1)]


@dataclass(frozen=True)
class Interference:
    """Webs as nodes. Bit k of a mask is the k-th live interval of the sweep.

    `touched[w]` are the intervals that overlap one of web w, its own among them; `own[w]` are
    those of web w itself; interval k is of web `holder[k]`, from `first_points[k]` to
    `last_points[k]`. `clique` is the most webs that
    hold a register at one point: no colouring needs fewer.
    """

    webs: Webs
    touched: tuple[int, ...]
    own: tuple[int, ...]
    holder: tuple[int, ...]
    first_points: tuple[int, ...]
    last_points: tuple[int, ...]
    clique: int

    @cached_property
    def neighbours(self) -> tuple[frozenset[int], ...]:
        """For each web the webs that may not share a register with it."""
        holder = self.holder
        return tuple(
            frozenset([holder[k] for k in members(mask & ~own)]) - {w}
            for w, (mask, own) in enumerate(zip(self.touched, self.own, strict=True))
        )

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Webs that hold a register at some point."""
        return tuple(w.index for w in self.webs.webs if w.points)

    @cached_property
    def edges(self) -> int:
        """Pairs of webs that may not share a register."""
        # A pair of webs of one interval each is seen from both; others are counted by hand.
        several = [w for w in self.nodes if self.own[w].bit_count() > 1]
        lone = (1 << len(self.holder)) - 1
        for w in several:
            lone &= ~self.own[w]
        seen = sum([(self.touched[w] & lone).bit_count() - 1 for w in self.nodes
                    if self.own[w] & lone])  # fmt: skip
        mixed = both = 0
        owned = [self.own[w] for w in several]
        for k, w in enumerate(several):
            mask = self.touched[w]
            mixed += (mask & lone).bit_count()
            mask &= ~lone
            both += sum([1 for other in owned[:k] if mask & other])
        return seen // 2 + mixed + both

    def edge_list(self) -> list[tuple[int, int]]:
        """The pairs (a, b), a < b, in order."""
        return [(a, b) for a in self.nodes for b in sorted(self.neighbours[a]) if a < b]

    def to_dot(self, names: dict[int, str] | None = None) -> str:
        """The graph in DOT; `names` labels webs (default: the register it had)."""
        lines = ["graph interference {", "  node [shape=box, fontname=monospace];"]
        for w in self.nodes:
            label = (names or {}).get(w, f"R{self.webs.webs[w].register}")
            lines.append(f'  w{w} [label="{label}"];')
        lines += [f"  w{a} -- w{b};" for a, b in self.edge_list()]
        for group in self.webs.groups:
            if len(group.webs) > 1:
                lines.append(f"  // tuple: {', '.join(f'w{w}' for w in group.webs)}")
        return "\n".join([*lines, "}"]) + "\n"


@dataclass(frozen=True)
class Colouring:
    """An assignment: `register_of[web]`, and `colours`, the highest number used + 1."""

    register_of: dict[int, int]
    colours: int


@dataclass(frozen=True)
class Fit:
    """Whether the graph was coloured with `registers`; else the webs left without a number."""

    registers: int
    fits: bool
    in_the_way: tuple[int, ...]


def interference(webs: Webs) -> Interference:
    """Builds the graph by a sweep over all live intervals."""
    # Where several begin at one point, larger tuples come first: the order of a colouring.
    runs: list[tuple[int, int, int, int, int]] = []
    size = [group.low - group.high for group in webs.groups]
    for web in webs.webs:
        group = web.group
        runs.extend(
            [(first, size[group], group, last, web.index) for first, last in intervals(web.points)]
        )
    runs.sort()
    first_points = tuple([run[0] for run in runs])
    touched = [0] * len(webs.webs)
    own = [0] * len(webs.webs)
    closing: list[tuple[int, int]] = []
    live = most = 0
    for k, (first, _size, _group, last, web) in enumerate(runs):
        while closing and closing[0][0] < first:
            live ^= 1 << heappop(closing)[1]
        live |= 1 << k
        heappush(closing, (last, k))
        own[web] |= 1 << k
        begun = bisect_right(first_points, last, k)
        touched[web] |= live | ((1 << begun) - (1 << k))
        most = max(most, len(closing))
    return Interference(
        webs,
        tuple(touched),
        tuple(own),
        tuple([run[4] for run in runs]),
        first_points,
        tuple([run[3] for run in runs]),
        most,
    )


def intervals(points: int) -> list[tuple[int, int]]:
    """The runs of set bits as (first, last), ascending."""
    found: list[tuple[int, int]] = []
    at = 0
    while points:
        gap = (points & -points).bit_length() - 1
        points >>= gap
        at += gap
        run = ((points + 1) & -(points + 1)).bit_length() - 1
        found.append((at, at + run - 1))
        points >>= run
        at += run
    return found


def colour(graph: Interference) -> Colouring:
    """The best of several greedy colourings, and of the one the code came with."""
    best = as_allocated(graph)
    if best.colours <= graph.clique:
        return best
    found = _by_first_point(graph)
    if found is not None and found.colours < best.colours:
        best = found
    if best.colours <= graph.clique:
        return best
    solver = _Solver(graph)
    for order in islice(solver.orders(), 1, None):
        found, left = solver.assign(order, REGISTER_LIMIT)
        if not left and found.colours < best.colours:
            best = found
        if best.colours <= graph.clique:
            break
    return best


def _by_first_point(graph: Interference) -> Colouring | None:
    """`_Solver.assign` in order of first points, in the same sweep; None above the limit.

    What is placed and open where a group begins is one mask of numbers. Only what is placed and
    begins later (again, or as another part of a tuple) has to be looked for.
    """
    webs, touched, own = graph.webs.webs, graph.touched, graph.own
    first_points, last_points = graph.first_points, graph.last_points
    register_of: dict[int, int] = {}
    held = [0] * (REGISTER_LIMIT + 1)
    """Per number the intervals of the webs that have it."""
    placed = top = occupied = 0
    closing: list[tuple[int, int]] = []
    pinned = [web.index for web in webs if web.register == STACK_POINTER and web.points]
    holders = [(-1, w) for w in pinned] + list(enumerate(graph.holder))
    for k, first in holders:
        point = first_points[k] if k >= 0 else -1
        while closing and closing[0][0] < point:
            occupied &= ~(1 << heappop(closing)[1])
        if first not in register_of:
            group = graph.webs.groups[webs[first].group]
            taken = 0
            for w in group.webs if k >= 0 else ():
                mask = touched[w] & placed
                blocked = 0
                if own[w] and first_points[_lowest(own[w])] == point:
                    blocked, mask = occupied, mask >> k << k
                if mask.bit_count() > _FEW:
                    blocked |= sum([b for b, h in zip(_BITS, held[:top], strict=False) if h & mask])
                    mask = 0
                while mask:
                    low = mask & -mask
                    blocked |= 1 << register_of[graph.holder[low.bit_length() - 1]]
                    mask ^= low
                taken |= blocked >> (webs[w].register - group.low)
            step, size = max(group.alignment, 1), group.high - group.low + 1
            at = _lowest_place(taken, top, group.low % step, step, size) if k >= 0 else group.low
            if at + size > REGISTER_LIMIT:
                return None
            for w in group.webs:
                register = register_of[w] = at + webs[w].register - group.low
                if own[w]:
                    placed |= own[w]
                    held[register] |= own[w]
                    top = max(top, register + 1)
        if k >= 0:
            occupied |= 1 << register_of[first]
            heappush(closing, (last_points[k], register_of[first]))
    return Colouring(register_of, top)


def as_allocated(graph: Interference) -> Colouring:
    """The colouring the code came with: every web in its own register."""
    register_of = {w: graph.webs.webs[w].register for w in graph.nodes}
    return Colouring(register_of, max(register_of.values(), default=-1) + 1)


def fit(graph: Interference, registers: int) -> Fit:
    """Asks for a colouring with `registers`; names the webs that got none in the best attempt."""
    solver = _Solver(graph)
    present = as_allocated(graph).register_of
    best = tuple(w for w, register in present.items() if register >= registers)
    for order in solver.orders():
        if not best:
            break
        left = solver.assign(order, registers)[1]
        best = min(best, left, key=len)
    return Fit(registers, not best, best)


class _Solver:
    """Groups as nodes: size, alignment, and per group its webs' distances from the first."""

    def __init__(self, graph: Interference) -> None:
        self.graph = graph
        webs = graph.webs
        self.groups = [k for k, g in enumerate(webs.groups) if any(map(self._held, g.webs))]
        self.size = {k: webs.groups[k].high - webs.groups[k].low + 1 for k in self.groups}
        self.offset = {
            w: webs.webs[w].register - webs.groups[k].low
            for k in self.groups
            for w in webs.groups[k].webs
        }
        self.phase = {k: webs.groups[k].low % max(webs.groups[k].alignment, 1) for k in self.groups}
        self.fixed = {
            k: webs.groups[k].low
            for k in self.groups
            if any(webs.webs[w].register == STACK_POINTER for w in webs.groups[k].webs)
        }
        self.group_of = [web.group for web in webs.webs]

    def _held(self, web: int) -> bool:
        return bool(self.graph.webs.webs[web].points)

    def _near(self, group: int) -> set[int]:
        group_of = self.group_of
        found = {
            group_of[other]
            for w in self.graph.webs.groups[group].webs
            for other in self.graph.neighbours[w]
        }
        found.discard(group)
        return found

    def orders(self) -> Iterator[list[int]]:
        """Orders in which to give out numbers, R1 first in each; the cheap ones come first."""
        webs = self.graph.webs
        first = {
            k: min(_lowest(webs.webs[w].points) for w in webs.groups[k].webs if self._held(w))
            for k in self.groups
        }
        yield self._fixed_first(sorted(self.groups, key=lambda k: (first[k], -self.size[k])))
        yield self._fixed_first(sorted(self.groups, key=lambda k: (-self.size[k], first[k])))
        if len(self.groups) <= EXHAUSTIVE_GROUPS:
            yield self._fixed_first(self._smallest_last())

    def _fixed_first(self, order: list[int]) -> list[int]:
        return [k for k in order if k in self.fixed] + [k for k in order if k not in self.fixed]

    def _smallest_last(self) -> list[int]:
        """Remove the group with the fewest blocked positions again and again; colour in reverse."""
        near = {k: self._near(k) for k in self.groups}
        weight = {k: sum([self.size[o] for o in near[k]]) for k in self.groups}
        buckets: dict[int, set[int]] = {}
        for k, w in weight.items():
            buckets.setdefault(w, set()).add(k)
        removed: set[int] = set()
        order: list[int] = []
        level = min(buckets, default=0)
        while len(order) < len(self.groups):
            while not buckets.get(level):
                level += 1
            k = min(buckets[level])
            buckets[level].discard(k)
            removed.add(k)
            order.append(k)
            for other in near[k]:
                if other in removed:
                    continue
                buckets[weight[other]].discard(other)
                weight[other] -= self.size[k]
                buckets.setdefault(weight[other], set()).add(other)
                level = min(level, weight[other])
        order.reverse()
        return order

    def assign(self, order: list[int], limit: int) -> tuple[Colouring, tuple[int, ...]]:
        """Lowest numbers first in the given order; groups that find none below `limit` are left."""
        webs = self.graph.webs
        own, touched = self.graph.own, self.graph.touched
        register_of: dict[int, int] = {}
        held = [0] * (REGISTER_LIMIT + 1)
        """Per register the intervals of the webs that have it."""
        left: list[int] = []
        top = 0
        for k in order:
            group = webs.groups[k]
            taken = 0
            for w in group.webs:
                mask = touched[w]
                blocked = [bit for bit, each in zip(_BITS, held[:top], strict=False) if each & mask]
                taken |= sum(blocked) >> self.offset[w]
            place = self._place(k, group.alignment, taken, top, limit)
            if place is None:
                left.extend(group.webs)
                continue
            for w in group.webs:
                register = register_of[w] = place + self.offset[w]
                if own[w]:
                    held[register] |= own[w]
                    top = max(top, register + 1)
        return Colouring(register_of, top), tuple(sorted(left))

    def _place(self, group: int, alignment: int, taken: int, top: int, limit: int) -> int | None:
        """The lowest free place; a single register prefers a pair that is already broken."""
        if group in self.fixed:
            return self.fixed[group]
        step = max(alignment, 1)
        place = _lowest_place(taken, top, self.phase[group], step, self.size[group])
        return place if place + self.size[group] <= limit else None


def _lowest_place(taken: int, top: int, phase: int, step: int, size: int) -> int:
    """The lowest free place of those allowed; a single register prefers a broken pair."""
    place = phase
    while (taken >> place) & 1:
        place += step
    if size == 1 and step == 1:
        below = ((1 << top) - 1) & ~taken
        odd = _ODD & below
        broken = (odd & (taken << 1)) | (_EVEN & below & (taken >> 1))
        if broken:
            place = _lowest(broken)
    return place


def _lowest(points: int) -> int:
    return (points & -points).bit_length() - 1
