"""`regdem gate`: fail a build whose kernels break conditions or fall behind a baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
from regdem.cli.output import Output, dump_json, note, read_input, write_atomically
from regdem.cli.targets import check_file_target
from regdem.errors import InputError, UsageError
from regdem.machine import BlockShape

EXIT_VIOLATED = 1

EPILOG = """
Metrics: registers, max_live, registers_needed, occupancy_pct, active_blocks, active_warps,
spill_bytes, spill_store_bytes, spill_load_bytes, loop_spill_bytes, shared_spill_bytes,
loop_shared_spill_bytes, array_accesses, local_bytes, static_shared_bytes, barriers, instructions,
loops.
"""


@click.command("gate", epilog=EPILOG, short_help="Conditions that a build must keep.")
@click.argument("file")
@click.argument("expression", required=False)
@kernel_option
@threads_option()
@optional_dynamic_shared_option
@arch_option()
@compile_options
@click.option("--baseline", metavar="JSON", help="Metrics of an earlier run; none may get worse.")
@click.option("--update-baseline", is_flag=True, help="Write this run's metrics to --baseline.")
@click.option("--strict", is_flag=True, help="An unrecorded improvement fails, too.")
@output_options("text", "json", "sarif", "github")
@debug_option
def command(
    *,
    file: str,
    expression: str | None,
    kernel: KernelPattern | None,
    threads: BlockShape | None,
    dynamic_shared_bytes: int | None,
    arch: str | None,
    compile_options: tuple[str, ...],
    baseline: str | None,
    update_baseline: bool,
    strict: bool,
    output: Output,
) -> int:
    """Check EXPRESSION, such as "registers<=64, spill_bytes==0", on every kernel of FILE.

    Exit status 1 if a kernel breaks it, or is worse than the baseline.
    """
    from regdem.report.annotations import github, sarif
    from regdem.report.gate import (
        baseline_of,
        check_baseline,
        check_conditions,
        parse_conditions,
        vanished,
    )

    if expression is not None and not expression.strip():
        raise UsageError("the expression is empty", hint='write: "registers<=64, spill_bytes==0"')
    if expression is None and baseline is None:
        raise UsageError("nothing to check", hint="give an EXPRESSION or --baseline")
    if update_baseline and baseline is None:
        raise UsageError("--update-baseline needs --baseline")
    if update_baseline and baseline is not None:
        check_file_target(baseline)
    conditions = parse_conditions(expression) if expression is not None else ()
    old = _read_baseline(baseline) if baseline and not update_baseline else None
    found = inspect_file(file, kernel, threads, dynamic_shared_bytes, arch, options=compile_options)
    findings = check_conditions(found.reports, conditions)
    if old is not None:
        findings += check_baseline(found.reports, old, strict=strict)
        findings += vanished(found.reports, old, kernel.matches if kernel else None, strict=strict)
    errors = sum(finding.level == "error" for finding in findings)
    failed = errors > 0
    output.emit(
        text=lambda: (
            "".join(f"{finding.level}: {finding.message}\n" for finding in findings)
            + _summary(errors, len(found.reports))
        ),
        json=lambda: dump_json(
            found.envelope
            | {
                "passed": not failed,
                "kernels_checked": len(found.reports),
                "findings": [finding.to_dict() for finding in findings],
            }
        ),
        sarif=lambda: dump_json(sarif(file, findings)),
        github=lambda: github(file, findings),
    )
    if update_baseline and baseline is not None:
        write_atomically(baseline, dump_json(baseline_of(found.reports)))
        note(f"regdem: baseline written: {baseline}")
    return EXIT_VIOLATED if failed else 0


def _summary(errors: int, checked: int) -> str:
    """The last line: kernels that are gone count as errors, and are not among those checked."""
    kernels = f"{checked} kernel{'s' if checked != 1 else ''}"
    if not errors:
        return f"passed: {kernels}\n"
    return f"failed: {errors} error{'s' if errors != 1 else ''}; {kernels} checked\n"


def _read_baseline(path: str) -> dict[str, Any]:
    if not Path(path).exists():
        raise InputError("no such baseline", file=path, hint="make it with --update-baseline")
    try:
        value: Any = json.loads(read_input(path))
    except (ValueError, RecursionError) as error:
        raise InputError("the baseline is no JSON", file=path) from error
    if not isinstance(value, dict):
        raise InputError("the baseline is no JSON object", file=path)
    return value  # pyright: ignore[reportUnknownVariableType]
