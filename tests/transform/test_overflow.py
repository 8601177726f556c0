"""Slots in a longer stack frame: which are there, and that the checker takes no others."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.check import check_pair
from regdem.transform.demote import demote
from regdem.transform.demoted import DemoteOptions, Rewrite
from regdem.transform.overflow import homes

ROOT = Path(__file__).parents[2]
EXAMPLE = Cubin.parse((ROOT / "examples/neighbour/neighbour.cubin").read_bytes(), "neighbour")
ORIGINAL = next(kernel for kernel in EXAMPLE.kernels if kernel.registers_per_thread == 48)
THREADS = 256
SLOTS = 8
_LOCAL = (0x983, 0x387)


@pytest.fixture(scope="module")
def done() -> Rewrite:
    return demote(ORIGINAL, DemoteOptions(28, THREADS, SLOTS, local_slots=64))


@pytest.fixture(scope="module")
def rewritten(done: Rewrite) -> Kernel:
    data = EXAMPLE.with_kernel(ORIGINAL.name, done.edit).to_bytes()
    return Cubin.parse(data, "new").kernel(ORIGINAL.name)


def findings(kernel: Kernel) -> list[str]:
    verdict = check_pair(ORIGINAL, kernel, threads=THREADS, hazards=False)
    return [finding.kind for finding in verdict.findings]


def local(kernel: Kernel) -> list[tuple[int, int, int]]:
    """(instruction, low word, bytes from R1) of all local accesses."""
    lows = struct.unpack(f"<{len(kernel.code) // 8}Q", kernel.code)[::2]
    return [
        (i, low, (low >> 40) - (low >> 63 << 24))
        for i, low in enumerate(lows)
        if low & 0xFFF in _LOCAL
    ]


def with_low(kernel: Kernel, i: int, low: int) -> Kernel:
    code = kernel.code[: 16 * i] + struct.pack("<Q", low) + kernel.code[16 * i + 8 :]
    return replace(kernel, code=code)


def test_the_hottest_slots_are_in_shared_memory() -> None:
    found = homes([5.0, 1.0, 7.0, 3.0], 2, wide=False)
    assert found.shared == {0: 0, 2: 1}
    assert found.local == {1: -4, 3: -8}
    assert found.frame_bytes == 16


def test_pairs_stay_together() -> None:
    found = homes([5.0, 0.0, 2.0, 2.0, 9.0], 3, wide=True)
    assert found.shared == {4: 0}
    assert found.local == {0: -8, 1: -4, 2: -16, 3: -12}


def test_everything_fits_shared_memory() -> None:
    found = homes([1.0, 2.0], 4, wide=True)
    assert found.shared == {0: 0, 1: 1}
    assert found.frame_bytes == 0


def test_the_frame_grows_and_the_result_is_proved(done: Rewrite, rewritten: Kernel) -> None:
    assert not check_pair(ORIGINAL, rewritten, threads=THREADS).findings
    assert rewritten.registers_per_thread <= 28
    assert rewritten.local_bytes == done.edit.frame_bytes == rewritten.min_stack
    assert rewritten.local_bytes > ORIGINAL.local_bytes
    places = [place for _, _, place in local(rewritten)]
    assert places
    assert all(-rewritten.local_bytes <= place < 0 for place in places)
    assert rewritten.static_shared_bytes <= SLOTS * 1024 + 128
    with pytest.raises(Exception, match="slots"):
        demote(ORIGINAL, DemoteOptions(28, THREADS, SLOTS))


def test_a_frame_that_did_not_grow_is_rejected(rewritten: Kernel) -> None:
    assert findings(replace(rewritten, local_bytes=ORIGINAL.local_bytes))


def test_words_beyond_the_frame_or_of_others_are_rejected(rewritten: Kernel) -> None:
    accesses = local(rewritten)
    for i, low, place in accesses[:6]:
        for other in (0, place - 16 * 1024, *({p for _, _, p in accesses} - {place})):
            moved = low & (1 << 40) - 1 | (other & 0xFFFFFF) << 40
            assert findings(with_low(rewritten, i, moved)), (i, place, other)
            if other not in (0, place - 16 * 1024):
                break


def test_another_address_register_is_rejected(rewritten: Kernel) -> None:
    for i, low, _ in local(rewritten)[:4]:
        assert findings(with_low(rewritten, i, low & ~(0xFF << 24) | 2 << 24))
