"""Control bits for rewritten code: what inserted instructions and renamed registers now need.

ptxas's own bits stay. A value that an original instruction reads from an original one was safe
before, and inserting instructions only lengthens distances, so such pairs are left alone. Looked
after are

- read-after-write where the writer or the reader was inserted,
- write-after-write and write-after-read everywhere, since registers have changed hands,
- the rule that an instruction that sets a scoreboard is at least 2 cycles before one that waits on it.

A forward dataflow over the graph keeps, per scoreboard, the registers whose write or late read it
covers; variable-latency accesses without a scoreboard (ptxas marks only the last of a group of
in-order loads); and the cycles until each fixed-latency result is ready. Where a need is not met
the mend is, in this order: a bit in the wait mask, a scoreboard for the access that has none, a
longer stall. Each mend only adds waiting, so repeating to the fixpoint ends.

Scoreboards are counters and a wait is for zero: sharing one costs time, never correctness, except
for one that a DEPBAR counts down on, which is never shared. Latencies are conservative bounds; the
checker has its own, mined from ptxas's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regdem.analysis.bits import FILE_MASK, def_masks, members, use_masks
from regdem.errors import UnsupportedError
from regdem.isa.control import MAX_STALL, SCOREBOARDS, ControlWord, get_control, set_control
from regdem.isa.decoded import NO_SCOREBOARD, RegisterFile
from regdem.program.edit import Word
from regdem.program.program import Program

FIXED_LATENCY_CYCLES = {
    "alu": 7, "fma": 7, "imad": 7, "imad_wide": 11, "half": 8, "half_mma": 11, "fp64": 14,
    "cs2r": 26, "mma": 36, "gmma": 40, "fp64_mma": 40, "uniform": 13, "r2ur": 13, "control": 13,
}  # fmt: skip
"""Cycles from issue until any consumer may read (at or above the least seen in ptxas code)."""
_WRITE_ORDER_SLACK = 4
_MULTI_PASS_READ_CYCLES = 10
_GPR = FILE_MASK[RegisterFile.GPR]
_LONG = ("memory_global", "memory_generic", "memory_local", "memory_texture", "memory_surface")


@dataclass
class _State:
    """What is outstanding at a point; all masks are GPR masks."""

    writes: list[int]  # per scoreboard
    reads: dict[tuple[int, int], int]  # (read, write scoreboard) -> registers still being read
    open_writes: dict[str, int]  # latency class -> registers written with no scoreboard
    open_reads: int
    inserted: int  # registers whose pending write is by an inserted instruction
    ready: dict[int, int]  # register -> cycles until a fixed-latency result is there
    busy_reads: dict[int, int]  # register -> cycles a matrix instruction still reads it
    writers: dict[int, frozenset[int]]  # register -> instructions of its open writes
    readers: dict[int, frozenset[int]]

    @staticmethod
    def empty() -> _State:
        return _State([0] * SCOREBOARDS, {}, {}, 0, 0, {}, {}, {}, {})

    def copy(self) -> _State:
        return _State(
            list(self.writes), dict(self.reads), dict(self.open_writes), self.open_reads,
            self.inserted, dict(self.ready), dict(self.busy_reads), dict(self.writers),
            dict(self.readers),
        )  # fmt: skip

    def join(self, other: _State) -> bool:
        """Takes over what is outstanding in `other`; whether anything was new."""
        changed = False
        for k, mask in enumerate(other.writes):
            if mask & ~self.writes[k]:
                self.writes[k] |= mask
                changed = True
        for mine, theirs in ((self.reads, other.reads), (self.open_writes, other.open_writes)):
            for key, mask in theirs.items():  # type: ignore[attr-defined]
                if mask & ~mine.get(key, 0):  # type: ignore[call-overload]
                    mine[key] = mine.get(key, 0) | mask  # type: ignore[index,call-overload]
                    changed = True
        if other.open_reads & ~self.open_reads or other.inserted & ~self.inserted:
            self.open_reads |= other.open_reads
            self.inserted |= other.inserted
            changed = True
        for mine, theirs in ((self.ready, other.ready), (self.busy_reads, other.busy_reads)):
            for register, cycles in theirs.items():
                if cycles > mine.get(register, 0):
                    mine[register] = cycles
                    changed = True
        for mine, theirs in ((self.writers, other.writers), (self.readers, other.readers)):
            for register, who in theirs.items():
                if not who <= mine.get(register, frozenset()):
                    mine[register] = mine.get(register, frozenset()) | who
                    changed = True
        return changed


class _Repair:
    def __init__(self, program: Program, inserted: Sequence[bool]) -> None:
        code = program.code
        self.program = program
        self.inserted = inserted
        self.uses = [m & _GPR for m in use_masks(code)]
        self.defs = [m & _GPR for m in def_masks(code)]
        forms = code.table.forms
        self.latency = [forms[f].latency for f in code.form.tolist()]
        self.variable = code.table.variable_latency[code.form].tolist()
        self.multi_pass = code.table.multi_pass[code.form].tolist()
        self.control = [get_control(int(hi)) for hi in code.words[:, 1].tolist()]
        self.reserved = self._counted_scoreboards()
        self.changed = False

    def _counted_scoreboards(self) -> int:
        """Scoreboards that a DEPBAR counts down on (bits 44 to 46), as a mask."""
        mask = 0
        code = self.program.code
        for i, form in enumerate(code.form.tolist()):
            if code.table.forms[form].name == "DEPBAR":
                mask |= 1 << ((int(code.words[i, 0]) >> 44) & 7)
        return mask

    # -- scoreboards ------------------------------------------------------------------------

    def choose(self, i: int) -> int:
        """A scoreboard for instruction `i`: one that nothing slow uses nearby."""
        block = self.program.blocks[self.program.block_of[i]]
        cost = [0.0] * SCOREBOARDS
        busy = self.busy_at.get(i)
        for k in range(SCOREBOARDS):
            if (self.reserved >> k) & 1:
                cost[k] = float("inf")
            elif busy is not None and busy[k]:
                cost[k] += 200.0 if busy[k] > 1 else 20.0
        for j in range(i + 1, min(block.end, i + 24)):
            c = self.control[j]
            near = 24.0 / (j - i + 4)
            for k in (c.write_scoreboard, c.read_scoreboard):
                if k < SCOREBOARDS:
                    cost[k] += near * (8.0 if self.latency[j] in _LONG else 1.0)
        best = min(range(SCOREBOARDS), key=lambda k: (cost[k], k))
        if cost[best] == float("inf"):
            raise UnsupportedError(
                "no scoreboard is free of counted waits",
                code="no_scoreboard",
                kernel=self.program.name,
                offset=16 * i,
            )
        return best

    def give_write_scoreboard(self, i: int) -> None:
        if self.control[i].write_scoreboard == NO_SCOREBOARD:
            self.control[i] = replace(self.control[i], write_scoreboard=self.choose(i))
            self.changed = True

    def give_read_scoreboard(self, i: int) -> None:
        if self.control[i].read_scoreboard == NO_SCOREBOARD:
            self.control[i] = replace(self.control[i], read_scoreboard=self.choose(i))
            self.changed = True

    def raise_stall(self, i: int, cycles: int) -> int:
        """Lengthens the stall of `i`; returns what did not fit."""
        c = self.control[i]
        stall = min(MAX_STALL, c.stall + cycles)
        if stall != c.stall:
            self.control[i] = replace(c, stall=stall)
            self.changed = True
        return cycles - (stall - c.stall)

    # -- dataflow ---------------------------------------------------------------------------

    def note_busy(self) -> None:
        """Per instruction and scoreboard: 0 idle, 1 short, 2 long latency outstanding."""
        blocks = self.program.blocks
        state: list[tuple[int, ...] | None] = [None] * len(blocks)
        entry = [0] + [int(self.program.block_of[f.start]) for f in self.program.functions]
        for b in entry:
            state[b] = (0,) * SCOREBOARDS
        work = sorted(set(entry))
        self.busy_at: dict[int, tuple[int, ...]] = {}
        while work:
            b = work.pop()
            now = list(state[b] or (0,) * SCOREBOARDS)
            for i in range(blocks[b].start, blocks[b].end):
                c = self.control[i]
                for k in range(SCOREBOARDS):
                    if (c.wait_mask >> k) & 1:
                        now[k] = 0
                self.busy_at[i] = tuple(now)
                level = 2 if self.latency[i] in _LONG else 1
                if c.write_scoreboard < SCOREBOARDS:
                    now[c.write_scoreboard] = max(now[c.write_scoreboard], level)
                if c.read_scoreboard < SCOREBOARDS:
                    now[c.read_scoreboard] = max(now[c.read_scoreboard], 1)
            for s in blocks[b].successors:
                old = state[s]
                new = tuple(now) if old is None else tuple(map(max, old, now))
                if new != old:
                    state[s] = new
                    work.append(s)

    def step(self, i: int, state: _State) -> None:
        """Advances `state` over instruction `i`."""
        c = self.control[i]
        if c.wait_mask:
            for k in range(SCOREBOARDS):
                if (c.wait_mask >> k) & 1:
                    state.writes[k] = 0
            state.reads = {
                key: mask
                for key, mask in state.reads.items()
                if not any(k < 6 and (c.wait_mask >> k) & 1 for k in key)
            }
        uses, defs = self.uses[i], self.defs[i]
        if self.variable[i]:
            if uses:
                if c.read_scoreboard < 6 or c.write_scoreboard < 6:
                    key = (c.read_scoreboard, c.write_scoreboard)
                    state.reads[key] = state.reads.get(key, 0) | uses
                else:
                    state.open_reads |= uses
                    for r in members(uses):
                        state.readers[r] = state.readers.get(r, frozenset()) | {i}
            kind = self.latency[i]
            if c.write_scoreboard < 6:
                covered = state.open_writes.pop(kind, 0)
                state.writes[c.write_scoreboard] |= defs | covered
                for r in members(covered):
                    state.writers.pop(r, None)
            elif defs:
                state.open_writes[kind] = state.open_writes.get(kind, 0) | defs
                for r in members(defs):
                    state.writers[r] = frozenset({i})
        else:
            cycles = FIXED_LATENCY_CYCLES.get(self.latency[i], 13)
            for r in members(defs):
                state.ready[r] = cycles
            if self.multi_pass[i]:
                for r in members(uses):
                    state.busy_reads[r] = _MULTI_PASS_READ_CYCLES
        state.inserted = state.inserted | defs if self.inserted[i] else state.inserted & ~defs
        passed = max(1, c.stall)
        state.ready = {r: t - passed for r, t in state.ready.items() if t > passed}
        state.busy_reads = {r: t - passed for r, t in state.busy_reads.items() if t > passed}

    def mend(self, i: int, state: _State) -> None:
        """Adds what instruction `i` needs in `state`."""
        uses, defs = self.uses[i], self.defs[i]
        fresh = uses if self.inserted[i] else uses & state.inserted
        need = 0
        for k in range(SCOREBOARDS):
            if state.writes[k] & (fresh | defs):
                need |= 1 << k
        kind = self.latency[i]
        for other, mask in state.open_writes.items():
            late = mask & (fresh | (defs if other != kind else 0))
            for r in members(late):
                for writer in state.writers.get(r, ()):
                    self.give_write_scoreboard(writer)
        for (read, write), mask in state.reads.items():
            if mask & defs:
                need |= 1 << (read if read < 6 else write)
        for r in members(state.open_reads & defs):
            for reader in state.readers.get(r, ()):
                if reader != i:
                    self.give_read_scoreboard(reader)
        if need & ~self.control[i].wait_mask:
            mask = self.control[i].wait_mask | need
            self.control[i] = replace(self.control[i], wait_mask=mask)
            self.changed = True
        late_cycles = 0
        for r, t in state.ready.items():
            bit = 1 << r
            if bit & fresh:
                late_cycles = max(late_cycles, t)
            if bit & defs:
                late_cycles = max(late_cycles, t - _WRITE_ORDER_SLACK)
        for r, t in state.busy_reads.items():
            if (1 << r) & defs:
                late_cycles = max(late_cycles, t)
        if late_cycles > 0:
            self.delay(i, late_cycles)

    def delay(self, i: int, cycles: int) -> None:
        """Makes instruction `i` issue `cycles` later, whatever path leads to it."""
        block = self.program.blocks[self.program.block_of[i]]
        self._lengthen(block.index, i, cycles, frozenset())

    def _lengthen(self, b: int, end: int, cycles: int, seen: frozenset[int]) -> None:
        """Adds `cycles` of stall before instruction `end` of block `b`, and before that."""
        block = self.program.blocks[b]
        for j in range(end - 1, block.start - 1, -1):
            cycles = self.raise_stall(j, cycles)
            if cycles <= 0:
                return
        if b in seen or not block.predecessors:
            raise UnsupportedError(
                "a result is not ready in time and no stall can cover it",
                code="latency",
                kernel=self.program.name,
                offset=16 * end,
            )
        for p in block.predecessors:
            self._lengthen(p, self.program.blocks[p].end, cycles, seen | {b})

    def round(self) -> None:
        """One dataflow to the fixpoint, then one pass of mends."""
        blocks = self.program.blocks
        states: list[_State | None] = [None] * len(blocks)
        entry = sorted({int(self.program.block_of[f.start]) for f in self.program.functions})
        for b in entry:
            states[b] = _State.empty()
        self._seed_calls(states)
        work = [b.index for b in blocks if states[b.index] is not None]
        while work:
            b = work.pop()
            state = states[b]
            assert state is not None
            state = state.copy()
            for i in range(blocks[b].start, blocks[b].end):
                self.step(i, state)
            for s in self._successors(b):
                known = states[s]
                if known is None:
                    states[s] = state.copy()
                    work.append(s)
                elif known.join(state) and s not in work:
                    work.append(s)
        self.note_busy()
        for b, state in enumerate(states):
            if state is None:
                continue
            now = state.copy()
            for i in range(blocks[b].start, blocks[b].end):
                self.mend(i, now)
                self.step(i, now)

    def _seed_calls(self, states: list[_State | None]) -> None:
        """Blocks after calls have states through the returns; see `_successors`."""

    def _successors(self, b: int) -> list[int]:
        """Successors for hazards: also from a call into the callee, from a return to its sites."""
        program = self.program
        block = program.blocks[b]
        result = list(block.successors)
        last = block.end - 1
        if last in program.callee:
            start = program.functions[program.callee[last]].start
            result.append(int(program.block_of[start]))
        if program.control[last] == "return":
            for site in program.calls_by_function[block.function]:
                result.append(int(program.block_of[site + 1]))
        return result

    def two_cycle_rule(self) -> None:
        """A setter of a scoreboard stands at least 2 cycles before a waiter on it."""
        for block in self.program.blocks:
            nexts = [(i, i + 1) for i in range(block.start, block.end - 1)]
            nexts += [(block.end - 1, self.program.blocks[s].start) for s in self._successors(
                block.index)]  # fmt: skip
            for i, j in nexts:
                c = self.control[i]
                waits = self.control[j].wait_mask
                if c.stall < 2 and any(
                    k < 6 and (waits >> k) & 1 for k in (c.write_scoreboard, c.read_scoreboard)
                ):
                    self.control[i] = replace(c, stall=2)
                    self.changed = True


def repair(program: Program, inserted: Sequence[bool]) -> list[Word]:
    """The words of `program` with control bits that cover every hazard an edit may have made.

    `inserted[i]` says that instruction i is not of the original. Raises `UnsupportedError` where no
    legal control word does it.
    """
    work = _Repair(program, inserted)
    work.note_busy()
    for i, new in enumerate(inserted):
        if new and work.variable[i] and work.defs[i]:
            work.give_write_scoreboard(i)
            work.note_busy()
    for _ in range(64):
        work.changed = False
        work.round()
        work.two_cycle_rule()
        if not work.changed:
            break
    else:
        raise UnsupportedError(
            "control bits do not settle", code="hazards_unsettled", kernel=program.name
        )
    return [
        (int(lo), set_control(int(hi), c))
        for (lo, hi), c in zip(program.code.words.tolist(), work.control, strict=True)
    ]


def control_of(word: Word) -> ControlWord:
    """The control word of an encoded instruction."""
    return get_control(word[1])
