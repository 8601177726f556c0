"""The answers printed in the guide are the command's own."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from regdem.cli.main import run

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "occupancy.md"


def examples() -> list[tuple[str, list[str]]]:
    """Commands in the guide (`    $ regdem ...`) with the lines shown below them."""
    found: list[tuple[str, list[str]]] = []
    for line in GUIDE.read_text().splitlines():
        text = line[4:]
        if line.startswith("    $ regdem "):
            found.append((text.removeprefix("$ regdem "), []))
        elif line.startswith("    ") and found:
            found[-1][1].extend([] if text == "..." else [text])
        elif line and found and found[-1][0]:
            found.append(("", []))
    return [(command, lines) for command, lines in found if command]


@pytest.mark.parametrize(("command", "lines"), examples(), ids=lambda value: str(value)[:50])
def test_guide(command: str, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert lines
    assert run(shlex.split(command)) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line and line not in printed] == []
