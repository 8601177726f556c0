"""What the judge found, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.judging.data import Group
from bench.judging.fit import GRID, PROFILE_GRID, Setting
from bench.judging.scores import Score, Total, total
from regdem.choice import (
    FEWER_WARPS,
    LEAST_GAIN,
    LEAST_OF_ORDER,
    LEAST_OF_REWRITE,
    WORST_GAIN,
)
from regdem.predict.model import repeats


@dataclass(frozen=True)
class Judgement:
    """Scores by kernel and session: blind over all builds and over those made from the input alone
    (`binary`), the same where the grid is known, and with the constants in use (`own`)."""

    every: Sequence[Score]
    binary: Sequence[Score]
    every_with_grid: Sequence[Score]
    binary_with_grid: Sequence[Score]
    own: Sequence[Score]
    own_binary: Sequence[Score]
    same_code: Sequence[Score]
    """Blind, of inputs that only declare more registers."""
    settings: dict[str, Setting]
    fitted: Setting
    profiled: tuple[Sequence[Score], Sequence[Score]]
    """Of kernels with a profile of the input: over all builds, and those of the input alone."""
    profile_settings: dict[str, Setting]
    """By kernel: what its profile was used with, fitted to the other kernels' profiles."""
    unprofiled: tuple[Sequence[Score], Sequence[Score]]
    """Of the same kernels, without the profile."""
    sensitivity: Sequence[tuple[str, float, Total, Total]]
    """Constant, value, means over all builds and over those of the input alone; others in use."""

    def rows(self) -> list[tuple[str, Total]]:
        """The rows of the table of means."""
        rows = [
            ("blind, all builds", total(self.every)),
            ("blind, made from the input alone", total(self.binary)),
            ("blind, all builds, grid known", total(self.every_with_grid)),
            ("blind, made from the input alone, grid known", total(self.binary_with_grid)),
            ("constants in use, all builds", total(self.own)),
            ("constants in use, made from the input alone", total(self.own_binary)),
        ]
        names = ("all builds", "made from the input alone")
        for name, known, same in zip(names, self.profiled, self.unprofiled, strict=True):
            if known:
                rows.append((f"blind, input profiled, {name}", total(known)))
                rows.append((f"the same kernels without the profile, {name}", total(same)))
        if self.same_code:
            rows.append(("blind, the same code with fewer warps", total(self.same_code)))
        return rows


def markdown(judgement: Judgement) -> str:
    """The page."""
    kernels = {score.group.kernel for score in judgement.every}
    lines = [
        "# The predictor against measured times",
        "",
        "Command: `python -m bench.judge`. Builds and times: `suite.md` (final), `suite-second.md` "
        "(second; withdrawn builds with right outputs among them), `suite-third.md` (third), "
        "`suite-fourth.md` (fourth), `suite-fifth.md` (fifth; without measured steps) and "
        "`ten.md`, in "
        f"`predictor-features.json.gz` ({len(kernels)} kernels on an H200).",
        "",
        "*Blind*: each kernel is predicted with constants fitted to the other kernels. The form of "
        "the model was worked out with these kernels at hand, so blind means the constants, not "
        "the form. *tau*: Kendall's, pairs within 1 % left out. *regret*: time of the best build "
        "over that of the chosen one, geometric mean. *gain*: time of the input over that of the "
        f"chosen one. A build is chosen if it is predicted {LEAST_GAIN} times as fast typically "
        f"({LEAST_OF_REWRITE} if it is the input rewritten, {LEAST_OF_ORDER} if nothing was put "
        f"in), times the power {FEWER_WARPS} of the ratio of resident warps where they are fewer, "
        f"and at least {WORST_GAIN} times at the lower end of the interval; else the input "
        "stays. *The same code with fewer warps*: the inputs with more registers declared than "
        "they use, timed in a run of their own; they count in the fit, not in the other rows. "
        "*covered*: measured speed-ups inside the predicted interval (2 % for noise). "
        "*error*: mean of the absolute log of predicted over measured speed-up, at most 0.7 each.",
        "",
        "| what | kernels, by session | builds | tau | regret | gain | worst choice | covered "
        "| error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_mean_row(name, each) for name, each in judgement.rows()]
    unchanged = total(judgement.every).unchanged, total(judgement.binary).unchanged
    lines += [
        "",
        f"Never changing anything has a regret of {unchanged[0]:.3f} over all builds, and of "
        f"{unchanged[1]:.3f} over those made from the input alone.",
    ]
    fitted = ", ".join(f"{k} {v:g}" for k, v in zip(GRID, judgement.fitted, strict=True))
    lines += ["", f"Constants fitted to all kernels: {fitted}.", "", _stability(judgement)]
    lines += ["", _unrolled([score.group for score in judgement.every])]
    lines += ["", "## What the constants matter", "", *_sensitivity(judgement)]
    lines += ["", "## By kernel, blind, all builds", "", *_table(judgement.every)]
    lines += ["", "## By kernel, blind, made from the input alone", "", *_table(judgement.binary)]
    if judgement.same_code:
        title = "## By kernel, blind, the same code with fewer warps"
        lines += ["", title, "", *_table(judgement.same_code)]
    return "\n".join(lines) + "\n"


def _mean_row(name: str, each: Total) -> str:
    worst = f"{each.worst.gain:.3f} ({each.worst.group.kernel}: {each.worst.chosen})"
    return (
        f"| {name} | {each.kernels} | {each.builds} | {each.tau:.2f} | {each.regret:.3f} "
        f"| {each.gain:.3f} | {worst} | {100 * each.covered:.0f} % | {each.error:.3f} |"
    )


def _stability(judgement: Judgement) -> str:
    parts = _seen(GRID, judgement.settings)
    text = f"With one kernel left out: {parts}."
    if judgement.profile_settings:
        parts = _seen(PROFILE_GRID, judgement.profile_settings)
        text += f" Of profiles, fitted to the profiles of other kernels: {parts}."
    return text


def _seen(names: Iterable[str], settings: Mapping[str, Setting]) -> str:
    parts: list[str] = []
    for place, name in enumerate(names):
        seen = sorted({setting[place] for setting in settings.values()})
        parts.append(f"{name} {' or '.join(f'{value:g}' for value in seen)}")
    return ", ".join(parts)


def _unrolled(groups: Sequence[Group]) -> str:
    """Which builds are compared by their work (`predict.model.repeats`)."""
    found: dict[str, list[str]] = {}
    for group in groups:
        first, *others = group.builds
        for build in others:
            times = repeats(first.summary.work, build.summary.work)
            if times != 1.0:
                found.setdefault(group.name, []).append(f"{build.variant} {times:.2f}")
    parts = [f"{name}: {', '.join(builds)}" for name, builds in found.items()]
    return (
        "Taken to be unrolled otherwise than their input, and compared by the work that they do "
        f"(how often): {'; '.join(parts) or 'none'}."
    )


def _sensitivity(judgement: Judgement) -> list[str]:
    rows = [
        "One constant at a time, the others in use (not blind).",
        "",
        "| constant | value | tau | regret | worst choice | tau, input alone |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {name} | {value:g} | {whole.tau:.3f} | {whole.regret:.4f} | {whole.worst.gain:.3f} "
        f"| {part.tau:.3f} |"
        for name, value, whole, part in judgement.sensitivity
    ]
    return rows


def _table(scores: Sequence[Score]) -> list[str]:
    rows = [
        "| kernel | builds | tau | chosen | predicted | measured | best | regret | covered |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for s in sorted(scores, key=lambda s: s.group.name):
        predicted = "1.00"
        if s.chosen in s.gains:
            typical, least, most = s.gains[s.chosen]
            predicted = f"{typical:.2f} ({least:.2f}-{most:.2f})"
        rows.append(
            f"| {s.group.name} | {len(s.group.builds)} | {s.tau:.2f} | {s.chosen} | {predicted} "
            f"| {s.gain:.3f} | {s.best} | {s.regret:.3f} | {s.covered}/{len(s.gains)} |"
        )
    return rows


def to_json(judgement: Judgement) -> dict[str, Any]:
    """Means and, by kernel, every build's predicted and measured speed-up."""
    return {
        "means": {name: _total(each) for name, each in judgement.rows()},
        "constants": dict(zip(GRID, judgement.fitted, strict=True)),
        "kernels": [_score(s, judgement.settings[s.group.kernel]) for s in judgement.every],
        "binary": [_choice(s) for s in judgement.binary],
    }


def _total(each: Total) -> dict[str, Any]:
    return {
        "kernels": each.kernels,
        "builds": each.builds,
        "tau": round(each.tau, 3),
        "regret": round(each.regret, 4),
        "gain": round(each.gain, 4),
        "regret_of_never_choosing": round(each.unchanged, 4),
        "worst_choice": round(each.worst.gain, 4),
        "worst_kernel": each.worst.group.kernel,
        "covered": round(each.covered, 3),
        "error": round(each.error, 4),
    }


def _choice(score: Score) -> dict[str, Any]:
    return {
        "kernel": score.group.kernel,
        "session": score.group.session,
        "tau": round(score.tau, 3),
        "regret": round(score.regret, 4),
        "gain": round(score.gain, 4),
        "chosen": score.chosen,
        "best": score.best,
    }


def _score(score: Score, setting: Setting) -> dict[str, Any]:
    default = score.group.builds[0].milliseconds
    times = {b.variant: default / b.milliseconds for b in score.group.builds}
    return _choice(score) | {
        "constants": dict(zip(GRID, setting, strict=True)),
        "variants": {
            name: {
                "predicted": [round(each, 3) for each in gains],
                "measured": round(times[name], 4),
            }
            for name, gains in score.gains.items()
        },
    }
