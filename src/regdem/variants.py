"""The ways below each cliff, as jobs: made, proved and predicted, one process each.

A job is a pure function of a cubin's bytes and a `VariantSpec`, so any executor takes it. What
can't be made is an outcome with its reason, not an error: refusals are part of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass

from regdem.analysis.frame import frame_of
from regdem.binary import Cubin, Kernel
from regdem.errors import RegdemError, UsageError
from regdem.machine import Occupancy, cliff_table
from regdem.predict.model import Prediction, predict
from regdem.rewrite import KernelRewrite, Request, demote_kernel, state_of

PAPER_ORDERS = ("cfg", "static", "conflict")


@dataclass(frozen=True)
class VariantSpec:
    """One way: `kind` is "demote" (renumbers where that is enough) or "promote"."""

    name: str
    kind: str
    registers: int
    candidates: str = "live-range"
    rematerialise: bool = True


@dataclass(frozen=True)
class Outcome:
    """What became of a variant: `status` is "proved" or why there is none."""

    spec: VariantSpec
    status: str
    reason: str = ""
    done: KernelRewrite | None = None
    prediction: Prediction | None = None

    @property
    def is_proved(self) -> bool:
        """Whether it may be written."""
        return self.done is not None


@dataclass(frozen=True)
class Job:
    """A variant of one kernel of a cubin; picklable."""

    data: bytes
    kernel: str
    request: Request
    spec: VariantSpec
    grid_blocks: int | None = None
    trip_count: float = 10.0

    def run(self) -> Outcome:
        """Makes, proves and predicts it."""
        from regdem.promotion import promote_kernel

        cubin = Cubin.parse(self.data, self.kernel)
        kernel = cubin.kernel(self.kernel)
        request = Request(
            threads=self.request.threads,
            registers=self.spec.registers,
            dynamic_shared_bytes=self.request.dynamic_shared_bytes,
            candidates=self.spec.candidates,
            rematerialise=self.spec.rematerialise,
        )
        make = promote_kernel if self.spec.kind == "promote" else demote_kernel
        try:
            new, done = make(cubin, kernel, request)
            prediction = predict_kernel(
                new.kernel(self.kernel), request, self.grid_blocks, self.trip_count
            )
        except RegdemError as error:
            return Outcome(self.spec, error.code, error.message)
        return Outcome(self.spec, "proved", done=done, prediction=prediction)


def residency_of(kernel: Kernel, request: Request) -> Occupancy:
    """What stays resident of a kernel as it is."""
    return state_of(kernel, request, kernel.registers_per_thread, kernel.static_shared_bytes)


def predict_kernel(
    kernel: Kernel, request: Request, grid_blocks: int | None = None, trip_count: float = 10.0
) -> Prediction:
    """The prediction of a kernel as it is."""
    return predict(
        kernel, residency_of(kernel, request), grid_blocks=grid_blocks, trip_count=trip_count
    )


def variant_specs(kernel: Kernel, request: Request, *, paper: bool = False) -> list[VariantSpec]:
    """Every way worth trying: each cliff above the present residency, with and without spills."""
    from regdem.transform.demote import program_of

    now = residency_of(kernel, request)
    spills = bool(kernel.local_bytes) and not frame_of(program_of(kernel)).reason
    specs: list[VariantSpec] = []
    if spills:
        specs.append(VariantSpec("promote", "promote", kernel.registers_per_thread))
    cliffs = [
        cliff
        for cliff in cliff_table(now.launch)
        if cliff.active_warps > now.active_warps
        and 16 <= cliff.registers_max < kernel.registers_per_thread
    ]
    for cliff in cliffs:
        at = cliff.registers_max
        specs.append(VariantSpec(f"demote_{at}", "demote", at))
        specs.append(VariantSpec(f"demote_{at}_stored", "demote", at, rematerialise=False))
        if spills:
            specs.append(VariantSpec(f"promote_{at}", "promote", at))
        if paper:
            specs += [
                VariantSpec(f"regdem-{order}_{at}", "demote", at, order, rematerialise=False)
                for order in PAPER_ORDERS
            ]
    return specs


def run_jobs(
    jobs: Sequence[Job],
    executor: Executor | None = None,
    progress: Callable[[int, int, Outcome], None] | None = None,
) -> list[Outcome]:
    """Outcomes in the order of the jobs; `progress(done, total, outcome)` after each."""
    total = len(jobs)
    if executor is None:
        outcomes: list[Outcome] = []
        for job in jobs:
            outcomes.append(job.run())
            if progress is not None:
                progress(len(outcomes), total, outcomes[-1])
        return outcomes
    futures = [executor.submit(job.run) for job in jobs]
    for done, future in enumerate(as_completed(futures), 1):
        if progress is not None:
            progress(done, total, future.result())
    return [future.result() for future in futures]


def check_launch(kernel: Kernel, request: Request) -> None:
    """Raises `UsageError` where the launch does not fit on an SM at all."""
    if residency_of(kernel, request).active_blocks == 0:
        raise UsageError(
            f"a block of {request.threads.threads} threads does not fit on an SM",
            kernel=kernel.name,
        )
