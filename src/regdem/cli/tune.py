"""`regdem tune`: variants made on the CPU, compared and timed on the GPU; the best is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regdem.cli.options import (
    KernelPattern,
    arch_option,
    artifact_option,
    compile_options,
    debug_option,
    folder_option,
    keeps_input,
    kernel_option,
    trip_count_option,
)
from regdem.cli.output import Output, input_entry, note, write_atomically
from regdem.cli.targets import check_folder_target
from regdem.errors import UsageError

if TYPE_CHECKING:
    from regdem.tune.outcome import TuneResult

EPILOG = """
SPEC is a JSON or TOML launch file (`regdem schema launch`), or module.py:function, a function that
is given a recorder and launches the kernel. Every variant's outputs are compared byte for byte with
the unmodified kernel's on every seed; one that differs is rejected, and the exit status is 1. (The
compiler's other front ends may change last bits: where they do, their builds are only not taken.)
Times are interleaved with the original's, which is timed twice. Measuring stops when the
predictor's interval excludes the rest; --exhaustive goes on. From the fastest, measured steps
follow (--generations): other orders of a few instructions, fewer warps. Everything is kept in --out
DIR, and a second run goes on where the first one ended. Without FILE, DIR is gone on with, as
--prepare-only left it.
"""


class _Gpus(click.ParamType[tuple[int, ...], str]):
    name = "n[,n...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value  # pyright: ignore[reportUnknownVariableType]
        parts = str(value).split(",")
        if not all(part.isdecimal() and len(part) < 5 for part in parts):
            raise UsageError(f"--gpu {value!r}", hint="numbers with commas, such as 0,1")
        return tuple(int(part) for part in parts)


@click.command("tune", epilog=EPILOG, short_help="The measured best of all proved variants.")
@click.argument("file", required=False)
@click.option("--launch", metavar="SPEC", help="Launch file, or module.py:function.")
@click.option(
    "--gpu", "gpus", type=_Gpus(), default="0", show_default=True, help="GPUs to measure on."
)
@kernel_option
@artifact_option(required=False, help="Write the best cubin there.")
@keeps_input
@folder_option("--out", "folder", help="The evidence; default NAME.tune.")
@click.option(
    "--rounds", type=click.IntRange(6, 10000), default=25, show_default=True,
    help="Interleaved rounds per variant.",
)  # fmt: skip
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=3, show_default=True,
    help="Sets of inputs to compare outputs on.",
)  # fmt: skip
@click.option(
    "--limit", "limit_s", type=click.FloatRange(1, 86400), default=120.0, show_default=True,
    metavar="S", help="Seconds a variant may take on the GPU.",
)  # fmt: skip
@click.option(
    "--effort", type=click.Choice(["quick", "normal", "exhaustive"]), default="normal",
    show_default=True, help="How many builds and rewrites are made.",
)  # fmt: skip
@click.option("--paper", is_flag=True, help="Also the RegDem paper's register orders.")
@click.option(
    "--front-ends/--no-front-ends", "front_ends", default=True, show_default=True,
    help="Also builds whose front end unrolls, orders or combines otherwise.",
)  # fmt: skip
@click.option(
    "--generations", type=click.IntRange(0, 1000), default=4, show_default=True, metavar="N",
    help="Search on from the fastest: N times a dozen small steps, proved and measured.",
)  # fmt: skip
@trip_count_option
@click.option("--exhaustive", is_flag=True, help="Measure all, whatever is predicted.")
@click.option("--prepare-only", is_flag=True, help="Make the variants; needs no GPU.")
@click.option("--jobs", type=click.IntRange(1), metavar="J", help="Processes; default: free CPUs.")
@arch_option()
@compile_options
@click.option("--ptx", metavar="PTX", help="PTX of a cubin's kernel, for base builds.")
@click.option(
    "--format", "format_name", type=click.Choice(["text", "json", "html"]), default="text",
    show_default=True, help="Format of the report on stdout.",
)  # fmt: skip
@debug_option
def command(
    *,
    file: str | None,
    launch: str | None,
    gpus: tuple[int, ...],
    kernel: KernelPattern | None,
    out: str | None,
    folder: str | None,
    rounds: int,
    seeds: int,
    limit_s: float,
    effort: str,
    paper: bool,
    front_ends: bool,
    generations: int,
    trip_count: float,
    exhaustive: bool,
    prepare_only: bool,
    jobs: int | None,
    arch: str | None,
    compile_options: tuple[str, ...],
    ptx: str | None,
    format_name: str,
) -> int:
    """Measure proved variants of a kernel of FILE and write the fastest."""
    from regdem.tune.tuner import Building, Choices, tune

    if file is None and folder is None:
        raise UsageError("there is nothing to tune", hint="give FILE, or --out of a prepared one")
    if prepare_only and out is not None:
        raise UsageError("--prepare-only measures nothing, so there is no best to write to -o")
    choices = Choices(
        rounds=rounds,
        seeds=seeds,
        limit_s=limit_s,
        effort=effort,
        paper=paper,
        trip_count=trip_count,
        exhaustive=exhaustive,
        jobs=jobs or _default_jobs(0 if prepare_only else len(gpus)),
        front_ends=front_ends,
        generations=generations,
    )
    where = folder or check_folder_target(f"{Path(file or '').stem}.tune")
    result = tune(
        file,
        launch,
        out=where,
        kernel=kernel.text if kernel else None,
        gpus=gpus,
        choices=choices,
        prepare_only=prepare_only,
        building=Building(arch, compile_options, ptx),
        progress=note,
    )
    return _finish(result, out, where, format_name)


def _default_jobs(gpus: int) -> int:
    """A CPU for each measuring process, whose launches must not be late; the others for making."""
    return max(1, (os.cpu_count() or 1) - gpus)


def _finish(result: TuneResult, out: str | None, folder: str, format_name: str) -> int:
    """Writes the best, prints the report, says what must not be overlooked."""
    from regdem.tune.report import alerts, html_report

    is_sound = not result.rejected
    if out is not None and is_sound:
        write_atomically(out, result.to_bytes())
    body = result.to_dict() | {"evidence": folder}
    if out is not None and is_sound:
        body["output"] = input_entry(out, result.to_bytes())
    Output(format_name).emit(
        text=lambda: result.text() + _written(result, out, folder),
        json=lambda: _json(body),
        html=lambda: html_report(result),
    )
    for alert in alerts(result):
        note(f"regdem: {alert}")
    if not is_sound and out is not None:
        note(f"regdem: {out} is not written; the variants that agree are in {folder}/variants")
    return 0 if is_sound else 1


def _json(body: dict[str, Any]) -> str:
    from regdem.cli.output import dump_json

    return dump_json(body)


def _written(result: TuneResult, out: str | None, folder: str) -> str:
    lines = f"evidence: {folder}\n"
    if out is None or result.rejected:
        return lines
    return f"written: {out}{'' if result.best else ' (the input, unchanged)'}\n{lines}"
