"""Slots for the frame's live ranges: shared where nothing overlaps, wide where values are."""

from __future__ import annotations

from pathlib import Path

import pytest

from regdem.analysis.forms import forms_of
from regdem.analysis.frame import Frame, frame_of
from regdem.binary.cubin import Cubin
from regdem.check import check_pair
from regdem.isa.decode import decode
from regdem.program.program import Program
from regdem.transform.demoted import program_of
from regdem.transform.frame_slots import SlotPlan, frame_ranges, plan_slots
from regdem.transform.promote import promote
from regdem.transform.promoted import PromoteOptions

DATA = Path(__file__).parent / "data"
KERNELS = [
    ("spills.cubin", "single"),
    ("spills.cubin", "twice"),
    ("spills.cubin", "dynamic"),
    ("spills_double.cubin", "pairs"),
]
MANY = 96


def load(file: str, name: str) -> tuple[Program, Frame]:
    program = program_of(Cubin.parse((DATA / file).read_bytes(), file).kernel(name))
    return program, frame_of(program)


def words_of(frame: Frame) -> set[int]:
    return {a.place_bytes + 4 * k for a in frame.accesses for k in range(a.words)}


def apart(plan: SlotPlan) -> bool:
    """Whether no two ranges in one slot are live at the same point."""
    taken: dict[int, int] = {}
    for each, slot in plan.ranges:
        if taken.get(slot, 0) & each.points:
            return False
        taken[slot] = taken.get(slot, 0) | each.points
    return True


@pytest.mark.parametrize(("file", "name"), KERNELS)
def test_ranges_hold_every_access_once(file: str, name: str) -> None:
    program, frame = load(file, name)
    words = [word for each in frame_ranges(program, frame) for word in each.words]
    assert len(words) == len(set(words))
    assert set(words) == {(a.instruction, k) for a in frame.accesses for k in range(a.words)}


@pytest.mark.parametrize(("file", "name"), KERNELS)
def test_a_range_is_live_at_its_accesses(file: str, name: str) -> None:
    program, frame = load(file, name)
    stores = {a.instruction for a in frame.accesses if a.is_store}
    for each in frame_ranges(program, frame):
        for i, _ in each.words:
            assert each.points >> (2 * i + (i in stores)) & 1


@pytest.mark.parametrize(("file", "name"), KERNELS)
@pytest.mark.parametrize("most", [-1, 0, 1, 2, 3, 5, 8, MANY])
def test_slots_keep_live_ranges_apart(file: str, name: str, most: int) -> None:
    program, frame = load(file, name)
    plan = plan_slots(program, frame, frozenset(), most)
    assert apart(plan)
    assert plan.slots <= max(0, most)
    assert all(slot < plan.slots for _, slot in plan.ranges)
    for access in frame.accesses:
        moved = [(access.instruction, k) in plan.slot for k in range(access.words)]
        assert len(set(moved)) == 1


@pytest.mark.parametrize(("file", "name"), KERNELS)
def test_never_more_slots_than_ptxas_has_words(file: str, name: str) -> None:
    program, frame = load(file, name)
    plan = plan_slots(program, frame, frozenset(), MANY)
    assert len(plan.moved) == len(frame.accesses)
    assert plan.slots <= len(words_of(frame)) + 1


def test_ranges_that_follow_each_other_share_slots() -> None:
    program, frame = load("spills.cubin", "single")
    assert plan_slots(program, frame, frozenset(), MANY).slots < len(words_of(frame))


def test_barred_accesses_stay() -> None:
    program, frame = load("spills.cubin", "single")
    barred = frozenset({frame.accesses[0].instruction})
    plan = plan_slots(program, frame, barred, MANY)
    assert not barred & plan.moved
    assert plan.moved


def test_doubles_move_as_pairs_and_are_proved() -> None:
    cubin = Cubin.parse((DATA / "spills_double.cubin").read_bytes(), "spills_double.cubin")
    kernel = cubin.kernel("pairs")
    done = promote(kernel, PromoteOptions(256, 40))
    new = Cubin.parse(cubin.with_kernel("pairs", done.edit).to_bytes(), "new").kernel("pairs")
    assert not check_pair(kernel, new, threads=256).findings
    code = decode(new.code, new.arch)
    sizes = [
        int(code.words[i, 1]) >> 9 & 7
        for i, form in enumerate(forms_of(code))
        if form.name in ("LDS", "STS")
    ]
    assert sizes.count(5) > len(sizes) / 2  # 64 bits
    assert done.local_accesses_left == 0
    # Each of them is marked as a spill in the file.
    marked = {a.offset for a in done.edit.new_annotations}
    assert marked == {
        16 * i for i, form in enumerate(forms_of(code)) if form.name in ("LDS", "STS")
    }
