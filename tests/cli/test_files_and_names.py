"""Any file that holds device code, and any way to write a kernel's name, for every verb."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from regdem.binary import Cubin, open_container
from regdem.cli.main import run
from regdem.cli.schemas import schema

DATA = Path(__file__).resolve().parents[1] / "binary" / "data"
LINES = DATA / "lines_sm_90.cubin"
FATBIN = DATA / "containers" / "size.fatbin"
OLD = DATA / "cuda12_sm_80.cubin"
MANGLED, READABLE = "_Z5tablePii", "table(int*, int)"
TARGET = ["--threads", "128", "--registers", "12"]

VERBS = {
    "inspect": [],
    "check": [],
    "predict": ["--threads", "128"],
    "plan": ["--threads", "128"],
    "occupancy": ["--threads", "128"],
    "gate": ["registers<=1"],
    "diff": [],
    "optimize": ["--threads", "128", "--effort", "quick", "--jobs", "1"],
    "demote": TARGET,
    "promote": ["--threads", "128"],
}
READERS = ["inspect", "check", "predict", "plan", "occupancy", "gate", "diff"]
WRITERS = ["demote", "promote", "optimize"]


def call(verb: str, file: Path | str, out: Path, *more: str) -> list[str]:
    """The verb on a file; `diff` and `check` get it twice, `gate` its expression."""
    files = [str(file)] * (2 if verb in ("diff",) else 1)
    written = ["-o", str(out)] if verb in WRITERS else []
    return [verb, *files, *VERBS[verb], *written, *more]


def answer(capsys: pytest.CaptureFixture[str], verb: str, *arguments: str) -> Any:
    assert run([*arguments, "--format", "json"]) in (0, 1)
    value = json.loads(capsys.readouterr().out)
    if verb != "diff":
        jsonschema.validate(value, schema(verb))
    return value


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("pattern", [MANGLED, READABLE, "^table\\(", "5table"])
def test_kernels_are_shown_as_people_write_them_and_found_either_way(
    verb: str, pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(call(verb, LINES, tmp_path / "out.cubin", "--kernel", pattern))
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert READABLE in text
    assert status in (0, 1, 2)
    if verb != "inspect":  # it shows both
        assert MANGLED not in text
    assert run(call(verb, LINES, tmp_path / "x", "--kernel", "no such kernel")) == 2


@pytest.mark.parametrize("verb", VERBS)
def test_json_keeps_the_symbol(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*call(verb, LINES, tmp_path / "o", "--kernel", READABLE), "--format", "json"])
    assert f'"{MANGLED}"' in capsys.readouterr().out


@pytest.mark.parametrize("verb", READERS)
def test_a_fat_binary_is_read_as_its_cubin_is(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cubin = tmp_path / "inside.cubin"
    (entry,) = [e for e in open_container(FATBIN) if e.kind == "cubin" and e.arch == "sm_90"]
    cubin.write_bytes(entry.read())
    both = [
        answer(capsys, verb, *call(verb, file, tmp_path / "o", "--kernel", READABLE))
        for file in (cubin, FATBIN)
    ]
    for value in both:
        for key in ("input", "inputs", "before", "after"):
            value.pop(key, None)
    rows = [value.get("kernels", value.get("ranking", value.get("findings"))) for value in both]
    of_90 = [row for row in rows[1] if "sm_75" not in json.dumps(row)]
    for row in [*rows[0], *of_90]:
        for key in ("origin", "file", "rank"):
            row.pop(key, None)
    assert rows[0]
    if verb == "gate":
        assert len(rows[1]) == 2 * len(rows[0])
    elif verb == "diff":
        assert of_90[-1] == rows[0][0]
    else:
        assert of_90 == rows[0]


def test_programs_are_checked_against_what_was_made_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new.fatbin"
    name = "shared(float*, int)"
    what = ["--threads", "128", "--registers", "16", "--kernel", name]
    status = run(["demote", str(FATBIN), "-o", str(out), *what])
    captured = capsys.readouterr()
    if status:
        pytest.skip(f"nothing to demote: {captured.err}")
    value = answer(capsys, "check", "check", str(FATBIN), str(out))
    assert value["verdict"] == "equivalent"
    assert {row["arch"] for row in value["kernels"]} == {"sm_90"}
    whole = bytearray(out.read_bytes())
    (entry,) = [e for e in open_container(out) if e.kind == "cubin" and e.arch == "sm_90"]
    cubin = Cubin.parse(entry.read())
    code = cubin.kernel("_Z6sharedPfi").code
    at = whole.find(code)
    if at < 0:
        return  # compressed
    whole[at + 4] ^= 1
    out.write_bytes(whole)
    assert run(["check", str(FATBIN), str(out)]) == 1


def test_kernels_that_are_not_understood_are_equal_to_themselves(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One kernel here makes an indirect call; another is rewritten beside it."""
    less = ["--threads", "128", "--registers", "16"]
    assert run(["check", str(LINES), str(LINES)]) == 0
    assert capsys.readouterr().out.count("equivalent (unchanged)") == 5
    out = tmp_path / "out.cubin"
    assert run(["demote", str(LINES), "-o", str(out), *less]) == 0
    capsys.readouterr()
    value = answer(capsys, "check", "check", str(LINES), str(out))
    assert value["verdict"] == "equivalent"
    checks = {row["name"]: row["checks"] for row in value["kernels"]}
    assert checks["_Z6printsi"] == {}
    assert any(checks.values())


@pytest.mark.parametrize("verb", ["predict", "plan"])
def test_one_kernel_that_is_not_understood_does_not_stop_the_others(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([verb, str(LINES), "--threads", "128"]) == 0
    captured = capsys.readouterr()
    assert READABLE in captured.out
    assert captured.err.count("left out") == 1
    assert run([verb, str(LINES), "--threads", "128", "--kernel", "prints"]) == 2


@pytest.mark.parametrize("verb", [v for v in VERBS if v != "occupancy"])
def test_architectures_that_are_not_known_are_refused_in_one_way(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(OLD)] * (2 if verb == "diff" else 1)
    more = ["-o", str(tmp_path / "out")] if verb in WRITERS else []
    assert run([verb, *files, *VERBS[verb], *more]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "sm_80 code can't be read yet, neither explained nor rewritten" in line
    assert run(["occupancy", str(OLD), "--threads", "128"]) == 0


def test_files_for_different_architectures_are_not_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["check", str(OLD), str(LINES)]) == 2
    assert "sm_90 code, the original is sm_80" in capsys.readouterr().err
    assert run(["check", str(FATBIN), str(LINES)]) == 2
    kernels = ["--kernel", "table"]
    other = str(DATA.parents[1] / "check" / "data" / "kernels.cubin")
    assert run(["check", str(LINES), other]) == 2
    assert "same kernels" in capsys.readouterr().err
    assert run(["check", str(LINES), str(LINES), *kernels]) == 0


@pytest.mark.parametrize("verb", READERS)
def test_standard_input(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def feed(data: bytes) -> None:
        stream = io.TextIOWrapper(io.BytesIO(data))
        monkeypatch.setattr(sys, "stdin", stream)

    if verb == "diff":
        return  # it would need it twice
    feed(LINES.read_bytes())
    value = answer(capsys, verb, *call(verb, "-", tmp_path / "o", "--kernel", MANGLED))
    assert value.get("input", value.get("inputs", [{}])[0] if "inputs" in value else None)
    feed(b"no device code")
    assert run(call(verb, "-", tmp_path / "o")) == 2
    line = capsys.readouterr().err
    assert "<stdin>" in line
    assert "<bytes>" not in line
