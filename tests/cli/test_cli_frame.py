"""The command line's promises: exit statuses, errors, formats, files, and a fast start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from regdem.cli import main as cli_main
from regdem.cli.main import run
from regdem.cli.output import Output, write_atomically
from regdem.cli.registry import VERBS, Verb
from regdem.cli.schemas import schema, schema_names
from regdem.errors import UnsupportedError, UsageError

OCCUPANCY = ["occupancy", "--arch", "9.0", "--threads", "256", "--registers", "36"]
PLAN = ["plan", "--arch", "sm_90", "--threads", "256", "--latency-cycles", "480"]


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*arguments, "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_occupancy_json(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer([*OCCUPANCY, "--grid", "1000"], capsys)
    jsonschema.validate(value, schema("occupancy"))
    assert list(value)[:2] == ["schema_version", "tool"]
    assert (value["active_blocks"], value["active_warps"], value["occupancy_pct"]) == (6, 48, 75.0)
    assert value["limits"]["registers"] == 6
    assert value["limiters"] == ["registers"]
    assert [row["registers_max"] for row in value["cliffs"]] == [255, 128, 80, 64, 48, 40, 32]
    assert value["waves"]["waves"] == 2


def test_every_architecture(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer(["occupancy", "--arch", "all", "--threads", "128", "--cluster", "2"], capsys)
    jsonschema.validate(value, schema("occupancy"))
    assert "sm_80" in value["not_legal"]
    assert value["archs"][0]["arch"] == "sm_90"
    assert run(["occupancy", "--arch", "all", "--threads", "128", "--registers", "40"]) == 0
    assert "sm_121" in capsys.readouterr().out


def test_plan_json(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer([*PLAN, "--issue-cycles-per-load", "60"], capsys)
    jsonschema.validate(value, schema("plan"))
    assert (value["warps_needed"], value["register_budget"]) == (32, 64)
    value = answer([*PLAN, "--issue-cycles-per-load", "30"], capsys)
    assert (value["warps_needed"], value["register_budget"]) == (64, 32)
    compared = answer(["plan", "--arch", "all", "--threads", "64", "--warps", "16"], capsys)
    jsonschema.validate(compared, schema("plan"))


def test_text_says_what_the_json_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(OCCUPANCY) == 0
    text = capsys.readouterr().out
    assert "6 blocks of 8 warps, 48 of 64 warps, 75.0 %; limited by registers." in text
    assert "8 blocks: remove 4 registers (to 32)" in text
    assert text.isascii()
    assert run([*PLAN, "--issue-cycles-per-load", "60", "--registers", "72"]) == 0
    assert "8 above the budget" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["occupancy"],
        ["nonsense"],
        [],
        ["occupancy", "--arch", "sm_90"],
        ["occupancy", "--arch", "tesla", "--threads", "32"],
        ["occupancy", "--arch", "sm_90", "--threads", "0"],
        ["occupancy", "--arch", "sm_90", "--threads", "2000"],
        ["occupancy", "--arch", "sm_90", "--threads", "64", "--registers", "300"],
        ["occupancy", "--arch", "sm_90", "--threads", "64", "--static-shared-bytes", "-1"],
        ["occupancy", "--arch", "sm_90", "--threads", "64", "--cluster", "17"],
        ["occupancy", "--arch", "sm_90", "--threads", "64", "--registers", "many"],
        ["occupancy", "--arch", "all", "--threads", "64", "--registers", "300"],
        ["occupancy", "no-such-file.cubin"],
        ["plan", "--arch", "sm_90", "--threads", "64"],
        ["plan", "--arch", "sm_90", "--threads", "64", "--latency-cycles", "400"],
        ["schema", "nonsense"],
    ],
)
def test_bad_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("regdem: error: ")
    assert captured.err.count("\n") == 1
    assert run([*arguments, "--format", "json"]) == 2
    captured = capsys.readouterr()
    assert captured.err == ""
    jsonschema.validate(json.loads(captured.out), schema("error"))


def test_outcomes_of_a_verb(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome: list[BaseException | int | None] = [None]

    @click.command()
    @click.option("--debug", is_flag=True, expose_value=False)
    def probe() -> int | None:
        result = outcome[0]
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(cli_main, "probe_command", probe, raising=False)
    monkeypatch.setitem(VERBS, "probe", Verb("regdem.cli.main:probe_command", "A probe."))
    expected: list[tuple[BaseException | int | None, int, str]] = [
        (None, 0, ""),
        (1, 1, ""),
        (UnsupportedError("uses setmaxnreg", kernel="k", offset=64), 2, "k, offset 0x40: uses"),
        (ValueError("a\nb"), 2, "ValueError: a b"),
        (FileNotFoundError(2, "No such file", "x"), 2, "x: No such file"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(), 141, ""),
    ]
    monkeypatch.setattr(cli_main, "_forget_stdout", lambda: None)
    for result, status, message in expected:
        outcome[0] = result
        assert run(["probe"]) == status
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error
    outcome[0] = ValueError("shown")
    with pytest.raises(ValueError, match="shown"):
        run(["probe", "--debug"])


def test_output_file_and_inferred_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, data = tmp_path / "a.html", tmp_path / "a.json"
    assert run([*OCCUPANCY, "-o", str(page)]) == 0
    assert run([*OCCUPANCY, "-o", str(data)]) == 0
    assert capsys.readouterr().out == ""
    assert page.read_text().startswith("<!doctype html>")
    assert "<svg" in page.read_text()
    assert json.loads(data.read_text())["active_warps"] == 48
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json"]


def test_failure_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.json"
    assert run(["occupancy", "--arch", "sm_90", "--threads", "0", "-o", str(out)]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "bad_usage"
    assert run([*OCCUPANCY, "-o", str(tmp_path / "none" / "x.txt")]) == 2
    with pytest.raises(UsageError):
        write_atomically(tmp_path / "none" / "x", b"")
    assert list(tmp_path.iterdir()) == []


def test_written_files_keep_their_permissions(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(0o640)
    Output("text", str(path)).emit(text="new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_same_input_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("text", "json", "html"):
        texts: list[str] = []
        for _ in range(2):
            assert run([*OCCUPANCY, "--format", name]) == 0
            texts.append(capsys.readouterr().out)
        assert texts[0] == texts[1] != ""


def test_schemas_are_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    for name in schema_names():
        jsonschema.Draft202012Validator.check_schema(schema(name))
    assert run(["schema", "plan"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "regdem plan"
    assert run(["schema"]) == 0
    assert {"occupancy", "plan", "doctor", "error"} <= set(json.loads(capsys.readouterr().out))


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer(["doctor"], capsys)
    jsonschema.validate(value, schema("doctor"))
    assert [tool["name"] for tool in value["tools"]] == ["nvdisasm", "cuobjdump", "nvcc", "ptxas"]
    assert run(["doctor"]) == 0
    assert "What works here" in capsys.readouterr().out


def test_every_verb_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listing = capsys.readouterr().out
    for verb in VERBS:
        assert verb in listing
        assert run([verb, "--help"]) == 0
        assert "Usage: regdem" in capsys.readouterr().out


def process(arguments: list[str], **rest: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "regdem.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **rest)


def test_help_and_occupancy_import_no_more_than_they_need() -> None:
    code = (
        "import sys; from regdem.cli.main import run; run(sys.argv[1:]); "
        "heavy = {'numpy', 'rich', 'regdem.binary', 'regdem.isa'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    for arguments in (["--help"], OCCUPANCY):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_cold_start() -> None:
    """In processor seconds of the child, so that a busy machine doesn't count."""
    times: list[float] = []
    for _ in range(5):
        before = os.times()
        assert process(OCCUPANCY).returncode == 0
        after = os.times()
        user = after.children_user - before.children_user
        times.append(user + after.children_system - before.children_system)
    assert min(times) < 0.3


def test_a_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "regdem.cli.main", "schema"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
