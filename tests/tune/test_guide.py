"""The guide shows the example's own launch file, and a launch function that works."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from regdem.cli.schemas import schema
from regdem.tune import open_launch
from regdem.tune.initial import KINDS

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide" / "tune.md").read_text()


def block_after(heading: str, first: str) -> str:
    """The indented block of a section that begins with a line."""
    section = GUIDE.split(f"## {heading}\n", 1)[1]
    start = section.index(f"    {first}")
    lines: list[str] = []
    for line in section[start:].splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line)
    return textwrap.dedent("\n".join(lines))


def test_the_launch_file_is_the_example_s() -> None:
    shown = json.loads(block_after("The launch file", "{"))
    example = ROOT / "examples" / "unroll" / "variance.launch.json"
    assert shown == json.loads(example.read_text())


def test_every_initialiser_is_explained() -> None:
    for kind in KINDS:
        assert f'"{kind}"' in GUIDE
    assert set(schema("launch")["properties"]) <= {
        word.strip("`, ") for line in GUIDE.splitlines() for word in line.split("`")
    }


def test_the_launch_function_works(tmp_path: Path) -> None:
    path = tmp_path / "step.py"
    path.write_text(block_after("Launching from Python", "import numpy"))
    problem = open_launch(f"{path}:step").problem(0)
    assert [buffer.role for buffer in problem.buffers] == ["in", "inout", "out"]
    assert problem.blocks == (1 << 22) // 256
