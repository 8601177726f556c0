"""One kernel's variants, and which of them is worth taking.

The rule is about loss as much as gain: the best variant is taken if it is predicted at least
`LEAST_GAIN` times as fast typically (`LEAST_OF_REWRITE` where it is the reference rewritten, which
keeps its schedule; `LEAST_OF_ORDER` where only registers and the order are new, unless much of the
code is fetched from L2), and at the lower end of the interval not less than `WORST_GAIN` times.
With fewer warps resident a variant must gain more, `FEWER_WARPS` per logarithm of the ratio: the
model's error, measured with the same code at several residencies. Otherwise the reference stays,
with the reason. The interval spans the assumptions about locality and the model's own error, which
alone is 8 %: a variant that is no slower under any assumption passes. `bench/judge.py`, which
judges by the rule of this file, says what it loses and wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regdem.predict.model import Prediction, speedup
from regdem.rewrite import State
from regdem.transform.candidates import NO_ORDER
from regdem.variants import Outcome

LEAST_GAIN = 1.02
LEAST_OF_REWRITE = 1.01
LEAST_OF_ORDER = 1.0
WORST_GAIN = 0.89
FEWER_WARPS = 0.1
_FETCHED_SHARE = 0.1


@dataclass(frozen=True)
class KernelChoice:
    """One kernel's variants and the choice: an outcome, or None for the reference, with the reason.

    `reference`: "input", or "default" for a source that was compiled here.
    """

    name: str
    before: State
    prediction: Prediction
    outcomes: tuple[Outcome, ...]
    chosen: Outcome | None
    reason: str
    threads: int
    reference: str = "input"

    def gain(self, outcome: Outcome) -> tuple[float, float, float]:
        """Predicted speed-up over the reference: typical, least and most over the assumptions."""
        assert outcome.prediction is not None
        return gain(
            self.prediction, outcome.prediction, is_rewrite=rewrites(outcome, self.reference)
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, one entry of `kernels`."""
        before = {**self.before.to_dict(), "predicted_cycles": _cycles(self.prediction)}
        body: dict[str, Any] = {
            "name": self.name,
            "threads_per_block": self.threads,
            "before": before,
            "after": before,
            "demoted": [],
            "rematerialised": [],
            "uniform": [],
            "folded": [],
            "inserted_instructions": 0,
            "removed_instructions": 0,
        }
        chosen = self.chosen
        if chosen is not None and chosen.state is not None:
            if chosen.done is not None:
                done = chosen.done.to_dict()
                body |= {key: value for key, value in done.items() if key != "before"}
            body["before"] = before
            body["after"] = {
                **chosen.state.to_dict(),
                "predicted_cycles": _cycles(chosen.prediction),
            }
        return body | {
            "variants": [self._variant(outcome) for outcome in self.outcomes],
            "reference": self.reference,
            "chosen": chosen.spec.name if chosen else self.reference,
            "base": chosen.spec.base if chosen else self.reference,
            "reason": self.reason,
            "bound_by": self.prediction.bound_by,
        }

    def _variant(self, outcome: Outcome) -> dict[str, Any]:
        spec = outcome.spec
        entry: dict[str, Any] = {
            "name": spec.name,
            "status": outcome.status,
            "base": spec.base,
            "source": "nvcc" if spec.kind == "build" else "regdem",
        }
        if not outcome.is_usable or outcome.state is None:
            return entry | {"registers_per_thread": spec.registers, "reason": outcome.reason}
        after = outcome.state
        entry["method"] = outcome.done.rewrite.method if outcome.done else "compile"
        entry |= {
            "registers_per_thread": after.registers_per_thread,
            "shared_bytes_per_block": after.static_shared_bytes,
            "active_warps": after.active_warps,
            "occupancy_pct": after.occupancy_pct,
            "predicted_cycles": _cycles(outcome.prediction),
        }
        typical, least, most = self.gain(outcome)
        if math.isfinite(typical):
            entry["predicted_speedup"] = round(typical, 3)
            entry["predicted_speedup_interval"] = [round(least, 3), round(most, 3)]
        entry["bound_by"] = outcome.prediction.bound_by if outcome.prediction else ""
        if outcome.done is not None:
            entry["checks"] = dict(outcome.done.verdict.checks)
        return entry

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{o.spec.name}</td><td>{o.status}</td><td>"
            + (f"{self.gain(o)[0]:.3f}" if o.is_usable else o.reason)
            + "</td></tr>"
            for o in self.outcomes
        )
        return f"<table><tr><th>variant</th><th>status</th><th>gain</th></tr>{rows}</table>"


def _cycles(prediction: Prediction | None) -> float | None:
    if prediction is None or prediction.active_warps == 0:
        return None
    return round(prediction.predicted_cycles, 1)


def gain(
    before: Prediction, after: Prediction, *, is_rewrite: bool = False
) -> tuple[float, float, float]:
    """Predicted speed-up: typical, least and most; see `predict.model.speedup`."""
    return speedup(before, after, is_rewrite=is_rewrite)


def rewrites(outcome: Outcome, reference: str) -> bool:
    """Whether a variant is the reference's own code, rewritten."""
    return outcome.spec.kind != "build" and outcome.spec.base == reference


def least_gain(before: Prediction, after: Prediction, *, is_rewrite: bool, is_order: bool) -> float:
    """What a variant must be predicted to gain typically.

    `is_rewrite`: of the reference, not of another build; `is_order`: with nothing put in, so that
    at the same residency there is little to lose.
    """
    fewer = before.active_warps / after.active_warps if after.active_warps else 1.0
    least = LEAST_OF_REWRITE if is_rewrite else LEAST_GAIN
    if is_rewrite and is_order and fewer <= 1.0:
        # Where instructions come from L2, what an order does to waits for data tells little: 1.01
        # predicted for one of `cardiac_ventricle` was 0.95 on an H200.
        least = LEAST_GAIN if after.fetched_from_l2 > _FETCHED_SHARE else LEAST_OF_ORDER
    return least * max(1.0, fewer) ** FEWER_WARPS


def _least_gain(outcome: Outcome, reference: str, before: Prediction) -> float:
    spec = outcome.spec
    return least_gain(
        before,
        outcome.prediction or before,
        is_rewrite=rewrites(outcome, reference),
        is_order=spec.kind == "schedule" or spec.candidates == NO_ORDER,
    )


def best_of(
    gains: Sequence[tuple[float, float, float]], floors: Sequence[float] = ()
) -> int | None:
    """The place of the (typical, least, most) speed-up to take, the first of equals; None: the
    reference stays. `floors`: what each must gain typically; default: `LEAST_GAIN`."""
    floors = floors or [LEAST_GAIN] * len(gains)
    worth = [
        k
        for k, ((typical, least, _), floor) in enumerate(zip(gains, floors, strict=True))
        if least >= WORST_GAIN and typical >= floor
    ]
    return max(worth, key=lambda k: gains[k][0], default=None)


def choose(
    name: str,
    threads: int,
    before: State,
    prediction: Prediction,
    outcomes: Sequence[Outcome],
    *,
    reference: str = "input",
) -> KernelChoice:
    """Takes the best usable variant, or the reference with the reason."""
    gains = {
        id(o): gain(prediction, o.prediction, is_rewrite=rewrites(o, reference))
        for o in outcomes
        if o.is_usable and o.prediction is not None
    }
    usable = [o for o in outcomes if id(o) in gains]
    ranked = sorted(usable, key=lambda o: o.prediction.predicted_cycles if o.prediction else 0.0)
    floors = [_least_gain(o, reference, prediction) for o in ranked]
    place = best_of([gains[id(o)] for o in ranked], floors)
    chosen = None if place is None else ranked[place]
    if chosen is not None:
        typical = gains[id(chosen)][0]
        reason = (
            f"predicted {typical:.2f} times as fast"
            if math.isfinite(typical)
            else f"the {reference} does not fit on an SM with {threads} threads"
        )
    else:
        reason = _why_not(outcomes, usable, gains, prediction, reference)
    return KernelChoice(
        name, before, prediction, tuple(outcomes), chosen, reason, threads, reference
    )


def _why_not(
    outcomes: Sequence[Outcome],
    usable: Sequence[Outcome],
    gains: dict[int, tuple[float, float, float]],
    prediction: Prediction,
    reference: str,
) -> str:
    if not outcomes:
        return "registers don't limit residency and there are no spills to promote"
    if not usable:
        first = next((o for o in outcomes if o.status not in ("skipped", "same")), outcomes[0])
        return f"no variant could be made: {first.reason}"
    best = max(usable, key=lambda o: gains[id(o)][0])
    typical, least, _ = gains[id(best)]
    if typical < _least_gain(best, reference, prediction):
        return (
            f"the best variant, {best.spec.name}, is predicted {typical:.2f} times as fast; "
            f"the kernel is bound by {prediction.bound_by}"
        )
    return (
        f"{best.spec.name} is predicted {typical:.2f} times as fast, but {least:.2f} times if "
        "memory accesses behave otherwise; measure it (--all-variants)"
    )
