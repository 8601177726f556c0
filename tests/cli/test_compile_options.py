"""`--compile-option`: the same wherever a source is compiled on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regdem.binary import Cubin
from regdem.cli.main import run

pytestmark = pytest.mark.tools

SOURCE = """
#include "scale.h"
extern "C" __global__ void k(float *x) {
    float sum = 0.0f;
    constexpr int copies = UNROLL;
#pragma unroll copies
    for (int i = 0; i < 64; i++) sum += x[i * 32] * SCALE + OFFSET;
    x[threadIdx.x] = sum;
}
"""
VERBS = {
    "inspect": "inspect FILE --threads 64 --no-predict",
    "occupancy": "occupancy FILE --threads 64",
    "plan": "plan FILE --threads 64",
    "predict": "predict FILE --threads 64",
    "gate": "gate FILE registers<=255 --threads 64",
    "diff": "diff FILE FILE --threads 64",
    "check": "check FILE",
    "unroll": "study unroll FILE --factors 1,2 --threads 64 --out OUT",
    "caps": "study caps FILE --caps 32 --define UNROLL=2 --no-pragma --threads 64 --out OUT",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source that compiles with an include folder and a macro only."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "scale.h").write_text("#define OFFSET 1.0f\n")
    path = tmp_path / "k.cu"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize("verb", VERBS)
def test_options_reach_the_compiler(
    verb: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"FILE": str(source), "OUT": str(tmp_path / "out")}
    words = [names.get(word, word) for word in VERBS[verb].split()]
    assert run([*words, "--compile-option=-DSCALE=2"]) == 2
    assert "scale.h" in capsys.readouterr().err
    flags = ["-DSCALE=2", f"-I{tmp_path / 'include'}"]
    flags += [] if verb in ("unroll", "caps") else ["-DUNROLL=2"]
    given = [f"--compile-option={flag}" for flag in flags]
    assert run([*words, *given, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_options_change_the_code(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [f"--compile-option=-I{source.parent / 'include'}", "--compile-option=-DSCALE=2"]
    counts: list[int] = []
    for factor in (1, 16):
        words = ["inspect", str(source), "--threads", "64", "--no-predict", "--format", "json"]
        assert run([*words, *given, f"--compile-option=-DUNROLL={factor}"]) == 0
        (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
        assert kernel["pressure"]["peak_source"], "source lines are kept"
        counts.append(kernel["mix"]["LDG"])
    assert counts[1] > counts[0]


def test_options_of_ptx_are_the_assemblers(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-Xptxas` in front of them or not, with every verb."""
    from regdem.integrations.compile import ptx_of

    flags = [f"-I{source.parent / 'include'}", "-DSCALE=2", "-DUNROLL=32"]
    path = tmp_path / "k.ptx"
    path.write_text(ptx_of(source, options=flags))
    peaks: set[int] = set()
    limit = "--maxrregcount=24"
    for words in ([limit], [f"-Xptxas={limit}"], ["-Xptxas", limit]):
        given = [f"--compile-option={word}" for word in words]
        assert run(["occupancy", str(path), "--threads", "64", *given, "--format", "json"]) == 0
        (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
        peaks.add(kernel["registers"])
        out = tmp_path / "out"
        caps = ["study", "caps", str(path), "--caps", "255", "--launch-bounds", "none"]
        assert run([*caps, "--threads", "64", "--out", str(out), *given]) == 0
        made = Cubin.parse((out / "default.cubin").read_bytes()).kernels[0]
        peaks.add(made.registers_per_thread)
        capsys.readouterr()
    assert len(peaks) == 1
    assert peaks.pop() <= 24


def test_nvcc_flag_is_the_same(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a study, both may be given."""
    out = tmp_path / "out"
    command = ["study", "unroll", str(source), "--factors", "1,2", "--threads", "64"]
    command += ["--out", str(out), "--format", "json", "--nvcc-flag", "-DSCALE=2"]
    assert run([*command, f"--compile-option=-I{source.parent / 'include'}"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["flags"] == [f"-I{source.parent / 'include'}", "-DSCALE=2"]


def test_options_that_choose_another_output_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "k.cu"
    source.write_text('extern "C" __global__ void k(float* o) { o[0] = 1.0f; }')
    assert run(["inspect", str(source), "--compile-option=-ptx"]) == 2
    printed = capsys.readouterr()
    assert "nvcc wrote something else than a cubin" in printed.err
    assert not printed.out
