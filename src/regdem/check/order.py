"""Whether straight-line code may run in another order, proved on the original alone.

Problem: given a stretch of the original without control flow or fences and a new order of its
instructions, show that the new order does the same, though registers are reused in it.

Method: a register whose accesses keep their order around every write (the usual case) keeps its
name. Any other general register or predicate is renamed to single assignment: each unguarded
definition makes a new *version*, a value number of its own; a guarded one writes in place into
the version it finds. The stretch with versions does what the stretch without did, if the last
version is copied to the register at the end (the *commit*); where no access of the entry's version
comes behind, it may have the register's name at once. With versions only true dependences are
left, and those on what isn't renamed (uniform registers, words of the frame, guarded writes): each
must hold in the new order, and memory keeps its order (`effects.py`).

Invariants: nothing is believed about where the order comes from: an order that fails gives the two
instructions that may not pass each other. Version numbers of predicates lie in the range that the
state (`state.py`) takes for predicates, all others beyond the frame's words; a number is given
again only behind the last access of its version, in the new order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from regdem.check.effects import FENCE, EffectOrder, effect
from regdem.check.places import FILE_BASE, PREDICATE_VERSIONS
from regdem.check.purity import never_happens
from regdem.check.view import CodeView

READ, WRITE, UPDATE = 0, 1, 2
"""Kinds of access; an update is a guarded write, which needs what was there."""

Accesses = dict[int, list[tuple[int, int]]]
"""Value -> (instruction, kind) in the original's order; an instruction's reads come first."""


@dataclass
class Names:
    """Versions by instruction of the original, and what is copied behind the stretch.

    `copies` are (register, version) pairs; `dead` is a mask of all versions used.
    """

    reads: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    writes: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    copies: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    dead: int = 0


@dataclass(frozen=True)
class Commit:
    """Behind a reordered stretch: what registers hold (version -> register), versions that end."""

    register_of: Mapping[int, int]
    dead: int


@dataclass(frozen=True)
class Passed:
    """Instruction `late` of the original must not run before `early` did."""

    early: int
    late: int
    why: str


def accesses_in(
    view: CodeView, private: Mapping[int, tuple[int, ...]], stretch: Sequence[int]
) -> Accesses:
    """Who touches each register and each word of the private frame, in the order of `stretch`."""
    found: Accesses = {}
    for i in stretch:
        if never_happens(view, i):
            continue
        writes = view.writes[i]
        words = private.get(i, ())
        if words and view.name[i] == "STL":
            writes = (*writes, *words)
        else:
            for word in words:
                found.setdefault(word, []).append((i, READ))
        for value in view.reads[i]:
            found.setdefault(value, []).append((i, READ))
        if view.guard[i] >= 0:
            found.setdefault(view.guard[i], []).append((i, READ))
        kind = WRITE if view.guard[i] < 0 else UPDATE
        for value in writes:
            found.setdefault(value, []).append((i, kind))
    return found


def may_be_renamed(value: int) -> bool:
    """General registers and predicates; uniform registers belong to the whole warp."""
    return value < FILE_BASE[1] or FILE_BASE[2] <= value < FILE_BASE[3]


def names_for(
    view: CodeView,
    private: Mapping[int, tuple[int, ...]],
    order: Sequence[int],
    first_version: int,
) -> Names | Passed:
    """Prove that a stretch may run in `order`; the versions that make it so, or who may not pass.

    `order` lists the stretch's instructions, all of them, none of them a fence.
    `first_version` is a value number from which on none is in use.
    """
    stretch = sorted(order)
    at = {i: k for k, i in enumerate(order)}
    effects = EffectOrder(view, at)
    for i in stretch:
        if effect(view, i) == FENCE:
            return Passed(i, i, "it may not move")
        if i in private:
            effects.wrote(i)
            continue
        early = effects.behind(i)
        if early is not None:
            return Passed(early, i, "both access memory, or other lanes")
    names = Names()
    wanted: list[_Version] = []
    for value, accesses in accesses_in(view, private, stretch).items():
        passed = _out_of_order(accesses, at)
        if passed is None:
            continue
        if not may_be_renamed(value):
            return passed
        versions = list(_versions(value, accesses, at, len(order)))
        for version in versions:
            passed = _out_of_order(version.accesses, at)
            if passed is not None:
                return passed
        wanted.extend(versions[1:])
        _keep_last(wanted, versions)
    if not _number(wanted, names, first_version):
        return Passed(stretch[0], stretch[-1], "too many predicates would be needed between them")
    return names


def _out_of_order(accesses: list[tuple[int, int]], at: Mapping[int, int]) -> Passed | None:
    """Two accesses, one of them a write, that are not in the original's order; None if none are."""
    writer = (-1, -1)  # (place in the new order, instruction)
    latest = (-1, -1)
    for i, kind in accesses:
        here = (at[i], i)
        bound = writer if kind == READ else latest
        if here[0] < bound[0]:
            why = "it reads what that writes" if kind == READ else "it overwrites what that uses"
            return Passed(bound[1], i, why)
        latest = max(latest, here)
        if kind != READ:
            writer = here
    return None


@dataclass
class _Version:
    """One value that a register has within the stretch; `start` and `end` are new places."""

    value: int
    accesses: list[tuple[int, int]]
    start: int
    end: int
    is_last: bool


def _versions(
    value: int, accesses: list[tuple[int, int]], at: Mapping[int, int], behind: int
) -> Iterator[_Version]:
    """The entry's version, then one for each unguarded write."""
    groups: list[list[tuple[int, int]]] = [[]]
    for access in accesses:
        if access[1] == WRITE:
            groups.append([])
        groups[-1].append(access)
    for k, group in enumerate(groups):
        places = [at[i] for i, _ in group]
        last = k == len(groups) - 1
        end = behind if last else max(places, default=-1)
        yield _Version(value, group, min(places, default=-1), end, last)


def _keep_last(wanted: list[_Version], versions: list[_Version]) -> None:
    """The last version may have the register's name if the entry's is done with by then."""
    entry, last = versions[0], versions[-1]
    if last is not entry and last.start >= entry.end:
        wanted.pop()


def _number(wanted: list[_Version], names: Names, first_version: int) -> bool:
    """Give versions numbers, each number to one version at a time; False where they run out."""
    pools = {False: _Pool(first_version, 1 << 30), True: _Pool(*PREDICATE_VERSIONS)}
    for version in sorted(wanted, key=lambda each: each.start):
        pool = pools[version.value >= FILE_BASE[2]]
        number = pool.take(version.start, version.end)
        if number >= pool.end:
            return False
        names.dead |= 1 << number
        for i, kind in version.accesses:
            where = names.reads if kind == READ else names.writes
            where.setdefault(i, {})[version.value] = number
        if version.is_last:
            names.copies.append((version.value, number))
    return True


class _Pool:
    """Numbers for intervals that begin in ascending order."""

    def __init__(self, first: int, end: int) -> None:
        self._next = first
        self.end = end
        self._free: list[int] = []
        self._busy: list[tuple[int, int]] = []

    def take(self, start: int, end: int) -> int:
        """A number that no interval over `start` has."""
        while self._busy and self._busy[0][0] < start:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        number = heapq.heappop(self._free) if self._free else self._next
        self._next += number == self._next
        heapq.heappush(self._busy, (end, number))
        return number
