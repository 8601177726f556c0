"""Least distances between dependent instructions, mined from the vendor's own code.

Problem: results of fixed-latency instructions are not interlocked, and the distances that make
them safe are published nowhere. ptxas knows them; over millions of instructions the least
distance it ever leaves between a producer and a consumer is the bound.

Data: `data/latency_sm90.tsv`, one row per (kind, producer, consumer, role): the least distance in
cycles, how often the pair was seen, and how often at that distance. `tools/latency/mine.py`
writes it from libraries set apart for calibration; other libraries are held out for the test.

Trust: a row counts on its own where ptxas was seen at the bound often enough that it is the
hardware's and not an accident of scheduling (`TIGHT`). Elsewhere the least over the pair's
latency classes counts, and where a class was never seen, the greatest bound of the producer's
class: thin evidence asks for more cycles, never for fewer.

`kind` is RAW (role: which operand of the consumer), WAW or WAR.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from regdem.errors import UnsupportedError

TIGHT = 8
"""How often a pair must be seen at its least distance for the row to count on its own."""
NEVER_SEEN_CYCLES = 24
"""Distance asked of a producer about which nothing is known."""


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


def _class_of(name: str) -> str:
    return name.partition(":")[0]


@dataclass
class LatencyTable:
    """Bounds by pair, and by class where a pair is rare."""

    arch: str
    rows: dict[tuple[str, str, str, str], LatencyRow]
    _by_class: dict[tuple[str, str, str, str], int] = field(
        default_factory=dict[tuple[str, str, str, str], int]
    )
    _most: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    _known: dict[tuple[str, str, str, str], int] = field(
        default_factory=dict[tuple[str, str, str, str], int]
    )

    @staticmethod
    def of(arch: str, rows: Iterable[LatencyRow]) -> LatencyTable:
        """Build the table and its bounds by class."""
        table = LatencyTable(arch, {})
        for row in rows:
            table.rows[row.kind, row.producer, row.consumer, row.role] = row
            key = (row.kind, _class_of(row.producer), _class_of(row.consumer), row.role)
            known = table._by_class.get(key, row.least_cycles)
            table._by_class[key] = min(known, row.least_cycles)
        for (kind, producer, _, _), least in table._by_class.items():
            key = (kind, producer)
            table._most[key] = max(table._most.get(key, 0), least)
        return table

    def required(self, kind: str, producer: str, consumer: str, role: str) -> int:
        """Cycles that must lie between issue of the producer and of the consumer."""
        key = (kind, producer, consumer, role)
        cycles = self._known.get(key)
        if cycles is None:
            cycles = self._known[key] = self._required(kind, producer, consumer, role)
        return cycles

    def _required(self, kind: str, producer: str, consumer: str, role: str) -> int:
        row = self.rows.get((kind, producer, consumer, role))
        if row is not None and row.seen_at_least >= TIGHT:
            return row.least_cycles
        by_class = self._by_class.get((kind, _class_of(producer), _class_of(consumer), role))
        if by_class is not None:
            return by_class
        if kind == "WAR":
            return 1
        return self._most.get((kind, _class_of(producer)), NEVER_SEEN_CYCLES)


def parse_rows(text: str) -> list[LatencyRow]:
    """Rows of a table file; lines that start with # are comments."""
    rows: list[LatencyRow] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        kind, producer, consumer, role, least, seen, at_least = line.split("\t")
        role = "" if role == "-" else role
        rows.append(
            LatencyRow(kind, producer, consumer, role, int(least), int(seen), int(at_least))
        )
    return rows


@cache
def latency_table(arch: str) -> LatencyTable:
    """The table of an architecture; `UnsupportedError` where none was mined."""
    if arch != "sm_90":
        raise UnsupportedError(f"no latencies are known for {arch}", hint="sm_90 has a table")
    path = resources.files("regdem.machine") / "data" / "latency_sm90.tsv"
    return LatencyTable.of(arch, parse_rows(path.read_text(encoding="utf-8")))
