"""`regdem check`: is a rewritten file equal to its original, and free of hazards?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from regdem.cli.kernels import cubin_kernels, declared_threads
from regdem.cli.options import (
    KernelPattern,
    debug_option,
    dynamic_shared_option,
    kernel_option,
    output_options,
    threads_option,
)
from regdem.cli.output import Output, dump_json, envelope, input_entry
from regdem.errors import UsageError
from regdem.machine import BlockShape

if TYPE_CHECKING:
    from regdem.check import Verdict

EXIT_REJECTED = 1
_BLOCK_SIZES = (1024, 768, 512, 384, 256, 192, 128, 96, 64, 32)

EPILOG = """
Dataflow: every operand of every instruction holds the original's value on every path.
Hazards: every dependence is met by stalls or scoreboards on every path.
Layout: slots lie in the block's own memory, never share a byte, and the file's sizes cover them.
Nothing is taken from the tool that made the rewrite; everything is read from the bytes.
"""


@click.command("check", epilog=EPILOG, short_help="Prove a rewrite, or look for hazards.")
@click.argument("original")
@click.argument("rewritten", required=False)
@kernel_option
@threads_option()
@dynamic_shared_option
@output_options("text", "json")
@debug_option
def command(
    *,
    original: str,
    rewritten: str | None,
    kernel: KernelPattern | None,
    threads: BlockShape | None,
    dynamic_shared_bytes: int,
    output: Output,
) -> int:
    """Check that every kernel of REWRITTEN does what the kernel of its name in ORIGINAL does.

    With one file: hazards of its kernels only. Exit status 1 if anything is found.
    """
    from regdem.check import check_alone, check_pair

    cubin, kernels, data = cubin_kernels(original, kernel)
    body: dict[str, Any] = {}
    if rewritten is None:
        verdicts = [check_alone(each, cubin.arch) for each in kernels]
    else:
        other, others, other_data = cubin_kernels(rewritten, kernel)
        by_name = {each.name: each for each in others}
        if other.arch != cubin.arch:
            raise UsageError(
                f"it is {other.arch} code, the original is {cubin.arch}",
                file=rewritten,
                hint="only code for one architecture can be compared",
            )
        missing = [each.name for each in kernels if each.name not in by_name]
        if missing or len(others) != len(kernels):
            name = missing[0] if missing else None
            raise UsageError(
                "the two files don't hold the same kernels", file=rewritten, kernel=name
            )
        shape = _shape(threads)
        dynamic = dynamic_shared_bytes if _given("dynamic_shared_bytes") else None
        verdicts: list[Verdict] = []
        for each in kernels:
            # Without a block size the largest one that the proof holds for is found, and said.
            sizes = [shape] if shape or declared_threads(each) else [None, *_BLOCK_SIZES]
            tried = (
                check_pair(
                    each,
                    by_name[each.name],
                    cubin.arch,
                    threads=size,
                    dynamic_shared_bytes=dynamic,
                )
                for size in sizes
            )
            first = next(tried)
            proved = first if not first.findings else None
            verdicts.append(proved or next((v for v in tried if not v.findings), first))
        body["rewritten"] = input_entry(rewritten, other_data)
    rejected = any(verdict.findings for verdict in verdicts)
    output.emit(
        text=lambda: _text(verdicts),
        json=lambda: dump_json(envelope(body | _body(verdicts), path=original, data=data)),
    )
    return EXIT_REJECTED if rejected else 0


def _given(parameter: str) -> bool:
    """Whether an option was given, rather than left at its default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is not click.core.ParameterSource.DEFAULT


def _shape(threads: BlockShape | None) -> int | tuple[int, int, int] | None:
    """A plain count stands for blocks of any shape; X,Y,Z for that shape."""
    if threads is None:
        return None
    if threads.y == 1 and threads.z == 1:
        return threads.x
    return threads.x, threads.y, threads.z


def _body(verdicts: list[Verdict]) -> dict[str, Any]:
    findings = [finding.to_dict() for verdict in verdicts for finding in verdict.findings]
    return {
        "verdict": "rejected" if findings else "equivalent",
        "findings": findings,
        "kernels": [
            {
                "name": verdict.kernel,
                "verdict": verdict.verdict,
                "checks": verdict.checks,
                "assumptions": list(verdict.assumptions),
            }
            for verdict in verdicts
        ],
    }


def _text(verdicts: list[Verdict]) -> str:
    lines: list[str] = []
    for verdict in verdicts:
        checks = ", ".join(f"{name} {result}" for name, result in verdict.checks.items())
        alone = "dataflow" not in verdict.checks and not verdict.findings
        said = "no hazards found" if alone else verdict.verdict
        lines.append(f"{verdict.kernel}: {said} ({checks})")
        lines.extend(f"  for {assumption}" for assumption in verdict.assumptions)
        for finding in verdict.findings:
            place = f"0x{finding.offset:04x} " if finding.offset >= 0 else ""
            lines.append(f"  {place}{finding.kind}: {finding.message}")
    return "\n".join(lines) + "\n"
