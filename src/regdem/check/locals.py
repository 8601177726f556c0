"""Private local memory of the original: words that only plain LDL and STL reach.

ptxas keeps spills at fixed offsets from the stack pointer R1. Where R1 is set once, before any
access, and used for nothing but such accesses, each word of the frame is a value like a register:
a rewrite may keep it elsewhere (promotion). Anything else that touches R1 or local memory makes
the whole frame opaque: then LDL and STL must stay where they are.
"""

from __future__ import annotations

from regdem.check.graph import Graph
from regdem.check.places import MEMORY_BASE
from regdem.check.slots import WORDS_OF_SIZE, signed_offset
from regdem.check.view import CodeView

_STACK_POINTER = 1


def private_words(view: CodeView, graph: Graph) -> dict[int, tuple[int, ...]]:
    """LDL or STL instruction -> value numbers of the words it reaches; empty where opaque."""
    accesses = [i for i, memory in enumerate(view.memory) if memory == "local"]
    if not accesses:
        return {}
    last_definition = -1
    for i in range(len(view)):
        defines = _STACK_POINTER in view.writes[i]
        if defines:
            last_definition = i
        elif _STACK_POINTER in view.reads[i] and not _plain_access(view, i):
            return {}
    if last_definition >= graph.end[0] or last_definition > accesses[0]:
        return {}
    words: dict[int, tuple[int, ...]] = {}
    numbers: dict[int, int] = {}
    for i in accesses:
        if not _plain_access(view, i):
            return {}
        offset = signed_offset(view.low[i])
        words[i] = tuple(
            MEMORY_BASE + numbers.setdefault(offset + 4 * w, len(numbers))
            for w in range(WORDS_OF_SIZE[view.high[i] >> 9 & 7])
        )
    return words


def _plain_access(view: CodeView, i: int) -> bool:
    """Whether this is LDL or STL of whole words at [R1 + offset]."""
    if view.name[i] not in ("LDL", "STL") or (view.high[i] >> 9 & 7) not in WORDS_OF_SIZE:
        return False
    if signed_offset(view.low[i]) % 4:
        return False
    data = 32 if view.name[i] == "STL" else 16
    addresses = [row for row in view.rows[i] if row.reads and row.bit != data]
    return [(row.first, row.width) for row in addresses] == [(_STACK_POINTER, 1)]
