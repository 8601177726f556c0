"""A study of limits: register caps, launch bounds, and NVIDIA's spilling to shared memory.

Problem: the same source under every limit a user could state, and nothing else different.

Method: one PTX text, edited per build. First the source as it is and a cap of 255 (which switches
off ptxas's habit of stopping at cliffs); then caps at every cliff of the staircase below the higher
of the two counts, and launch bounds for the blocks there; then NVIDIA's pragma for each build that
spilled to local memory, with the block size stated, without which it reserves for the largest.

What ptxas refuses (the pragma with dynamic shared memory, say) is a result, not an error; that the
source as it is does not assemble is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from regdem.errors import UsageError
from regdem.integrations.compile import Directives, with_directives
from regdem.machine import BlockShape, Occupancy
from regdem.study.model import Analysed, BuildSpec
from regdem.study.toolchain import Compiled, Progress, Toolchain, in_parallel, refused

LEAST_CAP, MOST_CAP = 24, 255
BOUNDS_FOR_CLIFFS = 3
_OVERRIDE = "-Xptxas -override-directive-values"

LookAt = Callable[[Sequence[tuple[BuildSpec, Compiled]]], list[Analysed]]


@dataclass(frozen=True)
class Bounds:
    """`__launch_bounds__(threads, blocks)`; `blocks` None where only the size is stated."""

    threads: int
    blocks: int | None


def parse_caps(text: str) -> tuple[int, ...] | None:
    """Caps from `32,40`; None for `auto`. Raises UsageError for anything else."""
    if text.strip() == "auto":
        return None
    try:
        caps = sorted({int(part) for part in text.split(",")}, reverse=True)
    except ValueError:
        raise UsageError(f"--caps {text!r}: give `auto` or numbers, such as 32,40") from None
    if not all(LEAST_CAP <= cap <= MOST_CAP for cap in caps):
        raise UsageError(f"--caps {text!r}: each is {LEAST_CAP} to {MOST_CAP}")
    return tuple(caps)


def parse_bounds(texts: Sequence[str]) -> tuple[Bounds, ...] | None:
    """Launch bounds from `256` and `256,4`; None for `auto`, nothing for `none`."""
    if tuple(texts) in ((), ("auto",)):
        return None
    if tuple(texts) == ("none",):
        return ()
    found: list[Bounds] = []
    for text in texts:
        try:
            numbers = [int(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 2) or not 1 <= numbers[0] <= 1024 or min(numbers) < 1:
            raise UsageError(f"--launch-bounds {text!r}: give THREADS or THREADS,BLOCKS")
        found.append(Bounds(numbers[0], numbers[1] if len(numbers) == 2 else None))
    return tuple(found)


def default_spec() -> BuildSpec:
    """The source as it is."""
    return BuildSpec("default", "the source as it is", directives=Directives())


def cap_spec(cap: int) -> BuildSpec:
    """A register cap."""
    return BuildSpec(
        f"cap-{cap}",
        f"cap {cap}",
        directives=Directives(most_registers=cap),
        change=f"-maxrregcount={cap} (beside launch bounds add {_OVERRIDE})",
    )


def bounds_spec(bounds: Bounds) -> BuildSpec:
    """Launch bounds, in place of the source's own."""
    words = f"{bounds.threads}" + (f", {bounds.blocks}" if bounds.blocks else "")
    return BuildSpec(
        f"bounds-{bounds.threads}" + (f"x{bounds.blocks}" if bounds.blocks else ""),
        f"launch bounds {words}",
        directives=Directives(block=BlockShape(bounds.threads, 1, 1), least_blocks=bounds.blocks),
        change=f"__launch_bounds__({words})",
    )


def pragma_spec(spec: BuildSpec, block: BlockShape) -> BuildSpec:
    """The same limits with NVIDIA's pragma and the block size, which it needs."""
    old = spec.directives or Directives()
    return BuildSpec(
        f"{spec.name}-shared",
        f"{spec.title}, NVIDIA's shared spills",
        directives=Directives(
            block=old.block or block,
            most_registers=old.most_registers,
            least_blocks=old.least_blocks,
            smem_spilling=True,
        ),
        change='asm volatile(".pragma \\"enable_smem_spilling\\";"); at the kernel\'s start, '
        f"with __launch_bounds__({block.threads})" + (f" and {spec.change}" if spec.change else ""),
    )


def automatic_caps(first: Sequence[Analysed]) -> list[int]:
    """Every cliff below the highest count of the builds made so far, the highest first."""
    occupancy = first[0].report.occupancy
    assert occupancy is not None
    most = max(build.kernel.registers_per_thread for build in first)
    return [
        cliff.registers_max for cliff in occupancy.cliffs if LEAST_CAP <= cliff.registers_max < most
    ]


def automatic_bounds(occupancy: Occupancy, caps: Sequence[int]) -> list[Bounds]:
    """The block size alone, and the blocks resident at the first cliffs below the default."""
    threads = occupancy.threads
    found = [Bounds(threads, None)]
    for cap in sorted(caps, reverse=True):
        if occupancy.registers is not None and cap >= occupancy.registers:
            continue
        blocks = next(c.active_blocks for c in occupancy.cliffs if c.registers_max <= cap)
        if blocks > occupancy.active_blocks and len(found) <= BOUNDS_FOR_CLIFFS:
            found.append(Bounds(threads, blocks))
    return found


@dataclass(frozen=True)
class CapsPlan:
    """What a study of caps is asked: None means automatic."""

    caps: tuple[int, ...] | None
    bounds: tuple[Bounds, ...] | None
    pragma: bool
    block: BlockShape


@dataclass(frozen=True)
class CapsBuilds:
    """What came of it: builds looked at, and builds refused, in the order of the plan."""

    analysed: list[Analysed]
    refused: list[tuple[BuildSpec, Compiled]]


class CapsCompiler:
    """Makes the builds of a study of caps from one PTX text."""

    def __init__(
        self,
        toolchain: Toolchain,
        source: Path,
        ptx: str,
        kernel: str,
        look: LookAt,
        workers: int,
        progress: Progress | None,
    ) -> None:
        self._toolchain = toolchain
        self._source = source
        self._ptx = ptx
        self._kernel = kernel
        self._look = look
        self._workers = workers
        self._progress = progress

    def run(self, default: Compiled, plan: CapsPlan) -> CapsBuilds:
        """All builds; `default` is the source as it is, assembled already."""
        lost: list[tuple[BuildSpec, Compiled]] = []
        first = self._look([(default_spec(), default)])
        occupancy = first[0].report.occupancy
        assert occupancy is not None
        if plan.caps is None:
            uncapped = self._make([cap_spec(MOST_CAP)], lost)
            caps = automatic_caps([*first, *uncapped])
            found = [*first, *uncapped, *self._make([cap_spec(cap) for cap in caps], lost)]
        else:
            caps = list(plan.caps)
            found = [*first, *self._make([cap_spec(cap) for cap in caps], lost)]
        bounds = plan.bounds
        if bounds is None:
            bounds = tuple(automatic_bounds(occupancy, automatic_caps(found)))
        found += self._make([bounds_spec(each) for each in bounds], lost)
        if plan.pragma:
            spilled = [build.spec for build in _distinct(found) if build.spill_bytes]
            found += self._make([pragma_spec(spec, plan.block) for spec in spilled], lost)
        return CapsBuilds(found, lost)

    def _make(
        self, specs: list[BuildSpec], lost: list[tuple[BuildSpec, Compiled]]
    ) -> list[Analysed]:
        jobs = [partial(self._assemble, spec) for spec in specs]
        made = list(zip(specs, in_parallel(jobs, self._workers, self._progress), strict=True))
        lost += [(spec, build) for spec, build in made if build.cubin is None]
        return self._look([(spec, build) for spec, build in made if build.cubin is not None])

    def _assemble(self, spec: BuildSpec) -> Compiled:
        assert spec.directives is not None
        text = with_directives(self._ptx, self._kernel, spec.directives)
        return self._toolchain.assemble(text, spec.name)


def assemble_default(toolchain: Toolchain, source: Path, ptx: str) -> Compiled:
    """The source as it is. Raises InputError, with the first error, if it does not assemble."""
    done = toolchain.assemble(ptx, "default")
    if done.cubin is None:
        raise refused(source, done)
    return done


def _distinct(builds: Sequence[Analysed]) -> list[Analysed]:
    seen: set[bytes] = set()
    found: list[Analysed] = []
    for build in builds:
        if build.kernel.code not in seen:
            seen.add(build.kernel.code)
            found.append(build)
    return found
