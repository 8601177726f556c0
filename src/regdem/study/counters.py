"""Hardware counters of each build, from ncu where it is found and permitted.

ncu runs a small process (`once`) that launches every build once, in order, and prints one row of
CSV a launch. What can't be had is said in words: no ncu, no permission (the driver keeps counters
for administrators unless told otherwise), or ncu's own last line.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import regdem
from regdem.integrations.toolkit import find_tool

METRICS = (
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.per_cycle_active",
    "smsp__inst_executed.sum",
    "smsp__sass_inst_executed_op_local.sum",
    "smsp__sass_inst_executed_op_shared.sum",
    "smsp__sass_inst_executed_op_global.sum",
    "l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",
    "dram__bytes.sum",
)
"""Achieved residency, executed instructions, and traffic."""
TIMEOUT_S = 600


def counters_of(
    launch: str, kernel: str, cubins: Mapping[str, bytes], gpu: int
) -> tuple[dict[str, dict[str, float]], str | None]:
    """Counters by build and metric, and why there are none (None where there are)."""
    tool = find_tool("ncu")
    if tool is None:
        return {}, "ncu was not found"
    with tempfile.TemporaryDirectory(prefix="regdem-") as folder:
        files: list[str] = []
        for number, data in enumerate(cubins.values()):
            path = Path(folder, f"{number}.cubin")
            path.write_bytes(data)
            files.append(str(path))
        command = [tool, "--csv", "--page", "raw", "--clock-control", "none", "--metrics"]
        command += [",".join(METRICS), sys.executable, "-P", "-m", "regdem.study.once"]
        command += ["--launch", launch, "--kernel", kernel, "--gpu", str(gpu), *files]
        home = str(Path(regdem.__file__).resolve().parent.parent)
        path_list = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
                env={**os.environ, "PYTHONPATH": path_list},
            )
        except subprocess.TimeoutExpired:
            return {}, "ncu does not come to an end"
        except OSError as error:
            return {}, f"ncu can't be run: {error.strerror}"
    rows = parse_counters(done.stdout)
    if len(rows) == len(cubins):
        return dict(zip(cubins, rows, strict=True)), None
    return {}, _why(done.stdout + done.stderr)


def parse_counters(text: str) -> list[dict[str, float]]:
    """One dictionary a launch, from ncu's raw page as CSV, in base units as it prints them."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    if len(rows) < 3 or "ID" not in rows[0]:
        return []
    header, units = rows[0], rows[1]
    found: list[dict[str, float]] = []
    for row in rows[2:]:
        if len(row) != len(header):
            continue
        values: dict[str, float] = {}
        for name, unit, text_value in zip(header, units, row, strict=True):
            value = _number(text_value)
            if name in METRICS and value is not None:
                values[name] = value * _SCALE.get(unit, 1.0)
        found.append(values)
    return found


_SCALE = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _why(text: str) -> str:
    if "ERR_NVGPUCTRPERM" in text or "permission" in text.lower():
        return "ncu is not permitted to read counters (ERR_NVGPUCTRPERM)"
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return f"ncu gave no counters: {(errors or lines or ['it said nothing'])[-1][:200]}"
