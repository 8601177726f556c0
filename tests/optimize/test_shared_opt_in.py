"""A host that has not opted in to large shared memory must still be able to launch a rewrite."""

from __future__ import annotations

from dataclasses import replace

from regdem.binary import Kernel
from regdem.machine import BlockShape
from regdem.rewrite import Request, most_slots

LIMIT = 48 * 1024
WARP_SLOT = 4 * 32


def test_slots_leave_room_for_the_launchs_dynamic_memory(example_kernel: object) -> None:
    assert isinstance(example_kernel, Kernel)
    request = Request(BlockShape(256), dynamic_shared_bytes=32 * 1024)
    slots = most_slots(example_kernel, request, 128)
    assert 0 < 8 * slots * WARP_SLOT <= 16 * 1024
    opted = most_slots(example_kernel, replace(request, shared_opt_in=True), 128)
    assert 16 * 1024 < 8 * opted * WARP_SLOT <= LIMIT


def test_a_launch_that_passes_the_limit_by_itself_has_opted_in(example_kernel: object) -> None:
    assert isinstance(example_kernel, Kernel)
    request = Request(BlockShape(256), dynamic_shared_bytes=64 * 1024)
    opted = replace(request, shared_opt_in=True)
    assert most_slots(example_kernel, request, 96) == most_slots(example_kernel, opted, 96) > 0
