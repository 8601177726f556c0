"""Private local memory: words of the stack frame that only plain LDL and STL reach.

ptxas keeps spills at fixed offsets from the stack pointer R1. Where the registers that local
accesses use as addresses are set once, before any access, and are used for nothing but such
accesses, each word of the frame is a value like a register: a rewrite may keep it elsewhere
(promotion). Anything else that touches such a register or local memory makes the whole frame
opaque: then LDL and STL must stay where they are.

Two programs may reach one word through different registers (R1 in the original, a uniform register
in the rewritten program, whose R1 holds something else). Where an address register is the stack's
start c[0x0][0x28] plus a constant, a word has a place that says where it is, whatever the register.
The stack's start is the same number in all threads of a launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.check.expressions import RZ, URZ, Operation, operation_of
from regdem.check.graph import Graph
from regdem.check.places import FILE_BASE, MEMORY_BASE
from regdem.check.purity import never_happens
from regdem.check.slots import WORDS_OF_SIZE, signed_offset
from regdem.check.view import CodeView, read_at

_STACK_POINTER = 1
_BY_UNIFORM = 1 << 27
"""Bit 91: a uniform register is part of the address."""
_STACK_START = 0x28
"""Offset in constant bank 0 of the stack's start on sm_90."""


@dataclass(frozen=True)
class FrameWords:
    """The private frame of one program.

    `words`: LDL or STL instruction -> value numbers of the words it reaches; empty where opaque.
    `place`: the same instructions -> bytes from the stack's start to the first word, where all of
    them are known, else empty.
    """

    words: dict[int, tuple[int, ...]]
    place: dict[int, int]


_OPAQUE = FrameWords({}, {})


def private_words(view: CodeView, graph: Graph) -> dict[int, tuple[int, ...]]:
    """LDL or STL instruction -> value numbers of the words it reaches; empty where opaque."""
    return frame_words(view, graph).words


def frame_words(view: CodeView, graph: Graph) -> FrameWords:
    """What the local accesses of a program reach."""
    accesses = [i for i, memory in enumerate(view.memory) if memory == "local"]
    if not accesses:
        return _OPAQUE
    bases = {i: _address(view, i) for i in accesses}
    addresses = set(bases.values())
    if None in addresses:
        return _OPAQUE
    last_definition = -1
    for i in range(len(view)):
        written = addresses.intersection(view.writes[i])
        if written:
            if len(view.writes[i]) > 1 or (view.guard[i] >= 0 and _STACK_POINTER not in written):
                return _OPAQUE
            last_definition = i
        elif (i not in bases and addresses.intersection(view.reads[i])) or (
            i in bases and addresses.intersection(_data(view, i))
        ):
            return _OPAQUE
    if last_definition >= graph.end[0] or last_definition >= accesses[0]:
        return _OPAQUE
    start = _starts(view, graph.end[0])
    known = all(address in start for address in addresses)
    if not known and len(addresses) > 1:
        return _OPAQUE
    words: dict[int, tuple[int, ...]] = {}
    place: dict[int, int] = {}
    numbers: dict[int, int] = {}
    for i, address in bases.items():
        offset = signed_offset(view.low[i])
        if known and address is not None:
            offset = place[i] = start[address] + offset
        words[i] = tuple(
            MEMORY_BASE + numbers.setdefault(offset + 4 * w, len(numbers))
            for w in range(WORDS_OF_SIZE[view.high[i] >> 9 & 7])
        )
    return FrameWords(words, place)


def further_words(second: FrameWords, lowest: int, end: int) -> dict[int, tuple[int, ...]]:
    """Local accesses below the original's frame, and the places of the words that they reach.

    Places are bytes from the stack's start. The original's frame begins at `end`, the rewritten
    program's at `lowest`; what lies between is the rewrite's own.
    """
    found: dict[int, tuple[int, ...]] = {}
    for i, place in second.place.items():
        words = len(second.words[i])
        if lowest <= place and place + 4 * words <= end and place % (4 * words) == 0:
            found[i] = tuple(place + 4 * w for w in range(words))
    return found


def located(first: FrameWords, second: FrameWords) -> tuple[dict[int, int], dict[int, int]]:
    """The places of two programs' accesses, or nothing where one's are not known."""
    return (first.place, second.place) if first.place and second.place else ({}, {})


def key_at(view: CodeView, i: int, place: int) -> tuple[str, str, int, int, int, int]:
    """What two local accesses have in common that do the same to the word at `place`.

    All bits but those of registers, of the address and of control: name, guard, whether there is
    data or RZ, and the modifiers.
    """
    low, high = view.masked[i] & ((1 << 64) - 1), view.masked[i] >> 64
    data = len(_data(view, i))
    return "frame", view.name[i], place, data, low >> 12 & 0xF, high & ~(_BY_UNIFORM | 0xFF)


def data_reads(view: CodeView, i: int) -> tuple[int, ...]:
    """What a local access reads besides its address."""
    return read_at(view, i, 32) if view.name[i] == "STL" else ()


def _address(view: CodeView, i: int) -> int | None:
    """The only register of the address of a LDL or STL of whole words, or None."""
    if view.name[i] not in ("LDL", "STL") or (view.high[i] >> 9 & 7) not in WORDS_OF_SIZE:
        return None
    if signed_offset(view.low[i]) % 4 or never_happens(view, i):
        return None
    data = 32 if view.name[i] == "STL" else 16
    rows = [row for row in view.rows[i] if row.reads and (row.bit != data or row.file == 1)]
    if len(rows) != 1 or rows[0].width != 1:
        return None
    return rows[0].first


def _data(view: CodeView, i: int) -> list[int]:
    """The registers that a LDL writes or a STL stores."""
    data = 32 if view.name[i] == "STL" else 16
    return [
        row.first + e
        for row in view.rows[i]
        if row.bit == data and row.file == 0
        for e in range(row.width)
    ]


def _starts(view: CodeView, end: int) -> dict[int, int]:
    """Registers that hold the stack's start plus a constant behind the entry block."""
    held: dict[int, int] = {}
    for i in range(end):
        value = None
        if view.guard[i] < 0 and not never_happens(view, i) and len(view.writes[i]) == 1:
            operation = operation_of(view.low[i], view.high[i])
            value = None if operation is None else _offset(operation, held)
        for place in view.writes[i]:
            held.pop(place, None)
        if value is not None:
            held[view.writes[i][0]] = value
    return held


def _offset(operation: Operation, held: dict[int, int]) -> int | None:
    """What an operation adds to the stack's start, if its result is that start plus a constant."""
    start: int | None = None
    added = 0
    sources = operation.sources
    if operation.name == "multiply_add":  # IMAD.MOV of RZ, RZ and the value
        if not (_is_zero(sources[0].kind, sources[0].value)):
            return None
        sources = sources[2:]
    elif operation.name not in ("move", "add", "add3"):
        return None
    for source in sources:
        if source.kind == "imm":
            added += source.value - (source.value >> 31 << 32)
        elif _is_zero(source.kind, source.value):
            continue
        elif source.negated or start is not None:
            return None
        elif source.kind == "const":
            start = 0 if source.value == _STACK_START else None
            if start is None:
                return None
        else:
            start = held.get(source.value + (FILE_BASE[1] if source.kind == "ugpr" else 0))
            if start is None:
                return None
    return None if start is None else start + added


def _is_zero(kind: str, number: int) -> bool:
    return (kind, number) in (("gpr", RZ), ("ugpr", URZ))
