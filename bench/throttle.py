"""The same code with fewer warps: `python -m bench.throttle PREPARED OUT`, `--table DB`.

Problem: does a kernel run faster because a rewrite is better code, or because fewer warps are
resident? A file that declares more registers than it uses answers that: not an instruction differs.

Method: from each default build in PREPARED (a folder of `bench.run --prepare`), `throttle_R`
declares R registers, the most at which a block fewer is resident, two fewer, and so on. `pad_N` has
N NOPs in front, which move its loops to other places in the lines of the instruction cache.
`bench.run --run OUT` measures them.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np

from bench.suite.cliffs import resident_blocks
from bench.suite.store import Store
from bench.suite.tables import Record, by_kernel, rows_of
from regdem.binary import Cubin
from regdem.binary.edit import KernelEdit
from regdem.binary.kernel import Kernel
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.neighbours import with_registers
from regdem.program.edit import NOP

MOST_FEWER, MOST_NOPS = 5, 7
_NOP = b"".join(half.to_bytes(8, "little") for half in NOP)


def edits_of(kernel: Kernel, threads: int, shared_bytes: int) -> dict[str, KernelEdit]:
    """By variant name, what to put in a kernel's place."""
    offsets = np.arange(len(kernel.code) // INSTRUCTION_BYTES + 1) * INSTRUCTION_BYTES
    own = kernel.registers_per_thread
    most = {resident_blocks(threads, count, shared_bytes): count for count in range(own, 256)}
    now = resident_blocks(threads, own, shared_bytes)
    fewer = [most[blocks] for blocks in sorted(most, reverse=True) if 0 < blocks < now]
    edits = {f"throttle_{count}": with_registers(kernel, count) for count in fewer[:MOST_FEWER]}
    for nops in range(1, MOST_NOPS + 1):
        moved = offsets + nops * INSTRUCTION_BYTES
        labels = np.concatenate([[0], moved[1:]])  # the entry stays where it is
        edits[f"pad_{nops}"] = KernelEdit(_NOP * nops + kernel.code, moved, labels)
    return edits


def prepare(prepared: Path, out: Path) -> int:
    """Writes the files and the manifest that `bench.run --run` reads; the number of variants."""
    out.mkdir(parents=True, exist_ok=True)
    manifest: Record = json.loads((prepared / "manifest.json").read_text())
    count = 0
    for record in manifest["kernels"]:
        default = next((v for v in record["variants"] if v["name"] == "default"), None)
        record["variants"] = []
        if default is None or not default.get("file"):
            continue
        shutil.copy(prepared / default["file"], out / default["file"])
        record["variants"].append(default)
        cubin = Cubin.parse((prepared / default["file"]).read_bytes(), default["file"])
        kernel = cubin.kernel(record["kernel"])
        shared = kernel.static_shared_bytes + record["dynamic_shared_bytes"]
        for name, edit in edits_of(kernel, math.prod(record["block"]), shared).items():
            data = cubin.with_kernel(kernel.name, edit).to_bytes()
            file = f"{record['name']}.{name}.cubin"
            (out / file).write_bytes(data)
            made = {
                "name": name,
                "family": "binary",
                "file": file,
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "registers": edit.registers_per_thread or kernel.registers_per_thread,
            }
            record["variants"].append(default | made)
            count += 1
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return count


def table(store: Store, run: int) -> str:
    """Markdown: by kernel, the best with fewer warps, and the best and worst with NOPs."""
    lines = ["| kernel | registers | fewer warps | NOPs in front |", "|---|---|---|---|"]
    for kernel, rows in by_kernel(rows_of(store, run)).items():
        timed = {row["name"]: row["speedup"] for row in rows if row["speedup"]}
        fewer = sorted((x, n) for n, x in timed.items() if n.startswith("throttle_"))
        nops = sorted(x for n, x in timed.items() if n.startswith("pad_"))
        best = f"{fewer[-1][0]:.3f} {fewer[-1][1]}" if fewer else "-"
        spread = f"{nops[0]:.3f} to {nops[-1]:.3f}" if nops else "-"
        lines.append(f"| {kernel} | {rows[0]['driver_registers']} | {best} | {spread} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Prepares, or prints the page of a measured database."""
    if sys.argv[1] == "--table":
        store = Store(Path(sys.argv[2]))
        about = store.rows("select * from run order by id desc limit 1")[0]
        device = json.loads(about["device"])["name"]
        print("# The same code with fewer warps\n")
        print((__doc__ or "").partition("\n\n")[2].strip() + "\n")
        print(f"    python -m bench.throttle --table {sys.argv[2]}\n")
        print(f"{device}, driver {about['driver']}, {about['date']}; speed-ups over the default.\n")
        print(table(store, store.last_run()), end="")
        store.close()
        return 0
    print(f"{prepare(Path(sys.argv[1]), Path(sys.argv[2]))} variants")
    return 0


if __name__ == "__main__":
    sys.exit(main())
