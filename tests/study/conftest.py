"""Studies of the fixtures, made once a session each: they compile."""

from __future__ import annotations

import pytest
from studies import DATA, EXAMPLES, options

from regdem.study.model import Study
from regdem.study.run import study_caps, study_unroll


@pytest.fixture(scope="session")
def window() -> Study:
    """The tutorial's case: 48 registers, and 92 with spills inside the loop fully unrolled."""
    asked = options(EXAMPLES / "unroll" / "window.cu", 512, "-maxrregcount=92")
    return study_unroll(asked, (1, 4, 40, 64), "UNROLL")


@pytest.fixture(scope="session")
def series() -> Study:
    """A loop of unknown length, with factors that leave a remainder."""
    return study_unroll(options(DATA / "series.cu", 256), (1, 4, 6), "UNROLL")


@pytest.fixture(scope="session")
def neighbour() -> Study:
    """Limits of the example: cliffs, bounds, and NVIDIA's pragma where it spills."""
    return study_caps(options(EXAMPLES / "neighbour" / "neighbour.cu", 256), None, None)
