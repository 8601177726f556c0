"""Moves live ranges of a finished colouring to registers whose bank is free where they are read.

The register file of a sub-partition has two banks, even and odd numbers; an instruction that
reads several 32-bit registers of one bank takes the read stage for more cycles, unless the operand
cache spares the read (`predict/banks.py`). ptxas chooses numbers with that in mind; a colouring
that looks at occupancy alone has half as many conflicts again, which costs kernels that are bound
by issue several percent.

Method: descent from a valid colouring. The live ranges that take part in conflicts, the dearest
first (weighted by loops), are moved to a free register of the other bank, or change places with
what is in the way there, if that lowers the cost of all instructions that read any of them. Only
single registers move: aligned tuples occupy both banks wherever they stand. The cost is the number
of reads beyond the first of the fuller bank, and a penalty where a range begins right behind the
last use of its register, since an access still under way makes the next writer wait.

Every step keeps the colouring valid: at no point do two ranges share a register.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regdem.analysis.webs import STACK_POINTER, Webs
from regdem.isa.decoded import RegisterFile, Role
from regdem.program.loops import block_weights
from regdem.program.program import Program
from regdem.transform.colour import Colouring

_SLOT = {24: 0, 32: 1, 64: 2}
_PASSES = 3
_NEAR_POINTS = 24
"""Points behind another use of a register within which a new writer may have to wait for it."""
_NEAR_COST = 0.5
_MOST_IN_THE_WAY = 4
_LEAST_GAIN = 1e-9


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
                slot = _SLOT.get(bit[row])
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
        self._weight = block_weights(program)
        self._block_of: Sequence[int] = program.block_of.tolist()
        self._reads = _reads(program, webs)
        self._by_web: dict[int, list[int]] = {}
        for k, reads in enumerate(self._reads):
            for web in reads.webs:
                self._by_web.setdefault(web, []).append(k)
        highest = max(
            (self._register[w.index] for w in webs.webs if w.points), default=STACK_POINTER
        )
        self._taken = [0] * (highest + 1)
        self._in: list[list[int]] = [[] for _ in self._taken]
        movable = {
            g.webs[0]
            for g in webs.groups
            if g.alignment == 1 and len(g.webs) == 1
        }  # fmt: skip
        self._movable = [False] * len(webs.webs)
        for web in webs.webs:
            if not web.points:
                continue
            register = self._register[web.index]
            self._taken[register] |= web.points
            self._in[register].append(web.index)
            fixed = web.register == STACK_POINTER or register == STACK_POINTER
            self._movable[web.index] = web.index in movable and not fixed and not web.whole

    def run(self) -> Colouring:
        """The result."""
        for _ in range(_PASSES):
            dear: dict[int, float] = {}
            for k in range(len(self._reads)):
                cost = self._cost(k)
                if cost:
                    for web in self._reads[k].webs:
                        if self._movable[web]:
                            dear[web] = dear.get(web, 0.0) + cost
            moved = [self._improve(web) for web in sorted(dear, key=lambda w: (-dear[w], w))]
            if not any(moved):
                break
        return replace(self._colouring, register=tuple(self._register))

    def _cost(self, k: int) -> float:
        reads = self._reads[k]
        odd = sum(self._register[web] & 1 for web in reads.webs)
        return reads.weight * (max(odd, len(reads.webs) - odd) - 1)

    def _near(self, web: int, others: int) -> float:
        """The penalty of a range in a register that `others` take at their points."""
        points = self._webs.webs[web].points
        low = (points & -points).bit_length() - 1
        gap = low - (others & ((1 << low) - 1)).bit_length()
        if gap >= _NEAR_POINTS:
            return 0.0
        return _NEAR_COST * self._weight[self._block_of[low // 2]] * (1 - gap / _NEAR_POINTS)

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
                others = [w for w in self._in[register] if self._webs.webs[w].points & points]
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
        gain += self._near(web, here) - self._near(web, there)
        for other in others:
            own = self._webs.webs[other].points
            gain += self._near(other, self._taken[register] ^ own) - self._near(other, here)
        return gain

    def _take(self, web: int) -> None:
        register = self._register[web]
        self._taken[register] ^= self._webs.webs[web].points
        self._in[register].remove(web)

    def _put(self, web: int, register: int) -> None:
        self._taken[register] |= self._webs.webs[web].points
        self._in[register].append(web)
        self._register[web] = register
