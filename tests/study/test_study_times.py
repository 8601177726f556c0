"""The measuring side with a device and counters that are made up: no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from studies import DATA, options

import regdem.study.counters
from regdem.errors import RegdemError
from regdem.study import once
from regdem.study.counters import METRICS, counters_of, parse_counters
from regdem.study.measure import NO_GPU, GpuMeasurer
from regdem.study.run import study_unroll
from regdem.tune.measuring import first_difference
from regdem.tune.process import Settings
from regdem.tune.results import Measurement, Opened
from regdem.tune.source import open_launch

LAUNCH = """
grid = 4
block = [128, 2]
dynamic_shared_bytes = 64
args = [
    { name = "x", dtype = "float32", shape = [65536], init = { kind = "uniform" } },
    { name = "y", dtype = "float32", shape = [2048], output = true },
    { name = "a", dtype = "float32", value = 0.5 },
    { name = "n", dtype = "int32", value = 16 },
    { name = "stride", dtype = "int32", value = 2048 },
]
"""


CountersOf = Callable[..., tuple[dict[str, dict[str, float]], str | None]]


class MadeUpGpu:
    """Answers as a GPU would: `different` builds give other outputs, `times` are in ms."""

    def __init__(self, times: dict[str, float], different: set[str]) -> None:
        self.times = times
        self.different = different
        self.closed = False

    def start(self) -> dict[str, Any]:
        return {"name": "made up"}

    def open(self, original: bytes) -> Opened:
        return Opened({"active_blocks": 8}, self.times["original"], 3)

    def measure(self, name: str, cubin: bytes) -> Measurement:
        if name in self.different:
            return Measurement("different", "seed 0: 4 of 8 bytes of y differ", 3)
        return Measurement("identical", "", 3, {"active_blocks": 7})

    def compare(self, variants: dict[str, bytes]) -> dict[str, list[float]]:
        names = ["original", "again", *variants]
        return {
            name: [self.times.get(name, self.times["original"]) + 0.001 * k for k in range(5)]
            for name in names
        }

    def close(self) -> None:
        self.closed = True


class NoGpu(MadeUpGpu):
    def start(self) -> dict[str, Any]:
        raise RegdemError("there is none", code="no_gpu")


def no_counters(
    launch: str, kernel: str, cubins: Mapping[str, bytes], gpu: int
) -> tuple[dict[str, dict[str, float]], str | None]:
    return {}, "ncu was not found"


def counters(
    launch: str, kernel: str, cubins: Mapping[str, bytes], gpu: int
) -> tuple[dict[str, dict[str, float]], str | None]:
    return {name: {METRICS[0]: 50.0} for name in cubins}, None


@pytest.fixture
def launch(tmp_path: Path) -> str:
    path = tmp_path / "launch.toml"
    path.write_text(LAUNCH)
    return str(path)


def measurer(
    launch: str, device: MadeUpGpu, counted: CountersOf = no_counters, tolerance: float = 0.0
) -> GpuMeasurer:
    def make(settings: Settings) -> MadeUpGpu:
        assert settings.kernel
        return device

    return GpuMeasurer(launch, device=make, counters=counted, tolerance=tolerance)


BUILDS = {"unroll-1": b"1", "unroll-4": b"4", "unroll-8": b"8"}


def test_times_and_outputs(launch: str) -> None:
    device = MadeUpGpu({"original": 2.0, "unroll-4": 1.0}, {"unroll-8"})
    found = measurer(launch, device, counters).measure("series", BUILDS)
    assert device.closed
    first, four, eight = (found.builds[name] for name in BUILDS)
    assert first.correct
    assert first.outputs == "the reference, on 3 input sets"
    assert four.times is not None
    assert (four.times.median_ms, four.active_blocks) == (pytest.approx(1.002), 7)
    assert four.times.p10_ms <= four.times.median_ms <= four.times.p90_ms
    assert four.outputs == "the first build's, byte for byte"
    assert not eight.correct
    assert eight.times is None
    assert "4 of 8 bytes of y differ" in eight.outputs
    assert four.counters == {METRICS[0]: 50.0}
    assert (found.no_times, found.no_counters) == (None, None)
    assert found.noise == 0.0


def test_the_launch_says_the_block(launch: str) -> None:
    one = measurer(launch, MadeUpGpu({"original": 1.0}, set()))
    assert one.block.threads == 256
    assert one.dynamic_shared_bytes == 64


def test_no_gpu_is_said(launch: str) -> None:
    device = NoGpu({}, set())
    found = measurer(launch, device).measure("series", BUILDS)
    assert (dict(found.builds), found.no_times, found.no_counters) == ({}, NO_GPU, NO_GPU)
    assert device.closed


@pytest.mark.tools
def test_measured_times_decide(launch: str) -> None:
    """The predictor would take a larger factor; the times say otherwise."""
    from dataclasses import replace

    device = MadeUpGpu({"original": 1.0, "unroll-4": 1.5, "unroll-8": 0.9}, set())
    asked = replace(
        options(DATA / "series.cu", 256), measurer=measurer(launch, device), threads=None
    )
    study = study_unroll(asked, (1, 4, 8), "UNROLL")
    assert study.threads == 256, "the launch's own"
    assert study.recommendation.build == "unroll-8"
    assert study.recommendation.reason.startswith("measured 1.11 times as fast")
    assert study.no_times is None
    assert study.no_counters == "ncu was not found"


@pytest.mark.tools
def test_wrong_outputs_are_never_recommended(launch: str) -> None:
    from dataclasses import replace

    device = MadeUpGpu({"original": 1.0, "unroll-4": 0.1}, {"unroll-4"})
    asked = replace(options(DATA / "series.cu", 256), measurer=measurer(launch, device))
    study = study_unroll(asked, (1, 4), "UNROLL")
    assert study.outputs_differ == ["unroll-4"]
    assert study.recommendation.build == "unroll-1"


CSV = """==PROF== Connected to process 7
"ID","Kernel Name","smsp__inst_executed.sum","dram__bytes.sum","other"
"","","inst","Mbyte",""
"0","series","1,000","1.5","7"
"1","series","800","2","n/a"
"""


def test_counters_are_read() -> None:
    assert parse_counters(CSV) == [
        {"smsp__inst_executed.sum": 1000.0, "dram__bytes.sum": 1.5e6},
        {"smsp__inst_executed.sum": 800.0, "dram__bytes.sum": 2e6},
    ]
    assert parse_counters("==ERROR== ERR_NVGPUCTRPERM") == []


def find_only(monkeypatch: pytest.MonkeyPatch, path: str | None) -> None:
    def find(name: str) -> str | None:
        return path

    monkeypatch.setattr(regdem.study.counters, "find_tool", find)


def fake_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = tmp_path / "ncu"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    find_only(monkeypatch, str(path))


def test_counters_of_each_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text(CSV)
    fake_ncu(tmp_path, monkeypatch, f"cat {tmp_path}/rows.csv")
    found, why = counters_of("launch.toml", "series", {"a": b"1", "b": b"2"}, 0)
    assert why is None
    assert found["b"]["smsp__inst_executed.sum"] == 800.0


def test_why_there_are_no_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ncu(tmp_path, monkeypatch, "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1")
    _, why = counters_of("launch.toml", "series", {"a": b"1"}, 0)
    assert why == "ncu is not permitted to read counters (ERR_NVGPUCTRPERM)"
    fake_ncu(tmp_path, monkeypatch, "echo '==ERROR== it broke'; exit 1")
    _, why = counters_of("launch.toml", "series", {"a": b"1"}, 0)
    assert why == "ncu gave no counters: ==ERROR== it broke"
    find_only(monkeypatch, None)
    assert counters_of("launch.toml", "series", {"a": b"1"}, 0)[1] == "ncu was not found"


class Silent:
    """A driver whose every call succeeds; handles stay 0, launches are counted."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            return 0

        return call


def test_each_build_is_launched_once_for_ncu(launch: str, tmp_path: Path) -> None:
    cubins = [tmp_path / "a.cubin", tmp_path / "b.cubin"]
    for path in cubins:
        path.write_bytes(b"cubin")
    driver = Silent()
    words = ["--launch", launch, "--kernel", "series", *map(str, cubins)]
    assert once.main(words, driver) == 0
    assert driver.calls.count("cuLaunchKernel") == 2
    assert driver.calls.count("cuMemcpyHtoD_v2") == 2, "the input, anew for each"


def test_tolerance_is_for_floats_only(launch: str) -> None:
    problem = open_launch(launch).problem(0)
    output = next(k for k, buffer in enumerate(problem.buffers) if buffer.role == "out")
    wanted = np.linspace(1, 2, 2048, dtype=np.float32)
    near, far = wanted.copy(), wanted.copy()
    near[7] *= 1 + 1e-6
    far[7] *= 1 + 1e-3

    def differs(values: NDArray[np.float32], tolerance: float) -> bool:
        found = {output: values.view(np.uint8)}
        expected = {output: wanted.view(np.uint8)}
        return first_difference(problem, expected, found, tolerance) is not None

    assert differs(near, 0.0), "byte-identical unless asked otherwise"
    assert not differs(near, 1e-5)
    assert differs(far, 1e-5)
