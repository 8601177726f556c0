"""The CPU side: every base build and every rewrite of it, made, proved and predicted.

Problem: there are some ten builds of a kernel and several rewrites of each; making and proving
takes seconds to minutes, and the GPU should not wait for the last of them.

Method: bases are built (side by side, by NVIDIA's compiler), surveyed (`variants.Survey`), and the
rewrites of all of them submitted to an executor, those first whose base promises most. Each variant
is handed on as soon as it is there. Any `concurrent.futures.Executor` will do: jobs are pure
functions of the bytes they carry, and need no files of this machine.

Invariants: what is made does not depend on the executor; a job that dies (out of memory, a lost
worker) is a variant that is missing, with the reason, not the end of the tuning.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from regdem.bases import EFFORTS, Base, Source, base_builds, distinct
from regdem.errors import RegdemError
from regdem.predict.model import Prediction
from regdem.rewrite import Request
from regdem.tune.made import Made, Making, made_of, refused
from regdem.variants import Job, Outcome, Survey, Surveyed, VariantSpec, Workload


@dataclass(frozen=True)
class Order:
    """What to make: variants of `original`, and of all builds of `source` where there is one."""

    original: Base
    source: Source | None
    request: Request
    workload: Workload
    effort: str = "normal"
    paper: bool = False
    jobs: int = 1


Add = Callable[[Made], None]


def make_all(
    order: Order,
    executor: Executor | None,
    known: Mapping[str, Made],
    add: Add,
) -> None:
    """Makes all variants and calls `add` for each, in this thread, as they become ready.

    `known`: variants made by an earlier run; they are handed on without being made again. Raises
    RegdemError where the original itself can't be looked at.
    """
    bases = _bases(order)
    surveyed, unknown = _survey(order, bases, executor)
    original = surveyed[order.original.name].prediction
    for base in bases:
        if base.name != order.original.name:
            built = _of_base(base, surveyed.get(base.name), original, unknown)
            add(known.get(built.name, built))
        for alias in base.aliases:
            spec = VariantSpec(alias, "build", base.code().registers_per_thread, base=base.name)
            add(known.get(alias) or refused(spec, "same", f"the same code as {base.name}"))
    first, following, beyond = _rewrites(order, surveyed)
    for spec in beyond:
        reason = f"beyond the {EFFORTS[order.effort].rewrites} rewrites of this effort"
        add(known.get(spec.name) or refused(spec, "skipped", reason))
    by_name = {base.name: base for base in bases}
    made: dict[str, Made] = {}
    for wave in (first, following):
        to_make: list[Making] = []
        for spec in wave:
            one = known.get(spec.name) or _needless(spec, made)
            if one is None:
                job = Job(by_name[spec.base], order.request, spec, order.workload)
                to_make.append(Making(job, original))
                continue
            made[spec.name] = one
            add(one)
        for making, result in run_each(to_make, executor):
            one = _made(making, result)
            made[one.name] = one
            add(one)


def _made(making: Making, result: Any) -> Made:
    if isinstance(result, Made):
        return result
    why = f"{type(result).__name__}: {result}".rstrip(": ")
    return refused(making.job.spec, "internal_error", why)


def _needless(spec: VariantSpec, made: Mapping[str, Made]) -> Made | None:
    """A variant without recomputed values, where the one with them recomputes nothing."""
    first = made.get(spec.after)
    if not spec.after or first is None:
        return None
    if not first.is_usable:
        return refused(spec, "skipped", f"{first.name} was not made: {first.reason}")
    if not first.details.get("rematerialised"):
        return refused(spec, "same", f"{first.name} computes nothing again")
    return None


def _bases(order: Order) -> list[Base]:
    if order.source is None:
        return [order.original]
    built = base_builds(
        order.source,
        order.original.kernel,
        threads=order.request.threads,
        dynamic_shared_bytes=order.request.dynamic_shared_bytes,
        effort=order.effort,
        jobs=order.jobs,
    )
    others = [base for base in built if base.name != order.original.name]
    return distinct([order.original, *others])


def _survey(
    order: Order, bases: Sequence[Base], executor: Executor | None
) -> tuple[dict[str, Surveyed], dict[str, Exception]]:
    """What is known of each base, and why nothing is known of others."""
    effort = EFFORTS[order.effort]
    surveys = [
        Survey(
            base,
            order.request,
            order.workload,
            effort,
            order.paper and base.name == order.original.name,
        )
        for base in bases
        if base.is_built
    ]  # fmt: skip
    found: dict[str, Surveyed] = {}
    unknown: dict[str, Exception] = {}
    for survey, answer in run_each(surveys, executor):
        if isinstance(answer, Surveyed):
            found[survey.base.name] = answer
        elif survey.base.name == order.original.name:
            raise answer
        else:
            unknown[survey.base.name] = answer
    return found, unknown


def _of_base(
    base: Base, seen: Surveyed | None, original: Prediction, unknown: Mapping[str, Exception]
) -> Made:
    """A base build as a variant of its own."""
    if not base.is_built:
        return refused(VariantSpec(base.name, "build", 0), "does_not_compile", base.problem)
    if seen is None:
        error = unknown[base.name]
        code = error.code if isinstance(error, RegdemError) else "internal_error"
        return refused(VariantSpec(base.name, "build", 0), code, str(error))
    spec = VariantSpec(base.name, "build", seen.state.registers_per_thread, base=base.name)
    outcome = Outcome(spec, "built", prediction=seen.prediction, base=base, state=seen.state)
    return made_of(outcome, original, base.data)


def _rewrites(
    order: Order, surveyed: Mapping[str, Surveyed]
) -> tuple[list[VariantSpec], list[VariantSpec], list[VariantSpec]]:
    """Rewrites to make, the most promising first; those that follow from them (`spec.after`); and
    those beyond the effort's number."""

    def bound(spec: VariantSpec) -> float:
        return surveyed[spec.base].bounds.get(spec.name, 0.0)

    planned = [spec for base in surveyed.values() for spec in base.specs]
    planned.sort(key=bound)
    most = EFFORTS[order.effort].rewrites
    paper = [spec for spec in planned if spec.candidates != "live-range"]
    first = [spec for spec in planned if spec.candidates == "live-range" and not spec.after]
    kept = {spec.name for spec in first[:most]}
    following = [spec for spec in planned if spec.after in kept]
    return [*first[:most], *paper], following, first[most:]


def run_each(jobs: Sequence[Any], executor: Executor | None) -> Iterator[tuple[Any, Any]]:
    """(job, result or exception) of each, as they come; in order without an executor.

    Futures need nothing but `add_done_callback`, so executors of other libraries will do. Jobs
    that have not begun are cancelled when the caller stops.
    """
    if executor is None:
        for job in jobs:
            yield job, _result(job.run)
        return
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    futures: list[Future[Any]] = []
    try:
        for position, job in enumerate(jobs):
            try:
                future = executor.submit(job.run)
            except Exception as error:  # the executor broke: what is left can't be made
                future = Future[Any]()
                future.set_exception(error)
            futures.append(future)
            future.add_done_callback(lambda _, position=position: done.put(position))
        for _ in jobs:
            position = done.get()
            yield jobs[position], _result(futures[position].result)
    finally:
        for future in futures:
            future.cancel()


def _result(get: Callable[[], Any]) -> Any:
    try:
        return get()
    except Exception as error:
        return error
