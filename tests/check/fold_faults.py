"""Faults in folded operands: another word, bank, sign, register or place than the original's.

    python tests/check/fold_faults.py

Every fault changes what an instruction computes, so the checker must reject all of them. The
rewrites are demotions in which instructions name constants (or uniform registers) themselves.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rewrites import NOP, Word, control, controlled, with_field

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import webs
from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.check import check_pair
from regdem.check.operands import moved_constants, named_operand, unfolded
from regdem.check.uniform import new_registers, uniform_constants
from regdem.check.view import CodeView, view_of
from regdem.isa.sources import Source, with_source
from regdem.isa.table import table_for
from regdem.transform.demote import demote
from regdem.transform.demoted import DemoteOptions, program_of

THREADS = 128
CASES = (
    ("analysis/data/remainders.cubin", "dots", 18, True),
    ("analysis/data/remainders.cubin", "dots", 18, False),
    ("analysis/data/remainders.cubin", "dots", 22, True),
    ("report/data/shared_spills.cubin", "pair_forces", 26, True),
    ("report/data/shared_spills.cubin", "pair_forces", 24, False),
    ("transform/data/uniform.cubin", "shared_terms", 38, False),
    ("transform/data/uniform.cubin", "shared_terms_call", 43, False),
)
"""File, kernel, registers, whether words of constant banks may be operands."""
_COPIES = (0xC02, 0x984)
"""MOV from a uniform register, and LDS: what they give may be a constant."""
_SIGN, _ABSOLUTE = 1 << 63, 1 << 62


class Folded:
    """A correct rewrite with folded operands, whose words can be changed one at a time."""

    def __init__(self, file: str, name: str, registers: int, banks: bool = True) -> None:
        data = (Path(__file__).parent.parent / file).read_bytes()
        cubin = Cubin.parse(data, file)
        self.original = cubin.kernel(name)
        edit = demote(self.original, DemoteOptions(registers, THREADS, 40, banks=banks)).edit
        new = Cubin.parse(cubin.with_kernel(name, edit).to_bytes(), "new")
        self.rewritten = new.kernel(name)
        before = view_of(name, self.original.code, self.original.arch)
        self.view: CodeView = view_of(name, self.rewritten.code, self.rewritten.arch)
        self.words: list[Word] = list(zip(self.view.low, self.view.high, strict=True))
        texts = set(before.masked)
        folded = unfolded(before, self.view, ()).folded
        self.folded = sorted(j for j in folded if self.view.masked[j] not in texts)
        self.new = new_registers(before, self.view)
        self.constants = {
            word
            for i in range(len(before))
            for word in moved_constants(before.low[i], before.high[i])
        }

    def with_word(self, i: int, word: Word) -> Kernel:
        """The rewrite with one instruction replaced."""
        words = [*self.words]
        words[i] = word
        return replace(self.rewritten, code=b"".join(struct.pack("<QQ", *w) for w in words))

    def kept(self) -> dict[int, tuple[str, int]]:
        """The constants in uniform registers that the rewrite took into use."""
        return {
            place: word
            for j, places in enumerate(self.view.writes)
            if self.new.issuperset(places)
            for place, word in zip(places, uniform_constants(*self.words[j]), strict=False)
        }

    def of_kind(self, kind: str) -> Iterator[tuple[int, int]]:
        """Folded instructions that name a `kind`, and what they name."""
        for j in self.folded:
            operand = named_operand(*self.words[j])
            if operand is not None and operand.kind == kind:
                yield j, operand.value


Kind = Callable[[Folded], Iterator[tuple[int, Kernel]]]


def wrong_offset(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """A neighbouring word, and every other word that the kernel loads."""
    for j, place in bench.of_kind("bank"):
        others = {value & 0xFFFF for kind, value in bench.constants if kind == "bank"}
        for offset in sorted((others | {(place & 0xFFFF) + 4}) - {place & 0xFFFF}):
            yield j, bench.with_word(j, with_field(bench.words[j], 38, 16, offset))


def wrong_bank(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """The same offset in another bank."""
    for j, place in bench.of_kind("bank"):
        yield j, bench.with_word(j, with_field(bench.words[j], 54, 5, (place >> 16) + 3))


def negation(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """The operand's sign turned."""
    for j in bench.folded:
        low, high = bench.words[j]
        yield j, bench.with_word(j, (low ^ _SIGN, high))


def absolute_value(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """The operand without its sign."""
    for j in bench.folded:
        low, high = bench.words[j]
        yield j, bench.with_word(j, (low ^ _ABSOLUTE, high))


def immediate_instead(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """The bits of the constant's place taken for a number."""
    for j, _ in bench.of_kind("bank"):
        low, high = bench.words[j]
        yield j, bench.with_word(j, (low ^ (4 ^ 5) << 9, high))


def other_register(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """Another register operand of a folded instruction read from elsewhere."""
    for j in bench.folded:
        for row in bench.view.rows[j]:
            if row.file == 0 and row.reads and not row.writes and row.width == 1:
                other = row.first ^ 1
                yield j, bench.with_word(j, with_field(bench.words[j], row.bit, 8, other))


def wrong_use(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """A constant named where the original reads what is no constant."""
    program = program_of(bench.rewritten)
    found = webs(program, liveness(program))
    code = program.code
    constant = {
        web.index
        for web in found.webs
        if any(
            moved_constants(*code.word(i)) or bench.words[i][0] & 0xFFF in _COPIES
            for i in web.writes
        )
    }
    table = table_for("sm_90")
    words = sorted(value for kind, value in bench.constants if kind == "bank")
    for row, named in sorted(found.of_row.items()):
        i = int(code.operand_instruction[row])
        if not constant.isdisjoint(named) or len(named) != 1:
            continue
        for value in words[:3]:
            bit = int(code.operand_bit[row])
            word = with_source(table, code.word(i), bit, Source("constant", value))
            if word is not None:
                yield i, bench.with_word(i, word)


def lost_definition(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """A constant's move that is not there, though somebody still reads its register."""
    view = bench.view
    for i in range(len(view)):
        if not moved_constants(view.low[i], view.high[i]) or view.guard[i] >= 0:
            continue
        for k in range(i + 1, len(view)):
            if view.control[k] != "none" or set(view.writes[k]) & set(view.writes[i]):
                break
            if set(view.reads[k]) & set(view.writes[i]):
                stall = max(1, control(bench.words[i], "stall"))
                yield i, bench.with_word(i, controlled(NOP, stall=stall))
                break


def wrong_uniform(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """Another uniform register of those in use."""
    used = {row.first for rows in bench.view.rows for row in rows if row.file == 1}
    holds = bench.kept()
    for j, number in bench.of_kind("uniform"):
        mine = holds.get(256 + number)
        for other in sorted(place - 256 for place in used if place != 256 + number):
            if mine is not None and holds.get(256 + other) == mine:
                continue
            yield j, bench.with_word(j, with_field(bench.words[j], 32, 6, other))


def wrong_load(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """Another word, or number, in a uniform register that the rewrite took into use."""
    for j, places in enumerate(bench.view.writes):
        if places and places[0] in bench.new and bench.view.name[j] in ("ULDC", "UMOV"):
            low, high = bench.words[j]
            yield j, bench.with_word(j, (low ^ 1 << 41, high))


def wrong_target(bench: Folded) -> Iterator[tuple[int, Kernel]]:
    """A constant loaded into another uniform register in use."""
    for j, places in enumerate(bench.view.writes):
        if places and places[0] in bench.new and bench.view.name[j] in ("ULDC", "UMOV"):
            for other in sorted(bench.new.difference(places)):
                if bench.kept().get(other) == bench.kept()[places[0]]:
                    continue
                word = with_field(bench.words[j], 16, 8, other - 256)
                yield j, bench.with_word(j, word)


KINDS: tuple[Kind, ...] = (
    wrong_offset,
    wrong_bank,
    negation,
    absolute_value,
    immediate_instead,
    other_register,
    wrong_use,
    lost_definition,
    wrong_uniform,
    wrong_load,
    wrong_target,
)


def accepted(bench: Folded, most: int) -> Iterator[tuple[str, int, bool]]:
    """Plants up to `most` faults of each kind: (kind, offset, whether it was accepted)."""
    for kind in KINDS:
        planted = list(kind(bench))
        for i, kernel in planted[:: 1 + len(planted) // most]:
            verdict = check_pair(bench.original, kernel, threads=THREADS, hazards=False)
            yield kind.__name__, 16 * i, not verdict.findings


def main() -> int:
    """Plant, check and count."""
    planted: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    for file, name, registers, banks in CASES:
        bench = Folded(file, name, registers, banks)
        if check_pair(bench.original, bench.rewritten, threads=THREADS).findings:
            print(f"{name}: the correct rewrite is rejected")
            return 1
        for kind, offset, was_accepted in accepted(bench, 100):
            planted[kind] += 1
            caught[kind] += not was_accepted
            if was_accepted:
                print(f"accepted: {kind} in {name} at 0x{offset:x}")
    for kind, count in planted.items():
        print(f"{kind:22} {caught[kind]:4} of {count:4}")
    print(f"{sum(caught.values())} of {sum(planted.values())} faults caught")
    return 0 if caught == planted else 1


if __name__ == "__main__":
    sys.exit(main())
