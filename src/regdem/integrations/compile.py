"""Compile CUDA source and PTX to cubins with the tools found on this machine.

Runs in a folder of its own that is removed afterwards; nothing is written beside the source.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from regdem.errors import InputError, UnsupportedError
from regdem.integrations.toolkit import find_tool

DEFAULT_ARCH = "sm_90"
TIMEOUT_S = 600


def compile_source(
    path: str | Path, arch: str = DEFAULT_ARCH, options: Sequence[str] = ("-lineinfo",)
) -> bytes:
    """The cubin nvcc makes of a `.cu` or `.ptx` file.

    arch: as `sm_90`. options: further nvcc options. Raises UnsupportedError where no compiler is
    found, InputError where it rejects the source (with its first message).
    """
    source = Path(path)
    tool = find_tool("ptxas" if source.suffix == ".ptx" else "nvcc")
    if tool is None:
        raise UnsupportedError(
            f"compiling {source.suffix} files needs NVIDIA's compiler",
            code="no_compiler",
            file=str(path),
            hint="pip install 'regdem[tools]', or set CUDA_HOME",
        )
    with tempfile.TemporaryDirectory(prefix="regdem-") as folder:
        output = Path(folder, "out.cubin")
        if source.suffix == ".ptx":
            known = [option for option in options if option != "-lineinfo"]
            command = [tool, f"-arch={arch}", *known, "-o", str(output), str(source.resolve())]
        else:
            command = [tool, "-cubin", f"-arch={arch}", *options]
            command += ["-o", str(output), str(source.resolve())]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise InputError("the compiler does not come to an end", file=str(path)) from error
        except OSError as error:
            raise UnsupportedError(
                f"the compiler can't be run: {error.strerror}", code="no_compiler", file=tool
            ) from error
        if done.returncode or not output.exists():
            raise InputError(
                f"does not compile: {_first_message(done.stdout + done.stderr)}",
                file=str(path),
                code="does_not_compile",
            )
        return output.read_bytes()


def _first_message(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    return (errors or lines or ["no message"])[0]
