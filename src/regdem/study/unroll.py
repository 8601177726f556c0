"""A study of unrolling: one build per factor of a source that uses the define."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from regdem.errors import InputError, UsageError
from regdem.study.model import BuildSpec
from regdem.study.toolchain import Compiled, Progress, Toolchain, in_parallel, refused

DEFAULT_FACTORS = (1, 2, 4, 8, 16)
MOST_FACTORS = 64
MOST_FACTOR = 65536


def parse_factors(text: str) -> tuple[int, ...]:
    """Factors from `1,2,4`; sorted, each once. Raises UsageError for anything else."""
    try:
        factors = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(f"--factors {text!r}: give whole numbers, such as 1,2,4,8") from None
    if not all(1 <= factor <= MOST_FACTOR for factor in factors):
        raise UsageError(f"--factors {text!r}: each is 1 to {MOST_FACTOR}")
    if len(factors) < 2:
        raise UsageError("one factor is no comparison", hint="give two or more, such as 1,4")
    if len(factors) > MOST_FACTORS:
        raise UsageError(f"{len(factors)} factors: at most {MOST_FACTORS} in one study")
    return tuple(factors)


def unroll_specs(factors: Sequence[int], define: str) -> list[BuildSpec]:
    """One build per factor, the smallest first. Raises UsageError for an illegal define."""
    if re.fullmatch(r"[A-Za-z_]\w*", define) is None:
        raise UsageError(f"--define {define!r} is no identifier")
    return [
        BuildSpec(
            name=f"unroll-{factor}",
            title=f"factor {factor}",
            factor=factor,
            change=f"#pragma unroll {factor}, or -D{define}={factor}",
        )
        for factor in factors
    ]


def check_uses_define(source: Path, define: str) -> None:
    """Raises InputError where a source can't depend on the define: its name isn't in it, and it
    includes no file of its own that might use it.
    """
    text = source.read_text(errors="replace")
    if re.search(rf"\b{re.escape(define)}\b", text) or re.search(r'#\s*include\s+"', text):
        return
    raise InputError(
        f"{define} is not used in it, so every factor would give the same code",
        file=str(source),
        hint=f"write `#pragma unroll {define}` before the loop, or give --define",
        code="no_define",
    )


def compile_unrolled(
    toolchain: Toolchain,
    source: Path,
    specs: Sequence[BuildSpec],
    define: str,
    workers: int,
    progress: Progress | None,
) -> list[Compiled]:
    """Compiles every factor. Raises InputError, with nvcc's first error, if one fails."""
    jobs = [
        partial(toolchain.source, source, spec.name, (define, spec.factor or 1)) for spec in specs
    ]
    builds = in_parallel(jobs, workers, progress)
    for build in builds:
        if build.cubin is None:
            raise refused(source, build)
    return builds
