"""Least distances between dependent instructions, mined from the vendor's own code.

Problem: results of fixed-latency instructions are not interlocked, and the distances that make
them safe are published nowhere. ptxas knows them; over millions of instructions the least
distance it ever leaves between a producer and a consumer is the bound.

Data: `data/latency_sm90.tsv`, one row per (kind, producer, consumer, role): the least distance in
cycles, how often the pair was seen, and how often at that distance. `tools/latency/mine.py`
writes it, from libraries set apart for calibration and from chains of dependent operations
(`tools/latency/chains.py`) that ptxas compiled; other libraries are held out for the test.

Trust: a bound counts where ptxas was seen exactly at it often enough, and in enough different
files, that it is the hardware's and not an accident of scheduling or of one template (`is_tight`).
The table is asked from the particular to the general (`ports.py`): the two instructions and the
operand, then operands of the same port, then the producer and the consumer's class or family, then
both classes, where the slowest of their pairs counts. Where even these are hardly known, the
producer's class at its slowest for operands of the same register file counts, but never more than
ptxas was seen to leave.

`kind` is RAW (role: which operand of the consumer), WAW, WAR of uniform registers, or SYNC (a
synchronisation and what touches memory behind it). Two writes must land in order: the distance
asked for is the difference of when they land, at most what ptxas was seen to leave. The two halves
of IMAD.WIDE's result come at two times, IMAD.HI's one register with the high half.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from regdem.errors import UnsupportedError
from regdem.machine.ports import (
    CLASSES,
    LOW_HALF,
    NARROW_MULTIPLY,
    OF_HIGH_HALF,
    THIRD_FIELD_BIT,
    WIDE_MULTIPLY,
    Key,
    Usual,
    class_of,
    keys_of,
    role_of,
    roles_of,
    usual_key,
)

NEVER_SEEN_CYCLES = 24
"""Distance asked of a producer about which nothing is known."""
_EARLIEST_CYCLES = 2
"""When what nothing is known of lands as a second write. CS2R does before an FP64 result that was
asked for a cycle before it (an H200 gave a wrong result). Loads, MUFU and conversions, slow as they
are, ptxas issues a cycle before what they overwrite has landed, and hardly ever sooner."""
_ENOUGH = ((100, 12, 0.02), (20, 8, 0.25))
"""Times at the least distance, files, and share of all times with which a bound is the hardware's:
of common pairs, and of rare ones that mostly stand so."""
_KNOWN = 30
_AGREED = 3
"""Pairs of two classes from which on one bound of all is theirs."""
_WRITES_KNOWN = 10
"""Times with which the least distance of two writes counts."""
_LANDING_PORTS = ("r", "p", "u")
"""When a result has landed, the integer pipe tells as a consumer, at these ports; IMAD of what the
integer pipe itself writes, since a pipe passes its own results on sooner."""


@dataclass(frozen=True)
class LatencyRow:
    """One mined bound. Producer and consumer are "class:NAME"."""

    kind: str
    producer: str
    consumer: str
    role: str
    least_cycles: int
    seen: int
    seen_at_least: int
    files_at_least: int


SYNC = "SYNC"
"""The kind of distance between a synchronisation and what touches memory behind it."""
_UNIFORM_READ_CYCLES = 2
_EARLY_UNIFORM_WRITERS = {"uniform:ULDC": 3, "uniform:UMOV": 3, "alu:VOTEU": 3}
_DESCRIPTOR_READ_CYCLES = 5
"""Cycles between a read of a uniform register that is not at issue and its next write, as ptxas
leaves them (`tools/latency/distances.py`, `docs/results/distances.txt`: UIADD3 to ULDC 3 or more in
560 of 560 cases, to UIADD3 2 or more in 2,199 of 2,199). UMOV, ULDC and nearly all outside the
uniform datapath read at issue; global accesses are rarely followed by a write, and given more than
the 1 that ptxas has been seen to leave."""
_AT_ISSUE = ("uniform:UMOV", "uniform:ULDC")


def reads_uniform_late(name: str) -> bool:
    """Whether instruction "class:NAME" reads its uniform registers after issue."""
    group = class_of(name)
    return group == "memory_global" or (group == "uniform" and name not in _AT_ISSUE)


SYNC_CYCLES = {"BAR": 6, "MEMBAR": 6, "ERRBAR": 6, "WARPSYNC": 5, "BSYNC": 5, "DEPBAR": 4}
"""Cycles after a synchronisation before which ptxas never touches memory (the same file: BAR to
shared memory 6 or more in 15,002 of 15,002 cases, in 12,042 of them 6). A new order of
`fft_radix16` read shared memory 4 cycles behind BAR, and got what had been there before, on an
H200."""
_AFTER_SYNC = ("memory_", "special", "shuffle", "mufu", "variable", "fp64")


def sync_cycles(name: str) -> int:
    """How long after synchronising instruction `name` nothing may touch memory; 0 if it is none."""
    return SYNC_CYCLES.get(name, 0)


def minds_sync(latency_class: str) -> bool:
    """Whether instructions of a latency class must keep that distance: all that leave the core's
    arithmetic, whose requests could overtake the synchronisation; MUFU, conversions and FP64, which
    ptxas never puts nearer, either."""
    return latency_class.startswith(_AFTER_SYNC)


@dataclass
class _Evidence:
    least_cycles: int
    seen: int = 0
    seen_at_least: int = 0
    files_at_least: int = 0
    is_class: bool = False

    def add(self, row: LatencyRow) -> None:
        if row.least_cycles < self.least_cycles:
            self.least_cycles, self.seen_at_least, self.files_at_least = row.least_cycles, 0, 0
        self.seen += row.seen
        if row.least_cycles == self.least_cycles:
            self.seen_at_least += row.seen_at_least
            self.files_at_least = max(self.files_at_least, row.files_at_least)

    @property
    def is_tight(self) -> bool:
        return any(
            self.seen_at_least >= times
            and self.files_at_least >= files
            and (self.is_class or self.seen_at_least >= share * self.seen)
            for times, files, share in (_ENOUGH[:1] if self.is_class else _ENOUGH)
        )


class LatencyTable:
    """Bounds by pair, and by class where a pair is rare."""

    def __init__(self, arch: str, rows: Iterable[LatencyRow]) -> None:
        self.arch = arch
        self._exact: dict[Key, _Evidence] = {}
        self._evidence: dict[Key, _Evidence] = {}
        self._landing: dict[tuple[str, str], int] = {}
        self._known: dict[Key, int] = {}
        self._pairs: dict[Key, list[int]] = {}
        self._usual: dict[Usual, int] = {}
        self._slowest: dict[Usual, int] = {}
        for row in rows:
            exact = (row.kind, row.producer, row.consumer, row.role)
            self._exact.setdefault(exact, _Evidence(row.least_cycles)).add(row)
            for key in set(keys_of(*exact)):
                general = ":" not in key[1]
                evidence = _Evidence(row.least_cycles, is_class=general)
                self._evidence.setdefault(key, evidence).add(row)
        for key, evidence in self._evidence.items():
            if key[0] == "RAW":
                self._learn(key, evidence)

    def _learn(self, key: Key, evidence: _Evidence) -> None:
        """What a bound says of others."""
        kind, producer, consumer, port = key
        cycles = evidence.least_cycles
        usual = usual_key(producer, consumer, port)
        if ":" not in producer and evidence.seen >= _KNOWN:
            self._slowest[usual] = max(cycles, self._slowest.get(usual, 0))
        if not evidence.is_tight:
            return
        own = class_of(producer) == "alu" and port == "r"
        if consumer == ("imad" if own else "alu"):
            self._landing[producer, port] = cycles
        if ":" not in producer and ":" not in consumer:
            self._usual[usual] = max(cycles, self._usual.get(usual, 0))
        if ":" in producer and ":" in consumer:
            for general in keys_of(kind, producer, consumer, role_of(port))[1:]:
                self._pairs.setdefault(general, []).append(cycles)

    def required(self, kind: str, producer: str, consumer: str, role: str) -> int:
        """Cycles that must lie between issue of the producer and of the consumer."""
        if kind == SYNC:
            return sync_cycles(producer.rpartition(":")[2])
        if kind == "WAR":
            if not reads_uniform_late(producer):
                return 1
            if class_of(producer) == "memory_global":
                return _DESCRIPTOR_READ_CYCLES
            return _EARLY_UNIFORM_WRITERS.get(consumer, _UNIFORM_READ_CYCLES)
        key = (kind, producer, consumer, role)
        cycles = self._known.get(key)
        if cycles is None:
            ask = self._required_read if kind == "RAW" else self._required_write
            cycles = self._known[key] = ask(producer, consumer, role)
        return cycles

    def arrival(self, name: str) -> int:
        """Cycles after issue at which the results of "class:NAME", of fixed latency, have landed,
        for the order of writes: when an instruction of another pipe can read them. Of IMAD.WIDE,
        the low half. What is known, or the most that is assumed.
        """
        return self._landing_of(name)[1]

    def earliest(self, name: str) -> int:
        """The same of the second of two writes: what is known, or `_EARLIEST_CYCLES`."""
        known = self._known_landing(name)
        return known[1] if known else _EARLIEST_CYCLES

    def _required_read(self, producer: str, consumer: str, role: str) -> int:
        cycles = self._read_of_value(producer, consumer, role)
        if producer == WIDE_MULTIPLY and role.startswith("r") and not role.endswith(OF_HIGH_HALF):
            # The low half is there no later than the high one.
            cycles = min(cycles, self._read_of_value(producer, consumer, role + OF_HIGH_HALF))
        return cycles

    def _read_of_value(self, producer: str, consumer: str, role: str) -> int:
        exact = self._exact.get(("RAW", producer, consumer, role))
        if exact is not None and exact.is_tight:
            return exact.least_cycles
        fewest = 1 << 30  # that ptxas was seen to leave in exactly these
        is_known = False
        bound = 0
        keys = keys_of("RAW", producer, consumer, role)
        for key in keys:
            evidence = self._evidence.get(key)
            if evidence is None:
                continue
            if ":" in key[1] and ":" in key[2]:
                if evidence.is_tight:
                    return evidence.least_cycles
                fewest, is_known = evidence.least_cycles, evidence.seen >= _KNOWN
            elif evidence.is_tight:
                # Others of its kind may differ: it is taken for the slowest that is known.
                bound = max(self._pairs.get(key, [evidence.least_cycles]))
                break
        alike = usual_key(class_of(producer), consumer, role)
        slowest = self._usual.get(alike, 0)
        bound = bound or self._stand_in(producer, consumer, role) or slowest
        bound = bound or min(NEVER_SEEN_CYCLES, self._slowest.get(alike, NEVER_SEEN_CYCLES))
        of_classes = self._pairs.get(keys[CLASSES], [])
        is_agreed = len(of_classes) >= _AGREED and set(of_classes) == {bound}
        if is_known and not is_agreed:
            # Seen often, if never tight: what ptxas was seen to leave, up to the producer's worst.
            bound = max(bound, slowest)
        return min(fewest, bound)

    def _stand_in(self, producer: str, consumer: str, role: str) -> int:
        """What a narrow multiply, which a half of a wide one is like, asks; 0 for other roles."""
        if role.endswith(OF_HIGH_HALF):
            plain = role.removesuffix(OF_HIGH_HALF)
            producers = (producer, NARROW_MULTIPLY)
            return max(self._read_of_value(each, consumer, plain) for each in producers)
        if role == LOW_HALF:
            return self._required_read(producer, NARROW_MULTIPLY, f"r{THIRD_FIELD_BIT}")
        return 0

    def _required_write(self, producer: str, consumer: str, role: str) -> int:
        port, first = self._landing_of(producer)
        second = self._landing_at(consumer, port) or self.earliest(consumer)
        bound = max(1, first - second + 1)
        seen = self._evidence.get(keys_of("WAW", producer, consumer, role)[-1])
        if seen is None or seen.seen_at_least < _WRITES_KNOWN:
            return bound
        return min(bound, seen.least_cycles)

    def _landing_at(self, name: str, port: str) -> int:
        """When a result of "class:NAME" lands that would be read at `port`; 0 if not known."""
        return self._landing.get((name, port)) or self._landing.get((class_of(name), port), 0)

    def _landing_of(self, name: str) -> tuple[str, int]:
        """The port, and when; the most that is assumed where nothing is known."""
        return self._known_landing(name) or (_LANDING_PORTS[0], NEVER_SEEN_CYCLES)

    def _known_landing(self, name: str) -> tuple[str, int] | None:
        for known in (name, class_of(name)):
            for port in _LANDING_PORTS:
                if (known, port) in self._landing:
                    return port, self._landing[known, port]
        return None


def parse_rows(text: str) -> list[LatencyRow]:
    """Rows of a table file; lines that start with # are comments."""
    rows: list[LatencyRow] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        kind, producer, consumer, role, *numbers = line.split("\t")
        role = "" if role == "-" else role
        rows.append(LatencyRow(kind, producer, consumer, role, *map(int, numbers)))
    return rows


@cache
def latency_table(arch: str) -> LatencyTable:
    """The table of an architecture; `UnsupportedError` where none was mined."""
    if arch != "sm_90":
        raise UnsupportedError(f"no latencies are known for {arch}", hint="sm_90 has a table")
    path = resources.files("regdem.machine") / "data" / "latency_sm90.tsv"
    return LatencyTable(arch, parse_rows(path.read_text(encoding="utf-8")))


__all__ = [
    "LOW_HALF", "NEVER_SEEN_CYCLES", "OF_HIGH_HALF", "SYNC", "SYNC_CYCLES",
    "WIDE_MULTIPLY", "LatencyRow", "LatencyTable", "latency_table",
    "minds_sync", "parse_rows", "reads_uniform_late", "roles_of", "sync_cycles",
]  # fmt: skip
