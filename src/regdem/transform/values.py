"""What may leave its register: single live ranges, or both halves of a 64-bit value as one.

A demotion moves *values*. Mostly that is one live range (`analysis/webs.py`); two live ranges in an
aligned pair that are always read and written together move by one 64-bit access. Each value leaves
in one of three ways, fixed here: it is computed again, it goes to uniform registers, or it takes
slots in shared memory. In the first two, uses that can name an immediate or a uniform register
themselves need no register any more (`transform/fold.py`).

Invariants: no live range is in two values of one list; R1, live ranges that must keep their
register, and those that nobody reads are in none.

Not claimed: that leaving is worth it. `transform/gap_choice.py` decides that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from regdem.analysis.webs import STACK_POINTER, Web, Webs
from regdem.program.program import Program
from regdem.transform.fold import Folds
from regdem.transform.recompute import words_of
from regdem.transform.spill import Access


@dataclass(frozen=True)
class Value:
    """What moves as one: a web, or the webs of both halves of a 64-bit value.

    `definition`: the instruction to repeat instead of loading, or None. `uniform`: without one, it
    goes to uniform registers instead of a slot. `early`: see `transform/spill.py`. `folded`: uses
    that need no register once it leaves (`transform/fold.py`).
    """

    webs: tuple[Web, ...]
    definition: int | None
    early: bool = False
    uniform: bool = False
    folded: frozenset[int] = frozenset()

    @property
    def words(self) -> int:
        """Registers it takes."""
        return len(self.webs)

    @property
    def takes_slot(self) -> bool:
        """Whether leaving needs shared memory."""
        return self.definition is None and not self.uniform

    @cached_property
    def points(self) -> int:
        """Where it is live, as `Web.points`."""
        result = 0
        for web in self.webs:
            result |= web.points
        return result

    def access(self) -> Access:
        """The accesses as the placement takes them."""
        return self._access

    @cached_property
    def _access(self) -> Access:
        first = self.webs[0]
        return Access(
            first.register,
            frozenset(first.reads) - self.folded,
            frozenset(first.writes),
            self.points,
            words=self.words,
            early=self.early,
        )


def values_of(
    program: Program,
    webs: Webs,
    recomputable: dict[int, int],
    *,
    pairs: bool = True,
    uniform: Collection[int] = (),
    folds: Folds | None = None,
) -> list[Value]:
    """The values that may leave: webs, joined to pairs where both halves go together.

    `uniform`: the webs that may go to uniform registers. `folds`: operands that need no
    register then.
    """
    folds = folds or Folds()
    pair_of = _pairs(webs) if pairs else {}
    result: list[Value] = []
    done: set[int] = set()
    for web in webs.webs:
        if web.index in done or web.whole or web.register == STACK_POINTER or not web.reads:
            continue
        partner = pair_of.get(web.index)
        low = recomputable.get(web.index)
        if partner is None:
            alone = low is not None and words_of(program, low) == 1
            shared = web.index in uniform
            again = low if alone else None
            named = _named(folds, (web,), again, uniform=shared)
            result.append(Value((web,), again, uniform=shared, folded=named))
            continue
        done.add(partner.index)
        together = low is not None and low == recomputable.get(partner.index)
        shared = web.index in uniform and partner.index in uniform
        again = low if together else None
        named = _named(folds, (web, partner), again, uniform=shared)
        result.append(Value((web, partner), again, uniform=shared, folded=named))
    return result


def _named(
    folds: Folds, parts: tuple[Web, ...], again: int | None, *, uniform: bool
) -> frozenset[int]:
    """Uses that name a value themselves once it has left; none where it goes to a slot."""
    if again is None and not uniform:
        return frozenset()
    return folds.uses_of(parts, uniform=uniform and again is None)


def _pairs(webs: Webs) -> dict[int, Web]:
    """Both halves of 64-bit values: web of the even register -> web of the odd one."""
    result: dict[int, Web] = {}
    taken: set[int] = set()
    for group in webs.groups:
        if group.alignment < 2:
            continue
        by_register: dict[int, list[Web]] = {}
        for index in group.webs:
            by_register.setdefault(webs.webs[index].register, []).append(webs.webs[index])
        for register, lows in by_register.items():
            if register % 2:
                continue
            for low in lows:
                for high in by_register.get(register + 1, ()):
                    if (
                        not (low.whole or high.whole or high.index in taken)
                        and low.reads
                        and set(low.reads) == set(high.reads)
                        and set(low.writes) == set(high.writes)
                    ):
                        result[low.index] = high
                        taken.update((low.index, high.index))
                        break
    return result
