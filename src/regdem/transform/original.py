"""The kernel that a demotion starts from, and what is known of it whatever is tried.

Many rewrites of one kernel are made: several targets, with and without uniform registers, folding
and costs of latency, and rounds of each. Its live ranges, its idle stretches and what may leave in
which way are the same in all of them.

Method: everything is found when first asked for and kept in the memo of the program, under what it
depends on of the options. An edited program that comes up again is told by its words and maps, so
that what is known of that one is found again, too.

Invariants: nothing kept is changed later; equal keys mean equal values. What does not depend on the
target is kept for other targets of the same kernel (`demoted.program_of` keeps programs).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.liveness import Liveness, liveness
from regdem.analysis.webs import Webs, allocation_pressure, webs
from regdem.binary.kernel import Kernel
from regdem.program.edit import Edited
from regdem.program.program import Program
from regdem.transform.colour import Colouring
from regdem.transform.demoted import DemoteOptions
from regdem.transform.fold import Folds, folds_of
from regdem.transform.gaps import GapSearch
from regdem.transform.polish import polish
from regdem.transform.recompute import recomputable, recomputable_from_inputs
from regdem.transform.uniform import (
    free_uniform_registers,
    is_late,
    paired_registers,
    uniform_webs,
)
from regdem.transform.values import Value, values_of

Kept = TypeVar("Kept")


class Original:
    """A kernel to be demoted, its program and liveness; the rest is found when asked for.

    `instructions`: how many it has.
    """

    def __init__(self, kernel: Kernel, program: Program, live: Liveness) -> None:
        self.kernel = kernel
        self.program = program
        self.live = live
        self.instructions = len(program)
        self._edited: dict[tuple[bytes, ...], Edited] = {}

    def known(self, edited: Edited) -> Edited:
        """The same edited program as it was met first, with what is known of it."""
        code = edited.program.code
        maps = (edited.index_map, edited.label_map, edited.origin)
        key = code.words.tobytes(), *(each.tobytes() for each in maps)
        return self._edited.setdefault(key, edited)

    @property
    def found(self) -> Webs:
        """The live ranges."""
        return webs_of(self.program)

    @property
    def pressure(self) -> NDArray[np.int32]:
        """(n,) registers that must be distinct at each instruction."""
        return self._kept("pressure", lambda: allocation_pressure(self.program, self.live))

    @property
    def search(self) -> GapSearch:
        """Where values may leave their registers."""
        return self._kept("gaps", lambda: GapSearch(self.program, self.live))

    def shared(self, options: DemoteOptions) -> frozenset[int]:
        """The webs that may go to uniform registers: no more than there are, the least read
        first."""
        if not options.uniform:
            return frozenset()
        return self._kept("shared", self._shared)

    def _shared(self) -> frozenset[int]:
        found = self.found
        room = paired_registers(free_uniform_registers(self.program))
        webs_of = uniform_webs(self.program, found)
        least = sorted(webs_of, key=lambda w: (len(found.webs[w].reads), w))
        return frozenset(least[:room])

    def folds(self, options: DemoteOptions) -> Folds:
        """Operands that may be named otherwise."""
        if not options.fold:
            return Folds()
        shared, banks = self.shared(options), options.banks
        return self._kept(
            ("folds", shared, banks),
            lambda: folds_of(self.program, self.found, shared, banks=banks),
        )

    def recomputable(self, options: DemoteOptions) -> dict[int, int]:
        """The instruction to repeat for each web that can be computed again."""
        return self._kept("recomputable", self._recomputable) if options.rematerialise else {}

    def _recomputable(self) -> dict[int, int]:
        ways = recomputable_from_inputs(self.program, self.live, self.found)
        return ways | recomputable(self.program, self.found, pairs=True)

    def ways(self, options: DemoteOptions) -> dict[int, int]:
        """The same without what goes to uniform registers instead."""
        shared, folds, found = self.shared(options), self.folds(options), self.found
        return {
            web: i
            for web, i in self.recomputable(options).items()
            if web not in shared
            or not (is_late(self.program, i) or folds.are_most_of(found.webs[web]))
        }

    def values(self, options: DemoteOptions) -> Iterator[list[Value]]:
        """What may leave, best first: 64-bit values as one, halves alone, with loads under way."""
        key = options.rematerialise, options.uniform, options.fold, options.banks
        for early in (False, True):
            for pairs in (True, False):
                yield self._kept(
                    (key, early, pairs),
                    partial(self._values, options, early=early, pairs=pairs),
                )

    def _values(self, options: DemoteOptions, *, early: bool, pairs: bool) -> list[Value]:
        values = values_of(
            self.program,
            self.found,
            self.ways(options),
            pairs=pairs,
            uniform=self.shared(options),
            folds=self.folds(options),
        )
        return values + [replace(v, early=True) for v in values if early and v.takes_slot]

    def _kept(self, name: Hashable, make: Callable[[], Kept]) -> Kept:
        return _kept(self.program, name, make)


def _kept(program: Program, name: Hashable, make: Callable[[], Kept]) -> Kept:
    """What `make` gives, the first time, and then again."""
    known: Kept | None = program.memo.get(("demote", name))
    if known is None:
        known = program.memo["demote", name] = make()
    return known


def webs_of(program: Program) -> Webs:
    """The live ranges of a program, found once."""
    return _kept(program, "webs", lambda: webs(program, liveness(program, follow_guards=True)))


def polished(program: Program, found: Webs, colouring: Colouring) -> Colouring:
    """`polish`, done once for each colouring of a program."""
    return _kept(program, colouring, lambda: polish(program, found, colouring))
