"""The optimiser: every way below the cliff from every base build, and the one predicted fastest.

Problem: which machine code to start from (`bases`), which way down from it (`variants`), and
whether it pays, without a GPU.

Method: all bases of all kernels are surveyed; the rewrites of all of them are ordered by what they
could gain at best and made in rounds, and those that could not win any more are left out. Every
rewrite is proved against its base. The best is taken if it is worth it (`choice`). Otherwise the
kernel stays as it is, and the answer says what the best variant would have brought.

Invariants: the answer does not depend on how many processes run (rounds have a fixed size). What
NVIDIA's compiler makes is trusted and marked (`source: "nvcc"`); what regdem makes is proved.

Not claimed: that a base computes the same bits as another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from regdem.bases import EFFORTS, INPUT, Base, Source, base_builds, distinct
from regdem.binary import Cubin, Kernel
from regdem.choice import KernelChoice, choose, gain
from regdem.combine import NotCombined, combine, same_code
from regdem.errors import RegdemError
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.predict.model import learn
from regdem.predict.profile import Corrections, Profile
from regdem.rewrite import Request, refuse_architecture
from regdem.variants import (
    SCHEDULED_BOUND,
    Job,
    Outcome,
    Survey,
    Surveyed,
    VariantSpec,
    Workload,
    check_launch,
    residency_of,
    run_jobs,
)

ROUND = 8
"""Rewrites of a kernel that are made before what is left is looked at again; half of them where it
has more than `_LARGE` instructions."""
_LARGE = 3000
_COST_OF_FALL = 0.4
"""Instructions that demotion adds, for the share of registers given up: 6 % for a seventh, 12 % for
a quarter (`euler_flux`, `bispectrum`). Only for the order in which rewrites are tried."""
_TOO_FAR = ("slots_do_not_fit", "target_out_of_reach", "out_of_time")
"""Refusals of a demotion that hold for fewer registers too."""
_ALIKE = 0.95
"""What storing every value may save over computing some again."""


@dataclass(frozen=True)
class Options:
    """What to try. `grid_blocks`: of the launch, if known. `trip_count`: per loop level.

    `paper`: also the RegDem paper's variants. `effort`: a key of `bases.EFFORTS`. `compilers`:
    how many run side by side. `profile`: what was measured of the kernel as it is. `budget_s`: CPU
    seconds after which no more rewrites of a kernel are made; None: the effort's; 0: never.
    """

    grid_blocks: int | None = None
    trip_count: float = 10.0
    paper: bool = False
    effort: str = "normal"
    compilers: int = 1
    profile: Profile | None = None
    budget_s: float | None = None

    @property
    def budget(self) -> float:
        """CPU seconds for the rewrites of a kernel; infinite where there is no limit."""
        given = EFFORTS[self.effort].budget if self.budget_s is None else self.budget_s
        return given if given > 0 else math.inf


_SHARES = {"promote": 6.0, "demote": 5.0, "schedule": 2.0}
"""How long kinds of rewrites take: renumbering 1."""

Progress = Callable[[int, int, Outcome], None]


@dataclass
class _Work:
    """One kernel on its way: its bases, what they promise, and what became of their rewrites."""

    kernel: Kernel
    request: Request
    bases: list[Base]
    workload: Workload
    surveyed: dict[str, Surveyed] = field(default_factory=dict[str, Surveyed])
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    queue: list[VariantSpec] = field(default_factory=list[VariantSpec])
    spent_s: float = 0.0

    @property
    def reference(self) -> Base:
        """What everything is compared with: the input, or the default build of a source."""
        return self.bases[0]

    @property
    def round(self) -> int:
        """Rewrites to make before what is left is looked at again."""
        is_large = len(self.kernel.code) > _LARGE * INSTRUCTION_BYTES
        return ROUND // 2 if is_large else ROUND

    def base(self, name: str) -> Base:
        """By name."""
        return next(base for base in self.bases if base.name == name)

    def promise(self, spec: VariantSpec) -> float:
        """What to order rewrites by: the bound, and more the further the registers have to fall,
        and the more so if spills are promoted, too."""
        count = self.surveyed[spec.base].state.registers_per_thread
        fall = max(0.0, 1.0 - spec.registers / count)
        cost = _COST_OF_FALL * fall * (2.0 if spec.kind == "promote" else 1.0)
        return self.bound(spec) * (1.0 + cost)

    def place(self, spec: VariantSpec) -> tuple[bool, bool, float]:
        """Where it stands in the queue: with what its promotion alone has shown."""
        return (
            spec.candidates != "live-range",
            bool(spec.after),
            self.promise(spec) * self.shown(spec),
        )

    def shown(self, spec: VariantSpec) -> float:
        """How far the promotion alone of the same base, once made, missed its bound; else 1."""
        if spec.kind != "promote":
            return 1.0
        first = self.outcomes.get(self.base(spec.base).variant("promote"))
        if first is None or first.prediction is None or not self.bound(first.spec):
            return 1.0
        return first.prediction.predicted_cycles / self.bound(first.spec)

    def bound(self, spec: VariantSpec) -> float:
        """The least cycles a rewrite could be predicted to need."""
        return self.surveyed[spec.base].bounds.get(spec.name, 0.0)


def optimize_cubin(
    cubin: Cubin,
    kernels: Sequence[Kernel],
    requests: Sequence[Request],
    options: Options | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    *,
    source: Source | None = None,
    is_compiled: bool = False,
) -> tuple[Cubin, list[KernelChoice]]:
    """The cubin with the best variant of each kernel, and how each was chosen.

    `requests[k]` is the launch of `kernels[k]`. `source`: PTX to make base builds from;
    `is_compiled`: the cubin is its default build, made here. Raises `UnsupportedError` for an
    architecture that can't be rewritten, `UsageError` for a launch that does not fit.
    """
    options = options or Options()
    for kernel in kernels:
        refuse_architecture(kernel)
    counter = _Counter(progress)
    work = [
        _start(cubin, kernel, request, options, source, is_compiled)
        for kernel, request in zip(kernels, requests, strict=True)
    ]
    _survey(work, options, executor, counter)
    _rewrite(work, options, executor, counter)
    choices = [_choose(each) for each in work]
    try:
        return _combined(cubin, work, choices, source), choices
    except NotCombined as why:
        own = [_choose(each, str(why)) for each in work]
        return _combined(cubin, work, own, None), own


class _Counter:
    """Progress over jobs whose number becomes known on the way."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.done = 0
        self.total = 0

    def expect(self, jobs: int) -> None:
        self.total += jobs

    def tell(self, outcome: Outcome) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, outcome)


# -- bases ---------------------------------------------------------------------------------------


def _start(
    cubin: Cubin,
    kernel: Kernel,
    request: Request,
    options: Options,
    source: Source | None,
    is_compiled: bool,
) -> _Work:
    own = Base(INPUT, kernel.name, cubin.to_bytes(), "input")
    workload = Workload(options.grid_blocks, options.trip_count, _learned(kernel, request, options))
    if source is None or kernel.name not in source.kernels:
        check_launch(kernel, request)
        return _Work(kernel, request, [own], workload)
    builds = base_builds(
        source,
        kernel.name,
        threads=request.threads,
        dynamic_shared_bytes=request.dynamic_shared_bytes,
        effort=options.effort,
        jobs=options.compilers,
    )
    # An input that is the default build stands for it, unless the whole file differs from the part.
    is_default = is_compiled and same_code(builds[0].code(), kernel)
    bases = builds if is_default else distinct([own, *builds])
    return _Work(kernel, request, bases, workload)


def _learned(kernel: Kernel, request: Request, options: Options) -> Corrections | None:
    if options.profile is None:
        return None
    at = residency_of(kernel, request)
    return learn(kernel, at, options.profile, trip_count=options.trip_count)


def _survey(
    work: Sequence[_Work], options: Options, executor: Executor | None, counter: _Counter
) -> None:
    """Looks at every base; plans its rewrites, the most promising first."""
    effort = EFFORTS[options.effort]
    owners = [(each, base) for each in work for base in each.bases if base.is_built]
    surveys = [
        Survey(
            base, each.request, each.workload, effort,
            options.paper and base is each.reference,
        )
        for each, base in owners
    ]  # fmt: skip
    counter.expect(sum(len(each.bases) - 1 for each in work))
    answers = run_jobs(surveys, executor)
    for (each, base), answer in zip(owners, answers, strict=True):
        if isinstance(answer, RegdemError):
            if base is each.reference:
                raise answer
            _note(each, _build_spec(base, 0), answer.code, answer.message)
            continue
        each.surveyed[base.name] = answer
    for each in work:
        for base in each.bases:
            _list_base(each, base, counter)
        planned = [s for base in each.surveyed.values() for s in base.specs]
        planned.sort(key=each.promise)
        paper = [spec for spec in planned if spec.candidates != "live-range"]
        first = [spec for spec in planned if spec.candidates == "live-range" and not spec.after]
        first, alike = _different(first, effort.alike)
        for spec in alike:
            reason = f"beyond the {effort.alike} bases of the same rewrite of this effort"
            _note(each, spec, "skipped", reason)
        kept = {spec.name for spec in first[: effort.rewrites]}
        for spec in first[effort.rewrites :]:
            _note(each, spec, "skipped", f"beyond the {effort.rewrites} rewrites of this effort")
        following = [spec for spec in planned if spec.after in kept]
        each.queue = [*first[: effort.rewrites], *following, *paper]
        counter.expect(len(each.queue))


def _different(
    specs: Sequence[VariantSpec], most: int
) -> tuple[list[VariantSpec], list[VariantSpec]]:
    """Those that are among the first `most` of the same rewrite, and the others."""
    seen: dict[str, int] = {}
    kept: list[VariantSpec] = []
    alike: list[VariantSpec] = []
    for spec in specs:
        rewrite = spec.name.rpartition("+")[2]
        seen[rewrite] = seen.get(rewrite, 0) + 1
        (kept if seen[rewrite] <= most else alike).append(spec)
    return kept, alike


def _build_spec(base: Base, registers: int) -> VariantSpec:
    return VariantSpec(base.name, "build", registers, base=base.name)


def _note(work: _Work, spec: VariantSpec, status: str, reason: str) -> Outcome:
    outcome = Outcome(spec, status, reason)
    work.outcomes[spec.name] = outcome
    return outcome


def _list_base(work: _Work, base: Base, counter: _Counter) -> None:
    """The base itself as a variant, and its aliases."""
    spec = _build_spec(base, 0)
    if not base.is_built:
        counter.tell(_note(work, spec, "does_not_compile", base.problem))
        return
    surveyed = work.surveyed.get(base.name)
    if surveyed is not None and base is not work.reference:
        spec = replace(spec, registers=surveyed.state.registers_per_thread)
        outcome = Outcome(
            spec, "built", prediction=surveyed.prediction, base=base, state=surveyed.state
        )
        work.outcomes[base.name] = outcome
        counter.tell(outcome)
    for alias in base.aliases:
        count = surveyed.state.registers_per_thread if surveyed else 0
        same = VariantSpec(alias, "build", count, base=base.name)
        _note(work, same, "same", f"the same code as {base.name}")


# -- rewrites ------------------------------------------------------------------------------------


def _rewrite(
    work: Sequence[_Work], options: Options, executor: Executor | None, counter: _Counter
) -> None:
    """Makes the rewrites in rounds; between them, what could not win any more is left out."""
    seen = [_codes(each) for each in work]
    while any(each.queue for each in work):
        jobs: list[Job] = []
        owners: list[int] = []
        for k, each in enumerate(work):
            for spec in _next_round(each, options, counter):
                base, most = each.base(spec.base), _patience(each, options)
                first = each.outcomes[spec.after].done if spec.scheduled else None
                jobs.append(Job(base, each.request, spec, each.workload, most, first))
                owners.append(k)
        lengths = [_length(work[k], job.spec) for k, job in zip(owners, jobs, strict=True)]
        answers = run_jobs(jobs, executor, lambda _, outcome: counter.tell(outcome), lengths)
        for k, job, outcome in zip(owners, jobs, answers, strict=True):
            work[k].outcomes[outcome.spec.name] = _unless_known(seen[k], job, outcome)
            work[k].spent_s += outcome.cpu_s


def _length(work: _Work, spec: VariantSpec) -> float:
    """About how long a rewrite takes, beside others: the longer the further registers fall."""
    count = work.surveyed[spec.base].state.registers_per_thread
    share = _SHARES[spec.kind] if spec.registers < count or spec.kind == "schedule" else 1.0
    fall = max(0.0, 1.0 - spec.registers / count)
    share = 1.5 if spec.scheduled else share * (1.0 + fall)
    return share * len(work.kernel.code)


def _patience(work: _Work, options: Options) -> float:
    """CPU seconds for one rewrite of the next round; 0: no limit."""
    left = options.budget - work.spent_s
    limit = EFFORTS[options.effort].patience
    if math.isinf(left):
        return limit
    return min(limit, left) if limit > 0 else left


def _next_round(work: _Work, options: Options, counter: _Counter) -> list[VariantSpec]:
    """The next rewrites to make; what is found to be useless is noted as skipped."""
    bound = EFFORTS[options.effort].bound
    best = _best_cycles(work)
    chosen: list[VariantSpec] = []
    later: list[VariantSpec] = []
    if work.spent_s >= options.budget:
        for spec in work.queue:
            reason = f"beyond the budget of {options.budget:g} s of CPU time"
            counter.tell(_note(work, spec, "skipped", reason))
        work.queue.clear()
    if bound:
        work.queue.sort(key=work.place)
    while work.queue and len(chosen) < work.round:
        spec = work.queue.pop(0)
        name = spec.after or (_plain(work, spec) if bound else "")
        first = work.outcomes.get(name)
        if first is None and name:
            later.append(spec)
            continue
        reason = _useless(work, spec, first, bound * best)
        if reason:
            counter.tell(_note(work, spec, "skipped", reason))
        else:
            chosen.append(spec)
    work.queue[:0] = later
    return chosen


def _useless(work: _Work, spec: VariantSpec, first: Outcome | None, most_cycles: float) -> str:
    """Why a rewrite need not be made, or nothing."""
    least = work.bound(spec)
    if first is not None:
        name = first.spec.name
        if first.done is None or first.prediction is None:
            return f"{name} was not made: {first.reason}"
        if not spec.after:
            least *= work.shown(spec)
        elif spec.scheduled:
            least = first.prediction.predicted_cycles * SCHEDULED_BOUND
        elif first.done.rewrite.rematerialised:
            least = first.prediction.predicted_cycles * _ALIKE
        else:
            return f"{name} computes nothing again"
    if most_cycles and (harder := _harder(work, spec)) is not None:
        return f"{harder.spec.name} was not made: {harder.reason}"
    if most_cycles and spec.candidates == "live-range" and least > most_cycles:
        best = _best_cycles(work)
        return f"would need at least {least / best:.2f} times the cycles of the best found"
    return ""


def _harder(work: _Work, spec: VariantSpec) -> Outcome | None:
    """A demotion of the same base to more registers that failed: fewer need more slots, of which
    there are fewer."""
    for other in work.outcomes.values():
        like = other.spec
        if (like.base, like.kind, like.candidates) != (spec.base, "demote", spec.candidates):
            continue
        if other.status in _TOO_FAR and spec.kind == "demote" and like.registers > spec.registers:
            return other
    return None


def _plain(work: _Work, spec: VariantSpec) -> str:
    """The promotion alone, which is to be made before the promotion that demotes as well; ""."""
    name = work.base(spec.base).variant("promote")
    surveyed = work.surveyed[spec.base]
    is_lower = spec.registers < surveyed.state.registers_per_thread
    is_planned = any(each.name == name for each in surveyed.specs)
    return name if spec.kind == "promote" and is_lower and is_planned else ""


def _best_cycles(work: _Work) -> float:
    """Predicted cycles of what would be chosen now."""
    reference = work.surveyed[work.reference.name].prediction
    choice = _choose(work)
    if choice.chosen is None or choice.chosen.prediction is None:
        return reference.predicted_cycles
    return choice.chosen.prediction.predicted_cycles


def _codes(work: _Work) -> dict[tuple[bytes, int], str]:
    """Names by code, of the bases."""
    found: dict[tuple[bytes, int], str] = {}
    for base in work.bases:
        if base.is_built:
            kernel = base.code()
            found[kernel.code, kernel.static_shared_bytes] = base.name
    return found


def _unless_known(seen: dict[tuple[bytes, int], str], job: Job, outcome: Outcome) -> Outcome:
    """The outcome with its base, or "same" where another variant has the same code."""
    if outcome.done is None:
        return outcome
    rewrite = outcome.done.rewrite
    key = (rewrite.edit.code, rewrite.shared_bytes)
    other = seen.setdefault(key, outcome.spec.name)
    if other != outcome.spec.name:
        return Outcome(outcome.spec, "same", f"the same code as {other}")
    return replace(outcome, base=job.base)


# -- choice --------------------------------------------------------------------------------------


def _choose(work: _Work, only_own: str = "") -> KernelChoice:
    """The choice among all outcomes; with `only_own` (a reason) among those of the input's code."""
    reference = work.surveyed[work.reference.name]
    outcomes = list(work.outcomes.values())
    if only_own:
        outcomes = [_unless_foreign(work, o, only_own) for o in outcomes]
    return choose(
        work.kernel.name,
        work.request.threads.threads,
        reference.state,
        reference.prediction,
        outcomes,
        reference=work.reference.name,
    )


def _unless_foreign(work: _Work, outcome: Outcome, why: str) -> Outcome:
    if not outcome.is_usable or outcome.base is work.reference:
        return outcome
    return Outcome(outcome.spec, "not_combined", why)


def _combined(
    cubin: Cubin, work: Iterable[_Work], choices: Iterable[KernelChoice], source: Source | None
) -> Cubin:
    chosen = {each.name: each.chosen for each in choices if each.chosen is not None}
    requests = {each.kernel.name: each.request for each in work}
    return combine(cubin, chosen, requests, source) if chosen else cubin


__all__ = ["KernelChoice", "Options", "gain", "optimize_cubin"]
