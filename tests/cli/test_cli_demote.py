"""`regdem demote` on the command line: what it prints and writes, and every way it may refuse."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from regdem.binary.cubin import Cubin
from regdem.check import check_pair
from regdem.cli.main import run
from regdem.cli.schemas import schema

DATA = Path(__file__).resolve().parents[1] / "binary" / "data"
FLIPS = 120
TO_40 = ["--threads", "256", "--registers", "40"]


def demote(file: Path, out: Path, *options: str) -> int:
    return run(["demote", str(file), "-o", str(out), *options])


def answer(file: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert demote(file, out, *options, "--format", "json") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    value = json.loads(captured.out)
    jsonschema.validate(value, schema("demote"))
    return value


def refusal(
    file: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> dict[str, Any]:
    """The error of a run that must refuse: status 2, one line, no file, and the same in JSON."""
    assert demote(file, out, *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("regdem: error: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert demote(file, out, *options, "--format", "json") == 2
    captured = capsys.readouterr()
    value = json.loads(captured.out)
    jsonschema.validate(value, schema("error"))
    assert not out.exists()
    assert not list(out.parent.glob(".*.part")) if out.parent.is_dir() else True
    return value["error"]


def test_text(example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.cubin"
    assert demote(example_path, out, *TO_40) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line[:24].strip(): line[24:].split() for line in lines}
    assert lines[0] == "pair_forces  (256 threads per block)"
    assert shown["registers per thread"] == ["48", "->", "40"]
    assert shown["resident blocks"] == ["5", "->", "6"]
    assert shown["resident warps"] == ["40", "->", "48"]
    assert shown["occupancy"] == ["62.5%", "->", "75.0%"]
    assert "dataflow proved, layout clean, hazards clean" in "\n".join(lines)
    assert lines[-1] == f"written: {out}"


def test_json_says_what_the_file_holds(
    example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.cubin"
    value = answer(example_path, out, capsys, *TO_40)
    data = out.read_bytes()
    assert value["output"] == {"path": str(out), "sha256": hashlib.sha256(data).hexdigest()}
    assert value["input"]["sha256"] == hashlib.sha256(example_path.read_bytes()).hexdigest()
    (done,) = value["kernels"]
    original = Cubin.parse(example_path.read_bytes()).kernel("pair_forces")
    kernel = Cubin.parse(data).kernel("pair_forces")
    assert kernel.registers_per_thread == done["after"]["registers_per_thread"] <= 40
    assert kernel.static_shared_bytes == done["after"]["static_shared_bytes"]
    assert {v["slot"] for v in done["demoted"]} == set(range(done["slots"]))
    assert not check_pair(original, kernel, threads=256).findings


def test_blocks_as_target(
    example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.cubin"
    value = answer(example_path, out, capsys, "--threads", "256", "--blocks", "6")
    assert value["kernels"][0]["after"]["registers_per_thread"] == 40
    assert value["kernels"][0]["after"]["active_blocks"] == 6


def test_without_rematerialisation(
    example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.cubin"
    value = answer(example_path, out, capsys, *TO_40, "--no-rematerialise")
    assert value["kernels"][0]["rematerialised"] == []


def test_every_kernel_of_a_file_without_a_pattern(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spills = Path(__file__).resolve().parents[1] / "transform" / "data" / "spills.cubin"
    out = tmp_path / "out.cubin"
    value = answer(
        spills, out, capsys, "--kernel", "single", "--threads", "128", "--registers", "20"
    )
    assert [k["name"] for k in value["kernels"]] == ["single"]
    before, after = Cubin.parse(spills.read_bytes()), Cubin.parse(out.read_bytes())
    for kernel in before.kernels:
        if kernel.name != "single":
            assert after.kernel(kernel.name).code == kernel.code


def bad_files(example: bytes) -> dict[str, bytes]:
    return {
        "empty": b"",
        "text": b"a cubin this is not\n" * 20,
        "header_only": example[:64],
        "truncated": example[: len(example) // 2],
        "one_byte_short": example[:-1],
        "zeros": bytes(4096),
    }


@pytest.mark.parametrize("name", sorted(bad_files(b"")))
def test_bad_files(
    name: str, example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.cubin"
    file.write_bytes(bad_files(example_path.read_bytes())[name])
    error = refusal(file, tmp_path / "out.cubin", capsys, *TO_40)
    assert error["code"] not in ("internal_error", "error")
    assert str(file) in (error["file"] or "")


def test_no_such_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal(tmp_path / "none.cubin", tmp_path / "out.cubin", capsys, *TO_40)
    assert error["code"] == "bad_input"


def test_the_elf_of_another_vendor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = Path(sys.executable).resolve()
    if python.read_bytes()[:4] != b"\x7fELF":
        pytest.skip("the interpreter is no ELF file")
    error = refusal(python, tmp_path / "out.cubin", capsys, *TO_40)
    assert error["code"] not in ("internal_error", "error")


@pytest.mark.parametrize("name", ["cuda12_sm_80", "linked_sm_75", "linked_sm_100"])
def test_other_architectures(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal(
        DATA / f"{name}.cubin", tmp_path / "out.cubin", capsys,
        "--threads", "128", "--registers", "16", "--kernel", "_Z12dynamic_callPfi",
    )  # fmt: skip
    assert error["code"] == "unsupported_architecture"
    assert error["kernel"] == "_Z12dynamic_callPfi"


def test_relocatable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal(
        DATA / "relocatable_sm_90.cubin", tmp_path / "out.cubin", capsys,
        "--threads", "128", "--registers", "16", "--kernel", "_Z12dynamic_callPfi",
    )  # fmt: skip
    assert error["code"] == "relocatable"


REQUESTS: dict[str, tuple[list[str], str]] = {
    "unknown_kernel": ([*TO_40, "--kernel", "absent"], "no_kernel"),
    "more_than_there_are": (["--threads", "256", "--registers", "300"], "bad_usage"),
    "too_few": (["--threads", "256", "--registers", "5"], "bad_usage"),
    "zero": (["--threads", "256", "--registers", "0"], "bad_usage"),
    "negative": (["--threads", "256", "--registers", "-8"], "bad_value"),
    "not_a_number": (["--threads", "256", "--registers", "few"], "bad_usage"),
    "higher": (["--threads", "256", "--registers", "56"], "nothing_to_do"),
    "the_same": (["--threads", "256", "--registers", "48"], "nothing_to_do"),
    "more_than_a_block_may_have": (["--threads", "1024", "--registers", "80"], "bad_usage"),
    "block_too_large": (["--threads", "2048", "--registers", "40"], "bad_usage"),
    "no_block": (["--registers", "40"], "bad_usage"),
    "both_targets": ([*TO_40, "--blocks", "6"], "bad_usage"),
    "no_target": (["--threads", "256"], "bad_usage"),
    "blocks_out_of_reach": (["--threads", "256", "--blocks", "9"], "bad_usage"),
    "no_blocks": (["--threads", "256", "--blocks", "0"], "bad_usage"),
    "unknown_order": ([*TO_40, "--candidates", "best"], "bad_usage"),
    "slots_do_not_fit": (
        ["--threads", "256", "--registers", "40", "--dynamic-shared-bytes", "36000"],
        "slots_do_not_fit",
    ),
    "too_much_dynamic_memory": ([*TO_40, "--dynamic-shared-bytes", "400000"], "bad_value"),
}


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_impossible_requests(
    name: str, example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options, code = REQUESTS[name]
    error = refusal(example_path, tmp_path / "out.cubin", capsys, *options)
    assert error["code"] == code


def test_output_folder_that_is_not_there(
    example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refusal(example_path, tmp_path / "none" / "out.cubin", capsys, *TO_40)
    assert error["code"] != "internal_error"


def test_output_is_a_folder(
    example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert demote(example_path, folder, *TO_40) == 2
    assert capsys.readouterr().err.startswith("regdem: error: ")
    assert not list(folder.iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder"]


def test_a_refusal_keeps_what_was_there(example_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.cubin"
    out.write_bytes(b"precious")
    assert demote(example_path, out, "--threads", "256", "--registers", "56") == 2
    assert out.read_bytes() == b"precious"


def test_flipped_bits(
    example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged file is rewritten (and proved) or refused; nothing else happens.

    Half of the flips hit headers, tables and symbols, half any byte of the file. Most go to a
    target that renumbering reaches, which is faster.
    """
    example = example_path.read_bytes()
    code = Cubin.parse(example).kernel("pair_forces").code
    start = example.index(code)
    outside = [i for i in range(len(example)) if not start <= i < start + len(code)]
    chance = random.Random(1902)
    file, out = tmp_path / "in.cubin", tmp_path / "out.cubin"
    for k in range(FLIPS):
        at = chance.choice(outside) if k % 2 else chance.randrange(len(example))
        bit = chance.randrange(8)
        damaged = bytearray(example)
        damaged[at] ^= 1 << bit
        file.write_bytes(damaged)
        out.unlink(missing_ok=True)
        target = "46" if k % 20 else "40"
        options = ["--threads", "256", "--registers", target, "--format", "json"]
        status = demote(file, out, *options)
        captured = capsys.readouterr()
        value = json.loads(captured.out)
        where = f"byte {at}, bit {bit}: {value.get('error')}"
        assert status in (0, 2), where
        assert (status == 0) == out.exists(), where
        if status:
            assert value["error"]["code"] != "internal_error", where
