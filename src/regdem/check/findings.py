"""What the checker answers: findings and a verdict.

A finding is a reason why a rewritten kernel may not be used. Its `kind` is a stable short word;
the message is one sentence for a person. A verdict is "equivalent" only when no check found
anything; a check that could not be made is a finding too, never a silent pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Check = Literal["dataflow", "hazards", "layout"]

PASSED: dict[Check, str] = {"dataflow": "proved", "hazards": "clean", "layout": "clean"}


@dataclass(frozen=True, order=True)
class Finding:
    """One reason for rejection.

    `offset` is in bytes from the start of the kernel's code section; -1 where the finding has no
    place in the code. The offset is that of the rewritten code, except for an instruction that
    exists in the original only (the message says so).
    """

    kind: str
    kernel: str
    offset: int
    message: str

    def to_dict(self) -> dict[str, object]:
        """The finding as it stands in JSON output."""
        return {
            "kind": self.kind,
            "kernel": self.kernel,
            "offset": None if self.offset < 0 else self.offset,
            "message": self.message,
        }


@dataclass(frozen=True)
class Verdict:
    """The answer of `check_pair` for one kernel.

    `checks` has one word per check made: "proved" or "clean" where it passed, "failed" where it
    has findings. `assumptions` lists in words what the proof rests on beyond the bytes, such as
    the block size.
    """

    kernel: str
    findings: tuple[Finding, ...]
    checks: dict[str, str]
    assumptions: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> Literal["equivalent", "rejected"]:
        """ "equivalent" when every check passed, else "rejected"."""
        return "rejected" if self.findings else "equivalent"

    def to_dict(self) -> dict[str, object]:
        """The verdict as it stands in JSON output."""
        return {
            "kernel": self.kernel,
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "checks": dict(self.checks),
            "assumptions": list(self.assumptions),
        }


def verdict_of(
    kernel: str, results: dict[Check, Iterable[Finding]], assumptions: Iterable[str] = ()
) -> Verdict:
    """Join the findings of the checks that were made into one verdict."""
    findings: list[Finding] = []
    checks: dict[str, str] = {}
    for check, found in results.items():
        listed = list(found)
        checks[check] = "failed" if listed else PASSED[check]
        findings.extend(listed)
    return Verdict(kernel, tuple(findings), checks, tuple(assumptions))
