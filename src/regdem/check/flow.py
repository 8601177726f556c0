"""Control flow of one decoded kernel, from its bytes and its branch tables.

Indirect control flow with unknown targets, calls out of the section and calls through registers
raise `UnsupportedError`: a proof over a graph that may miss an edge would prove nothing.

BSYNC continues behind itself and at the targets of every BSSY of the same convergence barrier;
both edges are kept, which can only make the checks stricter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regdem.check.graph import StepFlow
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
    barrier_targets = _barrier_targets(view)
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
        elif kind == "bsync":
            targets[i] = tuple(t for t in barrier_targets.get(_barrier(view, i), ()) if t != i + 1)
        elif kind == "indirect":
            if i not in table_targets:
                raise _unsupported(view, i, "an indirect branch has unknown targets")
            targets[i] = table_targets[i]
            falls[i] = guarded
        elif kind == "call_register":
            raise _unsupported(view, i, "a call through a register has unknown targets")
    return StepFlow(falls, targets, callee, skips, returns)


def _conditional(view: CodeView, i: int) -> bool:
    """Whether a branch or exit has a condition beside its guard."""
    return bool(view.rows[i]) or (view.high[i] >> 23 & 0xF) != _ALWAYS


def _barrier(view: CodeView, i: int) -> int:
    return view.low[i] >> 16 & 0xF


def _barrier_targets(view: CodeView) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for i, kind in enumerate(view.control):
        if kind == "bssy":
            barrier = _barrier(view, i)
            target = _inside(view, i)
            if target not in found.get(barrier, ()):
                found[barrier] = (*found.get(barrier, ()), target)
    return found


def _inside(view: CodeView, i: int) -> int:
    target = view.target[i]
    if not 0 <= target < len(view):
        raise _unsupported(view, i, "control leaves the kernel's code section")
    return target


def _unsupported(view: CodeView, i: int, message: str) -> UnsupportedError:
    return UnsupportedError(
        f"{view.name[i]}: {message}", code="control_flow", kernel=view.kernel, offset=16 * i
    )
