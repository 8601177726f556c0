"""A user's profile of a kernel: what it measured replaces what the model assumes.

Problem: trip counts, locality and divergence are not in the code, but a single profile of the
kernel as it is shows their sum: how busy the issue slots, L1, L2 and DRAM were.

Method: for each assumption about locality, each pipe's demand is moved by as many cycles as make
its predicted use the measured one; a pipe is full at a share of what counters call its peak
(`profile_peak` in `machine/data/timing.toml`). The factor on one warp's time is a power of what
would make all of it together take the measured time per instruction (`profile_time_power`; all of
it where only a word is given; at least `profile_least_wait` of the measured time, even where pipes
explain all of it). Variants are then predicted with these (`model.learn`): what they add or save is
the model's, what they share with the input is measured.

A profile tells sums, not which part of the code they come from: above all not what spills ask for
and what the rest does. So the change that a variant is predicted to bring is a mean (of logarithms)
of that with what was learned, which counts `profile_share`, and that without; where the profiled
code itself uses local memory, `profile_share_spilled`. `bench/judge.py` fits the five constants to
kernels other than the one judged, and has rows with and without a profile.

A profile is read from a JSON or CSV export of Nsight Compute (`ncu --csv`, with or without
`--page raw`; JSON with metric names as keys at any depth, or objects with a name and a value), or
is a word: `latency-bound`, `memory-bound`, `issue-bound`.

Not claimed: that a profile of another input size or GPU tells anything.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regdem.errors import UsageError
from regdem.machine import Occupancy
from regdem.machine.timing import Timing
from regdem.predict.demand import Case, Correction, case, l1_left
from regdem.predict.locality import SCENARIOS
from regdem.predict.summary import Summary
from regdem.predict.waits import warp_cycles

WORDS = ("latency-bound", "memory-bound", "issue-bound")
_QUIET, _FULL = 0.45, 0.88
"""Use of a pipe that is not, and that is, what bounds a kernel: what the words stand for."""
_LEAST, _MOST = 0.05, 20.0
_NAMES = {
    "issue_pct": (
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "sm__inst_issued.avg.pct_of_peak_sustained_active",
        "smsp__inst_issued.avg.pct_of_peak_sustained_active",
        "issue slots busy", "issue_pct", "issue_active_pct",
    ),
    "l1_pct": (
        "l1tex__throughput.avg.pct_of_peak_sustained_active", "l1/tex cache throughput",
        "l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "l1_pct",
    ),
    "l2_pct": (
        "lts__throughput.avg.pct_of_peak_sustained_elapsed", "l2 cache throughput", "l2_pct",
    ),
    "dram_pct": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram throughput",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed", "dram_pct",
    ),
    "active_warps": ("sm__warps_active.avg.per_cycle_active", "active_warps"),
}  # fmt: skip
_PER_SCHEDULER = ("smsp__issue_active.avg.per_cycle_active", "issued warp per scheduler")
_STALL = re.compile(
    r"^(?:smsp__average_warps_issue_stalled_(\w+?)_per_issue_active(?:\.ratio)?"
    r"|smsp__average_warp_latency_issue_stalled_(\w+?)(?:\.ratio)?|stall[ _](\w[\w ]*))$"
)


@dataclass(frozen=True)
class Profile:
    """What was measured of one kernel; None where it was not.

    `issue_pct`: cycles in which a scheduler issued, of all active ones. `l1_pct`, `l2_pct`,
    `dram_pct`: throughput against the peak. `active_warps`: per SM. `stalls`: warp cycles per
    issued instruction by reason (`long_scoreboard`, ...). `bound`: one of `WORDS` instead.
    """

    issue_pct: float | None = None
    l1_pct: float | None = None
    l2_pct: float | None = None
    dram_pct: float | None = None
    active_warps: float | None = None
    stalls: Mapping[str, float] = field(default_factory=dict[str, float])
    bound: str = ""

    def __post_init__(self) -> None:
        for name in ("issue_pct", "l1_pct", "l2_pct", "dram_pct"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 100.0:
                raise UsageError(f"{name} of a profile is {value}: not between 0 and 100")
        if self.bound and self.bound not in WORDS:
            raise UsageError(f"{self.bound!r} is none of {', '.join(WORDS)}")

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing the model can use."""
        known = (self.issue, self.l1_pct, self.l2_pct, self.dram_pct)
        return not self.bound and all(value is None for value in known)

    @property
    def issue(self) -> float | None:
        """Share of issue slots used; from the stall reasons where it was not measured itself."""
        if self.issue_pct is not None:
            return self.issue_pct / 100.0
        per_issue = sum(self.stalls.values())
        if self.active_warps is None or per_issue <= 0.0:
            return None
        return min(1.0, self.active_warps / 4.0 / per_issue)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, which `read_profile` reads back."""
        body = {key: value for key, value in vars(self).items() if value not in (None, "")}
        stalls = body.pop("stalls")
        return body | {f"stall_{reason}": value for reason, value in stalls.items()}


@dataclass(frozen=True)
class Corrections:
    """What a profile says of a kernel and its variants, by name of the assumption about locality.

    `share`: how much the change counts that a variant brings with the corrections, against that
    without. `levels`: how many times as long the profiled code takes with them.
    """

    by_locality: Mapping[str, Correction]
    levels: Mapping[str, float]
    share: float = 1.0

    def total(self, name: str, corrected: float, plain: float) -> float:
        """Cycles of a variant from those with the corrections and those without."""
        return corrected**self.share * (plain * self.levels.get(name, 1.0)) ** (1.0 - self.share)


# -- reading -------------------------------------------------------------------------------------


def read_profile(text: str, kernel: str | None = None) -> Profile:
    """A profile from one of `WORDS`, the path of an export, or an export's text.

    `kernel`: whose rows of a CSV with several kernels count. Raises `UsageError` for what can't be
    read or says nothing of use.
    """
    if text.strip() in WORDS:
        return Profile(bound=text.strip())
    if "\n" in text or text.lstrip().startswith(("{", "[")):
        return _parsed(text, kernel)
    try:
        content = Path(text).read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the profile {text!r} can't be read: {error}",
            hint=f"give a JSON or CSV export of ncu, or one of {', '.join(WORDS)}",
        ) from error
    try:
        return _parsed(content, kernel)
    except UsageError as error:
        error.file = text
        raise


def _parsed(content: str, kernel: str | None) -> Profile:
    """A profile from an export's text."""
    stripped = content.lstrip()
    pairs = (
        _json_pairs(stripped) if stripped.startswith(("{", "[")) else _csv_pairs(content, kernel)
    )
    profile = _profile(dict(pairs))
    if profile.is_empty:
        raise UsageError(
            "the profile holds none of the metrics that are used",
            hint="collect sections SpeedOfLight, SchedulerStats and WarpStateStats, or the metrics "
            + ", ".join(names[0] for names in _NAMES.values()),
        )
    return profile


def _profile(metrics: dict[str, Any]) -> Profile:
    found: dict[str, Any] = {}
    for key, names in _NAMES.items():
        values = [_number(metrics[name]) for name in names if name in metrics]
        known = [value for value in values if value is not None]
        if known:
            found[key] = known[0]
    if "issue_pct" not in found:
        rates = [_number(metrics[name]) for name in _PER_SCHEDULER if name in metrics]
        known = [100.0 * rate for rate in rates if rate is not None]
        if known:
            found["issue_pct"] = known[0]
    stalls: dict[str, float] = {}
    for name, value in metrics.items():
        match = _STALL.match(name)
        number = _number(value)
        if match and number is not None:
            reason = next(group for group in match.groups() if group)
            stalls[reason.strip().replace(" ", "_")] = number
    bound = metrics.get("bound", "")
    return Profile(**found, stalls=stalls, bound=bound if isinstance(bound, str) else "")


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    text = str(value).strip().rstrip("%").replace(",", "").strip()
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _json_pairs(text: str) -> Iterator[tuple[str, Any]]:
    try:
        leaves = list(_leaves(json.loads(text)))
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"the profile is no JSON: {reason}") from error
    yield from leaves


def _leaves(data: Any) -> Iterator[tuple[str, Any]]:
    """Names and values at any depth."""
    if isinstance(data, list):
        for each in data:  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(each)
        return
    if not isinstance(data, dict):
        return
    entries: dict[str, Any] = {str(k).lower(): v for k, v in data.items()}  # pyright: ignore
    name = entries.get("metric name", entries.get("metric", entries.get("name")))
    value = entries.get("metric value", entries.get("value"))
    if isinstance(name, str) and value is not None:
        yield name.strip().lower(), value
        return
    for key, each in entries.items():
        if isinstance(each, dict | list):
            inner: Any = each  # pyright: ignore[reportUnknownVariableType]
            if isinstance(inner, dict) and "value" in inner:
                yield key.strip(), inner["value"]
            else:
                yield from _leaves(inner)
        else:
            yield key.strip(), each


def _csv_pairs(text: str, kernel: str | None) -> Iterator[tuple[str, Any]]:
    """Rows of `ncu --csv`: a metric a row, or (page raw) a metric a column. Lines of the
    application and of ncu itself come before the header."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("==")]
    start = next(
        (k for k, line in enumerate(lines) if "Kernel Name" in line or "Metric Name" in line), None
    )
    if start is None:
        raise UsageError(
            "the profile is neither JSON nor the CSV of ncu: no column 'Kernel Name'",
            hint="ncu --csv --page details KERNEL, or --page raw",
        )
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    if kernel is not None:
        rows = [row for row in rows if _names_kernel(row.get("Kernel Name"), kernel)] or rows
    if "Metric Name" in (rows[0] if rows else {}):
        for row in rows:
            yield (row.get("Metric Name") or "").strip().lower(), row.get("Metric Value")
        return
    for row in rows:
        for name, value in row.items():
            if name and _number(value) is not None:
                yield name.strip().lower(), value


def _names_kernel(cell: str | None, kernel: str) -> bool:
    return bool(cell) and (cell or "").split("(")[0].split("<")[0].strip() == kernel


# -- using ---------------------------------------------------------------------------------------


def corrections(
    summary: Summary, residency: Occupancy, profile: Profile, machine: Timing
) -> Corrections:
    """What makes the model agree with a profile of `summary` at `residency`."""
    if residency.active_warps == 0 or profile.is_empty:
        return Corrections({}, {})
    l1_bytes = l1_left(residency, summary.arch, machine)
    found: dict[str, Correction] = {}
    levels: dict[str, float] = {}
    for scenario in SCENARIOS:
        at = summary, residency.active_warps, l1_bytes, scenario, machine
        plain = case(*at, None, residency.warps_per_block)
        found[scenario.name] = _correction(plain, profile, machine)
        corrected = case(*at, found[scenario.name], residency.warps_per_block)
        levels[scenario.name] = corrected.cycles / plain.cycles
    return Corrections(found, levels, 1.0 if profile.bound else _share(summary, machine))


def _share(summary: Summary, machine: Timing) -> float:
    """See `Corrections.share`."""
    spills = summary.of("local_load").instructions + summary.of("local_store").instructions
    return machine.model["profile_share_spilled" if spills else "profile_share"]


def _correction(now: Case, profile: Profile, machine: Timing) -> Correction:
    constants = machine.model
    cycles, wanted = _wanted(now, profile, constants["profile_peak"])
    missing = {
        pipe: share * cycles - now.loads[pipe]
        for pipe, share in wanted.items()
        if now.loads.get(pipe, 0.0) > 0.0
    }
    busy = {pipe: load + missing.get(pipe, 0.0) for pipe, load in now.loads.items()}
    alone = warp_cycles(cycles, busy, machine)
    alone = max(alone, constants["profile_least_wait"] * cycles)
    share = 1.0 if profile.bound else constants["profile_time_power"]
    time = (alone / now.warp_cycles) ** share if now.warp_cycles else 1.0
    pipes = {pipe: each / now.warps for pipe, each in missing.items()}
    return Correction(min(_MOST, max(_LEAST, time)), pipes)


def _wanted(now: Case, profile: Profile, peak: float) -> tuple[float, dict[str, float]]:
    """The cycles that the measured use of issue slots implies, and the use of each pipe."""
    uses = {pipe: now.loads.get(pipe, 0.0) / now.cycles for pipe in ("l1", "l2", "dram")}
    if profile.bound == "latency-bound":
        return now.cycles, {pipe: min(use, _QUIET) for pipe, use in uses.items()}
    if profile.bound == "issue-bound":
        quiet = {pipe: min(use, _QUIET) for pipe, use in uses.items()}
        return now.loads["issue"] / _FULL, quiet
    if profile.bound == "memory-bound":
        fullest = max(("l2", "dram"), key=lambda pipe: uses[pipe])
        return now.cycles, {fullest: max(uses[fullest], _FULL)}
    issue = profile.issue
    cycles = now.loads["issue"] / issue if issue else now.cycles
    measured = {"l1": profile.l1_pct, "l2": profile.l2_pct, "dram": profile.dram_pct}
    if issue:
        measured["issue"] = 100.0 * issue
    return cycles, {k: min(1.0, v / 100.0 / peak) for k, v in measured.items() if v is not None}
