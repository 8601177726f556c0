"""Occupancy, cliffs, what reaches the next block, waves and budgets, with known answers."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regdem
from regdem.errors import UsageError
from regdem.machine import (
    Latency,
    Launch,
    Occupancy,
    SmLimits,
    carveout_kib_for,
    cliff_table,
    compute_capability,
    free_shared_bytes,
    known_archs,
    limits,
    occupancy,
    parse_arch,
    parse_block,
    reach_blocks,
    register_budget,
    slots_that_fit,
    sources,
    waves,
)
from regdem.machine.formulas import warps_per_block
from regdem.machine.residency import RESOURCES, resident


@pytest.mark.parametrize("name", ["sm_90", "sm90", "90", "9.0", "sm_90a", "compute_90", 90, 9.0])
def test_spellings_of_an_architecture(name: str | int | float) -> None:
    assert parse_arch(name) == "sm_90"


def test_architecture_numbers() -> None:
    assert parse_arch("12.1") == "sm_121"
    assert parse_arch("sm_100f") == "sm_100"
    assert compute_capability("sm_103") == (10, 3)


@pytest.mark.parametrize("name", ["", "hopper", "sm_", "9", "sm_90b", "-90", "9.00"])
def test_what_is_no_architecture(name: str) -> None:
    with pytest.raises(UsageError):
        parse_arch(name)


def test_every_limit_has_a_source() -> None:
    for arch in known_archs():
        for field in fields(SmLimits):
            if field.name != "arch":
                assert all(sources(arch, field.name)), field.name


@pytest.mark.parametrize(
    ("registers", "warps", "rounded_pct"),
    [(32, 64, 100), (33, 51, 80), (40, 51, 80), (48, 42, 66), (64, 32, 50), (96, 21, 33)],
)
def test_textbook_model(registers: int, warps: int, rounded_pct: int) -> None:
    answer = occupancy("sm_90", 32, registers, model="textbook")
    assert answer.active_warps == warps
    assert round(answer.occupancy_pct) == rounded_pct


def test_hardware_rounds_within_sub_partitions() -> None:
    answer = regdem.occupancy("sm_90", 256, 33)
    assert (answer.active_warps, answer.active_blocks, answer.occupancy_pct) == (48, 6, 75.0)
    assert answer.limiters == ("registers",)
    assert regdem.occupancy("sm_90", 256, 33, model="textbook").active_warps == 51


def test_barriers_limit_from_hopper_on() -> None:
    assert occupancy("sm_90", 32, 16, barriers=16).limits.barriers == 4
    assert occupancy("sm_80", 32, 16, barriers=16).limits.barriers is None
    assert occupancy("sm_120", 32, 16, barriers=16).active_blocks == 1


def test_reserve_and_carveout() -> None:
    assert occupancy("sm_90", 128, 16).limits.shared == 228
    assert occupancy("sm_75", 128, 16).limits.shared is None
    assert occupancy("sm_90", 128, 16, carveout_kib=8).active_blocks == 8
    # A carve-out that holds no block is raised to the first that does.
    assert (
        occupancy("sm_90", 128, 16, static_shared_bytes=20_000, carveout_kib=8).limits.shared == 1
    )
    assert carveout_kib_for("sm_90", 50) == 132


def test_what_does_not_fit_is_zero_and_not_an_error() -> None:
    answer = occupancy("sm_90", 1024, 128)
    assert (answer.active_blocks, answer.active_warps, answer.limiters) == (0, 0, ("registers",))
    assert occupancy("sm_90", 256, 32, dynamic_shared_bytes=200_000).active_blocks == 1
    assert (
        occupancy("sm_90", 256, 32, dynamic_shared_bytes=200_000, opt_in=False).active_blocks == 0
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"registers": 300},
        {"registers": -1},
        {"registers": 32.5},
        {"threads": 0},
        {"threads": 2000},
        {"threads": (32, 32, 2)},
        {"static_shared_bytes": -1},
        {"dynamic_shared_bytes": 10**9},
        {"barriers": 17},
        {"cluster": 32},
        {"cluster": 0},
        {"carveout_kib": 500},
        {"arch": "sm_42"},
        {"arch": "sm_80", "cluster": 2},
        {"model": "guess"},
    ],
)
def test_illegal_values_are_refused(bad: dict[str, object]) -> None:
    request = {"arch": "sm_90", "threads": 256, "registers": 32} | bad
    with pytest.raises(UsageError):
        occupancy(**request)  # pyright: ignore[reportArgumentType]


launch_strategy = st.builds(
    Launch,
    arch=st.sampled_from(known_archs()),
    threads=st.integers(1, 1024),
    registers=st.integers(1, 255),
    static_shared_bytes=st.integers(0, 49_152),
    dynamic_shared_bytes=st.just(0) | st.integers(0, 65_536),
    barriers=st.integers(0, 16),
    carveout_kib=st.none() | st.sampled_from((0, 16, 64)),
    opt_in=st.booleans(),
)


@given(launch_strategy)
def test_each_cliff_is_a_cliff(launch: Launch) -> None:
    rows = cliff_table(launch)
    assert [row.registers_max for row in rows] == sorted(
        (row.registers_max for row in rows), reverse=True
    )
    for row in rows:
        held = resident(replace(launch, registers=row.registers_max))
        assert held.active_blocks == row.active_blocks > 0
        if row.registers_max < 255:
            above = resident(replace(launch, registers=row.registers_max + 1))
            assert above.active_blocks < row.active_blocks
        spent = replace(
            launch,
            registers=row.registers_max,
            dynamic_shared_bytes=launch.dynamic_shared_bytes + row.free_shared_bytes_per_block,
        )
        assert resident(spent).active_blocks >= row.active_blocks
        over = replace(spent, dynamic_shared_bytes=spent.dynamic_shared_bytes + 1)
        assert resident(over).active_blocks < row.active_blocks
        slots = row.slots_per_thread * 4 * 32 * held.warps_per_block
        assert slots <= row.free_shared_bytes_per_block < slots + 128 * held.warps_per_block


@given(launch_strategy, st.integers(1, 32))
def test_reach_is_exactly_what_is_needed(launch: Launch, blocks: int) -> None:
    row = reach_blocks(launch, blocks)
    if not row.reachable:
        assert row.blocked_by
        least = replace(launch, registers=1, static_shared_bytes=0, dynamic_shared_bytes=0)
        assert resident(least).active_blocks < blocks
        return
    registers, shared = row.registers_to_remove, row.shared_bytes_to_remove
    assert registers is not None
    assert shared is not None
    own = launch.static_shared_bytes + launch.dynamic_shared_bytes

    def with_removed(less_registers: int, less_shared: int) -> int:
        changed = replace(
            launch,
            registers=(launch.registers or 0) - less_registers,
            static_shared_bytes=own - less_shared,
            dynamic_shared_bytes=0,
        )
        return resident(changed).active_blocks

    assert with_removed(registers, shared) >= blocks
    if registers:
        assert with_removed(registers - 1, shared) < blocks
    if shared:
        assert with_removed(registers, shared - 1) < blocks


@given(launch_strategy)
def test_slots_within_the_hosts_limit(launch: Launch) -> None:
    """As rewrites count them, but for 256 bytes of rounding."""
    for row in cliff_table(launch):
        shown = row.static_slots_per_thread
        fit = slots_that_fit(launch, row.active_blocks)
        assert fit <= shown <= fit + 2
        assert shown <= row.slots_per_thread
        grown = launch.static_shared_bytes + shown * 128 * warps_per_block(launch.threads)
        if shown:
            assert grown <= 48 * 1024
        if shown and launch.static_shared_bytes + launch.dynamic_shared_bytes <= 48 * 1024:
            assert grown + launch.dynamic_shared_bytes <= 48 * 1024


def test_dynamic_memory_counts_within_the_hosts_limit() -> None:
    def shown(dynamic: int) -> int:
        answer = occupancy("sm_90", 256, static_shared_bytes=4096, dynamic_shared_bytes=dynamic)
        (row,) = [row for row in answer.cliffs if row.registers_max == 80]
        return row.static_slots_per_thread

    assert shown(0) == 44, "48 KiB less the static 4"
    assert shown(20 * 1024) == 24
    assert shown(44 * 1024) == 0
    assert shown(46 * 1024) == 25, "the host has opted in: what the step leaves"


def test_known_slots_on_hopper() -> None:
    slots = {row.registers_max: row.slots_per_thread for row in occupancy("sm_90", 256).cliffs}
    assert (slots[48], slots[64]) == (44, 56)
    assert free_shared_bytes(Launch("sm_90", 128), 16) // 512 == 26


def test_reach_in_words() -> None:
    rows = occupancy("sm_90", 256, 36, static_shared_bytes=32_000).reach
    assert [row.active_blocks for row in rows] == [7, 8]
    assert rows[1].sentence() == (
        "8 blocks: remove 4 registers (to 32) and 3840 bytes of shared memory per block"
    )


def test_arrays_and_scalars_agree() -> None:
    generator = np.random.default_rng(3)
    threads = generator.integers(1, 1025, 200)
    registers = generator.integers(0, 256, 200)
    shared = generator.integers(0, 60_000, 200)
    for arch in known_archs():
        many = occupancy(
            arch, threads, registers, dynamic_shared_bytes=shared, barriers=4, virtual_resources=5
        )
        for row in range(200):
            one: Occupancy = occupancy(
                arch,
                threads[row],
                registers[row],
                dynamic_shared_bytes=shared[row],
                barriers=4,
                virtual_resources=5,
            )
            assert many.active_blocks[row] == one.active_blocks
            assert many.occupancy_pct[row] == one.occupancy_pct
            limiting = tuple(name for name in RESOURCES if many.limiters[name][row])
            assert limiting == one.limiters


def test_arrays_broadcast_and_are_checked() -> None:
    answer = occupancy("sm_90", np.array([[128], [256]]), [32, 64, 96])
    assert answer.active_warps.shape == (2, 3)
    assert answer.to_dict()["limits"]["barriers"] == [None] * 6
    assert occupancy("sm_90", 256, np.array([], dtype=np.int64)).active_blocks.size == 0
    for bad in ([32, 300], [1.5], ["a"]):
        with pytest.raises(UsageError):
            occupancy("sm_90", 256, bad)
    with pytest.raises(UsageError, match="broadcast"):
        occupancy("sm_90", [1, 2], [1, 2, 3])


def test_waves() -> None:
    present = occupancy("sm_90", 256, 36)
    tail = waves(present, 1000, 132)
    assert (tail.blocks_per_wave, tail.waves, tail.last_wave_blocks) == (792, 2, 208)
    assert tail.occupancy_matters
    assert "tail" in tail.statement
    small = waves(present, 792)
    assert not small.occupancy_matters
    assert "too small for occupancy to matter" in small.statement
    assert waves(present, 100_000).statement.endswith("occupancy matters.")
    clustered = occupancy("sm_90", 256, 36, cluster=16)
    assert waves(clustered, 1600).blocks_per_wave == 784
    for grid, sms in ((0, 132), (10, 0), (1, None)):
        with pytest.raises(UsageError):
            waves(clustered, grid, sms)


@pytest.mark.parametrize(("warps", "budget"), [(32, 64), (64, 32), (30, 64), (33, 48), (8, 255)])
def test_register_budget_of_a_64_warp_sm(warps: int, budget: int) -> None:
    assert register_budget(Launch("sm_90", 256), warps=warps).register_budget == budget


def test_budget_from_a_latency() -> None:
    answer = register_budget(Launch("sm_90", 256, 72), latency=Latency(480, 60))
    assert (answer.warps_needed, answer.register_budget, answer.registers_to_remove) == (32, 64, 8)
    assert "480 cycles / (60 issue cycles per load)" in answer.formula
    assert register_budget(Launch("sm_90", 256), latency=Latency(480, 30, 2)).warps_needed == 32
    assert register_budget(Launch("sm_90", 256), latency=Latency(480, 30)).register_budget == 32
    endless = register_budget(Launch("sm_90", 256), latency=Latency(4800, 3))
    assert (endless.warps_target, endless.register_budget) == (64, 32)
    assert "can't be covered" in endless.reason
    shared = register_budget(Launch("sm_90", 256, static_shared_bytes=48_000), warps=64)
    assert (shared.warps_target, shared.register_budget) == (32, 64)
    assert "shared" in shared.reason


@pytest.mark.parametrize("latency", [Latency(0, 1), Latency(400, -1), Latency(float("nan"), 1)])
def test_budget_refuses_nonsense(latency: Latency) -> None:
    with pytest.raises(UsageError):
        register_budget(Launch("sm_90", 256), latency=latency)


@pytest.mark.parametrize("text", ["", "a", "0", "1025", "32,32,2", "1,1,65", "1,2,3,4", "-5"])
def test_what_is_no_block(text: str) -> None:
    with pytest.raises(UsageError):
        parse_block(text)


def test_blocks() -> None:
    assert parse_block("16x8").threads == 128
    assert str(parse_block("8,8,4")) == "8,8,4"
    assert occupancy("sm_90", (16, 16), 32).threads == 256


def test_html_is_self_contained() -> None:
    html = occupancy("sm_90", 256, 36)._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert html.count("<svg") == html.count("</svg>") == 1
    assert "http" not in html
    assert "36 registers: 48 warps" in html


def test_limits_of_an_unknown_machine() -> None:
    with pytest.raises(UsageError, match="sm_88"):
        limits("8.8")
