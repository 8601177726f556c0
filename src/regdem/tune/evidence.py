"""The evidence folder: what was measured, in files that need neither regdem nor a GPU to read.

variants/NAME.cubin    every variant that could be made
rejected/NAME.json     where a variant's outputs differ, with the first differing elements
results.json           everything, samples included
report.html            the same as one page
best.cubin             the best, or the original where nothing beats it
original.cubin, launch/, tuning.json, store.sqlite    what a later run goes on from
"""

from __future__ import annotations

import json
from pathlib import Path

from regdem.binary.atomic import write_atomically
from regdem.tune.outcome import TuneResult
from regdem.tune.report import html_report
from regdem.tune.store import file_name

RESULTS_NAME = "results.json"
REPORT_NAME = "report.html"
BEST_NAME = "best.cubin"


def write_evidence(result: TuneResult, folder: Path) -> None:
    """Writes all but what the store keeps itself. Raises UsageError where it can't be written."""
    for row in result.rejected:
        assert row.measurement is not None
        (folder / "rejected").mkdir(exist_ok=True)
        evidence = {
            "name": row.made.name,
            "cubin": f"variants/{file_name(row.made.name)}.cubin",
            "cubin_sha256": row.made.cubin_sha256,
            "reason": row.measurement.reason,
            "difference": row.measurement.difference,
        }
        path = folder / "rejected" / f"{file_name(row.made.name)}.json"
        write_atomically(path, (json.dumps(evidence, indent=2) + "\n").encode())
    write_atomically(folder / RESULTS_NAME, result.to_json().encode())
    write_atomically(folder / REPORT_NAME, html_report(result).encode())
    if result.gpu is not None:
        write_atomically(folder / BEST_NAME, result.to_bytes())
