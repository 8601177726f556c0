"""How fast decoding, liveness and a whole `regdem demote` are on this machine.

    python bench/speed.py [FILE.cubin] [--instructions 500000] [--repeat 3]

Decoding and liveness are timed over all kernels of the file (without one: over the shipped
examples, again and again) until that many instructions have passed; the best repeat counts, in
instructions per second of wall-clock and of processor time. Liveness includes the operand masks
and the control-flow graph. Then a kernel of about 1,000 instructions is compiled (where nvcc is
found; else the shipped example is taken) and `regdem demote`, proof included, is timed as a process
from a cold start.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from regdem.analysis.liveness import liveness
from regdem.binary import Cubin, Kernel
from regdem.errors import RegdemError
from regdem.integrations.toolkit import find_tool
from regdem.isa import decode
from regdem.program.from_kernel import program_of

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SOURCE = r"""
extern "C" __global__ void about_1000(float *out, const float *in, const int *at, int n) {
  float a[20];
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = 0; k < 20; ++k) a[k] = in[t + 32 * k];
  for (int i = 0; i < n; ++i) {
    float x = in[at[i * 32 + t]];
#pragma unroll
    for (int k = 0; k < 20; ++k) {
      a[k] = fmaf(a[k], x, a[(k + 7) % 20]) / (a[(k + 3) % 20] + 1.5f);
      x = x * a[k] + sqrtf(fabsf(a[(k + 1) % 20]));
    }
  }
  for (int k = 0; k < 20; ++k) out[t + 32 * k] = a[k];
}
"""


def best(work: Callable[[], int], repeat: int) -> tuple[float, float]:
    """The best instructions per second of wall-clock and of processor time."""
    found = (0.0, 0.0)
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        count = work()
        rates = (count / (time.perf_counter() - wall), count / (time.process_time() - cpu))
        found = (max(found[0], rates[0]), max(found[1], rates[1]))
    return found


def through(kernels: Sequence[Kernel], least: int, step: Callable[[Kernel], int]) -> int:
    """Runs `step` over the kernels until `least` instructions have passed."""
    done = 0
    while done < least:
        before = done
        for kernel in kernels:
            done += step(kernel)
            if done >= least:
                break
        if done == before:
            raise SystemExit("none of these kernels can be analysed")
    return done


def decoded(kernel: Kernel) -> int:
    """Decodes one kernel; returns its instructions."""
    return len(decode(kernel.code, kernel.arch))


def analysed(kernel: Kernel) -> int:
    """Graph and liveness of one kernel; returns its instructions, 0 if it is refused."""
    try:
        return len(liveness(program_of(kernel)).before)
    except RegdemError:
        return 0


def demotion(repeat: int) -> None:
    """Times `regdem demote` as a process."""
    nvcc = find_tool("nvcc")
    with tempfile.TemporaryDirectory() as folder:
        cubin = EXAMPLES / "neighbour" / "neighbour.cubin"
        if nvcc is not None:
            source, cubin = Path(folder) / "kernel.cu", Path(folder) / "kernel.cubin"
            source.write_text(SOURCE)
            command = [nvcc, "-cubin", "-arch=sm_90", "-o", str(cubin), str(source)]
            subprocess.run(command, check=True, capture_output=True)
        kernel = Cubin.parse(cubin.read_bytes(), str(cubin)).kernels[0]
        target = (kernel.registers_per_thread - 1) // 8 * 8
        print(
            f"demote: {kernel.name}, {len(kernel.code) // 16} instructions,"
            f" {kernel.registers_per_thread} -> {target} registers, 256 threads"
        )
        command = [
            sys.executable, "-m", "regdem", "demote", str(cubin), "--registers", str(target),
            "--threads", "256", "-o", str(Path(folder) / "out.cubin"),
        ]  # fmt: skip
        least = float("inf")
        for _ in range(repeat):
            begin = time.perf_counter()
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            least = min(least, time.perf_counter() - begin)
            if run.returncode:
                print(f"  refused: {run.stderr.strip() or run.stdout.strip()}")
                return
        print(f"  {least:.2f} s from a cold start, proof included")


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--instructions", type=int, default=500_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    paths = [options.file] if options.file else sorted(EXAMPLES.rglob("*.cubin"))
    kernels = [k for p in paths for k in Cubin.parse(p.read_bytes(), str(p)).kernels]
    total = sum(len(k.code) // 16 for k in kernels)
    print(f"{len(kernels)} kernels, {total:,} instructions; best of {options.repeat}")
    for name, step in (("decode", decoded), ("graph and liveness", analysed)):
        wall, cpu = best(lambda: through(kernels, options.instructions, step), options.repeat)  # noqa: B023
        print(f"{name:20} {wall:12,.0f} instructions/s ({cpu:,.0f} per second of processor)")
    demotion(options.repeat)


if __name__ == "__main__":
    main()
