"""Live registers of all four files at every instruction.

Backward dataflow over blocks (Kildall), on packed masks (`analysis/bits.py`). A write under a
guard is a partial definition and kills nothing.

Calls are treated by summaries, one per function: `uses`, the registers the callee may read before
it writes them, and `transparent`, those whose value can pass through it (or that it reads). Live
before a call = uses | (live after & transparent). Inside a callee, whatever is live after any of
its calls is live at its return. Recursive functions reach a fixpoint.

Agreement with the life ranges that `nvdisasm -lrm` prints is tested; the known differences are the
rows of calls, and pairs of definitions under complementary guards, where the disassembler kills
and this analysis, safely, does not.

With `follow_guards` a write under a guard kills a general register whose old value can't be needed,
because later readers in the block run under the same guard, with the predicate unchanged, or behind
another write. Temporaries of predicated code are then live from their first write, not from the
function's entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.bits import ALL, FILE_BASE, FILE_MASK, def_masks, file_mask, use_masks
from regdem.isa.decoded import RegisterFile
from regdem.program.program import Program

STACK_POINTER_BIT = 1 << 1


@dataclass(frozen=True)
class CallSummary:
    """What a call to a function does, as packed masks (see the module's text)."""

    uses: int
    transparent: int
    defs: int


@dataclass(frozen=True)
class Liveness:
    """Packed live masks per instruction: `before[i]` and `after[i]`; `uses`, `defs` as encoded."""

    before: list[int]
    after: list[int]
    uses: list[int]
    defs: list[int]
    summaries: tuple[CallSummary, ...]

    @cached_property
    def occupied(self) -> list[int]:
        """Registers that hold a value at each instruction: live before, or written by it."""
        return [b | a | d for b, a, d in zip(self.before, self.after, self.defs, strict=True)]

    def pressure(self, file: RegisterFile) -> NDArray[np.int32]:
        """Occupied registers of `file` at each instruction, counted as nvdisasm counts them."""
        return np.array([file_mask(m, file).bit_count() for m in self.occupied], dtype=np.int32)

    def max_live(self, file: RegisterFile) -> int:
        """The peak of `pressure(file)`."""
        return int(self.pressure(file).max(initial=0))


def liveness(program: Program, *, follow_guards: bool = False) -> Liveness:
    """Live registers over the whole section (`follow_guards`: see the module's text).

    Computed once a program, and kept with it.
    """
    key = "liveness", follow_guards
    known: Liveness | None = program.memo.get(key)
    if known is None:
        known = program.memo[key] = _liveness(program, follow_guards=follow_guards)
    return known


def _liveness(program: Program, *, follow_guards: bool) -> Liveness:
    code = program.code
    uses = use_masks(code)
    defs = def_masks(code)
    killing = ((code.guard == 7) & ~code.guard_negated).tolist()
    kills = [d if k else 0 for d, k in zip(defs, killing, strict=True)]
    encoded, uses = uses, _with_stack_pointer(program, uses, defs)
    if follow_guards and not all(killing):
        plain = _live(program, uses, defs, kills, encoded)
        kills = _kills_under_guards(program, plain, kills)
    return _live(program, uses, defs, kills, encoded)


def _live(
    program: Program, uses: list[int], defs: list[int], kills: list[int], encoded: list[int]
) -> Liveness:
    known: _Transfers = []
    summaries = _summaries(program, uses, defs, kills, known)
    exit_live = [0] * len(program.functions)
    while True:
        live_in, live_out = _solve(program, uses, kills, summaries, exit_live, known)
        updated = list(exit_live)
        before, after = _sweep(program, uses, kills, summaries, live_out, exit_live)
        for site, function in program.callee.items():
            updated[function] |= after[site]
        if updated == exit_live:
            return Liveness(before, after, encoded, defs, summaries)
        exit_live = updated
        del live_in


def _kills_under_guards(program: Program, live: Liveness, kills: list[int]) -> list[int]:
    """`kills` with the guarded writes whose old value can't be needed; `live` is without them.

    Backward through each block with what is needed always, and what only under a condition (a
    predicate and its sign, as long as the predicate isn't written).
    """
    code = program.code
    guard: list[int] = code.guard.tolist()
    negated: list[bool] = code.guard_negated.tolist()
    predicates = FILE_BASE[RegisterFile.PRED]
    all_predicates = FILE_MASK[RegisterFile.PRED]
    general = FILE_MASK[RegisterFile.GPR] & ~STACK_POINTER_BIT
    result = list(kills)
    for block in program.blocks:
        if block.function or any(i in program.callee for i in range(block.start, block.end)):
            continue
        always = live.after[block.end - 1]
        under: dict[int, int] = {}  # 2 * predicate + sign -> registers
        for i in range(block.end - 1, block.start - 1, -1):
            written = live.defs[i] & general
            if live.defs[i] & all_predicates:
                for condition in list(under):
                    if (live.defs[i] >> (predicates + condition // 2)) & 1:
                        always |= under.pop(condition)
            if guard[i] == 7:
                always = (always & ~kills[i]) | live.uses[i]
                for condition in under:
                    under[condition] &= ~(kills[i] | live.uses[i])
                continue
            condition = 2 * guard[i] + negated[i]
            if written:
                other = condition ^ 1
                under[other] = under.get(other, 0) | (always & written)
                always &= ~written
                under[condition] = under.get(condition, 0) & ~written
                needed = always
                for mask in under.values():
                    needed |= mask
                result[i] |= written & ~(needed | live.uses[i])
            under[condition] = under.get(condition, 0) | (live.uses[i] & ~always)
    return result


def _with_stack_pointer(program: Program, uses: list[int], defs: list[int]) -> list[int]:
    """The uses, with R1 read by every EXIT and by the self-branch behind the end.

    The driver owns the stack: R1 keeps its value to the end, as the disassembler shows it, too. A
    kernel that never sets R1 has none.
    """
    if not any(d & STACK_POINTER_BIT for d in defs):
        return uses
    last = [
        kind == "exit" or (kind == "branch" and int(program.target[i]) == i)
        for i, kind in enumerate(program.control)
    ]
    return [u | STACK_POINTER_BIT if at_end else u for u, at_end in zip(uses, last, strict=True)]


_Transfers = list[tuple[int, int]]


def _transfer(
    program: Program,
    uses: list[int],
    kills: list[int],
    summaries: tuple[CallSummary, ...],
    known: _Transfers,
) -> _Transfers:
    """Per block (gen, keep): live in = gen | (live out & keep).

    `known` are the transfers under other summaries; only blocks that call depend on them.
    """
    callee = program.callee
    calling = {int(program.block_of[site]) for site in callee} if known else set[int]()
    result: _Transfers = []
    for block in program.blocks:
        if known and block.index not in calling:
            result.append(known[block.index])
            continue
        gen, keep = 0, ALL
        for i in range(block.end - 1, block.start - 1, -1):
            if i in callee:
                s = summaries[callee[i]]
                gen = s.uses | (gen & s.transparent)
                keep &= s.transparent
            kill = ~kills[i]
            gen = (gen & kill) | uses[i]
            keep &= kill
        result.append((gen, keep))
    return result


def _solve(
    program: Program,
    uses: list[int],
    kills: list[int],
    summaries: tuple[CallSummary, ...],
    exit_live: list[int],
    known: _Transfers,
) -> tuple[list[int], list[int]]:
    """Live in and live out of every block; `known` is filled and used by `_transfer`."""
    blocks = program.blocks
    transfer = _transfer(program, uses, kills, summaries, known)
    known[:] = transfer
    ends_in_return = [program.control[b.end - 1] == "return" for b in blocks]
    live_in = [0] * len(blocks)
    live_out = [0] * len(blocks)
    work = list(range(len(blocks)))
    queued = [True] * len(blocks)
    while work:
        b = work.pop()
        queued[b] = False
        block = blocks[b]
        out = exit_live[block.function] if ends_in_return[b] else 0
        for s in block.successors:
            out |= live_in[s]
        gen, keep = transfer[b]
        live_out[b] = out
        new = gen | (out & keep)
        if new != live_in[b]:
            live_in[b] = new
            for p in block.predecessors:
                if not queued[p]:
                    queued[p] = True
                    work.append(p)
    return live_in, live_out


def _sweep(
    program: Program,
    uses: list[int],
    kills: list[int],
    summaries: tuple[CallSummary, ...],
    live_out: list[int],
    exit_live: list[int],
) -> tuple[list[int], list[int]]:
    n = len(program)
    before, after = [0] * n, [0] * n
    callee = program.callee
    for block in program.blocks:
        live = live_out[block.index]
        for i in range(block.end - 1, block.start - 1, -1):
            after[i] = live
            if i in callee:
                s = summaries[callee[i]]
                live = s.uses | (live & s.transparent)
            live = (live & ~kills[i]) | uses[i]
            before[i] = live
    return before, after


def _summaries(
    program: Program, uses: list[int], defs: list[int], kills: list[int], known: _Transfers
) -> tuple[CallSummary, ...]:
    """Fixpoint of the call summaries, from the optimistic start (nothing read, nothing kept)."""
    count = len(program.functions)
    may_define = [0] * count
    for block in program.blocks:
        for i in range(block.start, block.end):
            may_define[block.function] |= defs[i]
    changed = True
    while changed:
        changed = False
        for site, function in program.callee.items():
            caller = program.blocks[int(program.block_of[site])].function
            union = may_define[caller] | may_define[function]
            if union != may_define[caller]:
                may_define[caller] = union
                changed = True
    summaries = tuple(CallSummary(0, 0, d) for d in may_define)
    if not program.callee:
        return summaries
    entry = [int(program.block_of[f.start]) for f in program.functions]
    while True:
        nothing, _ = _solve(program, uses, kills, summaries, [0] * count, known)
        everything, _ = _solve(program, uses, kills, summaries, [ALL] * count, known)
        updated = tuple(
            CallSummary(nothing[b], everything[b], d)
            for b, d in zip(entry, may_define, strict=True)
        )
        if updated == summaries:
            return summaries
        summaries = updated
