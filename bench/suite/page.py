"""The docs page of one run, in Markdown: figures, one line a kernel, counters, every variant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.suite.store import Store
from bench.suite.tables import (
    GROUPS,
    STEADY,
    best_of,
    by_kernel,
    limits_of,
    number,
    rows_of,
    summary,
)

Record = dict[str, Any]

_COUNTERS = (
    ("issue %", ("smsp__issue_active.avg.pct_of_peak_sustained_active",)),
    ("L1 %", ("l1tex__throughput.avg.pct_of_peak_sustained_active",)),
    ("L2 %", ("lts__throughput.avg.pct_of_peak_sustained_elapsed",)),
    ("DRAM %", ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",)),
    ("warps %", ("sm__warps_active.avg.pct_of_peak_sustained_active",)),
    ("instructions", ("smsp__inst_executed.sum",)),
    ("local", ("smsp__sass_inst_executed_op_local.sum",)),
    ("shared", ("smsp__sass_inst_executed_op_shared.sum",)),
)
_STALL = "smsp__average_warps_issue_stalled_"
_NOT_STALLS = ("selected", "not_selected")


def clip(text: str | None, width: int) -> str:
    """One line for a table cell."""
    text = " ".join((text or "").replace("|", "/").split())
    return text if len(text) <= width else text[: width - 1] + "…"


def markdown(store: Store, run: int, title: str, pictures: Path | None = None) -> str:
    """The page. `pictures`: path and first part of the plots' names; None: no plots."""
    rows = rows_of(store, run)
    lines = [f"# {title}", "", *_conditions(store, run), "", *_figures(summary(store, run))]
    if pictures is not None:
        from bench.suite import plots  # not on the GPU machine, which draws nothing

        timings = store.rows("select * from timing where run = ?", run)
        drawn = (
            ("speed-up by kernel", plots.speedups(rows, _beside(pictures, "speedup"))),
            ("residency and speed", plots.residency(rows, _beside(pictures, "residency"))),
            ("repeat noise", plots.spread(timings, _beside(pictures, "noise"))),
        )
        lines += ["", *(f"![{text}]({path.name})" for text, path in drawn)]
    counters = _counters_of(store, run)
    lines += ["", "## By kernel", "", *_by_kernel(rows, counters)]
    lines += _counters(counters)
    lines += ["", "## Every variant", "", *_variants(rows), *_refused(rows)]
    lines += [*_notes(store, run), *_references(store, run)]
    return "\n".join(lines) + "\n"


def _beside(stem: Path, what: str) -> Path:
    return stem.with_name(f"{stem.name}-{what}.svg")


def _conditions(store: Store, run: int) -> list[str]:
    facts = store.rows("select * from run where id = ?", run)[0]
    device = facts["device"] or "unknown"
    device = json.loads(device)["name"] if device.startswith("{") else device
    return [
        f"Device: {device}; driver {facts['driver']}; clocks {facts['clocks']}; "
        f"nvcc {facts['nvcc']}; {facts['date']}.",
        "",
        f"Command: `{facts['command']}`",
        "",
        "Times are medians of interleaved launches with the 10th and 90th percentile; the speed-up"
        " is the default's median over the variant's. *equal* counts the inputs (of different"
        " seeds) on which all output bytes are those of the default build. *blocks* is what the"
        " driver says fits on one multiprocessor, against the default's. A rewrite of a build"
        " other than the default is called `BUILD+REWRITE`. Variants of the family *withdrawn* were"
        " made by passes that are no longer offered; no figure counts them.",
    ]


_MEANINGS = {
    "best_nvidia": "best of NVIDIA's levers (caps, cap 255, its pragma) over the default",
    "best_front": "the compiler with undocumented options of its front end, and caps or the"
    " pragma beside them (`optimize` tries one of them, `tune` all), over the default",
    "best_binary_only": "ours from the default binary alone, best measured, over the default",
    "best_binary_only_without_steps": "the same without the search by measured steps",
    "best_ours": "ours on any build, best measured, over the default",
    "best_measured": "best of all over the default",
    "best_measured_over_best_nvidia": "best of all over the best of NVIDIA's levers",
    "best_measured_over_best_nvidia_steady": "the same for kernels whose default repeats within"
    f" {100 * STEADY:.0f} %",
    "best_measured_over_best_nvidia_without_compared_fronts": "the same without the fronts whose"
    " outputs have to be compared",
    "best_measured_over_best_nvidia_without_steps": "the same without the search by measured steps"
    " (`tune --generations`)",
    "best_measured_over_best_nvidia_without_either": "the same without those fronts and without"
    " steps",
    "best_measured_over_best_compiler": "best of all over the best of the compiler's builds of any"
    " kind, so what rewriting adds",
}


def _figures(figures: Record) -> list[str]:
    lines = [
        f"- {figures['ours_identical']} of {figures['ours_checked']} rewritten variants that ran "
        "are byte-identical to the default on every input; the driver reports more resident "
        f"blocks for {figures['ours_with_more_blocks']} of them, and the register count that was "
        f"claimed for {figures['ours_with_the_registers_claimed']}.",
        f"- {figures['limited_kernels']} of {figures['kernels']} kernels are limited by registers "
        "or spill at nvcc's default; the geometric means are over these:",
    ]
    means = figures["geometric_means"]
    lines += [f"    - {meaning}: {means[label]:.3f}" for label, meaning in _MEANINGS.items()]
    for name, blind in figures["blind_choice"].items():
        if blind["kernels"]:
            lines.append(
                f"    - `{name}`, chosen without a GPU, over {blind['kernels']} kernels: "
                f"{blind['geometric_mean']:.3f}, least {blind['least']:.3f}, "
                f"most {blind['most']:.3f} (an unchanged file counts as 1)"
            )
    if figures["noise_median"] is not None:
        lines.append(
            f"- repeat noise (the default twice): median {100 * figures['noise_median']:.2f} %, "
            f"worst {100 * figures['noise_worst']:.2f} %."
        )
    return lines


def _cell(row: Record | None) -> str:
    if row is None or row["name"] == "default":
        return "-"
    return f"{row['speedup']:.3f} {row['name']}"


_UNITS = ("issue %", "L1 %", "L2 %", "DRAM %")
_FULL = 75.0


def _held_by(metrics: dict[str, float] | None) -> str:
    """What the default build is held by: the unit that is nearly full, else the longest stall."""
    if not metrics:
        return "-"
    busy = {unit: _value(metrics, unit) or 0.0 for unit in _UNITS}
    unit = max(busy, key=lambda name: busy[name])
    if busy[unit] >= _FULL:
        return f"{unit.removesuffix(' %')} {busy[unit]:.0f} % busy"
    stalls = _stalls(metrics)
    wait = f"waits: {stalls[0][1]} {stalls[0][0]:.1f}" if stalls else "waits"
    return f"{wait}; {unit.removesuffix(' %')} {busy[unit]:.0f} %"


def _by_kernel(rows: list[Record], counters: dict[tuple[str, str], dict[str, float]]) -> list[str]:
    lines = [
        "*held by*: from the default's hardware counters, the unit that is busy for 75 % or more of"
        " the time, else the longest stall (warps stalled per issue) and the busiest unit. More"
        " warps can hide a wait; they can't widen a full unit.",
        "",
        "| kernel | registers | blocks | limited by | ms | best NVIDIA | other front "
        "| ours, binary only | ours | blind | held by |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kernel, each in by_kernel(rows).items():
        default = each[0]
        blind = [r for r in each if r["name"] in ("optimize", "optimize_source") and r["speedup"]]
        cells = [
            _cell(best_of(each, GROUPS[group] - {"default"}))
            for group in ("best_nvidia", "best_front", "best_binary_only", "best_ours")
        ]
        lines.append(
            f"| {kernel} | {number(default['driver_registers'] or default['registers'])} "
            f"| {number(default['active_blocks'])} | {limits_of(default)} "
            f"| {number(default['median_ms'], 4)} | {' | '.join(cells)} "
            f"| {', '.join(number(r['speedup']) for r in blind) or '-'} "
            f"| {_held_by(counters.get((kernel, 'default')))} |"
        )
    return lines


def _counters_of(store: Store, run: int) -> dict[tuple[str, str], dict[str, float]]:
    """Hardware counters by kernel and variant, where they were read."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in store.rows("select * from counter where run = ? order by rowid", run):
        try:
            value = float(str(row["value"]).replace(",", ""))
        except ValueError:
            continue
        found.setdefault((row["kernel"], row["variant"]), {})[row["metric"]] = value
    return found


def _value(metrics: dict[str, float], name: str) -> float | None:
    keys = dict(_COUNTERS)[name]
    return next((metrics[key] for key in keys if key in metrics), None)


def _stalls(metrics: dict[str, float]) -> list[tuple[float, str]]:
    """(warps stalled per issue, reason), longest first."""
    found = [
        (value, metric.removeprefix(_STALL).split("_per_issue")[0])
        for metric, value in metrics.items()
        if metric.startswith(_STALL) and metric.endswith("issue_active.ratio")
    ]
    return sorted(((v, name) for v, name in found if name not in _NOT_STALLS), reverse=True)


def _counters(found: dict[tuple[str, str], dict[str, float]]) -> list[str]:
    """A row for each profiled variant."""
    if not found:
        return []
    names = [name for name, _ in _COUNTERS]
    lines = [
        "", "## Counters", "",
        "One launch of each under NVIDIA's profiler: how busy the issue slots and the memory"
        " levels are, achieved warps, instructions executed by all warps (of these on local and"
        " shared memory), and what the warps wait for most (warps stalled per issue).",
        "",
        f"| kernel | variant | {' | '.join(names)} | longest stalls |",
        "|---" * (len(names) + 3) + "|",
    ]  # fmt: skip
    for (kernel, variant), metrics in found.items():
        cells: list[str] = []
        for name, _ in _COUNTERS:
            value = _value(metrics, name)
            digits = 1 if name.endswith("%") else 0
            cells.append("-" if value is None else f"{value:,.{digits}f}")
        longest = [f"{name} {value:.1f}" for value, name in _stalls(metrics)[:2]]
        lines.append(f"| {kernel} | {variant} | {' | '.join(cells)} | {', '.join(longest)} |")
    return lines


def _variants(rows: list[Record]) -> list[str]:
    lines = [
        "| kernel | variant | registers | spilled B | blocks | equal | ms (p10-p90) | speed-up "
        "| sanitizers |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["status"] != "built":
            continue
        registers = row["driver_registers"] or row["registers"]
        spilled = (row["spill_store_bytes"] or 0) + (row["spill_load_bytes"] or 0)
        time = "-"
        if row["median_ms"] is not None:
            time = f"{row['median_ms']:.4f} ({row['p10_ms']:.4f}-{row['p90_ms']:.4f})"
        lines.append(
            f"| {row['kernel']} | {row['name']} | {number(registers)} | {spilled} "
            f"| {number(row['active_blocks'])}/{number(row['default_blocks'])} | {row['equal']} "
            f"| {time} | {number(row['speedup'])} | {row['sanitizers']} |"
        )
    return lines


def _refused(rows: list[Record]) -> list[str]:
    refused = [row for row in rows if row["status"] != "built"]
    if not refused:
        return []
    return [
        "", "## Not made, or failed", "", "| kernel | variant | why |", "|---|---|---|",
        *(
            f"| {row['kernel']} | {row['name']} | {row['status']}: {clip(row['reason'], 200)} |"
            for row in refused
        ),
    ]  # fmt: skip


def _notes(store: Store, run: int) -> list[str]:
    notes = store.rows(
        "select name, note from kernel where run = ? and note is not null and note != ''", run
    )
    if not notes:
        return []
    head = ["", "## Notes of the run", ""]
    return head + [f"- {note['name']}: {clip(note['note'], 300)}" for note in notes]


def _references(store: Store, run: int) -> list[str]:
    references = store.rows(
        "select name, reference_error, reference_passed from kernel"
        " where run = ? and reference_passed is not null",
        run,
    )
    if not references:
        return []
    lines = ["", "## Default build against numpy (small size)", ""]
    lines += ["| kernel | largest relative error | within tolerance |", "|---|---|---|"]
    for row in references:
        error = row["reference_error"]
        text = "-" if error is None else f"{error:.2e}"
        verdict = "yes" if row["reference_passed"] else "no"
        lines.append(f"| {row['name']} | {text} | {verdict} |")
    return lines
