"""Commands that reports name: for the launch and the file that were asked about."""

from __future__ import annotations

from shlex import quote

from regdem.report.model import KernelReport


def launch_options(report: KernelReport) -> str:
    """What the advice holds for as options of a command, as it was said; a blank in front."""
    asked = report.asked
    words = f" --threads {asked.block or report.threads or 'T'}"
    if report.occupancy is not None and report.occupancy.launch.dynamic_shared_bytes:
        words += f" --dynamic-shared-bytes {report.occupancy.launch.dynamic_shared_bytes}"
    if asked.arch is not None:
        words += f" --arch {asked.arch}"
    for option in asked.compile_options:
        words += f" {quote('--compile-option=' + option)}"
    return words
