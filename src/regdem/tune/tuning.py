"""What is tuned: one kernel of a file or source, its launch, and where the evidence goes.

`open_tuning` looks everything up before anything runs: the kernel, its build that all variants are
compared with, the launch and whether it fits the kernel's parameters. It also writes what another
machine needs to go on without the source and its compiler: `original.cubin`, a copy of the launch
with its .npy files, and `tuning.json`, which `resume_tuning` reads.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regdem.analysis.dynamic_shared import shows_dynamic_shared
from regdem.bases import DEFAULT, INPUT, Base, Source, source_of
from regdem.binary import Cubin, Kernel
from regdem.binary.atomic import write_atomically
from regdem.binary.demangle import demangle
from regdem.errors import InputError, UsageError
from regdem.integrations.compile import Directives
from regdem.integrations.loading import SOURCES, load
from regdem.machine import BlockShape
from regdem.rewrite import Request
from regdem.tune.parameters import check_arguments
from regdem.tune.problem import Problem
from regdem.tune.source import LAUNCH_FOLDER, LaunchSource, open_launch
from regdem.tune.store import code_fingerprint, key_of, sha256
from regdem.tune.workshop import Order
from regdem.variants import Workload, check_launch
from regdem.version import __version__

TUNING_NAME = "tuning.json"
ORIGINAL_NAME = "original.cubin"


@dataclass(frozen=True)
class Choices:
    """What to try and how hard to measure.

    `seeds`: sets of inputs; one where nothing depends on the seed. `limit_s`: seconds a variant
    may take on the GPU. `effort`, `paper`, `trip_count`: as for `regdem optimize`. `front_ends`:
    builds of the other front ends are tried (not with effort "quick"). `generations`: of small
    steps from the fastest variant on (`steps.py`).
    """

    rounds: int = 25
    seeds: int = 3
    limit_s: float = 120.0
    effort: str = "normal"
    paper: bool = False
    trip_count: float = 10.0
    exhaustive: bool = False
    jobs: int = 1
    front_ends: bool = True
    generations: int = 0

    @property
    def compares(self) -> bool:
        """Whether builds are made that are right only where their outputs are the same."""
        return self.front_ends and self.effort != "quick"


@dataclass(frozen=True)
class Building:
    """How base builds are made: architecture, further compiler options, the PTX of a cubin."""

    arch: str | None = None
    options: tuple[str, ...] = ()
    ptx: str | None = None


@dataclass(frozen=True)
class Tuning:
    """One kernel to tune. `making` and `launch_sha256` are the keys under which results are kept.

    `source` is None for compiled input, and where a source was prepared on another machine.
    """

    path: str
    input_sha256: str
    original: Base
    source: Source | None
    launch: LaunchSource
    problem: Problem
    seeds: int
    making: str
    launch_sha256: str
    choices: Choices
    needs_source: bool
    """Variants are made from builds of a source, whether or not it is here."""

    @property
    def kernel(self) -> str:
        return self.original.kernel

    @property
    def lacks_dynamic_shared(self) -> bool:
        """Whether the kernel's code shows dynamic shared memory that no launch gives it."""
        return not self.problem.dynamic_shared_bytes and shows_dynamic_shared(self.original.code())

    @property
    def order(self) -> Order:
        """What the CPU side has to make."""
        choices = self.choices
        workload = Workload(self.problem.blocks, choices.trip_count)
        return Order(
            self.original,
            self.source,
            _request(self.problem),
            workload,
            choices.effort,
            choices.paper,
            choices.jobs,
            choices.compares,
        )

    def to_dict(self) -> dict[str, Any]:
        """What `tuning.json` holds, launch excepted."""
        return {
            "tool": f"regdem {__version__}",
            "input": {"path": self.path, "sha256": self.input_sha256},
            "kernel": self.kernel,
            "reference": self.original.name,
            "from_source": self.needs_source,
            "making": self.making,
            "effort": self.choices.effort,
            "paper": self.choices.paper,
            "trip_count": self.choices.trip_count,
            "front_ends": self.choices.front_ends,
        }


def _request(problem: Problem) -> Request:
    return Request(
        threads=BlockShape(*problem.block), dynamic_shared_bytes=problem.dynamic_shared_bytes
    )


def open_tuning(
    path: str, launch: str, kernel: str | None, choices: Choices, building: Building | None = None
) -> Tuning:
    """Finds the kernel and its launch. `kernel`: a name or regular expression; None: the only one.

    Raises InputError, UsageError or UnsupportedError, before anything is written.
    """
    launched = open_launch(launch)
    how = building or Building()
    if Path(path).suffix in SOURCES and Path(path).is_file():
        if how.ptx is not None:
            raise UsageError("a source is compiled; PTX goes with a cubin", file=path)
        source = source_of(path, how.arch, how.options)
        name = _pick({each: demangle(each) for each in source.kernels}, kernel, path)
        data = source.build({name: Directives()}, name)
        original = Base(DEFAULT, name, data, directives=Directives())
        digest = _digest(Path(path))
    else:
        original = _compiled(path, kernel, how.arch)
        source = None
        if how.ptx is not None:
            source = source_of(how.ptx, original.code().arch, how.options)
            _pick({each: each for each in source.kernels}, original.kernel, how.ptx)
            source.build({}, original.kernel)  # it was named, so it must compile
        digest = _digest(Path(path)) or sha256(original.data)
    return _tuning(path, digest, original, source, launched, choices)


def _digest(path: Path) -> str:
    if not path.is_file():
        return ""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _compiled(path: str, kernel: str | None, arch: str | None) -> Base:
    module = load(path)
    if arch is not None:
        module = module.for_arch(arch)
    located = [
        entry
        for entry in module.located
        if kernel is None or _matches(kernel, entry.kernel.name, entry.kernel.demangled_name)
    ]
    names = {entry.kernel.name: entry.kernel.demangled_name for entry in module.located}
    name = _pick(names, kernel, path)
    found = [entry for entry in located if entry.kernel.name == name]
    if len(found) > 1:
        archs = ", ".join(f"{e.kernel.arch} in {e.image.label}" for e in found[:5])
        raise UsageError(
            f"{name} is there {len(found)} times",
            file=path,
            hint=f"tune one cubin: {archs}",
            code="no_kernel",
        )
    return Base(INPUT, name, found[0].image.cubin.to_bytes(), "input")


def _matches(wanted: str, name: str, demangled: str) -> bool:
    if wanted in (name, demangled):
        return True
    try:
        return any(re.search(wanted, text) for text in (name, demangled))
    except re.error as error:
        raise UsageError(f"{wanted!r} is no regular expression: {error}") from error


def _pick(names: dict[str, str], wanted: str | None, path: str) -> str:
    """The one kernel meant. Raises UsageError where there is none, or more than one."""
    chosen = [n for n, plain in names.items() if wanted is None or _matches(wanted, n, plain)]
    exact = [n for n in chosen if wanted in (n, names[n])]
    if len(exact) == 1:
        return exact[0]
    if len(chosen) == 1:
        return chosen[0]
    if not names:
        raise UsageError("there is no kernel in it", file=path, code="no_kernel")
    shown = ", ".join((chosen or list(names))[:6])
    what = f"no kernel matches {wanted!r}" if not chosen else f"{len(chosen)} kernels are meant"
    raise UsageError(what, file=path, hint=f"give --kernel; kernels: {shown}", code="no_kernel")


def _tuning(
    path: str,
    digest: str,
    original: Base,
    source: Source | None,
    launched: LaunchSource,
    choices: Choices,
    making: str | None = None,
    needs_source: bool = False,
) -> Tuning:
    kernel = original.code()
    problem = launched.problem(0)
    check_arguments(kernel, problem)
    check_launch(kernel, _request(problem))
    seeds = choices.seeds if launched.varies else 1
    return Tuning(
        path,
        digest,
        original,
        source,
        launched,
        problem,
        seeds,
        making or _making(original, source, kernel, problem, choices),
        launched.sha256(seeds),
        choices,
        needs_source or source is not None,
    )


def _making(
    original: Base, source: Source | None, kernel: Kernel, problem: Problem, choices: Choices
) -> str:
    """The key of all that decides which variants there are and what they are."""
    text = None if source is None else [source.ptx, source.arch, *source.options]
    return key_of(
        sha256(original.data), text, kernel.name, problem.block, problem.dynamic_shared_bytes,
        problem.blocks, choices.trip_count, choices.effort, choices.paper, choices.compares,
        code_fingerprint(),
    )  # fmt: skip


def refuse_foreign(tuning: Tuning, folder: Path) -> None:
    """Raises UsageError for a folder with other things in it, or with another kernel's tuning."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        known = json.loads((folder / TUNING_NAME).read_text("utf-8"))["kernel"]
    except (OSError, ValueError, KeyError, TypeError):
        what = f"is not empty and no earlier tuning (no {TUNING_NAME})"
    else:
        if known == tuning.kernel:
            return
        what = f"is a tuning of another kernel, {demangle(str(known))}"
    raise UsageError(what, file=str(folder), hint="give another --out")


def save_tuning(tuning: Tuning, folder: Path) -> None:
    """Writes what a later run needs to go on in this folder alone."""
    launch_folder = folder / LAUNCH_FOLDER
    launch_folder.mkdir(parents=True, exist_ok=True)
    text = tuning.launch.export(launch_folder, tuning.seeds)
    write_atomically(folder / ORIGINAL_NAME, tuning.original.data)
    value = {"schema_version": 1, **tuning.to_dict(), "launch": f"{LAUNCH_FOLDER}/{text}"}
    write_atomically(folder / TUNING_NAME, (json.dumps(value, indent=2) + "\n").encode())


def resume_tuning(folder: Path, choices: Choices, launch: str | None = None) -> Tuning:
    """The tuning that a folder was prepared for. Raises InputError, UsageError."""
    file = folder / TUNING_NAME
    try:
        value: dict[str, Any] = json.loads(file.read_text("utf-8"))
        kernel, reference = str(value["kernel"]), str(value["reference"])
        digest, path = str(value["input"]["sha256"]), str(value["input"]["path"])
        making, saved = str(value["making"]), str(value["launch"])
        needs_source = bool(value["from_source"])
        choices = Choices(
            choices.rounds,
            choices.seeds,
            choices.limit_s,
            str(value["effort"]),
            bool(value["paper"]),
            float(value["trip_count"]),
            choices.exhaustive,
            choices.jobs,
            bool(value.get("front_ends", True)),
            choices.generations,
        )
        data = (folder / ORIGINAL_NAME).read_bytes()
    except FileNotFoundError as error:
        raise UsageError(
            "nothing was prepared there",
            file=str(folder),
            hint="give the file to tune and its --launch",
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"is damaged: {error}", file=str(file)) from error
    Cubin.parse(data, str(folder / ORIGINAL_NAME)).kernel(kernel)
    original = Base(reference, kernel, data, "input" if reference == INPUT else "nvcc")
    launched = open_launch(launch or str(folder / saved))
    return _tuning(path, digest, original, None, launched, choices, making, needs_source)
