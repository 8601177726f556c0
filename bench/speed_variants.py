"""How long all variants of a kernel take: made, proved and predicted by `regdem optimize`'s way.

    python -m bench.speed_variants [--kernels REGEX] [--processes 2] [--write docs/results/speed.md]

Each kernel of the suite whose source stands in `bench/kernels/suite/` is compiled with nvcc for
sm_90, and `optimize_cubin` runs on it with that many worker processes, wall-clock from the first
job to the choice. A row a kernel: instructions, registers, rewrites tried and proved, wall-clock
and processor seconds (the latter depend less on what else the machine does), what is left of these
on as many free cores for 1,000 instructions, and how many cores other processes took meanwhile
(Linux only). `--write` puts the table between its marks in
that file.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.suite.kernels import select
from bench.suite.spec import KernelSpec
from regdem.binary import Cubin
from regdem.integrations.toolkit import find_tool
from regdem.machine import block_shape
from regdem.optimizer import optimize_cubin
from regdem.rewrite import Request

SOURCES = Path(__file__).resolve().parent / "kernels" / "suite"
BEGIN, END = "<!-- speed_variants: begin -->", "<!-- speed_variants: end -->"


@dataclass(frozen=True)
class Row:
    """What one kernel took."""

    name: str
    instructions: int
    registers: int
    variants: int
    proved: int
    seconds: float
    processor_seconds: float
    processes: int
    others: float | None
    """Cores that other processes took."""

    def text(self) -> str:
        """The row of the table."""
        per_thousand = 1000 * self.processor_seconds / self.processes / self.instructions
        return (
            f"| {self.name} | {self.instructions:,} | {self.registers} | {self.variants} |"
            f" {self.proved} | {self.seconds:.1f} | {self.processor_seconds:.1f} |"
            f" {per_thousand:.1f} | {'' if self.others is None else f'{self.others:.1f}'} |"
        )


def compiled(spec: KernelSpec, nvcc: str, folder: Path) -> Cubin:
    """The kernel as nvcc builds it for sm_90."""
    out = folder / f"{spec.name}.cubin"
    command = [nvcc, "-cubin", "-arch=sm_90", "-o", str(out), str(SOURCES / f"{spec.name}.cu")]
    subprocess.run(command, check=True, capture_output=True)
    return Cubin.parse(out.read_bytes(), out.name)


def _processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(
        use.ru_utime + use.ru_stime
        for use in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _busy_seconds() -> float | None:
    """Of all cores since the machine's start, whoever used them; None where it can't be told."""
    try:
        first = Path("/proc/stat").read_text().split("\n")[0].split()
    except OSError:
        return None
    user, nice, system = (int(field) for field in first[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def timed(spec: KernelSpec, cubin: Cubin, processes: int) -> Row:
    """All variants of one kernel."""
    kernel = next(k for k in cubin.kernels if re.search(spec.kernel, k.name))
    request = Request(
        threads=block_shape(spec.threads),
        dynamic_shared_bytes=spec.dynamic_shared_bytes,
        reschedule=True,
    )
    begin, used, busy = time.perf_counter(), _processor_seconds(), _busy_seconds()
    with ProcessPoolExecutor(processes) as executor:
        _, (choice,) = optimize_cubin(cubin, [kernel], [request], executor=executor)
    seconds, used = time.perf_counter() - begin, _processor_seconds() - used
    now = _busy_seconds()
    others = None if busy is None or now is None else max(0.0, (now - busy - used) / seconds)
    proved = sum(outcome.done is not None for outcome in choice.outcomes)
    return Row(
        spec.name, len(kernel.code) // 16, kernel.registers_per_thread, len(choice.outcomes),
        proved, seconds, used, processes, others,
    )  # fmt: skip


def main() -> None:
    """Prints the table, and writes it where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kernels", default="")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    nvcc = find_tool("nvcc")
    if nvcc is None:
        raise SystemExit("nvcc is not found")
    lines = [
        "| kernel | instructions | registers | variants | proved | seconds | processor seconds"
        " | the same per core and 1,000 instructions | cores busy otherwise |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for spec in select("suite", options.kernels):
            if not (SOURCES / f"{spec.name}.cu").exists():
                continue
            row = timed(spec, compiled(spec, str(nvcc), Path(folder)), options.processes)
            lines.append(row.text())
            print(lines[-1], flush=True)
    if options.write:
        text = options.write.read_text()
        head, rest = text.split(BEGIN)
        tail = rest.split(END)[1]
        body = "\n".join([BEGIN, *lines, END])
        options.write.write_text(head + body + tail)


if __name__ == "__main__":
    main()
