"""When one warp issues each instruction of a block, in any order of its segments.

Values, not registers, are what dependences are between: webs of the general registers
(`analysis/webs.py`), numbered 0, 1, ...; registers of the other files, which are not renamed, have
negative numbers. An instruction issues when

- the one before it has issued, and its pipe is free: ptxas never issues sooner, and what it never
  does is not done here (`PIPES`: counted in 200 builds of whole kernels);
- the fixed-latency results it reads are there, by the mined table (`machine/latency.py`);
- with `late`, the variable-latency ones are there too, at typical latencies.

Without `late` the times are what stall counts must guarantee; with it, what a warp would take.

At a block's border: results that may be on their way when it begins are found by a forward dataflow
over the stall counts of the original order, as upper bounds (`entry`). A reader needs no more
distance from the start than it had, or than that bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from regdem.analysis.bits import FILE_BASE, FILE_MASK, def_masks, members, use_masks
from regdem.analysis.forms import forms_of
from regdem.analysis.webs import Webs
from regdem.isa.decoded import NO_SCOREBOARD, RegisterFile, Role
from regdem.machine.latency import (
    OF_HIGH_HALF,
    WIDE_MULTIPLY,
    latency_table,
    minds_sync,
    reads_uniform_late,
    roles_of,
    sync_cycles,
)
from regdem.program.program import Program
from regdem.transform.latencies import FIXED_LATENCY_CYCLES, LATENCY_CYCLES, READ_CYCLES

PIPES = {
    "alu": ("alu", 2), "cs2r": ("alu", 2), "r2ur": ("alu", 2), "imad": ("fma", 2),
    "imad_wide": ("fma", 4), "fma": ("fma", 1), "half": ("fma", 2), "half_mma": ("half_mma", 2),
    "fp64": ("fp64", 2), "mma": ("mma", 6), "fp64_mma": ("mma", 16), "mufu": ("mufu", 8),
    "variable": ("mufu", 8), "memory_global": ("memory", 4), "memory_shared": ("memory", 4),
    "memory_local": ("memory", 4), "memory_generic": ("memory", 4), "shuffle": ("memory", 4),
    "memory_constant": ("constant", 8), "memory_other": ("memory", 4),
}  # fmt: skip
"""Pipe by latency class, and cycles for which an instruction takes it."""
_PIPE_OF_NAME = {"VIADD": ("fma", 2), "NOP": ("none", 1)}
LONGEST_FIXED_CYCLES = 48
_LEAST_BOUND_CYCLES = 14
"""A result may be asked for so many cycles later by an unknown consumer (a guard: 13)."""
_HORIZON_CYCLES = 600
_GUARD_BIT = 12
_OTHER_FILES = ~FILE_MASK[RegisterFile.GPR]
_SYNC = -1_000_000
"""The value that stands for a synchronisation's effect."""


@dataclass
class Entry:
    """What may be on its way when a block begins: cycles left, by value.

    `fixed`: upper bounds of fixed-latency results. `late`: typical ones of variable-latency
    results, on the way that is taken most often.
    """

    fixed: dict[int, int] = field(default_factory=dict[int, int])
    late: dict[int, int] = field(default_factory=dict[int, int])


class Clock:
    """One warp on its way through a block: when it could issue what, and what it has issued.

    `now`: when the next instruction may issue at the earliest.
    """

    def __init__(self, timeline: Timeline, block: int, late: bool) -> None:
        self._timeline = timeline
        self._entry = timeline.entry[block]
        self._late = late
        self._writers: dict[int, list[tuple[int, int]]] = {}
        self._readers: dict[int, int] = {}
        self._uniform_readers: dict[int, tuple[int, int]] = {}
        self._free: dict[str, int] = {}
        self._synced = 0
        self.now = 0

    def ready(self, i: int) -> int:
        """When what instruction `i` depends on is there, of what has been issued."""
        timeline, late = self._timeline, self._late
        variable = timeline.variable
        at = 0
        if timeline.minds_sync[i]:
            before = min(self._entry.fixed.get(_SYNC, 0), timeline.since[i])
            at = max(self._synced, before)
        for key, role in timeline.reads[i]:
            known = self._writers.get(key)
            if known is not None:
                for p, when in known:
                    if not variable[p]:
                        at = max(at, when + timeline.distance("RAW", p, i, role))
                    elif late:
                        at = max(at, when + timeline.late_cycles[p])
                if timeline.always[known[0][0]]:
                    continue
            left = self._entry.fixed.get(key, 0)
            if left > at:
                at = max(at, min(left, timeline.since[i]))
            if late:
                at = max(at, self._entry.late.get(key, 0))
        for key in timeline.writes[i]:
            for p, when in self._writers.get(key, ()):
                if not variable[p]:
                    at = max(at, when + timeline.distance("WAW", p, i, ""))
                elif late:
                    at = max(at, when + timeline.late_cycles[p])
            reader = self._uniform_readers.get(key)
            if reader is not None:
                at = max(at, reader[1] + timeline.distance("WAR", reader[0], i, ""))
            if late:
                at = max(at, self._readers.get(key, 0))
        return at

    def issue(self, i: int) -> int:
        """Issues instruction `i` as soon as it may; returns when."""
        timeline = self._timeline
        pipe, cycles = timeline.pipe[i]
        at = max(self.now, self._free.get(pipe, 0), self.ready(i))
        self._free[pipe] = at + cycles
        for key in timeline.writes[i]:
            if timeline.always[i]:
                self._writers[key] = [(i, at)]
            else:
                self._writers.setdefault(key, []).append((i, at))
            self._readers.pop(key, None)
        if timeline.reads_late[i]:
            self._uniform_readers.update((key, (i, at)) for key in timeline.uniforms[i])
        if timeline.variable[i]:
            for key, _ in timeline.reads[i]:
                if key >= 0:
                    self._readers[key] = at + READ_CYCLES
        if timeline.sync[i]:
            self._synced = at + timeline.sync[i]
        self.now = at + 1
        return at

    def free(self) -> dict[str, int]:
        """When each pipe that was used is free again."""
        return dict(self._free)


class Timeline:
    """What is known of a program's instructions, and the walks over its blocks.

    `reads[i]` are (value, role) of what instruction i reads, `writes[i]` the values it writes;
    `used[i]`, `defined[i]` the general registers by their numbers (masks). `bound_to[w]`: for webs
    that tuples bind to the same register as others, one of these.
    """

    def __init__(self, program: Program, webs: Webs) -> None:
        self.program = program
        code = program.code
        forms = forms_of(code)
        self.stall: list[int] = [max(1, s) for s in code.stall.tolist()]
        self.names = [f"{form.latency}:{form.name}" for form in forms]
        self.latency_class = [form.latency for form in forms]
        self.pipe = [
            _PIPE_OF_NAME.get(form.name) or PIPES.get(form.latency, ("none", 1)) for form in forms
        ]
        scoreboards = code.write_scoreboard.tolist()
        self.variable = [
            form.variable_latency or board != NO_SCOREBOARD
            for form, board in zip(forms, scoreboards, strict=True)
        ]
        self.reads_late = [reads_uniform_late(name) for name in self.names]
        self.sync = [sync_cycles(form.name) for form in forms]
        self.minds_sync = [minds_sync(form.latency) for form in forms]
        self.multi_pass = [form.multi_pass for form in forms]
        self.late_cycles = [LATENCY_CYCLES.get(form.latency, 26) for form in forms]
        self.bound = [
            max(FIXED_LATENCY_CYCLES.get(form.latency, 13), _LEAST_BOUND_CYCLES) for form in forms
        ]
        self.always: list[bool] = ((code.guard == 7) & ~code.guard_negated).tolist()
        self._table = latency_table(code.table.arch)
        self._distance: dict[tuple[str, str, str], int] = {}
        self.bound_to = _bound_to(webs)
        self._values(webs)
        self._measure()

    def _values(self, webs: Webs) -> None:
        code = self.program.code
        n = len(self.program)
        uses, defs = use_masks(code), def_masks(code)
        general = FILE_MASK[RegisterFile.GPR]
        self.used = [mask & general for mask in uses]
        self.defined = [mask & general for mask in defs]
        file: list[int] = code.operand_file.tolist()
        role: list[int] = code.operand_role.tolist()
        bit: list[int] = code.operand_bit.tolist()
        first: list[int] = code.operand_register.tolist()
        width: list[int] = code.operand_width.tolist()
        start: list[int] = code.operand_start.tolist()
        words: list[int] = code.words[:, 0].tolist()
        bases = [FILE_BASE[f] for f in RegisterFile]
        of_row = webs.of_row
        self.keys_of_row: list[tuple[int, ...]] = [()] * len(file)
        self.reads: list[list[tuple[int, str]]] = []
        self.uniforms: list[list[int]] = []
        low_uniform = FILE_BASE[RegisterFile.UGPR]
        end_uniform = low_uniform + FILE_MASK[RegisterFile.UGPR].bit_count()
        self.writes: list[tuple[int, ...]] = []
        for i in range(n):
            reads: list[tuple[int, str]] = []
            writes: dict[int, None] = {}
            for row in range(start[i], start[i + 1]):
                if file[row] == RegisterFile.GPR:
                    keys = of_row[row]
                else:
                    low = bases[file[row]] + first[row]
                    keys = tuple(-1 - r for r in range(low, low + width[row]))
                self.keys_of_row[row] = keys
                if role[row] & Role.READ:
                    roles = roles_of(words[i], file[row], bit[row], width[row])
                    if bit[row] == _GUARD_BIT:
                        roles = ["guard"] * width[row]
                    reads += zip(keys, roles, strict=True)
                if role[row] & Role.WRITE:
                    writes.update(dict.fromkeys(keys))
            # Registers named by no field of their own.
            known = {key for key, _ in reads}
            reads += [
                (-1 - r, "p77") for r in members(uses[i] & _OTHER_FILES) if -1 - r not in known
            ]
            writes.update(dict.fromkeys(-1 - r for r in members(defs[i] & _OTHER_FILES)))
            self.reads.append(reads)
            self.uniforms.append([key for key, _ in reads if low_uniform <= -1 - key < end_uniform])
            self.writes.append(tuple(writes))

    def distance(self, kind: str, producer: int, consumer: int, role: str) -> int:
        """Cycles that must lie between two dependent instructions, the producer of fixed latency.

        `kind`: RAW, WAW, or WAR in the uniform datapath.
        """
        key = (self.names[producer], self.names[consumer], role if kind == "RAW" else kind)
        found = self._distance.get(key)
        if found is None:
            late = OF_HIGH_HALF if kind == "RAW" and key[0] == WIDE_MULTIPLY else ""
            found = self._table.required(kind, key[0], key[1], role + late)
            self._distance[key] = found
        return found

    def clock(self, block: int, *, late: bool) -> Clock:
        """A warp at the start of a block."""
        return Clock(self, block, late)

    def walk(self, block: int, order: Iterable[int], *, late: bool) -> list[int]:
        """Issue times of a block's instructions in `order`, and the time behind the last one."""
        clock = Clock(self, block, late)
        times = [clock.issue(i) for i in order]
        times.append(clock.now)
        return times

    def _measure(self) -> None:
        """Distances of instructions from the start of their blocks, by the original stalls."""
        self.since = [0] * len(self.program)
        self.length: list[int] = []
        for block in self.program.blocks:
            at = 0
            for i in range(block.start, block.end):
                self.since[i] = at
                at += self.stall[i]
            self.length.append(at)

    @cached_property
    def entry(self) -> list[Entry]:
        """What may be on its way at the start of each block; see the module's text."""
        program = self.program
        made: list[dict[int, int]] = []
        for block in program.blocks:
            left: dict[int, int] = {}
            end = self.length[block.index]
            for i in range(block.start, block.end):
                if self.sync[i]:
                    left[_SYNC] = self.sync[i] - (end - self.since[i])
                if self.variable[i]:
                    continue
                rest = self.bound[i] - (end - self.since[i])
                for key in self.writes[i]:
                    # A later write of the same value may arrive sooner than an earlier one.
                    left[key] = max(rest, left.get(key, 0) if not self.always[i] else 0)
            made.append({key: rest for key, rest in left.items() if rest > 0})
        result = [Entry() for _ in program.blocks]
        work = list(range(len(program.blocks)))
        while work:
            b = work.pop()
            length = self.length[b]
            out = dict(made[b])
            for key, rest in result[b].fixed.items():
                if rest > length:
                    out[key] = max(out.get(key, 0), rest - length)
            for s in self.successors[b]:
                known = result[s].fixed
                changed = False
                for key, rest in out.items():
                    if rest > known.get(key, 0):
                        known[key] = rest
                        changed = True
                if changed:
                    work.append(s)
        self._enter_late(result)
        return result

    @cached_property
    def successors(self) -> list[list[int]]:
        """Successors in time: calls lead to their function, its returns behind the calls."""
        program = self.program
        result: list[list[int]] = []
        for block in program.blocks:
            nexts = list(block.successors)
            last = block.end - 1
            if last in program.callee:
                start = program.functions[program.callee[last]].start
                nexts.append(int(program.block_of[start]))
            if program.control[last] == "return":
                nexts += [
                    int(program.block_of[site + 1])
                    for site in program.calls_by_function[block.function]
                ]
            result.append(nexts)
        return result

    def _enter_late(self, entries: list[Entry]) -> None:
        """Late results under way at the start of each block, if the warp took no other way than
        through the predecessor nearest above, or else the nearest below."""
        exits: list[dict[int, int]] = [{} for _ in entries]
        self.__dict__["entry"] = entries
        for _ in range(2):
            for block in self.program.blocks:
                b = block.index
                before = [p for p in block.predecessors if p < b] or list(block.predecessors)
                loops = [p for p in block.predecessors if p >= b]
                chosen = loops[-1] if loops else before[-1] if before else -1
                entries[b].late = dict(exits[chosen]) if chosen >= 0 else {}
                order = range(block.start, block.end)
                times = self.walk(b, order, late=True)
                exits[b] = self.outstanding(b, order, times)

    def outstanding(self, block: int, order: Sequence[int], times: Sequence[int]) -> dict[int, int]:
        """Cycles until late results arrive, behind a block walked in `order` at `times`."""
        end = times[-1]
        left = {k: t - end for k, t in self.entry[block].late.items() if t > end}
        for i, at in zip(order, times, strict=False):
            for key in self.writes[i]:
                ready = at + self.late_cycles[i] - end if self.variable[i] else 0
                if ready > 0:
                    left[key] = ready
                elif key in left and self.always[i]:
                    del left[key]
            for key, _ in self.reads[i]:
                left.pop(key, None) if key not in self.writes[i] else None
        return left

    @cached_property
    def next_use(self) -> list[dict[int, int]]:
        """Per block cycles from its end to the next read of a value, on the shortest way.

        Only up to `_HORIZON_CYCLES`.
        """
        program = self.program
        first: list[dict[int, int]] = []
        written: list[set[int]] = []
        for block in program.blocks:
            reads: dict[int, int] = {}
            over: set[int] = set()
            for i in range(block.start, block.end):
                for key, _ in self.reads[i]:
                    if key not in over:
                        reads.setdefault(key, self.since[i])
                if self.always[i]:
                    over.update(self.writes[i])
            first.append(reads)
            written.append(over)
        at_start = [dict(reads) for reads in first]
        at_end: list[dict[int, int]] = [{} for _ in program.blocks]
        changed = True
        while changed:
            changed = False
            for block in reversed(program.blocks):
                b = block.index
                out = at_end[b]
                for s in self.successors[b]:
                    for key, cycles in at_start[s].items():
                        if cycles < out.get(key, _HORIZON_CYCLES):
                            out[key] = cycles
                            changed = True
                            through = cycles + self.length[b]
                            if key not in written[b] and through < at_start[b].get(
                                key, _HORIZON_CYCLES
                            ):
                                at_start[b][key] = through
        return at_end

    def cost(self, block: int, order: Sequence[int]) -> int:
        """Cycles a warp takes through a block in `order`, and waits behind it for late results."""
        times = self.walk(block, order, late=True)
        waits = 0
        uses = self.next_use[block]
        for key, left in self.outstanding(block, order, times).items():
            if key in uses:
                waits = max(waits, left - uses[key])
        return times[-1] + waits


def _bound_to(webs: Webs) -> dict[int, int]:
    """See `Timeline`."""
    result: dict[int, int] = {}
    for group in webs.groups:
        first: dict[int, int] = {}
        for w in group.webs:
            one = first.setdefault(webs.webs[w].register, w)
            if one != w:
                result[w] = result[one] = one
    return result


__all__ = ["LONGEST_FIXED_CYCLES", "PIPES", "Clock", "Entry", "Timeline"]
