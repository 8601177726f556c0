"""The answer of a tuning: rows, the choice, and its JSON and text forms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from regdem.tune.made import Made
from regdem.tune.results import Comparison, Measurement, Opened
from regdem.tune.tuning import Tuning
from regdem.version import __version__

FINALISTS = 3
"""Variants that are timed once more, together."""


@dataclass(frozen=True)
class Row:
    """A variant with its measurement; `note` says why there is none."""

    made: Made
    measurement: Measurement | None
    note: str = ""

    @property
    def comparison(self) -> Comparison | None:
        return self.measurement.comparison if self.measurement else None

    @property
    def status(self) -> str:
        """One word: measured, rejected, unlike (a build of another front end, or made of one, whose
        outputs differ), failed, excluded, prepared, or why it was not made."""
        if not self.made.is_usable:
            return self.made.status
        if self.measurement is None:
            return "prepared" if self.note == "not measured" else "excluded"
        different = "unlike" if self.made.may_differ else "rejected"
        return {"identical": "measured", "different": different, "failed": "failed"}[
            self.measurement.status
        ]

    @property
    def reason(self) -> str:
        """Why it was not measured, or not taken."""
        if not self.made.is_usable:
            return self.made.reason
        return self.measurement.reason if self.measurement else self.note

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, one entry of `variants`."""
        made, measurement = self.made, self.measurement
        value: dict[str, Any] = {
            "name": made.name,
            "status": self.status,
            "reason": self.reason,
            "proof": made.status if made.is_usable else None,
            "base": made.base,
            **made.details,
            "cubin_sha256": made.cubin_sha256,
            "predicted_speedup": round(made.predicted[0], 3) if made.predicted else None,
            "predicted_speedup_interval": (
                [round(made.predicted[1], 3), round(made.predicted[2], 3)]
                if made.predicted
                else None
            ),
            "bound_by": made.bound_by,
        }
        if measurement is None:
            return value
        comparison = self.comparison
        return value | {
            "measured": comparison.to_dict() if comparison else None,
            "samples_ms": measurement.samples_ms,
            "difference": measurement.difference,
            "driver_facts": measurement.facts,
            "clocks": measurement.clocks,
        }


@dataclass(frozen=True)
class Final:
    """A finalist's times of the last session."""

    name: str
    comparison: Comparison

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"name": self.name, **self.comparison.to_dict()}


@dataclass(frozen=True)
class TuneResult:
    """What tuning a kernel gave. `best` names a variant; None: the original, for `reason`."""

    tuning: Tuning
    gpu: dict[str, Any] | None
    opened: Opened | None
    rows: tuple[Row, ...]
    best: str | None
    reason: str
    finals: tuple[Final, ...] = field(default=())

    @classmethod
    def of(
        cls,
        tuning: Tuning,
        gpu: dict[str, Any] | None,
        opened: Opened | None,
        rows: Sequence[Row],
        best: str | None,
        reason: str,
        finals: Sequence[Final] = (),
    ) -> TuneResult:
        """With rows in the order of a report: the fastest first, then as predicted."""
        ordered = sorted(rows, key=_order)
        return cls(tuning, gpu, opened, tuple(ordered), best, reason, tuple(finals))

    @property
    def rejected(self) -> tuple[Row, ...]:
        """Variants whose outputs differ from the original's though they must not."""
        return tuple(row for row in self.rows if row.status == "rejected")

    @property
    def failed(self) -> tuple[Row, ...]:
        """Variants that could not be run."""
        return tuple(row for row in self.rows if row.status == "failed")

    @property
    def best_row(self) -> Row | None:
        return next((row for row in self.rows if row.made.name == self.best), None)

    def to_bytes(self) -> bytes:
        """The best cubin; the original where nothing beats it."""
        row = self.best_row
        cubin = row.made.cubin if row else None
        return self.tuning.original.data if cubin is None else cubin

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: `results.json`."""
        tuning = self.tuning
        problem, choices = tuning.problem, tuning.choices
        kernel = tuning.original.code()
        return {
            "schema_version": 1,
            "tool": f"regdem {__version__}",
            "input": {"path": tuning.path, "sha256": tuning.input_sha256},
            "kernel": tuning.kernel,
            "arch": kernel.arch,
            "reference": tuning.original.name,
            "launch": {
                "sha256": tuning.launch_sha256,
                "block": list(problem.block),
                "grids": [list(launch.grid) for launch in problem.launches],
                "dynamic_shared_bytes": problem.dynamic_shared_bytes,
                "array_bytes": problem.total_bytes,
                "seeds": tuning.seeds,
            },
            "options": {
                "rounds": choices.rounds,
                "limit_s": choices.limit_s,
                "effort": choices.effort,
                "paper": choices.paper,
                "trip_count": choices.trip_count,
                "exhaustive": choices.exhaustive,
                "front_ends": choices.compares,
                "generations": choices.generations,
            },
            "gpu": self.gpu,
            "original": {
                "registers_per_thread": kernel.registers_per_thread,
                "static_shared_bytes": kernel.static_shared_bytes,
                "local_bytes": kernel.local_bytes,
                "launch_ms": round(self.opened.launch_ms, 6) if self.opened else None,
                "driver_facts": self.opened.facts if self.opened else None,
            },
            "variants": [row.to_dict() for row in self.rows],
            "final": [final.to_dict() for final in self.finals],
            "best": self.best or tuning.original.name,
            "reason": self.reason,
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def text(self) -> str:
        """The table for a terminal."""
        from regdem.tune.report import text_report

        return text_report(self)

    def _repr_html_(self) -> str:
        from regdem.tune.report import html_body

        return html_body(self)


def _order(row: Row) -> tuple[int, float, str]:
    comparison = row.comparison
    if comparison is not None:
        return 0, -comparison.speedup, row.made.name
    ranks = {"rejected": 1, "failed": 2, "unlike": 3, "prepared": 4, "excluded": 5}
    return ranks.get(row.status, 6), -row.made.typical, row.made.name
