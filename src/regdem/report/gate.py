"""Gates: conditions on the metrics of every kernel, and a baseline that only moves one way.

An expression is `metric op number`, several joined by commas that mean and, such as
`"registers<=64, spill_bytes==0"`. A baseline is the metrics of an earlier run: a kernel that got
worse in any of them violates it, one that got better should move it, one not in it is new.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regdem.binary.demangle import demangle
from regdem.errors import InputError, UsageError
from regdem.report.metrics import METRICS, Value, metric, metric_values
from regdem.report.model import KernelReport, SourceLine

_CONDITION = re.compile(r"\s*([a-z_]+)\s*(<=|>=|==|!=|<|>)\s*(-?\d+(?:\.\d+)?)\s*")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True)
class Condition:
    """One comparison, as written in `text`."""

    metric: str
    comparison: str
    limit: float
    text: str

    def holds(self, value: float) -> bool:
        """Whether the value satisfies it."""
        return _OPERATORS[self.comparison](value, self.limit)


@dataclass(frozen=True)
class Finding:
    """A condition or baseline that a kernel breaks (or, `level` "note", improves on)."""

    rule: str
    level: str
    kernel: str
    metric: str
    value: Value
    limit: Value
    message: str
    source: SourceLine | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return dict(vars(self)) | {"source": None if self.source is None else vars(self.source)}


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """The conditions of an expression. Raises UsageError that shows the part not understood."""
    conditions: list[Condition] = []
    for part in text.split(","):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise UsageError(
                f"gate {part.strip()!r} is not understood",
                hint="write: metric <= number, joined by commas",
            )
        name, comparison, limit = match.groups()
        known = metric(name)
        if known is None:
            names = ", ".join(entry.name for entry in METRICS)
            raise UsageError(f"no metric {name!r}", hint=f"one of: {names}")
        conditions.append(Condition(known.name, comparison, float(limit), part.strip()))
    return tuple(conditions)


def check_conditions(
    reports: Sequence[KernelReport], conditions: Sequence[Condition]
) -> list[Finding]:
    """Every condition that a kernel breaks, or whose metric can't be told for it.

    Raises UsageError where a metric needs a block size and none is known.
    """
    findings: list[Finding] = []
    for report in reports:
        values = metric_values(report)
        for condition in conditions:
            value = values[condition.metric]
            if value is None and report.analysis is not None:
                raise UsageError(
                    f"{condition.metric} needs the block size, which the kernel does not declare",
                    kernel=report.name,
                    hint="give --threads",
                )
            if value is None:
                reason = report.refusal.message if report.refusal else "no code"
                message = f"{report.demangled_name}: {condition.text} can't be told: {reason}"
            elif not condition.holds(value):
                message = f"{report.demangled_name}: {condition.metric} is {value}, not "
                message += f"{condition.comparison} {condition.limit:g}"
            else:
                continue
            findings.append(
                Finding(
                    "gate",
                    "error",
                    report.name,
                    condition.metric,
                    value,
                    condition.limit,
                    message,
                    _place(report),
                )
            )
    return findings


def baseline_of(reports: Sequence[KernelReport]) -> dict[str, Any]:
    """The baseline's JSON form: the metrics of every kernel by name.

    In a file with code for several architectures by name and architecture.
    """
    several = len({report.arch for report in reports}) > 1
    return {
        "kernels": {
            _key(report) if several else report.name: {
                name: value
                for name, value in metric_values(report).items()
                if value is not None and _direction(name)
            }
            for report in sorted(reports, key=lambda report: (report.name, report.arch))
        }
    }


def _key(report: KernelReport) -> str:
    """The name in a baseline of several architectures; no symbol has a blank."""
    return f"{report.name} {report.arch}"


def check_baseline(
    reports: Sequence[KernelReport], baseline: Mapping[str, Any], *, strict: bool = False
) -> list[Finding]:
    """What is worse (an error), better or new (a note; with `strict`, better is an error).

    Raises InputError for a baseline of another form.
    """
    if not isinstance(baseline.get("kernels"), dict):
        raise InputError("the baseline has no kernels", hint="make one with --update-baseline")
    kernels: dict[str, dict[str, Any]] = baseline["kernels"]
    findings: list[Finding] = []
    for report in reports:
        old = kernels.get(_key(report), kernels.get(report.name))
        if old is not None and not isinstance(old, dict):  # pyright: ignore
            raise InputError(f"the baseline's {report.demangled_name} holds no metrics")
        if old is None:
            text = f"{report.demangled_name}: not in the baseline"
            findings.append(
                Finding("new", "note", report.name, "", None, None, text, _place(report))
            )
            continue
        values = metric_values(report)
        for name, value in values.items():
            before, better = old.get(name), _direction(name)
            if before is not None and not _is_count(before):
                raise InputError(
                    f"the baseline's {name} of {report.demangled_name} is no number",
                    hint="make it again with --update-baseline",
                )
            if value is None or not better or not isinstance(before, int | float):
                continue
            if value == before or has_moved(name, old, values):
                continue
            improved = (value - before) * better > 0
            rule = "better" if improved else "worse"
            level = "error" if not improved or strict else "note"
            text = f"{report.demangled_name}: {name} {rule}, {before:g} to {value:g}"
            findings.append(
                Finding(rule, level, report.name, name, value, before, text, _place(report))
            )
    return findings


def has_moved(name: str, old: Mapping[str, Any], new: Mapping[str, float | None]) -> bool:
    """Whether shared spills only took the place of local ones, which is no loss (as in `diff`)."""
    if name not in ("shared_spill_bytes", "loop_shared_spill_bytes"):
        return False
    before: object = old.get("spill_bytes")
    after = new.get("spill_bytes")
    return isinstance(before, int | float) and after is not None and after < before


def _is_count(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def vanished(
    reports: Sequence[KernelReport],
    baseline: Mapping[str, Any],
    selected: Callable[[str, str], bool] | None = None,
    *,
    strict: bool = False,
) -> list[Finding]:
    """Kernels of the baseline that the file hasn't (a note; with `strict`, an error).

    `selected(name, demangled name)`: whether a kernel is among those asked for; None: all are.
    """
    present = {name for report in reports for name in (report.name, _key(report))}
    findings: list[Finding] = []
    for key in baseline["kernels"]:
        name, _, arch = key.partition(" ")
        shown = demangle(name)
        if key in present or (selected is not None and not selected(name, shown)):
            continue
        text = f"{shown}{f' ({arch})' if arch else ''}: in the baseline, but no longer in the file"
        level = "error" if strict else "note"
        findings.append(Finding("gone", level, name, "", None, None, text, None))
    return findings


def _direction(name: str) -> int:
    known = metric(name)
    return known.better if known else 0


def _place(report: KernelReport) -> SourceLine | None:
    return report.analysis.pressure.peak_source if report.analysis else None
