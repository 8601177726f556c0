"""The interference graph of the GPR webs, and how many registers it needs.

Problem: the count a kernel was given is not the count it needs. How far would renumbering alone
go, and if a count is out of reach, which values stand in the way?

Method: two webs interfere iff their points overlap; edges come from a sweep over the webs' live
intervals. Webs that one operand names as a tuple form a group that keeps its distances, and a
colour is the first register of a group, a multiple of its alignment. The order is smallest-last
(Matula and Beck), which is Chaitin's simplification with Briggs' optimism for every number of
colours at once; each group then takes the lowest numbers it can. Orders by program point and by
size are tried as well, and the best result stands. R1, the stack pointer, keeps its number.

Invariants: `colouring.register_of` is a legal assignment (webs that interfere differ, tuples are
aligned); `colours` is at least `clique`, the most registers live at one point.

Not claimed: that `colours` is the least possible. Colouring with tuples is NP-hard; between
`clique` and `colours` lies what an exact solver may find.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regdem.analysis.bits import members
from regdem.analysis.webs import STACK_POINTER, Webs

REGISTER_LIMIT = 255
_EVEN = int("01" * 128, 2)
_ODD = _EVEN << 1


@dataclass(frozen=True)
class Interference:
    """Webs as nodes; `neighbours[w]` is a mask over webs."""

    webs: Webs
    neighbours: tuple[int, ...]

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Webs that hold a register at some point."""
        return tuple(w.index for w in self.webs.webs if w.points)

    @cached_property
    def edges(self) -> int:
        """Pairs of webs that may not share a register."""
        return sum(mask.bit_count() for mask in self.neighbours) // 2

    def edge_list(self) -> list[tuple[int, int]]:
        """The pairs (a, b), a < b, in order."""
        return [(a, b) for a in self.nodes for b in members(self.neighbours[a] >> a << a) if a < b]

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
    starts: list[tuple[int, int, int]] = []
    for web in webs.webs:
        starts.extend((first, last, web.index) for first, last in intervals(web.points))
    starts.sort()
    neighbours = [0] * len(webs.webs)
    ends: dict[int, list[int]] = {}
    for _first, last, web in starts:
        ends.setdefault(last, []).append(web)
    closing = sorted(ends)
    live, k = 0, 0
    for first, _last, web in starts:
        while k < len(closing) and closing[k] < first:
            for gone in ends[closing[k]]:
                live &= ~(1 << gone)
            k += 1
        neighbours[web] |= live
        live |= 1 << web
    for web, mask in enumerate(list(neighbours)):
        for other in members(mask):
            neighbours[other] |= 1 << web
    for web in range(len(neighbours)):
        neighbours[web] &= ~(1 << web)
    return Interference(webs, tuple(neighbours))


def intervals(points: int) -> list[tuple[int, int]]:
    """The runs of set bits as (first, last), ascending."""
    if not points:
        return []
    low = (points & -points).bit_length() - 1
    shifted = points >> low
    size = (shifted.bit_length() + 7) // 8
    bits = np.unpackbits(
        np.frombuffer(shifted.to_bytes(size, "little"), dtype=np.uint8), bitorder="little"
    )
    edges = np.flatnonzero(np.diff(bits, prepend=0, append=0)) + low
    return list(zip(edges[0::2].tolist(), (edges[1::2] - 1).tolist(), strict=True))


def colour(graph: Interference) -> Colouring:
    """The best of several greedy colourings, and of the one the code came with."""
    solver = _Solver(graph)
    best = as_allocated(graph)
    floor = clique(graph)
    for order in solver.orders():
        if best.colours <= floor:
            break
        found, left = solver.assign(order, REGISTER_LIMIT)
        if not left and found.colours < best.colours:
            best = found
    return best


def as_allocated(graph: Interference) -> Colouring:
    """The colouring the code came with: every web in its own register."""
    register_of = {w: graph.webs.webs[w].register for w in graph.nodes}
    return Colouring(register_of, max(register_of.values(), default=-1) + 1)


def clique(graph: Interference) -> int:
    """The most webs that hold a register at one point: no colouring needs fewer registers."""
    steps: dict[int, int] = {}
    for web in graph.webs.webs:
        for first, last in intervals(web.points):
            steps[first] = steps.get(first, 0) + 1
            steps[last + 1] = steps.get(last + 1, 0) - 1
    most = held = 0
    for point in sorted(steps):
        held += steps[point]
        most = max(most, held)
    return most


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
        self.near = {k: self._near(k) for k in self.groups}

    def _held(self, web: int) -> bool:
        return bool(self.graph.webs.webs[web].points)

    def _near(self, group: int) -> set[int]:
        webs = self.graph.webs
        mask = 0
        for w in webs.groups[group].webs:
            mask |= self.graph.neighbours[w]
        found = {webs.webs[w].group for w in members(mask)}
        found.discard(group)
        return found

    def orders(self) -> list[list[int]]:
        """Orders in which to give out numbers; R1 first in each."""
        webs = self.graph.webs
        first = {
            k: min(_lowest(webs.webs[w].points) for w in webs.groups[k].webs if self._held(w))
            for k in self.groups
        }
        candidates = [
            self._smallest_last(),
            sorted(self.groups, key=lambda k: (first[k], -self.size[k])),
            sorted(self.groups, key=lambda k: (-self.size[k], first[k])),
        ]
        return [
            [k for k in order if k in self.fixed] + [k for k in order if k not in self.fixed]
            for order in candidates
        ]

    def _smallest_last(self) -> list[int]:
        """Remove the group with the fewest blocked positions again and again; colour in reverse."""
        weight = {k: sum(self.size[o] for o in self.near[k]) for k in self.groups}
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
            for other in self.near[k]:
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
        base: dict[int, int] = {}
        register_of: dict[int, int] = {}
        left: list[int] = []
        top = 0
        for k in order:
            group = webs.groups[k]
            taken = 0
            for w in group.webs:
                offset = self.offset[w]
                blocked = 0
                for other in members(self.graph.neighbours[w]):
                    register = register_of.get(other)
                    if register is not None:
                        blocked |= 1 << register
                taken |= blocked >> offset
            place = self._place(k, group.alignment, taken, top, limit)
            if place is None:
                left.extend(group.webs)
                continue
            base[k] = place
            for w in group.webs:
                register_of[w] = place + self.offset[w]
                if self._held(w):
                    top = max(top, register_of[w] + 1)
        return Colouring(register_of, top), tuple(sorted(left))

    def _place(self, group: int, alignment: int, taken: int, top: int, limit: int) -> int | None:
        """The lowest free place; a single register prefers a pair that is already broken."""
        if group in self.fixed:
            return self.fixed[group]
        step = max(alignment, 1)
        place = self.phase[group]
        while (taken >> place) & 1:
            place += step
        if self.size[group] == 1 and step == 1:
            below = ((1 << top) - 1) & ~taken
            odd = _ODD & below
            broken = (odd & (taken << 1)) | (_EVEN & below & (taken >> 1))
            if broken:
                place = _lowest(broken)
        return place if place + self.size[group] <= limit else None


def _lowest(points: int) -> int:
    return (points & -points).bit_length() - 1
