"""`regdem optimize`: every variant made, proved and predicted; the best is written."""

from __future__ import annotations

import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regdem.binary.demangle import demangle
from regdem.cli.kernels import block_threads, kernel_program, note_open_dynamic_shared
from regdem.cli.options import (
    KernelPattern,
    folder_option,
    grid_blocks_option,
    profile_option,
    rewrite_options,
    trip_count_option,
)
from regdem.cli.output import (
    Output,
    dump_json,
    envelope,
    input_entry,
    note,
    write_atomically,
)
from regdem.cli.rewrites import Left, Opened, counted, open_file
from regdem.errors import UnsupportedError, UsageError
from regdem.machine import BlockShape, block_shape

if TYPE_CHECKING:
    from regdem.binary import Cubin, Kernel
    from regdem.choice import KernelChoice
    from regdem.optimizer import Options
    from regdem.rewrite import Request
    from regdem.variants import Outcome

EPILOG = """
From a .cu or .ptx file, or a cubin with PTX (--ptx, embedded, or of the same name beside it), base
builds are made: the default, no register limit, each cliff's, the block size declared, NVIDIA's
spilling. From each: renumbering where the live values fit, demotion with and without recomputed
values, promotion of local spills, both. Each rewrite is proved against its base; bases are the
compiler's own. The best is written if it is predicted at least 2 % faster (1 % if it is the input
rewritten, no slower if only the order is new) and not much slower at the lower end of its interval,
else the input, with the reason. --all-variants keeps every variant.

Effort: quick makes builds one cliff down and up, and at most 8 rewrites; normal three each, and at
most 32 rewrites that may still win; exhaustive everything.
"""


@click.command("optimize", epilog=EPILOG, short_help="The best of all proved variants.")
@click.argument("file")
@rewrite_options
@click.option("--ptx", metavar="PTX", help="PTX of a cubin's kernels, for base builds.")
@click.option(
    "--effort", type=click.Choice(["quick", "normal", "exhaustive"]), default="normal",
    show_default=True, help="How much is tried.",
)  # fmt: skip
@click.option(
    "--budget-s", type=click.FloatRange(min=0), metavar="S",
    help="CPU seconds after which no more rewrites of a kernel are made; 0: no limit; default: "
    "90 (quick), 600 (normal) or no limit (exhaustive).",
)  # fmt: skip
@grid_blocks_option
@trip_count_option
@profile_option
@click.option(
    "--paper", is_flag=True, help="Also the RegDem paper's variants of the input, for comparison."
)
@click.option(
    "--no-reschedule", "reschedule", flag_value=False, default=True, type=bool,
    help="Never put instructions in a new order.",
)  # fmt: skip
@folder_option("--all-variants", "folder", help="Write every variant there.")
@click.option("--jobs", type=click.IntRange(1), metavar="J", help="Processes; default: CPUs.")
def command(
    *,
    file: str,
    out: str,
    kernel: KernelPattern | None,
    threads: BlockShape | None,
    dynamic_shared_bytes: int,
    shared_opt_in: bool,
    arch: str | None,
    compile_options: tuple[str, ...],
    ptx: str | None,
    effort: str,
    budget_s: float | None,
    grid_blocks: int | None,
    trip_count: float,
    profile_text: str | None,
    paper: bool,
    reschedule: bool,
    folder: str | None,
    jobs: int | None,
    report: Output,
) -> int:
    """Make, prove and predict variants of kernels of FILE, and write the best."""
    from regdem.optimizer import Options
    from regdem.predict.profile import read_profile
    from regdem.rewrite import Request

    opened = open_file(file, kernel, arch=arch, ptx=ptx, options=compile_options, with_ptx=True)
    count = jobs or os.cpu_count() or 1
    profile = None
    if profile_text is not None:
        name = opened.kernels[0][1].name if len(opened.kernels) == 1 else None
        profile = read_profile(profile_text, name)
        note(f"predictions are corrected by the profile {profile_text}")
    settings = Options(
        grid_blocks, trip_count, paper, effort,
        compilers=count, profile=profile, budget_s=budget_s,
    )  # fmt: skip
    with _executor(count) as executor:
        launch = partial(
            Request,
            dynamic_shared_bytes=dynamic_shared_bytes,
            shared_opt_in=shared_opt_in,
            reschedule=reschedule,
        )
        cubins, choices, left = _optimized(opened, threads, launch, settings, executor)
    if folder is not None:
        _write_variants(Path(folder), choices)
    written = opened.write(out, cubins)
    note_open_dynamic_shared(kernel for _, kernel in opened.kernels)
    body = {
        "kernels": [each.to_dict() for each in choices],
        **({"left": [each.to_dict() for each in left]} if left else {}),
        "output": input_entry(out, written),
    }
    report.emit(
        text=lambda: (
            "\n".join([*(summary(each) for each in choices), *(each.line() for each in left)])
            + f"\nwritten: {out}\n"
        ),
        json=lambda: dump_json(envelope(body, path=file, data=opened.data)),
    )
    return 0


def _optimized(
    opened: Opened,
    threads: BlockShape | None,
    launch: Callable[..., Request],
    settings: Options,
    executor: Executor | None,
) -> tuple[list[Cubin], list[KernelChoice], list[Left]]:
    """Cubin after cubin; of a file with code for several architectures, those that can be done.

    `launch(threads=...)` is the request for a kernel launched in such blocks.
    A kernel that is not understood, or whose block is not known, is left as it is; it ends the run
    if it was asked for by `--kernel`, or if there is no other.
    """
    from regdem.isa.table import supported_architectures
    from regdem.optimizer import optimize_cubin
    from regdem.rewrite import refuse_block

    cubins: list[Cubin] = []
    choices: list[KernelChoice] = []
    left: list[Left] = []
    known = [each.cubin.arch in supported_architectures() for each in opened.inputs]
    for place, each in enumerate(opened.inputs):
        kernels = [kernel for k, kernel in opened.kernels if k == place]
        cubins.append(each.cubin)
        if not kernels:
            continue
        if any(known) and not known[place]:
            note(f"{each.label}: left as it is, {each.cubin.arch} code can't be read yet")
            continue
        for remark in each.notes:
            note(remark)
        requests: list[Request] = []
        usable: list[Kernel] = []
        for kernel in kernels:
            try:
                block = threads or block_shape(block_threads(kernel, opened.path))
                refuse_block(kernel, block.threads)
                kernel_program(kernel)
            except (UnsupportedError, UsageError) as error:
                if opened.is_named:
                    raise
                left.append(Left(kernel.name, error))
                continue
            usable.append(kernel)
            requests.append(launch(threads=block))
        if not usable:
            continue
        cubins[-1], chosen = optimize_cubin(
            each.cubin, usable, requests, settings, executor, _progress,
            source=each.source, is_compiled=each.is_compiled,
        )  # fmt: skip
        choices += chosen
    if left and not choices:
        raise counted(left[0].error, left)
    return cubins, choices, left


def _executor(count: int) -> ProcessPoolExecutor | nullcontext[Executor | None]:
    return nullcontext(None) if count == 1 else ProcessPoolExecutor(count)


def _progress(done: int, total: int, outcome: Outcome) -> None:
    print(f"[{done}/{total}] {outcome.spec.name}: {outcome.status}", file=sys.stderr, flush=True)


def _write_variants(folder: Path, choices: list[KernelChoice]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    taken: dict[str, str] = {}
    for choice in choices:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", choice.name)[:80]
        while taken.setdefault(name, choice.name) != choice.name:
            name += "_"  # another kernel's name begins alike
        for outcome in choice.outcomes:
            if outcome.is_usable:
                path = folder / f"{name}.{outcome.spec.name}.cubin"
                write_atomically(path, outcome.cubin().to_bytes())


_FOLDED = {
    "same": "the same code as another",
    "nothing_to_do": "would change nothing for the better",
    "skipped": "could not win",
}
"""Outcomes of which the number is enough."""
_NOT_TRIED = "beyond the "
_FOLLOWS = " was not made: "


def _folded(outcome: Outcome) -> str | None:
    """What is said of all such outcomes together; None of one that is told alone.

    A limit that kept variants from being tried is named: more of it may find a better one.
    """
    words = _FOLDED.get(outcome.status)
    if words is None or outcome.status != "skipped":
        return words
    if outcome.reason.startswith(_NOT_TRIED):
        return f"not tried, {outcome.reason}"
    if _FOLLOWS in outcome.reason:
        return "not tried, as the variant they start from or an easier one was not made"
    return words


def summary(choice: KernelChoice) -> str:
    """The choice first, then all variants, best first."""
    before = choice.before
    usable = [o for o in choice.outcomes if o.is_usable]
    width = max(len(o.spec.name) for o in choice.outcomes) if choice.outcomes else 7
    width = max(width, 7)
    kept = "the input, unchanged" if choice.reference == "input" else "the default build"
    lines = [
        f"{demangle(choice.name)}  ({choice.threads} threads per block)",
        f"  chosen: {choice.chosen.spec.name if choice.chosen else kept} ({choice.reason})",
        f"  {'variant':<{width}} {'regs':>4} {'warps':>5} {'shared B':>8}  predicted speed-up",
        f"  {choice.reference:<{width}} {before.registers_per_thread:>4} "
        f"{before.active_warps:>5} {before.static_shared_bytes:>8}  "
        f"1.00, bound by {choice.prediction.bound_by}",
    ]
    for outcome in sorted(usable, key=lambda o: -choice.gain(o)[0]):
        assert outcome.state is not None
        assert outcome.prediction is not None
        after = outcome.state
        lines.append(
            f"  {outcome.spec.name:<{width}} {after.registers_per_thread:>4} "
            f"{after.active_warps:>5} {after.static_shared_bytes:>8}  "
            f"{_gain(choice.gain(outcome))}, bound by {outcome.prediction.bound_by}"
            + ("  (nvcc)" if outcome.spec.kind == "build" else "")
        )
    lines.extend(
        f"  {o.spec.name:<{width}} not made: {o.reason}"
        for o in choice.outcomes
        if not o.is_usable and o.status not in _FOLDED
    )
    folded = Counter(words for o in choice.outcomes if (words := _folded(o)) is not None)
    lines += [f"  {folded[words]} more: {words}" for words in _FOLDED.values() if words in folded]
    others = sorted(words for words in folded if words not in _FOLDED.values())
    lines += [f"  {folded[words]} more: {words}" for words in others]
    return "\n".join([*lines, *_checks(choice)])


def _gain(gain: tuple[float, float, float]) -> str:
    typical, least, most = gain
    return f"{typical:.2f} ({least:.2f} to {most:.2f})" if math.isfinite(typical) else "fits"


def _checks(choice: KernelChoice) -> list[str]:
    chosen = choice.chosen
    if chosen is None:
        return []
    if chosen.done is None:
        return [f"  {chosen.spec.name} is nvcc's own build, and trusted as such"]
    checks = chosen.done.verdict.checks
    lines = ["  checked: " + ", ".join(f"{name} {word}" for name, word in checks.items())]
    lines += [f"    for {assumption}" for assumption in chosen.done.verdict.assumptions]
    if chosen.spec.base != choice.reference:
        lines.append(f"  against {chosen.spec.base}, which is nvcc's own build and trusted as such")
    return lines
