"""Kernels of an input file, as verbs ask for them: by pattern, with the launch's block."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regdem.binary import Kernel
from regdem.cli.options import KernelPattern, is_given
from regdem.cli.output import note
from regdem.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from regdem.api import Located
    from regdem.program.program import Program

_WARNINGS = 3
"""So many kernels are warned of one by one."""


def file_kernels(
    path: str,
    pattern: KernelPattern | None,
    options: Sequence[str] = (),
    arch: str | None = None,
) -> tuple[list[Located], dict[str, Any]]:
    """The kernels in a file that the pattern selects, and the file as JSON names it.

    The file: whatever `inspect` takes; `options` are the compiler's where it is a source.
    arch: what to compile for, and which cubins to keep (default all).
    Raises InputError where there is no device code in it, UsageError if no kernel is selected.
    """
    from regdem.cli.inspect import load_file, select

    module, head = load_file(path, arch, options)
    return select(module, pattern), head["input"]


def understood(located: Sequence[Located], path: str) -> list[Located]:
    """The kernels whose instructions are known; a note about others. All, where none is: what is
    asked of them will say so.
    """
    from regdem.isa.table import supported_architectures

    known = [e for e in located if e.kernel.arch.rstrip("af") in supported_architectures()]
    others = sorted({e.kernel.arch for e in located} - {e.kernel.arch for e in known})
    if known and others:
        note(f"regdem: {path}: left out: code for {', '.join(others)}")
    return known or list(located)


class Refusals:
    """Kernels of a file that are not understood: told, unless none of its kernels is."""

    def __init__(self) -> None:
        self.errors: list[UnsupportedError] = []

    @contextmanager
    def kept(self, kernel: str) -> Generator[None]:
        """Keeps the refusal of one kernel, to go on with the next."""
        try:
            yield
        except UnsupportedError as error:
            error.kernel = error.kernel or kernel
            self.errors.append(error)

    def settle(self, done: int) -> None:
        """After all kernels, `done` of which were understood. Raises the first refusal if none."""
        if self.errors and not done:
            raise self.errors[0]
        for error in self.errors:
            note(f"regdem: left out: {error}")


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


def launch_threads(located: Located, path: str) -> int:
    """The same of a kernel in its place, where a sidecar file may say more."""
    return located.sidecar_threads or block_threads(located.kernel, path)


def note_refused_launches(launches: Iterable[tuple[Kernel, int | None]]) -> None:
    """A warning for kernels that the driver would not launch with the threads asked about."""
    from regdem.report.inspection import launch_refusal

    told = (
        (kernel.demangled_name, reason)
        for kernel, threads in launches
        if (reason := launch_refusal(kernel, threads)) is not None
    )
    refused = list(dict.fromkeys(told))
    for name, reason in refused[:_WARNINGS]:
        note(f"regdem: warning: {name} {reason}")
    if len(refused) > _WARNINGS:
        note(f"regdem: warning: {len(refused) - _WARNINGS} more kernels can't be launched so")


def note_dynamic_shared(kernels: Iterable[Kernel]) -> None:
    """A warning for kernels whose code shows dynamic shared memory, where no figure was given."""
    from regdem.analysis.dynamic_shared import shows_dynamic_shared

    found = list(dict.fromkeys(k.demangled_name for k in kernels if shows_dynamic_shared(k)))
    for name in found[:_WARNINGS]:
        note(
            f"regdem: warning: {name} uses dynamic shared memory, and is taken to be launched "
            "with none: give --dynamic-shared-bytes"
        )
    if len(found) > _WARNINGS:
        note(f"regdem: warning: {len(found) - _WARNINGS} more kernels use dynamic shared memory")


def note_open_dynamic_shared(kernels: Iterable[Kernel]) -> None:
    """The same, unless the command that runs was given `--dynamic-shared-bytes`."""
    if not is_given("dynamic_shared_bytes"):
        note_dynamic_shared(kernels)


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
