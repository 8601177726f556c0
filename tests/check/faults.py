"""Plants faults in a correct rewrite, one at a time.

    python tests/check/faults.py [FAULTS_PER_KIND]

Every fault changes what the kernel computes, or when it is safe, so the checker must reject all of
them; the script plants many, prints a table by kind, and exits 1 if one was accepted. The faults
need a rewrite made by `rewrites.demoted` (address register, slots and fences as it makes them).
"""

from __future__ import annotations

import random
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rewrites import NOP, Word, control, controlled, demotable, demoted, with_control, with_field

from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.check import check_pair
from regdem.check.layout import highest_register
from regdem.check.pipeline import Pipeline
from regdem.check.subject import Program
from regdem.check.timing import timing_of
from regdem.check.view import CodeView, view_of
from regdem.machine.latency import latency_table

THREADS = 128
SLOTS = 6


@dataclass(frozen=True)
class Fault:
    """One faulty kernel; `offset` is where the fault was planted."""

    kind: str
    offset: int
    kernel: Kernel


@dataclass
class Bench:
    """A correct rewrite and what is known of its parts."""

    original: Kernel
    rewritten: Kernel
    view: CodeView
    words: list[Word]
    address: int
    program: Program

    @staticmethod
    def of(original: Kernel) -> Bench:
        """Demote a few registers of `original`."""
        view = view_of(original.name, original.code, original.arch)
        rewritten = demoted(original, demotable(view)[:SLOTS], THREADS)
        program = Program(rewritten, rewritten.arch)
        words = list(zip(program.view.low, program.view.high, strict=True))
        return Bench(original, rewritten, program.view, words, highest_register(view) + 1, program)

    def with_word(self, i: int, word: Word) -> Kernel:
        """The rewrite with one instruction replaced."""
        words = [*self.words]
        words[i] = word
        return replace(self.rewritten, code=b"".join(struct.pack("<QQ", *w) for w in words))

    def is_slot(self, i: int) -> bool:
        """Whether this reaches a slot."""
        return self.view.name[i] in ("LDS", "STS") and any(
            row.bit == 24 and row.first == self.address for row in self.view.rows[i]
        )

    def loads(self) -> list[int]:
        """Slot loads whose value the next instruction of the original reads."""
        found: list[int] = []
        for i in range(len(self.words)):
            if self.view.name[i] != "LDS" or not self.is_slot(i):
                continue
            user = self.user_of(i)
            if user is not None and self.view.writes[i][0] in self.view.reads[user]:
                found.append(i)
        return found

    def stores(self) -> list[int]:
        """Slot stores of computed values (a constant may be what the slot holds already)."""
        found: list[int] = []
        computed: dict[int, bool] = {}
        for i in range(len(self.words)):
            if self.view.name[i] == "STS" and self.is_slot(i):
                data = next(row.first for row in self.view.rows[i] if row.bit == 32)
                if computed.get(data, False):
                    found.append(i)
            for place in self.view.writes[i]:
                computed[place] = bool(self.view.reads[i])
        return found

    def user_of(self, load: int) -> int | None:
        """The instruction a slot load was inserted for."""
        for i in range(load + 1, len(self.words)):
            if not self.is_slot(i) and self.view.name[i] != "NOP":
                return i
        return None

    def is_read(self, i: int) -> bool:
        """Whether instruction `i` stores, or the next that touches its results reads them."""
        written = set(self.view.writes[i])
        for j in range(i + 1, len(self.words)):
            if written & {*self.view.reads[j], self.view.guard[j]}:
                return True
            if self.view.control[j] != "none":
                break
            written -= set(self.view.writes[j])
        return not self.view.writes[i]

    def matched(self) -> list[int]:
        """Instructions of the original."""
        first = next(
            i for i, name in enumerate(self.view.name) if name == "LDC" and 1 in self.view.writes[i]
        )
        return [
            i
            for i in range(first, len(self.words))
            if not self.is_slot(i) and self.view.name[i] != "NOP"
        ]


Kind = Callable[[Bench], Iterator[tuple[int, Kernel]]]


def wrong_slot(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A load from one row further on."""
    for i in bench.loads():
        offset = bench.words[i][0] >> 40 & 0xFFFFFF
        yield i, bench.with_word(i, with_field(bench.words[i], 40, 24, offset + 128))


def store_to_wrong_slot(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A store one row further on."""
    for i in bench.stores():
        offset = bench.words[i][0] >> 40 & 0xFFFFFF
        yield i, bench.with_word(i, with_field(bench.words[i], 40, 24, offset + 128))


def zero_stored(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A store of zero instead of a computed value."""
    for i in bench.stores():
        yield i, bench.with_word(i, with_field(bench.words[i], 32, 8, 255))


def misaligned_slot(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """An access in the middle of two words."""
    for i in [*bench.loads(), *bench.stores()]:
        offset = bench.words[i][0] >> 40 & 0xFFFFFF
        yield i, bench.with_word(i, with_field(bench.words[i], 40, 24, offset + 2))


def dropped_store(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A store that isn't there."""
    for i in bench.stores():
        yield i, bench.with_word(i, controlled(NOP))


def dropped_load(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A load that isn't there, where the temporary was last loaded from another slot."""
    graph = bench.program.graph
    loads = set(bench.loads())
    for start, end in zip(graph.start, graph.end, strict=True):
        last: dict[int, int] = {}
        for i in range(start, end):
            offset = bench.words[i][0] >> 40
            if i in loads and last.get(bench.view.writes[i][0], offset) != offset:
                yield i, bench.with_word(i, controlled(NOP))
            for place in bench.view.writes[i]:
                last.pop(place, None)
                if bench.view.name[i] == "LDS" and bench.is_slot(i):
                    last[place] = offset


def lost_spill(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A store to the stack that isn't there, where a load that is still there reads the word."""
    stores = [i for i, name in enumerate(bench.view.name) if name == "STL"]
    loads = [i for i, name in enumerate(bench.view.name) if name == "LDL"]
    for i in stores:
        first = bench.words[i][0] >> 40 & 0xFFFFFF
        same = [j for j in stores if bench.words[j][0] >> 40 & 0xFFFFFF == first]
        read = [j for j in loads if bench.words[j][0] >> 40 & 0xFFFFFF == first]
        if read and same == [i]:
            yield i, bench.with_word(i, controlled(NOP))


def conditional_store(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A store only where P6 holds."""
    for i in bench.stores():
        if bench.view.guard[i] < 0:
            yield i, bench.with_word(i, with_field(bench.words[i], 12, 3, 6))


def clobbered_register(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A load into another register that the instruction reads."""
    for i in bench.loads():
        user = bench.user_of(i)
        assert user is not None
        others = [
            row.first
            for row in bench.view.rows[user]
            if row.file == 0 and row.reads and row.first < bench.address
        ]
        if others:
            yield i, bench.with_word(i, with_field(bench.words[i], 16, 8, others[0]))


def wrong_source(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A source operand that names the address register instead."""
    for i in bench.matched():
        for row in bench.view.rows[i]:
            if row.file == 0 and row.reads and row.bit not in (12, 255) and row.width == 1:
                yield i, bench.with_word(i, with_field(bench.words[i], row.bit, 8, bench.address))


def wrong_destination(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A result that overwrites the address register."""
    for i in bench.matched():
        for row in bench.view.rows[i]:
            if row.file == 0 and row.writes and not row.reads and row.width == 1:
                yield i, bench.with_word(i, with_field(bench.words[i], row.bit, 8, bench.address))


def swapped_operands(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """Two sources in each other's place."""
    for i in bench.matched():
        rows = [
            row
            for row in bench.view.rows[i]
            if row.file == 0 and row.reads and not row.writes and row.width == 1 and row.bit < 255
        ]
        if len(rows) >= 2 and rows[0].first != rows[1].first:
            word = with_field(bench.words[i], rows[0].bit, 8, rows[1].first)
            yield i, bench.with_word(i, with_field(word, rows[1].bit, 8, rows[0].first))


def flipped_guard(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A guard negated."""
    for i in bench.matched():
        if bench.view.guard[i] >= 0:
            low, high = bench.words[i]
            yield i, bench.with_word(i, (low ^ 1 << 15, high))


def changed_immediate(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """One bit of an address offset or constant."""
    for i in bench.matched():
        if bench.view.name[i] in ("LDG", "STG", "LDC", "ULDC") and bench.view.writes[i] != (1,):
            low, high = bench.words[i]
            yield i, bench.with_word(i, (low ^ 1 << 42, high))


def wrong_branch(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A branch that skips the instruction it should lead to."""
    matched = set(bench.matched())
    for i in sorted(matched):
        target = bench.view.target[i]
        if bench.view.control[i] != "branch" or target < 0 or target == i:
            continue
        to = next((t + 1 for t in range(target, len(bench.words)) if t in matched), None)
        if to is None:
            continue
        value = 4 * (to - i - 1) & (1 << 56) - 1
        word = with_field(with_field(bench.words[i], 16, 8, value & 0xFF), 34, 48, value >> 8)
        yield i, bench.with_word(i, word)


def missing_wait(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A reader that doesn't wait for its slot load."""
    for i in bench.loads():
        user = bench.user_of(i)
        assert user is not None
        wait = control(bench.words[user], "wait") & ~(1 << 5)
        yield user, bench.with_word(user, with_control(bench.words[user], wait=wait))


def missing_scoreboard(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A slot load that signals nothing, with no later one whose signal would do."""
    for i in bench.loads():
        user = bench.user_of(i)
        if any(bench.is_slot(k) for k in range(i + 1, user or i + 1)):
            continue
        yield i, bench.with_word(i, with_control(bench.words[i], write=7))


def early_wait(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A slot load one cycle before its reader waits."""
    for i in bench.loads():
        if bench.user_of(i) == i + 1:
            yield i, bench.with_word(i, with_control(bench.words[i], stall=1))


@dataclass
class _Tight:
    """Collects adjacent dependences with not a cycle to spare."""

    view: CodeView
    found: list[int]

    def fixed(self, kind: str, producer: int, consumer: int, role: str, age: int) -> None:
        names = self.view.timing_name
        needed = latency_table("sm_90").required(kind, names[producer], names[consumer], role)
        stall = int(self.view.code.stall[producer])
        if kind == "RAW" and consumer == producer + 1 and age == needed == stall and needed > 1:
            self.found.append(producer)

    def pending(self, kind: str, producer: int, consumer: int, cover: int) -> None:
        del kind, producer, consumer, cover

    def early_wait(self, scoreboard: int, consumer: int, age: int) -> None:
        del scoreboard, consumer, age


def short_stall(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A stall one too short."""
    tight = _Tight(bench.view, [])
    program = bench.program
    Pipeline(bench.view, timing_of(bench.view), program.graph).observe(tight)
    for i in sorted(set(tight.found)):
        stall = control(bench.words[i], "stall") - 1
        yield i, bench.with_word(i, with_control(bench.words[i], stall=stall))


def behind_barrier(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """Memory touched one cycle before a barrier in front of it has taken effect."""
    timing = timing_of(bench.view)
    for i, needed in enumerate(timing.sync[:-1]):
        stall = int(bench.view.code.stall[i])
        if needed > 1 and stall >= needed and timing.minds_sync[i + 1]:
            yield i, bench.with_word(i, with_control(bench.words[i], stall=needed - 1, bit=0))


def overlap(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """Slots over the kernel's own shared memory, static or dynamic."""
    for i in range(60):
        low, _ = bench.words[i]
        is_base = bench.view.name[i] == "VIADD" and low >> 24 & 0xFF == bench.address
        if is_base and bench.original.static_shared_bytes:
            yield i, bench.with_word(i, with_field(bench.words[i], 32, 32, 0x400))
        if "shared" not in view_of("", bench.original.code, "sm_90").memory:
            continue
        if bench.view.name[i] == "LDC" and low >> 38 & 0xFFFF == 0x2C and low >> 24 & 0xFF == 255:
            yield i, bench.with_word(i, with_field(bench.words[i], 38, 16, 0x8))


def small_section(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A shared section that ends before the last slot."""
    size = bench.rewritten.static_shared_bytes - 256
    yield 0, replace(bench.rewritten, static_shared_bytes=size)


def few_registers(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A register count below what the code names."""
    count = highest_register(bench.view)
    yield 0, replace(bench.rewritten, registers_per_thread=count)


def no_lane(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """Addresses that two threads share."""
    for i in range(60):
        low, _ = bench.words[i]
        if bench.view.name[i] == "LOP3" and low >> 32 == 31:
            yield i, bench.with_word(i, with_field(bench.words[i], 32, 32, 15))


def no_rank(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """Addresses that ignore the block's rank in its cluster."""
    for i in range(60):
        high = bench.words[i][1]
        if bench.view.name[i] == "S2R" and high >> 8 & 0xFF == 0x88:
            yield i, bench.with_word(i, with_field(bench.words[i], 72, 8, 0x25))


def illegal_order(bench: Bench) -> Iterator[tuple[int, Kernel]]:
    """A reader in front of the neighbour whose result it reads; both wait long enough."""
    matched = set(bench.matched())
    for i in sorted(matched):
        if i + 1 not in matched or {bench.view.control[i], bench.view.control[i + 1]} != {"none"}:
            continue
        read = {*bench.view.reads[i + 1], bench.view.guard[i + 1]}
        entered = any(i + 1 in targets for targets in bench.program.flow.targets)
        if entered or not read & set(bench.view.writes[i]) or not bench.is_read(i + 1):
            continue
        pair = [with_control(bench.words[k], wait=63, stall=15, bit=0, reuse=0) for k in (i + 1, i)]
        code = bytearray(bench.rewritten.code)
        for place, word in zip((i, i + 1), pair, strict=True):
            struct.pack_into("<QQ", code, 16 * place, *word)
        yield i, replace(bench.rewritten, code=bytes(code))


KINDS: tuple[Kind, ...] = (
    short_stall,
    missing_wait,
    missing_scoreboard,
    early_wait,
    behind_barrier,
    wrong_slot,
    store_to_wrong_slot,
    zero_stored,
    misaligned_slot,
    dropped_store,
    dropped_load,
    lost_spill,
    conditional_store,
    clobbered_register,
    wrong_source,
    wrong_destination,
    swapped_operands,
    flipped_guard,
    changed_immediate,
    wrong_branch,
    overlap,
    small_section,
    few_registers,
    no_lane,
    no_rank,
    illegal_order,
)


def faults(bench: Bench, per_kind: int, seed: int = 1) -> Iterator[Fault]:
    """Up to `per_kind` faults of every kind, chosen at random but reproducibly."""
    for kind in KINDS:
        chosen = list(kind(bench))
        random.Random(f"{seed} {kind.__name__} {bench.original.name}").shuffle(chosen)
        for i, kernel in chosen[:per_kind]:
            yield Fault(kind.__name__, 16 * i, kernel)


def main() -> int:
    """Plant, check and count."""
    per_kind = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    planted: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    tests = Path(__file__).parent.parent
    files = (tests / "check/data/kernels.cubin", tests / "transform/data/spills.cubin")
    kernels = [k for file in files for k in Cubin.parse(file.read_bytes()).kernels]
    for kernel in kernels:
        bench = Bench.of(kernel)
        correct = check_pair(kernel, bench.rewritten, threads=THREADS)
        if correct.findings:
            print(f"{kernel.name}: the correct rewrite is rejected: {correct.findings[0]}")
            return 1
        for fault in faults(bench, per_kind):
            planted[fault.kind] += 1
            verdict = check_pair(kernel, fault.kernel, threads=THREADS)
            caught[fault.kind] += verdict.verdict == "rejected"
            if verdict.verdict != "rejected":
                print(f"accepted: {fault.kind} in {kernel.name} at 0x{fault.offset:x}")
    for kind, count in planted.items():
        print(f"{kind:22} {caught[kind]:4} of {count:4}")
    total, found = sum(planted.values()), sum(caught.values())
    print(f"{found} of {total} faults in {len(kernels)} kernels caught")
    return 0 if found == total else 1


if __name__ == "__main__":
    sys.exit(main())
