"""Faults in promoted kernels: frames reached through a uniform register, spills in registers.

Every fault changes which word an access reaches, or what a spilled value's register holds, so the
checker must reject all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

from rewrites import Word, with_field

from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.check.view import CodeView, view_of
from regdem.isa.encode import nop
from regdem.transform.promote import promote
from regdem.transform.promoted import PromoteOptions

_UNIFORM_FILE = 1
_LDL, _STL, _MOV = 0x983, 0x987, 0x202
_ULDC, _UIADD3 = 0xAB9, 0x890


class Promoted:
    """A promoted kernel, whose words can be changed one at a time."""

    def __init__(self, cubin: Cubin, name: str, options: PromoteOptions) -> None:
        self.original = cubin.kernel(name)
        edit = promote(self.original, options).edit
        file = Cubin.parse(cubin.with_kernel(name, edit).to_bytes(), "new")
        self.rewritten = file.kernel(name)
        self.view: CodeView = view_of(name, self.rewritten.code, self.rewritten.arch)
        self.words: list[Word] = list(zip(self.view.low, self.view.high, strict=True))

    def with_word(self, i: int, word: Word) -> Kernel:
        """The rewrite with one instruction replaced."""
        words = [*self.words]
        words[i] = word
        return replace(self.rewritten, code=b"".join(struct.pack("<QQ", *w) for w in words))

    def opcodes(self, *wanted: int) -> list[int]:
        """Instructions with one of these opcodes."""
        return [i for i, (low, _) in enumerate(self.words) if low & 0xFFF in wanted]

    def local(self) -> list[int]:
        """Local accesses through a uniform register."""
        return [
            i
            for i in self.opcodes(_LDL, _STL)
            if any(row.file == _UNIFORM_FILE for row in self.view.rows[i])
        ]

    def uniform(self) -> int:
        """The uniform register that holds the frame's place."""
        rows = self.view.rows[self.local()[0]]
        return next(row.first for row in rows if row.file == _UNIFORM_FILE) - 256

    def moves(self) -> list[int]:
        """Moves that the original has nothing like."""
        original = view_of("original", self.original.code, self.original.arch)
        highest = max(r for each in (*original.reads, *original.writes) for r in each if r < 255)
        return [
            i
            for i in self.opcodes(_MOV)
            if any(place > highest for place in (*self.view.reads[i], *self.view.writes[i]))
        ]


Kind = Callable[[Promoted], Iterator[tuple[int, Kernel]]]


def other_uniform_register(bench: Promoted) -> Iterator[tuple[int, Kernel]]:
    """A register next to the one that holds the frame's place."""
    for i in bench.local():
        bit = 32 if bench.words[i][0] & 0xFFF == _LDL else 64
        word = with_field(bench.words[i], bit, 6, bench.uniform() + 1)
        yield i, bench.with_word(i, word)


def wrong_offset(bench: Promoted) -> Iterator[tuple[int, Kernel]]:
    """A neighbour of the word."""
    for i in bench.local():
        offset = bench.words[i][0] >> 40 & 0xFFFFFF
        yield i, bench.with_word(i, with_field(bench.words[i], 40, 24, offset ^ 16))


def slot_address_added(bench: Promoted) -> Iterator[tuple[int, Kernel]]:
    """R1, which holds the slots' address now, besides the uniform register."""
    for i in bench.local():
        yield i, bench.with_word(i, with_field(bench.words[i], 24, 8, 1))


def by_stack_pointer(bench: Promoted) -> Iterator[tuple[int, Kernel]]:
    """The original's own form, at what R1 holds now."""
    for i in bench.local():
        low, high = with_field(bench.words[i], 24, 8, 1)
        if low & 0xFFF == _LDL:
            low &= ~(0x3F << 32)
        else:
            low, high = low & ~0xFFF | 0x387, high & ~0x3F
        yield i, bench.with_word(i, (low, high & ~(1 << 27)))


def wrong_start(bench: Promoted) -> Iterator[tuple[int, Kernel]]:
    """Another constant, another distance, or none, in what computes the frame's place."""
    for i in bench.opcodes(_ULDC, _UIADD3):
        if bench.words[i][0] >> 16 & 0x3F != bench.uniform():
            continue
        yield i, bench.with_word(i, nop())
        at = 38 if bench.words[i][0] & 0xFFF == _ULDC else 32
        value = bench.words[i][0] >> at & 0xFFFF
        yield i, bench.with_word(i, with_field(bench.words[i], at, 16, value ^ 4))


def clobbered(bench: Promoted) -> Iterator[tuple[int, Kernel]]:
    """The uniform register is written once more, at the entry or later."""
    add = next(i for i in bench.opcodes(_UIADD3) if bench.words[i][0] >> 16 & 63 == bench.uniform())
    for i, name in enumerate(bench.view.name):
        if name == "NOP" and i < bench.local()[-1]:
            yield i, bench.with_word(i, bench.words[add])
    for i in bench.local():  # in place of an access: that one is gone, and the rest moved
        yield i, bench.with_word(i, bench.words[add])


def access_dropped(bench: Promoted) -> Iterator[tuple[int, Kernel]]:
    """A NOP in place of an access that stayed."""
    for i in bench.local():
        yield i, bench.with_word(i, nop())


def wrong_home(bench: Promoted) -> Iterator[tuple[int, Kernel]]:
    """A spilled value moved to or from the register next to its own."""
    for i in bench.moves():
        for bit in (16, 32):
            register = bench.words[i][0] >> bit & 0xFF
            yield i, bench.with_word(i, with_field(bench.words[i], bit, 8, register ^ 1))


def guard_turned(bench: Promoted) -> Iterator[tuple[int, Kernel]]:
    """A move that never happens."""
    for i in bench.moves():
        yield i, bench.with_word(i, with_field(bench.words[i], 12, 4, 0xF))


UNIFORM_KINDS: tuple[Kind, ...] = (
    other_uniform_register, wrong_offset, slot_address_added, by_stack_pointer, wrong_start,
    clobbered, access_dropped,
)  # fmt: skip
REGISTER_KINDS: tuple[Kind, ...] = (wrong_home, guard_turned)
