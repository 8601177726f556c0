"""Kernels of an input file, as verbs ask for them: by pattern, with the launch's block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regdem.binary import Cubin, Kernel
from regdem.cli.options import KernelPattern
from regdem.cli.output import read_input
from regdem.errors import UsageError

if TYPE_CHECKING:
    from regdem.program.program import Program


def cubin_kernels(
    path: str, pattern: KernelPattern | None
) -> tuple[Cubin, tuple[Kernel, ...], bytes]:
    """The cubin in a file, its kernels that the pattern selects, and the file's bytes.

    Raises InputError for an unreadable file or none of ours, UsageError if no kernel is selected.
    """
    data = read_input(path)
    cubin = Cubin.parse(data, path)
    return cubin, select_kernels(cubin.kernels, pattern, path), data


def select_kernels(
    kernels: tuple[Kernel, ...], pattern: KernelPattern | None, path: str
) -> tuple[Kernel, ...]:
    """The kernels a pattern selects, in file order. Raises UsageError if there are none."""
    if pattern is None:
        chosen = kernels
    else:
        chosen = tuple(
            kernel for kernel in kernels if pattern.matches(kernel.name, kernel.demangled_name)
        )
    if chosen:
        return chosen
    names = ", ".join(kernel.name for kernel in kernels[:5]) or "none"
    more = f" and {len(kernels) - 5} more" if len(kernels) > 5 else ""
    wanted = f"no kernel matches {pattern.text!r}" if pattern else "no kernels"
    raise UsageError(wanted, file=path, hint=f"kernels here: {names}{more}", code="no_kernel")


def declared_threads(kernel: Kernel) -> int | None:
    """Threads per block the kernel declares: what it requires, else the most it allows."""
    if kernel.required_block is not None:
        x, y, z = kernel.required_block
        return x * y * z
    return kernel.max_threads


def block_threads(kernel: Kernel, path: str) -> int:
    """The same, or a UsageError that asks for `--threads`."""
    threads = declared_threads(kernel)
    if threads is None:
        raise UsageError(
            "the block size is not declared", file=path, kernel=kernel.name, hint="give --threads"
        )
    return threads


def cluster_blocks(kernel: Kernel) -> int:
    """Blocks per cluster the kernel declares, else 1."""
    if kernel.cluster is None:
        return 1
    x, y, z = kernel.cluster
    return max(1, x * y * z)


def kernel_program(kernel: Kernel) -> Program:
    """The kernel's control-flow graph.

    Raises UnsupportedError, naming the kernel, for code that regdem does not understand.
    """
    from regdem.isa import decode
    from regdem.program.program import build

    functions = [(entry.name, entry.offset, entry.size) for entry in kernel.functions]
    tables = {entry.offset: entry.targets for entry in kernel.branch_tables}
    return build(kernel.name, decode(kernel.code, kernel.arch), functions, tables)
