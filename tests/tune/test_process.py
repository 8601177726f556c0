"""Measuring in a process of its own, against a driver in Python: faults, hangs, lies and times."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regdem.errors import RegdemError
from regdem.tune.process import GpuProcess, Settings

FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
COUNT = 64


def launch_file(folder: Path, **changes: Any) -> str:
    value: dict[str, Any] = {
        "grid": 1,
        "block": 64,
        "args": [
            {"name": "words", "shape": COUNT, "dtype": "uint32",
             "init": {"kind": "randint", "low": 0, "high": 1000}},
            {"name": "results", "shape": COUNT, "dtype": "uint32", "output": True},
            {"dtype": "uint32", "value": COUNT},
        ],
    }  # fmt: skip
    path = folder / "launch.json"
    path.write_text(json.dumps(value | changes))
    return str(path)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[GpuProcess]:
    settings = Settings(launch_file(tmp_path), "k", seeds=2, rounds=7, limit_s=2.0)
    made = GpuProcess(0, settings, FAKE)
    yield made
    made.close()


def test_a_good_and_a_wrong_variant(device: GpuProcess) -> None:
    facts = device.start()
    assert facts["name"] == "Fake GPU"
    opened = device.open(b"good")
    assert opened.seeds == 2
    assert opened.launch_ms == 1.0
    assert opened.facts["registers_per_thread"] == 40
    same = device.measure("slow one", b"slow")
    assert same.status == "identical"
    assert same.comparison is not None
    assert same.comparison.speedup == pytest.approx(0.25)
    assert same.comparison.noise == 0
    assert same.comparison.rounds == 7
    wrong = device.measure("bad one", b"wrong")
    assert wrong.status == "different"
    assert wrong.comparison is None
    assert wrong.difference is not None
    assert wrong.difference["argument"] == "results"
    first = wrong.difference["elements"][0]
    assert first["index"] == 2
    assert int(first["found"]["value"]) == int(first["expected"]["value"]) + 1
    samples = device.compare({"a": b"slow", "b": b"good"})
    assert {name: len(values) for name, values in samples.items()} == {
        "original": 7, "a": 7, "b": 7, "again": 7,
    }  # fmt: skip


def test_what_loses_the_process_is_a_result_and_the_next_variant_goes_on(
    device: GpuProcess,
) -> None:
    device.start()
    device.open(b"good")
    fault = device.measure("fault", b"fault")
    assert fault.status == "failed"
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in fault.reason
    assert "run on seed 1" in fault.reason
    assert device.measure("after", b"good").status == "identical"
    assert "with status 9" in device.measure("vanish", b"vanish").reason
    broken = device.measure("broken", b"broken")
    assert broken.status == "failed"
    assert broken.reason.startswith("load: cuModuleLoadData")
    hang = device.measure("hang", b"hang")
    assert hang.status == "failed"
    assert "no end within 2 s" in hang.reason
    assert device.measure("after", b"good").status == "identical"


@pytest.mark.parametrize(
    ("original", "code", "words"),
    [
        (b"restless", "not_deterministic", "two runs of the unmodified kernel differ in results"),
        (b"idle", "bad_launch", "writes none of the outputs"),
        (b"eater", "bad_launch", "words is said to be an input, but the kernel changes it"),
        (b"fault", "launch_failed", "the unmodified kernel can't be measured"),
        (b"broken", "launch_failed", "cuModuleLoadData"),
        (b"vanish", "launch_failed", "with status 9"),
    ],
)
def test_originals_that_are_no_base_for_a_comparison(
    device: GpuProcess, original: bytes, code: str, words: str
) -> None:
    device.start()
    with pytest.raises(RegdemError, match=words) as caught:
        device.open(original)
    assert caught.value.code == code


def test_arrays_that_are_read_and_written_are_put_back(tmp_path: Path) -> None:
    args = [
        {"shape": COUNT, "dtype": "uint32", "init": "arange", "output": "inout"},
        {"shape": COUNT, "dtype": "uint32", "output": True},
        {"dtype": "uint32", "value": COUNT},
    ]
    settings = Settings(launch_file(tmp_path, args=args), "k", seeds=1, rounds=6, limit_s=5.0)
    device = GpuProcess(0, settings, FAKE)
    try:
        device.start()
        device.open(b"eater")
        assert device.measure("same", b"eater").status == "identical"
        assert device.measure("other", b"good").status == "different"
    finally:
        device.close()


def test_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA", "none")
    device = GpuProcess(0, Settings(launch_file(tmp_path), "k"), FAKE)
    try:
        with pytest.raises(RegdemError) as caught:
            device.start()
    finally:
        device.close()
    assert caught.value.code == "no_gpu"
    assert "--prepare-only" in str(caught.value)


def test_a_limit_below_what_the_original_takes_is_said_at_once(tmp_path: Path) -> None:
    settings = Settings(launch_file(tmp_path), "k", seeds=1, rounds=6, limit_s=0.02)
    device = GpuProcess(0, settings, FAKE)
    try:
        device.start()
        with pytest.raises(RegdemError, match=r"--limit|can't be measured"):
            device.open(b"good")
    finally:
        device.close()
