"""Studies of the fixtures, made once a session each: they compile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

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


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium, where it is installed."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    chosen = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,1000"):
        chosen.add_argument(argument)
    chosen.add_argument("--disable-dev-shm-usage")
    chosen.binary_location = chromium
    chosen.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    instance = webdriver.Chrome(
        options=chosen, service=webdriver.ChromeService(executable_path=driver)
    )
    yield instance
    instance.quit()
