"""Orders near a kernel's own: dependences hold, the seed decides, residency is kept."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regdem.binary import Cubin
from regdem.check import check_pair
from regdem.errors import UsageError
from regdem.machine import BlockShape
from regdem.neighbours import lower_residencies, with_fewer_warps, with_near_order
from regdem.rewrite import Request
from regdem.transform.demoted import program_of
from regdem.transform.ground import ground_of
from regdem.transform.near_orders import nearest, with_moves

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = Cubin.parse((ROOT / "examples" / "neighbour" / "neighbour.cubin").read_bytes(), "example")
KERNEL = EXAMPLE.kernel("pair_forces")
GROUND = ground_of(program_of(KERNEL))
PIECES = [piece for of_block in GROUND.pieces.values() for piece in of_block]
REQUEST = Request(BlockShape(256))


@given(st.integers(0, 2**32), st.integers(1, 64))
@settings(max_examples=60, deadline=None)
def test_moves_keep_dependences_and_most_places(seed: int, moves: int) -> None:
    rng = random.Random(seed)
    for piece in PIECES:
        slow = GROUND.timeline.variable[piece.segment.start :]
        order = with_moves(piece.graph, slow, rng, moves)
        assert piece.graph.allows(order)


def test_no_wish_no_change() -> None:
    for piece in PIECES:
        n = piece.segment.end - piece.segment.start
        assert nearest(piece.graph, range(n)) == list(range(n))


def test_most_steps_are_proved_and_the_seed_decides() -> None:
    proved = 0
    codes: set[bytes] = set()
    for seed in range(8):
        try:
            new, done = with_near_order(EXAMPLE, KERNEL, REQUEST, f"{seed}")
        except UsageError:  # none of the moves drawn can be made
            continue
        again, _ = with_near_order(EXAMPLE, KERNEL, REQUEST, f"{seed}")
        after = new.kernel(KERNEL.name)
        assert after.code == again.kernel(KERNEL.name).code
        assert not check_pair(KERNEL, after, "sm_90", threads=256).findings
        assert done.after.active_blocks >= done.before.active_blocks
        codes.add(after.code)
        proved += 1
    assert proved >= 4
    assert len(codes) == proved


def test_fewer_warps_are_the_same_code_and_stay_so() -> None:
    counts = lower_residencies(KERNEL, REQUEST)
    assert counts == sorted(counts)
    assert counts
    new, done = with_fewer_warps(EXAMPLE, KERNEL, REQUEST, counts[0])
    held = new.kernel(KERNEL.name)
    assert held.code == KERNEL.code
    assert held.registers_per_thread == counts[0]
    assert done.after.active_blocks < done.before.active_blocks
    for seed in range(6):  # a step from there doesn't let more warps in
        try:
            moved, _ = with_near_order(new, held, REQUEST, f"{seed}")
        except UsageError:
            continue
        assert moved.kernel(KERNEL.name).registers_per_thread == counts[0]
        break
    else:
        pytest.fail("no step could be made")
