"""The library's front door: load a file, look at its kernels, inspect them.

`load` reads cubins and everything that contains them; sources and PTX are compiled by
`regdem.integrations.loading.load`, which `regdem.load` names. Values are immutable; results have
`to_dict()` (the JSON form) and `_repr_html_()` (for notebooks).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from functools import cached_property

from regdem.binary import Cubin, Kernel, Sidecar, open_container
from regdem.errors import InputError, RegdemError, UsageError
from regdem.report.inspection import inspect_kernel
from regdem.report.model import NOTHING_SAID, Asked, KernelReport

NOT_DEVICE_CODE = "no compiled device code in it"
BATCH_INSTRUCTIONS = 2_000
"""Kernels are sent to an executor in batches of about so much code."""


@dataclass(frozen=True)
class Image:
    """One cubin of a module: where it lies in the container and what a sidecar says of it."""

    label: str
    cubin: Cubin
    sidecar: Sidecar | None = None


@dataclass(frozen=True)
class Located:
    """A kernel and its place: `origin` is the cubin inside a container, None for a plain cubin."""

    kernel: Kernel
    image: Image
    origin: str | None

    @property
    def sidecar_threads(self) -> int | None:
        """Threads per block from a sidecar file, if there is one that says."""
        return self.image.sidecar.threads if self.image.sidecar else None

    @property
    def sidecar_dynamic_shared_bytes(self) -> int:
        """Dynamic shared memory from a sidecar file, else 0."""
        return (self.image.sidecar.dynamic_shared_bytes or 0) if self.image.sidecar else 0


@dataclass(frozen=True)
class Module:
    """A loaded file: its cubins in file order; `problems` names entries that could not be read."""

    path: str
    images: tuple[Image, ...]
    problems: tuple[str, ...] = ()

    @cached_property
    def located(self) -> tuple[Located, ...]:
        """Every kernel with its place, in file order."""
        single = len(self.images) == 1 and self.images[0].label == self.path
        return tuple(
            Located(kernel, image, None if single else image.label)
            for image in self.images
            for kernel in image.cubin.kernels
        )

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Every kernel, in file order."""
        return tuple(entry.kernel for entry in self.located)

    def kernel(self, name: str) -> Kernel:
        """The first kernel of that mangled or demangled name.

        Raises UsageError if there is none.
        """
        for kernel in self.kernels:
            if name in (kernel.name, kernel.demangled_name):
                return kernel
        known = ", ".join(kernel.name for kernel in self.kernels[:5]) or "none"
        raise UsageError(f"no kernel named {name!r}", file=self.path, hint=f"kernels: {known}")

    def for_arch(self, arch: str) -> Module:
        """Only the cubins of one architecture. Raises UsageError if there are none."""
        chosen = tuple(image for image in self.images if image.cubin.arch == arch)
        if not chosen:
            found = ", ".join(sorted({image.cubin.arch for image in self.images}))
            raise UsageError(f"no code for {arch}", file=self.path, hint=f"it has: {found}")
        return Module(self.path, chosen, self.problems)


def load(source: str | os.PathLike[str] | bytes, name: str | None = None) -> Module:
    """The cubins in a file, folder or bytes: a cubin, a fat binary, a host program or library, an
    object, an archive, a kernel cache. `"-"` is standard input. name: what bytes are called.

    Raises InputError where nothing can be read, or where there is no cubin in it.
    """
    path = name or ("<bytes>" if isinstance(source, bytes) else os.fspath(source))
    images: list[Image] = []
    problems: list[str] = []
    first: InputError | None = None
    other: set[str] = set()
    for entry in open_container(source, name=name):
        if entry.problem is not None:
            problems.append(f"{entry.name}: {entry.problem}")
        if entry.kind != "cubin":
            other.add(entry.kind)
            continue
        try:
            images.append(Image(entry.name, Cubin.parse(entry.read(), entry.name), entry.sidecar))
        except InputError as error:
            first = first or error
            problems.append(str(error))
    if not images:
        if first is not None:
            raise first
        kinds = ", ".join(sorted(other))
        raise InputError(
            NOT_DEVICE_CODE, file=path, hint=f"only {kinds}" if kinds else None, code="no_cubin"
        )
    return Module(path, tuple(images), tuple(problems))


def inspect(
    kernel: Kernel,
    threads: int | None = None,
    dynamic_shared_bytes: int = 0,
    *,
    predict: bool = True,
) -> KernelReport:
    """Everything regdem can say about one kernel; see `KernelReport`.

    threads: per block of the launch (None: what the kernel declares). dynamic_shared_bytes: of the
    launch. predict: ask the predictor what the next cliff is worth (most of the time it takes).
    Raises UsageError for numbers the architecture has not.
    """
    return inspect_kernel(kernel, threads, dynamic_shared_bytes, predict=predict)


@dataclass(frozen=True)
class InspectJob:
    """One kernel to inspect; picklable, so that any executor takes it."""

    kernel: Kernel
    threads: int | None
    dynamic_shared_bytes: int
    origin: str | None
    predict: bool = True
    asked: Asked = NOTHING_SAID

    def run(self) -> KernelReport:
        """The report."""
        return inspect_kernel(
            self.kernel,
            self.threads,
            self.dynamic_shared_bytes,
            self.origin,
            predict=self.predict,
            asked=self.asked,
        )


def inspect_jobs(
    located: Iterable[Located],
    threads: int | None,
    dynamic_shared_bytes: int | None,
    *,
    predict: bool = True,
    asked: Asked = NOTHING_SAID,
) -> list[InspectJob]:
    """One job a kernel: the launch given, else the sidecar's, else what the kernel declares."""
    return [
        InspectJob(
            entry.kernel,
            threads if threads is not None else entry.sidecar_threads,
            dynamic_shared_bytes
            if dynamic_shared_bytes is not None
            else entry.sidecar_dynamic_shared_bytes,
            entry.origin,
            predict,
            asked,
        )
        for entry in located
    ]


def inspect_all(
    jobs: list[InspectJob],
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[KernelReport]:
    """Runs the jobs, in order or on an executor; results in the order of the jobs.

    progress(done, total) is called after each. A failure of one ends the run with its error.
    """
    if executor is None:
        return list(_counted((job.run() for job in jobs), len(jobs), progress))
    futures = {executor.submit(_run_batch, [jobs[k] for k in batch]): batch
               for batch in _batches(jobs)}  # fmt: skip
    reports: list[KernelReport | None] = [None] * len(jobs)
    done = 0
    try:
        for future in as_completed(futures):
            batch = futures[future]
            for k, report in zip(batch, future.result(), strict=True):
                reports[k] = report
            done += len(batch)
            if progress is not None:
                progress(done, len(jobs))
    except RegdemError:
        for future in futures:
            future.cancel()
        raise
    return [report for report in reports if report is not None]


def _batches(jobs: list[InspectJob]) -> list[list[int]]:
    """Indices of jobs in batches of enough code to be worth a message, the largest jobs first."""
    size = [job.kernel.instruction_count for job in jobs]
    batches: list[list[int]] = []
    room = 0
    for k in sorted(range(len(jobs)), key=lambda k: (-size[k], k)):
        if not batches or room <= 0:
            batches.append([])
            room = BATCH_INSTRUCTIONS
        batches[-1].append(k)
        room -= size[k]
    return batches


def _run_batch(jobs: list[InspectJob]) -> list[KernelReport]:
    return [job.run() for job in jobs]


def _counted(
    reports: Iterator[KernelReport], total: int, progress: Callable[[int, int], None] | None
) -> Iterator[KernelReport]:
    for done, report in enumerate(reports, 1):
        if progress is not None:
            progress(done, total)
        yield report
