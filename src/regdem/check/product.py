"""Two aligned programs as one list of steps with one control-flow graph.

A step executes an instruction of the original and its partner together, or one of either alone:
(i, j), (i, -1) for a dropped one, (-1, j) for an inserted one. A *cut* is a point between steps;
it stands before instruction i of the original and j of the rewritten program at once. Control may
enter the product at a cut only, so every branch must lead both programs to the same cut: this is
what makes "the same paths" precise, and a branch whose two targets don't correspond is a finding.
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.check.findings import Finding
from regdem.check.graph import Graph, StepFlow, build_graph
from regdem.check.view import CodeView

_ARMS = ("bssy",)
"""Control that names a place to meet at, without going there."""
_FOLLOWED = ("branch", "call", "return", "indirect", "warpsync", "bssy")


@dataclass(frozen=True)
class Product:
    """`steps[k]` = (original or -1, rewritten or -1); `graph` runs over steps."""

    steps: list[tuple[int, int]]
    graph: Graph


def build_product(
    original: CodeView,
    first: StepFlow,
    rewritten: CodeView,
    second: StepFlow,
    pairs: list[tuple[int, int]],
) -> tuple[Product | None, list[Finding]]:
    """Merge two aligned programs; findings instead where their branches don't correspond."""
    kernel = rewritten.kernel
    entries = _entries(pairs, first, second, original, rewritten)
    steps = _merge(pairs, len(original), len(rewritten), entries)
    cuts: dict[tuple[int, int], int] = {}
    i = j = 0
    for k, (a, b) in enumerate(steps):
        cuts[i, j] = k
        i += a >= 0
        j += b >= 0
    count = len(steps)
    falls = [True] * count
    targets: list[tuple[int, ...]] = [()] * count
    callee = [-1] * count
    skips = [False] * count
    returns = [False] * count
    findings: list[Finding] = []
    for k, (a, b) in enumerate(steps):
        if a < 0 or b < 0:
            continue
        falls[k] = first.falls[a]
        skips[k] = first.skips[a]
        returns[k] = first.returns[a]
        wanted = list(zip(first.targets[a], second.targets[b], strict=False))
        same = len(first.targets[a]) == len(second.targets[b]) and (
            first.falls[a],
            first.skips[a],
            first.returns[a],
            first.callee[a] < 0,
        ) == (second.falls[b], second.skips[b], second.returns[b], second.callee[b] < 0)
        if first.callee[a] >= 0:
            wanted.append((first.callee[a], second.callee[b]))
        if original.control[a] in _ARMS:
            wanted.append((original.target[a], rewritten.target[b]))
        elif original.target[a] >= 0 and original.control[a] not in _FOLLOWED:
            same = False
        found = [cuts.get(pair, -1) for pair in wanted]
        if not same or -1 in found:
            where = ", ".join(f"0x{16 * t:x} / 0x{16 * u:x}" for t, u in wanted)
            message = f"{original.name[a]} leads to places that don't correspond ({where})"
            findings.append(Finding("branch_target", kernel, 16 * b, message))
            continue
        if original.control[a] in _ARMS:
            found.pop()
        if first.callee[a] >= 0:
            callee[k] = found.pop()
        targets[k] = tuple(found)
    if findings:
        return None, findings
    graph = build_graph(StepFlow(falls, targets, callee, skips, returns))
    return Product(steps, graph), []


def _entries(
    pairs: list[tuple[int, int]],
    first: StepFlow,
    second: StepFlow,
    original: CodeView,
    rewritten: CodeView,
) -> list[tuple[int, int]]:
    """Pairs of targets that matched branches and calls name, in ascending order."""
    entries: set[tuple[int, int]] = set()
    for a, b in pairs:
        entries.update(zip(first.targets[a], second.targets[b], strict=False))
        if original.control[a] in _ARMS:
            entries.add((original.target[a], rewritten.target[b]))
        if first.callee[a] >= 0 and second.callee[b] >= 0:
            entries.add((first.callee[a], second.callee[b]))
    return sorted(entries, key=lambda entry: (entry[1], entry[0]))


def _merge(
    pairs: list[tuple[int, int]],
    count_first: int,
    count_second: int,
    entries: list[tuple[int, int]],
) -> list[tuple[int, int]]:
    """All steps in order; between pairs, dropped instructions come before inserted ones.

    Where branches enter such a stretch, it is split there first.
    """
    steps: list[tuple[int, int]] = []
    at = 0
    i = j = 0
    for a, b in [*pairs, (count_first, count_second)]:
        while at < len(entries) and entries[at][1] <= b:
            t, u = entries[at]
            at += 1
            if i <= t <= a and j <= u:
                steps.extend((x, -1) for x in range(i, t))
                steps.extend((-1, y) for y in range(j, u))
                i, j = t, u
        steps.extend((x, -1) for x in range(i, a))
        steps.extend((-1, y) for y in range(j, b))
        if a < count_first:
            steps.append((a, b))
        i, j = a + 1, b + 1
    return steps
