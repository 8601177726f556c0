"""The variants between those who make them and those who measure them.

Makers add variants as they become ready; each GPU's thread takes the most promising that the
stopping rule leaves, and records what came of it. `take` waits while making goes on and nothing
worth measuring is there.
"""

from __future__ import annotations

import threading

from regdem.tune.made import BUILD_METHOD, Made
from regdem.tune.results import Measurement
from regdem.tune.stopping import Timed, why_excluded


class Board:
    """Shared by the thread that makes and the threads that measure."""

    def __init__(self, *, exhaustive: bool = False) -> None:
        self._changed = threading.Condition()
        self._exhaustive = exhaustive
        self._ready: dict[str, Made] = {}
        self._made: dict[str, Made] = {}
        self._measured: dict[str, Measurement] = {}
        self._measuring = 0
        self._is_making = True
        self._stopped = False
        self._error: BaseException | None = None

    def add(self, made: Made, measurement: Measurement | None = None) -> None:
        """A variant that is ready; with a measurement, if one is known already."""
        with self._changed:
            self._made[made.name] = made
            if measurement is not None:
                self._measured[made.name] = measurement
            elif made.is_usable:
                self._ready[made.name] = made
            self._changed.notify_all()

    def fastest_builds(self, count: int) -> list[str]:
        """The compiler's builds measured as fastest with identical outputs, the fastest first.

        Waits as `timed` does.
        """
        builds = [
            (comparison.speedup, made.name)
            for made, comparison in self.timed()
            if made.details.get("method") == BUILD_METHOD
        ]
        return [name for _, name in sorted(builds, reverse=True)[:count]]

    def timed(self) -> list[Timed]:
        """Variants with identical outputs and their times.

        Waits until all that is ready and worth it has been measured, or measuring has ended.
        """
        with self._changed:
            while not self._stopped and (self._measuring or self._best() is not None):
                self._changed.wait(0.2)  # a wait without limit would not see Ctrl-C
            return self._timed()

    def end_making(self) -> None:
        """No more variants will come."""
        with self._changed:
            self._is_making = False
            self._changed.notify_all()

    def take(self) -> Made | None:
        """The next variant to measure; None when there is nothing more to do."""
        with self._changed:
            while not self._stopped:
                made = self._best()
                if made is not None:
                    del self._ready[made.name]
                    self._measuring += 1
                    return made
                # A measurement on the way may widen the allowance and bring a variant back.
                if not self._is_making and (self._measuring == 0 or not self._ready):
                    return None
                self._changed.wait()
            return None

    def record(self, name: str, measurement: Measurement) -> bool:
        """What measuring gave; False (and forgotten) where all has been stopped meanwhile."""
        with self._changed:
            self._measuring -= 1
            self._changed.notify_all()
            if self._stopped:
                return False
            self._measured[name] = measurement
            return True

    def stop(self, error: BaseException | None = None) -> None:
        """Ends measuring; the first error is kept."""
        with self._changed:
            self._stopped = True
            self._error = self._error or error
            self._changed.notify_all()

    @property
    def error(self) -> BaseException | None:
        return self._error

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def made(self) -> dict[str, Made]:
        """All variants by name, usable or not."""
        with self._changed:
            return dict(self._made)

    def measured(self) -> dict[str, Measurement]:
        """All measurements by name."""
        with self._changed:
            return dict(self._measured)

    def excluded(self) -> dict[str, str]:
        """Variants that were not measured, with the reason."""
        with self._changed:
            timed = self._timed()
            return {
                name: why_excluded(made, timed) or "not measured" for name, made in
                self._ready.items()
            }  # fmt: skip

    def _timed(self) -> list[Timed]:
        found: list[Timed] = []
        for name, measurement in self._measured.items():
            comparison = measurement.comparison
            if comparison is not None:
                found.append((self._made[name], comparison))
        return found

    def _best(self) -> Made | None:
        timed = self._timed()
        worth = [
            made
            for made in self._ready.values()
            if self._exhaustive or why_excluded(made, timed) is None
        ]
        return max(worth, key=lambda made: (made.typical, made.name), default=None)
