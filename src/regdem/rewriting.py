"""The library's rewrites: one call a kernel or module, a proved result back.

A kernel knows the cubin it was read from; the result holds a new cubin, so that nothing is written
until the caller does: `Path("out.cubin").write_bytes(regdem.demote(kernel, ...).to_bytes())`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from regdem.api import Module, load
from regdem.binary import Cubin, Kernel
from regdem.errors import UsageError
from regdem.inputs import OptimizerInput, open_inputs
from regdem.isa.table import supported_architectures
from regdem.machine import BlockShape, block_shape
from regdem.optimizer import KernelChoice, Options, optimize_cubin
from regdem.predict.profile import Profile, read_profile
from regdem.promotion import promote_kernel
from regdem.rescheduling import with_new_order
from regdem.rewrite import KernelRewrite, Request, demote_kernel

Threads = int | tuple[int, ...] | BlockShape | None


@dataclass(frozen=True)
class Rewritten:
    """A proved rewrite: the new cubin, the new kernel, and what was done (`report`)."""

    cubin: Cubin
    report: KernelRewrite

    @property
    def kernel(self) -> Kernel:
        """The rewritten kernel."""
        return self.cubin.kernel(self.report.name)

    def to_bytes(self) -> bytes:
        """The new file."""
        return self.cubin.to_bytes()

    def to_dict(self) -> dict[str, Any]:
        """The JSON form of the report."""
        return self.report.to_dict()

    def _repr_html_(self) -> str:
        return self.report._repr_html_()  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True)
class Optimized:
    """The cubins of a module with the best variant of each kernel, and how each was chosen."""

    cubins: tuple[Cubin, ...]
    kernels: tuple[KernelChoice, ...]

    def to_bytes(self) -> bytes:
        """The new file of a module of one cubin. Raises UsageError where there are several."""
        if len(self.cubins) != 1:
            raise UsageError(f"there are {len(self.cubins)} cubins", hint="use .cubins")
        return self.cubins[0].to_bytes()

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"kernels": [each.to_dict() for each in self.kernels]}

    def _repr_html_(self) -> str:
        return "".join(
            f"<h4>{each.name}</h4>{each._repr_html_()}"  # pyright: ignore[reportPrivateUsage]
            for each in self.kernels
        )


def _shape(kernel: Kernel, threads: Threads) -> BlockShape:
    if isinstance(threads, BlockShape):
        return threads
    if isinstance(threads, tuple):
        return BlockShape(*threads)
    if threads is None and kernel.required_block is not None:
        return BlockShape(*kernel.required_block)
    count = threads if threads is not None else kernel.max_threads
    if count is None:
        raise UsageError("the block size is not declared", kernel=kernel.name, hint="give threads=")
    return block_shape(count)


def _cubin(kernel: Kernel) -> Cubin:
    if kernel.source is None:
        raise UsageError(
            "the kernel was not read from a cubin in this process",
            kernel=kernel.name,
            hint="take it from Module.kernels",
        )
    return kernel.source


def demote(
    kernel: Kernel,
    *,
    registers: int | None = None,
    blocks: int | None = None,
    threads: Threads = None,
    dynamic_shared_bytes: int = 0,
    shared_opt_in: bool = False,
    candidates: str = "live-range",
    rematerialise: bool = True,
    uniform: bool = True,
    fold: bool = True,
    reschedule: bool = False,
) -> Rewritten:
    """Fewer registers per thread, proved: `registers`, or enough for `blocks` resident blocks.

    threads: of the launch's block (None: what the kernel declares). shared_opt_in: the host opts in
    to more than 48 KiB of static and dynamic shared memory together. reschedule: then put
    instructions in an order with fewer waits, where one is found. Raises UsageError for an
    impossible request, UnsupportedError with the reason, ProofError if no rewrite was proved.
    """
    request = Request(
        threads=_shape(kernel, threads),
        registers=registers,
        blocks=blocks,
        dynamic_shared_bytes=dynamic_shared_bytes,
        shared_opt_in=shared_opt_in,
        candidates=candidates,
        rematerialise=rematerialise,
        uniform=uniform,
        fold=fold,
    )
    made = demote_kernel(_cubin(kernel), kernel, request)
    if reschedule:
        made = with_new_order(_cubin(kernel), kernel, request, made)
    return Rewritten(*made)


def promote(
    kernel: Kernel,
    *,
    registers: int | None = None,
    threads: Threads = None,
    dynamic_shared_bytes: int = 0,
    shared_opt_in: bool = False,
    reschedule: bool = False,
) -> Rewritten:
    """Local-memory spills into shared memory, proved; also below `registers` where given.

    shared_opt_in, reschedule, and what is raised: as for `demote`.
    """
    request = Request(
        threads=_shape(kernel, threads),
        registers=registers,
        dynamic_shared_bytes=dynamic_shared_bytes,
        shared_opt_in=shared_opt_in,
    )
    made = promote_kernel(_cubin(kernel), kernel, request)
    if reschedule:
        made = with_new_order(_cubin(kernel), kernel, request, made)
    return Rewritten(*made)


def optimize(
    module: Module | str | os.PathLike[str] | bytes,
    *,
    threads: Threads = None,
    dynamic_shared_bytes: int = 0,
    shared_opt_in: bool = False,
    grid_blocks: int | None = None,
    trip_count: float = 10.0,
    executor: Executor | None = None,
    arch: str | None = None,
    ptx: str | os.PathLike[str] | None = None,
    compile_options: Sequence[str] = (),
    effort: str = "normal",
    profile: Profile | str | None = None,
    kernels: Collection[str] | None = None,
) -> Optimized:
    """The best variant of every kernel, or the kernel as it is where none is predicted faster.

    module: a path (of a cubin or what contains some, or of a `.cu` or `.ptx` source), bytes, or a
    loaded Module. Where there is source or PTX (`ptx`, embedded, or beside the file; see
    `regdem.inputs`) base builds are made as well and rewritten; rewrites are proved against their
    base. threads: of the launch (None: what kernels declare). shared_opt_in: as for `demote`.
    effort: "quick", "normal" or "exhaustive". executor: makes variants in parallel. arch,
    compile_options: for sources. profile: what was measured of the kernel as it is (see
    `regdem.predict.profile.read_profile`). kernels: only these names.

    Raises UsageError for a launch that does not fit, UnsupportedError for other architectures,
    InputError for what can't be read or compiled.
    """
    known = read_profile(profile) if isinstance(profile, str) else profile
    options = Options(
        grid_blocks, trip_count, effort=effort, compilers=_workers(executor), profile=known
    )
    if isinstance(module, Module):
        inputs = [OptimizerInput(image.label, image.cubin) for image in module.images]
    elif isinstance(module, bytes):
        inputs = [OptimizerInput(image.label, image.cubin) for image in load(module).images]
    else:
        inputs = open_inputs(
            os.fspath(module),
            arch=arch,
            ptx=None if ptx is None else os.fspath(ptx),
            options=compile_options,
        )
    inputs = [each for each in inputs if each.cubin.kernels]
    # Of code for several architectures, that which can be rewritten; of no such, the refusal.
    inputs = [e for e in inputs if e.cubin.arch in supported_architectures()] or inputs
    cubins: list[Cubin] = []
    choices: list[KernelChoice] = []
    for each in inputs:
        wanted = [k for k in each.cubin.kernels if kernels is None or k.name in kernels]
        requests = [
            Request(
                threads=_shape(kernel, threads),
                dynamic_shared_bytes=dynamic_shared_bytes,
                shared_opt_in=shared_opt_in,
            )
            for kernel in wanted
        ]
        new, chosen = optimize_cubin(
            each.cubin, wanted, requests, options, executor,
            source=each.source, is_compiled=each.is_compiled,
        )  # fmt: skip
        cubins.append(new)
        choices += chosen
    return Optimized(tuple(cubins), tuple(choices))


def _workers(executor: Executor | None) -> int:
    """As many compilers side by side as the executor has workers."""
    return getattr(executor, "_max_workers", 1) if executor is not None else 1
