"""`python -m bench.fronts DB > docs/results/fronts.md`: what each front end of nvcc's was worth.

A *front* is a set of options that NVIDIA does not document (`regdem.bases.ALL_FRONTS`). Its builds
compute what the source says, but need not round alike: which products and sums become one fused
multiply-add is the front end's choice. The page says where outputs differed, and what was gained
where they did not.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from bench.suite.store import Store
from bench.suite.tables import Record, best_of, by_kernel, geometric_mean, rows_of
from regdem.bases import ALL_FRONTS

_OURS = frozenset({"binary", "ours"})
_NVIDIA = frozenset({"default", "nvidia"})


def front_of(name: str) -> str:
    """The front that a variant's build has; "" for the compiler's own."""
    build = name.partition("+")[0]
    return max(
        (front for front in ALL_FRONTS if build == front or build.startswith(f"{front}_")),
        key=len,
        default="",
    )


def page(store: Store, run: int) -> str:
    """Markdown: a row for each front."""
    differing: dict[str, set[str]] = defaultdict(set)
    gains: dict[str, dict[str, float]] = defaultdict(dict)
    best: dict[str, list[str]] = defaultdict(list)
    built: dict[str, int] = defaultdict(int)
    for kernel, rows in by_kernel(rows_of(store, run)).items():
        nvidia = best_of(rows, _NVIDIA)
        if nvidia is None:
            continue
        for row in rows:
            front = front_of(row["name"])
            if front and row["family"] == "front" and row["speedup"] is not None:
                built[front] += 1
            if front and not row["identical"]:
                differing[front].add(kernel)
        timed: list[Record] = [r for r in rows if r["speedup"] is not None and r["identical"]]
        for row in timed:
            front = front_of(row["name"])
            if front and row["family"] == "front":
                gain = row["speedup"] / nvidia["speedup"]
                gains[front][kernel] = max(gains[front].get(kernel, 0.0), gain)
        top = max(timed, key=lambda r: r["speedup"])
        if front_of(top["name"]):
            best[front_of(top["name"])].append(f"{kernel} {top['speedup']:.2f}")
    lines = [
        "| front | options | builds timed | kernels where outputs differ | its best build over "
        "NVIDIA's best lever, geometric mean (where above 1) | best of all on |",
        "|---|---|---|---|---|---|",
    ]
    for front, options in ALL_FRONTS.items():
        words = [word for word in options if word not in ("-Xcicc", "--Xopt")]
        above = [gain for gain in gains[front].values() if gain > 1]
        mean = f"{geometric_mean(above):.3f} ({len(above)})" if above else "-"
        wrong = ", ".join(sorted(differing[front])) or "none"
        lines.append(
            f"| {front} | `{' '.join(words)}` | {built[front]} | {wrong} | {mean} "
            f"| {', '.join(best[front]) or '-'} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Prints the page of the last run in a database."""
    store = Store(Path(sys.argv[1]))
    about = store.rows("select device, driver, nvcc, date from run order by id desc limit 1")[0]
    print("# Other front ends of nvcc\n")
    print((__doc__ or "").partition("\n\n")[2].strip() + "\n")
    print(f"    python -m bench.fronts {sys.argv[1]}\n")
    device = json.loads(about["device"])["name"]
    print(f"{device}, driver {about['driver']}, nvcc {about['nvcc']}, {about['date']}.\n")
    print(page(store, store.last_run()), end="")
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
