"""inspect, diff and gate on the command line: formats, exit statuses, bad input."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from regdem.cli.main import run
from regdem.cli.schemas import schema

ROOT = Path(__file__).resolve().parents[2]
NEIGHBOUR = str(ROOT / "examples" / "neighbour" / "neighbour.cubin")
ROLLED = str(ROOT / "examples" / "unroll" / "variance_rolled.cubin")
UNROLLED = str(ROOT / "examples" / "unroll" / "variance_unrolled.cubin")
FATBIN = ROOT / "tests" / "binary" / "data" / "containers" / "size.fatbin"


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> Any:
    """The JSON of a verb, valid under its schema."""
    assert run([*arguments, "--format", "json"]) == status
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema(arguments[0]))
    return value


def test_inspect_json(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer(["inspect", NEIGHBOUR, "--threads", "256", "--fits", "40"], capsys)
    (kernel,) = value["kernels"]
    assert kernel["name"] == "pair_forces"
    assert kernel["registers_per_thread"] == 48
    assert kernel["max_live"] == {"gpr": 44, "ugpr": 10, "pred": 3, "upred": 0}
    assert len(kernel["pressure"]["curve"]) == kernel["instructions"]
    assert max(live for _, live in kernel["pressure"]["curve"]) == kernel["pressure"]["peak"]
    assert kernel["occupancy"]["active_warps"] == 40
    assert kernel["fits"]["fits"] is False
    assert kernel["fits"]["in_the_way"]


def test_inspect_exact(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ortools")
    flags = ["--exact", "--exact-seconds", "5", "--fits", "30", "--graph"]
    value = answer(["inspect", ROLLED, *flags], capsys)
    (kernel,) = value["kernels"]
    assert kernel["fits"]["method"] == "exact"
    assert kernel["exact"]["registers_suffice"] <= kernel["interference"]["registers_needed"]
    assert len(kernel["graph"]["nodes"]) == kernel["interference"]["nodes"]
    assert len(kernel["graph"]["edges"]) == kernel["interference"]["edges"]
    assert run(["inspect", ROLLED, *flags[:-1]]) == 0
    assert "the least (proved)" in capsys.readouterr().out


def test_inspect_exact_without_the_solver(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regdem.analysis.exact.is_available", lambda: False)
    value = answer(["inspect", ROLLED, "--exact", "--fits", "30"], capsys)
    assert value["kernels"][0]["fits"]["method"] == "greedy"
    assert run(["inspect", ROLLED, "--exact"]) == 0
    assert "pip install 'regdem[exact]'" in capsys.readouterr().err


def test_inspect_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", NEIGHBOUR, "--threads", "256", "--fits", "48"]) == 0
    text = capsys.readouterr().out
    assert "48 registers per thread" in text
    assert "fits 48?     yes" in text
    assert "[stop_chasing_occupancy]" in text
    assert "times as fast (" in text
    assert run(["inspect", NEIGHBOUR, "--threads", "256", "--no-predict"]) == 0
    text = capsys.readouterr().out
    assert "[cross_cliff]" in text
    assert "not predicted here" in text


def test_inspect_dot_and_html(tmp_path: Path) -> None:
    assert run(["inspect", NEIGHBOUR, "--format", "dot", "-o", str(tmp_path / "g.dot")]) == 0
    assert (tmp_path / "g.dot").read_text().startswith("graph interference {")
    assert run(["inspect", NEIGHBOUR, "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "http://" not in page
    assert "https://" not in page


def test_processes_give_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An archive of several cubins, on one process and on two."""
    path = tmp_path / "kernels.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (NEIGHBOUR, ROLLED, UNROLLED):
            archive.write(name, Path(name).name)
    one = answer(["inspect", str(path), "--jobs", "1"], capsys)
    two = answer(["inspect", str(path), "--jobs", "2"], capsys)
    assert one == two
    assert [kernel["name"] for kernel in one["kernels"]] == ["pair_forces", "variance", "variance"]
    assert all(kernel["origin"] for kernel in one["kernels"])


def test_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Path(ROLLED).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    value = answer(["inspect", "-"], capsys)
    assert value["input"]["path"] == "-"


def test_triton_cache(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A sidecar beside a cubin says the launch."""
    folder = tmp_path / "cache" / "ABC"
    folder.mkdir(parents=True)
    (folder / "pair_forces.cubin").write_bytes(Path(NEIGHBOUR).read_bytes())
    (folder / "pair_forces.json").write_text(
        json.dumps({"num_warps": 4, "shared": 4096, "name": "pair_forces"})
    )
    value = answer(["inspect", str(tmp_path / "cache")], capsys)
    (kernel,) = value["kernels"]
    assert kernel["threads"] == 128
    assert kernel["occupancy"]["dynamic_shared_bytes"] == 4096


@pytest.mark.tools
def test_sources_are_compiled(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text('extern "C" __global__ void k(float *x) { x[threadIdx.x] *= 2; }\n')
    (kernel,) = answer(["inspect", str(source), "--threads", "64"], capsys)["kernels"]
    assert kernel["name"] == "k"
    assert os.listdir(tmp_path) == ["k.cu"]
    source.write_text("not a program\n")
    assert run(["inspect", str(source)]) == 2
    assert "does not compile" in capsys.readouterr().err


def test_what_advice_says_to_run_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The command repeats the launch as it was given, and is taken as it stands."""
    given = ["--threads", "16,16", "--arch", "90", "--dynamic-shared-bytes", "64"]
    value = answer(["inspect", NEIGHBOUR, *given], capsys)
    (advice,) = value["kernels"][0]["advice"][:1]
    words = advice["action"].removesuffix(" shows the sum").partition("regdem ")[2].split()
    assert words[:2] == ["predict", "FILE"]
    assert " ".join(words).endswith("--threads 16,16,1 --dynamic-shared-bytes 64 --arch sm_90")
    assert run([NEIGHBOUR if word == "FILE" else word for word in words]) == 0
    assert "pair_forces" in capsys.readouterr().out


def test_diff(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer(["diff", ROLLED, UNROLLED], capsys)
    (kernel,) = value["kernels"]
    assert kernel["verdict"] == "worse"
    assert kernel["causes"][0]["cause"] == "full_unroll"
    assert run(["diff", ROLLED, UNROLLED, "--fail-on", "worse"]) == 1
    assert run(["diff", UNROLLED, ROLLED, "--fail-on", "worse"]) == 0
    assert run(["diff", ROLLED, ROLLED, "--fail-on", "any"]) == 0


def test_no_unroll_is_blamed_where_none_went_further(capsys: pytest.CaptureFixture[str]) -> None:
    full, part = (str(ROOT / f"tests/report/data/ring_{name}.cubin") for name in ("full", "part"))
    (kernel,) = answer(["diff", full, part], capsys)["kernels"]
    assert [cause["cause"] for cause in kernel["causes"]] == ["dynamic_array"]
    (kernel,) = answer(["inspect", full], capsys)["kernels"]
    assert [each["rule"] for each in kernel["advice"]][-1] == "partial_unroll"


def test_gate(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["gate", NEIGHBOUR, "--threads", "256"]
    assert answer([*arguments, "registers<=48,spill_bytes==0"], capsys)["passed"]
    broken = answer([*arguments, "registers<=40"], capsys, status=1)
    assert [finding["metric"] for finding in broken["findings"]] == ["registers"]
    assert run([*arguments, "registers<=40", "--format", "github"]) == 1
    assert capsys.readouterr().out.startswith("::error ")
    assert run([*arguments, "registers<=40", "--format", "sarif"]) == 1
    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"


def test_gate_keeps_the_architectures_of_a_file_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fatbin = str(FATBIN)
    base = str(tmp_path / "base.json")
    assert run(["gate", fatbin, "--baseline", base, "--update-baseline"]) == 0
    for arch in ([], ["--arch", "sm_90"], ["--kernel", "plain"]):
        capsys.readouterr()
        assert run(["gate", fatbin, "--baseline", base, "--strict", *arch]) == ("--arch" in arch)
        gone = capsys.readouterr().out.count("(sm_75): in the baseline, but no longer")
        assert gone == (5 if "--arch" in arch else 0)
    single = str(tmp_path / "single.json")
    only = ["--arch", "sm_90", "--baseline", single]
    assert run(["gate", fatbin, *only, "--update-baseline"]) == 0
    assert run(["gate", fatbin, *only, "--strict"]) == 0


def test_gate_names_what_vanished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = str(tmp_path / "base.json")
    assert run(["gate", ROLLED, "--baseline", baseline, "--update-baseline"]) == 0
    capsys.readouterr()
    value = answer(["gate", NEIGHBOUR, "--baseline", baseline], capsys)
    assert {(f["rule"], f["kernel"]) for f in value["findings"]} == {
        ("new", "pair_forces"),
        ("gone", "variance"),
    }
    assert run(["gate", NEIGHBOUR, "--baseline", baseline, "--kernel", "pair"]) == 0
    assert "gone" not in capsys.readouterr().out
    assert run(["gate", NEIGHBOUR, "--baseline", baseline, "--strict"]) == 1


def test_gate_counts_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line counts errors, and apart from them the kernels looked at."""

    def last(*arguments: str) -> str:
        run(["gate", *arguments])
        return capsys.readouterr().out.splitlines()[-1]

    baseline = str(tmp_path / "base.json")
    assert last(str(FATBIN), "--baseline", baseline, "--update-baseline") == "passed: 10 kernels"
    gone = last(str(FATBIN), "--baseline", baseline, "--strict", "--arch", "sm_90")
    assert gone == "failed: 5 errors; 5 kernels checked"
    assert last(NEIGHBOUR, "registers<=40") == "failed: 1 error; 1 kernel checked"


def test_values_left_out_of_the_text_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer(["inspect", NEIGHBOUR, "--fits", "20", "--no-predict"], capsys)
    count = len(value["kernels"][0]["fits"]["in_the_way"])
    assert count > 12
    assert run(["inspect", NEIGHBOUR, "--fits", "20", "--no-predict"]) == 0
    out = capsys.readouterr().out
    assert f"in the way: {count} values: R" in out
    assert f", … and {count - 12} more\n" in out


def test_diff_of_other_names_has_no_none(capsys: pytest.CaptureFixture[str]) -> None:
    """One kernel declares its block size, the other does not: residency is unknown there."""
    assert run(["diff", NEIGHBOUR, UNROLLED]) == 0
    out = capsys.readouterr().out
    assert "None" not in out
    assert "resident blocks unknown to " in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", UNROLLED],
        ["gate", UNROLLED, "registers<=64"],
        ["diff", ROLLED, UNROLLED],
        ["predict", UNROLLED],
        ["occupancy", UNROLLED],
        ["plan", UNROLLED],
    ],
)
def test_blocks_larger_than_declared_are_warned_of(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--threads", "512"]) == 0
    captured = capsys.readouterr()
    reason = "can't be launched with 512 threads per block: it declares at most 256"
    assert captured.err.count(reason) == (2 if arguments[0] == "diff" else 1)
    assert "do:   regdem" not in captured.out
    assert run([*arguments, "--threads", "256"]) == 0
    assert "can't be launched" not in capsys.readouterr().err


def test_gate_without_a_block_size_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gate", NEIGHBOUR, "occupancy_pct>=1"]) == 2
    assert "give --threads" in capsys.readouterr().err


def test_baseline(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    baseline = str(tmp_path / "base.json")
    assert run(["gate", ROLLED, "--baseline", baseline, "--update-baseline"]) == 0
    assert run(["gate", ROLLED, "--baseline", baseline]) == 0
    assert run(["gate", UNROLLED, "--baseline", baseline]) == 1
    assert "loop_spill_bytes worse, 0 to 148" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "no-such-file.cubin"],
        ["inspect", "EMPTY"],
        ["inspect", "TEXT"],
        ["inspect", "HALF"],
        ["inspect", NEIGHBOUR, "--kernel", "nothing"],
        ["inspect", NEIGHBOUR, "--threads", "4000"],
        ["inspect", NEIGHBOUR, "--arch", "sm_80"],
        ["inspect", NEIGHBOUR, "--fits", "1"],
        ["diff", NEIGHBOUR, "EMPTY"],
        ["gate", NEIGHBOUR],
        ["gate", NEIGHBOUR, ""],
        ["gate", NEIGHBOUR, " ", "--baseline", "no-such.json"],
        ["gate", NEIGHBOUR, "registers=<1"],
        ["gate", NEIGHBOUR, "--baseline", "no-such.json"],
        ["gate", NEIGHBOUR, "--baseline", "DEEP"],
        ["gate", NEIGHBOUR, "--baseline", "NAN"],
        ["gate", NEIGHBOUR, "--baseline", "WORD"],
        ["gate", NEIGHBOUR, "--baseline", "LIST"],
        ["gate", NEIGHBOUR, "registers<=64", "--dynamic-shared-bytes", "-4"],
        ["predict", NEIGHBOUR, "--profile", "DEEP"],
        ["predict", NEIGHBOUR, "--trip-count", "nan"],
        ["predict", NEIGHBOUR, "--trip-count", "inf"],
        ["predict", NEIGHBOUR, "--grid-blocks", "0"],
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = {
        "EMPTY": b"",
        "TEXT": b"hello, world\n" * 9,
        "DEEP": b"[" * 100_000,
        "NAN": b'{"kernels": {"pair_forces": {"registers": NaN}}}',
        "WORD": b'{"kernels": {"pair_forces": {"registers": "48"}}}',
        "LIST": b'{"kernels": {"pair_forces": []}}',
        "HALF": Path(NEIGHBOUR).read_bytes()[:9000],
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    words = [str(tmp_path / word) if word in files else word for word in arguments]
    output = tmp_path / "out.html"
    extra = ["-o", str(output)] if words[0] == "inspect" else []
    assert run([*words, *extra]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert not output.exists()
