"""The ways below each cliff, as jobs: made, proved and predicted, one process each.

A job is a pure function of a cubin's bytes and a `VariantSpec`, so any executor takes it. What
can't be made is an outcome with its reason, not an error: refusals are part of the answer.

A base (`bases.py`) is looked at first (`Survey`): its own prediction, and for each cliff below it
what its code would need if the residency there came for nothing. Demotion only adds to that, so it
is a bound: a rewrite that could not win even so is not made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from regdem.analysis.frame import frame_of
from regdem.bases import DEFAULT, EFFORTS, INPUT, Base, Effort
from regdem.binary import Cubin, Kernel
from regdem.errors import RegdemError, UsageError
from regdem.machine import Occupancy, cliff_table
from regdem.patience import OutOfTime, at_most
from regdem.predict.model import Prediction, predict
from regdem.predict.profile import Corrections
from regdem.rewrite import KernelRewrite, Request, State, demote_kernel, state_of
from regdem.transform.candidates import NO_ORDER
from regdem.transform.paper import PASSES, combinations, letters

PAPER_ORDERS = ("cfg", "static", "conflict")
_RECOVERIES = 2
"""Register counts above a kernel's own, at its residency and below, that spills come back to."""
SCHEDULED_BOUND = 0.85
"""What a new order may save."""
_WIDER_BOUND = 0.3
"""The same for an order with more registers at a lower residency (`selective_state`)."""
_WIDER_ORDERS = 4
_MOST_REGISTERS, _LOCAL_SLOTS = 255, 512
"""A kernel at the limit of registers may need more slots than fit into shared memory: its demotion
to the next cliff is tried with the coldest slots in local memory as well (`cardiac_ventricle`)."""
_LEAST_TARGET = 16
"""Registers below which nothing is tried."""
_PROMOTED_BOUND = 0.9
"""What promotion may save beyond its bound: the spills all in L1."""


@dataclass(frozen=True)
class VariantSpec:
    """One way: `kind` is "build" (the base as it is), "demote" (renumbers where that is enough),
    "promote" (and demotes below its own count) or "schedule" (a new order within blocks). `base`:
    the build it starts from. `after`: a variant that is made first; without recomputed values in
    that one, this is the same, unless it is `scheduled`: given a new order as well.
    `paper_passes`: of the paper's orders (`transform/paper.py`). `local_slots`: how many slots may
    lie in local memory where shared memory holds no more.
    """

    name: str
    kind: str
    registers: int
    candidates: str = "live-range"
    rematerialise: bool = True
    base: str = INPUT
    after: str = ""
    scheduled: bool = False
    paper_passes: frozenset[str] = frozenset()
    local_slots: int = 0


@dataclass(frozen=True)
class Outcome:
    """What became of a variant.

    `status`: "built" (the compiler's, nothing to prove), "proved" (equal to its base), "same" (the
    same code as an earlier variant), "skipped" (not made: it could not win, or there was no time),
    "out_of_time" (given up), or the code of what stands in the way; `reason` says more.
    """

    spec: VariantSpec
    status: str
    reason: str = ""
    done: KernelRewrite | None = None
    prediction: Prediction | None = None
    base: Base | None = None
    state: State | None = None
    """What it needs of an SM and what stays resident, where there is code."""
    cpu_s: float = 0.0
    """CPU seconds that making it took."""

    @property
    def is_proved(self) -> bool:
        """Whether it is a rewrite that may be written."""
        return self.status == "proved"

    @property
    def is_usable(self) -> bool:
        """Whether it may be chosen: proved, or the compiler's own."""
        return self.status in ("proved", "built")

    def cubin(self) -> Cubin:
        """The cubin of its base with this variant in it. Only of usable outcomes."""
        assert self.base is not None
        cubin = self.base.cubin()
        return cubin if self.done is None else cubin.with_kernel(
            self.base.kernel, self.done.rewrite.edit
        )  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """What is known of how a kernel is run; see `predict`. `correct`: learned from a profile."""

    grid_blocks: int | None = None
    trip_count: float = 10.0
    correct: Corrections | None = None


@dataclass(frozen=True)
class Surveyed:
    """A base looked at: its state, its prediction, planned rewrites, and the least cycles that each
    of them (by name) could be predicted to need."""

    state: State
    prediction: Prediction
    specs: tuple[VariantSpec, ...] = ()
    bounds: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Survey:
    """Predicts a base, plans rewrites of it, and bounds them; picklable."""

    base: Base
    request: Request
    workload: Workload
    effort: Effort
    paper: bool = False

    def run(self) -> Surveyed | RegdemError:
        """Never raises what a kernel can cause."""
        try:
            return self._look()
        except RegdemError as error:
            return error

    def _look(self) -> Surveyed:
        kernel = self.base.code()
        prediction = _predict(kernel, self.request, self.workload)
        state = state_of_kernel(kernel, self.request)
        specs = variant_specs(
            kernel, self.request, paper=self.paper, base=self.base, effort=self.effort
        )
        bounds = (
            {spec.name: self._bound(kernel, spec) for spec in specs} if self.effort.bound else {}
        )
        return Surveyed(state, prediction, tuple(specs), bounds)

    def _bound(self, kernel: Kernel, spec: VariantSpec) -> float:
        """The base's own code, with the residency of the rewrite for nothing."""
        there = state_of(kernel, self.request, spec.registers, kernel.static_shared_bytes)
        is_promoted = spec.kind == "promote"
        is_scheduled = spec.kind == "schedule" or spec.candidates == NO_ORDER
        code = replace(kernel, local_bytes=0) if is_promoted else kernel
        is_wider = is_scheduled and spec.registers > kernel.registers_per_thread
        cycles = predict(
            code,
            there,
            grid_blocks=self.workload.grid_blocks,
            trip_count=self.workload.trip_count,
            correct=self.workload.correct,
        ).predicted_cycles
        if is_promoted:
            return cycles * _PROMOTED_BOUND
        if is_scheduled:
            return cycles * (_WIDER_BOUND if is_wider else SCHEDULED_BOUND)
        return cycles


@dataclass(frozen=True)
class Job:
    """A rewrite of one base; picklable. `most_cpu_s`: when it is given up; 0: never.

    `first`: the proved rewrite of `spec.after`, if it is there: a `scheduled` one goes on from it.
    """

    base: Base
    request: Request
    spec: VariantSpec
    workload: Workload = Workload()
    most_cpu_s: float = 0.0
    first: KernelRewrite | None = None

    def run(self) -> Outcome:
        """Makes, proves and predicts it."""
        start = time.process_time()
        try:
            with at_most(self.most_cpu_s):
                outcome = self._made()
        except OutOfTime:
            reason = f"not made within {self.most_cpu_s:.3g} s of CPU time"
            outcome = Outcome(self.spec, "out_of_time", reason)
        return replace(outcome, cpu_s=time.process_time() - start)

    def _made(self) -> Outcome:
        from regdem.promotion import promote_kernel
        from regdem.rescheduling import reschedule_kernel, scheduled

        cubin = self.base.cubin()
        kernel = cubin.kernel(self.base.kernel)
        request = replace(
            self.request,
            registers=self.spec.registers,
            blocks=None,
            candidates=self.spec.candidates,
            rematerialise=self.spec.rematerialise,
            paper_passes=self.spec.paper_passes,
            local_slots=self.spec.local_slots,
        )
        makers = {"promote": promote_kernel, "schedule": reschedule_kernel}
        make = makers.get(self.spec.kind, demote_kernel)
        try:
            if self.spec.scheduled and self.first is not None:
                new, done = cubin.with_kernel(kernel.name, self.first.rewrite.edit), self.first
            else:
                new, done = make(cubin, kernel, request)
            if self.spec.scheduled:
                anywhere = replace(request, registers=None)  # within the same residency
                new, done = scheduled(cubin, kernel, anywhere, (new, done))
            prediction = _predict(new.kernel(self.base.kernel), request, self.workload)
        except RegdemError as error:
            return Outcome(self.spec, error.code, error.message)
        except Exception as error:
            # A bug of regdem in one variant must not cost the others.
            return Outcome(self.spec, "internal_error", f"{type(error).__name__}: {error}")
        return Outcome(self.spec, "proved", done=done, prediction=prediction, state=done.after)


def _predict(kernel: Kernel, request: Request, workload: Workload) -> Prediction:
    return predict_kernel(
        kernel, request, workload.grid_blocks, workload.trip_count, workload.correct
    )


def residency_of(kernel: Kernel, request: Request) -> Occupancy:
    """What stays resident of a kernel as it is."""
    return state_of(kernel, request, kernel.registers_per_thread, kernel.static_shared_bytes)


def state_of_kernel(kernel: Kernel, request: Request) -> State:
    """The same, as a row of a report."""
    at = residency_of(kernel, request)
    return State(
        kernel.registers_per_thread,
        kernel.static_shared_bytes,
        at.active_blocks,
        at.active_warps,
        at.occupancy_pct,
    )


def predict_kernel(
    kernel: Kernel,
    request: Request,
    grid_blocks: int | None = None,
    trip_count: float = 10.0,
    correct: Corrections | None = None,
) -> Prediction:
    """The prediction of a kernel as it is. `correct`: what `learn` made of a profile."""
    return predict(
        kernel,
        residency_of(kernel, request),
        grid_blocks=grid_blocks,
        trip_count=trip_count,
        correct=correct,
    )


def variant_specs(
    kernel: Kernel,
    request: Request,
    *,
    paper: bool = False,
    base: Base | None = None,
    effort: Effort | str = "normal",
) -> list[VariantSpec]:
    """Rewrites of a kernel worth trying: promotion of its spills, also back into registers at a
    lower residency, and each cliff above its present one, with and without recomputed values and
    promotion; each of these, and the kernel itself, in a new order as well.

    `paper` adds the RegDem paper's variants. Specs are named after `base`, if it is given.
    """
    from regdem.rescheduling import most_registers
    from regdem.transform.demoted import program_of

    how = EFFORTS[effort] if isinstance(effort, str) else effort
    origin = base or Base(INPUT, kernel.name, b"", "input")

    def spec(name: str, kind: str, registers: int, **more: object) -> VariantSpec:
        made = VariantSpec(origin.variant(name), kind, registers, base=origin.name)
        return replace(made, **more)

    now = residency_of(kernel, request)
    is_original = origin.name in (INPUT, DEFAULT)
    # Counts at which residency falls, the next first: room for spills, or for loads in flight.
    wider = sorted(
        cliff.registers_max
        for cliff in cliff_table(now.launch)
        if cliff.active_warps <= now.active_warps
        and cliff.registers_max > kernel.registers_per_thread
    )
    spills = bool(kernel.local_bytes) and not frame_of(program_of(kernel)).reason
    specs: list[VariantSpec] = []
    if spills:
        specs.append(spec("promote", "promote", kernel.registers_per_thread))
        if is_original:
            specs += [spec(f"recover_{at}", "promote", at) for at in wider[:_RECOVERIES]]
    cliffs = [
        cliff.registers_max
        for cliff in cliff_table(now.launch)
        if cliff.active_warps > now.active_warps
        and _LEAST_TARGET <= cliff.registers_max < kernel.registers_per_thread
    ]
    steps = how.cliffs + is_original
    for at in cliffs[:steps]:
        demoted = spec(f"demote_{at}", "demote", at)
        specs.append(demoted)
        specs.append(
            spec(f"demote_{at}_stored", "demote", at, rematerialise=False, after=demoted.name)
        )
        if is_original and kernel.registers_per_thread >= _MOST_REGISTERS and at == cliffs[0]:
            local = spec(f"demote_{at}_local", "demote", at, local_slots=_LOCAL_SLOTS)
            specs.append(local)
        if spills:
            specs.append(spec(f"promote_{at}", "promote", at))
        if paper and at == cliffs[0]:
            specs += [
                spec(
                    paper_name(order, passes, at), "demote", at,
                    candidates=order, rematerialise=False, paper_passes=passes,
                )
                for order in PAPER_ORDERS
                for passes in combinations()
            ]  # fmt: skip
    own = kernel.registers_per_thread
    if own >= _LEAST_TARGET and (how.reschedules or is_original):
        specs.append(spec("renumber", "demote", own, candidates=NO_ORDER, rematerialise=False))
    if request.reschedule and (how.reschedules or is_original):
        room = most_registers(kernel, request)
        specs.append(spec("schedule", "schedule", room))
        if is_original:
            following = [at for at in wider if at > room][:_WIDER_ORDERS]
            specs += [spec(f"schedule_{at}", "schedule", at) for at in following]
    if how.reschedules and request.reschedule:
        plain = [
            each
            for each in specs
            if each.kind != "schedule" and each.candidates == "live-range" and not each.after
        ]
        specs += [
            replace(each, name=f"{each.name}_scheduled", after=each.name, scheduled=True)
            for each in plain
        ]
    return specs


def paper_name(order: str, passes: frozenset[str], registers: int) -> str:
    """`regdem-cfg_40` for the complete method, else with its passes: `regdem-cfg-es_40`."""
    some = "" if len(passes) == len(PASSES) else f"-{letters(passes)}"
    return f"regdem-{order}{some}_{registers}"


Answer_co = TypeVar("Answer_co", covariant=True)
Answer = TypeVar("Answer")


class Runnable(Protocol[Answer_co]):
    """What an executor runs."""

    def run(self) -> Answer_co:
        """The answer."""
        ...


def run_jobs(
    jobs: Sequence[Runnable[Answer]],
    executor: Executor | None = None,
    progress: Callable[[int, Answer], None] | None = None,
    lengths: Sequence[float] = (),
) -> list[Answer]:
    """Answers in the order of the jobs; `progress(position, answer)` after each, as they come.

    `lengths`: about how long each takes, beside others. The longest begin first, so that all
    processes end together.
    """
    if executor is None:
        answers: list[Answer] = []
        for position, job in enumerate(jobs):
            answers.append(job.run())
            if progress is not None:
                progress(position, answers[-1])
        return answers
    order = sorted(range(len(jobs)), key=lambda k: -lengths[k]) if lengths else range(len(jobs))
    position_of = {executor.submit(jobs[k].run): k for k in order}
    futures = sorted(position_of, key=position_of.__getitem__)
    try:
        for future in as_completed(futures):
            if progress is not None:
                progress(position_of[future], future.result())
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def check_launch(kernel: Kernel, request: Request) -> None:
    """Raises `UsageError` where the launch does not fit on an SM at all."""
    if residency_of(kernel, request).active_blocks == 0:
        raise UsageError(
            f"a block of {request.threads.threads} threads does not fit on an SM",
            kernel=kernel.name,
        )
