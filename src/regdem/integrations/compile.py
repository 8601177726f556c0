"""Compile CUDA source and PTX to cubins with the tools found on this machine.

A source goes through nvcc's front end once (`ptx_of`); what differs between builds of a kernel is
said in its PTX (`with_directives`) and to ptxas (`assemble`), which takes a tenth of the time.
Everything runs in a folder of its own that is removed afterwards; nothing is written beside the
source.

Measured with ptxas 13.0: `-maxrregcount` is ignored beside launch bounds, while `.maxnreg` in the
PTX is obeyed; `.pragma "enable_smem_spilling"` reserves for the largest block unless `.maxntid`
names one, and is refused for kernels with dynamic shared memory.

Not claimed: that two builds compute the same bits. They are what NVIDIA's compiler makes of one
source, and trusted as such.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regdem.binary.elf import EM_CUDA
from regdem.errors import InputError, UnsupportedError, UsageError
from regdem.integrations.toolkit import find_tool
from regdem.machine import BlockShape

DEFAULT_ARCH = "sm_90"
TIMEOUT_S = 600
SMEM_SPILLING = '.pragma "enable_smem_spilling";'
"""NVIDIA's own spilling to shared memory (CUDA 13.0, sm_75 and later), first in a kernel's body."""

_ELF_MAGIC, _MACHINE = b"\x7fELF", slice(18, 20)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(
    r"\.entry\s+(?P<name>[A-Za-z_$%][\w$]*)\s*(\([^{]*?\))?\s*(?P<directives>[^{}();]*)\{"
)
_BLOCK_DIRECTIVE = re.compile(r"\.maxntid\s+[\d,\s]+")
_CAP_DIRECTIVE = re.compile(r"\.(maxnreg|minnctapersm|maxnctapersm)\s+\d+")


@dataclass(frozen=True)
class Directives:
    """What a build says in the PTX of its kernel.

    `block`: threads per block, as `.maxntid` (left alone beside `.reqntid`, which says more).
    `most_registers`: registers per thread, as `.maxnreg`; replaces a bound of the source on blocks
    per SM. `least_blocks`: resident per SM, as `.minnctapersm`; replaces a register limit of the
    source. `smem_spilling`: NVIDIA's pragma.
    """

    block: BlockShape | None = None
    most_registers: int | None = None
    smem_spilling: bool = False
    least_blocks: int | None = None


def entries(ptx: str) -> list[str]:
    """The kernels that a PTX text defines, in order."""
    return [match["name"] for match in _ENTRY.finditer(_without_comments(ptx))]


def with_directives(ptx: str, kernel: str, directives: Directives) -> str:
    """The PTX with the block size, the register limit and the pragma at one kernel.

    Raises UsageError where the PTX does not define the kernel.
    """
    found = _ENTRY.finditer(_without_comments(ptx))
    entry = next((match for match in found if match["name"] == kernel), None)
    if entry is None:
        known = ", ".join(entries(ptx)[:5]) or "none"
        raise UsageError("the PTX does not define it", kernel=kernel, hint=f"it defines: {known}")
    words = entry["directives"]
    block, cap = directives.block, directives.most_registers
    if block is not None and ".reqntid" not in words:
        words = _BLOCK_DIRECTIVE.sub("", words)
        words = f"{words.rstrip()}\n.maxntid {block.x}, {block.y}, {block.z}"
    if cap is not None:
        words = f"{_CAP_DIRECTIVE.sub('', words).rstrip()}\n.maxnreg {cap}"
    elif directives.least_blocks is not None:
        least = directives.least_blocks
        words = f"{_CAP_DIRECTIVE.sub('', words).rstrip()}\n.minnctapersm {least}"
    body = ptx[entry.end() :]
    if directives.smem_spilling and not body.lstrip().startswith(SMEM_SPILLING):
        body = f"\n{SMEM_SPILLING}{body}"
    return f"{ptx[: entry.start('directives')].rstrip()}\n{words.strip()}\n{{{body}"


def _without_comments(ptx: str) -> str:
    """The text with comments as blanks, so that positions stay."""
    return _COMMENT.sub(lambda match: " " * len(match[0]), ptx)


def ptx_of(path: str | Path, arch: str = DEFAULT_ARCH, options: Sequence[str] = ()) -> str:
    """The PTX of a `.ptx` file, or what nvcc's front end makes of a `.cu` file.

    options: further nvcc options. Raises as `compile_source`.
    """
    source = Path(path)
    if source.suffix == ".ptx":
        return _read_text(source)
    with tempfile.TemporaryDirectory(prefix="regdem-") as folder:
        output = Path(folder, "out.ptx")
        command = [_tool("nvcc", str(path)), "-ptx", f"-arch={arch}", *options]
        _run([*command, "-o", str(output), str(source.resolve())], output, str(path))
        text = _read_text(output)
    if ".version" not in text:
        raise _something_else("PTX", options, str(path))
    return text


def assemble(
    ptx: str,
    arch: str = DEFAULT_ARCH,
    options: Sequence[str] = (),
    *,
    kernel: str | None = None,
    name: str = "<ptx>",
) -> bytes:
    """The cubin ptxas makes of a PTX text; of one kernel of it where that is named.

    options: further ptxas options. `name` stands for the text in errors. Raises UnsupportedError
    where ptxas is not found, InputError where it rejects the text (with its first message).
    """
    tool = _tool("ptxas", name)
    with tempfile.TemporaryDirectory(prefix="regdem-") as folder:
        source, output = Path(folder, "in.ptx"), Path(folder, "out.cubin")
        source.write_text(ptx)
        entry = ["--entry", kernel] if kernel is not None else []
        command = [tool, f"-arch={arch}", *options, *entry, "-o", str(output), str(source)]
        _run(command, output, name)
        return output.read_bytes()


def compile_source(
    path: str | Path, arch: str = DEFAULT_ARCH, options: Sequence[str] = ()
) -> bytes:
    """The cubin nvcc makes of a `.cu` file, or ptxas of a `.ptx` file.

    arch: as `sm_90`. options: further ones of nvcc; with a `.ptx` file all are ptxas's. Raises
    UnsupportedError where no compiler is found, InputError where it rejects the source (with its
    first message), UsageError where the options make it write something else.
    """
    source = Path(path)
    if source.suffix == ".ptx":
        front, back = split_options(options)
        return assemble(_read_text(source), arch, (*front, *back), name=str(path))
    tool = _tool("nvcc", str(path))
    with tempfile.TemporaryDirectory(prefix="regdem-") as folder:
        output = Path(folder, "out.cubin")
        command = [tool, "-cubin", f"-arch={arch}", *options]
        _run([*command, "-o", str(output), str(source.resolve())], output, str(path))
        data = output.read_bytes()
    if data[:4] != _ELF_MAGIC or data[_MACHINE] != EM_CUDA.to_bytes(2, "little"):
        raise _something_else("a cubin", options, str(path))
    return data


def _something_else(wanted: str, options: Sequence[str], file: str) -> UsageError:
    """The error where nvcc was told to make something else than what was asked for here."""
    return UsageError(
        f"nvcc wrote something else than {wanted}, as its options say: {' '.join(options)}",
        file=file,
        hint="leave out options that choose the kind of output, such as -ptx",
    )


def split_options(options: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options of nvcc as its own and ptxas's: what `-Xptxas` passes on is taken apart."""
    front: list[str] = []
    back: list[str] = []
    following = False
    for option in options:
        name, equals, value = option.partition("=")
        if following:
            back += option.split(",")
            following = False
        elif name in ("-Xptxas", "--ptxas-options"):
            back += value.split(",") if value else []
            following = not equals
        else:
            front.append(option)
    return front, back


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="surrogateescape")
    except OSError as error:
        raise InputError(
            f"can't be read: {(error.strerror or 'error').lower()}", file=str(path)
        ) from error


def _tool(name: str, file: str) -> str:
    tool = find_tool(name)
    if tool is None:
        raise UnsupportedError(
            f"compiling it needs NVIDIA's {name}",
            code="no_compiler",
            file=file,
            hint="pip install 'regdem[tools]', or set CUDA_HOME",
        )
    return tool


def _run(command: list[str], output: Path, file: str) -> None:
    try:
        done = subprocess.run(
            command,  # where the caller is, so that -I means what it says
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InputError("the compiler does not come to an end", file=file) from error
    except OSError as error:
        raise UnsupportedError(
            f"the compiler can't be run: {error.strerror}", code="no_compiler", file=command[0]
        ) from error
    if not done.returncode and not output.exists():
        raise UsageError(
            "the compiler wrote nothing, as its options say",
            file=file,
            hint="leave out options such as -dryrun",
        )
    if done.returncode:
        raise InputError(
            f"does not compile: {_first_message(done.stdout + done.stderr)}",
            file=file,
            code="does_not_compile",
        )


def _first_message(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    return (errors or lines or ["no message"])[0]
