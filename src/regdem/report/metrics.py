"""The numbers of a kernel report by name, as gates and comparisons use them.

Every metric says which way is better: -1 lower, +1 higher, 0 neither by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from regdem.report.model import CodeAnalysis, KernelReport, SpillReport

Value = float | int | None


@dataclass(frozen=True)
class Metric:
    """A named number of a report; None where the report doesn't have it."""

    name: str
    better: int
    meaning: str
    read: Callable[[KernelReport], Value]


def _analysis(read: Callable[[KernelReport], Value]) -> Callable[[KernelReport], Value]:
    return lambda report: None if report.analysis is None else read(report)


def _spill_bytes(report: KernelReport, space: str) -> int:
    assert report.analysis is not None
    found = report.analysis.spills.spills
    return found.total_bytes(space, store=True) + found.total_bytes(space, store=False)


def _spills(report: KernelReport) -> SpillReport:
    assert report.analysis is not None
    return report.analysis.spills


def _code(report: KernelReport) -> CodeAnalysis:
    assert report.analysis is not None
    return report.analysis


METRICS: tuple[Metric, ...] = (
    Metric("registers", -1, "registers per thread", lambda r: r.registers_per_thread),
    Metric("max_live", -1, "live GPRs at the peak", _analysis(lambda r: _code(r).pressure.peak)),
    Metric(
        "registers_needed",
        -1,
        "registers per thread by colouring",
        _analysis(lambda r: _code(r).interference.registers_needed),
    ),
    Metric(
        "occupancy_pct",
        1,
        "warps resident of those an SM holds, per cent",
        lambda r: r.occupancy.occupancy_pct if r.occupancy else None,
    ),
    Metric(
        "active_blocks",
        1,
        "blocks resident per SM",
        lambda r: r.occupancy.active_blocks if r.occupancy else None,
    ),
    Metric(
        "active_warps",
        1,
        "warps resident per SM",
        lambda r: r.occupancy.active_warps if r.occupancy else None,
    ),
    Metric(
        "spill_bytes",
        -1,
        "bytes per thread spilled to and filled from local memory",
        _analysis(lambda r: _spill_bytes(r, "local")),
    ),
    Metric(
        "spill_store_bytes",
        -1,
        "spill stores to local memory, as ptxas -v counts them",
        _analysis(lambda r: _spills(r).store_bytes),
    ),
    Metric(
        "spill_load_bytes",
        -1,
        "spill loads from local memory, as ptxas -v counts them",
        _analysis(lambda r: _spills(r).load_bytes),
    ),
    Metric(
        "shared_spill_bytes",
        -1,
        "bytes per thread spilled to and filled from shared memory",
        _analysis(lambda r: _spill_bytes(r, "shared")),
    ),
    Metric(
        "loop_spill_bytes",
        -1,
        "bytes per thread inside loops spilled to and filled from local memory, each access once",
        _analysis(lambda r: _spills(r).spills.loop_bytes("local")),
    ),
    Metric(
        "loop_shared_spill_bytes",
        -1,
        "bytes per thread inside loops spilled to and filled from shared memory",
        _analysis(lambda r: _spills(r).spills.loop_bytes("shared")),
    ),
    Metric(
        "array_accesses",
        -1,
        "accesses to run-time indexed local arrays",
        _analysis(
            lambda r: sum(1 for site in _spills(r).spills.sites if site.kind == "array"),
        ),
    ),
    Metric("local_bytes", -1, "stack frame per thread", lambda r: r.local_bytes),
    Metric("static_shared_bytes", 0, "static shared memory", lambda r: r.static_shared_bytes),
    Metric("barriers", 0, "named barriers", lambda r: r.barriers),
    Metric("instructions", 0, "instructions", _analysis(lambda r: _code(r).instructions)),
    Metric("loops", 0, "loops", _analysis(lambda r: len(_code(r).loops))),
)

BY_NAME = {metric.name: metric for metric in METRICS}
ALIASES = {"registers_per_thread": "registers", "max_live_gpr": "max_live"}


def metric(name: str) -> Metric | None:
    """The metric of that name or alias."""
    return BY_NAME.get(ALIASES.get(name, name))


def metric_values(report: KernelReport) -> dict[str, Value]:
    """All metrics of a report."""
    return {entry.name: entry.read(report) for entry in METRICS}
