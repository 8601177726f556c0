"""What reads a result: the texts of the next readers of a register, to tell like results apart."""

from __future__ import annotations

from bisect import bisect_right

from regdem.check.view import CodeView

_MOST = 6


class Readers:
    """The accesses of each register of one program, in the order of the code."""

    def __init__(self, view: CodeView) -> None:
        self._at: dict[int, list[int]] = {}
        self._use: dict[int, list[tuple[int, int] | None]] = {}
        for i in range(len(view)):
            for element, value in enumerate(view.reads[i]):
                self._add(value, i, (view.masked[i], element))
            if view.guard[i] >= 0:
                self._add(view.guard[i], i, (view.masked[i], -1))
            else:
                for value in view.writes[i]:
                    self._add(value, i, None)

    def of(self, i: int, value: int) -> frozenset[tuple[int, int]]:
        """The next few readers of what instruction `i` wrote to `value`: text and operand."""
        places = self._at.get(value, [])
        uses = self._use.get(value, [])
        found: set[tuple[int, int]] = set()
        for k in range(bisect_right(places, i), min(len(places), bisect_right(places, i) + _MOST)):
            use = uses[k]
            if use is None:
                break
            found.add(use)
        return frozenset(found)

    def _add(self, value: int, i: int, use: tuple[int, int] | None) -> None:
        self._at.setdefault(value, []).append(i)
        self._use.setdefault(value, []).append(use)
