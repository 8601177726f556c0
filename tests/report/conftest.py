"""Cubins for the report tests: each ships with its source in examples/ or beside this file."""

from __future__ import annotations

from pathlib import Path

import pytest

from regdem.binary import Cubin
from regdem.report.inspection import inspect_kernel
from regdem.report.model import KernelReport

DATA = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def report_of(path: Path, threads: int | None = None) -> KernelReport:
    """The report of a file's only kernel."""
    (kernel,) = Cubin.parse(path.read_bytes(), path.name).kernels
    return inspect_kernel(kernel, threads)


@pytest.fixture(scope="session")
def neighbour() -> KernelReport:
    return report_of(EXAMPLES / "neighbour" / "neighbour.cubin", 256)


@pytest.fixture(scope="session")
def rolled() -> KernelReport:
    return report_of(EXAMPLES / "unroll" / "variance_rolled.cubin")


@pytest.fixture(scope="session")
def unrolled() -> KernelReport:
    return report_of(EXAMPLES / "unroll" / "variance_unrolled.cubin")


@pytest.fixture(scope="session")
def array() -> KernelReport:
    return report_of(DATA / "array.cubin")


@pytest.fixture(scope="session")
def shared_spills() -> KernelReport:
    return report_of(DATA / "shared_spills.cubin")


@pytest.fixture(scope="session")
def ring_full() -> KernelReport:
    return report_of(DATA / "ring_full.cubin")


@pytest.fixture(scope="session")
def ring_part() -> KernelReport:
    return report_of(DATA / "ring_part.cubin")


@pytest.fixture(scope="session")
def taps_rolled() -> KernelReport:
    return report_of(DATA / "taps_rolled.cubin")


@pytest.fixture(scope="session")
def taps_unrolled() -> KernelReport:
    return report_of(DATA / "taps_unrolled.cubin")
