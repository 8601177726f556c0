"""Tables from the results database: Markdown for the docs, a compact one for the terminal."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import Any

from bench.suite.store import Store

Record = dict[str, Any]


def _index(rows: list[Record], *keys: str) -> dict[tuple[Any, ...], Record]:
    return {tuple(row[key] for key in keys): row for row in rows}


def _equal_text(checks: list[Record]) -> str:
    if not checks:
        return ""
    same = sum(1 for check in checks if check["identical"])
    return f"{same}/{len(checks)}"


def _noise(base: Record | None, again: Record | None) -> float | None:
    """Relative difference of the default's two medians."""
    if base is None or again is None:
        return None
    return abs(again["median_ms"] / base["median_ms"] - 1)


def rows_of(store: Store, run: int) -> list[Record]:
    """One record per kernel and variant with everything measured about it.

    `speedup` is median default time over median time of the variant; None where it was not timed.
    """
    variants = store.rows("select * from variant where run = ? order by rowid", run)
    timings = _index(store.rows("select * from timing where run = ?", run), "kernel", "variant")
    checks: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for check in store.rows("select * from equality where run = ?", run):
        checks[check["kernel"], check["variant"]].append(check)
    watched: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for row in store.rows("select * from sanitizer where run = ?", run):
        watched[row["kernel"], row["variant"]].append(row)
    default_blocks = {
        row["kernel"]: row["active_blocks"] for row in variants if row["name"] == "default"
    }
    table: list[Record] = []
    for variant in variants:
        key = (variant["kernel"], variant["name"])
        timing = timings.get(key)
        base = timings.get((variant["kernel"], "default"))
        again = timings.get((variant["kernel"], "default again"))
        sanitizers = watched.get(key, [])
        table.append(
            variant
            | {
                "median_ms": timing["median_ms"] if timing else None,
                "p10_ms": timing["p10_ms"] if timing else None,
                "p90_ms": timing["p90_ms"] if timing else None,
                "speedup": base["median_ms"] / timing["median_ms"] if timing and base else None,
                "noise": _noise(base, again),
                "equal": "" if variant["name"] == "default" else _equal_text(checks[key]),
                "checks": len(checks[key]),
                "identical": all(check["identical"] for check in checks[key]),
                "default_blocks": default_blocks.get(variant["kernel"]),
                "sanitizers": ", ".join(f"{row['tool']} {row['status']}" for row in sanitizers),
            }
        )
    return table


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else 1.0


def _number(value: float | int | None, digits: int = 3) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def _clip(text: str | None, width: int) -> str:
    text = " ".join((text or "").replace("|", "/").split())
    return text if len(text) <= width else text[: width - 1] + "…"


def best_of(rows: list[Record], families: set[str]) -> Record | None:
    """The fastest measured, identical variant of some families (the default counts as 1.0)."""
    timed = [
        row
        for row in rows
        if row["family"] in families and row["speedup"] is not None and row["identical"]
    ]
    return max(timed, key=lambda row: row["speedup"], default=None)


def _more_blocks(row: Record) -> bool:
    """Whether the driver keeps more blocks of a variant resident than of the default."""
    return (row["active_blocks"] or 0) > (row["default_blocks"] or 0)


def summary(store: Store, run: int) -> Record:
    """Counts and geometric means over a run's kernels.

    Each `best_*` mean takes, per kernel, the best measured of the default and those families.
    """
    rows = rows_of(store, run)
    by_kernel: dict[str, list[Record]] = defaultdict(list)
    for row in rows:
        by_kernel[row["kernel"]].append(row)
    checked = [row for row in rows if row["checks"]]
    ours = [row for row in checked if row["family"] in ("binary", "ours")]
    means: dict[str, float] = {}
    groups = {
        "best_nvidia": {"default", "nvidia"},
        "best_binary_only": {"default", "binary"},
        "best_ours": {"default", "binary", "ours"},
        "best_measured": {"default", "nvidia", "binary", "ours"},
    }
    for label, families in groups.items():
        values = [
            best["speedup"]
            for each in by_kernel.values()
            if (best := best_of(each, families)) is not None
        ]
        means[label] = geometric_mean(values)
    blind = [row["speedup"] for row in rows if row["name"] == "optimize" and row["speedup"]]
    noise = sorted(
        {row["kernel"]: row["noise"] for row in rows if row["noise"] is not None}.values()
    )
    return {
        "kernels": len(by_kernel),
        "variants": len(rows),
        "built": sum(row["status"] == "built" for row in rows),
        "checked": len(checked),
        "identical": sum(row["identical"] for row in checked),
        "ours_checked": len(ours),
        "ours_identical": sum(row["identical"] for row in ours),
        "ours_with_more_blocks": sum(_more_blocks(row) for row in ours),
        "ours_with_the_registers_claimed": sum(
            row["driver_registers"] == row["registers"] for row in ours
        ),
        "timed_kernels": len({row["kernel"] for row in rows if row["speedup"]}),
        "geometric_means": means,
        "blind_choice": {
            "kernels": len(blind),
            "geometric_mean": geometric_mean(blind),
            "least": min(blind, default=None),
            "most": max(blind, default=None),
        },
        "noise_median": noise[len(noise) // 2] if noise else None,
        "noise_worst": noise[-1] if noise else None,
    }


def markdown(store: Store, run: int, title: str) -> str:
    """The docs page of one run: conditions, figures, one table of all variants, refusals."""
    facts = store.rows("select * from run where id = ?", run)[0]
    rows = rows_of(store, run)
    figures = summary(store, run)
    lines = [f"# {title}", ""]
    lines += [
        f"Device: {facts['device']}; driver {facts['driver']}; clocks {facts['clocks']}; "
        f"nvcc {facts['nvcc']}; {facts['date']}.",
        "",
        f"Command: `{facts['command']}`",
        "",
        "Times are medians of interleaved launches with the 10th and 90th percentile; the speed-up"
        " is the default's median over the variant's. *equal* counts the inputs (of different"
        " seeds) on which all output bytes are those of the default build. *blocks* is what the"
        " driver says fits on one multiprocessor, against the default's.",
        "",
        f"- {figures['ours_identical']} of {figures['ours_checked']} rewritten variants that ran "
        "are byte-identical to the default on every input; the driver reports more resident "
        f"blocks for {figures['ours_with_more_blocks']} of them, and the register count that was "
        f"claimed for {figures['ours_with_the_registers_claimed']}.",
    ]
    for label, value in figures["geometric_means"].items():
        lines.append(f"- {label.replace('_', ' ')}: geometric mean {value:.3f} over the default.")
    blind = figures["blind_choice"]
    if blind["kernels"]:
        lines.append(
            f"- blind choice of `optimize` over {blind['kernels']} kernels: geometric mean "
            f"{blind['geometric_mean']:.3f}, least {blind['least']:.3f}, most {blind['most']:.3f}."
        )
    if figures["noise_median"] is not None:
        lines.append(
            f"- repeat noise (the default twice): median {100 * figures['noise_median']:.2f} %, "
            f"worst {100 * figures['noise_worst']:.2f} %."
        )
    lines += [
        "",
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
            f"| {row['kernel']} | {row['name']} | {_number(registers)} | {spilled} "
            f"| {_number(row['active_blocks'])}/{_number(row['default_blocks'])} | {row['equal']} "
            f"| {time} | {_number(row['speedup'])} | {row['sanitizers']} |"
        )
    refused = [row for row in rows if row["status"] != "built"]
    if refused:
        lines += ["", "## Not made, or failed", "", "| kernel | variant | why |", "|---|---|---|"]
        lines += [
            f"| {row['kernel']} | {row['name']} | {row['status']}: {_clip(row['reason'], 200)} |"
            for row in refused
        ]
    notes = store.rows(
        "select name, note from kernel where run = ? and note is not null and note != ''", run
    )
    if notes:
        lines += ["", "## Notes of the run", ""]
        lines += [f"- {note['name']}: {_clip(note['note'], 300)}" for note in notes]
    references = store.rows(
        "select name, reference_error, reference_passed from kernel"
        " where run = ? and reference_passed is not null",
        run,
    )
    if references:
        lines += ["", "## Default build against numpy (small size)", ""]
        lines += ["| kernel | largest relative error | within tolerance |", "|---|---|---|"]
        for row in references:
            error = row["reference_error"]
            text = "-" if error is None else f"{error:.2e}"
            verdict = "yes" if row["reference_passed"] else "no"
            lines.append(f"| {row['name']} | {text} | {verdict} |")
    return "\n".join(lines) + "\n"


def compact(store: Store, run: int) -> str:
    """A line per kernel: default registers, best of each family; then the figures."""
    by_kernel: dict[str, list[Record]] = defaultdict(list)
    for row in rows_of(store, run):
        by_kernel[row["kernel"]].append(row)
    lines = [
        f"{'kernel':22s} {'regs':>4s} {'ms':>8s} {'noise%':>6s}  best nvidia | best ours | wrong"
    ]
    for kernel, rows in by_kernel.items():
        default = rows[0]
        cells: list[str] = []
        for families in ({"nvidia"}, {"binary", "ours"}):
            best = best_of(rows, families)
            cells.append(f"{best['speedup']:.3f} {best['name']}" if best else "-")
        wrong = [row["name"] for row in rows if row["checks"] and not row["identical"]]
        failed = [row["name"] for row in rows if row["status"] == "failed"]
        tail = " ".join([*(f"WRONG:{name}" for name in wrong), *(f"failed:{n}" for n in failed)])
        noise = "-" if default["noise"] is None else f"{100 * default['noise']:.2f}"
        registers = default["driver_registers"] or default["registers"]
        lines.append(
            f"{kernel:22s} {_number(registers):>4s} {_number(default['median_ms'], 4):>8s} "
            f"{noise:>6s}  {cells[0]} | {cells[1]} | {tail}"
        )
    lines.append(json.dumps(summary(store, run)))
    return "\n".join(lines)
