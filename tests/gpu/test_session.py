"""The parent: restarts without the variant that broke, never waits for ever, keeps results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.suite.page import markdown
from bench.suite.session import Limits, measure_all
from bench.suite.store import Store
from bench.suite.tables import compact, summary

WORKER = """
import json, sys, time
folder, kernel, *rest = sys.argv[1:]
skip = rest[rest.index("--skip") + 1].split(",") if "--skip" in rest else []
def emit(event, **values):
    print(json.dumps({"event": event, **values}), flush=True)
if kernel == "mute":
    time.sleep(60)
emit("ready")
sys.stdin.readline()
emit("device", name="Fake GPU")
times = {"default": 2.0, "cap_40": 1.9, "demote_40": 1.0, "hangs": 9.0, "dies": 9.0}
def timing(variant, ms):
    emit("timing", variant=variant, median_ms=ms, p10_ms=ms, p90_ms=ms, rounds=1, samples_ms=[ms])
for variant, ms in times.items():
    if variant in skip:
        continue
    emit("begin", variant=variant, step="run")
    if variant == "hangs" and kernel == "k":
        time.sleep(60)
    if variant == "dies" and kernel == "k":
        emit("failed", variant=variant, step="run", reason="illegal address")
        sys.exit(3)
    emit("facts", variant=variant, registers_per_thread=40, static_shared_bytes=0, local_bytes=0,
         active_blocks=6)
    if variant != "default":
        for seed in range(4):
            emit("check", variant=variant, seed=seed, identical=variant != "cap_40", where=None)
    timing(variant, ms)
timing("default again", 2.01)
emit("end")
"""

LIMITS = Limits(generate_s=1.5, stall_s=1.5, total_s=10, restarts=4)


def _run(tmp_path: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    results: dict[str, dict[str, Any]] = {}
    measure_all(
        tmp_path,
        names,
        workers=2,
        limits=LIMITS,
        rounds=3,
        seeds=4,
        budget_s=60,
        done=results.__setitem__,
        worker=[sys.executable, str(script)],
    )
    return results


def test_a_hang_and_a_fault_cost_their_variant_only(tmp_path: Path) -> None:
    results = _run(tmp_path, ["k", "mute"])
    assert results["k"]["complete"]
    assert set(results["k"]["failed"]) == {"hangs", "dies"}
    assert "illegal address" in results["k"]["failed"]["dies"]
    assert set(results["k"]["timings"]) == {"default", "cap_40", "demote_40", "default again"}
    assert not results["mute"]["complete"]
    assert "too long" in results["mute"]["notes"][0]


def test_results_become_tables(tmp_path: Path) -> None:
    results = _run(tmp_path, ["k"])
    families = {
        "default": "default",
        "cap_40": "nvidia",
        "demote_40": "binary",
        "hangs": "ours",
        "dies": "ours",
        "pragma_40": "nvidia",
    }
    prepared = {
        "name": "k",
        "cliffs": [40],
        "variants": [
            {
                "name": name,
                "family": family,
                "status": "refused" if name == "pragma_40" else "built",
                "reason": "not allowed" if name == "pragma_40" else "",
                "registers": 48,
            }
            for name, family in families.items()
        ],
    }
    store = Store(tmp_path / "r.sqlite")
    run = store.add_run(device="Fake GPU", command="c")
    store.add_kernel(run, prepared, results["k"])
    store.add_sanitizer(run, "k", "demote_40", "memcheck", "clean", "")
    figures = summary(store, run)
    assert figures["geometric_means"]["best_ours"] == 2.0
    assert figures["geometric_means"]["best_nvidia"] == 1.0  # its outputs differ: not counted
    assert (figures["checked"], figures["identical"]) == (2, 1)
    page = markdown(store, run, "Title")
    assert "| k | demote_40 | 40 | 0 | 6/6 | 4/4 | 1.0000" in page
    assert "memcheck clean" in page
    assert "not allowed" in page
    assert "WRONG:cap_40" in compact(store, run)
    store.close()
