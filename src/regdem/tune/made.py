"""A variant as tuning sees it: a name, bytes, and what is known of them without a GPU."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

from regdem.bases import COMPARED_FRONTS
from regdem.choice import gain
from regdem.predict.model import Prediction
from regdem.variants import Job, Outcome, VariantSpec

BUILD_METHOD = "compile"
"""The `method` of a build of the compiler."""


@dataclass(frozen=True)
class Made:
    """A variant, or why there is none.

    `status`: "proved" (equal to its base), "built" (the compiler's own), "same" (the bytes of
    another variant), or the code of what stands in the way, with `reason`. `predicted`: speed-up
    over the original, typical, least and most over the predictor's assumptions; None where there
    is no prediction. `details`: what a report shows (registers, shared bytes, warps, method).
    """

    name: str
    status: str
    reason: str = ""
    base: str = ""
    predicted: tuple[float, float, float] | None = None
    bound_by: str = ""
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    cubin: bytes | None = field(default=None, repr=False)

    @property
    def is_usable(self) -> bool:
        """Whether it can be measured."""
        return self.cubin is not None and self.status in ("proved", "built")

    @property
    def cubin_sha256(self) -> str | None:
        return None if self.cubin is None else hashlib.sha256(self.cubin).hexdigest()

    @property
    def may_differ(self) -> bool:
        """Whether it is (made of) a build whose outputs may differ from the default's."""
        return self.details.get("front_end") in COMPARED_FRONTS

    @property
    def typical(self) -> float:
        """Predicted speed-up for ordering; 1 where there is none."""
        return self.predicted[0] if self.predicted else 1.0

    @property
    def most(self) -> float:
        """The most that is predicted; without a prediction anything is possible."""
        return self.predicted[2] if self.predicted else math.inf

    def to_dict(self) -> dict[str, Any]:
        """All but the bytes, which are named by their hash."""
        return {
            "name": self.name,
            "status": self.status,
            "reason": self.reason,
            "base": self.base,
            "predicted": list(self.predicted) if self.predicted else None,
            "bound_by": self.bound_by,
            "details": self.details,
            "cubin_sha256": self.cubin_sha256,
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any], cubin: bytes | None) -> Made:
        """The inverse, given the bytes."""
        fields: dict[str, Any] = {k: v for k, v in value.items() if k != "cubin_sha256"}
        if fields["predicted"] is not None:
            fields["predicted"] = tuple(fields["predicted"])
        return cls(**fields, cubin=cubin)


@dataclass(frozen=True)
class Making:
    """One rewrite to be made; picklable, so that any executor runs it."""

    job: Job
    original: Prediction

    @property
    def name(self) -> str:
        return self.job.spec.name

    def run(self) -> Made:
        """The variant. What regdem refuses is its status; other errors are raised."""
        outcome = self.job.run()
        if outcome.done is None or not outcome.is_usable:
            return refused(outcome.spec, outcome.status, outcome.reason)
        cubin = self.job.base.cubin().with_kernel(self.job.base.kernel, outcome.done.rewrite.edit)
        return made_of(outcome, self.original, cubin.to_bytes())


def refused(spec: VariantSpec, status: str, reason: str) -> Made:
    """A variant that there is not."""
    return Made(
        spec.name, status, reason, spec.base, details={"registers_per_thread": spec.registers}
    )


def made_of(outcome: Outcome, original: Prediction, cubin: bytes) -> Made:
    """A usable outcome, its gain over the original, and its bytes."""
    details: dict[str, Any] = {"registers_per_thread": outcome.spec.registers}
    if outcome.state is not None:
        details = {
            "registers_per_thread": outcome.state.registers_per_thread,
            "static_shared_bytes": outcome.state.static_shared_bytes,
            "active_warps": outcome.state.active_warps,
            "occupancy_pct": outcome.state.occupancy_pct,
        }
    details["method"] = outcome.done.rewrite.method if outcome.done else BUILD_METHOD
    if outcome.base is not None and outcome.base.front:
        details["front_end"] = outcome.base.front
    if outcome.done is not None:
        details["rematerialised"] = len(outcome.done.rewrite.rematerialised)
        details["checks"] = dict(outcome.done.verdict.checks)
    predicted = gain(original, outcome.prediction) if outcome.prediction else None
    if predicted is not None and not all(map(math.isfinite, predicted)):
        predicted = None
    bound_by = outcome.prediction.bound_by if outcome.prediction else ""
    return Made(
        outcome.spec.name,
        outcome.status,
        outcome.reason,
        outcome.spec.base,
        predicted,
        bound_by,
        details,
        cubin,
    )
