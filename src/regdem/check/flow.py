"""Control flow of one decoded kernel, from its bytes and its branch tables.

Indirect control flow with unknown targets, calls out of the section and calls through registers
raise `UnsupportedError`: a proof over a graph that may miss an edge would prove nothing.

BSYNC continues at the target of the BSSY that armed its convergence barrier, found by a forward
dataflow; where none is seen (a barrier restored by BMOV) it continues behind itself, and also at
every target of the barrier's BSSYs unless the place behind it is one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regdem.check.graph import Graph, StepFlow, build_graph, solve
from regdem.check.view import CodeView
from regdem.errors import UnsupportedError

_ALWAYS = 7  # predicate operand of a branch in bits 87 to 90: true


@dataclass(frozen=True)
class BranchTable:
    """The targets of one indirect branch, as instruction indices, in table order."""

    branch: int
    targets: tuple[int, ...]


def flow_of(view: CodeView, tables: Sequence[BranchTable]) -> StepFlow:
    """Where control goes after each instruction of `view`."""
    count = len(view)
    table_targets = {table.branch: table.targets for table in tables}
    falls = [True] * count
    targets: list[tuple[int, ...]] = [()] * count
    callee = [-1] * count
    skips = [False] * count
    returns = [False] * count
    for i, kind in enumerate(view.control):
        if kind == "none" or kind == "barrier":
            continue
        guarded = view.guard[i] >= 0
        if kind in ("branch", "warpsync"):
            targets[i] = (_inside(view, i),)
            falls[i] = kind == "warpsync" or guarded or _conditional(view, i)
        elif kind == "call":
            callee[i] = _inside(view, i)
            skips[i] = guarded
        elif kind == "return":
            returns[i] = True
            falls[i] = guarded
        elif kind == "exit":
            falls[i] = guarded or _conditional(view, i)
        elif kind == "indirect":
            if i not in table_targets:
                raise _unsupported(view, i, "an indirect branch has unknown targets")
            targets[i] = table_targets[i]
            falls[i] = guarded
        elif kind == "call_register":
            raise _unsupported(view, i, "a call through a register has unknown targets")
    flow = StepFlow(falls, targets, callee, skips, returns)
    if "bsync" in view.control:
        for i, armed in _reconvergence(view, flow).items():
            targets[i] = tuple(t for t in armed if t != i + 1)
            falls[i] = i + 1 in armed or not armed or view.guard[i] >= 0
    return flow


_Armed = dict[int, frozenset[int]]
"""Convergence barrier -> the targets of the BSSYs that may have armed it last."""


class _Barriers:
    """The domain: which BSSY armed each barrier."""

    def __init__(self, view: CodeView, graph: Graph) -> None:
        self.view = view
        self.graph = graph

    def transfer(self, block: int, state: _Armed) -> _Armed:
        armed = dict(state)
        for i in range(self.graph.start[block], self.graph.end[block]):
            if self.view.control[i] == "bssy":
                armed[_barrier(self.view, i)] = frozenset((_inside(self.view, i),))
        return armed

    def edge(self, block: int, state: _Armed, taken: bool) -> _Armed:
        del taken
        return {} if self.graph.callee(block) >= 0 else state

    def meet(self, state: _Armed, other: _Armed) -> tuple[_Armed, bool]:
        empty: frozenset[int] = frozenset()
        met = {b: state.get(b, empty) | other.get(b, empty) for b in state.keys() | other.keys()}
        return met, met != state

    def after_call(self, block: int, before: _Armed, returned: _Armed) -> _Armed:
        del block, returned
        return before


def _reconvergence(view: CodeView, flow: StepFlow) -> dict[int, tuple[int, ...]]:
    """BSYNC -> where it may continue; empty where no BSSY is seen."""
    graph = build_graph(flow)
    domain = _Barriers(view, graph)
    start: _Armed = {}
    states = solve(graph, domain, start).at
    everywhere: dict[int, set[int]] = {}
    for i, kind in enumerate(view.control):
        if kind == "bssy":
            everywhere.setdefault(_barrier(view, i), set()).add(_inside(view, i))
    found: dict[int, tuple[int, ...]] = {}
    for block, state in states.items():
        armed = dict(state)
        for i in range(graph.start[block], graph.end[block]):
            if view.control[i] == "bssy":
                armed[_barrier(view, i)] = frozenset((_inside(view, i),))
            elif view.control[i] == "bsync":
                seen = armed.get(_barrier(view, i), frozenset())
                if not seen and i + 1 not in everywhere.get(_barrier(view, i), ()):
                    seen = frozenset((i + 1, *everywhere.get(_barrier(view, i), ())))
                found[i] = tuple(sorted(seen))
    return found


def _conditional(view: CodeView, i: int) -> bool:
    """Whether a branch or exit has a condition beside its guard."""
    return bool(view.rows[i]) or (view.high[i] >> 23 & 0xF) != _ALWAYS


def _barrier(view: CodeView, i: int) -> int:
    return view.low[i] >> 16 & 0xF


def _inside(view: CodeView, i: int) -> int:
    target = view.target[i]
    if not 0 <= target < len(view):
        raise _unsupported(view, i, "control leaves the kernel's code section")
    return target


def _unsupported(view: CodeView, i: int, message: str) -> UnsupportedError:
    return UnsupportedError(
        f"{view.name[i]}: {message}", code="control_flow", kernel=view.kernel, offset=16 * i
    )
