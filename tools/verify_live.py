"""Compare live counts with the vendor's disassembler, instruction by instruction.

    python tools/verify_live.py FILE_OR_FOLDER... [--limit KERNELS] [--json OUT]

For every kernel of the cubins given, `nvdisasm -lrm narrow` prints per instruction and register
file which registers hold a value; this script counts them and compares with regdem's counts of
GPR, UGPR, predicates and uniform predicates. Two differences are expected and counted apart: the
rows of calls (where the disassembler prints the callee's summary) with what they imply in kernels
that have calls, and registers that a pair of definitions under complementary guards kills for the
disassembler only, which makes our count the higher one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from regdem.analysis.liveness import liveness
from regdem.binary import Cubin, Kernel
from regdem.errors import RegdemError
from regdem.integrations.toolkit import find_tool
from regdem.isa.decoded import RegisterFile
from regdem.program.from_kernel import program_of

COLUMNS = {
    "GPR": RegisterFile.GPR,
    "PRED": RegisterFile.PRED,
    "UGPR": RegisterFile.UGPR,
    "UPRED": RegisterFile.UPRED,
}
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_ROW = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/.*?//\s*\|(.*)$")


def oracle(cubin: bytes) -> dict[str, dict[int, dict[str, int]]]:
    """Per kernel and offset the live count of each register file, as nvdisasm prints them."""
    tool = find_tool("nvdisasm")
    if tool is None:
        sys.exit("nvdisasm not found")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [tool, "-c", "-lrm", "narrow", file.name], capture_output=True, text=True, check=False
        )
    return parse(done.stdout)


def parse(text: str) -> dict[str, dict[int, dict[str, int]]]:
    """The counts in the life-range columns: `| count  marks | count  marks |`."""
    found: dict[str, dict[int, dict[str, int]]] = {}
    current: dict[int, dict[str, int]] = {}
    columns: list[str] = []
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section:
            current = found.setdefault(section.group(1), {})
            continue
        if "GPR" in line and "//" in line and "|" in line:
            names = re.findall(r"\b(GPR|PRED|UGPR|UPRED)\b", line.split("//", 1)[1])
            columns = names or columns
            continue
        row = _ROW.match(line)
        if row and columns:
            cells = row.group(2).split("|")
            counts: dict[str, int] = {}
            for name, cell in zip(columns, cells, strict=False):
                number = re.match(r"\s*#?\s*(\d+)", cell)
                counts[name] = int(number.group(1)) if number else 0
            current[int(row.group(1), 16)] = counts
    return found


def main() -> int:
    """Print the agreement; exit 1 if a difference is not explained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--limit", type=int, default=10**9, help="stop after so many kernels")
    parser.add_argument("--max-bytes", type=int, default=4 << 20, help="skip larger cubins")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    examples: list[str] = []
    for path in cubins(arguments.paths):
        if total["kernels"] >= arguments.limit:
            break
        data = path.read_bytes()
        if len(data) > arguments.max_bytes:
            total["cubins skipped (size)"] += 1
            continue
        expected = oracle(data)
        for kernel in Cubin.parse(data, str(path)).kernels:
            compare(kernel, expected.get(kernel.name, {}), total, examples)
    for name, count in total.items():
        print(f"{count:>12,}  {name}")
    for example in examples[:20]:
        print("  " + example)
    if arguments.json:
        arguments.json.write_text(json.dumps({"totals": total, "examples": examples}, indent=1))
    return 1 if total["instructions that differ, unexplained"] else 0


def cubins(paths: list[Path]) -> Iterator[Path]:
    """The files given and the cubins in the folders given, in order of name."""
    for path in paths:
        if path.is_dir():
            yield from sorted(path.rglob("*.cubin"))
        else:
            yield path


def compare(
    kernel: Kernel,
    expected: dict[int, dict[str, int]],
    total: Counter[str],
    examples: list[str],
) -> None:
    """Add one kernel's agreement to the totals."""
    try:
        program = program_of(kernel)
    except RegdemError as error:
        total[f"kernels refused: {error.code}"] += 1
        return
    if not expected:
        total["kernels without life ranges"] += 1
        return
    live = liveness(program)
    ours = {name: live.pressure(file) for name, file in COLUMNS.items()}
    has_calls = bool(program.callee)
    guarded = (program.code.guard != 7).any()
    total["kernels"] += 1
    clean = True
    for offset, counts in expected.items():
        index = offset // 16
        total["instructions"] += 1
        different = {
            name: (int(ours[name][index]), count)
            for name, count in counts.items()
            if int(ours[name][index]) != count
        }
        if not different:
            continue
        clean = False
        if has_calls:
            total["instructions that differ, in kernels with calls"] += 1
        elif guarded and all(mine > theirs for mine, theirs in different.values()):
            total["instructions that differ, ours higher (complementary guards)"] += 1
        else:
            total["instructions that differ, unexplained"] += 1
            examples.append(f"{kernel.name} 0x{offset:x}: {different}")
    total["kernels equal on every instruction"] += clean
    total["kernels with calls"] += has_calls


if __name__ == "__main__":
    sys.exit(main())
