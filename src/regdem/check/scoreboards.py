"""Which waits make an access in flight safe: sets of scoreboard sets in one integer.

An access in flight is over as soon as *any* of its covering scoreboards was waited for: its own,
or that of a later instruction which can't finish before it. On different paths to a point the
covers may differ. So the state of an access is a set of alternatives, one per path, each a set of
scoreboards (6 bits); it is stored as a 64-bit number with bit m set for the alternative with mask
m. Waiting drops the alternatives that contain a scoreboard waited for; 0 means the access is over
on every path; alternative 0 (bit 0) is an access that nothing covers.
"""

from __future__ import annotations

SCOREBOARDS = 6
OVER = 0
BARE = 1
"""One path, no cover."""

_CONTAINS = [sum(1 << m for m in range(64) if m >> k & 1) for k in range(SCOREBOARDS)]
_EVERY = (1 << 64) - 1
_UNTOUCHED = [sum(1 << m for m in range(64) if not m & wait) for wait in range(64)]


def covered_by(*scoreboards: int) -> int:
    """One path on which these scoreboards cover the access (numbers above 5 are none)."""
    mask = 0
    for scoreboard in scoreboards:
        if scoreboard < SCOREBOARDS:
            mask |= 1 << scoreboard
    return 1 << mask


def also_covered(alternatives: int, scoreboard: int) -> int:
    """A later instruction on `scoreboard` covers the access too, on every path."""
    contains = _CONTAINS[scoreboard]
    return alternatives & contains | (alternatives & ~contains & _EVERY) << (1 << scoreboard)


def after_wait(alternatives: int, wait_mask: int) -> int:
    """What is left after waiting for the scoreboards of `wait_mask`."""
    return alternatives & _UNTOUCHED[wait_mask]


def describe(alternatives: int) -> str:
    """In words: what would have to be waited for."""
    if alternatives & BARE:
        return "no scoreboard covers"
    masks = [m for m in range(64) if alternatives >> m & 1]
    numbers = sorted({k for m in masks for k in range(SCOREBOARDS) if m >> k & 1})
    return f"scoreboard {' or '.join(map(str, numbers))} covers, without a wait"
