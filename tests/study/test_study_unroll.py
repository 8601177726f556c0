"""What a factor did to the loops, told from the machine code, and what it gained and cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from studies import DATA, exact, options

from regdem.errors import InputError, UsageError
from regdem.study.model import Build, Study
from regdem.study.run import study_unroll
from regdem.study.unroll import parse_factors

pytestmark = pytest.mark.tools


def statuses(study: Study) -> list[str]:
    return [build.verdict.status for build in study.builds]


def effects(build: Build, effect: str) -> set[str]:
    return {mechanism.name for mechanism in build.verdict.of(effect)}


@exact
def test_partial_and_full_unroll_of_the_tutorial(window: Study) -> None:
    assert statuses(window) == ["baseline", "unrolled", "full_unroll", "full_unroll"]
    assert [build.analysed.kernel.registers_per_thread for build in window.builds] == [
        48,
        60,
        92,
        92,
    ]
    assert [target.turns for target in window.loops] == [40, 40]
    assert all(target.turns_known for target in window.loops)
    _, four, full, more = window.builds
    assert [effect.factor for effect in four.comparison.effects if effect.changed] == [4, 4]
    assert all(full.comparison.effect(target.index).gone for target in window.loops)
    assert more.same_as == "unroll-40"
    assert "same code as unroll 40" in more.verdict.statement


@exact
def test_the_tutorial_says_what_each_factor_pays(window: Study) -> None:
    _, four, full, _ = window.builds
    assert {"loop_overhead", "loads_in_flight", "dependence_stalls"} <= effects(four, "improved")
    assert effects(four, "hurt") == set()
    assert effects(full, "hurt") >= {"residency", "local_spills", "instruction_cache"}
    residency = next(m for m in full.verdict.mechanisms if m.name == "residency")
    assert residency.evidence == {
        "registers_before": 48,
        "registers_after": 92,
        "cliffs": [64],
        "active_blocks_before": 2,
        "active_blocks_after": 1,
    }
    assert "1 resident block lost (2 to 1; 32 to 16 warps)" in residency.message
    assert full.analysed.loop_spill_bytes > 400
    resources = full.analysed.resources
    assert resources is not None
    spills = full.analysed.code.spills
    assert resources.spill_store_bytes == spills.store_bytes
    assert resources.spill_load_bytes == spills.load_bytes


@exact
def test_the_tutorial_recommends_a_partial_unroll(window: Study) -> None:
    assert window.recommendation.build == "unroll-4"
    assert "partial unroll" in window.recommendation.message
    assert "1 resident block lost, spills inside loops" in window.recommendation.reason


@exact
def test_diff_of_the_same_builds_agrees(window: Study, tmp_path: Path) -> None:
    """`regdem diff` of the first and the full unroll says the same of them."""
    for build in (window.builds[0], window.builds[2]):
        assert build.analysed.compiled.cubin is not None
        (tmp_path / f"{build.name}.cubin").write_bytes(build.analysed.compiled.cubin)
    command = [sys.executable, "-m", "regdem.cli.main", "diff", "unroll-1.cubin"]
    command += ["unroll-40.cubin", "--threads", "512", "--fail-on", "worse"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "full unroll" in done.stdout
    assert "48 to 92 registers" in done.stdout
    assert "costs 1 resident block (2 to 1)" in done.stdout
    assert "spills per turn inside a loop" in done.stdout
    assert "unroll partially" in done.stdout


def test_unknown_length_leaves_a_remainder(series: Study) -> None:
    assert statuses(series) == ["baseline", "unrolled", "unrolled"]
    (target,) = series.loops
    assert not target.turns_known
    for build, factor in zip(series.builds[1:], (4, 6), strict=True):
        effect = build.comparison.effect(target.index)
        assert effect.step_ratio == factor, "the counter's step is the factor"
        assert effect.copies == factor, "and so are the copies of loads and arithmetic"
        assert build.comparison.count(target.index, "remainder") == 1
    assert any("turns are not known" in note for note in series.notes)


def test_same_work_is_counted_in_every_build(series: Study, window: Study) -> None:
    """By weights, the arithmetic executed is the same whatever the factor."""
    for study in (series, window):
        base = study.base.executed.by_class["arithmetic"]
        for build in study.builds:
            assert build.executed.by_class["arithmetic"] == pytest.approx(base, rel=0.1)


def test_a_factor_without_effect_is_called_out() -> None:
    study = study_unroll(options(DATA / "unaware.cu", 256), (1, 4, 8), "UNROLL")
    assert statuses(study) == ["baseline", "no_effect", "no_effect"]
    assert all("no effect: same code as unroll 1" in b.verdict.statement for b in study.builds[1:])
    assert "no factor changed any loop" in study.notes[0]
    assert study.recommendation.build == "unroll-1"
    assert study.recommendation.reason == "every build is the same code"


def test_a_clamped_factor_is_not_taken_for_the_one_asked() -> None:
    """The source halves the factor: eight asked, four made."""
    study = study_unroll(options(DATA / "halved.cu", 256), (2, 16), "UNROLL")
    (_, build) = study.builds
    assert build.verdict.status == "other_factor"
    assert build.verdict.statement.startswith("not 8 copies, as asked: ")
    assert "holds 4 copies" in build.verdict.statement


def test_integers_and_templates() -> None:
    """No floating point, and the define in code as a template argument, not in a pragma."""
    study = study_unroll(options(DATA / "words.cu", 256), (1, 4), "UNROLL")
    assert statuses(study) == ["baseline", "unrolled"]
    (target,) = study.loops
    assert study.builds[1].comparison.effect(target.index).factor == 4


def test_inner_loops_of_an_unrolled_outer_loop_are_clones() -> None:
    study = study_unroll(options(DATA / "outer.cu", 256), (1, 4, 16), "UNROLL")
    assert statuses(study) == ["baseline", "unrolled", "full_unroll"]
    inner = next(loop.index for loop in study.base.analysed.anatomy.loops if loop.depth == 2)
    full = study.builds[2].comparison
    assert not full.effect(inner).gone
    assert full.count(inner, "clone") == 15
    assert all(target.turns == 16 for target in study.loops)


@pytest.mark.parametrize("text", ["", "a", "1", "0,2", "1,,2", "1,100000", "4,4"])
def test_bad_factors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_factors(text)


def test_factors_are_sorted_once() -> None:
    assert parse_factors("8,1,4,4") == (1, 4, 8)


def test_a_source_that_does_not_compile() -> None:
    with pytest.raises(InputError, match=r'identifier "undeclared_t" is undefined'):
        study_unroll(options(DATA / "broken.cu", 256), (1, 3), "UNROLL")


def test_a_source_without_the_define() -> None:
    with pytest.raises(InputError, match="FACTOR is not used"):
        study_unroll(options(DATA / "series.cu", 256), (1, 2), "FACTOR")


def test_a_study_is_of_one_kernel() -> None:
    with pytest.raises(UsageError, match="2 kernels match") as caught:
        study_unroll(options(DATA / "two.cu", 256), (1, 2), "UNROLL")
    assert "first" in (caught.value.hint or "")
