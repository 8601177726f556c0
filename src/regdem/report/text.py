"""The report of one kernel as plain text, a screen or two."""

from __future__ import annotations

from regdem.machine.staircase import summary as occupancy_summary
from regdem.report.model import CodeAnalysis, KernelReport

CURVE_COLUMNS = 64
_BARS = " ▁▂▃▄▅▆▇█"


def text_report(report: KernelReport) -> str:
    """The whole report; ends in a newline."""
    lines = [report.demangled_name]
    if report.demangled_name != report.name:
        lines.append(f"  symbol       {report.name}")
    if report.origin:
        lines.append(f"  from         {report.origin}")
    lines.append(
        f"  allocated    {report.registers_per_thread} registers per thread, "
        f"{report.static_shared_bytes} bytes static shared, {report.local_bytes} bytes local, "
        f"{report.barriers} barriers ({report.arch})"
    )
    if report.occupancy is not None:
        lines.append(f"  occupancy    {occupancy_summary(report.occupancy)}")
        lines += _boundaries(report)
    else:
        lines.append("  occupancy    block size unknown: give --threads")
    if report.analysis is None:
        lines.append(f"  not analysed: {report.refusal}")
        return "\n".join(lines) + "\n"
    lines += _code(report, report.analysis)
    lines += _advice(report)
    return "\n".join(lines) + "\n"


def _boundaries(report: KernelReport) -> list[str]:
    above, spare = report.boundaries
    parts: list[str] = []
    if above is not None:
        step = report.registers_per_thread - above
        parts.append(f"{above} registers above the next step with more warps ({step})")
    if spare is not None:
        parts.append(f"{spare} to spare before there are fewer")
    return [f"  boundaries   {'; '.join(parts)}"] if parts else []


def _code(report: KernelReport, analysis: CodeAnalysis) -> list[str]:
    live, pressure, graph = analysis.max_live, analysis.pressure, analysis.interference
    place = f", {pressure.peak_source}" if pressure.peak_source else ""
    inside = (
        f"in a loop of depth {pressure.peak_loop_depth}"
        if pressure.peak_loop_depth
        else ("outside loops")
    )
    lines = [
        f"  code         {analysis.instructions} instructions, {analysis.blocks} blocks, "
        f"{len(analysis.loops)} loops, {analysis.calls} calls",
        f"  max live     {live['gpr']} GPR, {live['ugpr']} UGPR, {live['pred']} predicates, "
        f"{live['upred']} uniform predicates",
        f"  peak         {pressure.peak} at 0x{pressure.peak_offset:04x}, {inside}{place}; "
        f"{pressure.far_below_pct:.0f} % of the code runs 8 or more below it",
        f"  curve        |{sparkline(pressure.curve)}|",
        f"  colouring    {graph.nodes} live ranges, {graph.edges} edges, {graph.colours} colours: "
        f"{graph.registers_needed} registers suffice, renumbering alone saves "
        f"{graph.renumbering_saves}",
        f"  at the peak  {_kinds(analysis)}",
    ]
    lines += _spills(analysis)
    warps = report.occupancy.active_warps if report.occupancy else None
    for loop in analysis.parallelism:
        lines.append(
            f"  loop         0x{loop.start_offset:04x}-0x{loop.end_offset:04x} depth "
            f"{loop.depth}: {loop.instructions} instructions, {loop.loads} loads, "
            f"{loop.loads_in_flight} in flight at the first wait, "
            f"{loop.independent_chains} independent chains, about {loop.warp_cycles} cycles "
            f"a turn; {loop.warps_needed} warps cover it: limited by {loop.limited_by(warps)}"
        )
    return lines


def _kinds(analysis: CodeAnalysis) -> str:
    counts: dict[str, int] = {}
    for value in analysis.pressure.values:
        counts[value.kind] = counts.get(value.kind, 0) + 1
    words = {
        "working": "in use",
        "held": "held for later",
        "constant": "constants",
        "recomputable": "recomputable",
        "warp_uniform": "warp-uniform",
        "stack_pointer": "stack pointer",
    }
    return ", ".join(f"{counts[kind]} {word}" for kind, word in words.items() if kind in counts)


def _spills(analysis: CodeAnalysis) -> list[str]:
    report = analysis.spills
    found = report.spills
    lines: list[str] = []
    for space in ("local", "shared"):
        loads, stores = found.count(space, store=False), found.count(space, store=True)
        if loads or stores:
            hot = sum(1 for site in report.hot if site.space == space)
            demoted = space == "shared" and not report.has_scratch
            lines.append(
                f"  {'slots' if demoted else 'spills':<12} {space}: {loads} loads "
                f"({found.total_bytes(space, store=False)} bytes), {stores} stores "
                f"({found.total_bytes(space, store=True)} bytes), {hot} of them in loops"
                + (f" ({found.loop_bytes(space)} bytes a turn)" if hot else "")
            )
    if found.uncounted_bytes:
        lines.append(
            f"  spills       {found.uncounted_bytes} bytes more in ptxas's own division and root "
            "routines, which ptxas -v leaves out"
        )
    arrays = [site for site in found.sites if site.kind == "array"]
    if arrays:
        lines.append(f"  arrays       {len(arrays)} accesses to run-time indexed local arrays")
    return lines or ["  spills       none"]


def _advice(report: KernelReport) -> list[str]:
    lines: list[str] = []
    for number, advice in enumerate(report.advice, 1):
        lines += [
            f"  {'advice' if number == 1 else '':<12} {number}. [{advice.rule}] {advice.message}",
            f"  {'':<15} gain: {advice.gain}",
            f"  {'':<15} do:   {advice.action}",
        ]
    return lines


def sparkline(values: tuple[int, ...], columns: int = CURVE_COLUMNS) -> str:
    """The curve in one line; each column shows the highest value of its stretch."""
    if not values:
        return ""
    top = max(max(values), 1)
    width = min(columns, len(values))
    cells: list[str] = []
    for column in range(width):
        first = column * len(values) // width
        last = max(first + 1, (column + 1) * len(values) // width)
        level = max(values[first:last])
        cells.append(_BARS[0 if level == 0 else 1 + (level * (len(_BARS) - 2)) // top])
    return "".join(cells)
