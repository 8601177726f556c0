"""Reordered straight-line code: legal orders are proved, each kind of illegal one is rejected."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest
from permute import constraints, moves, permuted, rewritten, stretches
from rewrites import Edit, demotable, demoted

from regdem.binary.kernel import Kernel
from regdem.check import check_pair
from regdem.check.effects import EXCHANGE, FENCE, LOAD, NONE, STORE, effect
from regdem.check.order import Names, Passed, names_for
from regdem.check.state import State
from regdem.check.view import CodeView, view_of

THREADS = 128
NAMES = [
    "shared_block",
    "dynamic_block",
    "doubles",
    "calls",
    "jumps",
    "vectors",
    "shuffles",
    "guarded",
    "gather",
    "stencil",
]


@pytest.mark.parametrize("renaming", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_legal_orders_are_proved(kernels: dict[str, Kernel], name: str, renaming: bool) -> None:
    kernel = kernels[name]
    for seed in range(2):
        edit, _ = permuted(kernel, seed, renaming=renaming)
        assert any(i != k for k, i in enumerate(edit.order))
        verdict = check_pair(kernel, rewritten(kernel, seed, renaming=renaming), threads=THREADS)
        assert verdict.findings == ()


@pytest.mark.parametrize("name", ["shared_block", "gather", "guarded"])
def test_reordered_and_demoted(kernels: dict[str, Kernel], name: str) -> None:
    kernel = kernels[name]
    mixed = rewritten(kernel, 3, renaming=True)
    low = demoted(mixed, demotable(view_of(name, kernel.code, kernel.arch))[:4], THREADS)
    assert check_pair(kernel, low, threads=THREADS).findings == ()


def test_order_may_be_restored(kernels: dict[str, Kernel]) -> None:
    kernel = kernels["stencil"]
    assert check_pair(rewritten(kernel), kernel, threads=THREADS, hazards=False).findings == ()


def dependences(kernel: Kernel, view: CodeView) -> Iterator[tuple[str, int, int]]:
    """(kind, earlier, later) of instructions of a stretch that may not change their order."""
    for stretch in stretches(kernel, view):
        before = constraints(view, stretch, [], set()).before
        for late, needs in before.items():
            if not is_used(view, stretch, late):
                continue
            for early in needs:
                yield from ((kind, early, late) for kind in kinds(view, early, late))


def is_used(view: CodeView, stretch: range, i: int) -> bool:
    """Whether a store, or read in the stretch (the vendor's code has results that nobody reads)."""
    written = set(view.writes[i])
    for j in range(i + 1, stretch.stop):
        if written & {*view.reads[j], view.guard[j]}:
            return True
        written -= set(view.writes[j])
    return not view.writes[i]


def kinds(view: CodeView, early: int, late: int) -> Iterator[str]:
    read, written = set(view.reads[late]), set(view.writes[early])
    guarded = view.guard[early] >= 0
    if read & written:
        yield "read" if not guarded else "guarded definition"
    if view.guard[late] in written:
        yield "guard"
    if set(view.reads[early]) & set(view.writes[late]):
        yield "overwritten"


def swapped(kernel: Kernel, early: int, late: int) -> Kernel:
    """The kernel with `late` moved in front of `early`, all else in its order."""
    edit, registers = permuted(kernel)
    order = list(range(len(edit.words)))
    order.remove(late)
    order.insert(order.index(early), late)
    edit.order = order
    return edit.emit(registers_per_thread=max(registers + 2, kernel.registers_per_thread))


@pytest.mark.parametrize("kind", ["read", "guarded definition", "guard", "overwritten"])
def test_illegal_orders_are_rejected(kernels: dict[str, Kernel], kind: str) -> None:
    planted = 0
    for name in ("shared_block", "dynamic_block", "vectors", "guarded", "stencil"):
        kernel = kernels[name]
        view = view_of(name, kernel.code, kernel.arch)
        found = [pair for pair in dependences(kernel, view) if pair[0] == kind]
        for _, early, late in found[:: max(1, len(found) // 3)]:
            verdict = check_pair(kernel, swapped(kernel, early, late), threads=THREADS)
            assert verdict.findings, f"{name}: 0x{16 * late:x} before 0x{16 * early:x}"
            assert verdict.checks["hazards"] == "clean"
            planted += 1
    assert planted >= 3


def test_nothing_passes_a_barrier(kernels: dict[str, Kernel]) -> None:
    planted = 0
    for name in ("shared_block", "dynamic_block"):
        kernel = kernels[name]
        view = view_of(name, kernel.code, kernel.arch)
        for barrier in (i for i, kind in enumerate(view.control) if kind == "barrier"):
            for i in (barrier - 1, barrier + 1):
                early, late = sorted((i, barrier))
                if not moves(view, i):
                    continue
                verdict = check_pair(kernel, swapped(kernel, early, late), threads=THREADS)
                if effect(view, i) in (LOAD, STORE):
                    assert verdict.findings
                    planted += 1
    assert planted


def test_effects(kernels: dict[str, Kernel]) -> None:
    seen: dict[str, set[int]] = {}
    for kernel in kernels.values():
        view = view_of(kernel.name, kernel.code, kernel.arch)
        for i, name in enumerate(view.name):
            seen.setdefault(name, set()).add(effect(view, i))
    assert seen["FFMA"] == {NONE}
    assert seen["LDS"] == {LOAD}
    assert seen["STG"] == {STORE}
    assert seen["SHFL"] == {EXCHANGE}
    assert seen["BAR"] == seen["BRA"] == seen["EXIT"] == {FENCE}


def test_strong_accesses_are_fences(kernels: dict[str, Kernel]) -> None:
    edit = Edit.of(kernels["gather"])
    i = edit.view.name.index("LDG")
    strong = 7
    edit.words[i] = (edit.words[i][0], edit.words[i][1] & ~(15 << 13) | strong << 13)
    changed = edit.emit()
    view = view_of("gather", changed.code, changed.arch)
    assert effect(view, i) == FENCE


Word = tuple[int, int]


def mov(to: int, source: int) -> Word:
    return 0x7202 | to << 16 | source << 32, 0xF00


def load(to: int, address: int, offset: int = 0, *, shared: bool = False) -> Word:
    if shared:
        return 0x7984 | to << 16 | address << 24 | offset << 40, 0x800
    return 0x7981 | to << 16 | address << 24 | 4 << 32 | offset << 40, 0x0C1E1900


def store(address: int, data: int, offset: int = 0, *, shared: bool = False) -> Word:
    if shared:
        return 0x7388 | address << 24 | data << 32 | offset << 40, 0x800
    return 0x7986 | address << 24 | data << 32 | offset << 40, 0x0C101904


def proved(words: list[Word], order: list[int]) -> Names | Passed:
    code = b"".join(struct.pack("<QQ", low, high) for low, high in words)
    return names_for(view_of("k", code, "sm_90"), {}, order, 1000)


def under(word: Word, predicate: int) -> Word:
    return word[0] & ~(15 << 12) | predicate << 12, word[1]


def test_a_register_used_twice_gets_versions() -> None:
    words = [mov(6, 4), mov(4, 2), mov(5, 4), mov(4, 3), mov(7, 4)]
    assert proved(words, [0, 1, 2, 3, 4]) == Names()
    names = proved(words, [3, 4, 1, 2, 0])
    assert isinstance(names, Names)
    assert [register for register, _ in names.copies] == [4]
    assert names.reads[4][4] == names.writes[3][4] != names.reads[2][4] == names.writes[1][4]
    assert 0 not in names.reads
    assert proved(words, [4, 3, 1, 2, 0]) == Passed(3, 4, "it reads what that writes")


def test_the_last_version_keeps_the_name_where_it_can() -> None:
    words = [mov(4, 2), mov(6, 4), mov(4, 3), mov(6, 4), mov(4, 5)]
    names = proved(words, [2, 0, 1, 3, 4])
    assert isinstance(names, Names)
    assert names.copies == []
    assert 4 not in names.writes.get(4, {})


def test_a_guarded_definition_keeps_its_place() -> None:
    words = [mov(4, 2), under(mov(4, 3), 0), mov(6, 4)]
    assert isinstance(proved(words, [1, 0, 2]), Passed)
    assert isinstance(proved(words, [0, 2, 1]), Passed)
    assert isinstance(proved(words, [0, 1, 2]), Names)


@pytest.mark.parametrize(
    ("words", "legal"),
    [
        ([store(2, 6), load(7, 4)], False),
        ([load(7, 4), store(2, 6)], False),
        ([load(7, 4), load(6, 2)], True),
        ([store(2, 6), store(4, 7)], False),
        ([store(2, 6), store(2, 7, 4)], True),
        ([store(2, 6), load(7, 2, 4)], True),
        ([store(2, 6), load(7, 2, 2)], False),
        ([store(2, 6), load(7, 2, shared=True)], True),
        ([store(2, 6, shared=True), load(7, 3, 64, shared=True)], False),
        ([store(2, 6, shared=True), load(7, 2, 64, shared=True)], True),
    ],
)
def test_memory_keeps_its_order_where_bytes_may_be_shared(words: list[Word], legal: bool) -> None:
    assert isinstance(proved(words, [1, 0]), Names if legal else Passed)


def test_an_address_that_changed_is_another_address() -> None:
    words = [store(2, 6, shared=True), mov(2, 3), load(7, 2, 64, shared=True)]
    assert isinstance(proved(words, [1, 2, 0]), Passed)


def test_a_commit_renames_facts_and_conditions() -> None:
    version, predicate_version = 700, 340
    state = State(
        hold={7: 1 << version | 1 << 3, 8: 1 << 5},
        when={9: {2 * predicate_version: 1 << version, 2 * 321: 1 << 3}},
        undefined=1 << 5 | 1 << 6,
        undefined_when={},
        available=0,
    )
    state.commit({version: 5, predicate_version: 321}, 1 << version | 1 << predicate_version)
    assert state.hold == {7: 1 << 5 | 1 << 3, 8: 0}
    assert state.when == {9: {2 * 321: 1 << 5}}
    assert state.undefined == 1 << 6


def test_reordered_code_takes_little_longer(kernels: dict[str, Kernel]) -> None:
    kernel = kernels["doubles"]
    mixed = rewritten(kernel)
    check_pair(kernel, mixed)
    start = time.process_time()
    check_pair(kernel, mixed)
    assert (time.process_time() - start) / (len(mixed.code) // 16) * 1000 < 1.0
