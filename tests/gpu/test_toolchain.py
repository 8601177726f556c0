"""What is compiled and how: PTX surgery, ptxas reports, cliffs, the ten kernels' properties."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from bench.suite import tools
from bench.suite.cliffs import next_cliffs, resident_blocks
from bench.suite.kernels import ALL, select
from bench.suite.prepare import build, prepare
from bench.suite.spec import Array
from bench.suite.ten import TEN
from bench.suite.toolchain import Outcome, call, find, inject, parse_resources
from bench.suite.variants import (
    Build,
    Facts,
    front_of,
    rewrites_of,
    suite_variants,
    ten_variants,
)
from bench.throttle import edits_of

from regdem.binary import Cubin

PTX = """.version 9.0
.visible .entry other(
)
{
}
.visible .entry k(
	.param .u64 k_param_0,
	.param .align 16 .b8 k_param_1[16]
)
.maxntid 1024
{
	ret;
}
"""


def test_the_pragma_goes_into_the_right_entry() -> None:
    text = inject(PTX, "k", (32, 4, 2), 40)
    assert ".maxntid 1024" not in text
    tail = text[text.index("entry k(") :]
    assert '.maxntid 32, 4, 2 .maxnreg 40\n{\n.pragma "enable_smem_spilling";' in tail
    assert ".pragma" not in text[: text.index("entry k(")]
    assert text.count("k_param_1[16]") == 1
    with pytest.raises(ValueError, match="no entry"):
        inject(PTX, "missing", (1, 1, 1), None)


def test_the_compilers_report_is_read() -> None:
    report = """ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 3564 bytes smem
ptxas info    : Function properties for f
    0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads"""
    found = parse_resources(report, "k")
    assert found is not None
    assert (found.registers, found.static_shared_bytes) == (40, 3564)
    assert (found.spill_store_bytes, found.spill_load_bytes) == (16, 12)
    assert parse_resources("nothing", "k") is None


def test_cliffs_follow_the_partitioned_formula() -> None:
    assert resident_blocks(256, 33, 0) == 6  # 48 warps, not the textbook's 51
    assert next_cliffs(256, 48, 0, 3) == [40, 32]
    assert next_cliffs(192, 56, 0, 1) == [40]  # 48 gives 40 warps: still 6 blocks
    assert next_cliffs(256, 32, 0, 3) == []


def test_variant_names_are_unique() -> None:
    facts = Facts([64, 56, 48], [96, 80], spills=True)
    for variants in (ten_variants(facts), suite_variants(facts)):
        names = [variant.name for variant in variants]
        assert len(set(names)) == len(names)
        assert names[0] == "default"
    build = Build(96, pragma=True, front="noremat_ilp")
    names = [variant.name for variant in rewrites_of(build, facts)]
    assert len(set(names)) == len(names)
    assert all(name.startswith("noremat_ilp_pragma_96+") for name in names)
    assert {front_of(name) for name in names} == {"noremat_ilp"}
    assert front_of("noremat_cap_96+promote") == "noremat"
    assert front_of("pragma_96+promote") == front_of("default") == ""


def test_inputs_are_a_function_of_the_seed() -> None:
    assert len({spec.name for spec in ALL}) == len(ALL)
    for spec in ALL:
        first, again, other = spec.make(1, True), spec.make(1, True), spec.make(2, True)
        assert first.outputs
        different = 0
        for a, b, c in zip(first.arguments, again.arguments, other.arguments, strict=True):
            if isinstance(a, Array) and a.data is not None:
                assert isinstance(b, Array)
                assert isinstance(c, Array)
                assert b.data is not None
                assert c.data is not None
                assert np.array_equal(a.data, b.data, equal_nan=a.data.dtype.kind == "f")
                different += not np.array_equal(a.data, c.data)
        assert different > 0, spec.name


def test_sanitizer_verdicts() -> None:
    end = '{"event": "end", "launched": ["a"]}\n'
    clean = Outcome((), 0, end, "========= ERROR SUMMARY: 0 errors\n", 1.0)
    assert tools.sanitizer_verdict(clean)[0] == "clean"
    text = "========= Invalid __shared__ write\n========= ERROR SUMMARY: 3 errors\n"
    assert tools.sanitizer_verdict(Outcome((), 99, text, "", 1.0))[0] == "errors"
    assert tools.sanitizer_verdict(Outcome((), 127, "", "not found", 1.0))[0] == "not run"
    assert tools.sanitizer_verdict(Outcome((), 0, "", "", 1.0))[0] == "not run"


def test_profiles_are_matched_by_order() -> None:
    text = (
        '==PROF== noise\n"ID","Kernel Name","smsp__inst_executed.sum","x"\n"","","inst",""\n'
        '"0","k","100","1"\n"1","k","120","1"\n'
    )
    found = tools.parse_profile(text, "k", ["default", "demote_40"])
    assert found["demote_40"] == [("smsp__inst_executed.sum", "inst", "120")]
    assert tools.parse_profile(text, "k", ["default"]) == {}


def _need_nvcc() -> None:
    if not call([find("nvcc"), "--version"], 20).ok:
        pytest.skip("no nvcc found (PATH, CUDA_HOME, /usr/local/cuda)")


def test_fewer_warps_and_nops_leave_the_code_as_it_is() -> None:
    path = Path(__file__).parents[2] / "examples" / "neighbour" / "neighbour.cubin"
    cubin = Cubin.parse(path.read_bytes())
    kernel = cubin.kernels[0]
    edits = edits_of(kernel, 256, kernel.static_shared_bytes)
    for name, edit in edits.items():
        new = Cubin.parse(cubin.with_kernel(kernel.name, edit).to_bytes()).kernel(kernel.name)
        assert new.code.endswith(kernel.code), name
        if name.startswith("throttle_"):
            assert new.code == kernel.code
            assert name == f"throttle_{new.registers_per_thread}"
    assert resident_blocks(256, kernel.registers_per_thread, 0) == 5
    assert [name for name in edits if name.startswith("throttle_")][:2] == [
        "throttle_64", "throttle_80"
    ]  # fmt: skip


@pytest.mark.tools
def test_rewrites_of_the_fastest_builds_are_added_to_what_is_there(tmp_path: Path) -> None:
    _need_nvcc()
    specs = select("suite", "^burgers_stencil$")

    def say(_text: str) -> None:
        pass

    prepare(specs, tmp_path, jobs=2, say=say, variants="^(default|renumber)$")
    fastest = {"burgers_stencil": ["ilp", "cap_64", "default"]}
    wanted = "^(ilp|ilp.schedule|renumber|schedule)$"
    added = prepare(specs, tmp_path, jobs=2, say=say, variants=wanted, fastest=fastest)
    names = [variant["name"] for variant in added["kernels"][0]["variants"]]
    assert names[0] == "default"
    assert set(names) == {"default", "renumber", "schedule", "ilp", "ilp+schedule"}
    again = prepare(specs, tmp_path, jobs=2, say=say, variants=wanted, fastest=fastest)
    assert sorted(v["name"] for v in again["kernels"][0]["variants"]) == sorted(names)


@pytest.mark.tools
def test_a_kernel_is_prepared_with_its_refusals(tmp_path: Path) -> None:
    _need_nvcc()
    spec = next(spec for spec in TEN if spec.name == "dynamic_window")
    manifest = prepare([spec], tmp_path, jobs=1, say=lambda _text: None)
    variants = {variant["name"]: variant for variant in manifest["kernels"][0]["variants"]}
    assert variants["default"]["registers"] > 40
    assert variants["cap_40"]["registers"] <= 40
    assert variants["pragma_40"]["status"] == "refused"
    assert "dynamic" in variants["pragma_40"]["reason"]
    assert not re.search(r"/(home|tmp|usr|work|opt)/", str(manifest["kernels"]))


@pytest.mark.tools
def test_the_call_kernel_has_a_stack(tmp_path: Path) -> None:
    _need_nvcc()
    spec = next(spec for spec in TEN if spec.name == "recursive_call")
    built = build(spec, Build(), tmp_path)
    assert built.resources is not None
    assert built.resources.stack_bytes > 0
