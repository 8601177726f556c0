"""`regdem check`: is a rewritten file equal to its original, and free of hazards?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from regdem.cli.kernels import declared_threads, file_kernels, understood
from regdem.cli.options import (
    KernelPattern,
    compile_options,
    debug_option,
    dynamic_shared_option,
    is_given,
    kernel_option,
    output_options,
    threads_option,
)
from regdem.cli.output import Output, dump_json, envelope
from regdem.errors import UsageError
from regdem.machine import BlockShape

if TYPE_CHECKING:
    from regdem.api import Located
    from regdem.binary import Kernel
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
@compile_options
@output_options("text", "json")
@debug_option
def command(
    *,
    original: str,
    rewritten: str | None,
    kernel: KernelPattern | None,
    threads: BlockShape | None,
    dynamic_shared_bytes: int,
    compile_options: tuple[str, ...],
    output: Output,
) -> int:
    """Check that every kernel of REWRITTEN does what the kernel of its name in ORIGINAL does.

    Files: cubins, or whatever else holds device code. Kernels go together by name, architecture and
    order. With one file: hazards of its kernels only. Exit status 1 if anything is found.
    """
    found, head = file_kernels(original, kernel, compile_options)
    body: dict[str, Any] = {}
    if rewritten is None:
        from regdem.check import check_alone
        from regdem.isa.table import require_architecture

        kernels = [each.kernel for each in understood(found, original)]
        require_architecture(kernels[0].arch, kernels[0].name)
        verdicts = [check_alone(each, each.arch) for each in kernels]
    else:
        others, body["rewritten"] = file_kernels(rewritten, kernel, compile_options)
        both = pairs(found, others, rewritten)
        kernels = [each for each, _ in both]
        shape = _shape(threads)
        dynamic = dynamic_shared_bytes if is_given("dynamic_shared_bytes") else None
        verdicts = [_verdict(each, other, shape, dynamic) for each, other in both]
    rejected = any(verdict.findings for verdict in verdicts)
    output.emit(
        text=lambda: _text(verdicts, kernels),
        json=lambda: dump_json(envelope({"input": head} | body | _body(verdicts, kernels))),
    )
    return EXIT_REJECTED if rejected else 0


def pairs(
    found: Sequence[Located], others: Sequence[Located], path: str
) -> list[tuple[Kernel, Kernel]]:
    """Kernels of the same name, architecture and turn in the two files, those that can be checked.

    Code of other architectures must be the same. Raises UsageError where a kernel of one file is
    not in the other, UnsupportedError where none can be checked.
    """
    from regdem.isa.table import require_architecture

    archs = [{each.kernel.arch for each in side} for side in (found, others)]
    if archs[0] != archs[1]:
        one, other = (", ".join(sorted(each)) for each in archs)
        raise UsageError(
            f"it is {other} code, the original is {one}",
            file=path,
            hint="only code for the same architectures can be compared",
        )
    by_key = {key: each.kernel for key, each in _keyed(others)}
    missing = [each.kernel for key, each in _keyed(found) if key not in by_key]
    if missing or len(others) != len(found):
        left = {each.kernel.name for each in others} - {each.kernel.name for each in found}
        name = missing[0].name if missing else next(iter(sorted(left)), None)
        raise UsageError("the two files don't hold the same kernels", file=path, kernel=name)
    partner = {id(each.kernel): by_key[key] for key, each in _keyed(found)}
    known = understood(found, path)
    require_architecture(known[0].kernel.arch, known[0].kernel.name)
    checked = {id(each.kernel) for each in known}
    for each in found:
        same = each.kernel.code == partner[id(each.kernel)].code
        if id(each.kernel) not in checked and not same:
            require_architecture(each.kernel.arch, each.kernel.name)
    return [(each.kernel, partner[id(each.kernel)]) for each in known]


def unchanged(original: Kernel, rewritten: Kernel) -> bool:
    """Whether all that the file says of a kernel is the same, byte for byte, whatever numbers the
    two files count their symbols by.
    """
    from regdem.check import portable

    return portable(original) == portable(rewritten)


def _keyed(located: Sequence[Located]) -> Iterator[tuple[tuple[str, str, int], Located]]:
    """(name, architecture, how many of these before) of each."""
    seen: Counter[tuple[str, str]] = Counter()
    for each in located:
        key = each.kernel.name, each.kernel.arch
        yield (*key, seen[key]), each
        seen[key] += 1


def _verdict(
    original: Kernel,
    rewritten: Kernel,
    shape: int | tuple[int, int, int] | None,
    dynamic: int | None,
) -> Verdict:
    """The verdict for the block given or declared, else for the largest that can be proved."""
    from regdem.check import Verdict, check_pair

    if unchanged(original, rewritten):
        return Verdict(original.name, (), {})
    sizes = [shape] if shape or declared_threads(original) else [None, *_BLOCK_SIZES]
    tried = (
        check_pair(original, rewritten, original.arch, threads=size, dynamic_shared_bytes=dynamic)
        for size in sizes
    )
    first = next(tried)
    if not first.findings:
        return first
    return next((verdict for verdict in tried if not verdict.findings), first)


def _shape(threads: BlockShape | None) -> int | tuple[int, int, int] | None:
    """A plain count stands for blocks of any shape; X,Y,Z for that shape."""
    if threads is None:
        return None
    if threads.y == 1 and threads.z == 1:
        return threads.x
    return threads.x, threads.y, threads.z


def _body(verdicts: list[Verdict], kernels: Sequence[Kernel]) -> dict[str, Any]:
    findings = [finding.to_dict() for verdict in verdicts for finding in verdict.findings]
    return {
        "verdict": "rejected" if findings else "equivalent",
        "findings": findings,
        "kernels": [
            {
                "name": verdict.kernel,
                "arch": kernel.arch,
                "verdict": verdict.verdict,
                "checks": verdict.checks,
                "assumptions": list(verdict.assumptions),
            }
            for verdict, kernel in zip(verdicts, kernels, strict=True)
        ],
    }


def _text(verdicts: list[Verdict], kernels: Sequence[Kernel]) -> str:
    lines: list[str] = []
    for verdict, kernel in zip(verdicts, kernels, strict=True):
        checks = ", ".join(f"{name} {result}" for name, result in verdict.checks.items())
        alone = "dataflow" not in verdict.checks and not verdict.findings
        said = "no hazards found" if alone else verdict.verdict
        if not verdict.checks:
            said, checks = "equivalent", "unchanged"
        lines.append(f"{kernel.demangled_name}: {said} ({checks})")
        lines.extend(f"  for {assumption}" for assumption in verdict.assumptions)
        for finding in verdict.findings:
            place = f"0x{finding.offset:04x} " if finding.offset >= 0 else ""
            lines.append(f"  {place}{finding.kind}: {finding.message}")
    return "\n".join(lines) + "\n"
