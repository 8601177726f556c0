"""Findings for machines that show them beside code: SARIF 2.1.0 and GitHub workflow commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regdem.report.gate import Finding
from regdem.version import __version__

_RULES = {
    "gate": "A condition of the gate is broken",
    "worse": "A kernel got worse than its baseline",
    "better": "A kernel got better than its baseline",
    "new": "A kernel is not in the baseline",
    "gone": "A kernel of the baseline is no longer in the file",
}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(path: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """A SARIF log with one run."""
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "regdem",
                        "version": __version__,
                        "rules": [
                            {"id": rule, "shortDescription": {"text": text}}
                            for rule, text in _RULES.items()
                        ],
                    }
                },
                "results": [_result(path, finding) for finding in findings],
            }
        ],
    }


def _result(path: str, finding: Finding) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": path}}
    if finding.source is not None:
        location = {
            "artifactLocation": {"uri": finding.source.file},
            "region": {"startLine": finding.source.line},
        }
    return {
        "ruleId": finding.rule,
        "level": finding.level,
        "message": {"text": finding.message},
        "locations": [
            {
                "physicalLocation": location,
                "logicalLocations": [{"name": finding.kernel, "kind": "function"}],
            }
        ],
        "partialFingerprints": {"regdem/v1": f"{finding.kernel}:{finding.rule}:{finding.metric}"},
    }


def github(path: str, findings: Sequence[Finding]) -> str:
    """Workflow commands, one a line: `::error file=...,line=...,title=...::message`."""
    lines: list[str] = []
    for finding in findings:
        command = "error" if finding.level == "error" else "notice"
        place = f"file={_property(path)}"
        if finding.source is not None:
            place = f"file={_property(finding.source.file)},line={finding.source.line}"
        lines.append(f"::{command} {place},title=regdem {finding.rule}::{_data(finding.message)}")
    return "".join(line + "\n" for line in lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
