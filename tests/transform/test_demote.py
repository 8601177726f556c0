"""Demotion end to end: every result is proved by the checker from the bytes, or refused by name."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regdem.analysis.banks import bank_conflicts
from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.check import check_pair
from regdem.errors import RegdemError, UnsupportedError, UsageError
from regdem.integrations.toolkit import find_tool
from regdem.isa.decode import decode
from regdem.machine import free_shared_bytes, occupancy, reach_blocks
from regdem.program.edit import return_addresses
from regdem.transform.candidates import NO_ORDER, ORDERS
from regdem.transform.demote import demote
from regdem.transform.demoted import DemoteOptions, Rewrite, program_of

ROOT = Path(__file__).resolve().parents[2]
TEN = ROOT / "bench" / "kernels" / "ten"
NAMES = [
    "block3d",
    "block_moments",
    "dynamic_window",
    "fp64_orbit",
    "gather",
    "jump_table",
    "local_array",
    "recursive_call",
    "tensor_mma",
    "vector_atomic",
]
EXAMPLE = Cubin.parse((ROOT / "examples" / "neighbour" / "neighbour.cubin").read_bytes(), "example")
KERNEL = EXAMPLE.kernel("pair_forces")


def rewritten(cubin: Cubin, name: str, done: Rewrite) -> tuple[bytes, Kernel]:
    data = cubin.with_kernel(name, done.edit).to_bytes()
    return data, Cubin.parse(data, "new").kernel(name)


def highest_register(kernel: Kernel) -> int:
    code = decode(kernel.code, kernel.arch)
    rows = code.operand_file == 0
    return int((code.operand_register[rows] + code.operand_width[rows] - 1).max())


def names(kernel: Kernel) -> list[str]:
    code = decode(kernel.code, kernel.arch)
    return [code.table.forms[form].name for form in code.form_indices]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("registers", [40, 32])
def test_example_is_proved(order: str, registers: int) -> None:
    done = demote(KERNEL, DemoteOptions(registers, 256, 40, order))
    _, new = rewritten(EXAMPLE, KERNEL.name, done)
    verdict = check_pair(KERNEL, new, threads=256)
    assert verdict.findings == ()
    assert verdict.verdict == "equivalent"
    # The counts in the file are the ones claimed, and true of the code.
    assert new.registers_per_thread == done.registers_per_thread <= registers
    assert highest_register(new) + 3 <= new.registers_per_thread
    assert new.static_shared_bytes == done.shared_bytes
    assert done.slots == max(d.slot for d in done.demoted) + 1
    # The slots cost no residency.
    assert (
        occupancy(
            "sm_90", 256, new.registers_per_thread, static_shared_bytes=done.shared_bytes
        ).active_blocks
        == occupancy("sm_90", 256, registers).active_blocks
    )
    # What was counted stands in the code, which had no shared memory before.
    assert names(new).count("LDS") == sum(d.loads for d in done.demoted)
    assert names(new).count("STS") == sum(d.stores for d in done.demoted)
    assert not {"LDS", "STS"} & set(names(KERNEL))


def test_same_input_same_bytes() -> None:
    options = DemoteOptions(40, 256, 40)
    first, second = (rewritten(EXAMPLE, KERNEL.name, demote(KERNEL, options))[0] for _ in "ab")
    assert first == second


def test_renumbering_alone_where_values_fit() -> None:
    done = demote(KERNEL, DemoteOptions(46, 256, 0))
    _, new = rewritten(EXAMPLE, KERNEL.name, done)
    assert (done.method, done.slots, done.inserted_instructions) == ("renumber", 0, 0)
    assert new.registers_per_thread == 46
    assert len(new.code) == len(KERNEL.code)
    assert not check_pair(KERNEL, new, threads=256).findings


def test_other_block_shape_than_sized_for_is_rejected() -> None:
    done = demote(KERNEL, DemoteOptions(40, 128, 40))
    _, new = rewritten(EXAMPLE, KERNEL.name, done)
    assert not check_pair(KERNEL, new, threads=128).findings
    assert check_pair(KERNEL, new, threads=256).findings


def refused(kernel: Kernel, options: DemoteOptions) -> RegdemError:
    with pytest.raises((UsageError, UnsupportedError)) as caught:
        demote(kernel, options)
    assert caught.value.kernel == kernel.name
    return caught.value


@pytest.mark.parametrize("registers", [15, 0, -1, 256])
def test_refuses_illegal_targets(registers: int) -> None:
    assert refused(KERNEL, DemoteOptions(registers, 256, 40)).code == "bad_usage"


def test_renumbering_at_the_own_count() -> None:
    """Nothing is demoted; the numbers are others, with fewer bank conflicts."""
    done = demote(KERNEL, DemoteOptions(48, 256, 40, NO_ORDER))
    _, new = rewritten(EXAMPLE, KERNEL.name, done)
    assert not check_pair(KERNEL, new, threads=256).findings
    assert (done.method, done.slots, done.inserted_instructions) == ("renumber", 0, 0)
    assert new.registers_per_thread == 48
    assert sum(bank_conflicts(program_of(new), lasting=False)) < sum(
        bank_conflicts(program_of(KERNEL), lasting=False)
    )


def test_renumbering_alone_refuses_what_needs_demotion() -> None:
    assert refused(KERNEL, DemoteOptions(24, 256, 40, NO_ORDER)).code == "target_out_of_reach"
    assert refused(KERNEL, DemoteOptions(49, 256, 40, NO_ORDER)).code == "nothing_to_do"


@pytest.mark.parametrize("registers", [48, 64, 255])
def test_refuses_what_is_done_already(registers: int) -> None:
    assert refused(KERNEL, DemoteOptions(registers, 256, 40)).code == "nothing_to_do"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("slots", [0, 2])
def test_refuses_too_few_slots(order: str, slots: int) -> None:
    assert refused(KERNEL, DemoteOptions(32, 256, slots, order)).code == "slots_do_not_fit"


@pytest.mark.parametrize("order", [order for order in ORDERS if order != "live-range"])
def test_register_orders_refuse_out_of_reach(order: str) -> None:
    """However many slots there are, register numbers that need a temporary each don't go to 16."""
    error = refused(KERNEL, DemoteOptions(16, 32, 200, order))
    assert error.code == "target_out_of_reach"
    assert error.hint


def test_live_ranges_go_where_register_numbers_cannot() -> None:
    done = demote(KERNEL, DemoteOptions(16, 32, 200))
    _, new = rewritten(EXAMPLE, KERNEL.name, done)
    assert new.registers_per_thread == 16
    assert not check_pair(KERNEL, new, threads=32).findings


def test_a_rewrite_of_a_rewrite_of_a_rewrite() -> None:
    """Each has entry code and slots of its own, and is proved against the one before."""
    cubin, kernel = EXAMPLE, KERNEL
    first: list[str] = []
    for registers in (40, 36, 32):
        done = demote(kernel, DemoteOptions(registers, 256, 40))
        data, new = rewritten(cubin, kernel.name, done)
        assert not check_pair(kernel, new, threads=256).findings
        cubin = Cubin.parse(data)
        kernel = new
        code = program_of(kernel).code
        first.append(code.table.forms[int(code.form[0])].name)
    assert first == ["S2R", "LDC", "S2R"]


def test_live_ranges_refuse_out_of_reach() -> None:
    path = ROOT / "tests" / "binary" / "data" / "cuda12_sm_90.cubin"
    kernel = Cubin.parse(path.read_bytes()).kernel("_Z12dynamic_callPfi")
    error = refused(kernel, DemoteOptions(18, 128, 200))
    assert error.code == "target_out_of_reach"
    assert error.hint


def test_refuses_more_than_48_kib_of_static_memory() -> None:
    error = refused(KERNEL, DemoteOptions(32, 1024, 40))
    assert error.code == "slots_do_not_fit"


def test_refuses_unknown_order() -> None:
    with pytest.raises(UsageError, match="no such candidate order"):
        demote(KERNEL, DemoteOptions(40, 256, 40, "best"))


def test_refuses_relocatable_objects() -> None:
    path = ROOT / "tests" / "binary" / "data" / "relocatable_sm_90.cubin"
    for kernel in Cubin.parse(path.read_bytes()).kernels:
        if kernel.registers_per_thread > 16:
            assert refused(kernel, DemoteOptions(16, 128, 40)).code == "relocatable"


def test_refuses_setmaxnreg() -> None:
    moving = replace(KERNEL, reconfigures_registers=True)
    assert refused(moving, DemoteOptions(40, 256, 40)).code == "setmaxnreg"


def attempt(options: DemoteOptions) -> tuple[Rewrite | None, str]:
    """The rewrite, or the code of the refusal."""
    try:
        return demote(KERNEL, options), ""
    except (UsageError, UnsupportedError) as error:
        return None, error.code


@settings(max_examples=8)
@given(
    registers=st.integers(14, 52),
    threads=st.integers(1, 1024),
    slots=st.integers(0, 40),
    order=st.sampled_from(ORDERS),
    rematerialise=st.booleans(),
)
def test_proved_or_refused(
    registers: int, threads: int, slots: int, order: str, rematerialise: bool
) -> None:
    options = DemoteOptions(registers, threads, slots, order, rematerialise)
    done, code = attempt(options)
    if done is None:
        assert code in {"bad_usage", "nothing_to_do", "slots_do_not_fit", "target_out_of_reach"}
        return
    _, new = rewritten(EXAMPLE, KERNEL.name, done)
    assert not check_pair(KERNEL, new, threads=threads).findings
    assert new.registers_per_thread <= registers
    assert done.slots <= slots


# -- the ten kernels, compiled here --------------------------------------------------------------


@pytest.fixture(scope="session")
def ten(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cubin]:
    """The kernels of `bench/kernels/ten`, by name, compiled for sm_90."""
    nvcc = find_tool("nvcc")
    if nvcc is None:
        pytest.skip("nvcc not found (pip install regdem[tools])")
    folder = tmp_path_factory.mktemp("ten")

    def compiled(name: str) -> Cubin:
        out = folder / f"{name}.cubin"
        subprocess.run(
            [nvcc, "-arch=sm_90", "-cubin", "-o", str(out), str(TEN / f"{name}.cu")],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        return Cubin.parse(out.read_bytes(), name)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(NAMES, pool.map(compiled, NAMES), strict=True))


def next_cliff(kernel: Kernel, threads: int) -> tuple[int, int]:
    """The registers that one more block needs, and the slots per thread that keep it."""
    present = occupancy(
        "sm_90", threads, kernel.registers_per_thread,
        static_shared_bytes=kernel.static_shared_bytes,
    )  # fmt: skip
    reach = reach_blocks(present.launch, present.active_blocks + 1)
    assert reach.registers_max is not None
    there = occupancy(
        "sm_90", threads, reach.registers_max, static_shared_bytes=kernel.static_shared_bytes
    )
    free = free_shared_bytes(there.launch, there.active_blocks)
    free = min(free, 48 * 1024 - kernel.static_shared_bytes) - 256
    return reach.registers_max, max(0, free // (128 * -(-threads // 32)))


@pytest.mark.tools
@pytest.mark.parametrize("name", NAMES)
def test_ten_kernels_to_their_next_cliff(ten: dict[str, Cubin], name: str) -> None:
    threads = 256
    cubin, kernel = ten[name], ten[name].kernel(name)
    registers, slots = next_cliff(kernel, threads)
    done = demote(kernel, DemoteOptions(registers, threads, slots))
    _, new = rewritten(cubin, name, done)
    assert check_pair(kernel, new, threads=threads).findings == ()
    assert new.registers_per_thread <= registers < kernel.registers_per_thread
    assert new.local_bytes == kernel.local_bytes
    # Functions, jump targets and return addresses name the instructions that they named.
    assert done.edit.target_map is not None
    where: list[int] = done.edit.target_map.tolist()
    assert [f.offset for f in new.functions] == [where[f.offset // 16] for f in kernel.functions]
    assert len(new.branch_tables) == len(kernel.branch_tables)
    for old_table, new_table in zip(kernel.branch_tables, new.branch_tables, strict=True):
        assert new_table.targets == tuple(where[t // 16] for t in old_table.targets)
    moves = return_addresses(program_of(new))
    assert len(moves) == len(return_addresses(program_of(kernel)))
    for move, site in moves.items():
        word = int.from_bytes(new.code[16 * move + 4 : 16 * move + 8], "little")
        assert word == 16 * (site + 1)


@pytest.mark.tools
def test_the_ten_cover_what_they_should(ten: dict[str, Cubin]) -> None:
    assert ten["jump_table"].kernel("jump_table").branch_tables
    assert len(return_addresses(program_of(ten["recursive_call"].kernel("recursive_call")))) > 1
    assert len(return_addresses(program_of(ten["fp64_orbit"].kernel("fp64_orbit")))) > 1
    assert ten["local_array"].kernel("local_array").local_bytes > 0
    assert ten["block_moments"].kernel("block_moments").static_shared_bytes > 0
