"""The best of a run once more: `python -m bench.finals PREPARED --after DATABASE --out OUT`.

Problem: what is fastest of hundreds of noisy times is overrated, and the more variants a family
has, the more so.

Method: OUT gets, of each kernel, the default, the blind choices and the variant that was fastest in
DATABASE for every figure of the page; `bench.run --run OUT` measures those in a session of its own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from bench.suite.store import Store
from bench.suite.tables import by_kernel, finalists, rows_of


def main() -> int:
    """Writes the files and the manifest that `bench.run --run` reads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prepared", type=Path, help="the folder that was measured")
    parser.add_argument("--after", type=Path, required=True, help="the database of that run")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    store = Store(args.after)
    chosen = {
        kernel: finalists(rows)
        for kernel, rows in by_kernel(rows_of(store, store.last_run())).items()
        if rows[0]["speedup"]
    }
    store.close()
    manifest: dict[str, Any] = json.loads((args.prepared / "manifest.json").read_text())
    manifest["kernels"] = [r for r in manifest["kernels"] if r["name"] in chosen]
    count = 0
    for record in manifest["kernels"]:
        wanted = chosen[record["name"]]
        record["variants"] = [v for v in record["variants"] if v["name"] in wanted]
        for variant in record["variants"]:
            shutil.copy(args.prepared / variant["file"], args.out / variant["file"])
            count += 1
    (args.out / "manifest.json").write_text(json.dumps(manifest, indent=1))
    print(f"{count} variants of {len(manifest['kernels'])} kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
