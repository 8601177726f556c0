"""The predictor: what it must know, on kernels whose answer is known."""

from __future__ import annotations

import itertools
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.cli.main import run
from regdem.cli.schemas import schema
from regdem.integrations.toolkit import find_tool
from regdem.machine import Occupancy, block_shape, occupancy
from regdem.machine.timing import timing, timing_source
from regdem.predict.locality import AVERAGED, SCENARIOS
from regdem.predict.model import Prediction, predict, predict_summary, speedup
from regdem.predict.paper import occupancy_factor, paper_cycles
from regdem.predict.summary import summarise
from regdem.predict.traffic import accesses
from regdem.promotion import promote_kernel
from regdem.rewrite import Request
from regdem.transform.demoted import program_of

DATA = Path(__file__).parent.parent / "transform" / "data" / "spills.cubin"
THREADS = 256


@pytest.fixture(scope="module")
def cubin() -> Cubin:
    return Cubin.parse(DATA.read_bytes(), "spills.cubin")


def resident(kernel: Kernel, registers: int | None = None) -> Occupancy:
    return occupancy(
        kernel.arch,
        THREADS,
        registers or kernel.registers_per_thread,
        static_shared_bytes=kernel.static_shared_bytes,
        barriers=kernel.barriers,
    )


def ask(kernel: Kernel, registers: int | None = None) -> Prediction:
    return predict(kernel, resident(kernel, registers))


def test_localities_are_shares() -> None:
    assert set(AVERAGED) < set(SCENARIOS)
    for scenario in SCENARIOS:
        assert 0 <= scenario.l1 <= 1
        assert 0 <= scenario.dram <= 1


def test_every_value_of_the_machine_has_a_source() -> None:
    machine = timing("sm_90")
    groups = {"latency": machine.latency, "rate": machine.rate, "model": machine.model}
    for group, names in groups.items():
        for name in names:
            assert timing_source("sm_90", group, name)
    assert timing("sm_86").borrowed
    assert timing("sm_80").rate["fp64"] < machine.rate["fp64"]
    assert "Programming Guide" in timing_source("sm_80", "rate", "fp64")
    assert timing("sm_120").latency == machine.latency
    assert not machine.borrowed


def test_more_warps_help_while_nothing_is_full_and_less_and_less(cubin: Cubin) -> None:
    kernel = cubin.kernel("plain")
    cycles = [ask(kernel, registers).predicted_cycles for registers in (255, 128, 64, 32)]
    assert cycles == sorted(cycles, reverse=True)
    gains = [a / b for a, b in itertools.pairwise(cycles)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] == pytest.approx(2.0, rel=0.05)


def test_fewer_warps_help_where_frames_crowd_l1(cubin: Cubin) -> None:
    summary = summarise(cubin.kernel("single"))
    assert 0 < summary.slot_bytes <= summary.local_bytes
    assert not summary.indexed
    machine = timing("sm_90")

    def gain(local_bytes: int) -> float:
        code = replace(summary, local_bytes=local_bytes)
        many, few = (
            predict_summary(code, occupancy("sm_90", THREADS, registers), machine)
            for registers in (32, 64)
        )
        return many.predicted_cycles / few.predicted_cycles

    assert gain(16) < 1.0 < gain(192)


def test_how_much_of_an_indexed_array_is_in_use_is_not_known(cubin: Cubin) -> None:
    spills = replace(summarise(cubin.kernel("single")), local_bytes=512)
    accesses = spills.of("local_load").instructions + spills.of("local_store").instructions
    array = replace(spills, slot_bytes=0, indexed=accesses)
    at = occupancy("sm_90", THREADS, 32)
    known, unknown = (predict_summary(each, at, timing("sm_90")) for each in (spills, array))
    assert known.array_waits == 0.0
    assert 0.0 < unknown.array_waits < 1.0
    assert unknown.by_scenario["cached"] < known.by_scenario["cached"]
    fewer = predict_summary(array, occupancy("sm_90", THREADS, 64), timing("sm_90"))
    typical, least, most = speedup(unknown, fewer)
    assert most / least > 1.3 * max(1.0, typical)


def test_a_full_pipe_gains_nothing(cubin: Cubin) -> None:
    kernel = cubin.kernel("single")
    half, full = ask(kernel, 64), ask(kernel, 32)
    assert half.predicted_cycles / full.predicted_cycles < 1.3
    assert max(full.utilisation.values()) > 0.85


def test_promotion_is_predicted_to_pay(cubin: Cubin) -> None:
    kernel = cubin.kernel("single")
    request = Request(threads=block_shape(THREADS))
    new, _ = promote_kernel(cubin, kernel, request)
    before, after = ask(kernel), ask(new.kernel("single"))
    assert after.predicted_cycles < before.predicted_cycles
    assert after.l1_bytes < before.l1_bytes  # shared memory is charged for
    assert "local_memory" not in after.stalls


def test_prediction_explains_itself(cubin: Cubin) -> None:
    answer = ask(cubin.kernel("twice"))
    assert answer.interval[0] <= answer.predicted_cycles <= answer.interval[1]
    assert sum(answer.stalls.values()) < answer.warp_cycles
    text = answer.explain()
    assert answer.bound_by in text
    assert "KiB are L1 beside shared memory" in text
    assert answer.to_dict()["active_warps"] == answer.active_warps


def test_what_does_not_fit_has_no_cycles(cubin: Cubin) -> None:
    kernel = cubin.kernel("plain")
    nothing = occupancy("sm_90", 1024, 255)
    answer = predict(kernel, nothing)
    assert answer.active_warps == 0
    assert answer.to_dict()["predicted_cycles"] is None
    assert answer.explain()


def test_waves_and_tail(cubin: Cubin) -> None:
    kernel = cubin.kernel("plain")
    o = resident(kernel)
    wave = 132 * o.active_blocks
    one = predict(kernel, o, grid_blocks=wave).predicted_cycles
    two = predict(kernel, o, grid_blocks=2 * wave).predicted_cycles
    more = predict(kernel, o, grid_blocks=wave + 1).predicted_cycles
    many = predict(kernel, o, grid_blocks=100 * wave).predicted_cycles
    less = predict(kernel, o, grid_blocks=1).predicted_cycles
    assert less < one < more < two
    assert 2 * one < two < 2.5 * one  # the SM drains once
    assert many == pytest.approx(100 * one, rel=0.02)
    assert predict(kernel, o, grid_blocks=2 * wave).waves == pytest.approx(2)


def test_addresses_from_loads_are_gathers(cubin: Cubin) -> None:
    seen = accesses(program_of(cubin.kernel("plain")))
    assert not any(access.is_gather for access in seen.values())
    assert {access.space for access in seen.values()} == {"global"}


def test_paper_formula(cubin: Cubin) -> None:
    assert occupancy_factor(0.5) / occupancy_factor(1.0) == pytest.approx(0.5**-0.86281)
    program = program_of(cubin.kernel("single"))
    assert paper_cycles(program, 0.5) > paper_cycles(program, 1.0) > 0


def unrolled(folder: Path, factors: tuple[int, ...]) -> dict[int, Path]:
    """Builds of one loop by the factor of its unrolling."""
    nvcc, source = find_tool("nvcc"), folder / "loop.cu"
    if nvcc is None:
        pytest.skip("no nvcc")
    builds: dict[int, Path] = {}
    for factor in factors:
        source.write_text(
            'extern "C" __global__ void loop(const float* a, float* out, int n) {\n'
            "  float sum = 0.0f;\n"
            f"#pragma unroll {factor}\n"
            "  for (int i = threadIdx.x; i < n; i += 256) sum = sum * a[i] + a[i] * a[i];\n"
            "  out[blockIdx.x * 256 + threadIdx.x] = sum;\n"
            "}\n"
        )
        builds[factor] = folder / f"{factor}.cubin"
        command = [nvcc, "-arch=sm_90", "-cubin", "-o", builds[factor], source]
        subprocess.run(list(map(str, command)), check=True)
    return builds


@pytest.mark.tools
def test_unrolled_otherwise_is_the_same_work(tmp_path: Path) -> None:
    """A body of four iterations is not four times slower than a body of one."""
    files = unrolled(tmp_path, (1, 4))
    builds = {
        factor: ask(Cubin.parse(path.read_bytes()).kernel("loop")) for factor, path in files.items()
    }
    work = [a / b for a, b in zip(builds[4].work, builds[1].work, strict=True)]
    assert min(work) > 1.5, work
    typical, least, most = speedup(builds[1], builds[4])
    assert 0.8 < typical < 3.0
    assert least < typical < most
    back = speedup(builds[4], builds[1])[0]
    assert back == pytest.approx(1 / typical)


def test_more_arithmetic_alone_is_more_work(cubin: Cubin) -> None:
    """Inserted instructions are no unrolling: what goes to memory has not changed."""
    before = ask(cubin.kernel("plain"))
    moved, arithmetic = before.work
    more = replace(before, work=(moved, 2 * arithmetic), by_scenario={
        name: 2 * cycles for name, cycles in before.by_scenario.items()
    }, predicted_cycles=2 * before.predicted_cycles)  # fmt: skip
    assert speedup(before, more)[0] == pytest.approx(0.5)


def test_code_that_hardly_ever_runs_can_be_predicted(cubin: Cubin) -> None:
    kernel = cubin.kernel("plain")
    for trips in (0.1, 1e-3, 1e-9):
        prediction = predict(kernel, resident(kernel), trip_count=trips)
        assert 0 < prediction.predicted_cycles < float("inf")


@pytest.mark.tools
@pytest.mark.parametrize("model", ["throughput", "paper"])
def test_the_command_compares_by_work(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builds = unrolled(tmp_path, (1, 4))
    words = ["predict", *map(str, builds.values()), "--threads", "256", "--model", model]
    assert run([*words, "--format", "json"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema("predict"))
    rows = {Path(row["file"]).name: row for row in value["ranking"]}
    assert "work_ratio" not in rows["1.cubin"]
    ratio = rows["4.cubin"]["work_ratio"]
    assert 1.5 < ratio < 6
    name = "paper_cycles" if model == "paper" else "predicted_cycles"
    expected = ratio * rows["1.cubin"][name] / rows["4.cubin"][name]
    assert rows["4.cubin"]["predicted_speedup"] == pytest.approx(expected, rel=2e-3)
    by_work = sorted(value["ranking"], key=lambda row: row[name] / row.get("work_ratio", 1.0))
    assert value["ranking"] == by_work
    assert run(words) == 0
    printed = capsys.readouterr().out
    assert f"unrolled otherwise: a run of its code does {ratio:.2f} times the work" in printed
