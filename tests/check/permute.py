"""Reorders straight-line code of a kernel at random, legally, for the tests.

Written apart from what it tests, and timid: only plain arithmetic and plain global, shared and
local accesses move at all; every instruction waits for all scoreboards and stalls for long.
`renaming` lets registers that are written several times in a stretch take others, so that what is
between two uses of one register may mix; the last value comes back by a move.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from rewrites import ALL_SCOREBOARDS, Edit, control, demotable, with_control, with_field

from regdem.binary.kernel import Kernel
from regdem.check.flow import BranchTable, flow_of
from regdem.check.layout import highest_register
from regdem.check.view import CodeView

_NAMES = """
MOV IMAD IADD3 VIADD LEA LOP3 SHF SEL PRMT ISETP FSETP FSEL FADD FMUL FFMA FMNMX MUFU DADD DMUL
DFMA DSETP HADD2 HMUL2 HFMA2 I2F F2I F2F FCHK ULDC UMOV UIADD3 UIMAD LDC
"""
_PLAIN = frozenset(_NAMES.split())
_LOADS = frozenset({"LDG", "LDS", "LDL"})
_STORES = frozenset({"STG", "STS", "STL"})
_MOST_REGISTERS = 250


def moves(view: CodeView, i: int) -> bool:
    """Whether instruction `i` may change its place at all."""
    name = view.name[i]
    if name in ("LDG", "STG") and view.high[i] >> 13 & 0xF:
        return False
    return name in _PLAIN or name in _LOADS or name in _STORES


def leaders_of(kernel: Kernel, view: CodeView) -> set[int]:
    """Where code that is run as a whole may begin."""
    tables = [
        BranchTable(t.offset // 16, tuple(target // 16 for target in t.targets))
        for t in kernel.branch_tables
    ]
    flow = flow_of(view, tables)
    leaders = {0} | {f.offset // 16 for f in kernel.functions}
    for i in range(len(view)):
        leaders.update(flow.targets[i])
        leaders.add(flow.callee[i])
        leaders.add(view.target[i])
    return leaders


def stretches(kernel: Kernel, view: CodeView) -> Iterator[range]:
    """Ranges of instructions that may mix."""
    leaders = leaders_of(kernel, view)
    start = 0
    for i in range(len(view) + 1):
        movable = i < len(view) and moves(view, i)
        if i in leaders or not movable:
            if i - start > 1:
                yield range(start, i)
            start = i if movable else i + 1


@dataclass
class _Constraints:
    """Who must come before whom; `renamed` has a register for (instruction, register, is write)."""

    before: dict[int, set[int]]
    renamed: dict[tuple[int, int, bool], int] = field(
        default_factory=dict[tuple[int, int, bool], int]
    )
    back: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


def constraints(view: CodeView, stretch: range, free: list[int], names: set[int]) -> _Constraints:
    """All dependences of a stretch; registers in `names` may take those in `free`."""
    found = _Constraints({i: set() for i in stretch})
    stores: list[int] = []
    loads: list[int] = []
    for i in stretch:
        if view.name[i] in _STORES:
            found.before[i].update(stores, loads)
            stores.append(i)
        elif view.name[i] in _LOADS:
            found.before[i].update(stores)
            loads.append(i)
    touched: dict[int, list[tuple[int, bool]]] = {}
    for i in stretch:
        guard = (view.guard[i],) if view.guard[i] >= 0 else ()
        for value in {*view.reads[i], *guard}:
            touched.setdefault(value, []).append((i, False))
        for value in view.writes[i]:
            touched.setdefault(value, []).append((i, True))
    for value, accesses in touched.items():
        current = value
        writer, readers = -1, list[int]()
        for i, writes in accesses:
            if not writes:
                if writer >= 0:
                    found.before[i].add(writer)
                readers.append(i)
            elif value in names and free and view.guard[i] < 0:
                current = free.pop()
                writer, readers = i, []
            else:
                found.before[i].update(readers, () if writer < 0 else (writer,))
                writer, readers = i, []
            if current != value:
                found.renamed[i, value, writes] = current
        if current != value:
            found.back.append((value, current))
    for i in stretch:
        found.before[i].discard(i)
    return found


def shuffled(before: dict[int, set[int]], rng: random.Random) -> list[int]:
    """A random order that keeps the constraints."""
    left = {i: set(needs) for i, needs in before.items()}
    order: list[int] = []
    while left:
        i = rng.choice([i for i, needs in left.items() if not needs])
        del left[i]
        order.append(i)
        for needs in left.values():
            needs.discard(i)
    return order


def slowed(edit: Edit) -> None:
    """Control bits that are right in any order."""
    view = edit.view
    for i, word in enumerate(edit.words):
        new = with_control(word, wait=ALL_SCOREBOARDS, reuse=0, stall=15, bit=0)
        if view.variable_latency[i]:
            if view.writes[i] and control(new, "write") == 7:
                new = with_control(new, write=5)
            elif not view.writes[i] and control(new, "read") == 7:
                new = with_control(new, read=4)
        edit.words[i] = new


def permuted(kernel: Kernel, seed: int = 0, *, renaming: bool = False) -> tuple[Edit, int]:
    """The kernel with every stretch in a random legal order, and how many registers it takes."""
    edit = Edit.of(kernel)
    view = edit.view
    rng = random.Random(f"{seed} {kernel.name}")
    slowed(edit)
    order = list(range(len(view)))
    highest = highest_register(view)
    names = set(demotable(view)) if renaming else set[int]()
    most = highest
    for stretch in stretches(kernel, view):
        free = list(range(_MOST_REGISTERS, highest, -1))
        found = constraints(view, stretch, free, names)
        for i in stretch:
            for row in view.rows[i]:
                new = found.renamed.get((i, row.first, row.writes))
                if row.file == 0 and new is not None:
                    edit.words[i] = with_field(edit.words[i], row.bit, 8, new)
                    most = max(most, new)
        order[stretch.start : stretch.stop] = shuffled(found.before, rng)
        last = order[stretch.stop - 1]
        edit.after[last] = [
            with_control((0x7202 | value << 16 | new << 32, 0xF00), stall=15, write=7, read=7)
            for value, new in found.back
        ]
        for k, word in enumerate(edit.after[last]):
            edit.after[last][k] = with_control(word, wait=ALL_SCOREBOARDS)
    edit.order = order
    return edit, most + 1


def rewritten(kernel: Kernel, seed: int = 0, *, renaming: bool = False) -> Kernel:
    """`permuted`, as a kernel."""
    edit, registers = permuted(kernel, seed, renaming=renaming)
    return edit.emit(registers_per_thread=max(registers + 2, kernel.registers_per_thread))
