"""How fast `regdem inspect` is, beside cuxray's `report` where that is installed.

    python bench/speed_inspect.py [FILE.cubin...] [--cuxray PATH] [--repeat 3] [--page PAGE.md]

Both commands run on the same file in turn, as separate processes from a cold start of Python, each
writing JSON; the least time of the repeats counts, in wall-clock and in processor seconds. Without
a file the shipped example is used, which shows the cold start of one small kernel. cuxray's cache
is turned off. `inspect` uses all cores (`--jobs` its default). A large file to try: a cubin of
NVIDIA's cuSPARSE wheel (`cuobjdump -xelf sm_90`). `--page` writes the table into that page.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from regdem.binary import Cubin
from regdem.integrations.toolkit import find_tool

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "neighbour" / "neighbour.cubin"
sys.path.insert(0, str(ROOT))
from bench.pages import replace_section  # noqa: E402


@dataclass(frozen=True)
class Times:
    """The fastest of the runs."""

    wall_seconds: float = float("inf")
    processor_seconds: float = float("inf")


@dataclass(frozen=True)
class Row:
    """One file; `theirs` None where cuxray is not found."""

    title: str
    ours: Times
    theirs: Times | None

    @property
    def ratios(self) -> tuple[float, float]:
        """Their time over ours: wall, processor."""
        assert self.theirs is not None
        return (
            self.theirs.wall_seconds / self.ours.wall_seconds,
            self.theirs.processor_seconds / self.ours.processor_seconds,
        )


def run(command: list[str], best: Times, environment: dict[str, str]) -> Times:
    """One more run of a command, and the least of its times so far."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    wall, after = time.perf_counter() - start, os.times()
    used = after.children_user - before.children_user
    used += after.children_system - before.children_system
    return Times(min(best.wall_seconds, wall), min(best.processor_seconds, used))


def measure(file: Path, cuxray: str | None, repeat: int) -> Row:
    """Both commands on one file, in turn."""
    data = file.read_bytes()
    kernels = Cubin.parse(data).kernels
    instructions = sum(kernel.instruction_count for kernel in kernels)
    title = f"{file.name}: {len(data) / 1e6:.2f} MB, {len(kernels)} kernels, "
    title += f"{instructions:,} instructions"
    environment = dict(os.environ)
    nvdisasm = find_tool("nvdisasm")
    if nvdisasm:
        folder = str(Path(nvdisasm).parent)
        environment["PATH"] = folder + os.pathsep + environment.get("PATH", "")
    mine, other = Times(), Times()
    with tempfile.TemporaryDirectory() as scratch:
        ours = [sys.executable, "-m", "regdem", "inspect", str(file)]
        ours += ["--threads", "256", "-o", f"{scratch}/ours.json"]
        theirs = [cuxray or "", "report", str(file), "--threads", "256", "--json"]
        theirs += ["--no-cache", "-o", f"{scratch}/theirs.json"]
        for _ in range(repeat):
            mine = run(ours, mine, environment)
            other = run(theirs, other, environment) if cuxray else other
    return Row(title, mine, other if cuxray else None)


def show(row: Row) -> str:
    """A file's figures as text."""
    lines = [row.title, f"  regdem inspect   {_times(row.ours)}"]
    if row.theirs is None:
        return "\n".join([*lines, "  cuxray           not found (pip install cuxray)"])
    wall, processor = row.ratios
    lines += [
        f"  cuxray report    {_times(row.theirs)}",
        f"  ratio            {wall:7.1f}         {processor:7.1f}",
    ]
    return "\n".join(lines)


def _times(times: Times) -> str:
    return f"{times.wall_seconds:7.2f} s wall  {times.processor_seconds:7.2f} s processor"


def section(rows: list[Row], repeat: int) -> str:
    """The table for the page."""
    lines = [
        f"`bench/speed_inspect.py`, the least of {repeat} runs each, in turn, on "
        f"{os.cpu_count()} cores that other work uses as well; cuxray with its cache off.",
        "`inspect` uses all cores, cuxray one: processor seconds are what one core would give.",
        "Above 20,000 instructions `inspect` does not predict gains unless asked to.",
        "",
        "| file | | wall, s | processor, s |",
        "|---|---|---|---|",
    ]
    for row in rows:
        lines.append(_line(row.title, "regdem inspect", row.ours))
        if row.theirs is not None:
            wall, processor = row.ratios
            lines += [
                _line("", "cuxray report", row.theirs),
                f"| | **ratio** | **{wall:.1f}** | **{processor:.1f}** |",
            ]
    return "\n".join(lines)


def _line(title: str, command: str, times: Times) -> str:
    return f"| {title} | {command} | {times.wall_seconds:.2f} | {times.processor_seconds:.2f} |"


def main() -> int:
    """Print the figures of each file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--cuxray", default="cuxray", help="the command, if not on the PATH")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    cuxray = shutil.which(str(arguments.cuxray))
    rows: list[Row] = []
    for file in arguments.files or [EXAMPLE]:
        rows.append(measure(file, cuxray, arguments.repeat))
        print(show(rows[-1]), flush=True)
    if arguments.page:
        replace_section(arguments.page, "Speed", section(rows, arguments.repeat))
    return 0


if __name__ == "__main__":
    sys.exit(main())
