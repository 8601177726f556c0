"""What is outstanding at a point of the code: the state of the dataflow over late results.

A point is described by the events that may still be under way (`transform/late_events.py`), by the
cycles until each fixed-latency result may be read, stored and has landed, and by what was inserted.
States of several paths are joined to what holds on any of them: the union of what is under way, the
latest of the times.

Invariants: `join` only ever adds, so that a dataflow with it ends; times are on a clock of the
state's own, so that joining moves the other state's times to this clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outstanding:
    """What is outstanding at a point; times are on a clock of its own, `now` is the point's.

    Registers, events: masks, a bit each.
    """

    now: int = 0
    pending: int = 0  # events, a bit each
    inserted: int = 0  # registers last written by an inserted instruction
    cs2r: int = 0  # registers last written by CS2R, whatever path led here
    quiet: int = 0  # until when a synchronisation keeps new accesses to memory back
    ready: dict[int, tuple[int, int, int]] = field(
        default_factory=lambda: dict[int, tuple[int, int, int]]()
    )
    """By register: when it may be read, stored, and when the result lands."""
    busy_reads: dict[int, int] = field(default_factory=lambda: dict[int, int]())

    def copy(self) -> Outstanding:
        """The same without what is over."""
        now = self.now
        return Outstanding(
            now, self.pending, self.inserted, self.cs2r, self.quiet,
            {r: times for r, times in self.ready.items() if max(times) > now},
            {r: time for r, time in self.busy_reads.items() if time > now},
        )  # fmt: skip

    def join(self, other: Outstanding) -> bool:
        """Takes over what is outstanding in `other`; whether anything was new."""
        ahead = self.now - other.now
        quiet = other.quiet + ahead
        changed = bool(
            (other.pending & ~self.pending)
            | (other.inserted & ~self.inserted)
            | (self.cs2r & ~other.cs2r)
            or quiet > max(self.quiet, self.now)
        )
        self.quiet = max(self.quiet, quiet)
        self.cs2r &= other.cs2r
        self.pending |= other.pending
        self.inserted |= other.inserted
        now = self.now
        over = now, now, now
        for register, theirs in other.ready.items():
            mine = self.ready.get(register, over)
            a, b, c = (max(time, now) for time in mine)
            new = max(a, theirs[0] + ahead), max(b, theirs[1] + ahead), max(c, theirs[2] + ahead)
            if new != (a, b, c):
                self.ready[register] = new
                changed = True
        for register, time in other.busy_reads.items():
            if time + ahead > max(now, self.busy_reads.get(register, now)):
                self.busy_reads[register] = time + ahead
                changed = True
        return changed
