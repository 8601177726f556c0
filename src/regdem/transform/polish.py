"""Moves live ranges of a finished colouring to registers whose bank is free where they are read.

The register file of a sub-partition has two banks, even and odd numbers; an instruction that
reads several 32-bit registers of one bank takes the read stage for more cycles, unless the operand
cache spares the read (`analysis/banks.py`). ptxas chooses numbers with that in mind; a colouring
that looks at occupancy alone has half as many conflicts again, which costs kernels that are bound
by issue several percent.

A memory instruction reads its registers late, some 20 cycles after it is issued: who writes one of
them sooner waits. ptxas rotates its addresses through several registers for that.

Method: descent from a valid colouring, on the sum of both costs in cycles, weighted by loops.

1. The live ranges that take part in bank conflicts, the dearest first, are moved to a free register
   of the other bank, or change places with what is in the way there. Only single registers move:
   aligned tuples occupy both banks wherever they stand. The cost is the number of reads beyond the
   first of the fuller bank.
2. Groups that begin in a register that is still being read, or end with such a read, are moved to a
   free place where nobody waits.

Every step keeps the colouring valid: at no point do two ranges share a register.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regdem.analysis.banks import CACHE_SLOT
from regdem.analysis.webs import STACK_POINTER, Webs
from regdem.isa.decoded import RegisterFile, Role
from regdem.program.loops import block_weights
from regdem.program.program import Program
from regdem.transform.colour import Colouring
from regdem.transform.latencies import READ_CYCLES

_PASSES = 3
_LATE_COST = 0.3
"""A cycle that one warp waits, beside a cycle in which the registers of all are read."""
_MOST_IN_THE_WAY = 4
_LEAST_GAIN = 1e-9
_STRETCH = 8
"""Points, as a power of two, whose live ranges are kept in one set."""
_NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Reads:
    """The 32-bit registers that one instruction fetches (webs), and how often it runs."""

    webs: tuple[int, ...]
    weight: float


def polish(program: Program, webs: Webs, colouring: Colouring) -> Colouring:
    """The colouring with fewer bank conflicts, within the registers it uses already."""
    return _Descent(program, webs, colouring).run()


def _reads(program: Program, webs: Webs) -> list[_Reads]:
    """What instructions fetch, where it is two registers or more."""
    code = program.code
    bit: list[int] = code.operand_bit.tolist()
    role: list[int] = code.operand_role.tolist()
    file: list[int] = code.operand_file.tolist()
    first: list[int] = code.operand_start.tolist()
    reuse: list[int] = code.reuse.tolist()
    weights = block_weights(program)
    result: list[_Reads] = []
    for block in program.blocks:
        held: dict[int, int] = {}
        for i in range(block.start, block.end):
            fetched: list[int] = []
            named: dict[int, int] = {}
            for row in range(first[i], first[i + 1]):
                slot = CACHE_SLOT.get(bit[row])
                if slot is None or file[row] != RegisterFile.GPR or not role[row] & Role.READ:
                    continue
                names = webs.of_row.get(row, ())
                if len(names) != 1:
                    continue
                named[slot] = names[0]
                if held.get(slot) != names[0] and names[0] not in fetched:
                    fetched.append(names[0])
            for slot in named:
                held.pop(slot, None)
                if reuse[i] >> slot & 1:
                    held[slot] = named[slot]
            if len(fetched) > 1:
                result.append(_Reads(tuple(fetched), weights[block.index]))
    return result


class _Descent:
    def __init__(self, program: Program, webs: Webs, colouring: Colouring) -> None:
        self._webs = webs
        self._colouring = colouring
        self._register = list(colouring.register)
        self._reads = _reads(program, webs)
        self._by_web: dict[int, list[int]] = {}
        for k, reads in enumerate(self._reads):
            for web in reads.webs:
                self._by_web.setdefault(web, []).append(k)
        highest = max(
            (self._register[w.index] for w in webs.webs if w.points), default=STACK_POINTER
        )
        self._taken = [0] * (highest + 1)
        self._in: dict[tuple[int, int], set[int]] = {}
        self._came = [0] * len(webs.webs)
        self._moves = 0
        for web in webs.webs:
            if web.points:
                self._put(web.index, self._register[web.index])
        self._groups = [
            tuple(w for w in g.webs if webs.webs[w].points)
            for g in webs.groups
            if not any(
                webs.webs[w].whole or STACK_POINTER in (webs.webs[w].register, self._register[w])
                for w in g.webs
            )
        ]
        self._alignment = {
            g.webs[0]: g.alignment for g in webs.groups
        }  # fmt: skip
        self._movable = [False] * len(webs.webs)
        for names in self._groups:
            if len(names) == 1 and self._alignment.get(names[0]) == 1:
                self._movable[names[0]] = True
        code = program.code
        memory = code.table.memory_code[code.form] != 0
        self._slow: list[bool] = (memory & code.table.variable_latency[code.form]).tolist()
        weights = block_weights(program)
        self._weight = [weights[int(b)] for b in program.block_of]
        self._block_of: list[int] = program.block_of.tolist()
        clock, now = [0] * len(code), 0
        for i, stall in enumerate(code.stall.tolist()):
            clock[i] = now
            now += max(1, stall)
        self._clock = clock

    def run(self) -> Colouring:
        """The result."""
        for _ in range(_PASSES):
            moved = self._part_operands()
            moved |= self._leave_late_reads()
            if not moved:
                break
        return replace(self._colouring, register=tuple(self._register))

    # -- operands of one bank -----------------------------------------------------------------

    def _part_operands(self) -> bool:
        dear: dict[int, float] = {}
        for k in range(len(self._reads)):
            cost = self._cost(k)
            if cost:
                for web in self._reads[k].webs:
                    if self._movable[web]:
                        dear[web] = dear.get(web, 0.0) + cost
        moved = [self._improve(web) for web in sorted(dear, key=lambda w: (-dear[w], w))]
        return any(moved)

    def _cost(self, k: int) -> float:
        reads = self._reads[k]
        odd = sum(self._register[web] & 1 for web in reads.webs)
        return reads.weight * (max(odd, len(reads.webs) - odd) - 1)

    def _improve(self, web: int) -> bool:
        """Moves one range to where that helps most; whether it did."""
        home = self._register[web]
        points = self._webs.webs[web].points
        rest = self._taken[home] ^ points
        best, gain = None, _LEAST_GAIN
        for register in range(1 - home % 2, len(self._taken), 2):
            if register == STACK_POINTER:
                continue
            there = self._taken[register]
            others: list[int] = []
            if there & points:
                others = self._in_the_way(register, points)
                if len(others) > _MOST_IN_THE_WAY or not all(self._movable[w] for w in others):
                    continue
                if any(self._webs.webs[w].points & rest for w in others):
                    continue
            found = self._gain(web, home, register, others)
            if found > gain:
                best, gain = (register, others), found
        if best is None:
            return False
        register, others = best
        self._take(web)
        for other in others:
            self._take(other)
            self._put(other, home)
        self._put(web, register)
        return True

    def _in_the_way(self, register: int, points: int) -> list[int]:
        """The ranges in a register that are live at some of `points`, in the order in which they
        came there; not all of them where they are too many."""
        near: set[int] = set()
        for stretch in _stretches(points):
            near |= self._in.get((register, stretch), _NOTHING)
        found: list[int] = []
        for w in near:
            if self._webs.webs[w].points & points:
                found.append(w)
                if len(found) > _MOST_IN_THE_WAY:
                    break
        found.sort(key=self._came.__getitem__)
        return found

    def _gain(self, web: int, home: int, register: int, others: Sequence[int]) -> float:
        """What is saved by moving `web` to `register`, and `others` from there to its place."""
        touched = {k for w in (web, *others) for k in self._by_web.get(w, ())}
        before = sum(self._cost(k) for k in touched)
        self._register[web] = register
        for other in others:
            self._register[other] = home
        after = sum(self._cost(k) for k in touched)
        self._register[web] = home
        for other in others:
            self._register[other] = register
        gain = before - after
        if gain <= 0:
            return gain
        mine = self._webs.webs[web].points
        theirs = 0
        for other in others:
            theirs |= self._webs.webs[other].points
        here, there = self._taken[home] ^ mine, self._taken[register] ^ theirs
        gain += self._late(web, here) - self._late(web, there)
        for other in others:
            own = self._webs.webs[other].points
            gain += self._late(other, self._taken[register] ^ own) - self._late(other, here)
        return gain

    # -- registers that are still being read --------------------------------------------------

    def _leave_late_reads(self) -> bool:
        moved = False
        for names in self._groups:
            if names and self._late_group(names, 0):
                moved |= self._move(names)
        return moved

    def _late(self, web: int, others: int) -> float:
        """Cycles waited at both ends of a range whose register `others` take at their points."""
        points = self._webs.webs[web].points
        low = (points & -points).bit_length() - 1
        before = (others & ((1 << low) - 1)).bit_length() - 1
        high = points.bit_length()
        above = others >> high
        cost = self._wait(before, low) if before >= 0 else 0.0
        if above:
            cost += self._wait(high - 1, high + (above & -above).bit_length() - 1)
        return cost

    def _wait(self, end: int, begin: int) -> float:
        """What a range that begins at a point waits for the last read of the one before."""
        i, j = end // 2, begin // 2
        if not self._slow[i] or end % 2 or self._block_of[i] != self._block_of[j]:
            return 0.0
        return _LATE_COST * self._weight[j] * max(0, READ_CYCLES - self._clock[j] + self._clock[i])

    def _late_group(self, names: Sequence[int], shift: int) -> float:
        """The same for a group moved by `shift`, as far as it is free there."""
        cost = 0.0
        for web in names:
            others = self._taken[self._register[web] + shift]
            if shift == 0:
                others ^= self._webs.webs[web].points
            cost = max(cost, self._late(web, others))
        return cost

    def _move(self, names: Sequence[int]) -> bool:
        """Moves a group to the free place where least is waited for; whether it did."""
        own: dict[int, int] = {}
        for web in names:
            register = self._register[web]
            own[register] = own.get(register, 0) | self._webs.webs[web].points
        touched = {k for w in names for k in self._by_web.get(w, ())}
        before = self._late_group(names, 0) + sum(self._cost(k) for k in touched)
        step = self._alignment.get(names[0], 0)
        if not step:
            return False
        lowest, highest = min(own), max(own)
        best, gain = 0, _LEAST_GAIN
        for shift in range(-(lowest // step) * step, len(self._taken) - highest, step):
            if shift == 0 or STACK_POINTER in {r + shift for r in own}:
                continue
            if any(
                (self._taken[r + shift] ^ own.get(r + shift, 0)) & points
                for r, points in own.items()
            ) or any(r + shift in own for r in own):
                continue
            for web in names:
                self._register[web] += shift
            conflicts = sum(self._cost(k) for k in touched)
            for web in names:
                self._register[web] -= shift
            found = before - conflicts - self._late_group(names, shift)
            if found > gain:
                best, gain = shift, found
        if not best:
            return False
        homes = [self._register[web] for web in names]
        for web in names:
            self._take(web)
        for web, home in zip(names, homes, strict=True):
            self._put(web, home + best)
        return True

    def _take(self, web: int) -> None:
        register, points = self._register[web], self._webs.webs[web].points
        self._taken[register] ^= points
        for stretch in _stretches(points):
            self._in[register, stretch].remove(web)

    def _put(self, web: int, register: int) -> None:
        points = self._webs.webs[web].points
        self._taken[register] |= points
        for stretch in _stretches(points):
            self._in.setdefault((register, stretch), set()).add(web)
        self._moves += 1
        self._came[web] = self._moves
        self._register[web] = register


def _stretches(points: int) -> range:
    """The stretches of `1 << _STRETCH` points that a live range reaches over."""
    first = ((points & -points).bit_length() - 1) >> _STRETCH
    return range(first, (points.bit_length() - 1 >> _STRETCH) + 1)
