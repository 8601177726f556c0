"""`regdem tune` as a command: files, formats, exit statuses, and the driver in Python at work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from regdem.cli.main import run
from regdem.cli.schemas import schema
from regdem.integrations.toolkit import find_tool
from regdem.tune import tuner

from .conftest import NEIGHBOUR, FakeDevice, Prepared


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """The device that the command finds."""
    made = FakeDevice({"hopeful": 1.25})

    def devices(*_: Any) -> list[FakeDevice]:
        return [made]

    monkeypatch.setattr(tuner, "_devices", devices)
    return made


QUICK = ["--jobs", "1", "--generations", "0"]
"""The variants of the fixture are names, no code to take steps from."""
PREDICTIONS = {"hopeful": (1.3, 1.2, 1.4), "good": (1.2, 1.1, 1.3)}


def test_the_best_is_written(
    prepared: Prepared, device: FakeDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = prepared(**PREDICTIONS), tmp_path / "best.cubin"
    assert run(["tune", "--out", str(folder), "-o", str(out), *QUICK]) == 0
    printed = capsys.readouterr()
    assert out.read_bytes() == (folder / "variants" / "hopeful.cubin").read_bytes()
    assert f"written: {out}" in printed.out
    assert "best: hopeful" in printed.out
    assert "gpu 0: hopeful:" in printed.err
    assert "gpu 0" not in printed.out


def test_json_and_html(
    prepared: Prepared, device: FakeDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = prepared(**PREDICTIONS), tmp_path / "best.cubin"
    common = ["tune", "--out", str(folder), "-o", str(out), *QUICK]
    assert run([*common, "--format", "json"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema("tune"))
    assert value["output"]["path"] == str(out)
    assert run([*common, "--format", "html"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")


def test_a_rejected_variant_is_loud_and_nothing_is_written(
    prepared: Prepared, device: FakeDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device.wrong = frozenset({"good"})
    folder, out = prepared(**PREDICTIONS), tmp_path / "best.cubin"
    assert run(["tune", "--out", str(folder), "-o", str(out), *QUICK]) == 1
    printed = capsys.readouterr()
    assert "REJECTED good" in printed.out
    assert "regdem: REJECTED good" in printed.err
    assert not out.exists()
    assert (folder / "rejected" / "good.json").exists()


def test_nothing_faster_writes_the_input(
    prepared: Prepared, device: FakeDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device.speedups = {}
    out = tmp_path / "best.cubin"
    folder = prepared(**PREDICTIONS)
    assert run(["tune", "--out", str(folder), "-o", str(out), *QUICK]) == 0
    assert out.read_bytes() == NEIGHBOUR.read_bytes()
    assert "(the input, unchanged)" in capsys.readouterr().out


def test_without_a_gpu_one_line_and_status_2(
    neighbour_launch: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = tmp_path / "x"
    arguments = ["tune", str(NEIGHBOUR), "--launch", neighbour_launch, "--out", str(folder)]
    arguments += [*QUICK]
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    assert "there is none" in printed.err
    assert run([*arguments, "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)
    jsonschema.validate(error, schema("error"))
    assert error["error"]["code"] == "no_gpu"
    assert not folder.exists()


def test_prepare_only_needs_no_gpu(
    neighbour_launch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "x"
    arguments = ["tune", str(NEIGHBOUR), "--launch", neighbour_launch, "--prepare-only"]
    arguments += ["--out", str(folder), "--jobs", "1", "--effort", "quick"]
    assert run(arguments) == 0
    assert "ready to be measured" in capsys.readouterr().out
    assert list((folder / "variants").iterdir())
    assert not (folder / "best.cubin").exists()
    assert run([*arguments, "--format", "json"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema("tune"))
    assert value["gpu"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune"], "nothing to tune"),
        (["tune", str(NEIGHBOUR)], "give --launch"),
        (["tune", str(NEIGHBOUR), "--launch", "none.json"], "can't be read"),
        (["tune", str(NEIGHBOUR), "--gpu", "a"], "numbers with commas"),
        (["tune", str(NEIGHBOUR), "--prepare-only", "-o", "x"], "no best to write"),
        (["tune", str(NEIGHBOUR), "--rounds", "2"], "rounds"),
    ],
)
def test_bad_usage(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert len(printed.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_kernels_have_to_be_named(
    neighbour_launch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--launch", neighbour_launch, "--out", str(tmp_path / "x")]
    several = Path(__file__).parents[1] / "transform" / "data" / "spills.cubin"
    assert run(["tune", str(several), *common]) == 2
    assert "give --kernel; kernels: " in capsys.readouterr().err
    assert run(["tune", str(several), *common, "--kernel", "^nothing$"]) == 2
    assert "no kernel matches" in capsys.readouterr().err
    assert run(["tune", str(several), *common, "--kernel", "single"]) == 2
    assert "the launch has 14 arguments, the kernel takes 3" in capsys.readouterr().err


@pytest.mark.tools
def test_sources_without_a_kernel_and_launches_without_their_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_tool("nvcc") is None:
        pytest.skip("no nvcc")
    launch, empty, dynamic = (tmp_path / name for name in ("l.json", "empty.cu", "dynamic.cu"))
    args = [{"name": "o", "shape": [256], "dtype": "float32", "output": True}]
    launch.write_text(json.dumps({"grid": [4], "block": [256], "args": args}))
    empty.write_text("")
    common = ["--launch", str(launch), "--prepare-only", "--effort", "quick", *QUICK]
    assert run(["tune", str(empty), *common, "--out", str(tmp_path / "a")]) == 2
    assert "there is no kernel in it" in capsys.readouterr().err
    dynamic.write_text(
        'extern "C" __global__ void k(float* o) { extern __shared__ float s[];'
        " s[threadIdx.x] = o[threadIdx.x]; __syncthreads();"
        " o[threadIdx.x] = s[255 - threadIdx.x]; }"
    )
    assert run(["tune", str(dynamic), *common, "--out", str(tmp_path / "b")]) == 0
    warning = "k uses dynamic shared memory, and the launch gives it none"
    assert warning in capsys.readouterr().err
    launch.write_text(
        json.dumps({"grid": [4], "block": [256], "args": args, "dynamic_shared_bytes": 1024})
    )
    assert run(["tune", str(dynamic), *common, "--out", str(tmp_path / "c")]) == 0
    assert warning not in capsys.readouterr().err
