"""The post-passes of the RegDem paper, for register numbers demoted in one of its orders.

The paper (arXiv 1907.02894) makes each order with eight combinations of three passes; its fourth,
compaction of the numbers, is always done:

- `eliminate`: a load of what the register still holds, and a store that the next one overwrites,
  are left out. Here by dataflow over the whole kernel, not only within blocks. Without it every
  read has its load and every write its store.
- `substitute`: inside a block a demoted register has a register of its own wherever one is free
  between two accesses, so that the accesses between need no memory.
- `reschedule`: loads move up, away from their use, and stores down, away from their definition.

Not claimed: that these are the authors' passes. They are written from the description; the method
runs on another architecture, and temporaries are coloured by liveness instead of sharing one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from regdem.analysis.bits import FILE_MASK
from regdem.analysis.liveness import Liveness
from regdem.errors import UsageError
from regdem.isa.decoded import RegisterFile
from regdem.program.program import Program
from regdem.transform.spill import Access, Placement, keeps_old, store_positions

PASSES = ("eliminate", "substitute", "reschedule")
ELIMINATE, SUBSTITUTE, RESCHEDULE = PASSES


def fallbacks(passes: frozenset[str]) -> list[frozenset[str]]:
    """What to try for one choice of registers: all of `passes`, then without those that take
    registers, which no longer fit where live values cross in ways that counting does not see."""
    tried = [passes, passes - {RESCHEDULE}, passes - {RESCHEDULE, SUBSTITUTE}]
    return [each for k, each in enumerate(tried) if each not in tried[:k]]


def parse_passes(text: str) -> frozenset[str]:
    """`"eliminate,reschedule"`, `"all"` or `"none"`. Raises UsageError for other words."""
    if text in ("all", "none"):
        return frozenset(PASSES if text == "all" else ())
    words = frozenset(word.strip() for word in text.split(","))
    if unknown := sorted(words - set(PASSES)):
        raise UsageError(f"no such pass: {unknown[0]!r}", hint=f"all, none, {', '.join(PASSES)}")
    return words


def combinations() -> list[frozenset[str]]:
    """All eight, the complete one first."""
    return [
        frozenset(name for k, name in enumerate(PASSES) if not mask >> k & 1) for mask in range(8)
    ]


def letters(passes: frozenset[str]) -> str:
    """A short name: first letters in order, `"0"` for none."""
    return "".join(name[0] for name in PASSES if name in passes) or "0"


def free_registers(
    program: Program, live: Liveness, kept: int, accesses: Sequence[Access], limit: int
) -> list[int]:
    """Registers free at each instruction: not a live one of `kept` (a mask), nor the slots'
    address, nor a temporary of an access there."""
    gpr = FILE_MASK[RegisterFile.GPR]
    taken = [
        1 + ((before | after | defs) & kept & gpr).bit_count()
        for before, after, defs in zip(live.before, live.after, live.defs, strict=True)
    ]
    everywhere = [True] * len(program)
    for access in accesses:
        held = set(access.reads | access.writes)
        # A store that waits for a load under way keeps the temporary until then.
        for first, last in store_positions(program, live, access, Placement(), everywhere).items():
            held.update(range(first, last + 1))
        for i in held:
            taken[i] += 1
    return [limit - count for count in taken]


def substituted(program: Program, access: Access, room: list[int]) -> list[bool]:
    """Where a demoted register may be away: not between accesses of a block with a free register.

    What is used of `room` is taken off.
    """
    away = [True] * len(program)
    ordered = sorted(access.reads | access.writes)
    for first, second in itertools.pairwise(ordered):
        between = range(first + 1, second)
        if program.block_of[first] != program.block_of[second]:
            continue
        if any(room[i] < 1 for i in between):
            continue
        for i in between:
            room[i] -= 1
        away[first : second + 1] = [False] * (second + 1 - first)
    return away


def unreduced(
    program: Program, live: Liveness, access: Access, away: Sequence[bool], placed: Placement
) -> Placement:
    """The placement with every load and store that only dataflow made superfluous.

    Those inside a run of instructions at which the register is held (`substituted`) stay out.
    """
    every = Placement()
    store_positions(program, live, access, every, away)
    block_of = program.block_of

    def held(i: int) -> bool:
        return i > 0 and not away[i] and not away[i - 1] and block_of[i] == block_of[i - 1]

    def overwritten(i: int) -> bool:
        j = i + 1
        while j < len(program) and held(j):
            if j in access.writes:
                return True
            j += 1
        return False

    reads = set(access.reads) | keeps_old(program, live, access)
    placed.loads |= {i for i in reads if not held(i)}
    for i, where in every.stores.items():
        if i not in placed.stores and not overwritten(i):
            placed.stores[i] = where
            if i in every.unguarded:
                placed.unguarded.add(i)
    return placed
