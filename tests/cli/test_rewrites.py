"""Files with several kernels or several cubins: what is done, what is left, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from regdem.binary import Cubin, open_container
from regdem.cli.main import run
from regdem.cli.schemas import schema

TESTS = Path(__file__).resolve().parents[1]
SPILLS = TESTS / "transform" / "data" / "spills.cubin"
LINES = TESTS / "binary" / "data" / "lines_sm_90.cubin"
LESS = ["--threads", "128", "--registers", "16"]
FATBIN = TESTS / "binary" / "data" / "containers" / "size.fatbin"


def answer(verb: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([verb, *arguments, "--format", "json"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema(verb))
    return value


def error(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([*arguments, "--format", "json"]) == 2
    return json.loads(capsys.readouterr().out)["error"]


def test_kernels_that_need_nothing_or_are_refused_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.cubin"
    value = answer(
        "demote", capsys, str(SPILLS), "-o", str(out), "--threads", "128", "--registers", "20"
    )
    before = Cubin.parse(SPILLS.read_bytes())
    after = Cubin.parse(out.read_bytes())
    status = {each["name"]: each["status"] for each in value["kernels"]}
    assert set(status) == {kernel.name for kernel in before.kernels}
    assert "rewritten" in status.values()
    for each in value["kernels"]:
        kernel = before.kernel(each["name"])
        if each["status"] == "rewritten":
            assert after.kernel(each["name"]).registers_per_thread <= 20
            continue
        assert each["reason"]
        assert after.kernel(each["name"]).code == kernel.code
        assert (each["status"] == "nothing_to_do") == (kernel.registers_per_thread <= 20)


def test_a_kernel_that_is_refused_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.cubin"
    value = answer("demote", capsys, str(LINES), "-o", str(out), *LESS)
    status = {each["name"]: (each["status"], each.get("reason", "")) for each in value["kernels"]}
    assert status["_Z6sharedPfi"][0] == "rewritten"
    assert status["_Z6printsi"] == ("refused", "an indirect call has unknown targets")
    assert status["_Z5plainPfi"][0] == status["_Z5tablePii"][0] == "nothing_to_do"
    assert status["_Z12dynamic_callPfi"][0] == "refused"
    after = Cubin.parse(out.read_bytes())
    for kernel in Cubin.parse(LINES.read_bytes()).kernels:
        same = after.kernel(kernel.name).code == kernel.code
        assert same == (status[kernel.name][0] != "rewritten")


def test_where_nothing_is_done_all_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.cubin"
    for target, counts in (
        (["--registers", "20"], "4 need nothing, 1 refused"),
        (["--registers", "64"], "5 need nothing"),
        (["--blocks", "99"], "5 refused"),
    ):
        what = ["demote", str(LINES), "-o", str(out), "--threads", "128", *target]
        assert counts in error(capsys, *what)["hint"]
        assert not out.exists()


def test_a_kernel_without_a_block_size_does_not_stop_one_that_declares_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ["demote", str(LINES), "-o", str(tmp_path / "out.cubin"), "--registers", "16"]
    assert run(what) == 0
    assert "the block size is not declared (give --threads)" in capsys.readouterr().out
    value = answer("demote", capsys, *what[1:])
    rewritten = [each["name"] for each in value["kernels"] if each["status"] == "rewritten"]
    assert rewritten == ["_Z6sharedPfi"]


def test_the_optimiser_leaves_kernels_that_it_does_not_understand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.cubin"
    quick = ["--effort", "quick", "--jobs", "1"]
    what = ["optimize", str(LINES), "-o", str(out), *quick]
    assert run([*what, "--format", "json"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema("optimize"))
    assert [each["name"] for each in value["kernels"]] == ["_Z6sharedPfi"]
    reasons = {each["name"]: each["reason"] for each in value["left"]}
    assert set(reasons.values()) == {"the block size is not declared"}
    assert run([*what, "--threads", "128"]) == 0
    text = capsys.readouterr().out
    assert "refused: an indirect call has unknown targets" in text
    assert "plain(float*, int)  (128 threads per block)" in text
    out.unlink()
    assert run([*what, "--threads", "128", "--kernel", "prints"]) == 2
    assert not out.exists()


def test_promotion_skips_kernels_without_spills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.cubin"
    value = answer("promote", capsys, str(SPILLS), "-o", str(out), "--threads", "128")
    status = {each["name"]: each["status"] for each in value["kernels"]}
    assert status["plain"] == "nothing_to_do"
    assert status["single"] == "rewritten"


def test_a_named_kernel_that_needs_nothing_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.cubin"
    what = ["promote", str(SPILLS), "-o", str(out), "--threads", "128", "--kernel", "^plain$"]
    assert error(capsys, *what)["code"] == "nothing_to_do"
    assert not out.exists()


def test_paper_options_need_a_paper_order(
    example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ["demote", str(example_path), "-o", str(tmp_path / "o"), "--threads", "256"]
    what += ["--registers", "40", "--paper-options", "all"]
    assert "--candidates" in error(capsys, *what)["hint"]
    value = answer("demote", capsys, *what[1:], "--candidates", "static")
    assert value["kernels"][0]["method"] == "static"


def test_extract_lists_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = answer("extract", capsys, str(FATBIN))
    entries = open_container(FATBIN)
    assert [each["kind"] for each in value["entries"]] == [entry.kind for entry in entries]
    assert all("file" not in each for each in value["entries"])
    folder = tmp_path / "pieces"
    value = answer("extract", capsys, str(FATBIN), "-o", str(folder))
    written = [Path(each["file"]["path"]) for each in value["entries"] if "file" in each]
    assert sorted(folder.iterdir()) == sorted(written)
    cubins = [path for path in written if path.suffix == ".cubin"]
    contents = [entry.read() for entry in entries if entry.kind == "cubin"]
    assert [path.read_bytes() for path in cubins] == contents


def test_extract_of_nothing_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "extract", str(FATBIN), "--kernel", "absent")["code"] == "bad_usage"


def test_check_names_both_architectures(
    example_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = TESTS / "binary" / "data" / "cuda12_sm_80.cubin"
    message = error(capsys, "check", str(old), str(example_path))["message"]
    assert "sm_90" in message
    assert "sm_80" in message


def test_an_architecture_that_is_not_read_is_told_before_spills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ampere = TESTS / "binary" / "data" / "cuda12_sm_80.cubin"
    assert not Cubin.parse(ampere.read_bytes()).kernel("_Z6sharedPfi").local_bytes
    call = ["promote", str(ampere), "-o", str(tmp_path / "out.cubin"), "--threads", "128"]
    told = error(capsys, *call, "--kernel", "_Z6sharedPfi")
    assert told["code"] == "unsupported_architecture"
    assert "sm_80 code can't be read yet" in told["message"]


def test_slots_in_local_memory_are_named(
    example_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.cubin"
    call = ["demote", str(example_path), "-o", str(out), "--threads", "256"]
    less = ["--registers", "28", "--dynamic-shared-bytes", "40000", "--local-slots", "64"]
    assert run([*call, *less]) == 0
    grown = [kernel.local_bytes for kernel in Cubin.parse(out.read_bytes()).kernels]
    assert any(grown)
    text = capsys.readouterr().out
    for count in filter(None, grown):
        assert f"in local memory        {count:>7} bytes of it, in a longer stack frame" in text
    assert run([*call, "--registers", "40"]) == 0
    assert "local memory" not in capsys.readouterr().out
