"""The measuring process on a driver in Python: facts, equality, failures, times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from bench.suite import measure
from bench.suite.spec import KernelSpec, Problem, i32, read, write
from fake_cuda import FakeCuda

from regdem.tune.launch import Gpu

Record = dict[str, Any]


def _problem(seed: int, small: bool) -> Problem:
    data = np.arange(8, dtype=np.uint32) + np.uint32(seed)
    return Problem((1, 1, 1), (read(data), write(np.uint32, 8), i32(8)))


SPEC = KernelSpec(
    name="k",
    source="k.cu",
    kernel="k",
    block=(8, 1, 1),
    make=_problem,
    covers="a test",
    reference=lambda problem: {1: problem.arguments[0].data + 1},  # type: ignore[union-attr]
)


def _folder(tmp_path: Path, variants: dict[str, str]) -> Path:
    records = [{"name": "default", "family": "default", "file": "default.cubin"}]
    (tmp_path / "default.cubin").write_text("good")
    for name, behaviour in variants.items():
        (tmp_path / f"{name}.cubin").write_text(behaviour)
        records.append({"name": name, "family": "binary", "file": f"{name}.cubin"})
    manifest = {"kernels": [{"name": "k", "kernel": "k", "variants": records}]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


def _events(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> list[Record]:
    monkeypatch.setattr(measure, "find_spec", lambda _name: SPEC)  # pyright: ignore
    monkeypatch.setattr(measure, "Gpu", lambda: Gpu(library=FakeCuda()))
    measure.main(arguments)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


class _Stdin:
    lines: ClassVar = ["go\n"]

    def readline(self) -> str:
        return self.lines[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines[1:])


@pytest.fixture(autouse=True)
def _stdin(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore
    monkeypatch.setattr("sys.stdin", _Stdin())


def test_equal_and_wrong_variants_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path, {"same": "good", "other": "wrong", "bad": "broken"})
    events = _events(monkeypatch, capsys, [str(folder), "k", "--rounds", "3", "--seeds", "2"])
    checks = {(e["variant"], e["seed"]): e for e in events if e["event"] == "check"}
    assert checks["same", 0]["identical"]
    assert checks["same", 1]["identical"]
    assert not checks["other", 0]["identical"]
    assert checks["other", 0]["where"] == {"argument": 1, "byte": 8, "bytes": 1}
    assert ("other", 1) not in checks
    failed = [e for e in events if e["event"] == "failed"]
    assert [e["variant"] for e in failed] == ["bad"]
    timed = {e["variant"] for e in events if e["event"] == "timing"}
    assert timed == {"default", "same", "default again"}
    reference = next(e for e in events if e["event"] == "reference")
    assert reference["passed"]
    assert reference["relative_error"] == 0.0
    assert events[-1]["event"] == "end"


def test_a_fault_ends_the_process_after_naming_the_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path, {"f": "fault"})
    with pytest.raises(SystemExit) as caught:
        _events(monkeypatch, capsys, [str(folder), "k", "--seeds", "1"])
    assert caught.value.code == measure.STICKY_EXIT
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["event"], last["variant"]) == ("failed", "f")


def test_skipped_variants_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path, {"f": "fault", "same": "good"})
    events = _events(monkeypatch, capsys, [str(folder), "k", "--skip", "f", "--seeds", "1"])
    assert {e["variant"] for e in events if e["event"] == "facts"} == {"default", "same"}


def test_once_launches_each_named_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path, {"same": "good"})
    events = _events(monkeypatch, capsys, [str(folder), "k", "--once", "default,same"])
    assert events[-1] == {"event": "end", "launched": ["default", "same"]}


def test_serving_measures_each_set_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path, {"same": "good", "other": "wrong"})
    sets = [{"same": "same.cubin"}, {"other": "other.cubin", "again": "same.cubin"}]
    monkeypatch.setattr(_Stdin, "lines", [json.dumps(one) + "\n" for one in sets])
    events = _events(monkeypatch, capsys, [str(folder), "k", "--serve", "--rounds", "3"])
    ends = [k for k, event in enumerate(events) if event["event"] == "end"]
    assert len(ends) == 2
    first, second = events[: ends[0]], events[ends[0] :]
    timed = [{e["variant"] for e in part if e["event"] == "timing"} for part in (first, second)]
    assert timed == [{"default", "same", "default again"}, {"default", "again", "default again"}]
    checks = {e["variant"]: e["identical"] for e in second if e["event"] == "check"}
    assert checks == {"other": False, "again": True}
