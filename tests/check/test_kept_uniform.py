"""Values kept in uniform registers: accepted where proved, and every planted fault is rejected."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rewrites import NOP, Word, control, controlled, with_control, with_field

from regdem.analysis.webs import Webs
from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.check import check_pair
from regdem.check.places import FILE_BASE
from regdem.check.view import CodeView, view_of
from regdem.program.program import Program
from regdem.transform import by_live_range, original
from regdem.transform.demote import demote
from regdem.transform.demoted import DemoteOptions

FILE = Path(__file__).parent.parent / "transform" / "data" / "uniform.cubin"
CUBIN = Cubin.parse(FILE.read_bytes(), "uniform")
TARGETS = {"shared_terms": 39, "shared_terms_call": 43}
THREADS = 128


class Bench:
    """A correct rewrite with values in uniform registers, and what is known of it."""

    def __init__(self, name: str) -> None:
        self.original = CUBIN.kernel(name)
        done = demote(self.original, DemoteOptions(TARGETS[name], THREADS, 40))
        data = CUBIN.with_kernel(name, done.edit).to_bytes()
        self.rewritten = Cubin.parse(data, "new").kernel(name)
        self.view: CodeView = view_of(name, self.rewritten.code, "sm_90")
        self.words: list[Word] = list(zip(self.view.low, self.view.high, strict=True))
        old = view_of(name, self.original.code, "sm_90")
        self.used = {p for i in range(len(old)) for p in (*old.reads[i], *old.writes[i])}
        every = range(len(self.words))
        self.kept = [i for i in every if self.view.name[i] == "R2UR"]
        self.registers = {self.view.writes[i][0] for i in self.kept}
        self.taken = [i for i in every if set(self.view.reads[i]) & self.registers]

    def with_word(self, i: int, word: Word) -> Kernel:
        """The rewrite with one instruction replaced."""
        words = [*self.words]
        words[i] = word
        return replace(self.rewritten, code=b"".join(struct.pack("<QQ", *w) for w in words))


Kind = Callable[[Bench], Iterator[Kernel]]


def other_register_read(bench: Bench) -> Iterator[Kernel]:
    """A use that takes the value kept beside its own."""
    for i in bench.taken:
        own = bench.words[i][0] >> 32 & 0x3F
        for place in sorted(bench.registers):
            if place - FILE_BASE[1] != own:
                yield bench.with_word(i, with_field(bench.words[i], 32, 6, place - FILE_BASE[1]))


def two_values_in_one(bench: Bench) -> Iterator[Kernel]:
    """A value put where another is kept."""
    for i in bench.kept:
        for place in sorted(bench.registers - {bench.view.writes[i][0]}):
            yield bench.with_word(i, with_field(bench.words[i], 16, 8, place - FILE_BASE[1]))


def other_value_kept(bench: Bench) -> Iterator[Kernel]:
    """Another general register moved: mostly one that differs between threads."""
    for i in bench.kept:
        for register in range(40):
            if register not in bench.view.reads[i]:
                yield bench.with_word(i, with_field(bench.words[i], 24, 8, register))


def not_kept(bench: Bench) -> Iterator[Kernel]:
    """Nothing put into the register."""
    for i in bench.kept:
        yield bench.with_word(i, controlled(NOP))


def kept_by_some(bench: Bench) -> Iterator[Kernel]:
    """Put there under a guard."""
    for i in bench.kept:
        for predicate in range(7):
            yield bench.with_word(i, with_field(bench.words[i], 12, 3, predicate))


def predicate_written(bench: Bench) -> Iterator[Kernel]:
    """A move that also writes a predicate."""
    for i in bench.kept:
        yield bench.with_word(i, with_field(bench.words[i], 81, 3, 1))


def originals_register(bench: Bench) -> Iterator[Kernel]:
    """Kept in a register that the original uses."""
    for place in sorted(p for p in bench.used if FILE_BASE[1] <= p < FILE_BASE[2]):
        for i in bench.kept:
            yield bench.with_word(i, with_field(bench.words[i], 16, 8, place - FILE_BASE[1]))


def clobbered(bench: Bench) -> Iterator[Kernel]:
    """An instruction of the original, or an idle one, that writes the register as well."""
    number = min(bench.registers) - FILE_BASE[1]
    for i, name in enumerate(bench.view.name):
        written = [p for p in bench.view.writes[i][:1] if FILE_BASE[1] <= p < FILE_BASE[2]]
        if written and i not in bench.kept:
            yield bench.with_word(i, with_field(bench.words[i], 16, 8, number))
        if name == "NOP" and i < bench.taken[-1]:
            zero = (0x7C82 | number << 16 | 63 << 32, 0x08000000)
            yield bench.with_word(i, controlled(zero))


def too_soon(bench: Bench) -> Iterator[Kernel]:
    """A use right behind the move."""
    for i in bench.kept:
        for j in range(i + 1, min(i + 4, len(bench.words))):
            if j in bench.taken and bench.view.writes[i][0] in bench.view.reads[j]:
                stall = control(bench.words[j - 1], "stall") - 1
                yield bench.with_word(j - 1, with_control(bench.words[j - 1], stall=stall))


KINDS: tuple[Kind, ...] = (
    other_register_read,
    two_values_in_one,
    other_value_kept,
    not_kept,
    kept_by_some,
    predicate_written,
    originals_register,
    clobbered,
    too_soon,
)
BENCHES = {name: Bench(name) for name in TARGETS}


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_kept_is_proved(name: str) -> None:
    bench = BENCHES[name]
    assert bench.kept
    assert bench.taken
    assert not bench.registers & bench.used
    assert check_pair(bench.original, bench.rewritten, threads=THREADS).findings == ()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", TARGETS)
def test_faults_are_rejected(name: str, kind: Kind) -> None:
    bench = BENCHES[name]
    planted = list(kind(bench))[::3][:5]
    for kernel in planted:
        assert check_pair(bench.original, kernel, threads=THREADS).verdict == "rejected"


def test_every_kind_of_fault_was_planted() -> None:
    for kind in KINDS:
        if kind is not too_soon:
            assert any(True for bench in BENCHES.values() for _ in kind(bench)), kind.__name__


@pytest.mark.parametrize("name", TARGETS)
def test_threads_own_values_are_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite that keeps any value in a uniform register, whoever it belongs to."""

    def any_web(program: Program, found: Webs) -> set[int]:
        return {
            web.index
            for web in found.webs
            if len(web.writes) == 1 and web.register > 1 and program.code.guard[web.writes[0]] == 7
        }

    monkeypatch.setattr(original, "uniform_webs", any_web)
    monkeypatch.setattr(by_live_range, "_LONGEST_TWICE", 0)
    kernel = CUBIN.kernel(name)
    # What is known of a program is kept with it; by another name it is looked at anew.
    anew = replace(kernel, name=f"{name}_anew")
    done = demote(anew, DemoteOptions(TARGETS[name], THREADS, 40))
    new = Cubin.parse(CUBIN.with_kernel(name, done.edit).to_bytes(), "new").kernel(name)
    verdict = check_pair(kernel, new, threads=THREADS)
    assert done.uniform
    assert verdict.verdict == "rejected"
    assert any("may differ between threads" in finding.message for finding in verdict.findings)
