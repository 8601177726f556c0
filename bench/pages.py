"""Sections of result pages, written by the scripts that measured them.

A section begins at a line `## HEADING` and ends before the next line that begins with `## `.
"""

from __future__ import annotations

from pathlib import Path


def replace_section(page: Path, heading: str, body: str) -> None:
    """Replaces the text of a section, or adds the section at the end. Raises OSError."""
    lines = page.read_text("utf-8").splitlines()
    title = f"## {heading}"
    new = [title, "", *body.strip().splitlines(), ""]
    if title not in lines:
        page.write_text("\n".join([*lines, "", *new]).rstrip() + "\n", "utf-8")
        return
    first = lines.index(title)
    last = next((k for k in range(first + 1, len(lines)) if lines[k].startswith("## ")), len(lines))
    page.write_text("\n".join([*lines[:first], *new, *lines[last:]]).rstrip() + "\n", "utf-8")
