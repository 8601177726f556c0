"""The optimiser: every way below the cliff, and the one that is predicted to be fastest.

All variants of all kernels of a cubin are made and proved (`variants`), predicted under three
assumptions about locality (`predict`), and the best is taken if it is worth it: at least 2 % faster
in the typical case and at most 3 % slower in any. Otherwise the kernel stays as it is, and the
answer says what the best variant would have brought.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from regdem.binary import Cubin, Kernel
from regdem.errors import UnsupportedError
from regdem.isa.table import supported_architectures
from regdem.predict.model import Prediction
from regdem.rewrite import Request, State
from regdem.variants import (
    Job,
    Outcome,
    check_launch,
    predict_kernel,
    residency_of,
    run_jobs,
    variant_specs,
)

LEAST_GAIN = 1.02
WORST_GAIN = 0.97


@dataclass(frozen=True)
class KernelChoice:
    """One kernel's variants and the choice: an outcome, or None for the input, with the reason."""

    name: str
    before: State
    prediction: Prediction
    outcomes: tuple[Outcome, ...]
    chosen: Outcome | None
    reason: str
    threads: int

    def gain(self, outcome: Outcome) -> tuple[float, float, float]:
        """Predicted speed-up over the input: typical, least and most over the assumptions."""
        assert outcome.prediction is not None
        return gain(self.prediction, outcome.prediction)

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
            "inserted_instructions": 0,
            "removed_instructions": 0,
        }
        if self.chosen is not None and self.chosen.done is not None:
            done = self.chosen.done.to_dict()
            body |= {key: value for key, value in done.items() if key != "before"}
            body["before"] = before
            body["after"] = {
                **done["after"],
                "predicted_cycles": _cycles(self.chosen.prediction),
            }
        return body | {
            "variants": [self._variant(outcome) for outcome in self.outcomes],
            "chosen": self.chosen.spec.name if self.chosen else "input",
            "reason": self.reason,
            "bound_by": self.prediction.bound_by,
        }

    def _variant(self, outcome: Outcome) -> dict[str, Any]:
        spec = outcome.spec
        entry: dict[str, Any] = {"name": spec.name, "status": outcome.status}
        if outcome.done is None:
            return entry | {"registers_per_thread": spec.registers, "reason": outcome.reason}
        after = outcome.done.after
        typical, least, most = self.gain(outcome)
        return entry | {
            "method": outcome.done.rewrite.method,
            "registers_per_thread": after.registers_per_thread,
            "shared_bytes_per_block": after.static_shared_bytes,
            "occupancy_pct": after.occupancy_pct,
            "predicted_cycles": _cycles(outcome.prediction),
            "predicted_speedup": round(typical, 3),
            "predicted_speedup_interval": [round(least, 3), round(most, 3)],
            "bound_by": outcome.prediction.bound_by if outcome.prediction else "",
        }

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{o.spec.name}</td><td>{o.status}</td><td>"
            + (f"{self.gain(o)[0]:.3f}" if o.is_proved else o.reason)
            + "</td></tr>"
            for o in self.outcomes
        )
        return f"<table><tr><th>variant</th><th>status</th><th>gain</th></tr>{rows}</table>"


def _cycles(prediction: Prediction | None) -> float | None:
    if prediction is None or prediction.active_warps == 0:
        return None
    return round(prediction.predicted_cycles, 1)


def gain(before: Prediction, after: Prediction) -> tuple[float, float, float]:
    """Predicted speed-up: typical, least and most over the assumptions about locality."""
    each = [
        before.by_scenario[name] / cycles if cycles else 1.0
        for name, cycles in after.by_scenario.items()
    ]
    typical = before.predicted_cycles / after.predicted_cycles if each else 0.0
    return typical, min(each, default=0.0), max(each, default=0.0)


@dataclass(frozen=True)
class Options:
    """What to try. `grid_blocks`: of the launch, if known. `trip_count`: per loop level."""

    grid_blocks: int | None = None
    trip_count: float = 10.0
    paper: bool = False


Progress = Callable[[int, int, Outcome], None]


def optimize_cubin(
    cubin: Cubin,
    kernels: Sequence[Kernel],
    requests: Sequence[Request],
    options: Options | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> tuple[Cubin, list[KernelChoice]]:
    """The cubin with the best variant of each kernel, and how each was chosen.

    `requests[k]` is the launch of `kernels[k]`. Raises `UnsupportedError` for an architecture that
    can't be rewritten, `UsageError` for a launch that does not fit.
    """
    options = options or Options()
    data = cubin.to_bytes()
    jobs: list[Job] = []
    spans: list[range] = []
    for kernel, request in zip(kernels, requests, strict=True):
        if kernel.arch.rstrip("af") not in supported_architectures():
            raise UnsupportedError(
                f"{kernel.arch} code can be explained but not rewritten yet",
                code="unsupported_architecture",
                hint=f"rewrites work for {', '.join(supported_architectures())}",
                kernel=kernel.name,
            )
        check_launch(kernel, request)
        first = len(jobs)
        jobs += [
            Job(data, kernel.name, request, spec, options.grid_blocks, options.trip_count)
            for spec in variant_specs(kernel, request, paper=options.paper)
        ]
        spans.append(range(first, len(jobs)))
    outcomes = run_jobs(jobs, executor, progress)
    choices: list[KernelChoice] = []
    for kernel, request, span in zip(kernels, requests, spans, strict=True):
        before = predict_kernel(kernel, request, options.grid_blocks, options.trip_count)
        choice = choose(kernel, request, before, [outcomes[k] for k in span])
        if choice.chosen is not None and choice.chosen.done is not None:
            cubin = cubin.with_kernel(kernel.name, choice.chosen.done.rewrite.edit)
        choices.append(choice)
    return cubin, choices


def choose(
    kernel: Kernel, request: Request, before: Prediction, outcomes: Sequence[Outcome]
) -> KernelChoice:
    """Takes the best proved variant, or the input with the reason."""
    at = residency_of(kernel, request)
    state = State(
        kernel.registers_per_thread,
        kernel.static_shared_bytes,
        at.active_blocks,
        at.active_warps,
        at.occupancy_pct,
    )
    proved = [o for o in outcomes if o.prediction is not None]
    gains = {id(o): gain(before, o.prediction) for o in proved if o.prediction is not None}
    safe = [o for o in proved if gains[id(o)][1] >= WORST_GAIN]
    chosen = max(safe, key=lambda o: gains[id(o)][0], default=None)
    if chosen is not None and gains[id(chosen)][0] >= LEAST_GAIN:
        reason = f"predicted {gains[id(chosen)][0]:.2f} times as fast"
    else:
        chosen = None
        reason = _why_not(at.limiters, outcomes, proved, gains, before)
    return KernelChoice(
        kernel.name,
        state,
        before,
        tuple(outcomes),
        chosen,
        reason,
        request.threads.threads,
    )


def _why_not(
    limiters: Sequence[str],
    outcomes: Sequence[Outcome],
    proved: Sequence[Outcome],
    gains: dict[int, tuple[float, float, float]],
    before: Prediction,
) -> str:
    if not outcomes:
        limit = " and ".join(limiters)
        return f"registers don't limit residency ({limit} does) and there are no spills to promote"
    if not proved:
        return f"no variant could be made: {outcomes[0].reason}"
    best = max(proved, key=lambda o: gains[id(o)][0])
    typical, least, _ = gains[id(best)]
    if typical < LEAST_GAIN:
        return (
            f"the best variant, {best.spec.name}, is predicted {typical:.2f} times as fast; "
            f"the kernel is bound by {before.bound_by}"
        )
    return (
        f"{best.spec.name} is predicted {typical:.2f} times as fast, but {least:.2f} times if "
        "memory accesses behave otherwise; measure it (--all-variants)"
    )
