"""Exact answers about an interference graph, by OR-tools' CP-SAT (`pip install regdem[exact]`).

Problem: colouring with aligned tuples is NP-hard, and the greedy orders of `interference.py` only
find what they find. Is there no colouring with 40 registers, or was none found? And if there is
none, how few values have to go?

Method: a group's place (the number of its first register) is one choice among the multiples of its
alignment. Groups that keep a free place whatever their neighbours do are taken away, again and
again (Kempe; Chaitin's simplification), and are given numbers last. For the core that remains, at
every maximal set of webs that hold registers together, a number goes to at most one of them. Each
group is placed or left out; the fewest registers are left out. With none left out the count is
enough.

Invariants: a solution is checked against the graph before it is returned. `proved` is set only
where the solver has proved its optimum; the answer for a graph does not depend on the machine's
speed except through the limit on seconds.

Not claimed: an answer within the limits. A graph too large to be written down gets none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from regdem.analysis.interference import Interference, fit
from regdem.analysis.webs import STACK_POINTER

DEFAULT_SECONDS = 20.0
_MOST_LITERALS = 6_000_000
HINT = "pip install 'regdem[exact]'"


@dataclass(frozen=True)
class ExactFit:
    """Whether `registers` numbers suffice.

    `fits`: True, False, or None where the limits were reached first. `in_the_way`: the webs left
    out in the best answer; `proved`: no fewer registers can be left out.
    """

    registers: int
    fits: bool | None
    in_the_way: tuple[int, ...]
    proved: bool
    register_of: dict[int, int]


@dataclass(frozen=True)
class ExactBound:
    """The least count: at least `low`, at most `high`; the same where it is proved."""

    low: int
    high: int

    @property
    def proved(self) -> bool:
        """Whether the least count is known."""
        return self.low == self.high


def is_available() -> bool:
    """Whether OR-tools is installed."""
    return find_spec("ortools") is not None


def exact_fit(graph: Interference, registers: int, seconds: float = DEFAULT_SECONDS) -> ExactFit:
    """Answers for one count. Raises ModuleNotFoundError without OR-tools (see `is_available`)."""
    greedy = fit(graph, registers)
    if greedy.fits:
        return ExactFit(registers, True, (), True, {})
    core = _Core(graph, registers)
    answer = core.solve(seconds)
    if answer is None:
        certain = graph.clique > registers
        return ExactFit(registers, False if certain else None, greedy.in_the_way, False, {})
    placed, left, proved = answer
    if left:
        fits = False if proved or graph.clique > registers else None
        return ExactFit(registers, fits, left, proved, {})
    register_of = core.complete(placed)
    _check(graph, register_of, registers)
    return ExactFit(registers, True, (), True, register_of)


def exact_bound(graph: Interference, colours: int, seconds: float = DEFAULT_SECONDS) -> ExactBound:
    """The least count, downwards from a colouring with `colours`; `seconds` for each step."""
    high = colours
    while high > graph.clique:
        answer = exact_fit(graph, high - 1, seconds)
        if answer.fits:
            high = max(answer.register_of.values(), default=high - 2) + 1
        elif answer.fits is None:
            return ExactBound(graph.clique, high)
        else:
            return ExactBound(high, high)
    return ExactBound(high, high)


class _Core:
    """The groups that are not trivially placed, and the order in which the others were removed."""

    def __init__(self, graph: Interference, registers: int) -> None:
        self.graph = graph
        self.registers = registers
        webs = graph.webs
        self.groups = [
            k for k, group in enumerate(webs.groups) if any(graph.own[w] for w in group.webs)
        ]
        self.pinned = {
            k
            for k in self.groups
            if any(webs.webs[w].register == STACK_POINTER for w in webs.groups[k].webs)
        }
        group_of = [web.group for web in webs.webs]
        self.near = {
            k: {group_of[o] for w in webs.groups[k].webs for o in graph.neighbours[w]} - {k}
            for k in self.groups
        }
        self.removed = self._simplify()
        gone = set(self.removed)
        self.core = [k for k in self.groups if k not in gone]

    def places(self, k: int) -> range:
        """The numbers a group may begin at."""
        group = self.graph.webs.groups[k]
        if k in self.pinned:
            return range(group.low, group.low + 1)
        step = max(group.alignment, 1)
        return range(group.low % step, self.registers - (group.high - group.low), step)

    def _simplify(self) -> list[int]:
        """Groups in order of removal: each had a place left over whatever its neighbours took."""
        size = {k: g.high - g.low + 1 for k, g in enumerate(self.graph.webs.groups)}
        step = {k: max(g.alignment, 1) for k, g in enumerate(self.graph.webs.groups)}
        count = {k: len(self.places(k)) for k in self.groups}

        def blocked(k: int, by: int) -> int:
            return 1 + (size[k] + size[by] - 2) // step[k]

        load = {k: sum(blocked(k, other) for other in self.near[k]) for k in self.groups}
        removed: list[int] = []
        gone: set[int] = set()
        work = deque(self.groups)
        while work:
            k = work.popleft()
            if k in gone or k in self.pinned or load[k] >= count[k]:
                continue
            gone.add(k)
            removed.append(k)
            for other in self.near[k]:
                if other not in gone:
                    load[other] -= blocked(other, k)
                    work.append(other)
        return removed

    def solve(self, seconds: float) -> tuple[dict[int, int], tuple[int, ...], bool] | None:
        """(place of each placed group, webs left out, proved); None without an answer."""
        from ortools.sat.python import cp_model

        webs = self.graph.webs
        crowds = self._crowds()
        if self.registers * sum(map(len, crowds)) > _MOST_LITERALS:
            return None
        model: Any = cp_model.CpModel()
        chosen: dict[int, dict[int, Any]] = {}
        for k in self.core:
            chosen[k] = {place: model.new_bool_var("") for place in self.places(k)}
            if k in self.pinned:
                model.add_exactly_one(chosen[k].values())
            else:
                model.add_at_most_one(chosen[k].values())
        for crowd in crowds:
            holders: list[list[Any]] = [[] for _ in range(self.registers)]
            for w in crowd:
                k = webs.webs[w].group
                offset = webs.webs[w].register - webs.groups[k].low
                for place, literal in chosen[k].items():
                    holders[place + offset].append(literal)
            for literals in holders:
                if len(literals) > 1:
                    model.add_at_most_one(literals)
        model.maximize(
            sum(len(webs.groups[k].webs) * x for k in self.core for x in chosen[k].values())
        )
        solver: Any = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        status = solver.solve(model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        placed: dict[int, int] = {}
        left: list[int] = []
        for k, places in chosen.items():
            at = next((place for place, x in places.items() if solver.boolean_value(x)), None)
            if at is None:
                left.extend(webs.groups[k].webs)
            else:
                placed[k] = at
        return placed, tuple(sorted(left)), status == cp_model.OPTIMAL

    def _crowds(self) -> list[list[int]]:
        """The maximal sets of core webs that hold registers together."""
        graph = self.graph
        inside = set(self.core)
        open_: dict[int, int] = {}
        found: dict[frozenset[int], None] = {}
        grown = False
        for k, w in enumerate(graph.holder):
            if graph.webs.webs[w].group not in inside:
                continue
            ended = [e for e, last in open_.items() if last < graph.first_points[k]]
            if ended and grown:
                found[frozenset(graph.holder[e] for e in open_)] = None
                grown = False
            for e in ended:
                del open_[e]
            open_[k] = graph.last_points[k]
            grown = True
        if grown:
            found[frozenset(graph.holder[e] for e in open_)] = None
        return [sorted(crowd) for crowd in found if len(crowd) > 1]

    def complete(self, placed: dict[int, int]) -> dict[int, int]:
        """The numbers of all webs: the removed groups go back in reverse order."""
        graph, webs = self.graph, self.graph.webs
        register_of: dict[int, int] = {}

        def put(k: int, at: int) -> None:
            for w in webs.groups[k].webs:
                register_of[w] = at + webs.webs[w].register - webs.groups[k].low

        for k, at in placed.items():
            put(k, at)
        for k in reversed(self.removed):
            group = webs.groups[k]
            taken = {
                register_of[o] - (webs.webs[w].register - group.low)
                for w in group.webs
                for o in graph.neighbours[w]
                if o in register_of
            }
            put(k, next(place for place in self.places(k) if place not in taken))
        return register_of


def _check(graph: Interference, register_of: dict[int, int], registers: int) -> None:
    for w in graph.nodes:
        mine = register_of[w]
        if mine >= registers or any(register_of[o] == mine for o in graph.neighbours[w]):
            raise AssertionError("the exact colouring is not legal")
