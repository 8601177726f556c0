"""The benchmark runner: `python -m bench.run ACTION`; see bench/README.md.

`--prepare DIR` compiles and rewrites (no GPU); `--run DIR` measures (needs only numpy, the driver
and DIR); `--sanitize DIR` and `--profile DIR` put single launches under NVIDIA's tools;
`--tables DB` writes the docs page; `--dry-run` prepares and prints the plan.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # called as a script: put the repository on the path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.suite import tools
from bench.suite.kernels import select
from bench.suite.page import markdown
from bench.suite.prepare import prepare
from bench.suite.session import Limits, measure_all
from bench.suite.store import Store
from bench.suite.tables import GROUPS, best_of, by_kernel, compact, fastest_builds, rows_of
from bench.suite.toolchain import call

Record = dict[str, Any]
_speak = threading.Lock()


def say(text: str) -> None:
    """Progress, on stderr, at once."""
    with _speak:
        print(text, file=sys.stderr, flush=True)


def _manifest(folder: Path) -> Record:
    return json.loads((folder / "manifest.json").read_text())


def _chosen(args: argparse.Namespace, manifest: Record) -> list[Record]:
    wanted = {spec.name for spec in select(args.group, args.kernels)}
    return [record for record in manifest["kernels"] if record["name"] in wanted]


def plan_text(manifest: Record) -> str:
    """What would be measured: a line per kernel with its cliffs and what was made."""
    lines = [f"{'kernel':22s} {'regs':>4s} {'spill':>6s} {'blk':>3s} {'cliffs':14s} made / refused"]
    for kernel in manifest["kernels"]:
        variants: list[Record] = kernel["variants"]
        default = variants[0] if variants else {}
        made = [v["name"] for v in variants if v["status"] == "built"]
        lost = [v["name"] for v in variants if v["status"] != "built"]
        spills = default.get("spill_store_bytes", 0) + default.get("spill_load_bytes", 0)
        lines.append(
            f"{kernel['name']:22s} {default.get('registers', '?')!s:>4s} {spills:6d} "
            f"{kernel.get('resident_blocks', '?')!s:>3s} "
            f"{','.join(map(str, kernel.get('cliffs', []))):14s} {len(made)} / "
            f"{len(lost)} {' '.join(lost)}"
        )
    return "\n".join(lines)


def do_prepare(args: argparse.Namespace, folder: Path) -> int:
    specs = select(args.group, args.kernels)
    fastest = None
    if args.after:
        store = Store(Path(args.after))
        fastest = fastest_builds(rows_of(store, store.last_run()))
        store.close()
    manifest = prepare(
        specs, folder, jobs=args.jobs, say=say, variants=args.variants, resume=args.resume,
        fastest=fastest,
    )  # fmt: skip
    total = sum(path.stat().st_size for path in folder.iterdir())
    print(plan_text(manifest))
    print(f"{len(specs)} kernels, {total / 1e6:.1f} MB, {manifest['prepare_seconds']} s")
    return 0


def _conditions() -> tuple[str, str]:
    """(driver version, clocks and power) as nvidia-smi prints them, or what went wrong."""
    fields = "driver_version,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw"
    done = call(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], 30)
    if not done.ok:
        return "unknown", "unknown"
    driver, _, rest = done.stdout.strip().splitlines()[0].partition(", ")
    return driver, f"SM, memory, largest SM, temperature, power: {rest}"


def _command_text() -> str:
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    return "python -m bench.run " + " ".join(words)


def _open_run(args: argparse.Namespace, folder: Path, manifest: Record) -> tuple[Store, int]:
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    store = Store(out / "results.sqlite")
    driver, clocks = _conditions()
    digest = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    run = store.add_run(
        date=time.strftime("%Y-%m-%d"),
        driver=driver,
        clocks=clocks,
        nvcc=manifest["nvcc"],
        command=_command_text(),
        manifest_sha256=digest,
    )
    return store, run


def do_run(args: argparse.Namespace, folder: Path) -> int:
    manifest = _manifest(folder)
    records = {record["name"]: record for record in _chosen(args, manifest)}
    store, run = _open_run(args, folder, manifest)
    out = Path(args.out)
    started = time.monotonic()
    results: dict[str, Record] = {}

    def done(name: str, result: Record) -> None:
        results[name] = result
        store.add_kernel(run, records[name], result)
        if result["device"]:
            store.set_device(run, json.dumps(result["device"]))
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        times = result["timings"]
        base = times.get("default", {}).get("median_ms")
        best = min(times.values(), key=lambda t: t["median_ms"], default=None)
        wrong = {c["variant"] for c in result["checks"] if not c["identical"]}
        say(
            f"[{time.monotonic() - started:6.1f} s] {name:22s} default {base} ms, best "
            f"{best and best['variant']} {best and round(best['median_ms'], 4)} ms"
            + (f" WRONG {sorted(wrong)}" if wrong else "")
            + (f" {result['notes']}" if result["notes"] else "")
        )

    measure_all(
        folder.resolve(),
        list(records),
        workers=args.jobs,
        limits=Limits(),
        rounds=args.rounds,
        seeds=args.seeds,
        budget_s=args.budget_s,
        done=done,
    )
    _write_pages(store, run, args)
    print(compact(store, run))
    store.close()
    return 0


def _write_pages(store: Store, run: int, args: argparse.Namespace) -> None:
    path = Path(args.out) / "results.md"
    path.write_text(markdown(store, run, args.title))


def _run_to_extend(args: argparse.Namespace, folder: Path) -> tuple[Store, int]:
    """The last run in the database (sanitizer and counter rows belong to it), or a new one."""
    if (Path(args.out) / "results.sqlite").exists():
        store = Store(Path(args.out) / "results.sqlite")
        if store.last_run():
            return store, store.last_run()
        store.close()
    return _open_run(args, folder, _manifest(folder))


def do_sanitize(args: argparse.Namespace, folder: Path) -> int:
    """memcheck and racecheck, one launch of every rewritten variant (and of the defaults)."""
    store, run = _run_to_extend(args, folder)
    keep = threading.Lock()
    wanted: list[tuple[str, str]] = []
    for record in _chosen(args, _manifest(folder)):
        for variant in record["variants"]:
            rewritten = variant["family"] in ("binary", "ours") or variant["name"] == "default"
            if variant.get("file") and rewritten:
                wanted.append((record["name"], variant["name"]))

    def done(kernel: str, variant: str, tool: str, status: str, detail: str) -> None:
        with keep:
            store.add_sanitizer(run, kernel, variant, tool, status, detail)
        say(f"{kernel:22s} {variant:20s} {tool:10s} {status:8s} {detail[:100]}")

    tools.sanitize_all(folder.resolve(), wanted, jobs=args.jobs, timeout_s=120, done=done)
    _write_pages(store, run, args)
    query = "select tool, status, count(*) as n from sanitizer where run = ? group by tool, status"
    for row in store.rows(query, run):
        print(f"{row['tool']}: {row['n']} {row['status']}")
    store.close()
    return 0


def _worth_profiling(store: Store, run: int) -> dict[str, set[str]]:
    """By kernel: the default, the best of NVIDIA's levers and the best of ours."""
    worth: dict[str, set[str]] = {}
    for kernel, rows in by_kernel(rows_of(store, run)).items():
        best = [best_of(rows, GROUPS[name]) for name in ("best_nvidia", "best_ours")]
        ours = best_of(rows, frozenset({"binary", "ours"}))
        if rows[0]["speedup"]:
            worth[kernel] = {"default", *(row["name"] for row in (*best, ours) if row)}
    return worth


def do_profile(args: argparse.Namespace, folder: Path) -> int:
    """Hardware counters, one launch each: of the default and the best of each family if timed."""
    store, run = _run_to_extend(args, folder)
    worth = _worth_profiling(store, run)
    deadline = time.monotonic() + args.budget_s
    for record in _chosen(args, _manifest(folder)):
        if time.monotonic() > deadline:
            say("the time budget is over")
            break
        built = [v["name"] for v in record["variants"] if v.get("file")]
        names = [name for name in built if name in worth.get(record["name"], built)]
        outcome = tools.profile(folder.resolve(), record["name"], names, 120)
        counters = tools.parse_profile(outcome.stdout, record["kernel"], names)
        for variant, rows in counters.items():
            store.add_counters(run, record["name"], variant, rows)
        tail = (outcome.stderr or outcome.stdout).strip().splitlines()[-1:]
        say(f"{record['name']:22s} {len(counters)} of {len(names)} {'' if counters else tail}")
    store.close()
    return 0


def do_tables(args: argparse.Namespace) -> int:
    """Writes DOCS/NAME.md from a database's last run."""
    store = Store(Path(args.tables))
    run = args.run_id or store.last_run()
    target = Path(args.docs) / f"{args.name}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(markdown(store, run, args.title, target.with_suffix("")))
    print(compact(store, run))
    store.close()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--prepare", metavar="DIR", help="build all variants into DIR")
    action.add_argument("--dry-run", metavar="DIR", help="the same, then print the plan; no GPU")
    action.add_argument("--run", metavar="DIR", help="measure what DIR holds")
    action.add_argument("--sanitize", metavar="DIR", help="memcheck and racecheck")
    action.add_argument("--profile", metavar="DIR", help="hardware counters with ncu")
    action.add_argument("--tables", metavar="DB", help="write the docs page from a database")
    parser.add_argument("--group", default="ten", help="ten, suite or all")
    parser.add_argument("--kernels", default="", help="a regular expression on kernel names")
    parser.add_argument("--variants", default="", help="with --prepare: a regular expression")
    parser.add_argument("--resume", action="store_true", help="with --prepare: keep what is made")
    parser.add_argument(
        "--after", metavar="DB", help="with --prepare: add rewrites of the builds fastest there"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time on the CPU")
    parser.add_argument("--out", default="out/bench", help="folder for results")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--budget-s", type=float, default=540.0, help="start no kernel after this")
    parser.add_argument("--title", default="Measured on the H200")
    parser.add_argument("--docs", default="docs/results")
    parser.add_argument("--name", default="ten")
    parser.add_argument("--run-id", type=int, default=0, help="with --tables: not the last run")
    args = parser.parse_args(argv)
    if args.prepare or args.dry_run:
        return do_prepare(args, Path(args.prepare or args.dry_run).resolve())
    if args.run:
        return do_run(args, Path(args.run))
    if args.sanitize:
        return do_sanitize(args, Path(args.sanitize))
    if args.profile:
        return do_profile(args, Path(args.profile))
    return do_tables(args)


if __name__ == "__main__":
    sys.exit(main())
