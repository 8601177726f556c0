"""From compiled builds to builds compared: inspection, loops, weights, prediction.

The first build is the measure of all: loops, turns and work are its own. Each build is looked at
by itself first (`look`, a pure function of bytes, so that processes can share the work), and then
against the first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from regdem.analysis.ilp import LoopParallelism
from regdem.analysis.loop_demand import loop_demands
from regdem.binary import Cubin
from regdem.errors import UsageError
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.machine.timing import timing
from regdem.predict.model import Prediction, predict_summary
from regdem.predict.summary import summary_of
from regdem.program.from_kernel import program_of
from regdem.report.inspection import inspect_kernel
from regdem.study.anatomy import anatomy_of
from regdem.study.effect import Comparison, compare_builds
from regdem.study.model import Analysed, Build, BuildSpec, Executed, HotLoop, TargetLoop
from regdem.study.toolchain import Compiled, resources_in
from regdem.study.weights import base_turns, block_weights

PARALLEL_BYTES = 400_000
"""Below this much code, starting processes costs more than it saves."""


@dataclass(frozen=True)
class Look:
    """One build to look at; picklable."""

    spec: BuildSpec
    compiled: Compiled
    kernel: str
    threads: int
    dynamic_shared_bytes: int

    def run(self) -> Analysed:
        """Inspects it. Raises UnsupportedError for code that isn't understood."""
        assert self.compiled.cubin is not None
        kernel = Cubin.parse(self.compiled.cubin, self.spec.name).kernel(self.kernel)
        report = inspect_kernel(kernel, self.threads, self.dynamic_shared_bytes)
        if report.refusal is not None:
            raise report.refusal
        assert report.analysis is not None
        sites = frozenset(s.instruction for s in report.analysis.spills.spills.spill_sites)
        return Analysed(
            self.spec,
            self.compiled,
            kernel,
            report,
            anatomy_of(kernel, program_of(kernel), sites),
            resources_in(self.compiled.log, self.kernel),
        )


def look_at_all(looks: Sequence[Look], workers: int) -> list[Analysed]:
    """Looks at builds, on several processes where that pays; results in order."""
    size = sum(len(look.compiled.cubin or b"") for look in looks)
    if len(looks) < 2 or workers < 2 or size < PARALLEL_BYTES:
        return [look.run() for look in looks]
    with ProcessPoolExecutor(min(workers, len(looks))) as executor:
        futures = [executor.submit(look.run) for look in looks]
        return [future.result() for future in futures]


def compare_all(
    analysed: Sequence[Analysed], assumed_turns: float, *, unrolled: bool
) -> tuple[list[Build], tuple[TargetLoop, ...]]:
    """Compares every build with the first; the loops the study is about, the heaviest first.

    unrolled: those that some build changes; otherwise all innermost loops.
    """
    base = analysed[0]
    comparisons = [compare_builds(base.anatomy, build.anatomy) for build in analysed]
    turns, known = base_turns(base.anatomy, comparisons, assumed_turns)
    weights = [
        block_weights(build.program, build.anatomy, comparison, turns, assumed_turns)
        for build, comparison in zip(analysed, comparisons, strict=True)
    ]
    heavy = _loop_weights(base, weights[0])
    chosen = [
        loop.index
        for loop in base.anatomy.loops
        if (
            any(comparison.effect(loop.index).changed for comparison in comparisons)
            if unrolled
            else all(other.parent != loop.index for other in base.anatomy.loops)
        )
    ]
    chosen.sort(key=lambda index: -heavy[index])
    targets = tuple(
        TargetLoop(
            index,
            base.anatomy.region(index).line,
            turns[index],
            known[index],
            base.anatomy.region(index).start_offset,
        )
        for index in chosen
    )
    builds: list[Build] = []
    for build, comparison, weight in zip(analysed, comparisons, weights, strict=True):
        builds.append(
            Build(
                analysed=build,
                comparison=comparison,
                executed=executed(build, weight),
                hot=_hot_loop(build, comparison, targets[0].index) if targets else None,
                prediction=_predict(build, weight),
                same_as=next(
                    (
                        other.name
                        for other in builds
                        if other.analysed.kernel.code == build.kernel.code
                    ),
                    None,
                ),
            )
        )
    return builds, targets


def executed(build: Analysed, weights: list[float]) -> Executed:
    """Sums over the blocks of a build, by weight."""
    program = build.program
    by_class: dict[str, float] = {}
    block_of: list[int] = program.block_of.tolist()
    for i, kind in enumerate(build.anatomy.class_of):
        weight = weights[block_of[i]]
        if weight:
            by_class[kind] = by_class.get(kind, 0.0) + weight
    memory = sum(
        weights[block_of[i]] * amount for i, amount in enumerate(build.anatomy.bytes_of) if amount
    )
    spilled = {"local": 0.0, "shared": 0.0}
    for site in build.code.spills.spills.spill_sites:
        spilled[site.space] += weights[block_of[site.instruction]] * site.bytes_per_thread
    return Executed(by_class, memory, spilled["local"], spilled["shared"])


def _loop_weights(base: Analysed, weights: list[float]) -> list[float]:
    """Weighted instructions of each loop without those inside it."""
    program = base.program
    total = [0.0] * len(base.anatomy.loops)
    for block, region in enumerate(base.anatomy.region_of):
        if region >= 0:
            entry = program.blocks[block]
            total[region] += weights[block] * (entry.end - entry.start)
    return total


def _hot_loop(build: Analysed, comparison: Comparison, target: int) -> HotLoop | None:
    effect = comparison.effect(target)
    if effect.main is None:
        return None
    region = build.anatomy.region(effect.main)
    figures = _parallelism(build, region.start_offset) if region.is_loop else None
    start = region.start_offset if region.is_loop else None
    demand = next(
        (
            entry
            for entry in loop_demands(build.program)
            if entry.start_offset == start or (start is None and entry.depth == 0)
        ),
        None,
    )
    return HotLoop(
        start_offset=region.start_offset,
        copies=effect.factor,
        instructions=region.instructions,
        code_bytes=INSTRUCTION_BYTES * region.instructions,
        gone=effect.gone,
        loads_in_flight=figures.loads_in_flight if figures else None,
        loads_per_wait=round(demand.loads_in_flight, 2) if demand and demand.loads else None,
        warp_cycles=figures.warp_cycles if figures else None,
        recurrence_cycles=figures.recurrence_cycles if figures else None,
    )


def _parallelism(build: Analysed, start_offset: int) -> LoopParallelism | None:
    return next(
        (loop for loop in build.code.parallelism if loop.start_offset == start_offset), None
    )


def _predict(build: Analysed, weights: list[float]) -> Prediction:
    occupancy = build.report.occupancy
    if occupancy is None:
        raise UsageError("the block size is not known", hint="give --threads")
    kernel = build.kernel
    summary = summary_of(kernel.name, kernel.arch, build.program, weights=weights)
    summary = replace(summary, local_bytes=kernel.local_bytes)
    return predict_summary(summary, occupancy, timing(kernel.arch))


def study_kernel(cubin: bytes, wanted: str | None, path: str) -> str:
    """The one kernel of a cubin that a study is about. Raises UsageError unless there is one."""
    kernels = Cubin.parse(cubin, path).kernels
    chosen = [
        kernel
        for kernel in kernels
        if wanted is None
        or wanted in (kernel.name, kernel.demangled_name)
        or re.search(wanted, kernel.name)
        or re.search(wanted, kernel.demangled_name)
    ]
    exact = [kernel for kernel in chosen if wanted in (kernel.name, kernel.demangled_name)]
    chosen = exact or chosen
    if len(chosen) == 1:
        return chosen[0].name
    names = ", ".join(kernel.name for kernel in (chosen or kernels)[:5]) or "none"
    problem = "no kernel matches" if not chosen else f"{len(chosen)} kernels match"
    if not kernels:
        raise UsageError("no kernels in it", file=path, code="no_kernel")
    raise UsageError(
        f"{problem}: a study is of one", file=path, code="no_kernel",
        hint=f"choose with --kernel: {names}",
    )  # fmt: skip
