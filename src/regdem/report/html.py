"""The HTML report: one self-contained page, no network, for one kernel or hundreds.

What a reader needs first (advice, figures, curve, staircase, tables) is plain HTML and needs no
script; the listing is drawn by the page's script from compact columns, only the visible rows at a
time, so that 20,000 instructions scroll freely. The page carries a policy that forbids it to load
anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from regdem.binary.kernel import Kernel
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.machine.staircase import svg_staircase
from regdem.report.curve import svg_curve
from regdem.report.listing import listing_data
from regdem.report.model import CodeAnalysis, KernelReport, PeakValue, SpillReport

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_KINDS = {
    "working": "in use",
    "held": "held for later",
    "constant": "constant",
    "recomputable": "recomputable",
    "warp_uniform": "warp-uniform",
    "stack_pointer": "stack pointer",
}


def html_report(
    path: str,
    kernels: Sequence[Kernel],
    reports: Sequence[KernelReport],
    sass: Sequence[Mapping[int, str]],
) -> str:
    """The page. `kernels`, `reports` and `sass` (text by offset, may be empty) go in step."""
    data: list[dict[str, Any]] = []
    sections: list[str] = []
    for number, (kernel, report, text) in enumerate(zip(kernels, reports, sass, strict=True)):
        columns = None
        if report.analysis is not None:
            columns = listing_data(kernel, report.analysis, text)
        data.append(columns or {"name": report.name})
        sections.append(_section(number, report, columns))
    title = reports[0].demangled_name if len(reports) == 1 else f"{len(reports)} kernels"
    packed = json.dumps({"kernels": data}, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>regdem: {escape(title)}</title>"
        '<link rel="icon" href="data:,">'
        f"<style>{_asset('page.css')}</style></head>\n<body>"
        '<a class="skip" href="#main">Skip to the report</a>'
        f"<header><h1>Register report</h1><p><code>{escape(path)}</code></p>"
        '<button id="theme" type="button">Light or dark</button></header>'
        f'<main id="main">{_overview(reports)}{"".join(sections)}</main>'
        "<footer>Made by regdem. Live counts are those of <code>nvdisasm -lrm</code>. "
        "Keys: <kbd>/</kbd> search, arrows, <kbd>n</kbd> and <kbd>N</kbd> in the listing, "
        "<kbd>Enter</kbd> marks the source line.</footer>"
        f'<script type="application/json" id="data">{packed}</script>'
        f"<script>{_asset('page.js')}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("regdem.report").joinpath("assets", name).read_text("utf-8")


def _heading(cells: Sequence[str], *, left: int = 1) -> str:
    return "".join(
        f'<th scope="col"{" class=left" if k < left else ""}><button type="button">{cell}'
        "</button></th>"
        for k, cell in enumerate(cells)
    )


def _number(value: float | int | None) -> str:
    return (
        '<td data-value="-1">-</td>' if value is None else f'<td data-value="{value}">{value}</td>'
    )


def _slots(spills: SpillReport) -> str:
    stored, loaded = (spills.spills.total_bytes("shared", store=store) for store in (True, False))
    if not stored and not loaded:
        return ""
    whose = "by ptxas" if spills.has_scratch else "demoted"
    return f"; {stored} and {loaded} in shared memory ({whose})"


def _overview(reports: Sequence[KernelReport]) -> str:
    if len(reports) < 2:
        return ""
    rows: list[str] = []
    for number, report in enumerate(reports):
        analysis = report.analysis
        rows.append(
            f'<tr data-kernel="{number}"><td><a href="#kernel-{number}"><code>'
            f"{escape(report.demangled_name)}</code></a></td>"
            + _number(report.registers_per_thread)
            + _number(analysis.pressure.peak if analysis else None)
            + _number(analysis.interference.registers_needed if analysis else None)
            + _number(report.occupancy.active_warps if report.occupancy else None)
            + _number(len(analysis.spills.spills.spill_sites) if analysis else None)
            + _number(analysis.instructions if analysis else None)
            + "</tr>"
        )
    head = _heading(
        ("kernel", "registers", "max live", "needed", "warps", "spill sites", "instructions")
    )
    return (
        '<h2>Kernels</h2><div class="scroll" tabindex="0" role="region" aria-label="Kernels">'
        f'<table class="sortable" id="kernels"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _section(number: int, report: KernelReport, columns: dict[str, Any] | None) -> str:
    head = (
        f'<section class="kernel" id="kernel-{number}" aria-labelledby="name-{number}">'
        f'<h2 id="name-{number}"><code>{escape(report.demangled_name)}</code></h2>'
    )
    analysis = report.analysis
    if analysis is None or columns is None:
        why = escape(str(report.refusal))
        return f"{head}{_facts(report)}<p>Not analysed: {why}</p></section>"
    return (
        head
        + _facts(report)
        + _advice(report)
        + "<h3>Live general registers</h3>"
        + svg_curve(analysis, report.registers_per_thread, columns["leaders"])
        + '<div class="split"><div>'
        + _values(analysis)
        + "</div><div>"
        + _staircase(report)
        + "</div></div>"
        + '<div class="split"><div>'
        + _loops(report, analysis)
        + "</div><div>"
        + _lines(analysis, columns)
        + "</div></div>"
        + _listing(number, report, analysis)
        + "</section>"
    )


def _facts(report: KernelReport) -> str:
    analysis, present = report.analysis, report.occupancy
    facts: list[tuple[str, str, str]] = [
        ("Registers per thread", str(report.registers_per_thread), f"allocated, {report.arch}")
    ]
    if present is not None:
        facts.append(
            (
                "Occupancy",
                f"{present.occupancy_pct:.0f} %",
                f"{present.active_blocks} blocks, {present.active_warps} of {present.max_warps} "
                f"warps at {present.threads} threads; limited by {', '.join(present.limiters)}",
            )
        )
    if analysis is not None:
        graph, pressure = analysis.interference, analysis.pressure
        facts += [
            (
                "Live at the peak",
                str(pressure.peak),
                f"{pressure.far_below_pct:.0f} % of the code runs 8 or more below it",
            ),
            (
                "Needed",
                str(graph.registers_needed),
                f"registers by colouring {graph.nodes} live ranges, {graph.edges} edges",
            ),
            (
                "Spills",
                str(len(analysis.spills.spills.spill_sites)),
                f"accesses, {len(analysis.spills.hot)} in loops; {analysis.spills.store_bytes} "
                f"bytes stored, {analysis.spills.load_bytes} loaded (local)"
                + _slots(analysis.spills),
            ),
        ]
    facts.append(
        (
            "Shared memory",
            f"{report.static_shared_bytes} B",
            f"static per block; {report.local_bytes} B local per thread",
        )
    )
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in facts
    )
    return f'<dl class="facts">{items}</dl>'


def _advice(report: KernelReport) -> str:
    if not report.advice:
        return "<h3>Advice</h3><p>Nothing in the binary asks for a change.</p>"
    items = "".join(
        f'<li><span class="rule">{escape(item.message)}</span><dl><dt>gain</dt>'
        f"<dd>{escape(item.gain)}</dd><dt>do</dt><dd><code>{escape(item.action)}</code></dd>"
        f"<dt>evidence</dt><dd><code>{escape(json.dumps(item.evidence))}</code></dd></dl></li>"
        for item in report.advice
    )
    return f'<h3>Advice</h3><ol class="advice">{items}</ol>'


def _link(offset: int) -> str:
    return f'<a href="#" data-goto="{offset // INSTRUCTION_BYTES}">0x{offset:04x}</a>'


def _values(analysis: CodeAnalysis) -> str:
    def row(value: PeakValue) -> str:
        first = _link(min(value.definitions)) if value.definitions else "-"
        source = escape(str(value.source)) if value.source else "-"
        return (
            f'<tr><td data-value="{value.register}"><code>R{value.register}</code></td>'
            f'<td class="left">{_KINDS[value.kind]}</td><td class="left">{first}</td>'
            f'<td class="left">{source}</td>'
            + _number(len(value.uses))
            + _number(value.length)
            + _number(value.loop_depth)
            + _number(value.width)
            + "</tr>"
        )

    head = _heading(
        ("value", "what it is", "defined at", "source", "uses", "lives for", "loop", "width"),
        left=4,
    )
    rows = "".join(row(value) for value in analysis.pressure.values)
    return (
        f"<h3>Values at the peak ({_link(analysis.pressure.peak_offset)})</h3>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Values at the peak">'
        f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _staircase(report: KernelReport) -> str:
    present = report.occupancy
    if present is None:
        return "<h3>Occupancy</h3><p>The block size is not known: give <code>--threads</code>.</p>"
    rows = "".join(
        f"<tr{' aria-current=true' if cliff.active_warps == present.active_warps else ''}>"
        f"<td>{cliff.registers_max}</td><td>{cliff.active_blocks}</td><td>{cliff.active_warps}</td>"
        f"<td>{cliff.slots_per_thread}</td><td>{cliff.static_slots_per_thread}</td></tr>"
        for cliff in present.cliffs
    )
    return (
        f"<h3>Occupancy staircase</h3>{svg_staircase(present)}"
        '<div class="scroll" tabindex="0" role="region" aria-label="Cliffs" '
        'style="max-height:180px"><table><thead><tr><th scope="col">registers up to</th>'
        '<th scope="col">blocks</th><th scope="col">warps</th><th scope="col">idle slots per '
        'thread</th><th scope="col">within 48 KiB</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _loops(report: KernelReport, analysis: CodeAnalysis) -> str:
    if not analysis.parallelism:
        return "<h3>Loops</h3><p>None.</p>"
    warps = report.occupancy.active_warps if report.occupancy else None
    rows = "".join(
        f'<tr><td data-value="{loop.start_offset}">{_link(loop.start_offset)}</td>'
        + _number(loop.depth)
        + _number(loop.instructions)
        + _number(loop.loads)
        + _number(loop.loads_in_flight)
        + _number(loop.independent_chains)
        + _number(loop.warp_cycles)
        + _number(loop.warps_needed)
        + f'<td class="left">{loop.limited_by(warps)}</td></tr>'
        for loop in analysis.parallelism
    )
    head = _heading(
        (
            "loop",
            "depth",
            "instructions",
            "loads",
            "in flight",
            "chains",
            "cycles",
            "warps to cover",
            "limited by",
        )
    )
    return (
        "<h3>Loops</h3><p>Cycles are of one warp and one turn, with assumed latencies.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Loops">'
        f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _lines(analysis: CodeAnalysis, columns: dict[str, Any]) -> str:
    places: list[dict[str, Any]] = columns["lines"]
    if not places:
        return "<h3>Source lines</h3><p>None in the file: compile with <code>-lineinfo</code>.</p>"
    counts, peaks = [0] * len(places), [0] * len(places)
    line_of: list[int] = columns["line"]
    for line, live in zip(line_of, analysis.pressure.curve, strict=True):
        if line >= 0:
            counts[line] += 1
            peaks[line] = max(peaks[line], live)
    rows = "".join(
        f'<tr data-line-row="{k}"><td data-value="{k}"><a href="#" data-source="{k}">'
        f'<code>{escape(place["short"])}</code></a></td><td class="left"><code>'
        f"{escape(place['text'])}</code></td>{_number(counts[k])}{_number(peaks[k])}</tr>"
        for k, place in enumerate(places)
    )
    head = _heading(("line", "source", "instructions", "most live"), left=2)
    return (
        '<h3>Source lines</h3><div class="scroll" tabindex="0" role="region" '
        f'aria-label="Source lines"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _listing(number: int, report: KernelReport, analysis: CodeAnalysis) -> str:
    return (
        "<h3>Listing</h3>"
        '<div class="tools"><label class="visually-hidden" for="search-'
        f'{number}">Search</label><input type="search" id="search-{number}" '
        'placeholder="Search text, offset, source line ( / )">'
        '<select class="filter" aria-label="Show only"><option value="">all instructions</option>'
        '<option value="marked">spills, slots and arrays</option>'
        '<option value="slot">slots in shared memory</option>'
        '<option value="peak">at the peak</option>'
        '<option value="wait">waits</option></select>'
        '<button type="button" class="previous">Previous</button>'
        '<button type="button" class="next">Next</button><output></output></div>'
        '<div class="listing" tabindex="0" role="table" '
        f'aria-rowcount="{analysis.instructions + 1}" '
        f'aria-label="Instructions of {escape(report.demangled_name)}">'
        '<div class="head" role="row" aria-rowindex="1">'
        + "".join(
            f'<span role="columnheader">{name}</span>'
            for name in ("offset", "live", "instruction", "control", "source", "loop")
        )
        + '</div><div class="space" role="rowgroup"></div></div>'
    )
