"""The answer for people: a table of text, and one self-contained HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from regdem.tune.results import Comparison, sets_of_inputs

if TYPE_CHECKING:
    from regdem.tune.outcome import Row, TuneResult

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root{color-scheme:light dark}
body{margin:2em auto;max-width:72em;padding:0 1em;font-family:system-ui,sans-serif;line-height:1.45}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}
.scroll{overflow-x:auto}table{border-collapse:collapse}
th,td{padding:.25em .7em;text-align:right;border-bottom:1px solid #8886;white-space:nowrap}
th.left,td.left{text-align:left}td.why{white-space:normal;text-align:left;min-width:12em}
tr.best td{font-weight:600}tr.rejected td{color:#c22;font-weight:600}
.alert{border:2px solid #c22;padding:.5em 1em}
svg text{font:12px system-ui,sans-serif;fill:currentColor}
"""
SHOWN = 15
"""Variants that the text shows: of those measured (or ready to be), and of those not made."""
_HEADER = ("variant", "regs", "warps", "shared B", "predicted", "measured", "outputs")


def _range(middle: float, low: float, high: float, digits: int) -> str:
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _predicted(row: Row) -> str:
    if row.made.predicted is None:
        return "-"
    typical, least, most = row.made.predicted
    return _range(typical, least, most, 2)


def _measured(comparison: Comparison | None) -> str:
    if comparison is None:
        return "-"
    return _range(comparison.speedup, comparison.low, comparison.high, 3)


def _outputs(row: Row) -> str:
    if row.measurement is None:
        return "-"
    if row.status == "measured":
        return "identical"
    return {"rejected": "DIFFERENT", "unlike": "unlike"}.get(row.status, "failed")


def _cells(row: Row) -> tuple[str, ...]:
    details = row.made.details
    return (
        row.made.name,
        str(details.get("registers_per_thread", "-")),
        str(details.get("active_warps", "-")),
        str(details.get("static_shared_bytes", "-")),
        _predicted(row),
        _measured(row.comparison),
        _outputs(row),
    )


def headline(result: TuneResult) -> str:
    """What was tuned, on what."""
    tuning, problem = result.tuning, result.tuning.problem
    block = "x".join(str(size) for size in problem.block if size > 1) or "1"
    where = result.gpu["name"] if result.gpu else "no GPU"
    return (
        f"{tuning.kernel}: blocks of {block}, {problem.blocks} blocks, "
        f"{sets_of_inputs(tuning.seeds)}, on {where}"
    )


def conclusion(result: TuneResult) -> str:
    """The choice, in a sentence."""
    if result.gpu is None:
        usable = sum(row.made.is_usable for row in result.rows)
        return f"{usable} variants are ready to be measured"
    name = result.best or f"the {result.tuning.original.name}, unchanged"
    return f"best: {name}: {result.reason}"


def alerts(result: TuneResult) -> list[str]:
    """What must not be overlooked."""
    rejected = [
        f"REJECTED {row.made.name}: its outputs differ from the unmodified kernel's: {row.reason}"
        for row in result.rejected
    ]
    return rejected + [f"FAILED {row.made.name}: {row.reason}" for row in result.failed]


def text_report(result: TuneResult) -> str:
    """The fastest, and all that must not be overlooked; what was not measured is listed below, with
    the reason, and the rest is counted: the JSON and the page have every row.
    """
    kernel = result.tuning.original.code()
    lines = [headline(result)]
    if result.opened is not None:
        lines.append(
            f"original: {kernel.registers_per_thread} registers, {kernel.static_shared_bytes} B "
            f"shared, {kernel.local_bytes} B local, {result.opened.launch_ms:.4g} ms"
        )
    usable = [row for row in result.rows if row.made.is_usable]
    shown = _shown(result, usable)
    if shown:
        lines += _table(_HEADER, [_cells(row) for row in shown])
    names = {row.made.name for row in shown}
    lines += _counted([row for row in usable if row.made.name not in names])
    told = [row for row in result.rows if row.made.name in names or not row.made.is_usable]
    lines += _left_out(told)
    if result.finals:
        lines.append("timed once more, in the same rounds:")
        lines += [f"  {final.name}: {_measured(final.comparison)}" for final in result.finals]
    lines += alerts(result)
    lines.append(conclusion(result))
    return "\n".join(lines) + "\n"


def _shown(result: TuneResult, usable: Sequence[Row]) -> list[Row]:
    """The first rows, the best and the finalists, and all that were rejected or failed."""
    always = {result.best, *(final.name for final in result.finals)}
    return [
        row
        for place, row in enumerate(usable)
        if place < SHOWN or row.status in ("rejected", "failed") or row.made.name in always
    ]


def _counted(rows: Sequence[Row]) -> list[str]:
    """A line for rows that are left to the JSON; none where there are none."""
    if not rows:
        return []
    counts = Counter(row.status for row in rows)
    parts = ", ".join(f"{count} {status}" for status, count in counts.items())
    return [f"  ... {len(rows)} more, in results.json: {parts}"]


def _left_out(rows: Iterable[Row]) -> list[str]:
    """What was not measured, with the reason; what is the same as another, or was never to be made,
    or is one of many, as a number."""
    listed: list[str] = []
    counts: Counter[str] = Counter()
    for row in rows:
        if row.status in ("same", "skipped"):
            counts[row.status] += 1
        elif row.status not in ("measured", "prepared", "rejected", "unlike", "failed"):
            if len(listed) < SHOWN:
                listed.append(f"  {row.made.name}: {row.status}: {row.reason}")
            else:
                counts[row.status] += 1
    words = {"same": "the same code as another", "skipped": "not made, beyond what is tried"}
    return listed + [
        f"  {count} more: {words.get(status, status)}" for status, count in sorted(counts.items())
    ]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[k]) for row in (header, *rows)) for k in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]


def html_report(result: TuneResult) -> str:
    """One page that loads nothing."""
    title = f"regdem tune: {result.tuning.kernel}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head>\n<body><main><h1>{escape(title)}</h1>\n"
        f"{html_body(result)}</main></body></html>\n"
    )


def html_body(result: TuneResult) -> str:
    """The page's content, for notebooks too."""
    parts = [f"<p>{escape(headline(result))}</p>"]
    parts += [f'<p class="alert" role="alert">{escape(each)}</p>' for each in alerts(result)]
    parts.append(f"<p><strong>{escape(conclusion(result))}</strong></p>")
    timed = [row for row in result.rows if row.comparison is not None]
    if timed:
        parts.append("<h2>Measured speed-up</h2>" + _chart(result, timed))
    parts.append("<h2>Variants</h2>" + _html_table(result))
    rest = [row for row in result.rows if not row.made.is_usable]
    if rest:
        items = "".join(
            f"<li><code>{escape(row.made.name)}</code>: {escape(_remark(row))}</li>" for row in rest
        )
        parts.append(f"<h2>Not made</h2><ul>{items}</ul>")
    parts.append("<h2>How it was measured</h2>" + _circumstances(result))
    return "\n".join(parts)


def _html_table(result: TuneResult) -> str:
    head = "".join(
        f'<th scope="col"{" class=left" if name in ("variant", "remark") else ""}>{name}</th>'
        for name in (*_HEADER, "remark")
    )
    rows: list[str] = []
    for row in result.rows:
        if not row.made.is_usable:
            continue
        kind = "best" if row.made.name == result.best else row.status
        cells = _cells(row)
        rows.append(
            f'<tr class="{escape(kind)}"><td class="left"><code>{escape(cells[0])}</code></td>'
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells[1:])
            + f'<td class="why">{escape(_remark(row))}</td></tr>'
        )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Variants"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _remark(row: Row) -> str:
    if row.status == "measured":
        return row.made.bound_by and f"predicted bound by {row.made.bound_by}"
    return f"{row.status}: {row.reason}" if row.reason else row.status


def _chart(result: TuneResult, rows: Sequence[Row]) -> str:
    """Intervals of the measured speed-up, with the original's own noise as a band."""
    comparisons = [(row.made.name, c) for row in rows if (c := row.comparison) is not None]
    noise = max(c.noise for _, c in comparisons)
    low = min(1 - noise, *(c.low for _, c in comparisons))
    high = max(1 + noise, *(c.high for _, c in comparisons))
    margin = 0.05 * (high - low) or 0.05
    low, high = low - margin, high + margin
    left, width, line = 220, 460, 22
    height = line * len(comparisons) + 30

    def x(value: float) -> float:
        return round(left + width * (value - low) / (high - low), 1)

    marks = [
        f'<rect x="{x(1 - noise)}" y="0" width="{round(x(1 + noise) - x(1 - noise), 1)}" '
        f'height="{height - 24}" fill="#8883"/>',
        f'<line x1="{x(1)}" x2="{x(1)}" y1="0" y2="{height - 24}" stroke="currentColor"/>',
        f'<text x="{x(1)}" y="{height - 6}" text-anchor="middle">1 (original)</text>',
    ]
    for k, (name, c) in enumerate(comparisons):
        y = line * k + 14
        colour = "#2a7" if name == result.best else "#47c"
        marks.append(
            f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
            f'<line x1="{x(c.low)}" x2="{x(c.high)}" y1="{y}" y2="{y}" stroke="{colour}" '
            f'stroke-width="3"/><circle cx="{x(c.speedup)}" cy="{y}" r="4" fill="{colour}"/>'
            f'<text x="{left + width + 8}" y="{y + 4}">{c.speedup:.3f}</text>'
        )
    label = "Measured speed-up of each variant with its interval; the numbers are in the table."
    return (
        f'<div class="scroll"><svg role="img" aria-label="{label}" width="{left + width + 70}" '
        f'height="{height}">{"".join(marks)}</svg></div>'
    )


def _circumstances(result: TuneResult) -> str:
    tuning = result.tuning
    facts: list[tuple[str, Any]] = [
        ("input", f"{tuning.path}, SHA-256 {tuning.input_sha256}"),
        ("launch", f"SHA-256 {tuning.launch_sha256}"),
        ("rounds", tuning.choices.rounds),
    ]
    facts += [(key, value) for key, value in (result.gpu or {}).items() if value is not None]
    readings = [row.measurement.clocks for row in result.rows if row.measurement]
    for key in ("sm_mhz", "memory_mhz", "temperature_c", "power_w"):
        pairs = [reading[key] for reading in readings if key in reading]
        if pairs:
            lowest, highest = min(p[0] for p in pairs), max(p[1] for p in pairs)
            facts.append((f"{key} while timing", f"{lowest} to {highest}"))
    items = "".join(
        f'<tr><th class="left" scope="row">{escape(str(key))}</th><td class="left">'
        f"{escape(str(value))}</td></tr>"
        for key, value in facts
    )
    return f"<table><tbody>{items}</tbody></table>"
