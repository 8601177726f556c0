"""Control flow over a list of steps, and one fixpoint solver for every analysis of the checker.

A *step* is an instruction of one program, or a pair (or single) of the product of two programs;
the graph doesn't care. Calls to functions of the same section are followed context-insensitively:
a call's state flows into the callee; a return's state flows to every call site of each function
the return belongs to, where the analysis may add what held before the call and the callee can't
have changed. Recursion needs nothing special.

Invariant: the solver is optimistic and descends: a block without a state is unreachable, and the
result holds along every path of the graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

S = TypeVar("S")


@dataclass(frozen=True)
class StepFlow:
    """Where control goes after each step.

    `falls[k]`: to step k + 1 (after the callee returned, if it calls). `targets[k]`: other steps.
    `callee[k]`: entry step of the function it calls, or -1. `skips[k]`: the call is guarded, so
    step k + 1 may follow without it. `returns[k]`: it may return.
    """

    falls: Sequence[bool]
    targets: Sequence[tuple[int, ...]]
    callee: Sequence[int]
    skips: Sequence[bool]
    returns: Sequence[bool]


@dataclass(frozen=True)
class Graph:
    """Blocks of steps; `start[b]` to `end[b]` (exclusive) are the steps of block b."""

    flow: StepFlow
    start: list[int]
    end: list[int]
    block_at: dict[int, int]
    functions: dict[int, frozenset[int]]  # entry block -> blocks reached without calls
    sites: dict[int, list[int]]  # entry block -> blocks that end in a call of it
    owners: dict[int, list[int]]  # block that returns -> entry blocks of its functions

    def successors(self, block: int) -> list[tuple[int, bool]]:
        """Blocks entered next within the function, with whether the edge is a taken branch."""
        last = self.end[block] - 1
        found = [(self.block_at[t], True) for t in self.flow.targets[last]]
        if self.flow.falls[last] and self.end[block] in self.block_at:
            found.append((self.block_at[self.end[block]], False))
        return found

    def callee(self, block: int) -> int:
        """The entry block of the function this block's last step calls, or -1."""
        step = self.flow.callee[self.end[block] - 1]
        return -1 if step < 0 else self.block_at[step]


def build_graph(flow: StepFlow, also_leaders: Sequence[int] = ()) -> Graph:
    """Cut steps into blocks and find the functions. Step 0 is the entry."""
    count = len(flow.falls)
    leaders = {0, *also_leaders}
    for step in range(count):
        targets = flow.targets[step]
        plain = flow.falls[step] and not targets and flow.callee[step] < 0
        if plain and not flow.returns[step]:
            continue
        leaders.update(targets)
        leaders.add(step + 1)
        if flow.callee[step] >= 0:
            leaders.add(flow.callee[step])
    start = sorted(leader for leader in leaders if leader < count)
    graph = Graph(
        flow=flow,
        start=start,
        end=[*start[1:], count],
        block_at={step: block for block, step in enumerate(start)},
        functions={},
        sites={},
        owners={},
    )
    _find_functions(graph)
    return graph


def _find_functions(graph: Graph) -> None:
    todo = [0]
    while todo:
        entry = todo.pop()
        if entry in graph.functions:
            continue
        members = _reach(graph, entry)
        graph.functions[entry] = members
        for block in sorted(members):
            if graph.flow.returns[graph.end[block] - 1]:
                graph.owners.setdefault(block, []).append(entry)
            callee = graph.callee(block)
            if callee >= 0:
                sites = graph.sites.setdefault(callee, [])
                if block not in sites:
                    sites.append(block)
                todo.append(callee)


def _reach(graph: Graph, entry: int) -> frozenset[int]:
    seen = {entry}
    todo = [entry]
    while todo:
        for target, _ in graph.successors(todo.pop()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return frozenset(seen)


def closure_over_calls(graph: Graph, own: Callable[[int], int]) -> dict[int, int]:
    """For each function (by entry block) the union of `own(step)` over it and all it calls."""
    totals: dict[int, int] = {}
    for entry, members in graph.functions.items():
        total = 0
        for block in members:
            for step in range(graph.start[block], graph.end[block]):
                total |= own(step)
        totals[entry] = total
    changed = True
    while changed:
        changed = False
        for entry, members in graph.functions.items():
            total = totals[entry]
            for block in members:
                callee = graph.callee(block)
                if callee >= 0:
                    total |= totals[callee]
            if total != totals[entry]:
                totals[entry] = total
                changed = True
    return totals


class Domain(Protocol[S]):
    """What an analysis tells the solver. States may be changed in place only when copied."""

    def transfer(self, block: int, state: S) -> S:
        """The state after the last step of `block`; must not change `state`."""
        ...

    def edge(self, block: int, state: S, taken: bool) -> S:
        """The state on an edge that leaves `block`; must not change `state`."""
        ...

    def meet(self, state: S, other: S) -> tuple[S, bool]:
        """What holds in both, and whether that is less than `state`."""
        ...

    def after_call(self, block: int, before: S, returned: S) -> S:
        """The state behind the call that ends `block`, from the states around the callee."""
        ...


@dataclass
class Solution(Generic[S]):
    """States at block entries; a block that isn't listed is unreachable."""

    at: dict[int, S]


def solve(graph: Graph, domain: Domain[S], entry: S) -> Solution[S]:
    """The greatest fixpoint of `domain` over `graph` from `entry` at step 0."""
    at: dict[int, S] = {0: entry}
    calling: dict[int, S] = {}
    returned: dict[int, S] = {}
    queue = [0]
    queued = {0}

    def flow_into(block: int, state: S) -> None:
        known = at.get(block)
        if known is None:
            at[block] = state
        else:
            at[block], less = domain.meet(known, state)
            if not less:
                return
        if block not in queued:
            queued.add(block)
            heapq.heappush(queue, block)

    def resume(site: int, callee: int) -> None:
        if callee not in returned or site not in calling:
            return
        behind = domain.after_call(site, calling[site], returned[callee])
        for target, taken in graph.successors(site):
            if not taken:
                flow_into(target, behind)

    while queue:
        block = heapq.heappop(queue)
        queued.discard(block)
        state = domain.transfer(block, at[block])
        callee = graph.callee(block)
        if callee >= 0:
            calling[block] = state
            flow_into(callee, domain.edge(block, state, True))
            resume(block, callee)
            if not graph.flow.skips[graph.end[block] - 1]:
                continue
        for target, taken in graph.successors(block):
            flow_into(target, domain.edge(block, state, taken))
        for owner in graph.owners.get(block, ()):
            leaving = domain.edge(block, state, True)
            known = returned.get(owner)
            if known is None:
                returned[owner] = leaving
            else:
                returned[owner], less = domain.meet(known, leaving)
                if not less:
                    continue
            for site in graph.sites.get(owner, ()):
                resume(site, owner)
    return Solution(at)
