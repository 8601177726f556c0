"""What orders for several limits share changes none of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from regdem.binary.cubin import Cubin
from regdem.errors import UsageError
from regdem.transform.demoted import program_of
from regdem.transform.ground import Ground, ground_of
from regdem.transform.listing import hoisted, ordered, peak_of
from regdem.transform.reschedule import RescheduleOptions, reschedule

ROOT = Path(__file__).resolve().parents[2]
KERNEL = Cubin.parse(
    (ROOT / "examples" / "neighbour" / "neighbour.cubin").read_bytes(), "example"
).kernel("pair_forces")


@pytest.fixture(scope="module")
def ground() -> Ground:
    return ground_of(program_of(KERNEL))


def test_the_ground_of_a_program_is_made_once(ground: Ground) -> None:
    assert ground_of(program_of(KERNEL)) is ground
    assert ground_of(program_of(KERNEL), {3}) is not ground


def test_an_order_that_no_limit_hinders_is_that_of_each_limit(ground: Ground) -> None:
    found = 0
    for b, pieces in ground.pieces.items():
        start = ground.timeline.program.blocks[b].start
        for piece in pieces:
            task = ground.start(piece, range(start, piece.segment.start)).task
            paths = task.paths()
            for limit in (200, piece.peak, piece.peak + 4, piece.peak - 1, 120):
                for soft in (limit, limit - 2, limit - 8):
                    for steady in (False, True):
                        fresh = replace(task, known={})
                        expected = ordered(fresh, paths, limit, soft, steady=steady)
                        assert ordered(task, paths, limit, soft, steady=steady) == expected
            found += len(task.known)
    assert found > 0


def test_what_is_remembered_is_what_is_computed(ground: Ground) -> None:
    for b, pieces in ground.pieces.items():
        block = ground.timeline.program.blocks[b]
        order = range(block.start, block.end)
        for _ in range(2):
            assert ground.cost(b, order) == ground.timeline.cost(b, order) == ground.costs[b]
        for piece in pieces:
            start = ground.start(piece, range(block.start, piece.segment.start))
            for _ in range(2):
                places, peak = start.hoisted(16)
                assert places == hoisted(start.task, 16)
                assert peak == peak_of(piece.values, piece.multi_pass, places)


def test_limits_in_any_sequence_give_the_same_code() -> None:
    def codes(limits: list[int]) -> dict[int, bytes]:
        kernel = replace(KERNEL, name="again" + "_".join(map(str, limits)))  # a ground of its own
        made: dict[int, bytes] = {}
        for limit in limits:
            try:
                made[limit] = reschedule(kernel, RescheduleOptions(limit)).edit.code
            except UsageError:
                made[limit] = b""
        return made

    upwards, downwards = codes([48, 64, 128]), codes([128, 64, 48])
    assert upwards == downwards == {**codes([48]), **codes([64]), **codes([128])}
