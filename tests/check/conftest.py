"""The kernels that the checker's tests rewrite."""

from __future__ import annotations

from pathlib import Path

import pytest

from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel


@pytest.fixture(scope="session")
def kernels() -> dict[str, Kernel]:
    """The kernels of `data/kernels.cu`, by name."""
    data = (Path(__file__).parent / "data" / "kernels.cubin").read_bytes()
    return {kernel.name: kernel for kernel in Cubin.parse(data).kernels}
