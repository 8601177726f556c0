"""A study from the request to the value: compile, look, compare, measure, judge.

Nothing is written here; `evidence` writes a study's folder, and the command line prints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from regdem.binary import Cubin
from regdem.errors import UsageError
from regdem.integrations.compile import ptx_of
from regdem.integrations.toolkit import find_gpus
from regdem.machine import BlockShape, block_shape
from regdem.report.inspection import declared_threads
from regdem.study.analyse import Look, compare_all, look_at_all, study_kernel
from regdem.study.caps import Bounds, CapsCompiler, CapsPlan, assemble_default
from regdem.study.measured import Measurement
from regdem.study.model import Analysed, Build, BuildSpec, Refused, Study, TargetLoop
from regdem.study.toolchain import Compiled, Progress, Toolchain, find_toolchain
from regdem.study.unroll import check_uses_define, compile_unrolled, unroll_specs
from regdem.study.verdict import judge_caps, judge_unroll, recommend
from regdem.study.weights import DEFAULT_TURNS


@dataclass(frozen=True)
class Measured:
    """What a measurement of all builds gave: by build, and what it ran on; reasons for gaps.

    `noise`: by what share the first build differs from itself, timed as two builds.
    """

    builds: Mapping[str, Measurement]
    device: dict[str, Any] | None
    no_times: str | None
    no_counters: str | None
    noise: float | None = None


class Measurer(Protocol):
    """Launches builds on a GPU: the block and shared memory of the launch, and the measurement."""

    @property
    def block(self) -> BlockShape:
        """Threads per block of the launch."""
        ...

    @property
    def dynamic_shared_bytes(self) -> int:
        """Dynamic shared memory of the launch."""
        ...

    def measure(self, kernel: str, cubins: Mapping[str, bytes]) -> Measured:
        """Runs all builds, the first being the one whose outputs are the reference."""
        ...


@dataclass(frozen=True)
class StudyOptions:
    """What both studies are asked. `turns`: of loops whose number isn't known."""

    source: Path
    arch: str
    kernel: str | None = None
    threads: BlockShape | None = None
    dynamic_shared_bytes: int = 0
    flags: tuple[str, ...] = ()
    turns: float = DEFAULT_TURNS
    workers: int = 1
    measurer: Measurer | None = None
    progress: Progress | None = None


def study_unroll(options: StudyOptions, factors: Sequence[int], define: str) -> Study:
    """One build per factor. Raises InputError for a source that does not compile or can't depend
    on the define, UsageError for one without a single kernel, UnsupportedError without nvcc.
    """
    toolchain = find_toolchain(options.source, options.arch, options.flags)
    if options.source.suffix != ".cu":
        raise UsageError("unroll factors need a .cu source", file=str(options.source))
    specs = unroll_specs(factors, define)
    check_uses_define(options.source, define)
    compiled = compile_unrolled(
        toolchain, options.source, specs, define, options.workers, options.progress
    )
    assert compiled[0].cubin is not None
    context = _context(options, compiled[0].cubin)
    analysed = context.look(list(zip(specs, compiled, strict=True)))
    builds, targets = compare_all(analysed, options.turns, unrolled=True)
    builds, measured = _measure(options, context, builds)
    builds = judge_unroll(builds, targets, define)
    notes = _notes(builds, targets)
    if not targets:
        notes.insert(0, f"no factor changed any loop: is {define} used in `#pragma unroll`?")
    return _study("unroll", options, toolchain, context, builds, targets, measured, notes, define)


def study_caps(
    options: StudyOptions,
    caps: tuple[int, ...] | None,
    bounds: tuple[Bounds, ...] | None,
    *,
    pragma: bool = True,
    factor: tuple[str, int] | None = None,
) -> Study:
    """The source as it is, under register caps, launch bounds and NVIDIA's pragma.

    factor: a define and its value, as studies of unrolling pass it.
    Raises as `study_unroll`; a build that only the compiler refuses is in the study as refused.
    """
    toolchain = find_toolchain(options.source, options.arch, options.flags)
    is_ptx = options.source.suffix == ".ptx"
    ptx = ptx_of(options.source) if is_ptx else toolchain.ptx(options.source, factor)
    default = assemble_default(toolchain, options.source, ptx)
    assert default.cubin is not None
    context = _context(options, default.cubin)
    compiler = CapsCompiler(
        toolchain, options.source, ptx, context.kernel, context.look, options.workers,
        options.progress,
    )  # fmt: skip
    made = compiler.run(default, CapsPlan(caps, bounds, pragma, context.block))
    builds, targets = compare_all(made.analysed, options.turns, unrolled=False)
    builds, measured = _measure(options, context, builds)
    builds = judge_caps(builds)
    refusals = tuple(Refused(spec, compiled) for spec, compiled in made.refused)
    notes = _notes(builds, targets)
    study = _study("caps", options, toolchain, context, builds, targets, measured, notes, None)
    return replace(study, refused=refusals)


@dataclass(frozen=True)
class _Context:
    """The kernel and the launch that all builds share, and how builds are looked at."""

    kernel: str
    block: BlockShape
    dynamic_shared_bytes: int
    look: Callable[[Sequence[tuple[BuildSpec, Compiled]]], list[Analysed]]


def _context(options: StudyOptions, cubin: bytes) -> _Context:
    path = str(options.source)
    name = study_kernel(cubin, options.kernel, path)
    kernel = Cubin.parse(cubin, path).kernel(name)
    block = options.threads
    dynamic = options.dynamic_shared_bytes
    if options.measurer is not None:
        if block is not None and block.threads != options.measurer.block.threads:
            raise UsageError(
                f"--threads {block.threads} is not the launch's {options.measurer.block.threads}"
            )
        block = options.measurer.block
        dynamic = options.measurer.dynamic_shared_bytes
    if block is None:
        declared = declared_threads(kernel)
        if declared is None:
            raise UsageError(
                "the block size is not declared", file=path, kernel=name, hint="give --threads"
            )
        block = block_shape(declared)

    threads = block.threads

    def look(pairs: Sequence[tuple[BuildSpec, Compiled]]) -> list[Analysed]:
        looks = [Look(spec, compiled, name, threads, dynamic) for spec, compiled in pairs]
        return look_at_all(looks, options.workers)

    return _Context(name, block, dynamic, look)


def _measure(
    options: StudyOptions, context: _Context, builds: list[Build]
) -> tuple[list[Build], Measured]:
    if options.measurer is None:
        where = "" if find_gpus() else "no GPU here; "
        why = f"{where}no launch was given: --launch says how to run the kernel"
        return builds, Measured({}, None, why, why)
    cubins = {
        build.name: build.analysed.compiled.cubin
        for build in builds
        if build.analysed.compiled.cubin is not None and build.analysed.active_blocks
    }
    if builds[0].name not in cubins:
        why = "the first build can't be launched with that block"
        return builds, Measured({}, None, why, why)
    if options.progress is not None:
        options.progress("measure", 0, 1)
    found = options.measurer.measure(context.kernel, cubins)
    if options.progress is not None:
        options.progress("measure", 1, 1)
    return [replace(build, measured=found.builds.get(build.name)) for build in builds], found


def _notes(builds: Sequence[Build], targets: Sequence[TargetLoop]) -> list[str]:
    notes: list[str] = []
    unknown = [target for target in targets if not target.turns_known]
    if unknown:
        notes.append(
            f"{', '.join(target.title for target in unknown)}: the turns are not known and taken "
            f"as {unknown[0].turns:g} (--turns)"
        )
    notes += builds[0].prediction.notes
    return notes


def _study(
    kind: str,
    options: StudyOptions,
    toolchain: Toolchain,
    context: _Context,
    builds: list[Build],
    targets: tuple[TargetLoop, ...],
    measured: Measured,
    notes: list[str],
    define: str | None,
) -> Study:
    return Study(
        kind=kind,
        source=str(options.source),
        source_sha256=hashlib.sha256(options.source.read_bytes()).hexdigest(),
        kernel=context.kernel,
        arch=builds[0].analysed.kernel.arch,
        threads=context.block.threads,
        dynamic_shared_bytes=context.dynamic_shared_bytes,
        compiler=toolchain.version,
        flags=options.flags,
        define=define,
        loops=targets,
        builds=tuple(builds),
        refused=(),
        recommendation=recommend(builds, unrolled=kind == "unroll", noise=measured.noise),
        notes=tuple(notes),
        device=measured.device,
        no_times=measured.no_times,
        no_counters=measured.no_counters,
        noise=measured.noise,
    )
