"""A study as plain text: the table of builds, the verdict on each, and what to take."""

from __future__ import annotations

from collections.abc import Sequence

from regdem.study.model import Build, Study


def text_study(study: Study) -> str:
    """The whole study; ends in a newline."""
    lines = [
        f"study {study.kind} of {study.kernel} in {study.source}: {study.arch}, "
        f"{study.threads} threads, {study.compiler}"
        + (f", {' '.join(study.flags)}" if study.flags else "")
    ]
    lines += ["", *_table(study), ""]
    for build in study.builds:
        lines += _build_lines(build)
    for refused in study.refused:
        lines.append(f"{refused.spec.name}: {refused.verdict.statement}")
    lines.append("")
    take = study.recommendation
    lines += [f"recommendation: {take.message}", f"  {take.reason}"]
    lines += [f"note: {note}" for note in remarks(study)]
    if study.outputs_differ:
        lines.append(f"OUTPUTS DIFFER: {', '.join(study.outputs_differ)}")
    return "\n".join(lines) + "\n"


def remarks(study: Study) -> list[str]:
    """What a reader should know besides: assumptions, the noise of times, and what is missing."""
    found = list(study.notes)
    if study.noise is not None:
        found.append(f"noise: the first build's times differ from its own by {study.noise:.2%}")
    if study.no_times is not None:
        found.append(f"no times: {study.no_times}")
    if study.no_counters is not None and study.no_counters != study.no_times:
        found.append(f"no counters: {study.no_counters}")
    return found


def columns(study: Study) -> tuple[list[str], list[list[str]]]:
    """The table's head and rows, as text and HTML show them."""
    timed = study.no_times is None
    head = [
        "build", "registers", "live", "blocks", "warps", "spill B", "in loops", "instructions",
        "executed", "predicted",
    ]  # fmt: skip
    shared = any(build.analysed.shared_spill_bytes for build in study.builds)
    if shared:
        head.insert(7, "shared spill B")
    if timed:
        head += ["median ms", "p10", "p90", "speed"]
    rows: list[list[str]] = []
    for build in study.builds:
        one = build.analysed
        row = [
            build.name,
            str(one.kernel.registers_per_thread),
            str(one.code.pressure.peak),
            str(one.active_blocks),
            str(one.active_warps),
            str(one.spill_bytes),
            str(one.loop_spill_bytes),
            str(one.code.instructions),
            f"{build.executed.instructions:,.0f}",
            _relative(build.prediction.predicted_cycles, study.base.prediction.predicted_cycles),
        ]
        if shared:
            row.insert(7, str(one.shared_spill_bytes))
        if timed:
            row += _times(build, study.base)
        rows.append(row)
    return head, rows


def _times(build: Build, base: Build) -> list[str]:
    if build.measured is None or build.measured.times is None:
        return ["-"] * 4
    times = build.measured.times
    first = base.measured.times if base.measured else None
    return [
        f"{times.median_ms:.4f}",
        f"{times.p10_ms:.4f}",
        f"{times.p90_ms:.4f}",
        f"{first.median_ms / times.median_ms:.3f}" if first else "-",
    ]


def _relative(cycles: float, base: float) -> str:
    if cycles == float("inf") or base == float("inf") or not base:
        return "-"
    return f"{cycles / base:.2f}"


def _table(study: Study) -> list[str]:
    head, rows = columns(study)
    widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join([first, *rest]).rstrip()

    return [line(head), *(line(row) for row in rows)]


def _build_lines(build: Build) -> list[str]:
    lines = [f"{build.name}: {build.verdict.statement}"]
    for effect, word in (("improved", "improved"), ("hurt", "hurt"), ("neutral", "also")):
        for number, mechanism in enumerate(build.verdict.of(effect)):
            lines.append(f"  {word if number == 0 else '':<9} {mechanism.message}")
    if build.measured is not None:
        lines.append(f"  {'outputs':<9} {build.measured.outputs}")
    return lines
