"""Counts, per operation, how often ptxas set a write or a read scoreboard and a wait mask.

    python tools/isa/scoreboards.py OUT.json CUBIN_DIR...

An operation that ever sets one signals its completion by scoreboard: it has variable latency.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from harvest import sections


def main() -> None:
    out, roots = sys.argv[1], sys.argv[2:]
    counts = np.zeros((4096, 4), dtype=np.int64)  # total, write, read, least stall
    least = np.full(4096, 16)
    for path in sorted(p for r in roots for p in Path(r).rglob("*.cubin")):
        for _, code in sections(path.read_bytes()):
            words = np.frombuffer(code[: len(code) // 16 * 16], dtype="<u8").reshape(-1, 2)
            op = (words[:, 0] & np.uint64(0xFFF)).astype(int)
            high = words[:, 1]
            write = ((high >> np.uint64(46)) & np.uint64(7)) != 7
            read = ((high >> np.uint64(49)) & np.uint64(7)) != 7
            stall = ((high >> np.uint64(41)) & np.uint64(15)).astype(int)
            counts[:, 0] += np.bincount(op, minlength=4096)
            counts[:, 1] += np.bincount(op, weights=write, minlength=4096).astype(np.int64)
            counts[:, 2] += np.bincount(op, weights=read, minlength=4096).astype(np.int64)
            np.minimum.at(least, op, stall)
    counts[:, 3] = least
    rows = {f"0x{k:03x}": counts[k].tolist() for k in np.flatnonzero(counts[:, 0])}
    Path(out).write_text(json.dumps(rows, indent=0))


if __name__ == "__main__":
    main()
