"""One program of a pair, and the slots of the rewritten one.

Accesses to slots are those beyond anything the original's own accesses may reach: of shared memory
behind the original's static and dynamic bytes, of the stack frame in what it grew by.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from regdem.binary.kernel import Kernel
from regdem.check.expressions import BlockShape, Expressions
from regdem.check.flow import BranchTable, flow_of
from regdem.check.graph import Graph, StepFlow, build_graph
from regdem.check.layout import NAMING_SIZE, WINDOW_START
from regdem.check.locals import frame_words, further_words, private_words
from regdem.check.places import MEMORY_BASE
from regdem.check.returns import ReturnAddresses
from regdem.check.slots import SharedAccess, SlotMap, shared_accesses, slot_accesses
from regdem.check.view import CodeView, view_of

Returns = tuple[ReturnAddresses, ReturnAddresses]
"""Of the original and of the rewritten program."""
_IN_FRAME = -1
"""In place of an address expression: the slot is a word of the stack frame."""


class Program:
    """One kernel with what is known of it alone."""

    def __init__(self, kernel: Kernel, arch: str) -> None:
        self.kernel = kernel
        self.view: CodeView = view_of(kernel.name, kernel.code, arch)
        self.code: CodeView = self.view
        """As the bytes are; in `view`, operands may be in another form (`operands.py`)."""
        self.flow: StepFlow = flow_of(self.view, tables_of(kernel))
        self.graph: Graph = build_graph(self.flow)

    def seen_as(self, view: CodeView) -> Program:
        """The same program in another form."""
        if view is self.view:
            return self
        other = copy.copy(self)
        other.view = view
        return other


def tables_of(kernel: Kernel) -> list[BranchTable]:
    """The kernel's jump tables, by instruction."""
    return [
        BranchTable(table.offset // 16, tuple(target // 16 for target in table.targets))
        for table in kernel.branch_tables
    ]


def slots_of(
    first: Program,
    second: Program,
    expressions: Expressions,
    shapes: list[BlockShape],
    dynamic: int | None,
) -> tuple[list[SharedAccess], SlotMap]:
    """Accesses to slots: those beyond anything the original's own accesses may reach.

    Where the size of dynamic shared memory is open, it is taken to be larger than any can be, so
    that only accesses that follow it lie beyond; failing those, none is assumed.
    """
    if not shapes:
        return [], SlotMap()
    accesses = shared_accesses(second.view, second.graph, expressions)
    for size in (NAMING_SIZE, 0) if dynamic is None else (dynamic,):
        slots = slot_accesses(
            accesses,
            expressions,
            replace(shapes[0], dynamic_shared_bytes=size),
            WINDOW_START + first.kernel.static_shared_bytes + size,
            WINDOW_START + second.kernel.static_shared_bytes + size,
        )
        if slots.words:
            return [access for access in accesses if access.instruction in slots.words], slots
    return [], SlotMap()


def add_further_words(first: Program, second: Program, slots: SlotMap) -> None:
    """Slots in what the stack frame grew by, where nothing of the original is."""
    end, lowest = -first.kernel.local_bytes, -second.kernel.local_bytes
    reached = frame_words(first.view, first.graph).place
    if lowest >= end or min(reached.values(), default=end) < end:
        return
    numbers: dict[int, int] = {}
    frame = frame_words(second.view, second.graph)
    for access, places in further_words(frame, lowest, end).items():
        for place in places:
            if place not in numbers:
                numbers[place] = len(slots.keys)
                slots.keys.append((_IN_FRAME, place))
        slots.words[access] = tuple(numbers[place] for place in places)


def memory_words(program: Program, slots: SlotMap) -> dict[int, tuple[int, ...]]:
    """Accesses to slots and to private words of the frame, each word with a number of its own."""
    words = dict(slots.words)
    for i, local in private_words(program.view, program.graph).items():
        words[i] = tuple(len(slots.keys) + word - MEMORY_BASE for word in local)
    return words
