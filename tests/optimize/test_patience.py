"""Work that takes too long is given up, and what follows is not disturbed."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from regdem.patience import OutOfTime, at_most


def spin(cpu_seconds: float) -> None:
    end = time.process_time() + cpu_seconds
    while time.process_time() < end:
        pass


def test_work_that_takes_too_long_is_given_up() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with pytest.raises(OutOfTime), at_most(0.05):
        spin(5.0)
    assert signal.getsignal(signal.SIGPROF) is before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_work_in_time_and_without_a_limit_goes_on() -> None:
    with at_most(5.0):
        spin(0.01)
    with at_most(0.0):
        spin(0.01)
    spin(0.06)


def test_other_threads_have_no_limit() -> None:
    done: list[bool] = []

    def work() -> None:
        with at_most(0.01):
            spin(0.05)
        done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
