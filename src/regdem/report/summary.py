"""A short HTML fragment of a report, for notebooks."""

from __future__ import annotations

from html import escape

from regdem.report.model import KernelReport
from regdem.report.text import text_report


def html_summary(report: KernelReport) -> str:
    """The text report as one HTML element."""
    return f"<pre>{escape(text_report(report))}</pre>"
