"""NVIDIA's compiler and `regdem`, called as commands with a time limit.

A command that fails is an `Outcome`, never an exception: one kernel that does not compile must
not end a run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from bench.suite.spec import Dim3

ARCH = "sm_90"
_commands = threading.BoundedSemaphore(os.cpu_count() or 1)


@dataclass(frozen=True)
class Outcome:
    """What a command did: exit status (124 when it ran out of time), output, seconds."""

    command: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.status == 0


def at_once(commands: int) -> None:
    """Sets how many commands `call` runs side by side."""
    global _commands
    _commands = threading.BoundedSemaphore(max(commands, 1))


def call(command: list[str], timeout_s: float = 300.0, cwd: Path | None = None) -> Outcome:
    """Runs a command; a missing program is status 127."""
    with _commands:
        return call_with(command, timeout_s, cwd, None)


def call_with(
    command: list[str], timeout_s: float, cwd: Path | None, env: dict[str, str] | None
) -> Outcome:
    """`call` with an environment; the whole process group is ended when time is over."""
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        return Outcome(tuple(command), 127, "", str(error), time.monotonic() - start)
    try:
        out, err = process.communicate(timeout=timeout_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        status, err = 124, f"no end within {timeout_s:.0f} s\n{err}"
    return Outcome(tuple(command), status, out, err, time.monotonic() - start)


def find(name: str) -> str:
    """Path of a CUDA tool: $CUDA_HOME/bin, PATH, /usr/local/cuda/bin; else the bare name."""
    home = os.environ.get("CUDA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    found = shutil.which(name)
    if found:
        return found
    usual = Path("/usr/local/cuda/bin") / name
    return str(usual) if usual.exists() else name


def regdem_command() -> list[str]:
    """How to call this checkout's `regdem` with the interpreter that runs us."""
    script = Path(sys.executable).parent / "regdem"
    if script.exists():
        return [str(script)]
    return [sys.executable, "-c", "from regdem.cli.main import main; main()"]


@functools.cache
def nvcc_version() -> str:
    done = call([find("nvcc"), "--version"], 30)
    match = re.search(r"V(\d+\.\d+\.\d+)", done.stdout)
    return match.group(1) if match else "unknown"


def compile_command(
    source: Path, output: Path, *, kind: str, cap: int | None, flags: tuple[str, ...]
) -> list[str]:
    """nvcc to "cubin" or "ptx" with its defaults, optionally with a register cap."""
    command = [find("nvcc"), f"-arch={ARCH}", f"-{kind}", "-Xptxas", "-v", *flags]
    if cap is not None and kind == "cubin":
        command.append(f"-maxrregcount={cap}")
    return [*command, "-o", str(output), str(source)]


def inject(ptx: str, kernel: str, block: Dim3, cap: int | None, *, pragma: bool = True) -> str:
    """Adds the shared-memory spilling pragma, the block size and the cap to a PTX entry.

    The block size goes in as `.maxntid`, because without it ptxas reserves for the largest
    block; beside it `-maxrregcount` would be ignored, so the cap goes in as `.maxnreg`.
    Raises ValueError where the entry is not found.
    """
    entry = re.search(
        r"\.entry\s+" + re.escape(kernel) + r"\s*(\([^{]*?\))?\s*(?P<directives>[^{(]*)\{", ptx
    )
    if entry is None:
        raise ValueError(f"no entry {kernel} in the PTX")
    directives = entry.group("directives")
    for word in ("maxntid", "maxnreg", "reqntid", "minnctapersm"):
        directives = re.sub(rf"\.{word}\s+[\d,\s]+", "", directives)
    lines = [f".maxntid {block[0]}, {block[1]}, {block[2]}"]
    if cap is not None:
        lines.append(f".maxnreg {cap}")
    head = ptx[entry.start() : entry.start("directives")]
    body = '.pragma "enable_smem_spilling";\n' if pragma else ""
    new = f"{head}{directives}{' '.join(lines)}\n{{\n{body}"
    return ptx[: entry.start()] + new + ptx[entry.end() :]


def ptxas_command(ptx: Path, output: Path, cap: int | None = None) -> list[str]:
    """ptxas for the target the PTX names (a generator may ask for sm_90a), or with a cap."""
    target = re.search(r"^\.target\s+(sm_90a?)", ptx.read_text(), re.MULTILINE)
    arch = target.group(1) if target else ARCH
    limit = [] if cap is None else [f"-maxrregcount={cap}"]
    return [find("ptxas"), f"-arch={arch}", "-v", *limit, str(ptx), "-o", str(output)]


@dataclass(frozen=True)
class Resources:
    """ptxas's own report of one build: registers of the kernel; bytes over all functions."""

    registers: int
    static_shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def parse_resources(report: str, kernel: str) -> Resources | None:
    """Reads `ptxas -v`; None where the kernel's line is missing."""
    stack = stores = loads = 0
    for found in re.finditer(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", report
    ):
        stack = max(stack, int(found.group(1)))
        stores += int(found.group(2))
        loads += int(found.group(3))
    registers = shared = -1
    current = ""
    for line in report.splitlines():
        entry = re.search(r"Compiling entry function '([^']+)'", line)
        if entry:
            current = entry.group(1)
        used = re.search(r"Used (\d+) registers", line)
        if used and current in ("", kernel):
            registers = int(used.group(1))
            smem = re.search(r"(\d+) bytes smem", line)
            shared = int(smem.group(1)) if smem else 0
    if registers < 0:
        return None
    return Resources(registers, shared, stack, stores, loads)
