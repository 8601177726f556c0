"""`regdem optimize`: every variant made, proved and predicted; the best is written."""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regdem.cli.kernels import block_threads, cubin_kernels
from regdem.cli.options import (
    KernelPattern,
    artifact_option,
    debug_option,
    dynamic_shared_option,
    format_option,
    kernel_option,
    threads_option,
)
from regdem.cli.output import Output, dump_json, envelope, input_entry, write_atomically
from regdem.machine import BlockShape, block_shape

if TYPE_CHECKING:
    from regdem.binary import Cubin
    from regdem.optimizer import KernelChoice
    from regdem.variants import Outcome

EPILOG = """
At each occupancy step above the present one: renumbering where the live values fit, demotion with
and without recomputed values, promotion of local spills, both. Each variant is proved; the best is
written if it is predicted at least 2 % faster and not slower under any assumption about locality,
else the input unchanged, with the reason. --all-variants keeps every proved variant for measuring.
"""


@click.command("optimize", epilog=EPILOG, short_help="The best of all proved variants.")
@click.argument("file")
@artifact_option()
@kernel_option
@threads_option()
@dynamic_shared_option
@click.option("--grid-blocks", type=int, metavar="G", help="Blocks of the launch, for waves.")
@click.option(
    "--trip-count", type=float, default=10.0, show_default=True, metavar="T",
    help="Executions per loop level.",
)  # fmt: skip
@click.option(
    "--paper", is_flag=True, help="Also the RegDem paper's register orders, for comparison."
)
@click.option("--all-variants", "folder", metavar="DIR", help="Write every proved variant there.")
@click.option("--jobs", type=click.IntRange(1), metavar="J", help="Processes; default: CPUs.")
@format_option("text", "json")
@debug_option
def command(
    *,
    file: str,
    out: str,
    kernel: KernelPattern | None,
    threads: BlockShape | None,
    dynamic_shared_bytes: int,
    grid_blocks: int | None,
    trip_count: float,
    paper: bool,
    folder: str | None,
    jobs: int | None,
    report: Output,
) -> int:
    """Make, prove and predict variants of kernels of FILE, and write the best."""
    from regdem.optimizer import Options, optimize_cubin
    from regdem.rewrite import Request

    cubin, kernels, data = cubin_kernels(file, kernel)
    requests = [
        Request(
            threads=threads or block_shape(block_threads(each, file)),
            dynamic_shared_bytes=dynamic_shared_bytes,
        )
        for each in kernels
    ]
    count = jobs or os.cpu_count() or 1
    with _executor(count) as executor:
        new, choices = optimize_cubin(
            cubin,
            kernels,
            requests,
            Options(grid_blocks, trip_count, paper),
            executor,
            _progress,
        )
    if folder is not None:
        _write_variants(Path(folder), cubin, choices)
    written = new.to_bytes() if any(each.chosen for each in choices) else data
    write_atomically(out, written)
    body = {
        "kernels": [each.to_dict() for each in choices],
        "output": input_entry(out, written),
    }
    report.emit(
        text=lambda: "\n".join(summary(each) for each in choices) + f"\nwritten: {out}\n",
        json=lambda: dump_json(envelope(body, path=file, data=data)),
    )
    return 0


def _executor(count: int) -> ProcessPoolExecutor | nullcontext[Executor | None]:
    return nullcontext(None) if count == 1 else ProcessPoolExecutor(count)


def _progress(done: int, total: int, outcome: Outcome) -> None:
    print(f"[{done}/{total}] {outcome.spec.name}: {outcome.status}", file=sys.stderr, flush=True)


def _write_variants(folder: Path, cubin: Cubin, choices: list[KernelChoice]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for choice in choices:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", choice.name)[:80]
        for outcome in choice.outcomes:
            if outcome.done is not None:
                new = cubin.with_kernel(choice.name, outcome.done.rewrite.edit)
                write_atomically(folder / f"{name}.{outcome.spec.name}.cubin", new.to_bytes())


def summary(choice: KernelChoice) -> str:
    """The choice first, then all variants, best first."""
    before = choice.before
    lines = [
        f"{choice.name}  ({choice.threads} threads per block)",
        f"  chosen: {choice.chosen.spec.name if choice.chosen else 'the input, unchanged'} "
        f"({choice.reason})",
        f"  {'variant':<22} {'regs':>4} {'warps':>5} {'shared B':>8}  predicted speed-up",
        f"  {'input':<22} {before.registers_per_thread:>4} {before.active_warps:>5} "
        f"{before.static_shared_bytes:>8}  1.00, bound by {choice.prediction.bound_by}",
    ]
    proved = [o for o in choice.outcomes if o.is_proved]
    for outcome in sorted(proved, key=lambda o: -choice.gain(o)[0]):
        assert outcome.done is not None
        assert outcome.prediction is not None
        after = outcome.done.after
        typical, least, most = choice.gain(outcome)
        lines.append(
            f"  {outcome.spec.name:<22} {after.registers_per_thread:>4} {after.active_warps:>5} "
            f"{after.static_shared_bytes:>8}  {typical:.2f} ({least:.2f} to {most:.2f}), bound by "
            f"{outcome.prediction.bound_by}"
        )
    lines.extend(
        f"  {o.spec.name:<22} not made: {o.reason}" for o in choice.outcomes if not o.is_proved
    )
    if choice.chosen is not None and choice.chosen.done is not None:
        checks = choice.chosen.done.verdict.checks
        lines.append("  checked: " + ", ".join(f"{name} {word}" for name, word in checks.items()))
    return "\n".join(lines)
