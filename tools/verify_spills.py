"""Compare spill bytes with `ptxas -v` over builds with register caps.

    python tools/verify_spills.py SOURCE.cu... [--caps 24,32,40,48,64] [--arch sm_90]

Each source is compiled at each cap (with -override-directive-values, so that launch bounds don't
win); per kernel, ptxas prints the bytes of its spill stores and loads, and this script compares
them with the sums over regdem's sites, once with the annotations ptxas leaves in the file and once
without, by dataflow alone.
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

from regdem.binary import Cubin
from regdem.errors import RegdemError
from regdem.integrations.toolkit import find_tool
from regdem.report.inspection import analyse

_FUNCTION = re.compile(r"Function properties for (\S+)")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def build(source: Path, cap: int, arch: str) -> tuple[bytes, dict[str, tuple[int, int]]] | None:
    """The cubin, and per function (store bytes, load bytes); None where it doesn't compile."""
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


def parse(text: str) -> dict[str, tuple[int, int]]:
    """What `ptxas -v` says per function."""
    found: dict[str, tuple[int, int]] = {}
    name = ""
    for line in text.splitlines():
        function = _FUNCTION.search(line)
        if function:
            name = function.group(1)
        spills = _SPILLS.search(line)
        if spills and name:
            found[name] = (int(spills.group(2)), int(spills.group(3)))
    return found


def main() -> int:
    """Print the agreement; exit 1 if the annotated count ever differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--caps", default="24,32,40,48,64")
    parser.add_argument("--arch", default="sm_90")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    for source in arguments.sources:
        for cap in map(int, arguments.caps.split(",")):
            made = build(source, cap, arguments.arch)
            if made is None:
                total["builds that don't compile"] += 1
                continue
            data, expected = made
            total["builds"] += 1
            for kernel in Cubin.parse(data).kernels:
                try:
                    named = analyse(kernel).spills
                    blind = analyse(replace(kernel, annotations=())).spills
                except RegdemError as error:
                    total[f"kernels refused: {error.code}"] += 1
                    continue
                # Device functions that were not inlined are listed apart; the kernel's sites
                # include theirs, since they share its section.
                inside = {function.name for function in kernel.functions} | {kernel.name}
                stores = sum(expected.get(name, (0, 0))[0] for name in inside)
                loads = sum(expected.get(name, (0, 0))[1] for name in inside)
                total["kernels"] += 1
                total["kernels that spill"] += bool(stores or loads)
                equal = (named.store_bytes, named.load_bytes) == (stores, loads)
                total["equal with annotations"] += equal
                total["equal by dataflow alone"] += (blind.store_bytes, blind.load_bytes) == (
                    stores,
                    loads,
                )
                if not equal:
                    print(
                        f"  {source.name} cap {cap} {kernel.name}: {named.store_bytes}, "
                        f"{named.load_bytes}; ptxas: {stores}, {loads}"
                    )
    for name, count in total.items():
        print(f"{count:>8,}  {name}")
    return 0 if total["equal with annotations"] == total["kernels"] else 1


if __name__ == "__main__":
    sys.exit(main())
