"""`regdem inspect`: what the registers of each kernel are used for, and what to do about it."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from regdem.cli.options import (
    KernelPattern,
    arch_option,
    compile_options,
    debug_option,
    kernel_option,
    optional_dynamic_shared_option,
    output_options,
    threads_option,
)
from regdem.cli.output import Output, dump_json, envelope, note, read_input
from regdem.errors import UsageError
from regdem.machine import BlockShape

if TYPE_CHECKING:
    from regdem.api import Located, Module
    from regdem.report.model import KernelReport

PARALLEL_INSTRUCTIONS = 20_000
"""Below this many instructions, starting processes costs more than it saves."""
PREDICTED_INSTRUCTIONS = 20_000
"""The predictor takes several times as long as everything else: more code has to be asked for."""


@dataclass(frozen=True)
class Inspected:
    """What the verb found: the reports, and the file as the JSON envelope names it."""

    reports: list[KernelReport]
    located: list[Located]
    envelope: dict[str, Any]


@click.command("inspect", short_help="Pressure, spills, loops, advice.")
@click.argument("file")
@kernel_option
@threads_option()
@optional_dynamic_shared_option
@arch_option()
@compile_options
@click.option("--jobs", type=int, metavar="N", help="Processes to use. [CPU cores]")
@click.option(
    "--fits", type=int, metavar="R", help="Ask whether R registers suffice, and what is in the way."
)
@click.option(
    "--predict/--no-predict",
    default=None,
    help="Predict what crossing the next cliff is worth. [for up to 20,000 instructions]",
)
@click.option("--exact", is_flag=True, help="Answer --fits, and the least count, by OR-tools.")
@click.option(
    "--exact-seconds",
    type=click.FloatRange(min=0.1),
    default=20.0,
    metavar="S",
    help="Limit of each exact answer. [20]",
)
@click.option("--graph", is_flag=True, help="Put the interference graph into the JSON.")
@output_options("text", "json", "html", "dot")
@debug_option
def command(
    *,
    file: str,
    kernel: KernelPattern | None,
    threads: BlockShape | None,
    dynamic_shared_bytes: int | None,
    arch: str | None,
    compile_options: tuple[str, ...],
    jobs: int | None,
    fits: int | None,
    predict: bool | None,
    exact: bool,
    exact_seconds: float,
    graph: bool,
    output: Output,
) -> None:
    """Live registers, interference, spills, parallelism and occupancy of the kernels of FILE.

    FILE: a cubin, a fat binary, a host program or library with device code, an archive, a folder
    of a kernel cache, `.cu` or `.ptx` (compiled with the tools found), or `-`.
    """
    found = inspect_file(
        file, kernel, threads, dynamic_shared_bytes, arch, jobs, predict, options=compile_options
    )
    if output.format == "dot":
        _emit_dot(output, found)
        return
    answers = _answers(found, fits, _limit(exact, exact_seconds), graph)
    output.emit(
        text=lambda: _text(found, answers),
        json=lambda: dump_rows(found.envelope, "kernels", _dicts(found, answers)),
        html=lambda: _html(file, found),
    )


def inspect_file(
    path: str,
    pattern: KernelPattern | None = None,
    block: BlockShape | None = None,
    dynamic_shared_bytes: int | None = None,
    arch: str | None = None,
    jobs: int | None = None,
    predict: bool | None = False,
    *,
    options: Sequence[str] = (),
) -> Inspected:
    """Load a file and inspect the kernels selected, on several processes where that pays.

    predict: whether to ask the predictor about cliffs; None: if there is little code. options: of
    the compiler, where the file is a source.
    Raises InputError, UsageError; UnsupportedError if no kernel selected is understood.
    """
    from regdem.api import inspect_all, inspect_jobs
    from regdem.cli.kernels import note_dynamic_shared, note_refused_launches
    from regdem.report.model import Asked

    gc.disable()  # values without cycles: the collector only costs, a quarter of the time
    module, head = load_file(path, arch, options)
    located = select(module, pattern)
    size = sum(entry.kernel.instruction_count for entry in located)
    if predict is None:
        predict = size <= PREDICTED_INSTRUCTIONS
        if not predict:
            note(f"regdem: gains are not predicted for {size:,} instructions; --predict does it")
    asked = Asked(block, arch, tuple(options))
    threads = block.threads if block else None
    work = inspect_jobs(located, threads, dynamic_shared_bytes, predict=predict, asked=asked)
    processes = min(len(work), jobs or os.cpu_count() or 1)
    progress = Progress("inspect")
    if processes > 1 and (size >= PARALLEL_INSTRUCTIONS or jobs):
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(processes) as executor:
            reports = inspect_all(work, executor, progress)
    else:
        reports = inspect_all(work, None, progress)
    progress.close()
    refused = [report.refusal for report in reports if report.refusal]
    if len(refused) == len(reports) and refused:
        refused[0].file = refused[0].file or path
        raise refused[0]
    for refusal in refused:
        note(f"regdem: not analysed: {refusal}")
    note_refused_launches(
        (entry.kernel, report.threads) for entry, report in zip(located, reports, strict=True)
    )
    if dynamic_shared_bytes is None:
        note_dynamic_shared(
            entry.kernel
            for entry, report in zip(located, reports, strict=True)
            if report.occupancy is not None and not entry.sidecar_dynamic_shared_bytes
        )
    return Inspected(reports, located, head)


def dump_rows(head: dict[str, Any], name: str, rows: Sequence[dict[str, Any]]) -> str:
    """The envelope with a list under `name`, one row a line: rows are long, and so are indents."""
    text = dump_json(head | {name: []}).rstrip()
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    assert text.endswith("[]\n}")
    return text[:-3] + "\n    " + ",\n    ".join(lines) + "\n  ]\n}\n"


def load_file(
    path: str, arch: str | None = None, options: Sequence[str] = ()
) -> tuple[Module, dict[str, Any]]:
    """The module, and the JSON envelope with the hash of the file (of all cubins of a folder).

    options: of the compiler, where the file is a source.
    """
    import hashlib

    from regdem.integrations.loading import load

    if path == "-":
        data = sys.stdin.buffer.read()
        module = load(data, arch, "<stdin>")
        return module, envelope({}, path=path, data=data)
    module = load(path, arch, options=options)
    for problem in module.problems:
        note(f"regdem: skipped: {problem}")
    if os.path.isdir(path):
        digest = hashlib.sha256()
        for image in module.images:
            digest.update(image.cubin.to_bytes())
        return module, envelope({"input": {"path": path, "sha256": digest.hexdigest()}})
    return module, envelope({}, path=path, data=read_input(path))


def select(module: Module, pattern: KernelPattern | None) -> list[Located]:
    """The kernels a pattern selects. Raises UsageError if there are none."""
    chosen = [
        entry
        for entry in module.located
        if pattern is None or pattern.matches(entry.kernel.name, entry.kernel.demangled_name)
    ]
    if chosen:
        return chosen
    names = ", ".join(entry.kernel.name for entry in module.located[:5]) or "none"
    wanted = f"no kernel matches {pattern.text!r}" if pattern else "no kernels"
    raise UsageError(wanted, file=module.path, hint=f"kernels here: {names}", code="no_kernel")


class Progress:
    """A line on stderr that counts kernels; silent unless stderr is a terminal."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.shown = False

    def __call__(self, done: int, total: int) -> None:
        if total > 1 and sys.stderr.isatty():
            self.shown = True
            bar = "#" * (30 * done // total)
            print(f"\r{self.verb} [{bar:<30}] {done}/{total}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


_Answers = list[dict[str, Any]]


def _limit(exact: bool, seconds: float) -> float | None:
    """The exact solver's limit; None, with a note, where it is not wanted or not installed."""
    from regdem.analysis.exact import HINT, is_available

    if not exact:
        return None
    if is_available():
        return seconds
    note(f"regdem: --exact needs OR-tools ({HINT}); the greedy answer follows")
    return None


def _answers(found: Inspected, registers: int | None, limit: float | None, graph: bool) -> _Answers:
    """Per kernel what was asked beyond the report: `fits`, `exact`, `graph`."""
    from regdem.report.fitting import exact, fits, interference_json

    answers: _Answers = []
    for entry, report in zip(found.located, found.reports, strict=True):
        answer: dict[str, Any] = {}
        if registers is not None:
            answer["fits"] = fits(entry.kernel, registers, limit)
        if limit is not None:
            answer["exact"] = exact(entry.kernel, limit)
        if graph:
            answer["graph"] = interference_json(entry.kernel) if report.analysis else None
        answers.append(answer)
    return answers


def _dicts(found: Inspected, answers: _Answers) -> list[dict[str, Any]]:
    return [
        report.to_dict() | answer for report, answer in zip(found.reports, answers, strict=True)
    ]


def _text(found: Inspected, answers: _Answers) -> str:
    from regdem.report.fitting import exact_text, fits_text
    from regdem.report.text import text_report

    parts: list[str] = []
    for report, answer in zip(found.reports, answers, strict=True):
        text = text_report(report)
        if answer.get("exact"):
            text += exact_text(answer["exact"])
        if answer.get("fits"):
            text += fits_text(answer["fits"])
        parts.append(text)
    return "\n".join(parts)


def _html(path: str, found: Inspected) -> str:
    from regdem.integrations.sass import sass_text
    from regdem.report.html import html_report

    texts: dict[int, dict[str, dict[int, str]]] = {}
    pages: list[dict[int, str]] = []
    for entry in found.located:
        key = id(entry.image)
        if key not in texts:
            texts[key] = sass_text(entry.image.cubin.to_bytes())
        pages.append(texts[key].get(entry.kernel.name, {}))
    kernels = [entry.kernel for entry in found.located]
    return html_report(path, kernels, found.reports, pages)


def _emit_dot(output: Output, found: Inspected) -> None:
    from regdem.report.fitting import interference_dot

    if len(found.located) != 1:
        raise UsageError(
            f"{len(found.located)} kernels: DOT shows one graph", hint="choose with --kernel"
        )
    output.emit(dot=lambda: interference_dot(found.located[0].kernel))
