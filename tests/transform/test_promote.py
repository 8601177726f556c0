"""Promotion of spills: every result is proved by the checker, which shares no code with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from regdem.analysis.frame import frame_of
from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.check import Verdict, check_pair
from regdem.errors import UnsupportedError, UsageError
from regdem.isa.decode import decode
from regdem.transform.demoted import program_of
from regdem.transform.promote import promote
from regdem.transform.promoted import PromoteOptions, Promotion

THREADS = 256


@pytest.fixture(scope="module")
def cubin() -> Cubin:
    data = (Path(__file__).parent / "data" / "spills.cubin").read_bytes()
    return Cubin.parse(data, "spills.cubin")


def run(cubin: Cubin, name: str, options: PromoteOptions) -> tuple[Promotion, Kernel, Verdict]:
    kernel = cubin.kernel(name)
    done = promote(kernel, options)
    new = Cubin.parse(cubin.with_kernel(name, done.edit).to_bytes(), "new").kernel(name)
    return done, new, check_pair(kernel, new, threads=options.threads)


def names(kernel: Kernel) -> list[str]:
    code = decode(kernel.code, kernel.arch)
    return [code.table.forms[int(f)].name for f in code.form.tolist()]


@pytest.mark.parametrize("name", ["single", "twice", "dynamic"])
def test_whole_frame_moves_and_is_proved(cubin: Cubin, name: str) -> None:
    done, new, verdict = run(cubin, name, PromoteOptions(THREADS, 44))
    assert not verdict.findings
    assert done.local_accesses_left == 0
    assert not {"LDL", "STL"} & set(names(new))
    assert done.registers_per_thread == cubin.kernel(name).registers_per_thread
    assert sum(w.loads + w.stores for w in done.promoted) == sum(
        a.words for a in frame_of(program_of(cubin.kernel(name))).accesses
    )


@pytest.mark.parametrize(("name", "slots"), [("dynamic", 7), ("dynamic", 8), ("twice", 12)])
def test_part_of_the_frame_moves_hottest_first(cubin: Cubin, name: str, slots: int) -> None:
    done, new, verdict = run(cubin, name, PromoteOptions(THREADS, slots))
    assert not verdict.findings
    assert 0 < done.local_accesses_left < names(cubin.kernel(name)).count("LDL") * 3
    assert done.slots <= slots
    assert new.registers_per_thread <= cubin.kernel(name).registers_per_thread
    assert all(w.loads + w.stores > 0 for w in done.promoted)


def by_uniform_register(kernel: Kernel) -> list[bool]:
    """For each LDL and STL, whether a uniform register holds its address."""
    words = decode(kernel.code, kernel.arch).words.tolist()
    return [bool(hi >> 27 & 1) for lo, hi in words if lo & 0xFFF in (0x983, 0x387, 0x987)]


@pytest.mark.parametrize(("name", "slots"), [("dynamic", 7), ("single", 3), ("twice", 12)])
def test_what_stays_is_reached_through_a_uniform_register(
    cubin: Cubin, name: str, slots: int
) -> None:
    kernel = cubin.kernel(name)
    done, new, verdict = run(cubin, name, PromoteOptions(THREADS, slots))
    assert not verdict.findings
    assert not any(by_uniform_register(kernel))
    assert by_uniform_register(new) == [True] * done.local_accesses_left
    assert done.registers_per_thread == kernel.registers_per_thread
    assert done.method == "promote"


def test_spills_come_back_into_registers_first(cubin: Cubin) -> None:
    done, new, verdict = run(cubin, "dynamic", PromoteOptions(THREADS, 44, registers=64))
    assert not verdict.findings
    assert done.method == "recover"
    assert not done.promoted
    assert done.local_accesses_left == 0
    assert done.shared_bytes == cubin.kernel("dynamic").static_shared_bytes
    assert 24 < new.registers_per_thread <= 64
    assert not {"LDL", "STL"} & set(names(new))
    assert names(new).count("LDS") == names(cubin.kernel("dynamic")).count("LDS")


@pytest.mark.parametrize(("slots", "method"), [(2, "recover+promote"), (0, "recover")])
def test_what_fits_no_register_gets_a_slot_or_stays(cubin: Cubin, slots: int, method: str) -> None:
    done, new, verdict = run(cubin, "dynamic", PromoteOptions(THREADS, slots, registers=27))
    assert not verdict.findings
    assert done.method == method
    assert new.registers_per_thread <= 27
    assert done.recovered
    assert bool(done.promoted) == bool(slots)
    assert done.local_accesses_left == len(by_uniform_register(new)) > 0
    assert all(by_uniform_register(new)) == bool(slots)


def test_promotion_below_the_register_count(cubin: Cubin) -> None:
    done, new, verdict = run(cubin, "single", PromoteOptions(128, 80, registers=20))
    assert not verdict.findings
    assert new.registers_per_thread <= 20
    assert done.method == "promote+demote"
    assert done.demoted


def test_other_block_sizes_have_other_layouts(cubin: Cubin) -> None:
    kernel = cubin.kernel("single")
    done = promote(kernel, PromoteOptions(64, 40))
    new = Cubin.parse(cubin.with_kernel("single", done.edit).to_bytes(), "new").kernel("single")
    assert not check_pair(kernel, new, threads=64).findings
    assert check_pair(kernel, new, threads=128).findings  # slots for 64 threads only


def test_arrays_stay(cubin: Cubin) -> None:
    with pytest.raises(UnsupportedError) as caught:
        promote(cubin.kernel("array"), PromoteOptions(THREADS, 40))
    assert caught.value.code == "frame_not_private"


def test_nothing_to_promote(cubin: Cubin) -> None:
    with pytest.raises(UsageError) as caught:
        promote(cubin.kernel("plain"), PromoteOptions(THREADS, 40))
    assert caught.value.code == "nothing_to_do"


def test_no_slots(cubin: Cubin) -> None:
    with pytest.raises(UnsupportedError) as caught:
        promote(cubin.kernel("single"), PromoteOptions(THREADS, 0))
    assert caught.value.code == "slots_do_not_fit"


def test_frame_groups_hold_what_one_access_reaches(cubin: Cubin) -> None:
    frame = frame_of(program_of(cubin.kernel("twice")))
    assert not frame.reason
    groups = frame.groups()
    where = {place: k for k, group in enumerate(groups) for place in group}
    for access in frame.accesses:
        touched = {where[access.place_bytes + 4 * k] for k in range(access.words)}
        assert len(touched) == 1
