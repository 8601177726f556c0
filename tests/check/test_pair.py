"""Correct rewrites are accepted; each kind of wrong one is rejected with the right finding."""

from __future__ import annotations

import struct
import time
from dataclasses import replace

import pytest
from rewrites import Edit, controlled, demotable, demoted, renamed, with_field, with_nops

from regdem.binary.kernel import Kernel
from regdem.check import check_hazards, check_pair
from regdem.check.view import view_of

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


def kinds(original: Kernel, rewritten: Kernel) -> set[str]:
    return {f.kind for f in check_pair(original, rewritten, threads=THREADS).findings}


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_equals_itself_and_is_clean(kernels: dict[str, Kernel], name: str) -> None:
    verdict = check_pair(kernels[name], kernels[name])
    assert verdict.findings == ()
    assert verdict.verdict == "equivalent"
    assert verdict.checks == {"dataflow": "proved", "layout": "clean", "hazards": "clean"}


@pytest.mark.parametrize("name", NAMES)
def test_nops_move_targets_and_nothing_else(kernels: dict[str, Kernel], name: str) -> None:
    assert check_pair(kernels[name], with_nops(kernels[name], 3)).findings == ()


@pytest.mark.parametrize("name", NAMES)
def test_renaming_by_a_bijection_is_accepted(kernels: dict[str, Kernel], name: str) -> None:
    kernel = kernels[name]
    moved = renamed(kernel, lambda r: r + 32 if r >= 4 else r, kernel.registers_per_thread + 32)
    assert check_pair(kernel, moved).findings == ()


@pytest.mark.parametrize("name", NAMES)
def test_demotion_by_hand_is_accepted(kernels: dict[str, Kernel], name: str) -> None:
    kernel = kernels[name]
    chosen = demotable(view_of(kernel.name, kernel.code, kernel.arch))[:6]
    assert chosen
    rewritten = demoted(kernel, chosen, THREADS)
    assert check_pair(kernel, rewritten, threads=THREADS).findings == ()


def test_a_thousand_instructions_take_less_than_a_second(kernels: dict[str, Kernel]) -> None:
    kernel = kernels["doubles"]
    chosen = demotable(view_of(kernel.name, kernel.code, kernel.arch))[:6]
    rewritten = demoted(kernel, chosen, THREADS)
    count = len(rewritten.code) // 16
    check_pair(kernel, kernel)
    start = time.process_time()
    check_pair(kernel, rewritten, threads=THREADS)
    assert (time.process_time() - start) / count * 1000 < 1.0


def test_a_changed_immediate_is_rejected(kernels: dict[str, Kernel]) -> None:
    kernel = kernels["gather"]
    edit = Edit.of(kernel)
    i = next(i for i, name in enumerate(edit.view.name) if name == "LDG")
    edit.words[i] = with_field(edit.words[i], 40, 24, 4096)
    assert "missing_instruction" in kinds(kernel, edit.emit())


def test_a_wrong_return_address_is_rejected(kernels: dict[str, Kernel]) -> None:
    kernel = kernels["calls"]
    moved = with_nops(kernel, 5)
    words = list(struct.iter_unpack("<QQ", moved.code))
    i = next(
        i
        for i, (low, _) in enumerate(words)
        if low & 0xFFF == 0x802 and 0 < low >> 32 < len(moved.code)
    )
    low, high = words[i]
    words[i] = (low + (16 << 32), high)
    broken = replace(moved, code=b"".join(struct.pack("<QQ", *word) for word in words))
    assert kinds(kernel, broken) & {"return_address", "missing_instruction"}


def test_an_inserted_store_elsewhere_is_rejected(kernels: dict[str, Kernel]) -> None:
    kernel = kernels["gather"]
    edit = Edit.of(kernel)
    store = next(w for w, name in zip(edit.words, edit.view.name, strict=True) if name == "STG")
    edit.before[3] = [controlled(store)]
    assert "inserted_instruction" in kinds(kernel, edit.emit())


def test_too_few_registers_are_rejected(kernels: dict[str, Kernel]) -> None:
    kernel = kernels["gather"]
    fewer = replace(kernel, registers_per_thread=kernel.registers_per_thread - 1)
    assert kinds(kernel, fewer) == {"register_count"}


def test_without_a_block_size_slots_are_not_proved(kernels: dict[str, Kernel]) -> None:
    kernel = kernels["gather"]
    chosen = demotable(view_of(kernel.name, kernel.code, kernel.arch))[:2]
    rewritten = replace(demoted(kernel, chosen, THREADS), max_threads=None, required_block=None)
    original = replace(kernel, max_threads=None, required_block=None)
    assert check_pair(original, rewritten).verdict == "rejected"


def test_slots_for_fewer_threads_than_launched_are_rejected(kernels: dict[str, Kernel]) -> None:
    kernel = kernels["gather"]
    chosen = demotable(view_of(kernel.name, kernel.code, kernel.arch))[:2]
    rewritten = demoted(kernel, chosen, THREADS)
    assert check_pair(kernel, rewritten, threads=2 * THREADS).verdict == "rejected"


def test_the_largest_block_of_the_file_and_of_the_proof_go_together(
    kernels: dict[str, Kernel],
) -> None:
    kernel = replace(kernels["gather"], max_threads=1024, max_block=None, required_block=None)
    chosen = demotable(view_of(kernel.name, kernel.code, kernel.arch))[:2]
    slots = demoted(kernel, chosen, THREADS)
    assert check_pair(kernel, slots).verdict == "rejected"
    open_ended = check_pair(kernel, slots, threads=THREADS)
    assert open_ended.findings == ()
    assert open_ended.assumptions[0].endswith("which the file does not enforce")
    bound = replace(slots, max_threads=THREADS)
    for threads in (None, THREADS):
        verdict = check_pair(kernel, bound, threads=threads)
        assert verdict.findings == ()
        assert verdict.assumptions[0].endswith("which the file enforces")
    undeclared = replace(kernel, max_threads=None)
    assert check_pair(undeclared, bound).findings == ()
    for threads in (64, 2 * THREADS):
        smaller = replace(slots, max_threads=32)
        assert "launch_bounds" in {f.kind for f in check_pair(
            kernel, smaller, threads=threads).findings}  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"), [(256, None), (256, 512), (None, 128), (1024, 256)], ids=str
)
def test_without_slots_the_largest_block_stays(
    kernels: dict[str, Kernel], before: int | None, after: int | None
) -> None:
    kernel = replace(kernels["gather"], max_threads=before, required_block=None)
    verdict = check_pair(kernel, replace(kernel, max_threads=after), threads=THREADS)
    assert {finding.kind for finding in verdict.findings} == {"launch_bounds"}


def test_hazards_of_the_vendors_code(kernels: dict[str, Kernel]) -> None:
    for kernel in kernels.values():
        assert check_hazards(kernel) == []
