"""compute-sanitizer and ncu over single launches of the variants."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.suite.session import REPOSITORY, worker_environment
from bench.suite.toolchain import Outcome, call_with, find

SANITIZERS = ("memcheck", "racecheck")
SANITIZER_EXIT = 99

SECTIONS = ("LaunchStats", "Occupancy", "SpeedOfLight", "WarpStateStats", "SchedulerStats")
METRICS = (
    "gpu__time_duration.sum",
    "smsp__inst_executed.sum",
    "smsp__sass_inst_executed_op_local.sum",
    "smsp__sass_inst_executed_op_shared.sum",
    "smsp__sass_inst_executed_op_global.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "lts__t_bytes.sum",
    "dram__bytes.sum",
    "l1tex__t_sector_hit_rate.pct",
)
KEPT = (
    *METRICS,
    "l1tex__throughput.avg.pct",
    "lts__throughput.avg.pct",
    "gpu__dram_throughput.avg.pct",
    "sm__throughput.avg.pct",
    "smsp__issue_active.avg.pct",
    "smsp__average_warps_issue_stalled_",
    "smsp__inst_executed_pipe",
    "sm__inst_executed_pipe",
    "launch__",
)
"""Beginnings of the counters that go into the database; ncu's sections print hundreds more."""


def once_command(folder: Path, kernel: str, variants: list[str], *, full: bool) -> list[str]:
    """A process that launches each variant once."""
    command = [sys.executable, "-m", "bench.suite.measure", str(folder), kernel]
    command += ["--once", ",".join(variants)]
    return [*command, "--full"] if full else command


def sanitize(folder: Path, kernel: str, variant: str, tool: str, timeout_s: float) -> Outcome:
    """One launch on the small problem under a sanitizer tool."""
    command = [find("compute-sanitizer"), "--tool", tool, "--error-exitcode", str(SANITIZER_EXIT)]
    if tool == "racecheck":
        command += ["--racecheck-report", "all"]
    command += once_command(folder, kernel, [variant], full=False)
    return call_with(command, timeout_s, REPOSITORY, worker_environment())


def sanitizer_verdict(outcome: Outcome) -> tuple[str, str]:
    """("clean" | "errors" | "not run", detail) of a sanitizer run."""
    text = outcome.stdout + outcome.stderr
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    summary = [line for line in lines if "SUMMARY" in line]
    launched = '"event": "end"' in text and '"launched": []' not in text
    found = [line for line in summary if not re.search(r"\b0 (errors|hazards)", line)]
    if outcome.ok and launched and summary and not found:
        return "clean", summary[-1].lstrip("= ")
    reported = [line.lstrip("= ") for line in lines if line.startswith("=====")]
    if outcome.status == SANITIZER_EXIT or found:
        return "errors", "; ".join(reported[1:4] + summary[-1:])[:600]
    return "not run", (lines[-1] if lines else f"exit status {outcome.status}")[:300]


def sanitize_all(
    folder: Path,
    wanted: list[tuple[str, str]],
    *,
    jobs: int,
    timeout_s: float,
    done: Callable[[str, str, str, str, str], None],
) -> None:
    """Every (kernel, variant) under every tool; `done(kernel, variant, tool, status, detail)`."""
    work = [(kernel, variant, tool) for kernel, variant in wanted for tool in SANITIZERS]

    def one(item: tuple[str, str, str]) -> None:
        kernel, variant, tool = item
        status, detail = sanitizer_verdict(sanitize(folder, kernel, variant, tool, timeout_s))
        done(kernel, variant, tool, status, detail)

    with ThreadPoolExecutor(max_workers=max(jobs, 1)) as pool:
        list(pool.map(one, work))


def profile(folder: Path, kernel: str, variants: list[str], timeout_s: float) -> Outcome:
    """Hardware counters of one full-size launch of each variant, as ncu's raw CSV page."""

    def command(metrics: bool) -> list[str]:
        words = [find("ncu"), "--csv", "--page", "raw", "--clock-control", "none"]
        for section in SECTIONS:
            words += ["--section", section]
        if metrics:
            words += ["--metrics", ",".join(METRICS)]
        return words + once_command(folder, kernel, variants, full=True)

    first = call_with(command(True), timeout_s, REPOSITORY, worker_environment())
    if first.ok and '"ID"' in first.stdout:
        return first
    return call_with(command(False), timeout_s, REPOSITORY, worker_environment())


def parse_profile(
    text: str, kernel: str, variants: list[str]
) -> dict[str, list[tuple[str, str, str]]]:
    """(metric, unit, value) by variant: ncu lists launches in order, one row each.

    Returns nothing when the number of rows is not that of the variants.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        return {}
    header, units = rows[0], rows[1]
    column = header.index("Kernel Name")
    launches = [row for row in rows[2:] if len(row) == len(header) and kernel in row[column]]
    if len(launches) != len(variants):
        return {}
    counters: dict[str, list[tuple[str, str, str]]] = {}
    for variant, row in zip(variants, launches, strict=True):
        counters[variant] = [
            (name, unit, value)
            for name, unit, value in zip(header, units, row, strict=True)
            if name.startswith(KEPT) and value not in ("", "n/a")
        ]
    return counters
