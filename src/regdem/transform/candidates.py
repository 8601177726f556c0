"""Which live ranges to demote: by live range, or in one of the paper's three orders.

`live-range` works on webs: of those that cross instructions with too many live values, the ones
that free most such instructions for the least loop-weighted accesses (the ratio of Chaitin's
spill metric). The paper's orders (arXiv 1907.02894, section 4) work on register numbers: 32-bit
registers other than R0, R1 that are no part of a multiword operand,

- `static`: fewest textual accesses first;
- `cfg`: accesses weighted by loop nesting, accesses in called functions by their call sites;
- `conflict`: fewest distinct registers that share an instruction with it.

When the 32-bit candidates run out, registers of multiword operands follow, a pair at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.bits import FILE_MASK, members
from regdem.analysis.liveness import Liveness
from regdem.analysis.webs import STACK_POINTER, Web, Webs
from regdem.isa.decoded import RegisterFile
from regdem.program.loops import block_weights
from regdem.program.program import Program
from regdem.transform.spill import Access, Placement, store_positions

ORDERS = ("live-range", "cfg", "static", "conflict")
NO_ORDER = "none"
"""Nothing is demoted, only renumbered."""
LOAD_COST, STORE_COST, RECOMPUTE_COST, EARLY_COST = 1.0, 0.6, 0.35, 20.0
"""Relative cost of one execution: a load stalls its user, a store only takes an issue slot, an
early store waits for a load under way."""


@dataclass(frozen=True)
class Candidate:
    """A web with the instructions at which it holds a register (as a boolean array)."""

    web: Web
    occupied: NDArray[np.bool_]
    idle: NDArray[np.bool_]
    """Occupied, and the instruction does not access it."""
    cost: float
    early: bool = False
    """Store without waiting for the original code's wait (see `transform/spill.py`)."""


def occupied_instructions(web: Web, n: int) -> NDArray[np.bool_]:
    """(n,) whether the web holds its register at either point of each instruction."""
    data = web.points.to_bytes((2 * n + 15) // 8, "little")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")[: 2 * n]
    return (bits[0::2] | bits[1::2]).view(np.bool_)


def access_of(
    web: Web,
    *,
    touched_by_calls: bool = False,
    early: bool = False,
) -> Access:
    """The accesses of a web as the spill placement takes them."""
    return Access(
        web.register,
        frozenset(web.reads),
        frozenset(web.writes),
        web.points,
        touched_by_calls,
        early,
    )


def web_candidates(
    program: Program,
    live: Liveness,
    webs: Webs,
    recomputable: dict[int, int],
    hot: Sequence[bool],
) -> list[Candidate]:
    """All webs that may be demoted as live ranges, with their costs.

    A value that still waits for its store (a load under way) is not idle until then.
    """
    n = len(program)
    weights = block_weights(program)
    weight = [weights[int(b)] for b in program.block_of]
    result: list[Candidate] = []
    for web in webs.webs:
        if web.whole or web.register == STACK_POINTER or not web.reads:
            continue
        occupied = occupied_instructions(web, n)
        idle = occupied.copy()
        idle[web.reads] = False
        idle[web.writes] = False
        if web.index in recomputable:
            cost = RECOMPUTE_COST * sum(weight[i] for i in set(web.reads))
            if idle.any():
                result.append(Candidate(web, occupied, idle, cost))
            continue
        cost = LOAD_COST * sum(weight[i] for i in set(web.reads))
        cost += STORE_COST * sum(weight[i] for i in set(web.writes))
        previous = None
        for early in (False, True):
            free = idle.copy()
            access = access_of(web, early=early)
            for i, until in store_positions(program, live, access, Placement(), hot).items():
                free[i:until] = False
            if free.any() and (previous is None or (free != previous).any()):
                extra = EARLY_COST * sum(weight[i] for i in set(web.writes)) if early else 0.0
                result.append(Candidate(web, occupied, free, cost + extra, early))
            previous = free
    return result


def choose_webs(
    candidates: Sequence[Candidate],
    pressure: NDArray[np.int32],
    target: int,
    most_slots: int,
    recomputable: dict[int, int],
) -> list[Candidate] | None:
    """Greedy choice until no instruction has more than `target` live values; None if impossible.

    At most `most_slots` candidates that need a slot are taken (slots that can be shared by
    disjoint ranges are found later, so this is a bound, not a promise).

    The score of a candidate only falls as others are taken, so a score from an earlier step is a
    bound: candidates wait in a heap, and only those that come to its top are scored again.
    """
    excess = np.maximum(pressure.astype(np.int32) - target, 0)
    places = [(c.idle & (excess > 0)).nonzero()[0] for c in candidates]

    def score(k: int) -> float:
        over = excess[places[k]]
        freed = int(np.count_nonzero(over))
        return freed * (1.0 + int(over.max(initial=0))) / (candidates[k].cost + 0.5)

    heap = [(-value, k) for k in range(len(candidates)) if (value := score(k)) > 0]
    heapq.heapify(heap)
    chosen: list[Candidate] = []
    taken: set[int] = set()
    slots = 0
    while excess.any():
        while heap:
            known, k = heapq.heappop(heap)
            index = candidates[k].web.index
            if index in taken or (index not in recomputable and slots >= most_slots):
                continue
            value = score(k)
            if value == -known:
                break
            if value > 0:
                heapq.heappush(heap, (-value, k))
        else:
            return None
        chosen.append(candidates[k])
        taken.add(index)
        slots += index not in recomputable
        excess[places[k]] -= excess[places[k]] > 0
    return chosen


def register_order(program: Program, live: Liveness, order: str) -> list[tuple[int, ...]]:
    """Register numbers to demote, best first, single registers before tuples, as the paper does."""
    code = program.code
    gpr = FILE_MASK[RegisterFile.GPR]
    weights = block_weights(program)
    score: dict[int, float] = {}
    neighbours: dict[int, int] = {}
    tuples: dict[int, set[int]] = {}
    rows = (code.operand_file == RegisterFile.GPR).nonzero()[0]
    for row in rows.tolist():
        first, width = int(code.operand_register[row]), int(code.operand_width[row])
        i = int(code.operand_instruction[row])
        together = (live.uses[i] | live.defs[i]) & gpr
        for r in range(first, first + width):
            step = weights[int(program.block_of[i])] if order == "cfg" else 1.0
            score[r] = score.get(r, 0.0) + step
            neighbours[r] = neighbours.get(r, 0) | (together & ~(1 << r))
            if width > 1:
                tuples.setdefault(r, set()).update(range(first, first + width))
    if order == "conflict":
        score = {r: float(m.bit_count()) for r, m in neighbours.items()}
    singles = [r for r in score if r not in tuples and r not in (0, STACK_POINTER)]
    singles.sort(key=lambda r: (score[r], r))
    result: list[tuple[int, ...]] = [(r,) for r in singles]
    pairs: dict[int, list[int]] = {}
    for r in tuples:
        pairs.setdefault(r // 2, []).append(r)
    groups = [
        (sum(score[r] for r in pair), tuple(sorted(pair)))
        for pair in pairs.values()
        if STACK_POINTER not in pair
    ]
    result += [registers for _, registers in sorted(groups)]
    return result


def used_registers(live: Liveness) -> list[int]:
    """All general registers that the section reads or writes."""
    mask = 0
    for use, define in zip(live.uses, live.defs, strict=True):
        mask |= use | define
    return members(mask & FILE_MASK[RegisterFile.GPR])
