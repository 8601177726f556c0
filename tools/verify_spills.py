"""Compare spill bytes with `ptxas -v` over builds with register caps.

    python tools/verify_spills.py SOURCE.cu... [--caps 24,32,40,48,64] [--arch sm_90]
        [--page docs/results/inspect-agreement.md]

Each source is compiled at each cap (with -override-directive-values, so that launch bounds don't
win); per kernel, ptxas prints the bytes of its spill stores and loads, and this script compares
them with the sums over regdem's sites, once with the annotations ptxas leaves in the file and once
without, by dataflow alone. `--page` writes the result into that page's section.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from regdem.binary import Cubin, Kernel
from regdem.errors import RegdemError
from regdem.integrations.toolkit import find_tool
from regdem.report.inspection import analyse

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.pages import replace_section

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


Printed = dict[str, tuple[int, int]]
"""Per function (store bytes, load bytes)."""


def build(source: Path, cap: int, arch: str) -> tuple[bytes, dict[str, Printed]] | None:
    """The cubin, and per kernel what ptxas says; None where it doesn't compile."""
    nvcc = find_tool("nvcc")
    if nvcc is None:
        sys.exit("nvcc not found")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.cubin")
        command = [nvcc, "-cubin", f"-arch={arch}", f"-maxrregcount={cap}", "-Xptxas"]
        command += ["-v,-override-directive-values", "-o", str(output), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return None
        return output.read_bytes(), parse(done.stderr + done.stdout)


def parse(text: str) -> dict[str, Printed]:
    """What `ptxas -v` says: for each kernel its own line and those of functions not inlined."""
    found: dict[str, Printed] = {}
    kernel = function = ""
    for line in text.splitlines():
        if entry := _ENTRY.search(line):
            kernel = entry.group(1)
        if named := _FUNCTION.search(line):
            function = named.group(1)
        if (bytes_ := _SPILLS.search(line)) and kernel:
            found.setdefault(kernel, {})[function] = int(bytes_.group(2)), int(bytes_.group(3))
    return found


def printed(said: Printed, kernel: Kernel) -> tuple[int, int]:
    """(store bytes, load bytes) that ptxas prints for the functions of the kernel's section.

    Device functions stand in the file as `$KERNEL$FUNCTION`.
    """
    inside = {each.name.removeprefix(f"${kernel.name}$") for each in kernel.functions}
    lines = [said.get(name, (0, 0)) for name in inside | {kernel.name}]
    return sum(stores for stores, _ in lines), sum(loads for _, loads in lines)


def main() -> int:
    """Print the agreement; exit 1 if the annotated count ever differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--caps", default="24,32,40,48,64")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    differing: list[str] = []
    for source in arguments.sources:
        for cap in map(int, arguments.caps.split(",")):
            made = build(source, cap, arguments.arch)
            if made is None:
                total["builds that don't compile"] += 1
                continue
            data, expected = made
            total["builds"] += 1
            exact = True
            for kernel in Cubin.parse(data).kernels:
                try:
                    named = analyse(kernel).spills
                    blind = analyse(replace(kernel, annotations=())).spills
                except RegdemError as error:
                    total[f"kernels refused: {error.code}"] += 1
                    continue
                wanted = printed(expected.get(kernel.name, {}), kernel)
                total["kernels"] += 1
                total["kernels that spill"] += any(wanted)
                equal = (named.store_bytes, named.load_bytes) == wanted
                exact &= equal
                total["equal with annotations"] += equal
                total["equal by dataflow alone"] += (blind.store_bytes, blind.load_bytes) == wanted
                total["with spills in ptxas's own routines"] += named.spills.uncounted_bytes > 0
                if not equal:
                    differing.append(
                        f"{source.name} cap {cap} {kernel.name}: {named.store_bytes}, "
                        f"{named.load_bytes}; ptxas: {wanted[0]}, {wanted[1]}"
                    )
                    print(f"  {differing[-1]}", flush=True)
            total["builds equal in every kernel"] += exact
    for name, count in total.items():
        print(f"{count:>8,}  {name}")
    if arguments.page:
        text = _section(total, differing, arguments.caps)
        replace_section(arguments.page, "Spill bytes against `ptxas -v`", text)
    return 0 if total["equal with annotations"] == total["kernels"] else 1


def _section(total: Counter[str], differing: list[str], caps: str) -> str:
    exceptions = "".join(f"- {line}\n" for line in differing) or "There is no exception.\n"
    return f"""`tools/verify_spills.py` over the sources in `bench/kernels/` and `examples/` with register caps of
{caps.replace(",", ", ")}: {total["builds"]} builds, {total["kernels"]} kernels, of which {total["kernels that spill"]} spill.

| | kernels whose store and load bytes both equal ptxas's |
|---|---|
| with the annotations of the file | {total["equal with annotations"]} of {total["kernels"]} ({total["builds equal in every kernel"]} of {total["builds"]} builds in every kernel) |
| by dataflow alone | {total["equal by dataflow alone"]} of {total["kernels"]} |

{exceptions}
`ptxas -v` prints the kernel and each device function that was not inlined; the kernel's figures here
are the sum over the functions of its section. Two rules make them agree: the spills in ptxas's own
routines for division and roots (`$__internal_...`; {total["with spills in ptxas's own routines"]} of the kernels have some) are printed
nowhere, and registers that a device function keeps for its caller are counted, though the file does
not name them.
"""  # noqa: E501


if __name__ == "__main__":
    sys.exit(main())
