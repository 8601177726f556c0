"""How the study tests ask for studies, and which compiler their exact figures are of."""

from __future__ import annotations

from pathlib import Path

import pytest

from regdem.integrations.toolkit import find_tool, tool_version
from regdem.machine import block_shape
from regdem.study.run import StudyOptions

DATA = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COMPILER = "13.0.88"


def options(source: Path, threads: int, *flags: str) -> StudyOptions:
    """What a study of a fixture is asked."""
    return StudyOptions(
        source, "sm_90", threads=block_shape(threads), flags=tuple(flags), workers=2
    )


def _version() -> str | None:
    nvcc = find_tool("nvcc")
    return tool_version(nvcc) if nvcc else None


exact = pytest.mark.skipif(
    _version() != COMPILER, reason=f"register counts are those of nvcc {COMPILER}"
)
