"""Loads by source line, and where their copies grew between two builds."""

from __future__ import annotations

from regdem.report.copies import growth, most_repeated
from regdem.report.model import KernelReport, LineLoads, SourceLine


def line(
    number: int, copies: int, loop: tuple[int, ...] | None = (0,), file: str = "/a/k.cu"
) -> LineLoads:
    return LineLoads(SourceLine(file, number), copies, copies, len(loop or ()), loop)


def test_lines_of_a_kernel(rolled: KernelReport, unrolled: KernelReport) -> None:
    assert rolled.analysis is not None
    assert unrolled.analysis is not None
    found = {each.source.line: each for each in rolled.analysis.line_loads}
    start, mean, again, weight = (found[number] for number in (21, 25, 29, 30))
    assert [each.copies for each in (start, mean, again, weight)] == [1, 1, 1, 1]
    assert [each.depth for each in (start, mean, again, weight)] == [1, 2, 2, 2]
    assert start.loop is not None
    assert again.loop is not None
    assert again.loop == weight.loop
    assert again.loop[:-1] == start.loop
    most = most_repeated(unrolled.analysis.line_loads)
    assert most is not None
    assert (most.copies, most.depth) == (24, 1)


def test_a_line_that_moved_has_not_grown() -> None:
    """What was line 5 is line 6: no load more than before."""
    assert growth((line(5, 24), line(6, 1)), (line(6, 24), line(7, 1))) is None
    assert growth((line(5, 24),), (line(6, 24), line(5, 1), line(9, 8))) is None


def test_a_line_that_is_new_is_compared_with_the_most_repeated() -> None:
    assert growth((line(5, 8),), (line(5, 8), line(6, 12))) is None
    found = growth((line(5, 8),), (line(5, 8), line(6, 16)))
    assert found is not None
    assert (found.before, found.after.source.line, found.is_one_loop) == (None, 6, False)


def test_without_lines_before_nothing_is_known() -> None:
    assert growth((), (line(5, 24),)) is None
    assert growth((line(5, 24),), ()) is None


def test_the_line_that_has_grown_is_not_the_most_repeated() -> None:
    found = growth((line(3, 24), line(5, 1)), (line(3, 24), line(5, 12)))
    assert found is not None
    assert found.before is not None
    assert (found.after.source.line, found.before.copies, found.is_one_loop) == (5, 1, True)


def test_files_of_other_names_are_told_apart_by_what_the_other_build_knows() -> None:
    before = (line(5, 12), line(6, 1, file="/a/tools.h"))
    for place in ("/b/k.cu", "/b/k2.cu"):
        after = (line(5, 24, file=place), line(6, 1, file="/b/tools.h"))
        found = growth(before, after)
        assert found is not None
        assert found.before is not None
        assert found.before.copies == 12
    main = (line(5, 24, file="/b/k2.cu"), line(5, 12))
    found = growth((line(5, 12), line(7, 12)), main)
    assert found is not None
    assert found.before is None, "the first build's file is there too, so k2.cu is another"


def test_copies_of_one_loop_need_a_witness_around_it() -> None:
    """A line of the outer loop that has no more copies: the outer loop was not unrolled."""
    inner = line(5, 1, (0, 1))
    for outer, now, one in (
        (line(4, 1), line(4, 1), True),
        (line(4, 1), line(4, 4), False),
        (line(4, 1, (2,)), line(4, 1, (2,)), False),
        (line(4, 1, None), line(4, 1, None), False),
    ):
        found = growth((outer, inner), (now, line(5, 16, (0,))))
        assert found is not None
        assert found.is_one_loop is one
        assert found.is_full
    for repeated in (line(5, 2), line(5, 1, None), line(5, 1, ())):
        found = growth((repeated,), (line(5, 16),))
        assert found is not None
        assert not found.is_one_loop
