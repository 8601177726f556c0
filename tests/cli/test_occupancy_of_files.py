"""`regdem occupancy FILE`: the kernel's own registers, shared memory and barriers."""

from __future__ import annotations

import json
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from regdem.cli.main import run
from regdem.cli.schemas import schema
from regdem.integrations.toolkit import find_tool

SOURCE = """
extern "C" __global__ void __launch_bounds__(256) first(float *out) {
    __shared__ float tile[1024];
    tile[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[255 - threadIdx.x];
}
extern "C" __global__ void second(float *out) { out[threadIdx.x] = 1.0f; }
"""


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nvcc = find_tool("nvcc")
    if nvcc is None:
        pytest.skip("nvcc was not found")
    folder = tmp_path_factory.mktemp("kernels")
    source = folder / "k.cu"
    source.write_text(SOURCE)
    target = folder / "k.cubin"
    done = subprocess.run(
        [nvcc, "-cubin", "-arch=sm_90", str(source), "-o", str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"nvcc can't compile here: {done.stderr.strip()[:200]}")
    return target


def has_instruction_table() -> bool:
    tables = resources.files("regdem.isa").joinpath("tables")
    return any(entry.name.startswith("sm_90") for entry in tables.iterdir())


def kernels(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert run([*arguments, "--format", "json"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema(arguments[0]))
    assert value["input"]["path"] == arguments[1]
    return value["kernels"]


@pytest.mark.tools
def test_numbers_come_from_the_file(cubin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (first,) = kernels(["occupancy", str(cubin), "--kernel", "first"], capsys)
    assert first["name"] == "first"
    assert (first["threads"], first["static_shared_bytes"], first["barriers"]) == (256, 4096, 1)
    assert first["allocated_shared_bytes_per_block"] == 4096 + 1024
    (other,) = kernels(["occupancy", str(cubin), "--kernel", "first", "--registers", "128"], capsys)
    assert other["registers"] == 128


@pytest.mark.tools
def test_what_the_file_does_not_say_is_asked_for(
    cubin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["occupancy", str(cubin), "--kernel", "third"]) == 2
    assert "first" in capsys.readouterr().err
    both = kernels(["occupancy", str(cubin), "--threads", "64"], capsys)
    assert sorted(entry["name"] for entry in both) == ["first", "second"]
    assert run(["occupancy", str(cubin), "--kernel", "(", "--threads", "64"]) == 2


def test_the_shipped_example(example_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (entry,) = kernels(["occupancy", str(example_path), "--threads", "256"], capsys)
    assert (entry["registers"], entry["active_warps"]) == (48, 40)
    assert entry["reach"][0]["registers_to_remove"] == 8
    assert run(["occupancy", str(example_path), "--threads", "256", "--format", "html"]) == 0
    assert "<svg" in capsys.readouterr().out


def test_budget_from_the_loops_of_a_file(
    example_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not has_instruction_table():
        pytest.skip("no instruction table for sm_90")
    plan = ["plan", str(example_path), "--threads", "256"]
    (entry,) = kernels(plan, capsys)
    (loop,) = entry["loops"]
    assert loop["depth"] == 1
    assert loop["loads"] >= loop["stalls"] >= 1
    assert entry["ruling_loop_offset"] == loop["start_offset"]
    # Longer latency never needs fewer warps.
    (slower,) = kernels([*plan, "--latency-cycles", "6000"], capsys)
    assert slower["warps_needed"] > entry["warps_needed"]
    assert slower["register_budget"] <= entry["register_budget"]
    (given,) = kernels([*plan, "--warps", "32"], capsys)
    assert given["register_budget"] == 64
    assert run(plan) == 0
    assert "Loop 0x" in capsys.readouterr().out
    assert run([*plan, "--ilp", "2"]) == 2
