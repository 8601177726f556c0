"""What the results database says: rows, best variants, geometric means, a table for the terminal.

`page.py` writes the docs page from it, `plots.py` the pictures.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Set
from typing import Any

from bench.suite.store import Store
from bench.suite.variants import front_of
from regdem.bases import COMPARED_FRONTS
from regdem.tune.steps import FEWER, NEAR

Record = dict[str, Any]

GROUPS: dict[str, frozenset[str]] = {
    "best_nvidia": frozenset({"default", "nvidia"}),
    "best_front": frozenset({"default", "front"}),
    "best_binary_only": frozenset({"default", "binary"}),
    "best_ours": frozenset({"default", "binary", "ours"}),
    "best_measured": frozenset({"default", "nvidia", "front", "binary", "ours"}),
}
"""Per kernel the best measured of the default and those families."""
STEADY = 0.03
"""Relative difference of the default's two medians up to which a kernel's times are steady."""
BLIND = ("optimize", "optimize_source")
"""Chosen without a GPU: from the default build alone, and from the source with all its builds."""


def _index(rows: list[Record], *keys: str) -> dict[tuple[Any, ...], Record]:
    return {tuple(row[key] for key in keys): row for row in rows}


def _equal_text(checks: list[Record]) -> str:
    if not checks:
        return ""
    same = sum(1 for check in checks if check["identical"])
    return f"{same}/{len(checks)}"


def _noise(base: Record | None, again: Record | None) -> float | None:
    """Relative difference of the default's two medians."""
    if base is None or again is None:
        return None
    return abs(again["median_ms"] / base["median_ms"] - 1)


def rows_of(store: Store, run: int) -> list[Record]:
    """One record per kernel and variant with everything measured about it.

    `speedup` is median default time over median time of the variant; None where it was not timed.
    """
    variants = store.rows("select * from variant where run = ? order by rowid", run)
    timings = _index(store.rows("select * from timing where run = ?", run), "kernel", "variant")
    checks: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for check in store.rows("select * from equality where run = ?", run):
        checks[check["kernel"], check["variant"]].append(check)
    watched: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for row in store.rows("select * from sanitizer where run = ?", run):
        watched[row["kernel"], row["variant"]].append(row)
    default_blocks = {
        row["kernel"]: row["active_blocks"] for row in variants if row["name"] == "default"
    }
    cliffs = {
        row["name"]: json.loads(row["cliffs"] or "[]")
        for row in store.rows("select name, cliffs from kernel where run = ?", run)
    }
    table: list[Record] = []
    for variant in variants:
        key = (variant["kernel"], variant["name"])
        timing = timings.get(key)
        base = timings.get((variant["kernel"], "default"))
        again = timings.get((variant["kernel"], "default again"))
        sanitizers = watched.get(key, [])
        table.append(
            variant
            | {
                "median_ms": timing["median_ms"] if timing else None,
                "p10_ms": timing["p10_ms"] if timing else None,
                "p90_ms": timing["p90_ms"] if timing else None,
                "speedup": base["median_ms"] / timing["median_ms"] if timing and base else None,
                "noise": _noise(base, again),
                "equal": "" if variant["name"] == "default" else _equal_text(checks[key]),
                "checks": len(checks[key]),
                "identical": all(check["identical"] for check in checks[key]),
                "cliffs": cliffs.get(variant["kernel"], []),
                "default_blocks": default_blocks.get(variant["kernel"]),
                "sanitizers": ", ".join(f"{row['tool']} {row['status']}" for row in sanitizers),
            }
        )
    return table


def by_kernel(rows: list[Record]) -> dict[str, list[Record]]:
    """A run's rows by kernel; the first of each is the default."""
    kernels: dict[str, list[Record]] = {}
    for row in rows:
        kernels.setdefault(row["kernel"], []).append(row)
    return kernels


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else 1.0


def number(value: float | int | None, digits: int = 3) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def best_of(rows: list[Record], families: Set[str]) -> Record | None:
    """The fastest measured, identical variant of some families (the default counts as 1.0)."""
    timed = [
        row
        for row in rows
        if row["family"] in families and row["speedup"] is not None and row["identical"]
    ]
    return max(timed, key=lambda row: row["speedup"], default=None)


def _bests(kernels: list[list[Record]], families: Set[str]) -> list[float]:
    bests = [best_of(rows, families) for rows in kernels]
    return [best["speedup"] for best in bests if best is not None]


def limits_of(default: Record) -> str:
    """What limits the default build: "registers" (fewer would let more blocks in), "spills"."""
    names: list[str] = []
    if default["cliffs"]:
        names.append("registers")
    if (default["spill_store_bytes"] or 0) + (default["spill_load_bytes"] or 0):
        names.append("spills")
    return " and ".join(names) or "neither"


def is_limited(default: Record) -> bool:
    """Whether registers bound the residency of the default build, or it spills."""
    return limits_of(default) != "neither"


def _is_compared(row: Record) -> bool:
    """Whether it is (made of) a build of a front whose outputs have to be compared."""
    return front_of(row["name"]) in COMPARED_FRONTS


def is_step(row: Record) -> bool:
    """Whether it was found by measured steps (`regdem/tune/steps.py`)."""
    return any(word in row["name"] for word in (NEAR, FEWER))


def finalists(rows: list[Record]) -> list[str]:
    """Of one kernel's rows: the default, the blind choices, and what every figure is made from."""
    names = ["default", *(row["name"] for row in rows if row["name"] in BLIND)]
    plain = [row for row in rows if not _is_compared(row)]
    still = [row for row in rows if not is_step(row)]
    neither = [row for row in plain if not is_step(row)]
    for families in GROUPS.values():
        for some in (rows, plain, still, neither):
            best = best_of(some, families)
            names += [best["name"]] if best is not None else []
    return list(dict.fromkeys(names))


def _more_blocks(row: Record) -> bool:
    """Whether the driver keeps more blocks of a variant resident than of the default."""
    return (row["active_blocks"] or 0) > (row["default_blocks"] or 0)


def summary(store: Store, run: int) -> Record:
    """Counts over a run's kernels, geometric means over those that registers or spills limit.

    A blind choice that is the input's own bytes counts as 1: its time differs by noise only.
    """
    rows = rows_of(store, run)
    kernels = by_kernel(rows)
    checked = [row for row in rows if row["checks"]]
    ours = [row for row in checked if row["family"] in ("binary", "ours", "blind")]
    means: dict[str, float] = {}
    limited = [each for each in kernels.values() if is_limited(each[0])]
    for label, families in GROUPS.items():
        means[label] = geometric_mean(_bests(limited, families))
    levers = GROUPS["best_nvidia"]
    for label, against in (("nvidia", levers), ("compiler", levers | GROUPS["best_front"])):
        bests = [
            (best_of(each, GROUPS["best_measured"]), best_of(each, against)) for each in limited
        ]
        over = [best["speedup"] / other["speedup"] for best, other in bests if best and other]
        means[f"best_measured_over_best_{label}"] = geometric_mean(over)
    steady = [each for each in limited if (each[0]["noise"] or 0.0) <= STEADY]
    plain = [[row for row in each if not _is_compared(row)] for each in limited]
    still = [[row for row in each if not is_step(row)] for each in limited]
    means["best_binary_only_without_steps"] = geometric_mean(
        _bests(still, GROUPS["best_binary_only"])
    )
    for label, some, all_of_them in (
        ("steady", steady, steady),
        ("without_compared_fronts", plain, limited),
        ("without_steps", still, limited),
        ("without_either", [[row for row in each if not is_step(row)] for each in plain], limited),
    ):
        over = [
            ours / other
            for ours, other in zip(
                _bests(some, GROUPS["best_measured"]), _bests(all_of_them, levers), strict=True
            )
        ]
        means[f"best_measured_over_best_nvidia_{label}"] = geometric_mean(over)
    blind = {
        name: [
            1.0 if row["sha256"] == each[0]["sha256"] else row["speedup"]
            for each in limited
            for row in each
            if row["name"] == name and row["speedup"]
        ]
        for name in BLIND
    }
    noise = sorted(
        {row["kernel"]: row["noise"] for row in rows if row["noise"] is not None}.values()
    )
    return {
        "kernels": len(kernels),
        "limited_kernels": len(limited),
        "variants": len(rows),
        "built": sum(row["status"] == "built" for row in rows),
        "checked": len(checked),
        "identical": sum(row["identical"] for row in checked),
        "ours_checked": len(ours),
        "ours_identical": sum(row["identical"] for row in ours),
        "ours_with_more_blocks": sum(_more_blocks(row) for row in ours),
        "ours_with_the_registers_claimed": sum(
            row["driver_registers"] == row["registers"] for row in ours
        ),
        "timed_kernels": len({row["kernel"] for row in rows if row["speedup"]}),
        "geometric_means": means,
        "blind_choice": {
            name: {
                "kernels": len(values),
                "geometric_mean": geometric_mean(values),
                "least": min(values, default=None),
                "most": max(values, default=None),
            }
            for name, values in blind.items()
        },
        "noise_median": noise[len(noise) // 2] if noise else None,
        "noise_worst": noise[-1] if noise else None,
    }


def compact(store: Store, run: int) -> str:
    """A line per kernel: default registers, best of each family; then the figures."""
    lines = [
        f"{'kernel':22s} {'regs':>4s} {'ms':>8s} {'noise%':>6s}  best nvidia | best ours | wrong"
    ]
    for kernel, rows in by_kernel(rows_of(store, run)).items():
        default = rows[0]
        cells: list[str] = []
        for families in (frozenset({"nvidia"}), frozenset({"binary", "ours"})):
            best = best_of(rows, families)
            cells.append(f"{best['speedup']:.3f} {best['name']}" if best else "-")
        wrong = [row["name"] for row in rows if row["checks"] and not row["identical"]]
        failed = [row["name"] for row in rows if row["status"] == "failed"]
        tail = " ".join([*(f"WRONG:{name}" for name in wrong), *(f"failed:{n}" for n in failed)])
        noise = "-" if default["noise"] is None else f"{100 * default['noise']:.2f}"
        registers = default["driver_registers"] or default["registers"]
        lines.append(
            f"{kernel:22s} {number(registers):>4s} {number(default['median_ms'], 4):>8s} "
            f"{noise:>6s}  {cells[0]} | {cells[1]} | {tail}"
        )
    lines.append(json.dumps(summary(store, run)))
    return "\n".join(lines)


def fastest_builds(rows: list[Record]) -> dict[str, list[str]]:
    """By kernel, the compiler's builds with the default's outputs, the fastest first."""
    found: dict[str, list[str]] = {}
    for kernel, group in by_kernel(rows).items():
        builds = [
            row
            for row in group
            if row["family"] in ("default", "nvidia", "front")
            and row["speedup"] is not None
            and row["identical"]
        ]
        builds.sort(key=lambda row: -row["speedup"])
        found[kernel] = [row["name"] for row in builds]
    return found
