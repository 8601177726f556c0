"""Where registers run out although the live values were counted to fit.

Counting live values does not show what tuples need: aligned pairs with a dead half, holes of the
wrong parity, ranges that cross around a loop. A rewrite that fits by count may still have no
colouring. Instead of lowering the target everywhere, a `Shortage` learns from each failure at which
instructions of the original registers are lost, and to what extent:

- where the bound of `crowding.shortfall` says that registers are missing, that many;
- where the colouring search left groups without a place, one, at the instructions of their ranges
  that are full.

First the loads that were hoisted across those instructions lose their room; only what is missing
beyond that counts as lost, and makes the next choice take more values out of their registers there.
Where that leads nowhere, registers are given up evenly (`give_up_evenly`), one more each time. In a
program of thousands of instructions, where every search takes seconds and there are many places to
mend, that begins at once, in steps that grow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.webs import Webs
from regdem.program.edit import Edited
from regdem.transform.colour import Colouring, colour
from regdem.transform.crowding import occupancy, shortfall

_LOCAL_FAILURES = 4
"""Searches that leave groups without a place before registers are given up evenly."""
_HUGE = 10_000
"""Instructions from which on one such search is enough."""


class Shortage:
    """What was learned of a program about one limit.

    `lost` (n,) are registers to be counted as occupied at each instruction besides live values.
    """

    def __init__(self, instructions: int, limit: int) -> None:
        self.lost = np.zeros(instructions, dtype=np.int32)
        self._withheld = np.zeros(instructions, dtype=np.int32)
        self._limit = limit
        self._failures = 0
        self._even = 0
        self._is_huge = instructions >= _HUGE

    @property
    def is_even(self) -> bool:
        """Whether registers are given up evenly."""
        return self._even > 0

    def give_up_evenly(self) -> None:
        """Counts one register more as lost everywhere, and forgets what was learned locally."""
        self._even = self._even + (8 if self._even else 4) if self._is_huge else self._even + 1
        self.lost[:] = self._even
        self._withheld[:] = len(self.lost) if self._is_huge else 0

    def room(self, free: NDArray[np.int32]) -> list[int]:
        """The room for hoisted loads, where `free` registers are left at each instruction."""
        result: list[int] = (free - self._withheld).tolist()
        return result

    def fit(
        self, edited: Edited, webs: Webs, free: NDArray[np.int32], room: list[int]
    ) -> Colouring | None:
        """A colouring of the edited program, or None, having learned where registers are short.

        `free` as given to `room`; `room` is what hoisting left of that.
        """
        missing = shortfall(webs, self._limit, len(edited.program))
        if not missing.any():
            colouring = _coloured(edited, webs, self._limit)
            if not colouring.unplaced:
                return colouring
            self._failures += 1
            missing = _crowded(webs, colouring, 1 + self._failures, len(edited.program))
        if self.is_even or self._is_huge or self._failures > _LOCAL_FAILURES:
            self._retreat(free, room)
            return None
        self._learn(_at_original(edited, missing), free, np.array(room, dtype=np.int32))
        return None

    def _retreat(self, free: NDArray[np.int32], room: list[int]) -> None:
        """Without hoisted loads if there were any, else with a register less."""
        if self.is_even and (self.room(free) != room):
            self._withheld[:] = len(self.lost)
        else:
            self.give_up_evenly()

    def _learn(
        self, missing: NDArray[np.int32], free: NDArray[np.int32], left: NDArray[np.int32]
    ) -> None:
        hoisted = np.maximum(free - self._withheld - left, 0)
        short = missing > 0
        self._withheld += np.where(short, np.maximum(free - self._withheld, 0), 0)
        beyond = missing - hoisted
        more = short & (beyond > 0)
        if more.any():
            # What is free by count did not help there.
            self.lost += np.where(more, np.maximum(free, 0) + beyond, 0)


def _coloured(edited: Edited, webs: Webs, limit: int) -> Colouring:
    """A colouring of the edited program's `webs`; kept with the program."""
    key = "colouring", limit
    known: Colouring | None = edited.program.memo.get(key)
    if known is None:
        known = edited.program.memo[key] = colour(webs, limit)
    return known


def _at_original(edited: Edited, values: NDArray[np.int32]) -> NDArray[np.int32]:
    """(n,) the greatest value at each original instruction and what was inserted around it."""
    starts = edited.label_map[:-1]
    return np.maximum.reduceat(values, starts).astype(np.int32)


def _crowded(webs: Webs, colouring: Colouring, near: int, instructions: int) -> NDArray[np.int32]:
    """(n,) 1 where a group without a place lives, and registers are full or nearly so.

    `near`: registers that may be free, beyond the fewest that are, where it still counts as full.
    """
    taken = occupancy((web.points for web in webs.webs), instructions)
    names = [w for k in colouring.unplaced for w in webs.groups[k].webs]
    homeless = occupancy((webs.webs[w].points for w in names), instructions) > 0
    fullest = int(taken[homeless].max(initial=0))
    return (homeless & (taken + near >= fullest)).astype(np.int32)
