"""Tuning the shipped examples on a real GPU, end to end, with variants that lie, crash and hang.

Needs nothing but pytest, numpy and the package's own dependencies:
`pytest --noconftest -m gpu tests/tune/test_gpu.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regdem.binary import Cubin
from regdem.cli.main import run
from regdem.isa import decode
from regdem.isa.table import table_for
from regdem.tune.process import GpuProcess, Settings
from regdem.tune.results import Device, Measurement, Opened
from regdem.tune.tuner import Choices, tune

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).parents[2] / "examples"
CUBIN = EXAMPLES / "neighbour" / "neighbour.cubin"
LAUNCH = f"{EXAMPLES}/neighbour/launch.py:pair_forces"
KERNEL = "pair_forces"
NOP = 0x7918


@pytest.fixture
def device() -> Iterator[GpuProcess]:
    made = GpuProcess(0, Settings(LAUNCH, KERNEL, seeds=2, rounds=11, limit_s=20))
    yield made
    made.close()


def patched(change: Callable[[str, bytes], bytes]) -> bytes:
    """The example with every instruction word changed by `change(name, word)`."""
    data = CUBIN.read_bytes()
    kernel = Cubin.parse(data).kernel(KERNEL)
    decoded = decode(kernel.code, "sm_90")
    forms: list[Any] = list(table_for("sm_90").forms)
    at = data.index(kernel.code)
    new = b"".join(
        change(forms[form].name, kernel.code[16 * k : 16 * k + 16])
        for k, form in enumerate(decoded.form.tolist())
    )
    return data[:at] + new + data[at + len(new) :]


def nop(word: bytes) -> bytes:
    """A NOP with the control bits of `word`."""
    control = int.from_bytes(word, "little") >> 105 << 105
    return (control | NOP).to_bytes(16, "little")


def test_the_example_from_cubin_to_best(tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    choices = Choices(rounds=15, exhaustive=True, jobs=2)
    result = tune(CUBIN, LAUNCH, out=folder, choices=choices)
    usable = [row for row in result.rows if row.made.is_usable]
    assert usable
    assert [row.status for row in usable] == ["measured"] * len(usable)
    for row in usable:
        assert row.measurement is not None
        assert row.measurement.seeds == 3
        assert row.measurement.facts["registers_per_thread"] <= 48
        assert row.comparison is not None
        assert row.comparison.noise < 0.2
        assert 0.2 < row.comparison.speedup < 5
    assert result.gpu is not None
    assert result.gpu["name"]
    assert result.opened is not None
    assert result.opened.facts["registers_per_thread"] == 48

    class Idle(GpuProcess):
        def measure(self, name: str, cubin: bytes) -> Measurement:
            raise AssertionError(f"{name} was measured before")

        def compare(self, variants: dict[str, bytes]) -> dict[str, list[float]]:
            raise AssertionError("the last session was before")

    again: Device = Idle(0, Settings(LAUNCH, KERNEL, seeds=3, rounds=15))
    resumed = tune(None, out=folder, choices=choices, devices=[again])
    assert resumed.best == result.best
    assert [row.measurement for row in resumed.rows] == [row.measurement for row in result.rows]


def test_command_line_on_the_spilling_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "evidence", tmp_path / "best.cubin"
    status = run(
        [
            "tune", str(EXAMPLES / "unroll" / "variance_unrolled.cubin"),
            "--launch", str(EXAMPLES / "unroll" / "variance.launch.json"),
            "-o", str(out), "--out", str(folder), "--jobs", "2", "--rounds", "15",
            "--generations", "3",
        ]
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert status == 0, printed
    results = json.loads((folder / "results.json").read_text())
    assert any(row["status"] == "measured" for row in results["variants"])
    assert out.read_bytes() == (folder / "best.cubin").read_bytes()
    rows = {row["name"]: row for row in results["variants"]}
    assert any("+near_" in name and row["status"] == "measured" for name, row in rows.items())
    assert not [name for name, row in rows.items() if row["status"] in ("rejected", "failed")]
    if results["best"] in rows:  # else it is the input itself that is fastest
        assert rows[results["best"]]["measured"]["speedup"] >= 1


def test_variants_that_lie_crash_and_hang(device: GpuProcess) -> None:
    device.start()
    opened: Opened = device.open(CUBIN.read_bytes())
    assert opened.seeds == 2
    silent = device.measure("silent", patched(lambda n, w: nop(w) if n == "STG" else w))
    assert silent.status == "different"
    assert silent.difference is not None
    assert silent.difference["elements"][0]["found"]["hex"] == "a5a5a5a5"
    crash = device.measure("crash", patched(lambda _, w: bytes(16)))
    assert crash.status == "failed", crash
    same = device.measure("same", CUBIN.read_bytes())
    assert same.status == "identical"
    assert same.comparison is not None
    assert abs(same.comparison.speedup - 1) < 0.1
    assert not same.comparison.is_faster
    hang = device.measure("hang", patched(lambda n, w: nop(w) if n == "EXIT" else w))
    assert hang.status == "failed"
    assert device.measure("same again", CUBIN.read_bytes()).status == "identical"


def test_rewrites_of_the_example_give_its_bytes(device: GpuProcess, tmp_path: Path) -> None:
    """Slots, uniform registers, other register numbers, and slots in a longer stack frame."""
    device.start()
    device.open(CUBIN.read_bytes())
    ways = {
        "demoted": ["--registers", "40"],
        "renumbered": ["--registers", "48", "--candidates", "none"],
        "local": ["--registers", "20", "--local-slots", "64"],
    }
    for name, options in ways.items():
        out = tmp_path / f"{name}.cubin"
        assert run(["demote", str(CUBIN), "-o", str(out), "--threads", "256", *options]) == 0
        measured = device.measure(name, out.read_bytes())
        assert measured.status == "identical", measured
