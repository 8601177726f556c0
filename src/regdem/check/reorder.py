"""The original in the order of the rewritten program, where straight-line code was reordered.

Problem: the product of two programs (`product.py`) takes their instructions in the same order. A
rewrite that schedules anew has another one within the stretches between fences.

Method: `stretches.py` cuts both programs alike, `matching.py` guesses which instruction is which.
Each stretch of the original is put in the order that its counterparts have; what has none is put as
early as what it needs and what needs the registers it overwrites allow. `order.py` proves for each
stretch that is in another order now that the original may run so, with versions for registers.
What comes out is a view of the original like any other: fences, targets and symbols keep their
index, only instructions within stretches change theirs.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from regdem.check.graph import StepFlow
from regdem.check.matching import Held, Matcher, Text
from regdem.check.order import READ, UPDATE, Commit, Passed, accesses_in, may_be_renamed, names_for
from regdem.check.places import MEMORY_BASE
from regdem.check.stretches import Laid, Stretch, Stretches, next_stretches, stretches_of
from regdem.check.view import CodeView

_FEW = 4


@dataclass(frozen=True)
class Reordered:
    """The original in its new order.

    `view` has version numbers where registers were renamed; `origin[k]` is the instruction of the
    original at place k, `place` the inverse. `commits` stand behind places. `pairs` are (place,
    instruction of the rewritten program) in ascending order. `passed` are the pairs of instructions
    of the original that may not be in this order: where there are any, nothing is proved.
    `inside` are the places that are within a stretch in another order, behind its first.
    """

    view: CodeView
    origin: list[int]
    place: list[int]
    commits: dict[int, Commit]
    pairs: list[tuple[int, int]]
    passed: list[Passed]
    inside: frozenset[int] = frozenset()

    def pairs_of_instructions(self) -> list[tuple[int, int]]:
        """`pairs` with instructions of the original instead of places."""
        return [(self.origin[k], j) for k, j in self.pairs]


def in_order(view: CodeView, pairs: list[tuple[int, int]]) -> Reordered:
    """The original as it is."""
    same = list(range(len(view)))
    return Reordered(view, same, same, {}, pairs, [])


def seems_reordered(original: Text, rewritten: Text) -> bool:
    """Whether many instructions stand in another order: a cheap guess that saves a failing proof.

    Between two changes of control, texts that both programs have equally often are compared.
    """
    moved = count = 0
    first, second = (_between_control(text) for text in (original, rewritten))
    for mine, theirs in zip(first, second, strict=False):
        if mine == theirs:
            continue
        often, also = Counter(mine), Counter(theirs)
        places: dict[Hashable, list[int]] = {}
        for k, key in enumerate(theirs):
            if often[key] == also[key]:
                places.setdefault(key, []).append(k)
        at = [places[key].pop(0) for key in mine if key in places]
        rising: list[int] = []  # ends of the shortest rising sequences
        for k in at:
            spot = bisect_left(rising, k)
            rising[spot : spot + 1] = [k]
        moved += len(at) - len(rising)
        count += len(at)
    return moved > _FEW + count // 50


def _between_control(text: Text) -> list[list[Hashable]]:
    stretches: list[list[Hashable]] = [[]]
    for key, control in zip(text.keys, text.view.control, strict=True):
        if control == "none":
            stretches[-1].append(key)
        else:
            stretches.append([])
    return stretches


def reorder(
    original: Text,
    first: StepFlow,
    rewritten: Text,
    second: StepFlow,
    symbols: Iterable[tuple[int, int]],
) -> Reordered | None:
    """Match two programs whose stretches correspond; None where they don't."""
    stretches = stretches_of(
        Laid(original.view, first, original.keys),
        Laid(rewritten.view, second, rewritten.keys),
        symbols,
    )
    if stretches is None:
        return None
    matcher = Matcher(original, rewritten)
    _visit(matcher, stretches, first, second)
    partner = dict(matcher.pairs())
    view = original.view
    origin = list(range(len(view)))
    commits: dict[int, Commit] = {}
    passed: list[Passed] = []
    edits: dict[int, tuple[tuple[int, ...], tuple[int, ...], int]] = {}
    words = [word for reached in original.words.values() for word in reached]
    inside: set[int] = set()
    first_version = max(words, default=MEMORY_BASE - 1) + 1
    for stretch in stretches.listed:
        order = _order(original, stretch, partner)
        assert sorted(order) == list(range(stretch.first, stretch.first_end))
        if all(i == k for k, i in enumerate(order, stretch.first)):
            continue
        names = names_for(view, original.words, order, first_version)
        if isinstance(names, Passed):
            passed.append(names)
            continue
        origin[stretch.first : stretch.first_end] = order
        inside.update(range(stretch.first + 1, stretch.first_end))
        for i in names.reads.keys() | names.writes.keys():
            edits[i] = _renamed(view, i, names.reads.get(i, {}), names.writes.get(i, {}))
        if names.dead:
            register_of = {version: register for register, version in names.copies}
            commits[stretch.first_end - 1] = Commit(register_of, names.dead)
    place = [0] * len(origin)
    for k, i in enumerate(origin):
        place[i] = k
    pairs = sorted((place[i], j) for i, j in partner.items())
    moved = _permuted(view, origin, edits)
    return Reordered(moved, origin, place, commits, pairs, passed, frozenset(inside))


def _visit(matcher: Matcher, stretches: Stretches, first: StepFlow, second: StepFlow) -> None:
    """Run the matcher along a spanning tree of the paths, then over what no path reaches."""
    seen: dict[int, tuple[Held, Held]] = {}
    todo = [(k, Held(), Held()) for k in range(len(stretches.listed) - 1, -1, -1)]
    while todo:
        k, mine, theirs = todo.pop()
        while k not in seen:
            seen[k] = mine.copy(), theirs.copy()
            matcher.run(stretches.listed[k], mine, theirs)
            following, callee = next_stretches(stretches, k, first, second)
            if callee >= 0:
                following.append(callee)
            if not following:
                break
            for other in following[:-1]:
                todo.append((other, mine.copy(), theirs.copy()))
            k = following[-1]
        else:
            matcher.join(seen[k], (mine, theirs))


def _order(text: Text, stretch: Stretch, partner: Mapping[int, int]) -> list[int]:
    """A stretch of the original in the order of its counterparts.

    What has none comes once all that precedes it by some dependence has come, or when it is needed.
    """
    members = range(stretch.first, stretch.first_end)
    matched = sorted((i for i in members if i in partner), key=lambda i: partner[i])
    if len(matched) == len(members):
        return matched
    if matched == sorted(matched):
        return list(members)
    needs, waits = _dependences(text, members)
    behind: dict[int, list[int]] = {i: [] for i in members}
    for i in members:
        for other in waits[i]:
            behind[other].append(i)
    missing = {i: len(waits[i]) for i in members}
    ready = [i for i in members if i not in partner and not missing[i]]
    order: list[int] = []
    done: set[int] = set()

    def emit(i: int) -> None:
        todo = [i]
        while todo:
            each = todo[-1]
            lacking = [n for n in needs[each] if n not in done and n not in partner]
            if each in done:
                todo.pop()
            elif lacking:
                todo.extend(lacking)
            else:
                todo.pop()
                done.add(each)
                order.append(each)
                for other in behind[each]:
                    missing[other] -= 1
                    if not missing[other] and other not in partner:
                        heapq.heappush(ready, other)

    for i in [*matched, -1]:
        while ready:
            emit(heapq.heappop(ready))
        if i >= 0:
            emit(i)
    for i in members:
        emit(i)
    return order


def _dependences(text: Text, members: Sequence[int]) -> tuple[dict[int, set[int]], ...]:
    """What each instruction needs, and what it waits for beside that if it can be had."""
    needs: dict[int, set[int]] = {i: set() for i in members}
    waits: dict[int, set[int]] = {i: set() for i in members}
    for value, accesses in accesses_in(text.view, text.words, members).items():
        writer = -1
        readers: list[int] = []
        for i, kind in accesses:
            before = [writer] if kind == READ else [writer, *readers]
            must = kind in (READ, UPDATE) or not may_be_renamed(value)
            for other in before:
                if other >= 0 and other != i:
                    waits[i].add(other)
                    if must:
                        needs[i].add(other)
            if kind == READ:
                readers.append(i)
            else:
                writer, readers = i, []
    return needs, waits


def _renamed(
    view: CodeView, i: int, reads: Mapping[int, int], writes: Mapping[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """What instruction `i` reads and writes, and its guard, with versions."""
    guard = view.guard[i]
    return (
        tuple(reads.get(value, value) for value in view.reads[i]),
        tuple(writes.get(value, value) for value in view.writes[i]),
        reads.get(guard, guard),
    )


def _permuted(
    view: CodeView,
    origin: Sequence[int],
    edits: Mapping[int, tuple[tuple[int, ...], tuple[int, ...], int]],
) -> CodeView:
    """`view` in another order; `code` stays that of the original."""
    if not edits and all(i == k for k, i in enumerate(origin)):
        return view
    columns: dict[str, Any] = {}
    for column in fields(view):
        values = getattr(view, column.name)
        if isinstance(values, list):
            columns[column.name] = [values[i] for i in origin]
    for k, i in enumerate(origin):
        if i in edits:
            columns["reads"][k], columns["writes"][k], columns["guard"][k] = edits[i]
    return replace(view, **columns)
