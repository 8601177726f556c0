"""How fast `regdem inspect` is, beside cuxray's `report` where that is installed.

    python bench/speed_inspect.py [FILE.cubin] [--cuxray PATH] [--repeat 3]

Both commands run on the same file in turn, as separate processes from a cold start of Python, each
writing JSON; the least time of the repeats counts, in wall-clock and in processor seconds. Without
a file the shipped example is used, which shows the cold start of one small kernel. cuxray's cache
is turned off. A large file to try: a cubin of NVIDIA's cuSPARSE wheel (`cuobjdump -xelf sm_90`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from regdem.binary import Cubin
from regdem.integrations.toolkit import find_tool

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "neighbour" / "neighbour.cubin"


def seconds(command: list[str], repeat: int, environment: dict[str, str]) -> tuple[float, float]:
    """(wall, processor) seconds of the fastest of the runs."""
    best = (float("inf"), float("inf"))
    for _ in range(repeat):
        before, start = os.times(), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        wall, after = time.perf_counter() - start, os.times()
        used = after.children_user - before.children_user
        used += after.children_system - before.children_system
        best = (min(best[0], wall), min(best[1], used))
    return best


def main() -> int:
    """Print one line a command, and the ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=EXAMPLE)
    parser.add_argument("--cuxray", default="cuxray", help="the command, if not on the PATH")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    data = arguments.file.read_bytes()
    kernels = Cubin.parse(data).kernels
    print(
        f"{arguments.file.name}: {len(data) / 1e6:.2f} MB, {len(kernels)} kernels, "
        f"{sum(kernel.instruction_count for kernel in kernels):,} instructions"
    )
    environment = dict(os.environ)
    nvdisasm = find_tool("nvdisasm")
    if nvdisasm:
        folder = str(Path(nvdisasm).parent)
        environment["PATH"] = folder + os.pathsep + environment.get("PATH", "")
    with tempfile.TemporaryDirectory() as scratch:
        ours = [sys.executable, "-m", "regdem", "inspect", str(arguments.file)]
        ours += ["--threads", "256", "-o", f"{scratch}/ours.json"]
        mine = seconds(ours, arguments.repeat, environment)
        print(f"  regdem inspect   {mine[0]:7.2f} s wall  {mine[1]:7.2f} s processor")
        cuxray = shutil.which(arguments.cuxray)
        if cuxray is None:
            print("  cuxray           not found (pip install cuxray)")
            return 0
        theirs = [cuxray, "report", str(arguments.file), "--threads", "256", "--json"]
        theirs += ["--no-cache", "-o", f"{scratch}/theirs.json"]
        other = seconds(theirs, arguments.repeat, environment)
        print(f"  cuxray report    {other[0]:7.2f} s wall  {other[1]:7.2f} s processor")
        print(f"  ratio            {other[0] / mine[0]:7.1f}         {other[1] / mine[1]:7.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
