"""What the file says about places in the code, after the code has moved.

Problem: lists of offsets, jump tables and relocations name instructions by their place. A stale
one leaves the code right and the program wrong: an indirect branch takes its target from the
table, the driver and the tools patch or trap where the lists say.

Method: the product of the two programs says which instruction stands where. Every list of the
original, moved by it, must be the rewritten file's list, and what holds no offset must be the
same, byte for byte. From the bytes alone; nothing is taken from the edit that wrote them.

| where | must be |
|---|---|
| lists of instructions (exits, warp-wide, cooperative groups, ...) | the partners, in their order |
| unused bytes of loads | the partners; those of dropped loads are gone |
| annotations | the partners, and spill marks on accesses of the rewritten program only |
| registers of cooperative groups' masks | the partner's operand, where it is an operand |
| targets of indirect branches | the same branches; where they lead the product has proved |
| `.nv.constant2.KERNEL` | the proved targets where the original's stand, else the same bytes |
| relocations of code and into code | at the partners, to the same symbol, function or cut |
| symbol indices | of the symbol that the original names: two builds may count them differently |

Not claimed: mask registers that are no operand of the instruction listed, debug information.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from regdem.binary.attributes import ATTRIBUTE_NAMES
from regdem.binary.info import FORMAT_SIZED, MAX_THREADS, NO_CODE_OFFSETS
from regdem.binary.kernel import Kernel, Relocation
from regdem.binary.symbols import Symbol, symbol_words
from regdem.check.findings import Finding
from regdem.check.view import CodeView

KINDS = frozenset({"attribute", "jump_table", "relocation", "function_size"})
"""The kinds of finding made here."""

_COOPERATIVE, _MASKS, _UNUSED, _ANNOTATIONS, _TARGETS = 0x28, 0x29, 0x44, 0x55, 0x34
_LISTS = frozenset(
    {
        *(0x1C, 0x1D, 0x25, 0x27, _COOPERATIVE, 0x2D, 0x31, 0x39),
        *(0x46, 0x47, 0x57, 0x59, 0x65, 0x6C),
    }
)
"""Attributes that are lists of places: exits, S2R of the block's index, cached loads, system-wide
atomics, cooperative groups, emulated half atomics, warp-wide instructions, memory barriers,
system calls, canaries, asynchronous stores, bulk copies."""
_NO_MASK = 0xFFFFFFFF
_SPILL = 1
_SPILLED = ("shared", "local")
_INSTRUCTION_BYTES = 16


@dataclass(frozen=True)
class Moved:
    """Two kernels and how their code goes together: steps of `product.Product`.

    `inside` are instructions of the original that code before was moved behind, or the reverse:
    no place in front of one of them stands for any of the rewritten program.
    """

    original: Kernel
    rewritten: Kernel
    first: CodeView
    second: CodeView
    steps: Sequence[tuple[int, int]]
    inside: frozenset[int] = frozenset()

    @cached_property
    def partner(self) -> dict[int, int]:
        """Rewritten instruction by original one."""
        return {i: j for i, j in self.steps if i >= 0 and j >= 0}

    @cached_property
    def inserted(self) -> frozenset[int]:
        """Instructions of the rewritten program alone."""
        return frozenset(j for i, j in self.steps if i < 0)

    @cached_property
    def cuts(self) -> frozenset[tuple[int, int]]:
        """Places, in bytes, that stand for each other."""
        found: list[tuple[int, int]] = [(0, 0)]
        i = j = 0
        for a, b in self.steps:
            i += a >= 0
            j += b >= 0
            if i not in self.inside:
                found.append((_INSTRUCTION_BYTES * i, _INSTRUCTION_BYTES * j))
        return frozenset(found)

    @cached_property
    def entry(self) -> dict[str, int]:
        """Where each function of the rewritten kernel starts."""
        return {function.name: function.offset for function in self.rewritten.functions}

    def image(self, offset: int) -> int | None:
        """Where the instruction at a byte offset is now; the place within it is kept."""
        index, rest = divmod(offset, _INSTRUCTION_BYTES)
        partner = self.partner.get(index)
        return None if partner is None else _INSTRUCTION_BYTES * partner + rest

    def finding(self, kind: str, message: str, offset: int = -1) -> Finding:
        """A finding about the rewritten kernel."""
        return Finding(kind, self.rewritten.name, offset, message)


def attribute_findings(moved: Moved) -> list[Finding]:
    """Everything in the file that does not follow the code."""
    return [
        *_lists(moved),
        *_pairs(moved),
        *_masks(moved),
        *_branches(moved),
        *_others(moved),
        *_tables(moved),
        *_relocations(moved),
        *_function_sizes(moved),
    ]


def symbol_of(kernel: Kernel, index: int) -> Symbol:
    """What a symbol index of the kernel's file names; an unknown index names itself alone."""
    return kernel.symbols.get(index) or Symbol(f"#{index}", "", 0, 0, 0, 0, 0)


def portable_records(kernel: Kernel) -> list[tuple[int, int, tuple[Symbol, ...], bytes]]:
    """(attribute, format, symbols named, the rest of the payload) of each info record."""
    found: list[tuple[int, int, tuple[Symbol, ...], bytes]] = []
    for record in kernel.info:
        count = symbol_words(record)
        symbols = tuple(symbol_of(kernel, index) for index in record.words[:count])
        found.append((record.attribute, record.format, symbols, record.payload[4 * count :]))
    return found


def portable(kernel: Kernel) -> tuple[object, ...]:
    """All that the file says of a kernel, with symbols in place of their indices: two kernels of
    which this is the same are the same kernel.
    """
    functions = [(f.name, f.offset, f.size, f.is_kernel) for f in kernel.functions]
    relocations = [
        (r.section, r.offset, r.type, symbol_of(kernel, r.symbol_index), r.addend, r.target_offset)
        for r in (*kernel.relocations, *kernel.incoming_relocations)
    ]
    return (
        *(kernel.code, kernel.registers_per_thread, kernel.static_shared_bytes),
        *(kernel.local_bytes, kernel.min_stack, kernel.constant2),
        *(functions, relocations, portable_records(kernel)),
    )


def _words(kernel: Kernel, attribute: int) -> list[int]:
    return [w for r in kernel.info if r.attribute == attribute for w in r.words]


def _name(attribute: int) -> str:
    return ATTRIBUTE_NAMES.get(attribute, f"0x{attribute:02x}")


def _hex(offsets: Sequence[int | None]) -> str:
    shown = ", ".join("nowhere" if o is None else f"0x{o:x}" for o in offsets[:4])
    return shown + (", ..." if len(offsets) > 4 else "")


def _lists(moved: Moved) -> Iterator[Finding]:
    for attribute in sorted(_LISTS):
        before, after = _words(moved.original, attribute), _words(moved.rewritten, attribute)
        wanted = [moved.image(offset) for offset in before]
        if wanted != after:
            at = next((k for k, pair in enumerate(zip(wanted, after, strict=False))
                       if pair[0] != pair[1]), min(len(wanted), len(after)))  # fmt: skip
            yield moved.finding(
                "attribute",
                f"{_name(attribute)} lists {_hex(after[at:])} where the code has "
                f"{_hex(wanted[at:]) or 'nothing'}",
            )


def _pairs(moved: Moved) -> Iterator[Finding]:
    for attribute, place in ((_UNUSED, 0), (_ANNOTATIONS, 1)):
        wanted: Counter[tuple[int, int]] = Counter()
        for offset, value in _couples(_words(moved.original, attribute), place):
            image = moved.image(offset)
            if image is not None:
                wanted[image, value] += 1
        have = Counter(_couples(_words(moved.rewritten, attribute), place))
        for offset, value in sorted(wanted - have):
            message = f"{_name(attribute)} lacks ({value}) of the original"
            yield moved.finding("attribute", message, offset)
        for offset, value in sorted(have - wanted):
            if attribute == _ANNOTATIONS and value == _SPILL and _is_new_access(moved, offset):
                continue
            message = f"{_name(attribute)} has ({value}), which the original does not have there"
            yield moved.finding("attribute", message, offset)


def _couples(words: list[int], place: int) -> list[tuple[int, int]]:
    """(offset, value) of a list of pairs whose `place` is the offset."""
    return [(words[k + place], words[k + 1 - place]) for k in range(0, len(words) - 1, 2)]


def _is_new_access(moved: Moved, offset: int) -> bool:
    index, rest = divmod(offset, _INSTRUCTION_BYTES)
    return not rest and index in moved.inserted and moved.second.memory[index] in _SPILLED


def _masks(moved: Moved) -> Iterator[Finding]:
    places = _words(moved.original, _COOPERATIVE)
    before, after = _words(moved.original, _MASKS), _words(moved.rewritten, _MASKS)
    if len(before) != len(after):
        yield moved.finding("attribute", f"{_name(_MASKS)} has {len(after)} words")
        return
    for k, (old, new) in enumerate(zip(before, after, strict=True)):
        offset = places[k] if k < len(places) else -1
        image = moved.image(offset) if offset >= 0 else None
        if (old == _NO_MASK) != (new == _NO_MASK) or old >> 8 != new >> 8:
            yield moved.finding("attribute", f"{_name(_MASKS)} changed to 0x{new:x}")
            continue
        if old == _NO_MASK or image is None:
            continue
        i, j = offset // _INSTRUCTION_BYTES, image // _INSTRUCTION_BYTES
        names = {
            b.first
            for a, b in zip(moved.first.rows[i], moved.second.rows[j], strict=True)
            if a.file == 0 and a.first == old & 0xFF and a.reads
        }
        if names and new & 0xFF not in names:
            message = f"{_name(_MASKS)} names R{new & 0xFF}, the instruction has another register"
            yield moved.finding("attribute", message, image)


def _branches(moved: Moved) -> Iterator[Finding]:
    wanted = [(moved.image(t.offset), len(t.targets)) for t in moved.original.branch_tables]
    have = [(t.offset, len(t.targets)) for t in moved.rewritten.branch_tables]
    if wanted != have:
        places = _hex([offset for offset, _ in have])
        yield moved.finding("attribute", f"{_name(_TARGETS)} is of other branches: {places}")


def _others(moved: Moved) -> Iterator[Finding]:
    """Attributes that hold no place must be as they were; the block's size is `layout`'s."""
    listed = {*_LISTS, _MASKS, _UNUSED, _ANNOTATIONS, _TARGETS, MAX_THREADS}

    before, after = (
        Counter(each for each in portable_records(kernel) if each[0] not in listed)
        for kernel in (moved.original, moved.rewritten)
    )
    for attribute in sorted({each[0] for each in (*(before - after), *(after - before))}):
        yield moved.finding("attribute", f"{_name(attribute)} differs from the original's")
    if all(i == j for i, j in moved.steps):
        return
    for attribute, form, *_ in sorted(before):
        if form == FORMAT_SIZED and attribute not in NO_CODE_OFFSETS:
            message = f"{_name(attribute)} may hold offsets, in a layout that is not known"
            yield moved.finding("attribute", message)


def _tables(moved: Moved) -> Iterator[Finding]:
    old, new = moved.original.constant2, moved.rewritten.constant2
    if len(old) != len(new):
        yield moved.finding("jump_table", f"bank 2 has {len(new)} bytes, not {len(old)}")
        return
    wanted = bytearray(old)
    tables = zip(moved.original.branch_tables, moved.rewritten.branch_tables, strict=False)
    for before, after in tables:
        if len(before.targets) != len(after.targets):
            continue  # a finding of `_branches`
        needle = struct.pack(f"<{len(before.targets)}I", *before.targets)
        places = [k for k in range(0, len(old) - len(needle) + 1, 4) if old.startswith(needle, k)]
        if not places:
            message = "the targets of an indirect branch stand in no table of the original"
            yield moved.finding("jump_table", message, after.offset)
        for place in places:
            struct.pack_into(f"<{len(after.targets)}I", wanted, place, *after.targets)
    if bytes(wanted) != new:
        at = next(k for k in range(len(new)) if wanted[k] != new[k]) & ~3
        message = f"word 0x{at:x} of bank 2 is not the target, or the constant, that it was"
        yield moved.finding("jump_table", message)


def _relocations(moved: Moved) -> Iterator[Finding]:
    yield from _relocated_code(moved)
    yield from _copies(moved)

    before, after = _keyed(moved.original), _keyed(moved.rewritten)
    if [key for key, _ in before] != [key for key, _ in after]:
        yield moved.finding("relocation", "other relocations name this code than the original's")
        return
    for (_, old), (_, new) in zip(before, after, strict=True):
        if not _same_value(moved, old, new):
            message = f"a word of {new.section} names another place of the code"
            yield moved.finding("relocation", message)


def _keyed(kernel: Kernel) -> list[tuple[tuple[str, int, int, Symbol], Relocation]]:
    """Relocations into the code by all that must be the same of them, in the order of that."""
    found = [
        ((each.section, each.offset, each.type, symbol_of(kernel, each.symbol_index)), each)
        for each in kernel.incoming_relocations
    ]
    return sorted(found, key=lambda pair: pair[0])


def _relocated_code(moved: Moved) -> Iterator[Finding]:
    rewritten, original = moved.rewritten, moved.original
    new = {
        (r.offset, r.type, symbol_of(rewritten, r.symbol_index)): r for r in rewritten.relocations
    }
    for old in original.relocations:
        image = moved.image(old.offset)
        if image is None:
            continue
        found = new.pop((image, old.type, symbol_of(original, old.symbol_index)), None)
        if found is None or not _same_value(moved, old, found):
            message = f"the relocation to {old.symbol} did not move with its instruction"
            yield moved.finding("relocation", message, image & ~15)
    for left in new.values():
        message = f"a relocation to {left.symbol} where the original has none"
        yield moved.finding("relocation", message, left.offset & ~15)


def _copies(moved: Moved) -> Iterator[Finding]:
    """An inserted instruction like a relocated one would lack its relocation."""
    relocated = {
        moved.first.masked[r.offset // _INSTRUCTION_BYTES] for r in moved.original.relocations
    }
    if not relocated:
        return
    for i, j in moved.steps:
        if i < 0 and moved.second.masked[j] in relocated:
            message = f"{moved.second.name[j]} is a copy of an instruction with a relocation"
            yield moved.finding("relocation", message, _INSTRUCTION_BYTES * j)


def _same_value(moved: Moved, old: Relocation, new: Relocation) -> bool:
    if old.target_offset is None or new.target_offset is None:
        return (old.target_offset, old.addend) == (new.target_offset, new.addend)
    entries = {f.offset: moved.entry.get(f.name) for f in moved.original.functions}
    if old.target_offset in entries:
        return new.target_offset == entries[old.target_offset]
    return (old.target_offset, new.target_offset) in moved.cuts


def _function_sizes(moved: Moved) -> Iterator[Finding]:
    after = {f.name: f for f in moved.rewritten.functions}
    for old in moved.original.functions:
        new = after.get(old.name)
        if new is None or not old.size:
            continue  # where it starts, `pair` says
        if (old.offset + old.size, new.offset + new.size) not in moved.cuts:
            message = f"{old.name} ends at 0x{new.offset + new.size:x}, not where its code ends"
            yield moved.finding("function_size", message)
