"""`regdem.check(original, rewritten)`: the check as a library function."""

from __future__ import annotations

from regdem.binary.kernel import Kernel
from regdem.check.findings import Verdict
from regdem.check.pair import check_alone, check_pair


def check(
    original: Kernel,
    rewritten: Kernel | None = None,
    *,
    threads: int | tuple[int, int, int] | None = None,
    dynamic_shared_bytes: int | None = None,
) -> Verdict:
    """`check_pair` with the kernel's own architecture; with one kernel, its hazards alone."""
    if rewritten is None:
        return check_alone(original, original.arch)
    return check_pair(
        original,
        rewritten,
        original.arch,
        threads=threads,
        dynamic_shared_bytes=dynamic_shared_bytes,
    )
