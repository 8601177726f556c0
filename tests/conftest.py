"""What all tests share: `--bless`, the `gpu` and `tools` markers, hypothesis profiles, the example.

Golden files: a test compares with `golden(name, text)`; `pytest --bless` rewrites the file.
Profiles: `HYPOTHESIS_PROFILE=soak` runs the property tests a hundred times longer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from regdem.integrations.toolkit import find_gpus, find_tool

ROOT = Path(__file__).resolve().parent.parent
NEEDED_TOOLS = ("nvdisasm", "cuobjdump", "nvcc", "ptxas")

_slow_is_fine = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "default", deadline=None, max_examples=50, derandomize=True, suppress_health_check=_slow_is_fine
)
settings.register_profile(
    "soak", deadline=None, max_examples=5000, suppress_health_check=_slow_is_fine
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite golden files, don't compare")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = {"tools": _missing_tools, "gpu": _missing_gpu}
    for marker, reason_of in reasons.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = reason_of() if marked else None
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def _missing_tools() -> str | None:
    missing = [name for name in NEEDED_TOOLS if find_tool(name) is None]
    return f"not found: {', '.join(missing)} (pip install regdem[tools])" if missing else None


def _missing_gpu() -> str | None:
    return None if find_gpus() else "no NVIDIA GPU found"


@pytest.fixture(scope="session")
def example_path() -> Path:
    """The compiled example that ships with the repository: 48 registers, one loop, no spills."""
    return ROOT / "examples" / "neighbour" / "neighbour.cubin"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares with `golden/name` beside the test, or writes it (--bless)."""
    folder = request.path.parent / "golden"
    blessing = bool(request.config.getoption("--bless"))

    def compare(name: str, text: str) -> None:
        path = folder / name
        if blessing:
            folder.mkdir(exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"no golden file {name}: run pytest --bless and read what it wrote"
        assert text == path.read_text(), f"{name} differs; pytest --bless accepts the new output"

    return compare
