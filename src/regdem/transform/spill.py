"""Places the loads and stores of demoted live ranges.

A demoted value is stored after each definition and loaded before the uses that need it. Between, it
leaves its register at the *hot* instructions: those at which more values are live than registers
are allowed. Elsewhere it stays, so that one load serves neighbouring uses and an idle range that
crosses a hot region costs one store and one load in all.

Method, for one value: a forward dataflow says where the register still holds it (meet: and); a use
where it does not gets a load in front. A backward dataflow over the slot drops stores that no load
reads.

- A store behind a variable-latency definition (a global load) would wait for it and destroy
  memory-level parallelism: it goes where the original code first waits for that definition, or
  (`early`) no later than the first hot instruction, where too many loads are under way at once.
- A guarded definition may leave the old value in place, so it counts as a use; it is stored under
  its guard, or unguarded if the instruction overwrites its own guard.
- Where a definition gives zero, zero is stored, not its result: nothing waits for it.
- A recomputed value (`recompute`) has no slot: its load is a copy of its one definition.

Not moved: values in registers that device functions touch may be demoted as whole registers only;
every call and return then counts as a use of the slot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.bits import FILE_BASE
from regdem.analysis.liveness import Liveness
from regdem.isa.control import MAX_STALL
from regdem.isa.decoded import RegisterFile
from regdem.isa.encode import ALWAYS, RZ, Guard, Word, nop
from regdem.isa.fields import get_field, set_field
from regdem.program.program import Program
from regdem.transform.latencies import FIXED_LATENCY_CYCLES

LOAD_CYCLES = 32
"""What a load from shared memory takes, and a little: no load needs to stand earlier."""
STORE_CYCLES = 8
"""What a store waits for the result of arithmetic: no store needs to stand later."""


_STORE_DATA_BIT = 32
_MOV_REGISTER = 0x202
_SRZ = 0xFF


@dataclass(frozen=True)
class Access:
    """A value to demote: its register and the instructions that read and write it."""

    register: int
    reads: frozenset[int]
    writes: frozenset[int]
    points: int
    """Where it is live, as `Web.points`."""
    touched_by_calls: bool = False
    early: bool = False
    """Store a value under way at the first hot instruction rather than where it is waited for."""
    words: int = 1
    """Registers: 2 for a 64-bit value, whose low half `register` names."""


@dataclass
class Placement:
    """Where one value is loaded (before an instruction) and stored.

    `stores` maps a definition to (position, after): after it, or before instruction `position`.
    """

    loads: set[int] = field(default_factory=lambda: set[int]())
    stores: dict[int, tuple[int, bool]] = field(
        default_factory=lambda: dict[int, tuple[int, bool]]()
    )
    unguarded: set[int] = field(default_factory=lambda: set[int]())
    hoisted: dict[int, int] = field(default_factory=lambda: dict[int, int]())
    """Loads that stand earlier than right in front of their use: use -> instruction."""


def place(
    program: Program,
    live: Liveness,
    value: Access,
    hot: Sequence[bool] | NDArray[np.bool_],
    *,
    store: bool = True,
) -> Placement:
    """Decides all loads and stores of one value; see the module's text.

    `hot` (n,): where it may leave its register.
    """
    result = Placement()
    busy = store_positions(program, live, value, result, hot) if store else {}
    reads = set(value.reads) | keeps_old(program, live, value)
    touched = touched_blocks(program, value.points)
    steps = _steps(program, value, reads, touched, hot)

    def walk(b: int, available: bool, note: Callable[[int], None] | None) -> bool:
        until = -1
        at = program.blocks[b].start
        for i, last_hot in steps[b]:
            if last_hot >= at and last_hot >= until:
                available = False
            if i in reads:
                if not available and note is not None:
                    note(i)
                available = True
            if i in value.writes:
                available = True
                until = max(until, busy.get(i, i))
            if value.touched_by_calls and i in program.callee:
                available = False
            at = i + 1
        return available

    through = {b: (walk(b, False, None), walk(b, True, None)) for b in touched}
    absent = _absent_at_entries(program, through)
    for b in touched:
        walk(b, b not in absent, result.loads.add)
    if store:
        _drop_dead_stores(program, live, value, result)
    return result


def _absent_at_entries(program: Program, through: dict[int, tuple[bool, bool]]) -> set[int]:
    """Of the blocks in which a value is live, those it enters without its register.

    `through[b]`: whether the register holds it at the end of block b, if it does not and if it does
    at the start. It comes from no other block.
    """
    work = [int(program.block_of[f.start]) for f in program.functions]
    work = [b for b in work if b in through]
    for b, (_, held) in through.items():
        if not held:
            work += program.blocks[b].successors
        if any(p not in through for p in program.blocks[b].predecessors):
            work.append(b)
    absent: set[int] = set()
    while work:
        b = work.pop()
        if b in through and b not in absent:
            absent.add(b)
            if not through[b][0]:
                work += program.blocks[b].successors
    return absent


def touched_blocks(program: Program, points: int) -> list[int]:
    """The blocks, ascending, in which a live range (as `Web.points`) holds a register."""
    if not points:
        return []
    first = int(program.block_of[((points & -points).bit_length() - 1) // 2])
    last = int(program.block_of[(points.bit_length() - 1) // 2])
    if first == last:
        return [first]
    starts = 2 * (program.block_starts[first : last + 1] - program.block_starts[first])
    trimmed = points >> 2 * int(program.block_starts[first])
    data = np.frombuffer(trimmed.to_bytes(trimmed.bit_length() // 8 + 1, "little"), dtype=np.uint8)
    held = np.maximum.reduceat(np.unpackbits(data, bitorder="little"), starts)
    result: list[int] = (first + held.nonzero()[0]).tolist()
    return result


def _steps(
    program: Program,
    value: Access,
    reads: set[int],
    touched: Sequence[int],
    hot: Sequence[bool] | NDArray[np.bool_],
) -> dict[int, list[tuple[int, int]]]:
    """What happens to a value in each of its blocks, in order: an instruction, and the last hot one
    before it (-1: none); (-1, the same) for the block's end."""
    steps: dict[int, list[tuple[int, int]]] = {b: [] for b in touched}
    if not touched:
        return steps
    start, end = program.blocks[touched[0]].start, program.blocks[touched[-1]].end
    window = np.asarray(hot[start:end], dtype=np.bool_)
    hot_places: list[int] = [-1, *(window.nonzero()[0] + start).tolist()]
    at = reads | value.writes
    if value.touched_by_calls:
        at |= set(program.callee)
    for i in sorted(at):
        mine = steps.get(int(program.block_of[i]))
        if mine is not None:
            mine.append((i, hot_places[bisect_left(hot_places, i) - 1]))
    for b, mine in steps.items():
        mine.append((-1, hot_places[bisect_left(hot_places, program.blocks[b].end) - 1]))
    return steps


def keeps_old(program: Program, live: Liveness, value: Access) -> set[int]:
    """Guarded definitions that leave an old value in place where the guard is false: they read it.

    Not those before which nothing is live in the register.
    """
    return {
        i
        for i in value.writes
        if program.code.guard[i] != 7 and (live.before[i] >> value.register) & 1
    }


def store_positions(
    program: Program,
    live: Liveness,
    value: Access,
    result: Placement,
    hot: Sequence[bool] | NDArray[np.bool_],
) -> dict[int, int]:
    """Fills `result.stores`; returns per definition the instruction its value must stay up to."""
    code = program.code
    busy: dict[int, int] = {}
    predicate_base = FILE_BASE[RegisterFile.PRED]
    for i in sorted(value.writes):
        guard = int(code.guard[i])
        bit = 1 << (predicate_base + guard)
        block = program.blocks[int(program.block_of[i])]
        if guard != 7 and live.defs[i] & bit:
            result.unguarded.add(i)
        position, after = i, True
        if code.table.variable_latency[code.form[i]] and i < block.end - 1:
            board = _covering_scoreboard(program, i, block.end)
            for j in range(i + 1, block.end):
                stop = (
                    (board < 6 and (int(code.wait_mask[j]) >> board) & 1)
                    or (value.early and hot[j])
                    or j in value.reads
                    or j in value.writes
                    or (guard != 7 and live.defs[j] & bit)
                    or j == block.end - 1
                )
                if stop:
                    position, after = j, False
                    break
        result.stores[i] = (position, after)
        busy[i] = position
    return busy


def _covering_scoreboard(program: Program, i: int, end: int) -> int:
    """The scoreboard that tells of instruction `i`: its own, or that of its in-order successor."""
    code = program.code
    forms = code.table.forms
    kind = forms[int(code.form[i])].latency
    for j in range(i, end):
        if forms[int(code.form[j])].latency == kind and code.write_scoreboard[j] < 6:
            return int(code.write_scoreboard[j])
    return 7


def _drop_dead_stores(program: Program, live: Liveness, value: Access, result: Placement) -> None:
    """Drops stores whose slot no load reads before the next store, unguarded or under the same
    guard."""
    code = program.code
    predicate_base = FILE_BASE[RegisterFile.PRED]
    stores_at: dict[tuple[int, bool], list[int]] = {}
    for i, where in result.stores.items():
        stores_at.setdefault(where, []).append(i)

    old = keeps_old(program, live, value)
    positions = {at for at, _ in stores_at} | result.loads
    touched = {int(program.block_of[at]) for at in positions}

    def kills(i: int) -> bool:
        return code.guard[i] == 7 or i in result.unguarded or i not in old

    def condition(i: int) -> tuple[int, bool] | None:
        guard = int(code.guard[i])
        always = guard == 7 or i in result.unguarded
        return None if always else (guard, bool(code.guard_negated[i]))

    in_block: dict[int, list[int]] = {b: [] for b in touched}
    for at in sorted(positions, reverse=True):
        in_block[int(program.block_of[at])].append(at)

    def walk(b: int, needed: bool, drop: set[int] | None) -> bool:
        if _calls_or_returns(b):
            needed = True
        covered: tuple[int, bool] | None = None  # where this holds, a later store overwrites
        below = 0
        for j in in_block[b]:
            if covered and _written(covered[0], range(j + 1, below)):
                covered = None
            for where in ((j, True), (j, False)):
                if not where[1]:
                    if covered and _written(covered[0], (j,)):
                        covered = None
                    if j in result.loads:
                        # The load stands between the store in front of j and j itself.
                        needed, covered = True, None
                for i in stores_at.get(where, ()):
                    under = condition(i)
                    dead = not needed or (under is not None and under == covered)
                    if dead and drop is not None:
                        drop.add(i)
                    if kills(i):
                        needed = False
                    elif under is not None:
                        covered = under
            below = j
        return needed

    def _written(predicate: int, instructions: Iterable[int]) -> bool:
        bit = 1 << (predicate_base + predicate)
        return any(live.defs[j] & bit for j in instructions)

    def _calls_or_returns(b: int) -> bool:
        end = program.control[program.blocks[b].end - 1]
        return value.touched_by_calls and end in ("return", "call")

    through = {b: (walk(b, False, None), walk(b, True, None)) for b in touched}
    everywhere = range(len(program.blocks)) if value.touched_by_calls else ()
    needed_in = needed_at_entries(program, through, filter(_calls_or_returns, everywhere))
    drop: set[int] = set()
    for b in touched:
        walk(b, any(s in needed_in for s in program.blocks[b].successors), drop)
    for i in drop:
        del result.stores[i]


def needed_at_entries(
    program: Program, through: dict[int, tuple[bool, bool]], always: Iterable[int] = ()
) -> set[int]:
    """The blocks at whose entry something is needed, backward over the flow graph.

    `through[b]`: whether it is needed at the entry of block b where it is not, and where it is
    needed at the block's end; blocks that are not named pass it on, those of `always` need it.
    """
    work = [b for b, (alone, _) in through.items() if alone]
    work += [b for b in always if b not in through]
    needed = set(work)
    while work:
        for p in program.blocks[work.pop()].predecessors:
            if p not in needed and through.get(p, (True, True))[1]:
                needed.add(p)
                work.append(p)
    return needed


def sink(
    program: Program,
    live: Liveness,
    value: Access,
    placement: Placement,
    away: Sequence[bool] | NDArray[np.bool_],
    room: list[int],
) -> None:
    """Moves stores down within their blocks, so that they don't wait for what they store.

    `away[j]`: whether the value may have left its register at instruction j; staying on there takes
    a free register. `room` is as in `hoist`.
    """
    code = program.code
    predicate_base = FILE_BASE[RegisterFile.PRED]
    for i, (_, after) in sorted(placement.stores.items()):
        if not after or _padding(program, i) or _is_zero(program, i):
            continue
        guard = int(code.guard[i])
        bit = 1 << (predicate_base + guard) if guard != 7 else 0
        last = program.blocks[int(program.block_of[i])].end - 1
        j, cycles = i + 1, max(1, int(code.stall[i]))
        while j < last and cycles < STORE_CYCLES:
            if j in value.reads or j in value.writes or live.defs[j] & bit:
                break
            if away[j] and room[j] < value.words:
                break
            if away[j]:
                room[j] -= value.words
            cycles += max(1, int(code.stall[j]))
            j += 1
        if j > i + 1:
            placement.stores[i] = (j, False)


def hoist(program: Program, value: Access, placement: Placement, room: list[int]) -> None:
    """Moves loads up within their blocks, to hide their latency where registers are free.

    `room[j]`: registers still free at instruction j; what is used is taken off. In its own live
    range a value's register holds nothing else, so that only its own accesses stop the way up.
    """
    stall = program.code.stall
    stores = set(placement.stores.values())
    for i in sorted(placement.loads):
        start = program.blocks[int(program.block_of[i])].start
        at, cycles = i, 0
        while at > start and cycles < LOAD_CYCLES:
            j = at - 1
            stored = (at, False) in stores or (j, True) in stores
            if j in value.reads or j in value.writes or room[j] < value.words or stored:
                break
            at = j
            cycles += max(1, int(stall[j]))
        for j in range(at, i):
            room[j] -= value.words
        if at != i:
            placement.hoisted[i] = at


def insertions(
    program: Program,
    placement: Placement,
    load: Word,
    store: Callable[[Guard], Word] | None,
    before: dict[int, list[Word]],
    after: dict[int, list[Word]],
) -> tuple[int, int]:
    """Adds one value's instructions to an edit; returns (loads, stores) added."""
    code = program.code
    if store is not None:
        for i, (position, behind) in sorted(placement.stores.items()):
            guard = ALWAYS
            if i not in placement.unguarded and code.guard[i] != 7:
                guard = Guard(int(code.guard[i]), bool(code.guard_negated[i]))
            lo, hi = store(guard)
            if _is_zero(program, i):
                lo, hi = set_field(lo, hi, _STORE_DATA_BIT, 8, RZ)
            if behind:
                after.setdefault(position, []).extend([*_padding(program, i), (lo, hi)])
            else:
                # In front of any load that was put there: the slot must be written first.
                before.setdefault(position, []).insert(0, (lo, hi))
    for i in sorted(placement.loads):
        before.setdefault(placement.hoisted.get(i, i), []).append(load)
    return len(placement.loads), len(placement.stores) if store else 0


def _is_zero(program: Program, i: int) -> bool:
    """Whether instruction `i` always gives zero (`CS2R R, SRZ` or `MOV R, RZ`)."""
    lo, hi = program.code.word(i)
    name = program.code.table.forms[int(program.code.form[i])].name
    if name == "CS2R":
        return get_field(lo, hi, 72, 8) == _SRZ
    return name == "MOV" and lo & 0xFFF == _MOV_REGISTER and get_field(lo, hi, 32, 8) == RZ


def _padding(program: Program, i: int) -> list[Word]:
    """NOPs that a store needs behind a result that takes longer than one stall count can say."""
    if _is_zero(program, i):
        return []
    form = program.code.table.forms[int(program.code.form[i])]
    late = 0 if form.variable_latency else FIXED_LATENCY_CYCLES.get(form.latency, 0)
    return [nop(MAX_STALL)] * (max(0, late - 1) // MAX_STALL)
