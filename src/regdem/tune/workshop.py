"""The CPU side: every base build and every rewrite of it, made, proved and predicted.

Problem: there are some ten builds of a kernel and several rewrites of each; making and proving
takes seconds to minutes, and the GPU should not wait for the last of them.

Method: bases are built (side by side, by NVIDIA's compiler), surveyed (`variants.Survey`), and the
rewrites of all of them submitted to an executor, those first whose base promises most. While the
GPU measures those, the builds of further front ends are made; what turns out fastest among all
builds is then rewritten as well. Each variant is handed on as soon as it is there. Any
`concurrent.futures.Executor` will do: jobs are pure functions of the bytes they carry, and need no
files of this machine.

Invariants: what is made does not depend on the executor; a job that dies (out of memory, a lost
worker) is a variant that is missing, with the reason, not the end of the tuning.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from regdem.bases import EFFORTS, Base, Source, base_builds, compared_builds, distinct
from regdem.errors import RegdemError
from regdem.predict.model import Prediction
from regdem.rewrite import Request
from regdem.tune.made import Made, Making, made_of, refused
from regdem.variants import Job, Outcome, Survey, Surveyed, VariantSpec, Workload


@dataclass(frozen=True)
class Order:
    """What to make: variants of `original`, and of all builds of `source` where there is one.

    `compares`: builds of front ends that may change the last bits are made, too.
    """

    original: Base
    source: Source | None
    request: Request
    workload: Workload
    effort: str = "normal"
    paper: bool = False
    jobs: int = 1
    compares: bool = False


Add = Callable[[Made], None]
FASTEST = 4
"""How many of the builds measured as fastest are rewritten beyond what was planned."""


def make_all(
    order: Order,
    executor: Executor | None,
    known: Mapping[str, Made],
    add: Add,
    fastest: Callable[[int], Sequence[str]] | None = None,
) -> None:
    """Makes all variants and calls `add` for each, in this thread, as they become ready.

    `known`: variants made by an earlier run; they are handed on without being made again.
    `fastest(n)`: the names of the n builds measured as fastest so far; None where nothing is
    measured. Raises RegdemError where the original itself can't be looked at.
    """
    shop = _Shop(order, executor, known, add)
    bases = _bases(order)
    shop.take(bases)
    planned = shop.planned()
    most = EFFORTS[order.effort].rewrites
    shop.rewrite([*planned[:most], *shop.paper()])
    if order.compares and order.source is not None:
        shop.take(_compared(order, order.source, bases))
    if order.effort == "exhaustive":
        shop.rewrite(shop.planned())
    elif fastest is not None:
        best = set(fastest(FASTEST))
        shop.rewrite([spec for spec in shop.planned() if spec.base in best][:most])
    reason = f"beyond the {most} rewrites of this effort, and no rewrite of the fastest builds"
    for spec in shop.planned():
        add(known.get(spec.name) or refused(spec, "skipped", reason))


class _Shop:
    """The bases there are, what is known of them, and the rewrites made so far."""

    def __init__(
        self, order: Order, executor: Executor | None, known: Mapping[str, Made], add: Add
    ) -> None:
        self._order, self._executor, self._known, self._add = order, executor, known, add
        self._bases: dict[str, Base] = {}
        self._surveyed: dict[str, Surveyed] = {}
        self._begun: set[str] = set()

    @property
    def _original(self) -> Prediction:
        return self._surveyed[self._order.original.name].prediction

    def take(self, bases: Sequence[Base]) -> None:
        """Surveys bases and hands them on as variants of their own."""
        surveyed, unknown = _survey(self._order, bases, self._executor)
        self._surveyed |= surveyed
        for base in bases:
            self._bases[base.name] = base
            if base.name != self._order.original.name:
                built = _of_base(base, surveyed.get(base.name), self._original, unknown)
                self._add(self._known.get(built.name, built))
            for alias in base.aliases:
                registers = base.code().registers_per_thread
                spec = VariantSpec(alias, "build", registers, base=base.name)
                same = refused(spec, "same", f"the same code as {base.name}")
                self._add(self._known.get(alias) or same)

    def planned(self) -> list[VariantSpec]:
        """Rewrites that were not begun, the most promising first."""

        def bound(spec: VariantSpec) -> float:
            return self._surveyed[spec.base].bounds.get(spec.name, 0.0)

        return sorted((s for s in self._specs() if _is_first(s)), key=bound)

    def paper(self) -> list[VariantSpec]:
        """Rewrites with the paper's orders that were not begun."""
        return [spec for spec in self._specs() if spec.candidates != "live-range"]

    def _specs(self) -> list[VariantSpec]:
        every = (spec for base in self._surveyed.values() for spec in base.specs)
        return [spec for spec in every if spec.name not in self._begun]

    def rewrite(self, first: Sequence[VariantSpec]) -> None:
        """Makes these rewrites, and then those that follow from them (`spec.after`)."""
        names = {spec.name for spec in first}
        following = [spec for spec in self._specs() if spec.after in names]
        made: dict[str, Made] = {}
        for wave in (first, following):
            self._begun |= {spec.name for spec in wave}
            to_make: list[Making] = []
            for spec in wave:
                one = self._known.get(spec.name) or _needless(spec, made)
                if one is None:
                    order = self._order
                    job = Job(self._bases[spec.base], order.request, spec, order.workload)
                    to_make.append(Making(job, self._original))
                    continue
                made[spec.name] = one
                self._add(one)
            for making, result in run_each(to_make, self._executor):
                one = _made(making, result)
                made[one.name] = one
                self._add(one)


def _is_first(spec: VariantSpec) -> bool:
    return spec.candidates == "live-range" and not spec.after


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


def _compared(order: Order, source: Source, known: Sequence[Base]) -> list[Base]:
    """Builds of other front ends: what is measured is compared, so those may be tried, too."""
    return compared_builds(
        source,
        known,
        threads=order.request.threads,
        dynamic_shared_bytes=order.request.dynamic_shared_bytes,
        effort=order.effort,
        jobs=order.jobs,
    )


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
