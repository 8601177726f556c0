"""`python -m bench.judge RESULTS.sqlite BUILDS`: the predictor against measured times.

BUILDS holds one cubin per build, `KERNEL.VARIANT.cubin`; RESULTS is a measured session of
`bench.run`. For each kernel: Kendall's tau of predicted against measured order over pairs that
differ by more than 1 %, and the time of the best build over that of the one predicted fastest.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regdem.binary import Cubin
from regdem.machine import block_shape
from regdem.rewrite import Request
from regdem.variants import predict_kernel

_TIE = 0.01


@dataclass(frozen=True)
class Build:
    """One timed build with its prediction."""

    variant: str
    milliseconds: float
    predicted_cycles: float


def builds(results: Path, folder: Path) -> dict[str, list[Build]]:
    """All timed builds whose cubin is at hand, by kernel."""
    found: dict[str, list[Build]] = {}
    with sqlite3.connect(f"file:{results}?mode=ro", uri=True) as store:
        rows = store.execute(
            "select t.kernel, t.variant, t.median_ms, k.block, k.dynamic_shared_bytes from timing t"
            " join kernel k on k.run = t.run and k.name = t.kernel order by t.kernel, t.variant"
        ).fetchall()
    for name, variant, median, block, dynamic in rows:
        path = folder / f"{name}.{variant}.cubin"
        if not path.exists():
            continue
        request = Request(
            threads=block_shape(math.prod(json.loads(block))), dynamic_shared_bytes=dynamic
        )
        kernel = Cubin.parse(path.read_bytes(), path.name).kernels[0]
        cycles = predict_kernel(kernel, request).predicted_cycles
        found.setdefault(name, []).append(Build(variant, float(median), cycles))
    return found


def tau(some: Sequence[Build]) -> float:
    """Kendall's tau over pairs that measurement can tell apart."""
    agree = total = 0
    for a, b in itertools.combinations(some, 2):
        if abs(a.milliseconds / b.milliseconds - 1) < _TIE:
            continue
        total += 1
        same = (a.milliseconds < b.milliseconds) == (a.predicted_cycles < b.predicted_cycles)
        agree += 1 if same else -1
    return agree / total if total else 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a row a kernel and the means."""
    parser = argparse.ArgumentParser(prog="python -m bench.judge", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("builds", type=Path)
    args = parser.parse_args(argv)
    taus: list[float] = []
    regrets: list[float] = []
    count = 0
    for name, some in builds(args.results, args.builds).items():
        if len(some) < 2:
            continue
        best = min(each.milliseconds for each in some)
        chosen = min(some, key=lambda each: each.predicted_cycles)
        taus.append(tau(some))
        regrets.append(best / chosen.milliseconds)
        count += len(some)
        print(f"{name:20s} tau {taus[-1]:6.2f}  regret {regrets[-1]:.3f}  {chosen.variant}")
    if not taus:
        print("no builds of timed variants there", file=sys.stderr)
        return 1
    mean = math.exp(sum(map(math.log, regrets)) / len(regrets))
    print(f"{count} builds: tau {sum(taus) / len(taus):.2f}, regret {mean:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
