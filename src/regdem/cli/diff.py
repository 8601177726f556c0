"""`regdem diff`: two builds of a kernel, what got worse, and the likely cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from regdem.cli.inspect import inspect_file
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
from regdem.cli.output import Output, dump_json, envelope, note
from regdem.errors import UsageError
from regdem.machine import BlockShape

if TYPE_CHECKING:
    from regdem.report.comparison import KernelDiff
    from regdem.report.model import KernelReport

EXIT_WORSE = 1


@click.command("diff", short_help="Two builds of a kernel.")
@click.argument("before")
@click.argument("after")
@kernel_option
@threads_option()
@optional_dynamic_shared_option
@arch_option()
@compile_options
@click.option(
    "--fail-on", type=click.Choice(["worse", "any"]), help="Exit with 1 if a kernel is worse."
)
@output_options("text", "json")
@debug_option
def command(
    *,
    before: str,
    after: str,
    kernel: KernelPattern | None,
    threads: BlockShape | None,
    dynamic_shared_bytes: int | None,
    arch: str | None,
    compile_options: tuple[str, ...],
    fail_on: str | None,
    output: Output,
) -> int:
    """What changed from BEFORE to AFTER, kernel by kernel.

    Kernels are paired by name; where each file has one (after --kernel), those two.
    """
    from regdem.report.comparison import compare, text_diff

    found = [
        inspect_file(path, kernel, threads, dynamic_shared_bytes, arch, options=compile_options)
        for path in (before, after)
    ]
    diffs = [compare(*pair) for pair in pairs(found[0].reports, found[1].reports, before)]
    head = envelope({}) | {
        "before": found[0].envelope["input"],
        "after": found[1].envelope["input"],
    }
    output.emit(
        text=lambda: "\n".join(text_diff(diff) for diff in diffs),
        json=lambda: dump_json(head | {"kernels": [diff.to_dict() for diff in diffs]}),
    )
    return EXIT_WORSE if _fails(diffs, fail_on) else 0


def pairs(
    before: list[KernelReport], after: list[KernelReport], path: str
) -> list[tuple[KernelReport, KernelReport]]:
    """Reports of the same kernel. Raises UsageError where no two go together."""
    if len(before) == len(after) == 1:
        return [(before[0], after[0])]
    later = {(report.name, report.arch): report for report in after}
    found = [
        (report, later[report.name, report.arch])
        for report in before
        if (report.name, report.arch) in later
    ]
    if not found:
        raise UsageError("the two files have no kernel in common", file=path)
    missing = len(before) + len(after) - 2 * len(found)
    if missing:
        note(f"regdem: {missing} kernels are in one file only")
    return found


def _fails(diffs: list[KernelDiff], fail_on: str | None) -> bool:
    if fail_on == "any":
        return any(diff.changes for diff in diffs)
    return fail_on == "worse" and any(diff.verdict == "worse" for diff in diffs)
