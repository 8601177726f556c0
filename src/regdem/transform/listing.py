"""List scheduling of one segment: what depends on what, what is live, and orders to be tried.

An order is built forward, one instruction at a time, with the times a warp would see. Of what may
issue now without a wait, that with the longest path of latencies behind it goes first; with the
registers nearly full the original order leads again, since it is known to fit (`soft_limit`). The
other way, `steady`, follows the original order and only fills its waits. Neither is better in
general: the caller tries several and keeps what is best, or the original.

Pressure is counted in values of webs: a web that is given a new value within the segment holds no
register between the last read of the old and the write of the new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from regdem.analysis.bits import members
from regdem.analysis.webs import Webs
from regdem.transform.latencies import READ_CYCLES
from regdem.transform.segments import Segment, memory_order
from regdem.transform.timeline import Timeline

_LONG_CYCLES = 400
"""What a load from memory takes at least."""
_ANY = 1 << 30


@dataclass(frozen=True)
class Graph:
    """Dependences of a segment, by place in its original order.

    `before[k]`: places that must come first; `after[k]`: (place, cycles that must lie between).
    """

    before: list[list[int]]
    after: list[list[tuple[int, int]]]

    def allows(self, order: Sequence[int]) -> bool:
        """Whether an order of the places keeps all dependences."""
        position = {place: at for at, place in enumerate(order)}
        return len(position) == len(self.before) and all(
            position[p] < position[k] for k, places in enumerate(self.before) for p in places
        )


def dependences(timeline: Timeline, segment: Segment, slots: Collection[int] = ()) -> Graph:
    """True dependences of values, the order of reads and writes of one, and that of memory.

    A guarded write leaves what its register held where the guard is false: it stays behind all
    that touched the register since its last unguarded write, though nobody may want the old value.
    `slots`: see `segments.memory_order`.
    """
    n = segment.end - segment.start
    edges: list[dict[int, int]] = [{} for _ in range(n)]
    writers: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    base = segment.start

    def tie(earlier: int, later: int, cycles: int) -> None:
        known = edges[later].get(earlier, 0)
        edges[later][earlier] = max(known, cycles)

    for k in range(n):
        i = base + k
        for key, role in timeline.reads[i]:
            for p in writers.get(key, ()):
                j = base + p
                late = timeline.variable[j]
                cycles = timeline.late_cycles[j] if late else timeline.distance("RAW", j, i, role)
                tie(p, k, cycles)
            readers.setdefault(key, []).append(k)
        for key in timeline.writes[i]:
            for p in writers.get(key, ()):
                j = base + p
                late = timeline.variable[j]
                cycles = timeline.late_cycles[j] if late else timeline.distance("WAW", j, i, "")
                tie(p, k, cycles)
            for p in readers.get(key, ()):
                if p != k:
                    slow = key >= 0 and timeline.variable[base + p]
                    tie(p, k, READ_CYCLES if slow else 1)
            if timeline.always[i]:
                writers[key] = [k]
                readers[key] = [k] if any(key == each for each, _ in timeline.reads[i]) else []
            else:
                writers.setdefault(key, []).append(k)
    for earlier, later in memory_order(timeline.program, segment, slots):
        tie(earlier - base, later - base, 1)
    _tie_tuples(timeline, segment, tie)
    _tie_guarded(timeline, segment, tie)
    after: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for k, known in enumerate(edges):
        for p, cycles in known.items():
            after[p].append((k, cycles))
    return Graph([list(known) for known in edges], after)


def _tie_tuples(timeline: Timeline, segment: Segment, tie: Callable[[int, int, int], None]) -> None:
    """Live ranges that tuples bind to one register must stay apart: they keep their order."""
    touched: dict[int, list[tuple[int, int]]] = {}
    for k, i in enumerate(range(segment.start, segment.end)):
        reads = {key for key, _ in timeline.reads[i]}
        writes = set(timeline.writes[i])
        for web in writes:
            for other, p in touched.get(timeline.bound_to.get(web, -1), ()):
                if other != web and p != k:
                    tie(p, k, 1)
        for web in reads | writes:
            if web in timeline.bound_to:
                touched.setdefault(timeline.bound_to[web], []).append((web, k))


def _tie_guarded(
    timeline: Timeline, segment: Segment, tie: Callable[[int, int, int], None]
) -> None:
    """See `dependences`; by register numbers, whatever live ranges they are of."""
    since: dict[int, list[int]] = {}
    partial: dict[int, list[int]] = {}
    for k, i in enumerate(range(segment.start, segment.end)):
        uses, defs = timeline.used[i], timeline.defined[i]
        if not timeline.always[i]:
            for r in members(defs):
                for p in since.get(r, ()):
                    tie(p, k, 1)
        for r in members(uses):
            for p in partial.get(r, ()):
                if p != k:
                    tie(p, k, 1)
        for r in members(defs):
            if timeline.always[i]:
                partial.pop(r, None)
                since[r] = [k]
            else:
                partial.setdefault(r, []).append(k)
                since.setdefault(r, []).append(k)
        for r in members(uses & ~defs):
            since.setdefault(r, []).append(k)


@dataclass(frozen=True)
class Values:
    """The values that a segment's instructions touch, numbered.

    `touched[k]`: those that place k reads or writes; `written[k]`: those it gives; `uses[v]`: how
    many places touch v; `enters[v]`, `leaves[v]`: whether it is live at the segment's start, end.
    `web_of[v]`: its web. `through`: webs live all along that no place touches.
    """

    touched: list[list[int]]
    written: list[list[int]]
    web_of: list[int]
    uses: list[int]
    enters: list[bool]
    leaves: list[bool]
    through: int


def values_of(timeline: Timeline, webs: Webs, segment: Segment, live_at_start: int) -> Values:
    """Splits the webs of a segment into values. `live_at_start`: webs live at its first read."""
    start, end = segment.start, segment.end
    block = timeline.program.blocks[segment.block]
    value_of: dict[int, int] = {}
    web_of: list[int] = []
    uses: list[int] = []
    enters: list[bool] = []
    leaves: list[bool] = []
    touched: list[list[int]] = []
    written: list[list[int]] = []

    def new(web: int, entering: bool) -> int:
        value_of[web] = len(web_of)
        web_of.append(web)
        uses.append(0)
        enters.append(entering)
        leaves.append(False)
        return value_of[web]

    for i in range(start, end):
        mine: dict[int, None] = {}
        given: list[int] = []
        for web in dict.fromkeys(key for key, _ in timeline.reads[i] if key >= 0):
            v = value_of.get(web, -1)
            mine[new(web, True) if v < 0 else v] = None
        for web in (key for key in timeline.writes[i] if key >= 0):
            v = value_of.get(web, -1)
            if begins(webs, web, i, block.start, multi_pass=timeline.multi_pass[i]) and (
                v not in mine
            ):
                v = new(web, False)
            elif v < 0:
                v = new(web, True)
            mine[v] = None
            given.append(v)
        for v in mine:
            uses[v] += 1
        touched.append(list(mine))
        written.append(given)
    for web, v in value_of.items():
        leaves[v] = bool(webs.webs[web].points >> (2 * end) & 1)
    through = live_at_start - sum(enters)
    return Values(touched, written, web_of, uses, enters, leaves, through)


def begins(webs: Webs, web: int, i: int, block_start: int, *, multi_pass: bool) -> bool:
    """Whether instruction i's write is the start of a live range: nothing of the web is live."""
    points = webs.webs[web].points
    if not multi_pass:
        return not points >> (2 * i) & 1
    # A matrix operation's results take their registers before its reads.
    return i > block_start and not points >> (2 * i - 1) & 1


class Pressure:
    """Registers in use along an order that is being built."""

    def __init__(self, values: Values, multi_pass: Sequence[bool]) -> None:
        self._values = values
        self._multi_pass = multi_pass
        self._left = list(values.uses)
        self._live = list(values.enters)
        self.now = values.through + sum(values.enters)

    def effect(self, k: int) -> tuple[int, int]:
        """(peak while place k executes, change behind it)."""
        values, left, live = self._values, self._left, self._live
        given = values.written[k]
        dying = born = gone = 0
        for v in values.touched[k]:
            last = left[v] == 1 and not values.leaves[v]
            if v in given:
                born += not live[v]
                gone += last
            elif last:
                dying += 1
        behind = self.now + born - (0 if self._multi_pass[k] else dying)
        return max(self.now, behind), born - dying - gone

    def issue(self, k: int) -> int:
        """Executes place k; returns the peak."""
        peak, change = self.effect(k)
        values = self._values
        for v in values.touched[k]:
            self._left[v] -= 1
            self._live[v] = self._left[v] > 0 or values.leaves[v]
        self.now += change
        return peak


def peak_of(values: Values, multi_pass: Sequence[bool], order: Sequence[int]) -> int:
    """The most registers in use along an order."""
    pressure = Pressure(values, multi_pass)
    return max((pressure.issue(k) for k in order), default=pressure.now)


@dataclass(frozen=True)
class Unhindered:
    """An order that no limit of registers changes, if it is at least `peak` and, for the soft one,
    above `now`."""

    order: list[int]
    peak: int
    now: int


@dataclass(frozen=True)
class Task:
    """One segment to be ordered.

    `ready[k]`: when what comes from outside is there; `tail[k]`: cycles that must follow place k
    for what waits behind the segment; `pipes[k]`: pipe and cycles; `free`: when pipes are free;
    `now`: when the first instruction may issue.
    """

    graph: Graph
    values: Values
    multi_pass: list[bool]
    ready: list[int]
    tail: list[int]
    pipes: list[tuple[str, int]]
    free: dict[str, int]
    now: int
    known: dict[bool, Unhindered] = field(default_factory=lambda: dict[bool, "Unhindered"]())
    """What `ordered` gives without a limit, steady and not, once it was found."""

    def paths(self) -> list[int]:
        """The longest path of latencies from each place to the segment's end."""
        n = len(self.ready)
        longest = list(self.tail)
        for k in range(n - 1, -1, -1):
            for s, cycles in self.graph.after[k]:
                longest[k] = max(longest[k], cycles + longest[s])
        return longest


def ordered(
    task: Task, paths: Sequence[int], limit: int, soft_limit: int, *, steady: bool = False
) -> list[int] | None:
    """An order of the places of a segment within `limit` registers, or None.

    Above `soft_limit` the original order leads. `steady`: it leads always, waits are filled.
    """
    known = task.known.get(steady)
    if known is not None and known.peak <= limit and (steady or known.now < soft_limit):
        return list(known.order)
    graph = task.graph
    n = len(task.ready)
    missing = [len(places) for places in graph.before]
    when = list(task.ready)
    free = dict(task.free)
    pressure = Pressure(task.values, task.multi_pass)
    open_places = [k for k in range(n) if not missing[k]]
    now = task.now
    order: list[int] = []
    most_now = most_peak = 0
    while open_places:
        most_now = max(most_now, pressure.now)
        crowded = steady or pressure.now >= soft_limit
        best, best_rank = -1, (_ANY, _ANY, _ANY, _ANY)
        for k in open_places:
            peak, change = pressure.effect(k)
            if peak > most_peak:
                most_peak = peak
            pipe = task.pipes[k][0]
            wait = max(0, when[k] - now, free.get(pipe, 0) - now)
            if peak > limit:
                rank = (1 + peak - limit, change, k, 0)
            elif crowded:
                # The original order, with what gives registers back first.
                rank = (0, wait if steady else min(wait, 1), 0 if steady else change > 0, k)
            else:
                rank = (0, wait, -paths[k], k)
            if rank < best_rank:
                best, best_rank = k, rank
        open_places.remove(best)
        if pressure.issue(best) > limit:
            return None
        pipe, cycles = task.pipes[best]
        at = max(now, when[best], free.get(pipe, 0))
        free[pipe] = at + cycles
        now = at + 1
        order.append(best)
        for s, distance in graph.after[best]:
            when[s] = max(when[s], at + distance)
            missing[s] -= 1
            if not missing[s]:
                open_places.append(s)
    if most_peak <= limit and (steady or most_now < soft_limit):
        task.known[steady] = Unhindered(list(order), most_peak, most_now)
    return order


def hoisted(task: Task, reach: int) -> list[int]:
    """The original order with results that take long asked for up to `reach` places earlier.

    Each place is due at its old one; what takes `_LONG_CYCLES` or more `reach` places before that,
    what takes less in proportion; and so is all that these need.
    """
    graph = task.graph
    n = len(graph.before)
    due = [0.0] * n
    for k in range(n - 1, -1, -1):
        takes = max((cycles for _, cycles in graph.after[k]), default=0)
        due[k] = k - reach * min(1.0, takes / _LONG_CYCLES)
        for s, _ in graph.after[k]:
            due[k] = min(due[k], due[s])
    missing = [len(places) for places in graph.before]
    open_places = [(due[k], k) for k in range(n) if not missing[k]]
    heapify(open_places)
    order: list[int] = []
    while open_places:
        _, best = heappop(open_places)
        order.append(best)
        for s, _ in graph.after[best]:
            missing[s] -= 1
            if not missing[s]:
                heappush(open_places, (due[s], s))
    return order


__all__ = [
    "Graph", "Pressure", "Task", "Values", "begins", "dependences", "ordered", "peak_of",
    "values_of",
]  # fmt: skip
