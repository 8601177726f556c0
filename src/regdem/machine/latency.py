"""Least distances between dependent instructions, mined from the vendor's own code.

Problem: results of fixed-latency instructions are not interlocked, and the distances that make
them safe are published nowhere. ptxas knows them; over millions of instructions the least
distance it ever leaves between a producer and a consumer is the bound.

Data: `data/latency_sm90.tsv`, one row per (kind, producer, consumer, role): the least distance in
cycles, how often the pair was seen, and how often at that distance. `tools/latency/mine.py`
writes it from libraries set apart for calibration; other libraries are held out for the test.

Trust: a bound counts where ptxas was seen exactly at it often enough, and in enough different
files, that it is the hardware's and not an accident of scheduling or of one template (`is_tight`).
The table is asked from the particular to the general: the two instructions, then the producer and
the consumer's class or family, then both classes, where the slowest of their pairs counts. Where
even these are hardly known, the producer's class at its slowest for operands of the same register
file counts, or else its least, but never more than ptxas was seen to leave.

`kind` is RAW (role: which operand of the consumer), WAW, WAR of uniform registers, or SYNC (a
synchronisation and what touches memory behind it). Two writes must land in order: the distance
asked for is the difference of the two latencies, at most what ptxas was seen to leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from regdem.errors import UnsupportedError

NEVER_SEEN_CYCLES = 24
"""Distance asked of a producer about which nothing is known."""
VARIABLE_LEAST_CYCLES = 12
"""No variable-latency result arrives sooner after issue."""
_ENOUGH_AT_LEAST = 100
_ENOUGH_FILES = 12
_KNOWN = 30
_TIGHT_SHARE = 0.02


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


_PIPES = {"alu:VIADD": "imad", "uniform:UMOV": "uniform_move", "uniform:ULDC": "uniform_move"}
"""Instructions whose distances are those of another class: VIADD passes its result to IMAD, and
takes FMUL's and IMAD's, in 4 cycles, as the multiply-add pipe does and the integer pipe doesn't;
what UMOV and ULDC write is read 2 cycles later, what other uniform instructions write, 6."""


def _class_of(name: str) -> str:
    return _PIPES.get(name) or name.partition(":")[0]


_FILE_LETTER = "rupq"
_THIRD_FIELD_BIT = 64
_OTHER_THIRD_SOURCES = (2, 3, 7)
"""Opcode bits 9 to 11 where the third source is an immediate, a constant, a uniform register."""
_WIDE_MULTIPLY = (0x25, 0x27)
"""Opcode bits 0 to 8 of IMAD.WIDE and IMAD.HI."""
LOW_HALF = "r64 low"
_NARROW_MULTIPLY = "imad:IMAD"
OF_HIGH_HALF = " of high"
"""Behind a role: the value is the high half of IMAD.WIDE's result, which comes two cycles later."""
WIDE_MULTIPLY = "imad_wide:IMAD"
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
    group = _class_of(name)
    return group == "memory_global" or (group == "uniform" and name not in _AT_ISSUE)


SYNC_CYCLES = {"BAR": 6, "MEMBAR": 6, "ERRBAR": 6, "WARPSYNC": 5, "BSYNC": 5, "DEPBAR": 4}
"""Cycles after a synchronisation before which ptxas never touches memory (the same file: BAR to
shared memory 6 or more in 15,002 of 15,002 cases, in 12,042 of them 6). A new order of
`fft_radix16` read shared memory 4 cycles behind BAR, and got what had been there before, on an
H200."""
_AFTER_SYNC = ("memory_", "special", "shuffle")


def sync_cycles(name: str) -> int:
    """How long after synchronising instruction `name` nothing may touch memory; 0 if it is none."""
    return SYNC_CYCLES.get(name, 0)


def minds_sync(latency_class: str) -> bool:
    """Whether instructions of a latency class must keep that distance: all that leave the core's
    arithmetic, whose requests could overtake the synchronisation."""
    return latency_class.startswith(_AFTER_SYNC)


def roles_of(low: int, file: int, bit: int, width: int) -> list[str]:
    """The roles of a consumer's operand, by register of its tuple.

    A role is the file and the lowest bit of the operand's field ("r24", "p87"). `low`: the
    instruction's low word; `file`: a `RegisterFile`. Two operands are not what their field says:

    - where something other than a register is the third source, the second source stands in the
      third's field, but goes to the second's port, which is read earlier: it is "r32";
    - of the 64-bit addend of IMAD.WIDE, the low half is read as early as that of a narrow IMAD and
      the high half two cycles later: the low half is `LOW_HALF`.

    Both were missed once, and new orders of instructions gave wrong results on an H200: MOV to such
    an FFMA 4 cycles apart where ptxas leaves 5, IMAD to a low half 2 where it leaves 4.
    """
    role = f"{_FILE_LETTER[file]}{bit}"
    if file != 0 or bit != _THIRD_FIELD_BIT:
        return [role] * width
    if (low >> 9 & 7) in _OTHER_THIRD_SOURCES:
        return ["r32"] * width
    if width == 2 and (low & 0x1FF) in _WIDE_MULTIPLY:
        return [LOW_HALF, role]
    return [role] * width


_Key = tuple[str, str, str, str]


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
        return (
            self.seen_at_least >= _ENOUGH_AT_LEAST
            and self.files_at_least >= _ENOUGH_FILES
            and (self.is_class or self.seen_at_least >= _TIGHT_SHARE * self.seen)
        )


class LatencyTable:
    """Bounds by pair, and by class where a pair is rare."""

    def __init__(self, arch: str, rows: Iterable[LatencyRow]) -> None:
        self.arch = arch
        self._evidence: dict[_Key, _Evidence] = {}
        self._latency: dict[str, int] = {}
        self._known: dict[_Key, int] = {}
        self._worst: dict[_Key, int] = {}
        for row in rows:
            for key in set(_keys(row.kind, row.producer, row.consumer, row.role)):
                general = ":" not in key[1]
                evidence = _Evidence(row.least_cycles, is_class=general)
                self._evidence.setdefault(key, evidence).add(row)
        self._usual: dict[tuple[str, str, bool], list[int]] = {}
        self._fewest: dict[tuple[str, str], int] = {}
        for (kind, producer, consumer, port), evidence in self._evidence.items():
            if kind != "RAW":
                continue
            if ":" not in producer and evidence.seen >= _KNOWN:
                few = (producer, _file_of(port))
                self._fewest[few] = min(
                    self._fewest.get(few, evidence.least_cycles), evidence.least_cycles
                )
            if not evidence.is_tight:
                continue
            for name in {producer, _class_of(producer)}:
                known = self._latency.get(name, evidence.least_cycles)
                self._latency[name] = min(known, evidence.least_cycles)
            if ":" not in producer and ":" not in consumer:
                usual = self._usual.setdefault(_usual_key(producer, consumer, port), [])
                usual.append(evidence.least_cycles)
            if ":" in producer and ":" in consumer:
                for general in _keys(kind, producer, consumer, _ROLE_OF_PORT.get(port, port))[1:]:
                    worst = self._worst.get(general, 0)
                    self._worst[general] = max(worst, evidence.least_cycles)

    def required(self, kind: str, producer: str, consumer: str, role: str) -> int:
        """Cycles that must lie between issue of the producer and of the consumer."""
        if kind == SYNC:
            return sync_cycles(producer.rpartition(":")[2])
        if kind == "WAR":
            if not reads_uniform_late(producer):
                return 1
            if _class_of(producer) == "memory_global":
                return _DESCRIPTOR_READ_CYCLES
            return _EARLY_UNIFORM_WRITERS.get(consumer, _UNIFORM_READ_CYCLES)
        if role.endswith(OF_HIGH_HALF):
            plain = role.removesuffix(OF_HIGH_HALF)
            producers = (producer, _NARROW_MULTIPLY)
            return max(self.required(kind, each, consumer, plain) for each in producers)
        if role == LOW_HALF:
            return self.required(kind, producer, _NARROW_MULTIPLY, f"r{_THIRD_FIELD_BIT}")
        key = (kind, producer, consumer, role)
        cycles = self._known.get(key)
        if cycles is None:
            ask = self._required_read if kind == "RAW" else self._required_write
            cycles = self._known[key] = ask(producer, consumer, role)
        return cycles

    def arrival(self, name: str, *, variable: bool = False) -> int:
        """Cycles after issue at which the results of "class:NAME" land, for the order of writes.

        Of fixed latency what is known, or the most that is assumed; else the least.
        """
        unknown = VARIABLE_LEAST_CYCLES if variable else NEVER_SEEN_CYCLES
        return unknown if variable else self._latency_of(name, unknown)

    def _required_read(self, producer: str, consumer: str, role: str) -> int:
        fewest = 1 << 30  # that ptxas was seen to leave in exactly these
        is_known = False
        bound = 0
        for key in _keys("RAW", producer, consumer, role):
            evidence = self._evidence.get(key)
            if evidence is None:
                continue
            if ":" in key[1] and ":" in key[2]:
                if evidence.is_tight:
                    return evidence.least_cycles
                fewest, is_known = evidence.least_cycles, evidence.seen >= _KNOWN
            elif evidence.is_tight:
                # Others of its kind may differ: it is taken for the slowest that is known.
                bound = self._worst.get(key, 0) or evidence.least_cycles
                break
        known = self._usual.get(_usual_key(_class_of(producer), consumer, role))
        slowest = max(known) if known else 0
        if not bound:
            few = self._fewest.get((_class_of(producer), _file_of(role)), NEVER_SEEN_CYCLES)
            bound = slowest or few
        # Seen often, if never tight: what ptxas was seen to leave, up to the producer's worst.
        return min(fewest, max(bound, slowest) if is_known else bound)

    def _required_write(self, producer: str, consumer: str, role: str) -> int:
        first = self._latency_of(producer, NEVER_SEEN_CYCLES)
        second = self._latency_of(consumer, VARIABLE_LEAST_CYCLES)
        bound = max(1, first - second + 1)
        seen = self._evidence.get(_keys("WAW", producer, consumer, role)[-1])
        return bound if seen is None else min(bound, seen.least_cycles)

    def _latency_of(self, name: str, unknown: int) -> int:
        return self._latency.get(name, self._latency.get(_class_of(name), unknown))


_FAMILIES = {"shuffle": "memory", "mufu": "slow", "variable": "slow", "special": "slow"}


def _family_of(name: str) -> str:
    """Consumers that take their operands through the same port."""
    group = _class_of(name)
    if group == "memory":
        return group
    if group.startswith("memory_") and group != "memory_constant":
        return "memory"
    return _FAMILIES.get(group, group)


def _file_of(role: str) -> str:
    """The register file a role reads ("r", "u", "p", "q"), or "guard"."""
    return role if role == "guard" else role[:1]


def _usual_key(producer: str, consumer: str, role: str) -> tuple[str, str, bool]:
    return producer, _file_of(role), _family_of(consumer) == "memory"


def _port(consumer: str, role: str) -> str:
    """Arithmetic reads its first two operands alike; a third may be taken later. Data of memory
    instructions is read alike wherever its field is."""
    if role in ("p77", "p87"):
        return "p"
    if role.startswith("u"):
        return "u"
    if _family_of(consumer) == "memory":
        return "r data" if role in ("r32", "r64") else role
    return "r" if role in ("r24", "r32") else role


_ROLE_OF_PORT = {"r": "r24", "r data": "r32", "u": "u32", "p": "p77"}
"""A role that leads back to each port."""


def _keys(kind: str, producer: str, consumer: str, role: str) -> list[_Key]:
    """From the particular to the general."""
    group, port = _class_of(producer), _port(consumer, role)
    return [
        (kind, producer, consumer, port),
        (kind, producer, _class_of(consumer), port),
        (kind, producer, _family_of(consumer), port),
        (kind, group, _class_of(consumer), port),
        (kind, group, _family_of(consumer), port),
    ]


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
