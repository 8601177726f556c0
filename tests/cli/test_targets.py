"""Every verb looks at where it will write before it works."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import click
import pytest

from regdem.cli.main import run
from regdem.cli.registry import VERBS
from regdem.cli.targets import check_file_target, check_folder_target
from regdem.errors import UsageError

WRITTEN = {"-o", "--out", "--all-variants"}
FOLDERS = {"--out", "--all-variants"}
NEEDED = {"--threads": "256", "--arch": "sm_90", "--launch": "nowhere.toml", "--registers": "40"}
IMMEDIATE = {"schema", "doctor"}
"""Verbs that print what needs no work."""


def commands() -> list[tuple[tuple[str, ...], click.Command]]:
    """Every verb, and the verbs of groups."""
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name, verb in VERBS.items():
        module, _, attribute = verb.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if isinstance(command, click.Group):
            found += [((name, sub), each) for sub, each in command.commands.items()]
        else:
            found.append(((name,), command))
    return found


CASES = [
    pytest.param(words, command, option, id=f"{'-'.join(words)}{option}")
    for words, command in commands()
    if words[0] not in IMMEDIATE
    for parameter in command.params
    for option in parameter.opts
    if option in WRITTEN
]


def arguments(words: tuple[str, ...], command: click.Command) -> list[str]:
    """A call whose input does not exist, so that only a look at the output can come before."""
    call = [*words, *("nowhere.cubin" for p in command.params if isinstance(p, click.Argument))]
    for parameter in command.params:
        for option in parameter.opts:
            if option in NEEDED:
                call += [option, NEEDED[option]]
    return call


def test_the_verbs_that_write_are_known() -> None:
    shown = {case.id for case in CASES}
    wanted = {"demote-o", "promote-o", "optimize-o", "optimize--all-variants", "tune-o"}
    wanted |= {"tune--out", "study-caps--out", "inspect-o", "gate-o", "extract-o", "predict-o"}
    assert wanted <= shown


@pytest.mark.parametrize(("words", "command", "option"), CASES)
def test_a_bad_place_is_told_before_the_input_is_read(
    words: tuple[str, ...],
    command: click.Command,
    option: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    is_folder = option in FOLDERS or words == ("extract",)
    bad = [file / "below", file / "below" / "deeper"]
    bad += [file] if is_folder else [tmp_path, tmp_path / "none" / "x.json"]
    for place in bad:
        call = [*arguments(words, command), option, str(place)]
        assert run(call) == 2
        captured = capsys.readouterr()
        line = captured.out or captured.err
        if str(place).endswith(".json") and "--format" not in call and captured.out:
            line = json.loads(captured.out)["error"]["message"]
        assert "written" in line or "no folder" in line, (call, line)
        assert "nowhere" not in line
        assert line.strip().count("\n") == 0
    assert file.read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_places_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    for path in (tmp_path / "new", tmp_path / "old", tmp_path / "link", Path("/dev/null")):
        assert check_file_target(str(path)) == str(path)
    assert check_file_target("-", stdout=True) == "-"
    for folder in (tmp_path, tmp_path / "new", tmp_path / "a" / "b" / "c"):
        assert check_folder_target(str(folder)) == str(folder)


@pytest.mark.parametrize("path", ["", "-"])
def test_a_binary_needs_a_file(path: str) -> None:
    with pytest.raises(UsageError):
        check_file_target(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folders_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="may not"):
        check_file_target(str(tmp_path / "x"))
    with pytest.raises(UsageError, match="may not"):
        check_folder_target(str(tmp_path / "a" / "b"))


def test_a_device_stays_a_device(example_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["demote", str(example_path), "-o", "/dev/null", "--threads", "256", "--registers", "40"]
    assert run(call) == 0
    assert run(["occupancy", "--arch", "90", "--threads", "256", "-o", "/dev/null"]) == 0
    assert not Path("/dev/null").is_file()


def test_a_device_that_takes_nothing_is_told_first(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("no /dev/full")
    assert run(["demote", "nowhere.cubin", "-o", "/dev/full", "--registers", "40"]) == 2
    line = capsys.readouterr().err
    assert "no space left" in line
    assert "nowhere" not in line


def test_a_folder_that_takes_no_files_is_told_first(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("no /proc")
    for option, place in (("-o", "/proc/x"), ("--all-variants", "/proc/x/y")):
        call = ["optimize", "nowhere.cubin", "-o", "/dev/null", option, place]
        assert run(call) == 2
        line = capsys.readouterr().err
        assert "/proc" in line
        assert "can't be written" in line
        assert "nowhere" not in line


@pytest.mark.parametrize("verb", ["demote", "promote", "optimize"])
@pytest.mark.parametrize("kind", ["itself", "link", "dots"])
def test_the_input_is_not_overwritten(
    verb: str, kind: str, example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = example_path.read_bytes()
    file = tmp_path / "k.cubin"
    file.write_bytes(data)
    (tmp_path / "link").symlink_to(file)
    out = {"itself": file, "link": tmp_path / "link", "dots": tmp_path / "x" / ".." / "k.cubin"}
    (tmp_path / "x").mkdir()
    registers = [] if verb == "optimize" else ["--registers", "40"]
    call = [verb, str(file), "-o", str(out[kind]), "--threads", "256", *registers]
    assert run(call) == 2
    line = capsys.readouterr().err
    assert "would be replaced (--force replaces it)" in line
    assert line.count("\n") == 1
    assert file.read_bytes() == data


def test_the_input_is_replaced_by_force(example_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "k.cubin"
    file.write_bytes(example_path.read_bytes())
    call = ["demote", str(file), "-o", str(file), "--threads", "256", "--registers", "40"]
    assert run([*call, "--force"]) == 0
    assert file.read_bytes() != example_path.read_bytes()


def test_a_report_does_not_replace_what_it_is_about(
    example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k.cubin"
    file.write_bytes(example_path.read_bytes())
    assert run(["inspect", str(file), "-o", str(file), "--threads", "256"]) == 2
    assert "would be replaced" in capsys.readouterr().err
    assert file.read_bytes() == example_path.read_bytes()
    assert run(["check", str(example_path), str(file), "-o", str(file)]) == 2
    assert file.read_bytes() == example_path.read_bytes()


def test_ptx_that_is_read_is_not_overwritten(
    example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ptx = tmp_path / "k.ptx"
    ptx.write_text("// kept")
    call = ["optimize", str(example_path), "--ptx", str(ptx), "-o", str(ptx), "--threads", "256"]
    assert run(call) == 2
    assert "would be replaced" in capsys.readouterr().err
    assert ptx.read_text() == "// kept"
