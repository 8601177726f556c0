"""One numbering for the registers of all files and for memory words.

A *value number* names a general register (0 to 254), a uniform register (from 256), a predicate
(from 320), a uniform predicate (from 328), or a word of memory (from 512). The same numbers name
the original's values and the rewritten program's places, and serve as bits of masks.
"""

from __future__ import annotations

FILE_BASE = (0, 256, 320, 328)
"""First value number of each register file (GPR, UGPR, PRED, UPRED)."""
PREDICATE_VERSIONS = (336, 447)
"""Value numbers (first, end) of predicates within reordered code (`order.py`)."""
CONSTANTS = (447, 511)
"""Value numbers (first, end) of constants that operands name (`operands.py`)."""
MEMORY_BASE = 512
"""First value number of memory words: the original's local words, then the slots."""


def place_name(place: int) -> str:
    """A value number in words, for messages."""
    if place >= MEMORY_BASE:
        return f"memory word {place - MEMORY_BASE}"
    if place >= CONSTANTS[0]:
        return "zero" if place == CONSTANTS[1] else f"constant {place - CONSTANTS[0]}"
    if place >= FILE_BASE[3]:
        return f"UP{place - FILE_BASE[3]}"
    if place >= FILE_BASE[2]:
        return f"P{place - FILE_BASE[2]}"
    if place >= FILE_BASE[1]:
        return f"UR{place - FILE_BASE[1]}"
    return f"R{place}"
