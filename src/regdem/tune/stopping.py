"""When measuring more can't pay: the predictor's interval excludes a variant.

Rule. Once `LEAST_MEASURED` variants have times, a variant that is not measured yet is left out if

    most predicted speed-up  x  allowance  <  best measured

*Most predicted* is the upper end over the predictor's assumptions about locality. *Best measured*
is the lower end of the interval of the best variant so far, and at least 1: the input itself is a
candidate. The *allowance* is `MARGIN`, or more where the predictor has shown that it underrates
this kernel: the largest ratio of a measured speed-up to the upper end that was predicted for it.
It only grows, so a variant that is left out for now may come back; nothing is final before all
variants are made and none that is left can be measured. Variants are measured in the order of
their typical prediction, so the rule is judged on those that were thought best.

Not claimed: that the best variant is always found. `exhaustive` measures everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from regdem.tune.made import Made
from regdem.tune.results import Comparison

LEAST_MEASURED = 3
MARGIN = 1.10

Timed = tuple[Made, Comparison]


def allowance(timed: Iterable[Timed]) -> float:
    """How much better than its upper end a variant may still turn out."""
    return max((c.speedup / made.most for made, c in timed if made.most > 0), default=MARGIN)


def best_measured(timed: Iterable[Timed]) -> float:
    """What a variant has to beat: the safe end of the best, and at least the input."""
    return max((comparison.low for _, comparison in timed), default=1.0)


def why_excluded(made: Made, timed: Sequence[Timed]) -> str | None:
    """Why a variant need not be measured, in words; None where it has to be."""
    if len(timed) < LEAST_MEASURED:
        return None
    best = max(1.0, best_measured(timed))
    factor = max(MARGIN, allowance(timed))
    if made.most * factor >= best:
        return None
    return (
        f"predicted at most {made.most:.2f} times as fast (with an allowance of {factor:.2f}), "
        f"{best:.2f} is reached"
    )
