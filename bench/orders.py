"""Random orders of the suite's kernels, proved: what the checker lets through must run right.

    python -m bench.orders PREPARED OUT [--per-build 4] [--builds '^(default|cap_255)$']
    python -m bench.run --run OUT --group suite      # on a machine with a GPU
    python -m bench.orders --tables DATABASE...      # what the runs found, as a page

The scheduler of `regdem.transform.reschedule` only makes orders that it likes. This makes orders
that nobody would: in every segment the instructions are shuffled by a random distance, as far as
dependences allow, with stalls as short as the tables allow, and the checker proves the result or
refuses it. A proved file whose outputs differ on the GPU shows a hole in the checker's rules.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import shutil
import sqlite3
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from regdem.binary import Cubin
from regdem.errors import RegdemError
from regdem.machine.block import BlockShape
from regdem.rewrite import Request, prove_first
from regdem.transform.ground import Piece
from regdem.transform.near_orders import NearPlan, nearest
from regdem.transform.reschedule import Chosen, RescheduleOptions, plan_of, rescheduled

_MOST_REGISTERS = 255
_FAR = (2.0, 6.0, 20.0, 60.0)
_LARGEST = 250_000
"""Bytes of a cubin beyond which it is left out: its order alone takes minutes."""


class RandomPlan(NearPlan):
    """Shuffles every segment by about `far` places; less where registers run out."""

    far: float

    def draw(self) -> Chosen:
        """Random orders that keep the dependences: each place drawn near its old one."""
        return {piece.segment: self._shuffled(piece) for b in self.pieces.values() for piece in b}

    def _shuffled(self, piece: Piece) -> list[int]:
        n = piece.segment.end - piece.segment.start
        return nearest(piece.graph, [k + self.rng.gauss(0, self.far) for k in range(n)])


def one(job: tuple[Path, Path, dict[str, Any], dict[str, Any], int]) -> dict[str, Any]:
    """Makes one file; the manifest's row, or why there is none."""
    source, out, record, variant, seed = job
    name = f"{variant['name']}-random_{seed}"
    row = {**variant, "name": name, "family": "ours", "status": "refused", "reason": ""}
    row.pop("file", None)
    cubin = Cubin.parse((source / variant["file"]).read_bytes(), variant["file"])
    kernel = next(k for k in cubin.kernels if record["kernel"] in k.name)
    threads = 1
    for extent in record["block"]:
        threads *= extent
    request = Request(BlockShape(threads), dynamic_shared_bytes=record["dynamic_shared_bytes"])
    try:
        plan = plan_of(kernel, RescheduleOptions(_MOST_REGISTERS), RandomPlan)
        assert isinstance(plan, RandomPlan)
        plan.rng = random.Random(f"{record['name']} {name}")
        plan.far = _FAR[seed % len(_FAR)]
        new, _, _ = prove_first(cubin, kernel, request, [lambda: rescheduled(kernel, plan)])
    except RegdemError as error:
        return {**row, "reason": f"{error.code}: {error}"[:200]}
    data = new.to_bytes()
    file = f"{record['name']}.{name}.cubin"
    (out / file).write_bytes(data)
    registers = new.kernel(kernel.name).registers_per_thread
    digest = hashlib.sha256(data).hexdigest()
    return {**row, "status": "built", "file": file, "sha256": digest, "registers": registers}


def page(databases: list[Path]) -> str:
    """Runs of random orders: how many there were, how many gave the outputs of their build."""
    lines = [
        "# Random orders on the GPU",
        "",
        "Proved random orders of the suite's builds and rewrites (`python -m bench.orders`, "
        "`python -m bench.run --run`), outputs compared byte for byte with the default build's. "
        "Made by `python -m bench.orders --tables`.",
        "",
        "| database | GPU, driver | date | kernels | builds shuffled | orders | right | wrong |",
        "|---|---|---|---|---|---|---|---|",
    ]
    wrong: list[str] = []
    for path in databases:
        with closing(sqlite3.connect(path)) as database:
            device, driver, date = database.execute(
                "select device, driver, date from run order by id desc limit 1"
            ).fetchone()
            name = json.loads(device)["name"] if device.startswith("{") else device
            rows = database.execute(
                "select kernel, variant, min(identical) from equality "
                "where variant like '%-random_%' group by kernel, variant order by 1, 2"
            ).fetchall()
            failed = database.execute(
                "select kernel, name, 0 from variant "
                "where status = 'failed' and name like '%-random_%'"
            ).fetchall()
        rows += failed
        builds = {(kernel, name.partition("-random_")[0]) for kernel, name, _ in rows}
        right = sum(bool(same) for _, _, same in rows)
        wrong += [f"- {path.name}: {kernel} {name}" for kernel, name, same in rows if not same]
        kernels = len({kernel for kernel, _ in builds})
        lines.append(
            f"| {path.name} | {name}, {driver} | {date[:10]} | {kernels} | {len(builds)} "
            f"| {len(rows)} | {right} | {len(rows) - right} |"
        )
    return "\n".join([*lines, *(["", "Wrong:", "", *wrong] if wrong else [])]) + "\n"


def main() -> int:
    """Makes the files and the manifest that `bench.run --run` reads."""
    if sys.argv[1:2] == ["--tables"]:
        print(page([Path(name) for name in sys.argv[2:]]), end="")
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prepared", type=Path, help="a folder that bench.run --prepare made")
    parser.add_argument("out", type=Path)
    parser.add_argument("--per-build", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kernels", default="")
    parser.add_argument("--builds", default="^(default|cap_255)$")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    manifest = json.loads((args.prepared / "manifest.json").read_text(encoding="utf-8"))
    seeds = range(args.first_seed, args.first_seed + args.per_build)
    jobs: list[tuple[Path, Path, dict[str, Any], dict[str, Any], int]] = []
    kept: list[dict[str, Any]] = []
    for record in manifest["kernels"]:
        builds = [
            v
            for v in record["variants"]
            if v.get("file") and (v["name"] == "default" or re.search(args.builds, v["name"]))
        ]
        if not re.search(args.kernels, record["name"]) or not builds:
            continue
        for build in builds:
            shutil.copy(args.prepared / build["file"], args.out / build["file"])
            if build["bytes"] > _LARGEST or not re.search(args.builds, build["name"]):
                continue
            jobs += [(args.prepared, args.out, record, build, s) for s in seeds]
        kept.append({**record, "variants": builds})
    by_name = {record["name"]: record for record in kept}
    refused: Counter[str] = Counter()
    with ProcessPoolExecutor(args.jobs) as pool:
        for job, row in zip(jobs, pool.map(one, jobs), strict=True):
            by_name[job[2]["name"]]["variants"].append(row)
            if row["status"] != "built":
                refused[row["reason"][:100]] += 1
            print(job[2]["name"], row["name"], row["status"], row["reason"], flush=True)
    text = json.dumps({**manifest, "kernels": kept}, indent=1)
    (args.out / "manifest.json").write_text(text, encoding="utf-8")
    print(f"{len(jobs) - sum(refused.values())} of {len(jobs)} proved", dict(refused))
    return 0


if __name__ == "__main__":
    sys.exit(main())
