"""Finds NVIDIA's tools, headers and driver on this machine, and says where each came from.

Order, first hit wins: an explicit path, `CUDA_HOME` (or `CUDA_PATH`), the `PATH`, the toolkit
behind an `nvcc` found there, `/usr/local/cuda`, and NVIDIA's wheels in this Python environment.
Nothing is required: analysis, rewriting and checking need none of it. Looking never fails; a tool
that can't be run has no version.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("nvdisasm", "cuobjdump", "nvcc", "ptxas")
DEFAULT_HOME = "/usr/local/cuda"
_VERSION = re.compile(r"release (\d+\.\d+)(?:, V(\d+\.\d+\.\d+))?")
_TIMEOUT_S = 20


@dataclass(frozen=True)
class Tool:
    """A program found: its path, its version if it could be run, and where it was found."""

    name: str
    path: str
    version: str | None
    origin: str

    def to_dict(self) -> dict[str, str | None]:
        """The JSON form."""
        return {
            "name": self.name,
            "path": self.path,
            "version": self.version,
            "origin": self.origin,
        }


@dataclass(frozen=True)
class Gpu:
    """A GPU as `nvidia-smi` names it."""

    name: str
    compute_capability: str
    driver: str
    memory_mib: int | None

    def to_dict(self) -> dict[str, str | int | None]:
        """The JSON form."""
        return {
            "name": self.name,
            "compute_capability": self.compute_capability,
            "driver": self.driver,
            "memory_mib": self.memory_mib,
        }


def toolkit_homes() -> Iterator[tuple[str, Path]]:
    """Toolkit folders (with `bin/` and `include/`), best first, each with its origin."""
    seen: set[Path] = set()
    for origin, home in _candidate_homes():
        resolved = home.resolve()
        if resolved in seen or not home.is_dir():
            continue
        seen.add(resolved)
        yield origin, home


def find_tool(name: str, explicit: str | None = None) -> str | None:
    """The path of a tool such as `"nvdisasm"`, or None. `explicit` is tried alone if given."""
    located = _locate(name, explicit)
    return located[1] if located else None


def describe_tool(name: str, explicit: str | None = None) -> Tool | None:
    """The same with version and origin; runs the tool once."""
    located = _locate(name, explicit)
    if located is None:
        return None
    origin, path = located
    return Tool(name, path, tool_version(path), origin)


def tool_version(path: str) -> str | None:
    """What `--version` says (`"13.0.88"`), or None where the tool can't be run."""
    output = _run([path, "--version"])
    match = _VERSION.search(output or "")
    return (match.group(2) or match.group(1)) if match else None


def find_header(name: str) -> Path | None:
    """A toolkit header such as `"cuda_occupancy.h"`, or None."""
    for _, home in toolkit_homes():
        for folder in ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include"):
            path = home / folder / name
            if path.is_file():
                return path
    return None


def find_gpus() -> tuple[Gpu, ...]:
    """GPUs that `nvidia-smi` lists; empty without a driver."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return ()
    query = "--query-gpu=name,compute_cap,driver_version,memory.total"
    output = _run([smi, query, "--format=csv,noheader,nounits"])
    gpus: list[Gpu] = []
    for line in (output or "").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4:
            memory = int(cells[3]) if cells[3].isdigit() else None
            gpus.append(Gpu(cells[0], cells[1], cells[2], memory))
    return tuple(gpus)


def driver_library() -> str | None:
    """The name under which the CUDA driver library loads, or None."""
    names = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def wheel_homes() -> Iterator[Path]:
    """Folders of NVIDIA's wheels in this environment that hold `bin/` or `include/`."""
    for entry in sys.path:
        root = Path(entry or ".") / "nvidia"
        if not root.is_dir():
            continue
        for folder in sorted(root.iterdir(), reverse=True):
            if (folder / "bin").is_dir() or (folder / "include").is_dir():
                yield folder


def _candidate_homes() -> Iterator[tuple[str, Path]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield variable, Path(value)
    if nvcc := shutil.which("nvcc"):
        real = Path(nvcc).resolve()
        if real.parent.name == "bin":
            yield "nvcc on PATH", real.parent.parent
    yield DEFAULT_HOME, Path(DEFAULT_HOME)
    for folder in wheel_homes():
        yield "wheel", folder


def _locate(name: str, explicit: str | None) -> tuple[str, str] | None:
    if explicit is not None:
        path = shutil.which(explicit)
        return ("given", path) if path else None
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if (home := os.environ.get(variable)) and (path := _executable(Path(home), name)):
            return variable, path
    if path := shutil.which(name):
        return "PATH", path
    for origin, home in toolkit_homes():
        if path := _executable(home, name):
            return origin, path
    return None


def _executable(home: Path, name: str) -> str | None:
    return shutil.which(name, path=str(home / "bin"))


def _run(command: list[str]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
