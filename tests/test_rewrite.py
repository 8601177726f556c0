"""`regdem.rewrite`: targets, slots that keep residency, the proof, and what is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regdem.binary.cubin import Cubin
from regdem.check import check_pair
from regdem.errors import ProofError, RegdemError, UnsupportedError, UsageError
from regdem.machine import block_shape
from regdem.rewrite import (
    KernelRewrite,
    Request,
    bounded,
    demote_kernel,
    most_slots,
    prove_first,
    refuse_block,
    state_of,
    target_registers,
)
from regdem.transform.candidates import ORDERS
from regdem.transform.demote import demote
from regdem.transform.demoted import DemoteOptions, Rewrite

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = Cubin.parse((ROOT / "examples" / "neighbour" / "neighbour.cubin").read_bytes(), "example")
KERNEL = EXAMPLE.kernel("pair_forces")
BLOCK = block_shape(256)


@pytest.fixture(scope="module")
def forty() -> tuple[Cubin, KernelRewrite]:
    return demote_kernel(EXAMPLE, KERNEL, Request(BLOCK, registers=40))


def test_residency_before_and_after(forty: tuple[Cubin, KernelRewrite]) -> None:
    _, done = forty
    assert (done.before.registers_per_thread, done.before.active_blocks) == (48, 5)
    assert (done.after.registers_per_thread, done.after.active_blocks) == (40, 6)
    assert (done.before.occupancy_pct, done.after.occupancy_pct) == (62.5, 75.0)


def test_the_cubin_holds_what_is_reported(forty: tuple[Cubin, KernelRewrite]) -> None:
    cubin, done = forty
    new = cubin.kernel(KERNEL.name)
    assert new.registers_per_thread == done.after.registers_per_thread
    assert new.static_shared_bytes == done.after.static_shared_bytes
    assert check_pair(KERNEL, new, threads=256) == done.verdict
    assert done.to_dict()["checks"] == {
        "dataflow": "proved", "layout": "clean", "hazards": "clean",
    }  # fmt: skip
    assert any("256" in assumption for assumption in done.verdict.assumptions)


def test_the_file_bounds_its_blocks_to_those_it_was_made_for(
    forty: tuple[Cubin, KernelRewrite],
) -> None:
    assert KERNEL.max_threads is None
    assert forty[0].kernel(KERNEL.name).max_threads == 256
    assert "enforces" in forty[1].verdict.assumptions[0]
    bounds = {limit: Request(BLOCK, registers=40) for limit in (128, 256, 512)}
    for limit, request in bounds.items():
        declared = replace(KERNEL, max_threads=limit)
        way = demote(declared, DemoteOptions(40, 256, 40))
        assert bounded(declared, way, request).edit.max_threads == 256


def test_a_rewrite_without_slots_holds_for_every_block() -> None:
    new, done = demote_kernel(EXAMPLE, KERNEL, Request(BLOCK, registers=47))
    assert done.rewrite.slots == 0
    assert new.kernel(KERNEL.name).max_threads is None
    assert done.verdict.assumptions == ()


def test_a_file_that_does_not_bound_its_blocks_is_not_written() -> None:
    request = Request(BLOCK, registers=40)

    def way() -> Rewrite:
        done = demote(KERNEL, DemoteOptions(40, 256, 40))
        return replace(done, edit=replace(done.edit, max_threads=512))

    with pytest.raises(ProofError, match="accepts more than 256"):
        prove_first(EXAMPLE, KERNEL, request, [way])


@pytest.mark.parametrize(
    ("limit", "shape", "threads", "fits"),
    [
        (256, None, 256, True),
        (256, None, 64, True),
        (256, None, 288, False),
        (None, (16, 16, 1), 256, True),
        (None, (16, 16, 1), 128, False),
        (None, (16, 16, 1), 512, False),
    ],
)
def test_blocks_that_are_never_launched_are_refused(
    limit: int | None, shape: tuple[int, int, int] | None, threads: int, fits: bool
) -> None:
    kernel = replace(KERNEL, max_threads=limit, required_block=shape)
    if fits:
        refuse_block(kernel, threads)
        return
    with pytest.raises(UsageError, match="can't be launched") as caught:
        demote_kernel(EXAMPLE, kernel, Request(block_shape(threads), registers=40))
    assert "256" in (caught.value.hint or "")


def test_notebook_table(forty: tuple[Cubin, KernelRewrite]) -> None:
    html = getattr(forty[1], "_repr_html_")()  # noqa: B009
    assert "<td>48</td><td>40</td>" in html


def test_target_from_blocks() -> None:
    assert target_registers(KERNEL, Request(BLOCK, blocks=6)) == 40
    assert target_registers(KERNEL, Request(BLOCK, blocks=8)) == 32
    assert target_registers(KERNEL, Request(BLOCK, registers=37)) == 37


@pytest.mark.parametrize("request_", [Request(BLOCK), Request(BLOCK, registers=40, blocks=6)])
def test_one_target(request_: Request) -> None:
    with pytest.raises(UsageError):
        target_registers(KERNEL, request_)


def test_blocks_out_of_reach_say_why() -> None:
    with pytest.raises(UsageError) as caught:
        target_registers(KERNEL, Request(BLOCK, blocks=9))
    assert caught.value.hint


@pytest.mark.parametrize("registers", [40, 32, 24])
@pytest.mark.parametrize("dynamic_bytes", [0, 4096, 20000])
@pytest.mark.parametrize("threads", [64, 256, 1000])
def test_most_slots_keep_residency(registers: int, dynamic_bytes: int, threads: int) -> None:
    request = Request(block_shape(threads), registers=registers, dynamic_shared_bytes=dynamic_bytes)
    slots = most_slots(KERNEL, request, registers)
    there = state_of(KERNEL, request, registers, 0).active_blocks
    warps = -(-threads // 32)
    used = 128 * (slots * warps + 1) if slots else 0
    assert state_of(KERNEL, request, registers, used).active_blocks == there
    assert used <= 48 * 1024


def test_architectures_that_cannot_be_rewritten() -> None:
    with pytest.raises(UnsupportedError) as caught:
        demote_kernel(EXAMPLE, replace(KERNEL, arch="sm_120"), Request(BLOCK, registers=40))
    assert caught.value.code == "unsupported_architecture"


def way(registers: int) -> Callable[[], Rewrite]:
    return lambda: demote(KERNEL, DemoteOptions(registers, 256, 40))


def broken() -> Rewrite:
    """A rewrite in whose middle one instruction names another register or immediate."""
    done = way(40)()
    code = bytearray(done.edit.code)
    code[len(code) // 32 * 16 + 4] ^= 1
    return replace(done, edit=replace(done.edit, code=bytes(code)))


def refusing() -> Rewrite:
    raise UnsupportedError("not this way", code="first_reason")


def test_nothing_unproved_comes_back() -> None:
    with pytest.raises(ProofError) as caught:
        prove_first(EXAMPLE, KERNEL, Request(BLOCK, registers=40), [broken])
    assert caught.value.code == "not_proved"
    assert caught.value.kernel == KERNEL.name


def test_a_plainer_way_is_tried() -> None:
    request = Request(BLOCK, registers=40)
    _, done, verdict = prove_first(EXAMPLE, KERNEL, request, [refusing, broken, way(40)])
    assert verdict.verdict == "equivalent"
    assert done.registers_per_thread == 40


def test_the_first_reason_is_given() -> None:
    with pytest.raises(UnsupportedError) as caught:
        prove_first(EXAMPLE, KERNEL, Request(BLOCK, registers=40), [refusing, refusing])
    assert caught.value.code == "first_reason"


@settings(max_examples=10)
@given(
    registers=st.integers(-5, 300),
    x=st.integers(1, 64),
    y=st.integers(1, 6),
    z=st.integers(1, 3),
    dynamic_bytes=st.integers(0, 60000),
    order=st.sampled_from(ORDERS),
)
def test_proved_or_refused(
    registers: int, x: int, y: int, z: int, dynamic_bytes: int, order: str
) -> None:
    request = Request(
        block_shape(x * y * z), registers, dynamic_shared_bytes=dynamic_bytes, candidates=order
    )
    try:
        cubin, done = demote_kernel(EXAMPLE, KERNEL, request)
    except RegdemError as error:
        code = error.code
        assert code
        return
    assert not check_pair(KERNEL, cubin.kernel(KERNEL.name), threads=x * y * z).findings
    assert done.after.registers_per_thread <= registers
    there = state_of(KERNEL, request, registers, 0).active_blocks
    assert done.after.active_blocks >= there


def test_a_rewrite_is_rewritten_again() -> None:
    """The second prologue is like the first, which stands behind it in the same stretch."""
    cubin = EXAMPLE
    for registers in (42, 32):
        request = Request(BLOCK, registers=registers)
        made, done = demote_kernel(cubin, cubin.kernel("pair_forces"), request)
        cubin = Cubin.parse(made.to_bytes(), "again")
        assert done.after.registers_per_thread <= registers
        assert done.verdict.checks["dataflow"] == "proved"
