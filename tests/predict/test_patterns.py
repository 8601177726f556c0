"""What the predictor sees in code: addresses over the lanes, sectors, slow paths, recursion."""

from __future__ import annotations

from pathlib import Path

import pytest

from regdem.analysis.banks import bank_conflicts
from regdem.analysis.forms import forms_of
from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.machine import occupancy
from regdem.predict.lanes import Lanes, addresses
from regdem.predict.model import predict
from regdem.predict.summary import LATENCIES, from_json, summarise, to_json
from regdem.predict.weights import RARE, executions, recursive
from regdem.transform.demoted import program_of

DATA = Path(__file__).parent / "data" / "patterns.cubin"
SPILLS = Path(__file__).parent.parent / "transform" / "data" / "spills.cubin"


@pytest.fixture(scope="module")
def cubin() -> Cubin:
    return Cubin.parse(DATA.read_bytes(), DATA.name)


def lanes_of(kernel: Kernel, name: str) -> list[Lanes]:
    program = program_of(kernel)
    forms = forms_of(program.code)
    return [each.lanes for i, each in addresses(program).items() if forms[i].name == name]


def test_addresses_over_the_lanes(cubin: Cubin) -> None:
    loads = {k.name: lanes_of(k, "LDG") for k in cubin.kernels}
    assert [each.is_uniform for each in loads["same"]] == [True]
    assert loads["structures"] == [Lanes("affine", 64)] * 4
    assert [each.kind for each in loads["gathered"]] == ["affine", "loaded"]
    assert {each.kind for each in loads["descent"][1:]} == {"loaded"}
    assert [each.coefficient for each in lanes_of(cubin.kernel("same"), "STG")] == [4]


def test_a_spilled_address_is_still_known() -> None:
    cubin = Cubin.parse(SPILLS.read_bytes(), SPILLS.name)
    for name in ("single", "dynamic"):
        assert {each.coefficient for each in lanes_of(cubin.kernel(name), "STG")} == {4}


def test_sectors(cubin: Cubin) -> None:
    traffic = {k.name: summarise(k).traffic for k in cubin.kernels}
    assert traffic["same"]["load"].sector_bytes == 32
    assert traffic["same"]["store"].sector_bytes == 128
    assert traffic["gathered"]["gather"].sector_bytes == 16 * 32
    rows = traffic["structures"]["load"]
    assert rows.sector_bytes == 32 * 64  # every byte of 32 structures, once
    assert rows.repeated_bytes == rows.sector_bytes  # and again, after waiting for the first half
    assert summarise(cubin.kernel("structures")).reused_bytes == 32 * 128


def test_slow_paths_hardly_count(cubin: Cubin) -> None:
    program = program_of(cubin.kernel("divided"))
    weights = executions(program, 10.0)
    slow = [w for w, block in zip(weights, program.blocks, strict=True) if block.function == 1]
    assert 0 < max(slow) <= RARE


def test_recursion_is_noted_and_counts_as_a_loop(cubin: Cubin) -> None:
    kernel = cubin.kernel("folded")
    assert recursive(program_of(kernel)) == {1}
    summary = summarise(kernel)
    assert summary.is_recursive
    assert summary.of("local_load").instructions == 50
    assert summary.local_bytes == 10 * kernel.local_bytes
    answer = predict(kernel, occupancy("sm_90", 256, kernel.registers_per_thread))
    assert any("recursion" in note for note in answer.notes)


def test_bank_conflicts_are_counted(cubin: Cubin) -> None:
    program = program_of(Cubin.parse(SPILLS.read_bytes(), SPILLS.name).kernel("single"))
    found = bank_conflicts(program, lasting=False)
    assert max(found) in (1, 2)
    assert min(found) == 0


def test_time_grows_with_latency_and_is_linear_between_points(cubin: Cubin) -> None:
    summary = summarise(cubin.kernel("structures"))
    times = [summary.time(latency, 30.0).cycles for latency in LATENCIES]
    assert times == sorted(times)
    middle = summary.time((LATENCIES[1] + LATENCIES[2]) / 2, 30.0).cycles
    assert middle == pytest.approx((times[1] + times[2]) / 2)


def test_summaries_are_data(cubin: Cubin) -> None:
    for kernel in cubin.kernels:
        summary = summarise(kernel)
        assert from_json(to_json(summary)) == summary
