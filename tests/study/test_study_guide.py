"""The lines printed in the guide are the command's own."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from studies import EXAMPLES, exact

from regdem.cli.main import run

GUIDE = EXAMPLES.parent / "docs" / "guide" / "study.md"


@pytest.mark.tools
@exact
def test_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = [line[4:] for line in GUIDE.read_text().splitlines() if line.startswith("    ")]
    first = next(k for k, line in enumerate(shown) if line.startswith("$ "))
    after = shown[first + 1 :]
    end = next(k for k, line in enumerate(after) if line.startswith("regdem "))
    words = shlex.split(shown[first].removeprefix("$ regdem "))
    words[words.index("--out") + 1] = str(tmp_path / "study")
    monkeypatch.chdir(EXAMPLES.parent)
    assert run(words) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in after[:end] if line and line != "..."]
    assert len(lines) > 10
    assert [line for line in lines if line not in printed] == []
