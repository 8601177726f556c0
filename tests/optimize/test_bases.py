"""Base builds and what is made of them, with NVIDIA's compiler."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import regdem
from regdem.bases import (
    ALL_FRONTS,
    COMPARED_FRONTS,
    FRONTS,
    base_builds,
    compared_builds,
    source_of,
)
from regdem.binary import Cubin
from regdem.check import check_pair
from regdem.cli.main import run
from regdem.cli.schemas import schema
from regdem.combine import NotCombined, combine, same_code
from regdem.errors import InputError, RegdemError, UsageError
from regdem.inputs import open_inputs
from regdem.integrations.toolkit import find_tool
from regdem.machine import BlockShape, block_shape
from regdem.optimizer import Options, optimize_cubin
from regdem.rewrite import Request

pytestmark = pytest.mark.tools


def compile_with(source: Path, out: Path, *options: str) -> Path:
    nvcc = find_tool("nvcc")
    assert nvcc is not None
    subprocess.run([nvcc, "-arch=sm_90", *options, "-o", str(out), str(source)], check=True)
    return out


def test_bases_are_distinct_and_named(two: Path) -> None:
    bases = base_builds(two, "gather", threads=256, jobs=2)
    names = [base.name for base in bases]
    assert names[0] == "default"
    assert len({(b.code().code, b.code().registers_per_thread) for b in bases}) == len(bases)
    every = {*names, *(alias for base in bases for alias in base.aliases)}
    assert {"default", "cap_255", "block", "pragma", "cap_40", "pragma_40", "cap_32"} <= every
    by_name = {base.name: base.code() for base in bases}
    assert by_name["cap_32"].registers_per_thread <= 32
    assert all(base.source == "nvcc" for base in bases)
    assert all([k.name for k in base.cubin().kernels] == ["gather"] for base in bases)


def test_other_fronts_give_other_code_and_can_be_built_whole(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FRONTS, "unfused", ("-fmad=false",))
    monkeypatch.setitem(ALL_FRONTS, "unfused", ("-fmad=false",))
    bases = base_builds(two, "gather", threads=256, jobs=2)
    fronts = {base.front for base in bases if base.is_built}
    assert "unfused" in fronts
    of_default = [base for base in bases if not base.front]
    assert not {b.code().code for b in of_default} & {b.code().code for b in bases if b.front}
    source = source_of(two)
    for base in bases:
        front = source.front(base.front)
        assert front is not None
        assert base.directives is not None
        whole = Cubin.parse(front.build({"gather": base.directives}))
        assert same_code(whole.kernel("gather"), base.code())


def test_ptx_and_refused_options_have_no_other_front(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptx = compile_with(two, tmp_path / "two.ptx", "-ptx")
    assert source_of(ptx).front("noremat") is None
    monkeypatch.setitem(FRONTS, "unknown", ("-Xcicc", "--no-such-option"))
    monkeypatch.setitem(ALL_FRONTS, "unknown", ("-Xcicc", "--no-such-option"))
    assert source_of(two).front("unknown") is None
    bases = base_builds(two, "gather", threads=256)
    assert not [base for base in bases if base.front == "unknown"]


def test_fronts_that_need_a_comparison_are_accepted_and_not_built_unasked(tmp_path: Path) -> None:
    source = tmp_path / "loop.cu"
    source.write_text(
        'extern "C" __global__ void sums(const float *x, float *y, int n) {'
        " float s = 0.f; for (int i = 0; i < n; i++) s += x[i * 64 + threadIdx.x];"
        " y[threadIdx.x] = s;}"
    )
    plain = source_of(source)
    made = {name: plain.front(name) for name in COMPARED_FRONTS}
    assert all(made.values())
    rolled, unrolled = made["unroll1"], made["unroll4"]
    assert rolled is not None
    assert unrolled is not None
    assert rolled.ptx.count("ld.global") < unrolled.ptx.count("ld.global")
    known = base_builds(plain, threads=64, effort="quick")
    assert not {base.front for base in known} & set(COMPARED_FRONTS)
    others = compared_builds(plain, known, threads=BlockShape(64), effort="quick", jobs=2)
    assert {"unroll1"} <= {base.front for base in others} <= set(COMPARED_FRONTS)
    codes = [base.code().code for base in [*known, *others] if base.is_built]
    assert len(codes) == len(set(codes))


def test_what_the_compiler_refuses_is_a_base_with_its_word(tmp_path: Path) -> None:
    source = tmp_path / "dynamic.cu"
    source.write_text(
        "extern __shared__ float s[];\n"
        'extern "C" __global__ void k(float *x) {'
        " s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[255 - threadIdx.x];}"
    )
    bases = base_builds(source, threads=256, effort="quick")
    refused = {base.name: base.problem for base in bases if not base.is_built}
    assert "pragma" in refused
    assert refused["pragma"]


@pytest.fixture(scope="module")
def answer(two: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Path]:
    """`regdem optimize two.cu` with everything written: the JSON, the output, the variants."""
    folder = tmp_path_factory.mktemp("answer")
    out, report = folder / "out.cubin", folder / "all"
    arguments = ["optimize", str(two), "-o", str(out), "--threads", "256", "--effort", "quick"]
    arguments += ["--jobs", "2", "--format", "json", "--all-variants", str(report)]
    text = _stdout(arguments)
    return json.loads(text), out, report


def _stdout(arguments: list[str]) -> str:
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(arguments) == 0
    return out.getvalue()


def test_every_variant_says_where_it_comes_from(answer: tuple[Any, Path, Path]) -> None:
    value, _, _ = answer
    jsonschema.validate(value, schema("optimize"))
    kernels = {each["name"]: each for each in value["kernels"]}
    assert set(kernels) == {"gather", "small"}
    for kernel in kernels.values():
        assert kernel["reference"] == "default"
        bases = {v["name"] for v in kernel["variants"] if v["source"] == "nvcc"} | {"default"}
        for variant in kernel["variants"]:
            assert variant["base"] in bases
            if variant["status"] == "built":
                assert variant["source"] == "nvcc"
                assert "checks" not in variant
            if variant["status"] == "proved":
                assert variant["source"] == "regdem"
                assert variant["checks"]["dataflow"] == "proved"
    assert any(v["status"] == "proved" for v in kernels["gather"]["variants"])


def test_written_variants_are_equal_to_their_base(answer: tuple[Any, Path, Path]) -> None:
    value, _, folder = answer
    kernel = next(each for each in value["kernels"] if each["name"] == "gather")
    proved = [v for v in kernel["variants"] if v["status"] == "proved" and v["base"] != "default"]
    assert proved
    for variant in proved[:3]:
        base = Cubin.parse((folder / f"gather.{variant['base']}.cubin").read_bytes())
        new = Cubin.parse((folder / f"gather.{variant['name']}.cubin").read_bytes())
        verdict = check_pair(base.kernel("gather"), new.kernel("gather"), threads=256)
        assert not verdict.findings
        assert variant["registers_per_thread"] == new.kernel("gather").registers_per_thread


def test_the_output_holds_every_kernel(answer: tuple[Any, Path, Path]) -> None:
    value, out, folder = answer
    written = Cubin.parse(out.read_bytes())
    assert {kernel.name for kernel in written.kernels} == {"gather", "small"}
    for kernel in value["kernels"]:
        if kernel["chosen"] != "default":
            chosen = folder / f"{kernel['name']}.{kernel['chosen']}.cubin"
            expected = Cubin.parse(chosen.read_bytes()).kernel(kernel["name"])
            assert same_code(written.kernel(kernel["name"]), expected)


def test_kernels_of_different_bases_stand_in_one_file(two: Path) -> None:
    source = source_of(two)
    cubin = Cubin.parse(source.build({}))
    request = Request(threads=block_shape(256))
    requests = {"gather": request, "small": request}
    kernel = cubin.kernel("gather")
    _, (choice,) = optimize_cubin(
        cubin, [kernel], [request], Options(effort="quick"), source=source, is_compiled=True
    )
    foreign = [o for o in choice.outcomes if o.is_usable and o.spec.base != "default"]
    for kind in ("build", "demote"):
        outcome = next(o for o in foreign if o.spec.kind == kind)
        new = combine(cubin, {"gather": outcome}, requests, source)
        assert same_code(new.kernel("small"), cubin.kernel("small"))
        assert same_code(new.kernel("gather"), outcome.cubin().kernel("gather"))
        with pytest.raises(NotCombined):
            combine(cubin, {"gather": outcome}, requests, None)


def test_ptx_beside_a_cubin_is_taken_only_if_it_is_that_code(two: Path, tmp_path: Path) -> None:
    cubin = compile_with(two, tmp_path / "two.cubin", "-cubin")
    ptx = compile_with(two, tmp_path / "two.ptx", "-ptx")
    (found,) = open_inputs(cubin)
    assert found.source is not None
    assert not found.is_compiled
    ptx.write_text(ptx.read_text().replace("mul.f32", "add.f32"))
    (found,) = open_inputs(cubin)
    assert found.source is None
    assert "--ptx" in found.notes[0]
    (found,) = open_inputs(cubin, ptx=ptx)
    assert found.source is not None


def test_ptx_that_is_named_must_be_usable(
    two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cubin = compile_with(two, tmp_path / "two.cubin", "-cubin")
    ptx = compile_with(two, tmp_path / "two.ptx", "-ptx")
    text = ptx.read_text()
    bad = tmp_path / "bad.ptx"
    out = tmp_path / "out.cubin"
    cases = {
        text.replace("mul.f32", "mul.f33"): ("f33", "does_not_compile"),
        "": ("defines none", "bad_usage"),
        text.replace("gather", "other").replace("small", "more"): ("defines none", "bad_usage"),
        text.replace(".version", ".vershun"): ("does not compile", "does_not_compile"),
    }
    for broken, (words, code) in cases.items():
        bad.write_text(broken)
        call = ["optimize", str(cubin), "-o", str(out), "--threads", "256", "--ptx", str(bad)]
        assert run(call) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        assert words in line
        assert str(bad) in line
        with pytest.raises(RegdemError) as caught:
            open_inputs(cubin, ptx=bad)
        assert caught.value.code == code
        assert not out.exists()
    with pytest.raises(UsageError, match="goes with a cubin"):
        open_inputs(two, ptx=ptx)
    with pytest.raises(InputError):
        open_inputs(cubin, ptx=tmp_path / "none.ptx")
    (found,) = open_inputs(cubin, ptx=ptx)
    assert found.source is not None


def test_a_program_is_optimised_in_place(two: Path, tmp_path: Path) -> None:
    program = two.with_name("main.cu")
    program.write_text(two.read_text() + "int main() { return 0; }\n")
    compile_with(program, tmp_path / "main")
    (found,) = [each for each in open_inputs(tmp_path / "main") if each.cubin.kernels]
    assert found.source is not None
    out = tmp_path / "new"
    arguments = ["demote", str(tmp_path / "main"), "-o", str(out), "--threads", "256"]
    value = json.loads(_stdout([*arguments, "--registers", "32", "--format", "json"]))
    jsonschema.validate(value, schema("demote"))
    status = {each["name"]: each["status"] for each in value["kernels"]}
    assert status == {"gather": "rewritten", "small": "nothing_to_do"}
    assert out.stat().st_size == (tmp_path / "main").stat().st_size
    assert out.stat().st_mode & 0o100
    (after,) = [each for each in open_inputs(out) if each.cubin.kernels]
    verdict = check_pair(found.cubin.kernel("gather"), after.cubin.kernel("gather"), threads=256)
    assert not verdict.findings
    assert after.cubin.kernel("gather").registers_per_thread <= 32
    if shutil.which("true"):
        assert subprocess.run([str(out)], check=False).returncode == 0


def test_python_takes_sources(two: Path) -> None:
    done = regdem.optimize(two, threads=256, effort="quick", kernels=["small"])
    (choice,) = done.kernels
    assert choice.reference == "default"
    assert done.to_bytes()[:4] == b"\x7fELF"


def test_include_folders_are_seen_from_where_the_caller_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "factor.h").write_text("#define FACTOR 3\n")
    (tmp_path / "k.cu").write_text(
        '#include "factor.h"\nextern "C" __global__ void k(int *x) { x[threadIdx.x] *= FACTOR; }\n'
    )
    monkeypatch.chdir(tmp_path)
    source = source_of("k.cu", options=("-Iinclude",))
    assert source.kernels == ["k"]
    front = source.front("noremat")
    assert front is not None
    assert front.kernels == ["k"]
