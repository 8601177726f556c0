"""Corresponding stretches of two programs: what lies between fences and targets of branches.

Problem: instructions may change places only within code that is always run from its begin to its
end, and that nothing divides which may not be passed. Both programs must have the same divisions.

Method: fences (`effects.py`) must be the same in both, in order. Where matched branches lead, both
programs are cut. Each fence is a stretch of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regdem.check.effects import FENCE, effect
from regdem.check.graph import StepFlow
from regdem.check.view import CodeView


@dataclass(frozen=True)
class Stretch:
    """Instructions [first, first_end) of the original, [second, second_end) of the rewritten."""

    first: int
    first_end: int
    second: int
    second_end: int
    is_fence: bool


@dataclass(frozen=True)
class Stretches:
    """All of both programs, in order; `starts` finds a stretch by where it begins."""

    listed: list[Stretch]
    starts: dict[tuple[int, int], int]


@dataclass(frozen=True)
class Laid:
    """One program as it is cut; `keys` as in `matching.Text`."""

    view: CodeView
    flow: StepFlow
    keys: Sequence[Hashable]


def stretches_of(first: Laid, second: Laid, symbols: Iterable[tuple[int, int]]) -> Stretches | None:
    """Cut two programs alike, also at `symbols`; None where they don't correspond."""
    fences = [_fences(first), _fences(second)]
    if [first.keys[i] for i in fences[0]] != [second.keys[j] for j in fences[1]]:
        return None
    pairs = list(zip(fences[0], fences[1], strict=True))
    cuts = {(0, 0), (len(first.view), len(second.view)), *symbols}
    for a, b in pairs:
        cuts.update(((a, b), (a + 1, b + 1)))
        cuts.update(zip(first.flow.targets[a], second.flow.targets[b], strict=False))
        if first.flow.callee[a] >= 0:
            cuts.add((first.flow.callee[a], second.flow.callee[b]))
        if first.view.control[a] == "bssy":
            cuts.add((first.view.target[a], second.view.target[b]))
    ordered = sorted(cuts)
    if any(a[1] > b[1] for a, b in pairwise(ordered)):
        return None
    fenced = set(pairs)
    listed = [
        Stretch(a[0], b[0], a[1], b[1], a in fenced and b == (a[0] + 1, a[1] + 1))
        for a, b in pairwise(ordered)
    ]
    starts = {(each.first, each.second): k for k, each in enumerate(listed)}
    return Stretches(listed, starts)


def _fences(text: Laid) -> list[int]:
    return [i for i in range(len(text.view)) if effect(text.view, i) == FENCE]


def next_stretches(
    stretches: Stretches, k: int, first: StepFlow, second: StepFlow
) -> tuple[list[int], int]:
    """Where control goes behind stretch `k`: stretches, and the one of a called function or -1."""
    stretch = stretches.listed[k]
    found: list[int] = []
    callee = -1
    falls = True
    if stretch.is_fence:
        a, b = stretch.first, stretch.second
        targets = zip(first.targets[a], second.targets[b], strict=False)
        found = [stretches.starts[target] for target in targets if target in stretches.starts]
        callee = stretches.starts.get((first.callee[a], second.callee[b]), -1)
        falls = first.falls[a]
    if falls and k + 1 < len(stretches.listed):
        found.append(k + 1)
    return found, callee
