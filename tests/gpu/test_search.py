"""The suite's search: lines go on from what was fastest, and a variant that breaks costs itself."""

from __future__ import annotations

import json
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bench import search
from bench.search import KernelSearch, Measuring, Turn, tables

from regdem.binary import Cubin
from regdem.check import check_pair

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "neighbour" / "neighbour.cubin"
WORKER = """
import hashlib, json, sys
def emit(event, **values):
    print(json.dumps({"event": event, **values}), flush=True)
emit("ready")
for line in sys.stdin:
    files = json.loads(line)
    for name in files:
        emit("begin", variant=name, step="run")
        if name == "breaks":
            sys.exit(3)
        emit("check", variant=name, identical=name != "differs", where=None)
    for name in ["default", *files]:
        fast = int(hashlib.sha256(name.encode()).hexdigest()[:4], 16) / 65536
        ms = 1.0 if "+" not in name else 0.99 - 0.2 * fast
        if name not in ("differs", "breaks"):
            emit("timing", variant=name, median_ms=ms)
    emit("end")
"""


@pytest.fixture
def worker(tmp_path: Path) -> tuple[str, ...]:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    return (sys.executable, str(script))


def test_what_breaks_and_what_differs_is_kept_apart(
    tmp_path: Path, worker: tuple[str, ...]
) -> None:
    measuring = Measuring(tmp_path, "k", 3, Turn(time.monotonic() + 60), worker)
    assert set(measuring.times({"differs": "f", "good": "f"})) == {"default", "good"}
    assert measuring.times({"good": "f", "breaks": "f"}) == {}
    assert set(measuring.times({"good": "f"})) == {"default", "good"}, "not started anew"
    measuring.close()
    assert set(measuring.failed) == {"differs", "breaks"}


def test_lines_go_on_from_the_fastest(
    tmp_path: Path, worker: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "WORKER", worker)
    source, out = tmp_path / "prepared", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    rows: list[dict[str, Any]] = []
    for name, family in (("default", "default"), ("cap_40", "nvidia")):
        shutil.copy(EXAMPLE, source / f"k.{name}.cubin")
        rows.append({"name": name, "family": family, "file": f"k.{name}.cubin", "commands": []})
    record: dict[str, Any] = {
        "name": "k", "kernel": "pair_forces", "block": [256, 1, 1], "dynamic_shared_bytes": 0,
        "variants": rows,
    }  # fmt: skip
    found = KernelSearch(source, out, record, [{"name": "cap_40", "speedup": 1.1}])
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(found, "_generation", _counted(found, 2))
        found.run(pool, Turn(time.monotonic() + 60), 3, 4)
    told = found.to_dict()
    assert told["generations"] == 2
    assert told["tried"] > 4
    for kind, family in (("any", "ours"), ("binary", "binary")):
        way = told["lines"][kind]
        assert way[-1]["speedup"] > way[0]["speedup"], kind
        row = next(row for row in found.rows_out() if row["name"] == way[-1]["name"])
        if kind == "binary":
            assert row["family"] == family
        data = (out / row["file"]).read_bytes()
        before = Cubin.parse(EXAMPLE.read_bytes()).kernel("pair_forces")
        after = Cubin.parse(data).kernel("pair_forces")
        assert not check_pair(before, after, "sm_90", threads=256).findings
    (tmp_path / "search.json").write_text(json.dumps({"kernels": [told]}))
    page = tables([tmp_path / "search.json"])
    assert f"| k | 2 | {told['tried']} |" in page


def _counted(found: KernelSearch, generations: int) -> Any:
    """`_generation`, and the end of the time after so many."""
    real = found._generation  # pyright: ignore[reportPrivateUsage]

    def one(pool: Any, measuring: Any, turn: Turn, children: int) -> None:
        real(pool, measuring, turn, children)
        if found.generations == generations:
            turn.deadline = 0.0

    return one
