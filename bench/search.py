"""The search from measured variants on, for the whole suite: `regdem tune --generations` alone.

    python -m bench.search PREPARED --after DATABASE --out OUT [--budget-s 400] [--jobs 15]
    python -m bench.run --run OUT --group suite
    python -m bench.search --tables OUT/search.json...

PREPARED is a folder of `bench.run --prepare`, DATABASE what was measured of it or of an earlier
one. Of each kernel two lines are followed (`regdem/tune/steps.py`): from the fastest variant, and
from the fastest that needs the binary alone. Generations go on until the time is over; one
generation's variants are timed in the same rounds as their parent. OUT holds the defaults, what
the lines began with and where they ended, and `search.json` all that was tried.

What is fastest of many noisy times is overrated: the figures that count are those of the run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.suite.session import Process
from bench.suite.store import Store
from bench.suite.tables import by_kernel, rows_of
from regdem.machine import BlockShape
from regdem.rewrite import Request
from regdem.tune.made import Made
from regdem.tune.steps import CHILDREN, Step, steps_from

Record = dict[str, Any]
_STARTS = {"any": 6, "binary": 4}
"""Variants of each line that are measured to find where it begins."""
_BINARY = ("default", "binary")
_LARGEST = 250_000
"""Bytes of a cubin beyond which it is left out: its order alone takes minutes."""
WORKER = (sys.executable, "-m", "bench.suite.measure")
_START_S, _STALL_S = 180.0, 15.0
_RESTARTS = 3


@dataclass
class Turn:
    """The GPU, for one measuring process at a time, and when to end."""

    deadline: float
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.deadline


class Measuring:
    """One kernel's measuring process; started anew where a variant brought it down."""

    def __init__(
        self, folder: Path, kernel: str, rounds: int, turn: Turn, worker: Sequence[str] = ()
    ) -> None:
        self._command = [
            *(worker or WORKER),
            str(folder),
            kernel,
            "--serve",
            "--rounds",
            str(rounds),
        ]
        self._turn = turn
        self._process: Process | None = None
        self._starts = 0
        self.seconds = 0.0
        self.failed: dict[str, str] = {}

    def _started(self) -> Process:
        if self._process is None:
            self._starts += 1
            if self._starts > _RESTARTS:
                raise TimeoutError("too many restarts")
            self._process = Process(self._command)
            event = self._process.next_event(_START_S)
            if event is None or event["event"] != "ready":
                raise TimeoutError(f"no inputs: {self._process.errors or event}")
        return self._process

    def times(self, files: dict[str, str]) -> dict[str, float]:
        """Median milliseconds of those with the default's outputs; of "default", too.

        Raises TimeoutError where the process can't be had again.
        """
        process = self._started()
        found: dict[str, float] = {}
        at = ""
        with self._turn.lock:
            begun = time.monotonic()
            process.send(json.dumps(files))
            while True:
                try:
                    event = process.next_event(_STALL_S)
                except TimeoutError:
                    event = None
                if event is None:
                    self.failed[at or "?"] = "no answer"
                    self.close()
                    return found
                if event["event"] == "begin":
                    at = event["variant"]
                elif event["event"] == "failed":
                    self.failed[event["variant"]] = f"{event['step']}: {event['reason']}"
                elif event["event"] == "check" and not event["identical"]:
                    self.failed[event["variant"]] = f"different outputs: {event['where']}"
                elif event["event"] == "timing":
                    found[event["variant"]] = event["median_ms"]
                elif event["event"] == "end":
                    self.seconds += time.monotonic() - begun
                    return found

    def close(self) -> None:
        if self._process is not None:
            self._process.end(grace_s=0.0)
            self._process = None


@dataclass
class Line:
    """One search: where it stands, and the fastest at the end of each generation."""

    kind: str
    starts: list[Made]
    parent: Made | None = None
    root: str = ""
    way: list[Record] = field(default_factory=list[Record])

    def keep_best(self, candidates: Sequence[Made], times: dict[str, float]) -> None:
        """The fastest of the parent and these becomes the parent."""
        timed = [made for made in candidates if made.name in times]
        if not timed:
            return
        best = min(timed, key=lambda made: times[made.name])
        is_new = self.parent is None or best.name != self.parent.name
        self.parent = best
        self.root = self.root or best.name
        if is_new:
            speedup = times["default"] / times[best.name]
            self.way.append({"name": best.name, "speedup": round(speedup, 4)})


class KernelSearch:
    """Both lines of one kernel."""

    def __init__(self, source: Path, out: Path, record: Record, known: list[Record]) -> None:
        self.out, self.record = out, record
        self.rows = {v["name"]: v for v in record["variants"] if v.get("file")}
        shutil.copy(source / self.rows["default"]["file"], out)
        ranked = [row["name"] for row in sorted(known, key=lambda row: -(row["speedup"] or 0.0))]
        ranked = [name for name in dict.fromkeys([*ranked, "default"]) if name in self.rows]
        self.lines: list[Line] = []
        for kind, count in _STARTS.items():
            names = [n for n in ranked if kind == "any" or self.rows[n]["family"] in _BINARY]
            self.lines.append(Line(kind, [self._start(source, n) for n in names[:count]]))
        self.request = Request(
            BlockShape(*record["block"]), dynamic_shared_bytes=record["dynamic_shared_bytes"]
        )
        self.generations = 0
        self.tried = 0
        self.refused: dict[str, int] = {}
        self.failed: dict[str, str] = {}
        self.gpu_s = 0.0
        self.note = ""

    def _start(self, source: Path, name: str) -> Made:
        row = self.rows[name]
        details = {"registers_per_thread": row.get("registers")}
        return Made(name, "built", details=details, cubin=(source / row["file"]).read_bytes())

    def _file(self, made: Made) -> str:
        name = f"{self.record['name']}.{made.name}.cubin"
        assert made.cubin is not None
        (self.out / name).write_bytes(made.cubin)
        return name

    def run(self, pool: Executor, turn: Turn, rounds: int, children: int) -> None:
        """Generations until the time is over or the process can't be had."""
        measuring = Measuring(self.out, self.record["name"], rounds, turn)
        try:
            starts = {made.name: made for line in self.lines for made in line.starts}
            times = measuring.times({n: self._file(m) for n, m in starts.items() if n != "default"})
            for line in self.lines:
                line.keep_best(line.starts, times)
            while not turn.is_over:
                self._generation(pool, measuring, turn, children)
        except TimeoutError as error:
            self.note = str(error)
        finally:
            measuring.close()
            self.failed, self.gpu_s = measuring.failed, measuring.seconds

    def _generation(self, pool: Executor, measuring: Measuring, turn: Turn, children: int) -> None:
        parents = {line.parent.name: line.parent for line in self.lines if line.parent}
        if not parents:
            raise TimeoutError("no start could be measured")
        kernel, share = self.record["kernel"], children // len(parents)
        steps = [
            step
            for parent in parents.values()
            for step in steps_from(parent, kernel, self.request, self.generations, share)
        ]
        made = list(pool.map(_run, steps))
        if turn.is_over:
            return
        usable: dict[str, Made] = {}
        of_parent: dict[str, list[Made]] = {name: [] for name in parents}
        for step, one in zip(steps, made, strict=True):
            if one.is_usable:
                usable[one.name] = one
                of_parent[step.parent.name].append(one)
            else:
                self.refused[one.status] = self.refused.get(one.status, 0) + 1
        self.tried += len(usable)
        files = {name: self._file(one) for name, one in (parents | usable).items()
                 if name != "default"}  # fmt: skip
        times = measuring.times(files)
        for line in self.lines:
            if line.parent is not None:
                line.keep_best([line.parent, *of_parent[line.parent.name]], times)
        keep = {line.parent.name for line in self.lines if line.parent}
        for name in usable.keys() - keep:
            (self.out / files[name]).unlink()
        self.generations += 1

    def rows_out(self) -> list[Record]:
        """The manifest's rows: the default, what the lines began with, where they ended."""
        names = dict.fromkeys(["default", *(line.root for line in self.lines if line.root)])
        rows = [self.rows[name] for name in names]
        for line in self.lines:
            if line.parent is None or line.parent.name in self.rows:
                continue
            root = self.rows[line.root]
            assert line.parent.cubin is not None
            row = root | {
                "name": line.parent.name,
                "family": "binary" if root["family"] in _BINARY else "ours",
                "file": self._file(line.parent),
                "bytes": len(line.parent.cubin),
                "sha256": hashlib.sha256(line.parent.cubin).hexdigest(),
                "registers": line.parent.details["registers_per_thread"],
                "commands": [*root["commands"], "bench.search"],
            }
            rows.append(row)
        return list({row["name"]: row for row in rows}.values())

    def to_dict(self) -> Record:
        return {
            "kernel": self.record["name"],
            "generations": self.generations,
            "tried": self.tried,
            "measuring_s": round(self.gpu_s, 1),
            "refused": self.refused,
            "failed": self.failed,
            "note": self.note,
            "lines": {line.kind: line.way for line in self.lines},
        }


def _run(step: Step) -> Made:
    try:
        return step.run()
    except Exception as error:  # one step must not end the search
        return Made(step.name, "internal_error", repr(error))


def search_all(
    manifest: Record, source: Path, out: Path, known: dict[str, list[Record]],
    args: argparse.Namespace, say: Callable[[str], None],
) -> list[KernelSearch]:  # fmt: skip
    """Searches all kernels side by side, one measuring at a time."""
    turn = Turn(time.monotonic() + args.budget_s)
    searches: list[KernelSearch] = []
    for record in manifest["kernels"]:
        defaults = [v for v in record["variants"] if v["name"] == "default" and v.get("file")]
        if defaults and defaults[0]["bytes"] <= _LARGEST:
            searches.append(KernelSearch(source, out, record, known.get(record["name"], [])))
    with (
        ProcessPoolExecutor(args.jobs) as pool,
        ThreadPoolExecutor(max(len(searches), 1)) as threads,
    ):
        pool.submit(int).result()

        def one(search: KernelSearch) -> None:
            try:
                search.run(pool, turn, args.rounds, args.children)
            except Exception as error:  # one kernel must not end the run
                search.note = repr(error)
            ends = [f"{line.kind} {line.way[0]['speedup']} to {line.way[-1]['speedup']}"
                    for line in search.lines if line.way]  # fmt: skip
            say(f"{search.record['name']:22s} {search.generations} generations, {search.tried} "
                f"tried, {'; '.join(ends)} {search.failed or ''} {search.note}")  # fmt: skip

        list(threads.map(one, searches))
    return searches


def tables(paths: Sequence[Path]) -> str:
    """What searches tried and found, as a page."""
    lines = [
        "# The search, kernel by kernel",
        "",
        "What was tried from the fastest measured variants on (`python -m bench.search`), and the "
        "speed-up over the default that each line began and ended with, by the search's own times "
        "(of the last step, so overrated); the suite's pages have those of runs of their own. Made "
        "by `python -m bench.search --tables`.",
    ]
    for path in paths:
        kernels = json.loads(path.read_text())["kernels"]
        tried = sum(row["tried"] for row in kernels)
        wrong = sum(len(row["failed"]) for row in kernels)
        lines += [
            "",
            f"## {path.stem}",
            "",
            f"{tried} variants, all proved; {wrong} failed or gave other outputs.",
            "",
            "| kernel | generations | variants | refused | failed or different "
            "| from any build | from the binary alone |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in kernels:
            way = {
                kind: f"{steps[0]['speedup']:.3f} {steps[0]['name']} → {steps[-1]['speedup']:.3f}"
                if steps else "-"
                for kind, steps in row["lines"].items()
            }  # fmt: skip
            lines.append(
                f"| {row['kernel']} | {row['generations']} | {row['tried']} "
                f"| {sum(row['refused'].values())} | {len(row['failed'])} "
                f"| {way['any']} | {way['binary']} |"
            )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Searches, and writes the folder that `bench.run --run` reads."""
    if sys.argv[1:2] == ["--tables"]:
        print(tables([Path(name) for name in sys.argv[2:]]), end="")
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prepared", type=Path, help="a folder that bench.run --prepare made")
    parser.add_argument("--after", type=Path, required=True, help="a database with times of it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kernels", default="")
    parser.add_argument("--budget-s", type=float, default=400.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--children", type=int, default=CHILDREN)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    manifest = json.loads((args.prepared / "manifest.json").read_text())
    kernels = [record for record in manifest["kernels"] if re.search(args.kernels, record["name"])]
    store = Store(args.after)
    known = {
        kernel: [row for row in rows if row["identical"] and row["speedup"]]
        for kernel, rows in by_kernel(rows_of(store, store.last_run())).items()
    }
    store.close()
    (args.out / "manifest.json").write_text(json.dumps(manifest))
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", flush=True)

    searches = search_all(
        {**manifest, "kernels": kernels}, args.prepared, args.out, known, args, say
    )
    rows = [{**s.record, "variants": s.rows_out()} for s in searches]
    text = json.dumps({**manifest, "kernels": rows}, indent=1)
    (args.out / "manifest.json").write_text(text)
    found = {"kernels": [search.to_dict() for search in searches]}
    (args.out / "search.json").write_text(json.dumps(found, indent=1) + "\n")
    tried = sum(search.tried for search in searches)
    wrong = sum(len(search.failed) for search in searches)
    print(f"{tried} variants, {wrong} failed or different")
    return 0


if __name__ == "__main__":
    sys.exit(main())
