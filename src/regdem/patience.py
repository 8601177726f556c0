"""A limit of CPU time for one piece of work.

Problem: a few rewrites of large kernels take minutes, and most of these end in a refusal; the other
rewrites of the kernel should not wait for them.

Method: the interval timer of the process's CPU time raises `OutOfTime` in the main thread. It is
not time by the clock, so that what is tried depends little on what else the machine does.

Not claimed: exactness. A call into native code ends first. Where there is no such timer (Windows),
or the work does not run in the main thread, there is no limit.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(BaseException):
    """The limit was reached. No `Exception`, so that nothing on the way takes it for its own."""


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTime


@contextmanager
def at_most(cpu_seconds: float) -> Generator[None]:
    """Raises `OutOfTime` in the body once the process used this much more CPU time; 0: never."""
    if cpu_seconds <= 0 or not _has_timer():
        yield
        return
    before = signal.signal(signal.SIGPROF, _raise)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _has_timer() -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and hasattr(signal, "setitimer")
