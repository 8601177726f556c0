"""Verdicts in words: what each build became, and which one to take.

The choice goes by measured medians where every build was measured and gave the first build's
outputs, else by predicted cycles. Among builds within `TIE` of the best (`PREDICTED_TIE` without
times) one that loses no blocks and spills nothing wins, then the least change: the smallest factor,
or the build nearest to the source as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from regdem.study.effect import Comparison
from regdem.study.mechanisms import mechanisms, operation_changes
from regdem.study.model import Build, Mechanism, Recommendation, TargetLoop, Verdict

TIE = 0.01
"""Less than one per cent of measured time is noise on the hardware measured so far."""
PREDICTED_TIE = 0.03
"""Predictions are less sure than times."""
_NO_ROOM = "a block of that size does not fit on an SM; give another --threads"


def judge_unroll(
    builds: Sequence[Build], targets: Sequence[TargetLoop], define: str
) -> list[Build]:
    """Every build of a study of unrolling with its verdict."""
    base = builds[0]
    judged: list[Build] = []
    for build in builds:
        status, statement = _unroll_status(base, build, targets, define)
        told = () if build is base or build.same_as is not None else mechanisms(base, build)
        judged.append(replace(build, verdict=Verdict(status, statement, told)))
    return judged


def judge_caps(builds: Sequence[Build]) -> list[Build]:
    """Every build of a study of caps with its verdict."""
    base = builds[0]
    judged: list[Build] = []
    for build in builds:
        status, statement = _cap_status(base, build)
        told = () if build is base or build.same_as is not None else mechanisms(base, build)
        judged.append(replace(build, verdict=Verdict(status, statement, told)))
    return judged


def _unroll_status(
    base: Build, build: Build, targets: Sequence[TargetLoop], define: str
) -> tuple[str, str]:
    assert build.spec.factor is not None
    assert base.spec.factor is not None
    if build is base:
        if not targets:
            return "baseline", "the build to compare with"
        return "baseline", "the build to compare with: " + "; ".join(
            _distinct(_baseline_words(base, target) for target in targets)
        )
    asked = build.spec.factor / base.spec.factor
    effects = [build.comparison.effect(target.index) for target in targets]
    if build.same_as is not None:
        same = f"same code as {build.same_as.replace('-', ' ')}"
        if any(effect.gone for effect in effects):
            return "full_unroll", f"{same}: the loop is gone already, a larger factor adds nothing"
        return "no_effect", f"the factor had no effect: {same}"
    if not any(effect.changed for effect in effects):
        return "no_effect", (
            f"the factor had no effect on any loop, though the code differs: is {define} meant for "
            "something else?"
        )
    words = _distinct(_effect_words(target, build.comparison) for target in targets)
    changed = [effect for effect in effects if effect.changed]
    if all(effect.gone for effect in changed):
        return "full_unroll", "full unroll: " + "; ".join(words)
    as_asked = all(effect.agrees_with(asked) for effect in changed if not effect.gone)
    if not as_asked:
        return "other_factor", f"not {_factor(asked)} copies, as asked: " + "; ".join(words)
    return "unrolled", "; ".join(words)


def _distinct(texts: Iterable[str]) -> list[str]:
    """Each text once: versions of one loop have the same words."""
    return list(dict.fromkeys(texts))


def _baseline_words(base: Build, target: TargetLoop) -> str:
    turns = f"{target.turns:g} turns" if target.turns_known else "turns not known"
    region = base.analysed.anatomy.region(target.index)
    return f"{target.title} has {region.instructions} instructions, {turns}"


def _effect_words(target: TargetLoop, comparison: Comparison) -> str:
    effect = comparison.effect(target.index)
    if effect.main is None:
        return f"{target.title} can't be found again"
    copies = _factor(target.turns if effect.gone and target.turns_known else effect.copies)
    clones = comparison.count(target.index, "clone")
    times = f" and stands {clones + 1} times" if clones else ""
    if effect.gone:
        return f"{target.title} is gone, {copies} copies of it stand where it was"
    if not effect.changed:
        return f"{target.title} is unchanged{times}"
    words = f"{target.title} holds {copies} copies of its work per turn{times}"
    if effect.step_agrees:
        step = _factor(effect.step_ratio or 1.0)
        words += f", and its counter's step is {step} times the first's"
    if comparison.count(target.index, "remainder"):
        words += "; a loop besides takes the turns that are left"
    return words


def _cap_status(base: Build, build: Build) -> tuple[str, str]:
    if build is base:
        return "baseline", "the build to compare with: the source as it is"
    if build.same_as is not None:
        return "same_code", f"same code as {build.same_as}"
    changes = operation_changes(base.analysed, build.analysed)
    if not changes:
        return "same_operations", (
            "the same operations as the first build: registers, order, moves and spills differ"
        )
    shown = ", ".join(f"{amount:+d} {name}" for name, amount in changes[:6])
    more = f" and {len(changes) - 6} more" if len(changes) > 6 else ""
    return "other_operations", f"other operations than the first build: {shown}{more}"


def recommend(
    builds: Sequence[Build], *, unrolled: bool, noise: float | None = None
) -> Recommendation:
    """The build to take. `noise`: by what share times of one build differ."""
    base = builds[0]
    runnable = [build for build in builds if build.analysed.active_blocks]
    timed = all(
        build.measured is not None and build.measured.times is not None for build in runnable
    )

    def cost(build: Build) -> float:
        if timed and build.measured is not None and build.measured.times is not None:
            return build.measured.times.median_ms
        return build.prediction.predicted_cycles

    eligible = [build for build in runnable if build.measured is None or build.measured.correct]
    if base not in eligible:
        return Recommendation(base.name, "none: the first build can't be launched", _NO_ROOM)
    least = min(cost(build) for build in eligible)
    tie = max(TIE, noise or 0.0) if timed else PREDICTED_TIE
    # A build with another's code has that one's mechanisms, and none of its own.
    distinct = [build for build in eligible if build.same_as is None]
    near = [build for build in distinct if cost(build) <= (1 + tie) * least] or [base]
    chosen = min(near, key=_heavy)  # the first of those that pay least
    by = "measured" if timed else "predicted"
    if chosen is base:
        return Recommendation(
            base.name,
            f"leave it as it is: no build is {'' if timed else 'predicted '}faster",
            _why_not(eligible, cost, by),
        )
    speed = cost(base) / cost(chosen)
    sentences = [f"{by} {speed:.2f} times as fast as {base.name}" + _because(chosen, "improved")]
    if hurt := chosen.verdict.of("hurt"):
        sentences.append("it pays with " + _shorts(hurt))
    if not timed:
        spared = _spared(chosen, distinct, cost)
        if spared is not None and spared[1] is not base:
            words, other = spared
            sentences.append(
                f"{words}, {other.name} is {by} {cost(base) / cost(other):.2f} times as fast"
            )
    last = [build for build in eligible if build.same_as is None][-1]
    if unrolled and last is not chosen and last.verdict.of("hurt"):
        sentences.append(
            f"{last.name} is {by} {cost(base) / cost(last):.2f} times as fast and pays with "
            + _shorts(last.verdict.of("hurt"))
        )
    return Recommendation(chosen.name, f"take {_name_of(chosen, unrolled)}", "; ".join(sentences))


def _shorts(mechanisms_: Sequence[Mechanism]) -> str:
    return ", ".join(mechanism.short for mechanism in mechanisms_)


def _because(build: Build, effect: str) -> str:
    told = build.verdict.of(effect)
    return f" ({_shorts(told)})" if told else ""


_HEAVY = frozenset({"residency", "local_spills"})


def _heavy(build: Build) -> int:
    """How many of the two heavy prices a build pays: lost blocks, spills."""
    return sum(1 for mechanism in build.verdict.of("hurt") if mechanism.name in _HEAVY)


def _spared(
    chosen: Build, builds: Sequence[Build], cost: Callable[[Build], float]
) -> tuple[str, Build] | None:
    """The best build without what the chosen one pays most: lost blocks and more spills than the
    first build (which may have some); in words and as a build. None where it pays neither, or
    every build does.
    """
    first = builds[0].name
    pays = [m.name for m in chosen.verdict.of("hurt") if m.name in _HEAVY]
    for names, words in (
        (
            ("residency", "local_spills"),
            f"losing no blocks and moving no more bytes of local spills than {first}",
        ),
        (("local_spills",), f"moving no more bytes of local spills than {first}"),
    ):
        if not set(names) & set(pays):
            continue
        rest = [b for b in builds if not {m.name for m in b.verdict.of("hurt")} & set(names)]
        best = min(rest, key=cost, default=None)
        if best is not None and best is not builds[0]:
            return words, best
    return None


def _why_not(builds: Sequence[Build], cost: Callable[[Build], float], by: str) -> str:
    if all(build.same_as is not None for build in builds[1:]):
        return "every build is the same code" if len(builds) > 1 else "there is no other build"
    costs = {build.name: cost(build) for build in builds if build.same_as is None}
    first = costs[builds[0].name]
    nearest = min(costs, key=lambda name: (costs[name], name))
    if nearest == builds[0].name:
        others = {name: value for name, value in costs.items() if name != nearest}
        nearest = min(others, key=lambda name: (others[name], name))
    return (
        f"the best other build, {nearest}, is {by} at {first / costs[nearest]:.2f} times the speed"
    )


def _name_of(build: Build, unrolled: bool) -> str:
    if unrolled:
        kind = "full unroll" if build.verdict.status == "full_unroll" else "partial unroll"
        return f"{build.spec.title} ({kind}): {build.spec.change}"
    return f"{build.spec.title}: {build.spec.change}" if build.spec.change else build.spec.title


def _factor(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"
