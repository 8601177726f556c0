"""`regdem study`: one source compiled several ways, explained, and measured where a GPU is."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regdem.cli.kernels import note_open_dynamic_shared
from regdem.cli.options import (
    Decorator,
    Function,
    KernelPattern,
    arch_option,
    compile_options,
    debug_option,
    dynamic_shared_option,
    folder_option,
    format_option,
    kernel_option,
    threads_option,
)
from regdem.cli.output import Output, dump_json, envelope, note, read_input
from regdem.errors import UsageError
from regdem.machine import BlockShape

if TYPE_CHECKING:
    from regdem.study.model import Study
    from regdem.study.run import StudyOptions

EXIT_OUTPUTS_DIFFER = 1

EPILOG = """
DIR gets a .cubin, .sass and .log (the compiler's report) per build, study.json and report.html; it
must be new, empty, or an earlier study's. Exit status 1: outputs differ between builds.
"""


@click.group("study", short_help="Builds of one source, compared and explained.")
def command() -> None:
    """Compile one source several ways, and say what each build gained and what it paid."""


def _shared_options(function: Function) -> Function:
    decorators: list[Decorator] = [
        click.argument("source"),
        folder_option("--out", required=True, help="Folder for the evidence."),
        kernel_option,
        threads_option(),
        dynamic_shared_option,
        arch_option(),
        compile_options,
        click.option(
            "--nvcc-flag", "flags", multiple=True, metavar="FLAG",
            help="The same, but nvcc's for PTX too.",
        ),
        click.option(
            "--turns", type=click.FloatRange(min=1), default=64.0, show_default=True, metavar="N",
            help="Turns of loops whose number the code doesn't say.",
        ),
        click.option(
            "--launch", metavar="SPEC",
            help="How to run the kernel, as for `regdem tune`: a launch file or FILE.py:FUNCTION.",
        ),
        click.option("--gpu", type=int, default=0, show_default=True, help="GPU to measure on."),
        click.option(
            "--rounds", type=click.IntRange(3, 1000), default=25, show_default=True,
            help="Interleaved rounds of timing.",
        ),
        click.option(
            "--tolerance", type=click.FloatRange(min=0), default=0.0, metavar="R",
            help="Accept floats within this relative difference. [byte-identical]",
        ),
        click.option("--jobs", type=int, metavar="N", help="Compilers at a time. [CPU cores]"),
        format_option("text", "json", "html"),
        debug_option,
    ]  # fmt: skip
    for decorator in reversed(decorators):
        function = decorator(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **rest: Any) -> Any:
        return function(*args, **rest)

    return wrapper


@command.command("unroll", epilog=EPILOG, short_help="One build per unroll factor.")
@click.option(
    "--factors", default="1,2,4,8,16", show_default=True, metavar="N,N,…", help="Unroll factors."
)
@click.option(
    "--define", default="UNROLL", show_default=True, metavar="NAME",
    help="The name the source uses, in `#pragma unroll NAME` or in code.",
)  # fmt: skip
@_shared_options
def unroll(*, factors: str, define: str, report: Output, **rest: Any) -> int:
    """Compile SOURCE once per factor and check in the machine code what it did to the loops.

    The name holds the factor in code, and in `#pragma unroll NAME` too, which nvcc alone doesn't
    expand.
    """
    from regdem.study.run import study_unroll
    from regdem.study.unroll import parse_factors

    numbers = parse_factors(factors)
    options, progress = _options(**rest)
    try:
        study = study_unroll(options, numbers, define)
    finally:
        progress.close()
    return _finish(study, options, rest["out"], report)


@command.command("caps", epilog=EPILOG, short_help="Register caps and launch bounds.")
@click.option(
    "--caps", default="auto", show_default=True, metavar="N,N,…|auto",
    help="Register caps; auto: 255 and every cliff at the block size.",
)  # fmt: skip
@click.option(
    "--launch-bounds", "bounds", multiple=True, metavar="T[,B]|auto|none",
    help="Launch bounds; repeatable. [auto: the block size, and the blocks of the next cliffs]",
)  # fmt: skip
@click.option(
    "--no-pragma", is_flag=True, help="Leave out NVIDIA's spilling to shared memory."
)  # fmt: skip
@click.option(
    "--define", metavar="NAME=N", help="A factor, passed as `study unroll` passes it."
)  # fmt: skip
@_shared_options
def caps(
    *,
    caps: str,
    bounds: tuple[str, ...],
    no_pragma: bool,
    define: str | None,
    report: Output,
    **rest: Any,
) -> int:
    """Compile SOURCE (.cu or .ptx) as it is and under register caps, launch bounds and NVIDIA's
    shared-memory spilling.
    """
    from regdem.study.caps import parse_bounds, parse_caps
    from regdem.study.run import study_caps

    numbers, limits, factor = parse_caps(caps), parse_bounds(bounds), _factor(define)
    options, progress = _options(**rest)
    try:
        study = study_caps(options, numbers, limits, pragma=not no_pragma, factor=factor)
    finally:
        progress.close()
    return _finish(study, options, rest["out"], report)


def _factor(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    name, _, value = text.partition("=")
    if not name.isidentifier() or not value.isdigit():
        raise UsageError(f"--define {text!r}: give NAME=N, such as UNROLL=4")
    return name, int(value)


def _options(
    *,
    source: str,
    out: str,
    kernel: KernelPattern | None,
    threads: BlockShape | None,
    dynamic_shared_bytes: int,
    arch: str | None,
    compile_options: tuple[str, ...],
    flags: tuple[str, ...],
    turns: float,
    launch: str | None,
    gpu: int,
    rounds: int,
    tolerance: float,
    jobs: int | None,
) -> tuple[StudyOptions, _Progress]:
    from regdem.integrations.compile import DEFAULT_ARCH
    from regdem.study.evidence import check_folder
    from regdem.study.run import StudyOptions
    from regdem.study.toolchain import flags_of

    check_folder(Path(out))
    read_input(source)
    progress = _Progress()
    measurer = None
    if launch is not None:
        from regdem.study.measure import GpuMeasurer

        measurer = GpuMeasurer(launch, gpu=gpu, rounds=rounds, tolerance=tolerance)
    options = StudyOptions(
        source=Path(source),
        arch=arch or DEFAULT_ARCH,
        kernel=kernel.text if kernel else None,
        threads=threads,
        dynamic_shared_bytes=dynamic_shared_bytes,
        flags=(*flags_of(Path(source), compile_options), *flags),
        turns=turns,
        workers=jobs or os.cpu_count() or 1,
        measurer=measurer,
        progress=progress,
    )
    return options, progress


def _finish(study: Study, options: StudyOptions, out: str, report: Output) -> int:
    from regdem.study.document import study_dict
    from regdem.study.evidence import texts_of, write_folder
    from regdem.study.page import study_page
    from regdem.study.text import text_study

    if options.measurer is None:
        note_open_dynamic_shared([study.builds[0].analysed.kernel])
    data = read_input(study.source)
    document = dump_json(envelope(study_dict(study), path=study.source, data=data))
    page = study_page(study)
    write_folder(Path(out), study, document, page, texts_of(study, options.workers))
    report.emit(text=lambda: text_study(study), json=document, html=page)
    note(f"regdem: written: {out}")
    return EXIT_OUTPUTS_DIFFER if study.outputs_differ else 0


class _Progress:
    """A line on stderr that counts steps; silent unless stderr is a terminal."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, what: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            self._shown = True
            bar = "#" * (30 * done // max(1, total))
            line = f"\r\033[K{what} [{bar:<30}] {done}/{total}"
            print(line, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
