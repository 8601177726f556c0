"""Rewrites of kernels made by hand, for the tests: slow, plain, and independent of the product.

`demoted` moves whole registers to shared memory in the most timid way there is: every access is
fenced by NOPs with long stalls and waits for all scoreboards. What it makes must be accepted by
the checker, and every fault planted in it (`faults.py`) rejected.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from regdem.binary.info import InfoRecord
from regdem.binary.kernel import Kernel
from regdem.check.flow import BranchTable, flow_of
from regdem.check.graph import build_graph
from regdem.check.layout import WINDOW_START, highest_register
from regdem.check.places import FILE_BASE
from regdem.check.returns import return_addresses
from regdem.check.view import CodeView, view_of

Word = tuple[int, int]
_CONTROL = ((1 << 21) - 1) << 41
NOP = (0x0000000000007918, 0)
ALL_SCOREBOARDS = 0x3F


def controlled(
    word: Word,
    stall: int = 15,
    wait: int = 0,
    write: int = 7,
    read: int = 7,
    bit: int = 0,
) -> Word:
    """A word with the control bits given."""
    low, high = word
    high &= ~(_CONTROL | 1 << 62 | 1 << 63)
    high |= stall << 41 | bit << 45 | write << 46 | read << 49 | wait << 52
    return low, high & (1 << 64) - 1


def with_control(word: Word, **fields: int) -> Word:
    """A word with some control fields replaced (stall, wait, write, read, bit, reuse)."""
    low, high = word
    places = {"stall": (41, 4), "bit": (45, 1), "write": (46, 3), "read": (49, 3)}
    places |= {"wait": (52, 6), "reuse": (58, 4)}
    for name, value in fields.items():
        at, width = places[name]
        high = high & ~(((1 << width) - 1) << at) | value << at
    return low, high


def control(word: Word, name: str) -> int:
    """One control field of a word."""
    at, width = {
        "stall": (41, 4),
        "bit": (45, 1),
        "write": (46, 3),
        "read": (49, 3),
        "wait": (52, 6),
        "reuse": (58, 4),
    }[name]
    return word[1] >> at & (1 << width) - 1


def with_field(word: Word, bit: int, width: int, value: int) -> Word:
    """A word with one field replaced."""
    whole = word[0] | word[1] << 64
    whole = whole & ~(((1 << width) - 1) << bit) | value << bit
    return whole & (1 << 64) - 1, whole >> 64


@dataclass
class Edit:
    """What becomes of one kernel: words by instruction, and insertions around instructions.

    `before[i]` is executed on every way into instruction i; `after[i]` behind it only. `order`
    lists the instructions anew; branches still lead to the same place of the list.
    """

    kernel: Kernel
    view: CodeView
    words: list[Word]
    before: dict[int, list[Word]] = field(default_factory=dict[int, list[Word]])
    after: dict[int, list[Word]] = field(default_factory=dict[int, list[Word]])
    order: list[int] = field(default_factory=list[int])

    @staticmethod
    def of(kernel: Kernel) -> Edit:
        """No change yet."""
        view = view_of(kernel.name, kernel.code, kernel.arch)
        return Edit(kernel, view, list(zip(view.low, view.high, strict=True)))

    def emit(self, **changes: object) -> Kernel:
        """Lay out the code; move targets, return addresses, symbols and tables."""
        kernel = self.kernel
        tables = [
            BranchTable(t.offset // 16, tuple(target // 16 for target in t.targets))
            for t in kernel.branch_tables
        ]
        flow = flow_of(self.view, tables)
        moves = return_addresses(self.view, build_graph(flow), {}).call_of
        out: list[Word] = []
        entry: list[int] = []
        place = [0] * len(self.words)
        for i in self.order or range(len(self.words)):
            entry.append(len(out))
            out.extend(self.before.get(i, ()))
            place[i] = len(out)
            out.append(self.words[i])
            out.extend(self.after.get(i, ()))
        for i in range(len(self.words)):
            target = self.view.target[i]
            if target >= 0:
                relative = self.view.control[i] in ("return", "indirect")
                to = 0 if relative else entry[target]
                out[place[i]] = _retarget(out[place[i]], 4 * (to - place[i] - 1))
            if i in moves:
                address = 16 * entry[moves[i] + 1]
                out[place[i]] = with_field(out[place[i]], 32, 32, address)
        entry.append(len(out))
        functions = tuple(
            replace(
                f,
                offset=16 * entry[f.offset // 16],
                size=16 * (entry[(f.offset + f.size) // 16] - entry[f.offset // 16]),
            )
            for f in kernel.functions
        )
        moved_tables = tuple(
            replace(
                t,
                offset=16 * place[t.offset // 16],
                targets=tuple(16 * entry[target // 16] for target in t.targets),
            )
            for t in kernel.branch_tables
        )
        code = b"".join(struct.pack("<QQ", *word) for word in out)
        return replace(
            kernel,
            code=code,
            functions=functions,
            branch_tables=moved_tables,
            constant2=_moved_table(kernel, entry),
            info=self._moved_info(place, entry),
            **changes,  # type: ignore[arg-type]
        )

    def _moved_info(self, place: list[int], entry: list[int]) -> tuple[InfoRecord, ...]:
        """The records, attribute by attribute, for code that went to `place`."""
        moved: list[InfoRecord] = []
        listed = [w for r in self.kernel.info if r.attribute == 0x28 for w in r.words]
        for record in self.kernel.info:
            words = list(record.words)
            if record.attribute in (0x1C, 0x1D, 0x28, 0x31):
                words = [16 * place[w // 16] for w in words]
            elif record.attribute in (0x44, 0x55):
                at = int(record.attribute == 0x55)
                words[at::2] = [16 * place[w // 16] for w in words[at::2]]
            elif record.attribute == 0x29:
                words = [self._mask(w, o // 16) for w, o in zip(words, listed, strict=True)]
            elif record.attribute == 0x34:
                at = 0
                while at < len(words):
                    end = at + 3 + words[at + 2]
                    words[at] = 16 * place[words[at] // 16]
                    words[at + 3 : end] = [16 * entry[w // 16] for w in words[at + 3 : end]]
                    at = end
            else:
                moved.append(record)
                continue
            moved.append(replace(record, payload=struct.pack(f"<{len(words)}I", *words)))
        return tuple(moved)

    def _mask(self, word: int, i: int) -> int:
        """The mask register of a cooperative instruction, as its word has it now."""
        for row in self.view.rows[i]:
            if row.file == 0 and row.reads and row.first == word & 0xFF and word >> 8 == 0x050000:
                low, high = self.words[i]
                return word & ~0xFF | ((low | high << 64) >> row.bit) & 0xFF
        return word


def _moved_table(kernel: Kernel, entry: list[int]) -> bytes:
    content = bytearray(kernel.constant2)
    for table in kernel.branch_tables:
        assert table.table_offset is not None
        targets = [16 * entry[target // 16] for target in table.targets]
        struct.pack_into(f"<{len(targets)}I", content, table.table_offset, *targets)
    return bytes(content)


def _retarget(word: Word, value: int) -> Word:
    if word[0] & 0xFFF == 0x945:
        return with_field(word, 34, 30, value & (1 << 30) - 1)
    value &= (1 << 56) - 1
    return with_field(with_field(word, 16, 8, value & 0xFF), 34, 48, value >> 8)


def renamed(kernel: Kernel, rename: Callable[[int], int], registers: int) -> Kernel:
    """The kernel with its general registers renamed by a bijection that keeps tuples whole."""
    edit = Edit.of(kernel)
    for i, rows in enumerate(edit.view.rows):
        for row in rows:
            if row.file == 0 and row.bit != 255:
                edit.words[i] = with_field(edit.words[i], row.bit, 8, rename(row.first))
    return edit.emit(registers_per_thread=registers)


def with_nops(kernel: Kernel, every: int) -> Kernel:
    """The kernel with NOPs inserted before every so-manieth instruction."""
    edit = Edit.of(kernel)
    for i in range(0, len(edit.words) - 1, every):
        edit.before[i] = [controlled(NOP, stall=2, bit=1)]
    return edit.emit()


def demotable(view: CodeView) -> list[int]:
    """Registers that are only ever 32-bit operands of ordinary instructions, R1 excepted."""
    wide: set[int] = {1}
    seen: set[int] = set()
    for i, rows in enumerate(view.rows):
        for row in rows:
            if row.file != 0:
                continue
            seen.update(range(row.first, row.first + row.width))
            special = view.control[i] in ("return", "indirect", "call_register", "warpsync")
            if row.width > 1 or row.bit == 255 or special:
                wide.update(range(row.first, row.first + row.width))
    return sorted(seen - wide)


def prologue(address: int, other: int, base: int, row_bytes: int, dynamic: bool) -> list[Word]:
    """The address of the thread's first slot, for blocks and clusters of any shape."""
    a, t, u = address, other, other + 1
    words: list[Word] = []

    def add(low: int, high: int, *, load: bool = False) -> None:
        words.append(controlled((low, high), wait=1, write=0 if load else 7))
        words.append(controlled(NOP))

    def special(register: int, number: int) -> None:
        add(0x7919 | register << 16, number << 8, load=True)

    def constant(register: int, offset: int) -> None:
        add(0x7B82 | register << 16 | 255 << 24 | offset << 38, 0x800, load=True)

    special(a, 0x23)
    special(t, 0x22)
    constant(u, 4)
    add(0x7224 | a << 16 | a << 24 | u << 32, 0x078E0200 | t)  # * ntid.y + tid.y
    special(t, 0x21)
    constant(u, 0)
    add(0x7224 | a << 16 | a << 24 | u << 32, 0x078E0200 | t)  # * ntid.x + tid.x
    add(0x7819 | t << 16 | 255 << 24 | 5 << 32, 0x11600 | a)  # t = a >> 5
    add(0x7812 | a << 16 | a << 24 | 31 << 32, 0x078EC0FF)  # a &= 31
    add(0x7824 | a << 16 | a << 24 | 4 << 32, 0x078E00FF)  # a *= 4
    add(0x7824 | a << 16 | t << 24 | row_bytes << 32, 0x078E0200 | a)  # a += t * row
    if dynamic:
        constant(t, 0x2C)
        add(0x7836 | t << 16 | t << 24 | 127 << 32, 0)
        add(0x7812 | t << 16 | t << 24 | 0xFFFFFF80 << 32, 0x078EC0FF)
        add(0x7210 | a << 16 | a << 24 | t << 32, 0x07FFE0FF)
    add(0x7836 | a << 16 | a << 24 | base << 32, 0)
    special(t, 0x88)
    add(0x7211 | a << 16 | t << 24 | a << 32, 0x078EC0FF)  # LEA a = (t << 24) + a
    return words


def demoted(kernel: Kernel, registers: Iterable[int], threads: int) -> Kernel:
    """The kernel with whole registers moved to slots in shared memory."""
    edit = Edit.of(kernel)
    view = edit.view
    chosen = sorted(registers)
    slot = {register: 128 * number for number, register in enumerate(chosen)}
    address = highest_register(view) + 1
    first_temporary = address + 1
    base = WINDOW_START + (kernel.static_shared_bytes + 127) // 128 * 128
    dynamic = kernel.uses_dynamic_shared is not False
    row = 128 * len(chosen)
    edit.before[0] = prologue(address, first_temporary, base, row, dynamic)
    most = 2  # the prologue takes two
    for i, rows in enumerate(view.rows):
        used: list[int] = []
        for operand in rows:
            if operand.file == 0 and operand.first in slot and operand.first not in used:
                used.append(operand.first)
        if used:
            most = max(most, len(used))
            _demote_at(edit, i, used, slot, address, first_temporary)
    shared = base - WINDOW_START + row * ((threads + 31) // 32) + (128 if dynamic else 0)
    return edit.emit(
        registers_per_thread=first_temporary + most + 2,
        static_shared_bytes=shared,
        shared_section_bytes=shared + 1024,
    )


def _demote_at(
    edit: Edit, i: int, used: list[int], slot: dict[int, int], address: int, temporary: int
) -> None:
    view = edit.view
    before: list[Word] = [controlled(NOP)]
    after: list[Word] = []
    word = edit.words[i]
    guarded = view.guard[i] >= 0
    for number, register in enumerate(used):
        t = temporary + number
        mine = [row for row in view.rows[i] if row.file == 0 and row.first == register]
        for row in mine:
            word = with_field(word, row.bit, 8, t)
        if any(row.reads for row in mine) or guarded:
            load = 0x7984 | t << 16 | address << 24 | slot[register] << 40
            before.append(controlled((load, 0x800), wait=ALL_SCOREBOARDS, write=5))
        if any(row.writes for row in mine):
            store = 0x7388 | address << 24 | t << 32 | slot[register] << 40
            after.append(controlled((store, 0x800), wait=ALL_SCOREBOARDS, read=4))
    word = with_control(word, wait=ALL_SCOREBOARDS, reuse=0)
    if view.variable_latency[i]:
        if view.writes[i] and control(word, "write") == 7:
            word = with_control(word, write=5)
        elif not view.writes[i] and control(word, "read") == 7:
            word = with_control(word, read=4)
    edit.before[i] = [*edit.before.get(i, ()), *before]
    edit.words[i] = with_control(word, stall=15, bit=0) if after else word
    if after:
        edit.after[i] = [controlled(NOP), *after]


def general_registers(view: CodeView) -> set[int]:
    """Every general register the code names."""
    return {
        place
        for rows in view.rows
        for row in rows
        if row.file == 0
        for place in range(row.first, row.first + row.width)
        if place < FILE_BASE[1]
    }
