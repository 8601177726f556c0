"""Distances that no register tells of, as ptxas leaves them: behind barriers, and uniform reads.

    python tools/latency/distances.py [--per-file 20] PLACES...

Prints, in issue cycles within straight-line code: from each synchronising instruction to what
follows it up to the next, by class of what follows (`SYNC_CYCLES` and `minds_sync` in
`regdem.machine.latency` rest on these); and from each read of a uniform register to the next
instruction that writes it (`reads_uniform_late` and the cycles beside it). Per pair: how often it
was seen, and how often at each of the three shortest distances.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from corpus import kernels_of

from regdem.check.view import CodeView, view_of
from regdem.errors import RegdemError
from regdem.isa.decoded import RegisterFile
from regdem.machine.latency import SYNC_CYCLES

_REACH = 24
Distances = defaultdict[tuple[str, str], Counter[int]]


def behind_syncs(view: CodeView, found: Distances) -> None:
    """From a synchronisation to the first of each class behind it."""
    stall = view.code.stall.tolist()
    for i, name in enumerate(view.name):
        if name not in SYNC_CYCLES:
            continue
        age = max(1, stall[i])
        seen: set[str] = set()
        for k in range(i + 1, len(view)):
            group = view.timing_name[k].partition(":")[0]
            if view.control[k] != "none" or view.name[k] in SYNC_CYCLES or age > _REACH:
                break
            if group not in seen:
                seen.add(group)
                found[name, group][age] += 1
            age += max(1, stall[k])


def between_uniforms(view: CodeView, found: Distances) -> None:
    """From a read of a uniform register to its next write."""
    stall = view.code.stall.tolist()
    readers: dict[int, list[tuple[str, int]]] = {}
    now = 0
    for i, name in enumerate(view.timing_name):
        group = name.partition(":")[0]
        rows = [row for row in view.rows[i] if row.file == RegisterFile.UGPR]
        written = {row.first + k for row in rows if row.writes for k in range(row.width)}
        read = {row.first + k for row in rows if row.reads for k in range(row.width)}
        for register in written:
            for reader, when in readers.pop(register, ()):
                if now - when <= _REACH:
                    found[reader, name][now - when] += 1
        for register in read:
            who = name if group == "uniform" else group
            readers.setdefault(register, []).append((who, now))
        if view.control[i] != "none":
            readers.clear()
        now += max(1, stall[i])


def main() -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("places", nargs="+", help="cubins or folders of cubins")
    parser.add_argument("--largest", type=int, default=4000, help="instructions per kernel")
    parser.add_argument("--per-file", type=int, default=0, help="kernels of each file")
    arguments = parser.parse_args()
    syncs: Distances = defaultdict(Counter)
    uniforms: Distances = defaultdict(Counter)
    files: set[str] = set()
    kernels = 0
    for path, kernel in kernels_of(arguments.places, arguments.largest, arguments.per_file):
        try:
            view = view_of(kernel.name, kernel.code, kernel.arch)
        except RegdemError:
            continue
        behind_syncs(view, syncs)
        between_uniforms(view, uniforms)
        files.add(str(path))
        kernels += 1
    print(f"{kernels} kernels of {len(files)} files")
    for title, found in (("behind", syncs), ("read, then written", uniforms)):
        print(f"\n{title}")
        for (first, second), ages in sorted(found.items()):
            least = " ".join(f"{age}:{ages[age]}" for age in sorted(ages)[:3])
            print(f"  {first:16} {second:22} {sum(ages.values()):7}  {least}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
