"""The choice after measuring, and the words for what is found on the way."""

from __future__ import annotations

from collections.abc import Sequence

from regdem.tune.made import Made
from regdem.tune.outcome import Final, Row
from regdem.tune.results import Measurement, sets_of_inputs


def distinct(variants: list[Made]) -> list[Made]:
    """The first of each that have the same bytes."""
    return list({made.cubin_sha256: made for made in reversed(variants)}.values())[::-1]


def choose(finals: Sequence[Final], rows: Sequence[Row]) -> tuple[str | None, str]:
    """The best of the last session and why, or None for the original and why."""
    winners = [final for final in finals if final.comparison.is_faster]
    if winners:
        best = max(winners, key=lambda final: final.comparison.speedup)
        c = best.comparison
        return best.name, (
            f"measured {c.speedup:.3f} times as fast ({c.low:.3f} to {c.high:.3f}; the original "
            f"against itself varies by {100 * c.noise:.1f} %)"
        )
    if finals:
        return None, "what seemed faster is not, when timed once more beside the original"
    timed = [c for row in rows if row.measurement and (c := row.measurement.comparison)]
    if not timed:
        return None, "no variant could be measured"
    best_speedup = max(c.speedup for c in timed)
    return None, f"no variant is faster beyond the noise (the best: {best_speedup:.3f} times)"


def describe_made(made: Made) -> str:
    """A variant in a few words."""
    if not made.is_usable:
        return f"{made.status}: {made.reason}" if made.reason else made.status
    if made.predicted is None:
        return made.status
    typical, least, most = made.predicted
    return f"{made.status}, predicted {typical:.2f} times as fast ({least:.2f} to {most:.2f})"


def describe_measurement(made: Made, measurement: Measurement) -> str:
    """A measurement in a few words."""
    comparison = measurement.comparison
    if measurement.status == "different" and made.may_differ:
        return f"not taken, this front end's outputs differ: {measurement.reason}"
    if measurement.status == "different":
        return f"REJECTED, its outputs differ: {measurement.reason}"
    if comparison is None:
        return f"failed: {measurement.reason}"
    return (
        f"{comparison.speedup:.3f} times as fast ({comparison.low:.3f} to {comparison.high:.3f}), "
        f"outputs identical on {sets_of_inputs(measurement.seeds)}"
    )
