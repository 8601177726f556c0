"""Mine least producer-consumer distances from compiled code.

    python tools/latency/mine.py -o src/regdem/machine/data/latency_sm90.tsv CALIBRATION...

Runs the checker's own pipeline model (without any table) over every kernel and records, per
(kind, producer, consumer, operand), the least distance in cycles that the compiler left, leaving
out what was seen so rarely that it may be a slip, of the compiler or of the model (`least_of`). It
also prints, to stderr, what the model can't explain: accesses to registers of variable-latency
instructions still in flight. On the vendor's code there should be none; each is either a hazard
or an error of the model.

Give it some libraries and keep others for `verify.py`: the table can't be judged on code it was
mined from.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from corpus import kernels_of

from regdem.check.flow import BranchTable, flow_of
from regdem.check.graph import build_graph
from regdem.check.pipeline import LONGEST_FIXED_CYCLES, Pipeline
from regdem.check.timing import timing_of
from regdem.check.view import CodeView, view_of
from regdem.errors import RegdemError
from regdem.machine.latency import LatencyRow, parse_rows

Key = tuple[str, str, str, str]
_KINDS = ("RAW", "WAW")
"""What the table has; for the rest there are rules (`distances.py`)."""
_COUNTS = 20
_COUNTS_SHARE = 0.05


class Miner:
    """Collects distances of all kernels; an observer of each in turn."""

    def __init__(self) -> None:
        self.ages: dict[Key, Counter[int]] = {}
        self.files_at: dict[Key, dict[int, set[str]]] = {}
        self.unexplained: Counter[tuple[str, str, str]] = Counter()
        self.examples: dict[tuple[str, str, str], str] = {}
        self.early_waits = 0
        self.view: CodeView | None = None
        self.file = ""

    def fixed(self, kind: str, producer: int, consumer: int, role: str, age: int) -> None:
        """Record a distance."""
        assert self.view is not None
        if age > LONGEST_FIXED_CYCLES or kind not in _KINDS:
            return
        names = self.view.timing_name
        key = (kind, names[producer], names[consumer], role or "-")
        self.ages.setdefault(key, Counter())[age] += 1
        self.files_at.setdefault(key, {}).setdefault(age, set()).add(self.file)

    def pending(self, kind: str, producer: int, consumer: int, cover: int) -> None:
        """Record something the model can't explain."""
        assert self.view is not None
        key = (kind, self.view.name[producer], self.view.name[consumer])
        self.unexplained[key] += 1
        where = f"{self.file} {self.view.kernel[:30]} 0x{16 * producer:x} 0x{16 * consumer:x}"
        self.examples.setdefault(key, f"{where} 0x{cover:x}")

    def early_wait(self, scoreboard: int, consumer: int, age: int) -> None:
        """Count waits that break the delay rule."""
        del scoreboard, consumer, age
        self.early_waits += 1


def main() -> int:
    """Mine and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("places", nargs="+", help="cubins or folders of cubins")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--merge", type=Path, help="a table to add to")
    parser.add_argument("--roles", default="", help="a regular expression: mined rows to keep")
    parser.add_argument("--largest", type=int, default=6000, help="instructions per kernel")
    parser.add_argument("--per-file", type=int, default=0, help="kernels of each file")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--label", default="", help="what the corpus is, for the header")
    arguments = parser.parse_args()
    miner = Miner()
    kernels = instructions = refused = 0
    start = time.monotonic()
    for path, kernel in kernels_of(arguments.places, arguments.largest, arguments.per_file):
        if time.monotonic() - start > arguments.seconds:
            break
        try:
            view = view_of(kernel.name, kernel.code, kernel.arch)
            tables = [
                BranchTable(t.offset // 16, tuple(target // 16 for target in t.targets))
                for t in kernel.branch_tables
            ]
            graph = build_graph(flow_of(view, tables))
        except RegdemError:
            refused += 1
            continue
        miner.view, miner.file = view, path.name
        Pipeline(view, timing_of(view), graph).observe(miner)
        kernels += 1
        instructions += len(view)
    report(miner, kernels, instructions, refused)
    wanted = re.compile(arguments.roles)
    miner.ages = {key: ages for key, ages in miner.ages.items() if wanted.search(key[3])}
    merged: list[LatencyRow] = []
    if arguments.merge is not None:
        merged = parse_rows(arguments.merge.read_text(encoding="utf-8"))
    if arguments.output is not None:
        arguments.output.write_text(
            table_text(miner, kernels, instructions, arguments.label, merged), encoding="utf-8"
        )
    return 0


def report(miner: Miner, kernels: int, instructions: int, refused: int) -> None:
    """Say what was seen and what the model can't explain."""
    print(
        f"{kernels} kernels, {instructions} instructions, {refused} refused, "
        f"{len(miner.ages)} rows, {miner.early_waits} early waits, "
        f"{sum(miner.unexplained.values())} unexplained",
        file=sys.stderr,
    )
    for key, count in miner.unexplained.most_common(40):
        print(f"  {count:8} {' '.join(key)}  e.g. {miner.examples[key]}", file=sys.stderr)


def least_of(ages: Counter[int]) -> tuple[int, int]:
    """The least distance that counts, and how often nothing longer was left.

    What is seen fewer than 20 times and in fewer than 5 % of all cases doesn't count: where a
    register is read as two operands, ptxas now and then leaves what the less demanding one needs.
    """
    enough = min(_COUNTS, math.ceil(_COUNTS_SHARE * sum(ages.values())))
    seen = 0
    for age in sorted(ages):
        seen += ages[age]
        if seen >= enough:
            return age, seen
    raise ValueError("nothing was seen")


Numbers = tuple[int, int, int, int]


def _joined(old: Numbers | None, new: Numbers) -> Numbers:
    """Evidence of two corpora together."""
    if old is None:
        return new
    least = min(old[0], new[0])
    at_least = [each for each in (old, new) if each[0] == least]
    return (
        least,
        old[1] + new[1],
        sum(each[2] for each in at_least),
        sum(each[3] for each in at_least),
    )


def table_text(
    miner: Miner, kernels: int, instructions: int, label: str, merged: list[LatencyRow]
) -> str:
    """The table file: one row per pair, sorted."""
    lines = [
        "# Least cycles between dependent instructions of sm_90, as ptxas leaves them.",
        f"# Mined by tools/latency/mine.py from {kernels} kernels, {instructions} instructions"
        + (f": {label}" if label else ""),
        "# kind\tproducer\tconsumer\trole\tleast_cycles\tseen\tseen_at_least\tfiles_at_least",
    ]
    rows: dict[Key, Numbers] = {}
    for old in merged:
        key = (old.kind, old.producer, old.consumer, old.role or "-")
        rows[key] = (old.least_cycles, old.seen, old.seen_at_least, old.files_at_least)
    for key, ages in miner.ages.items():
        least, at_least = least_of(ages)
        near = (files for age, files in miner.files_at[key].items() if age <= least)
        numbers = (least, sum(ages.values()), at_least, len(set[str]().union(*near)))
        rows[key] = _joined(rows.get(key), numbers)
    lines.extend("\t".join([*key, *map(str, rows[key])]) for key in sorted(rows))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
