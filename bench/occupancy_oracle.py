"""Agreement of regdem's occupancy with the vendor's `cuda_occupancy.h`, and its speed.

Prints the figures of docs/results/occupancy-agreement.md:

    python bench/occupancy_oracle.py [--per-arch 100000] [--record]

`--record` also rewrites the recorded answers that the tests use where the header is missing.
Needs the header and a C++ compiler.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "machine"))

import header_oracle as oracle  # noqa: E402

from regdem import occupancy  # noqa: E402
from regdem.integrations.toolkit import find_tool, tool_version  # noqa: E402
from regdem.machine import known_archs  # noqa: E402

RECORDED_PER_ARCH = 800


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-arch", type=int, default=100_000)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if reason := oracle.missing_for_oracle():
        print(reason, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        program = oracle.build_harness(Path(folder))
        table = oracle.all_launches(options.per_arch)
        answers = oracle.ask_header(program, table)
        if options.record:
            record(program)
    mismatches = oracle.compare(table, answers)
    report(table, answers, mismatches)
    speed()
    return 1 if mismatches else 0


def record(program: Path) -> None:
    table = oracle.all_launches(RECORDED_PER_ARCH, seed=1)
    path = ROOT / "tests" / "machine" / "header_vectors.npz"
    np.savez_compressed(path, launches=table, answers=oracle.ask_header(program, table))


def report(table: oracle.Table, answers: oracle.Table, mismatches: list[oracle.Mismatch]) -> None:
    nvcc = find_tool("nvcc")
    print(f"header: CUDA {tool_version(nvcc) if nvcc else 'unknown'}\n")
    print("| architecture | launches | don't fit | differences |")
    print("|---|---|---|---|")
    per_arch = len(table) // len(known_archs())
    counted = Counter(mismatch.arch for mismatch in mismatches)
    blocks = answers[:, oracle.OUTPUTS.index("active_blocks")]
    for position, arch in enumerate(known_archs()):
        rows = slice(position * per_arch, (position + 1) * per_arch)
        unfit = int((blocks[rows] == 0).sum())
        print(f"| {arch} | {per_arch:,} | {unfit:,} | {counted[arch]} |")
    print(f"| all | {len(table):,} | {int((blocks == 0).sum()):,} | {len(mismatches)} |")
    for mismatch in mismatches[:10]:
        print(mismatch)


def speed() -> None:
    generator = np.random.default_rng(0)
    count = 1_000_000
    threads = generator.integers(1, 1025, count)
    registers = generator.integers(0, 256, count)
    shared = generator.integers(0, 49_153, count)
    vector = best(lambda: occupancy("sm_90", threads, registers, static_shared_bytes=shared))
    command = [sys.executable, "-m", "regdem.cli.main", "occupancy", "--arch", "sm_90"]
    command += ["--threads", "256", "--registers", "36"]
    cold = best(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
    print(f"\none million launches: {vector:.2f} s; cold start of the command: {cold:.2f} s")
    print(f"(best of five; Python {platform.python_version()}, numpy {np.__version__})")


def best(action: object, repeats: int = 5) -> float:
    assert callable(action)
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    raise SystemExit(main())
