"""`python -m bench.fronts DB... > docs/results/fronts.md`: what each front end of nvcc's was worth.

A *front* is a set of options that NVIDIA does not document (`regdem.bases.ALL_FRONTS`). Its builds
compute what the source says, but need not round alike: which products and sums become one fused
multiply-add is the front end's choice. The page says where outputs differed, and what was gained
where they did not.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from bench.suite.store import Store
from bench.suite.tables import Record, best_of, by_kernel, geometric_mean, rows_of
from bench.suite.variants import front_of
from regdem.bases import ALL_FRONTS

_NVIDIA = frozenset({"default", "nvidia"})


def page(groups: Iterable[tuple[str, list[Record]]]) -> str:
    """Markdown: a row for each front. `groups`: kernels, each once, with their rows."""
    differing: dict[str, set[str]] = defaultdict(set)
    gains: dict[str, dict[str, float]] = defaultdict(dict)
    best: dict[str, tuple[float, str]] = {}
    built: dict[str, int] = defaultdict(int)
    for kernel, rows in groups:
        nvidia = best_of(rows, _NVIDIA)
        for row in rows:
            front = front_of(row["name"])
            if row["family"] != "front" or not front:
                continue
            if not row["identical"]:
                differing[front].add(kernel)
            if row["speedup"] is None or nvidia is None:
                continue
            built[front] += 1
            if row["identical"]:
                gain = row["speedup"] / nvidia["speedup"]
                gains[front][kernel] = max(gains[front].get(kernel, 0.0), gain)
                best[kernel] = max(best.get(kernel, (1.0, "")), (gain, front))
    fastest: dict[str, list[str]] = defaultdict(list)
    for kernel, (gain, front) in sorted(best.items()):
        if front:
            fastest[front].append(f"{kernel} {gain:.2f}")
    lines = [
        "| front | options | builds timed | kernels where outputs differ | its best build over "
        "NVIDIA's best lever, geometric mean of those above 1 | the best front of |",
        "|---|---|---|---|---|---|",
    ]
    for front, options in ALL_FRONTS.items():
        words = [word for word in options if word not in ("-Xcicc", "--Xopt")]
        above = [gain for gain in gains[front].values() if gain > 1]
        mean = f"{geometric_mean(above):.3f} ({len(above)})" if above else "-"
        wrong = ", ".join(sorted(differing[front])) or "none"
        lines.append(
            f"| {front} | `{' '.join(words)}` | {built[front]} | {wrong} | {mean} "
            f"| {', '.join(fastest[front]) or '-'} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Prints the page of the last runs in databases."""
    groups: dict[str, list[Record]] = defaultdict(list)
    runs: list[str] = []
    for path in sys.argv[1:]:
        store = Store(Path(path))
        for kernel, rows in by_kernel(rows_of(store, store.last_run())).items():
            groups[kernel] += rows
        about = store.rows("select device, driver, nvcc, date from run order by id desc limit 1")[0]
        device = json.loads(about["device"])["name"]
        runs.append(f"{device}, driver {about['driver']}, nvcc {about['nvcc']}, {about['date']}.")
        store.close()
    print("# Other front ends of nvcc\n")
    print((__doc__ or "").partition("\n\n")[2].strip() + "\n")
    print(f"    python -m bench.fronts {' '.join(sys.argv[1:])}\n")
    print("\n".join(dict.fromkeys(runs)) + "\n")
    print(page(groups.items()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
