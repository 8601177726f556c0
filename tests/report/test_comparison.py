"""diff and gate: the tutorial's unroll, conditions, baselines, annotations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regdem.analysis.spills import Spills, SpillSite
from regdem.errors import InputError, UsageError
from regdem.report import gate
from regdem.report.annotations import github, sarif
from regdem.report.comparison import compare, text_diff
from regdem.report.gate import (
    baseline_of,
    check_baseline,
    check_conditions,
    parse_conditions,
    vanished,
)
from regdem.report.model import CodeAnalysis, KernelReport, SpillReport


def test_full_unroll_is_told(rolled: KernelReport, unrolled: KernelReport) -> None:
    """40 to 64 registers, two resident blocks lost, spills inside the loop: unroll partially."""
    diff = compare(rolled, unrolled)
    assert diff.verdict == "worse"
    worse = {change.metric for change in diff.changes if change.verdict == "worse"}
    assert {"active_blocks", "spill_bytes", "loop_spill_bytes"} <= worse
    (cause,) = diff.causes
    assert cause.cause == "full_unroll"
    assert "40 to 64 registers" in cause.message
    assert "148 bytes of spills per turn inside a loop" in cause.message
    assert "costs 2 resident blocks (6 to 4)" in cause.message
    assert "unroll partially: #pragma unroll 6" in cause.action
    assert diff.spills_by_depth == (("local", 0, 0, 76), ("local", 1, 0, 148))
    text = text_diff(diff)
    assert text.startswith("variance: worse")
    assert cause.message in text


def test_less_unrolling_is_no_deeper_unroll(
    ring_full: KernelReport, ring_part: KernelReport
) -> None:
    """Fewer copies in the loop, those of the loop before it as they were, fewer values live."""
    for after in (ring_part, _renamed(ring_part, "other.cu")):
        causes = compare(ring_full, after).causes
        assert [cause.cause for cause in causes] == ["dynamic_array"]


def test_where_an_array_may_come_back_no_factor_is_given(
    ring_full: KernelReport, ring_part: KernelReport
) -> None:
    (cause,) = compare(ring_part, ring_full).causes
    assert cause.cause == "full_unroll"
    assert "around ring.cu:23 (24 copies instead of 6) takes" in cause.message
    assert "from 56 to 62 values live at the peak, with 88 bytes of spills" in cause.message
    assert "registers" not in cause.message, "64, as before"
    assert cause.action == (
        "regdem promote FILE -o OUT --kernel ring --threads 256, or unroll less where that indexes "
        "no array at run time, as before"
    )


def test_copies_of_nested_loops_give_no_factor(
    taps_rolled: KernelReport, taps_unrolled: KernelReport
) -> None:
    """The outer loop of 12 unrolled turns got 8 and a remainder: 108 is no factor of either."""
    for after in (taps_unrolled, _renamed(taps_unrolled, "other.cu")):
        (cause,) = compare(taps_rolled, after).causes
        assert cause.cause == "unroll"
        assert "(108 copies instead of 12) takes the kernel from 40 to 52" in cause.message
        assert cause.evidence["copies_before"] == 12
        assert "#pragma" not in cause.action
        assert cause.action.startswith("unroll less, nearer to the first build's factor")
    assert compare(taps_unrolled, taps_rolled).causes == ()


def test_nothing_that_got_worse_has_no_cause(rolled: KernelReport, unrolled: KernelReport) -> None:
    """As many registers, live values and spills: more copies alone are no cause of anything."""
    code = unrolled.analysis
    assert code is not None
    same = replace(unrolled, analysis=replace(code, line_loads=_code(rolled).line_loads))
    assert compare(same, unrolled).causes == ()
    fewer = replace(same, registers_per_thread=63)
    (cause,) = compare(fewer, unrolled).causes
    assert "takes the kernel from 63 to 64 registers (62 to 62 live at the peak)." in cause.message
    cooler = replace(same, analysis=replace(_code(same), spills=_code(rolled).spills))
    (cause,) = compare(cooler, unrolled).causes
    assert "leaves 148 bytes of spills per turn inside a loop instead of 0." in cause.message


def _code(report: KernelReport) -> CodeAnalysis:
    assert report.analysis is not None
    return report.analysis


def _renamed(report: KernelReport, file: str) -> KernelReport:
    lines = tuple(
        replace(line, source=replace(line.source, file=file)) for line in _code(report).line_loads
    )
    return replace(report, analysis=replace(_code(report), line_loads=lines))


def test_without_a_block_size_the_count_decides(
    rolled: KernelReport, unrolled: KernelReport
) -> None:
    before = replace(rolled, occupancy=None, threads=None)
    after = replace(before, registers_per_thread=48)
    diff = compare(before, after)
    assert not diff.residency_known
    assert diff.verdict == "worse"
    assert "residency unknown: give --threads" in diff.summary
    assert compare(after, before).verdict == "better"
    assert compare(rolled, replace(rolled, registers_per_thread=48)).verdict == "same"
    assert compare(rolled, unrolled).residency_known


def _with_spills(report: KernelReport, space: str, depth: int) -> KernelReport:
    assert report.analysis is not None
    sites = tuple(
        SpillSite(i, "STS" if space == "shared" else "STL", space, "spill", True, 4, 0, depth)
        for i in range(10)
    )
    spills = SpillReport(Spills(sites, True))
    return replace(report, analysis=replace(report.analysis, spills=spills))


def test_shared_and_local_spills_are_told_apart(rolled: KernelReport) -> None:
    """The same rule for both; a promotion is better, new slots in a loop are worse."""
    local, shared = (_with_spills(rolled, space, 1) for space in ("local", "shared"))
    promoted = compare(local, shared)
    assert promoted.verdict == "better"
    assert promoted.spills_by_depth == (("local", 1, 40, 0), ("shared", 1, 0, 40))
    verdicts = {change.metric: change.verdict for change in promoted.changes}
    assert verdicts["loop_spill_bytes"] == "better"
    assert verdicts["loop_shared_spill_bytes"] == "changed"
    assert compare(_with_spills(rolled, "shared", 0), shared).verdict == "worse"


def test_the_way_back_is_better(rolled: KernelReport, unrolled: KernelReport) -> None:
    diff = compare(unrolled, rolled)
    assert diff.verdict == "better"
    assert diff.causes == ()


def test_same_kernel_does_not_differ(neighbour: KernelReport) -> None:
    diff = compare(neighbour, neighbour)
    assert diff.verdict == "same"
    assert diff.changes == ()
    assert "nothing that is measured changed" in text_diff(diff)


def test_a_cap_that_spills_is_told(neighbour: KernelReport, shared_spills: KernelReport) -> None:
    """The same source at 48 registers, and at 32 with spills in shared memory."""
    diff = compare(neighbour, shared_spills)
    assert diff.verdict == "worse", "more warps, but spills inside the loop"
    (cause,) = diff.causes
    assert cause.cause == "register_cap"
    assert cause.action == "demote the uncapped build to this count", "no local spills to promote"


def test_the_command_for_a_cap_has_its_launch(rolled: KernelReport, unrolled: KernelReport) -> None:
    code, more = unrolled.analysis, rolled.analysis
    assert code is not None
    assert more is not None
    before = replace(rolled, registers_per_thread=128)
    after = replace(unrolled, analysis=replace(code, line_loads=(), loops=more.loops))
    (cause,) = compare(before, after).causes
    assert cause.action.startswith(
        "regdem promote FILE -o OUT --kernel variance --threads 256, or demote"
    )
    refused = replace(after, unlaunchable="can't be launched with 512 threads per block")
    (cause,) = compare(before, refused).causes
    assert cause.action == "demote the uncapped build to this count"


@pytest.mark.parametrize(
    ("expression", "broken"),
    [
        ("registers<=48", []),
        ("registers < 48", ["registers"]),
        ("spill_bytes==0, occupancy_pct>=50", []),
        (
            "registers_per_thread<=40,spill_bytes==0,occupancy_pct>=70",
            ["registers", "occupancy_pct"],
        ),
        ("max_live_gpr != 1", []),
    ],
)
def test_conditions(neighbour: KernelReport, expression: str, broken: list[str]) -> None:
    findings = check_conditions([neighbour], parse_conditions(expression))
    assert [finding.metric for finding in findings] == broken


@pytest.mark.parametrize(
    "text", ["", "registers", "registers=<4", "registers<=x", "speed>=1", "a,,"]
)
def test_bad_conditions_are_named(text: str) -> None:
    with pytest.raises(UsageError):
        parse_conditions(text)


def test_baseline_is_a_ratchet(rolled: KernelReport, unrolled: KernelReport) -> None:
    base = baseline_of([rolled])
    assert check_baseline([rolled], base) == []
    worse = check_baseline([unrolled], base)
    assert {finding.rule for finding in worse} == {"worse"}
    assert {finding.level for finding in worse} == {"error"}
    better = check_baseline([rolled], baseline_of([unrolled]))
    assert {(finding.rule, finding.level) for finding in better} == {("better", "note")}
    strict = check_baseline([rolled], baseline_of([unrolled]), strict=True)
    assert {finding.level for finding in strict} == {"error"}


def test_new_kernels_are_noted(rolled: KernelReport, neighbour: KernelReport) -> None:
    (finding,) = check_baseline([neighbour], baseline_of([rolled]))
    assert (finding.rule, finding.level) == ("new", "note")
    with pytest.raises(InputError):
        check_baseline([neighbour], {"kernels": 3})


def test_vanished_kernels_are_named(rolled: KernelReport, neighbour: KernelReport) -> None:
    base = baseline_of([rolled, neighbour])
    assert vanished([rolled, neighbour], base) == []
    (finding,) = vanished([rolled], base)
    assert (finding.rule, finding.level, finding.kernel) == ("gone", "note", neighbour.name)
    assert "no longer in the file" in finding.message
    assert vanished([rolled], base, strict=True)[0].level == "error"
    assert vanished([rolled], base, lambda name, _: name == rolled.name) == []


def test_annotations(unrolled: KernelReport) -> None:
    findings = check_conditions([unrolled], parse_conditions("spill_bytes==0"))
    (run,) = sarif("build/a.cubin", findings)["runs"]
    (result,) = run["results"]
    assert result["level"] == "error"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("variance.cu")
    assert place["region"]["startLine"] > 0
    line = github("build/a.cubin", findings)
    assert line.startswith("::error file=")
    assert line.count("\n") == 1
    assert "spill_bytes is 224" in line


def test_moved_spills_are_no_loss_for_a_baseline() -> None:
    """A promotion turns local spill bytes into shared ones: `gate --baseline` lets it pass."""
    old = {"kernels": {"k": {"spill_bytes": 100, "shared_spill_bytes": 0}}}
    moved = {"spill_bytes": 0.0, "shared_spill_bytes": 120.0}
    added = {"spill_bytes": 100.0, "shared_spill_bytes": 120.0}
    assert gate.has_moved("shared_spill_bytes", old["kernels"]["k"], moved)
    assert not gate.has_moved("shared_spill_bytes", old["kernels"]["k"], added)
    assert not gate.has_moved("registers", old["kernels"]["k"], moved)
