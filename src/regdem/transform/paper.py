"""The post-passes of the RegDem paper, for register numbers demoted in one of its orders.

The paper (arXiv 1907.02894) makes each order with eight combinations of three passes; its fourth,
compaction of the numbers, is always done:

- `eliminate`: a load of what the register still holds, and a store that the next one overwrites,
  are left out. Here by dataflow over the whole kernel, not only within blocks. Without it every
  read has its load and every write its store.
- `substitute`: inside a block a demoted register has a register of its own wherever one is free
  between two accesses, so that the accesses between need no memory.
- `reschedule`: loads move up, away from their use, where a register is idle until there.

Not claimed: that these are the authors' passes. They are written from the description; the method
runs on another architecture, and temporaries are coloured by liveness instead of sharing one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.liveness import Liveness
from regdem.errors import UsageError
from regdem.program.program import Program
from regdem.transform.spill import (
    LOAD_CYCLES,
    Access,
    Placement,
    keeps_old,
    store_positions,
)

PASSES = ("eliminate", "substitute", "reschedule")
ELIMINATE, SUBSTITUTE, RESCHEDULE = PASSES


def fallbacks(passes: frozenset[str]) -> list[frozenset[str]]:
    """What to try for one choice of registers: all of `passes`, then without those that take
    registers, where the temporaries of single accesses need them."""
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


def idle_registers(live: Liveness, kept: int) -> list[int]:
    """Registers of `kept` (a mask) that hold nothing at each instruction, as masks."""
    return [
        kept & ~(before | after | defs)
        for before, after, defs in zip(live.before, live.after, live.defs, strict=True)
    ]


def substituted(program: Program, access: Access, idle: list[int]) -> list[bool]:
    """Where a demoted register may be away: not between accesses of a block where one register is
    idle all along. What is used is taken off `idle`.
    """
    away = [True] * len(program)
    stays, end = 0, -1
    for first, second in itertools.pairwise(sorted(access.reads | access.writes)):
        if program.block_of[first] != program.block_of[second]:
            continue
        among = stays if first == end else ~0
        # The first instruction of a run that goes on has been taken off already.
        span = range(first + (first == end), second + 1)
        free = functools.reduce(lambda mask, i: mask & idle[i], span, among)
        if not free:
            continue
        stays, end = free & -free, second
        for i in span:
            idle[i] &= ~stays
        away[first : second + 1] = [False] * (second + 1 - first)
    return away


def spread(program: Program, access: Access, placement: Placement, idle: list[int]) -> None:
    """Moves loads up within their blocks to where a register stays idle until the use."""
    stall = program.code.stall
    stores = set(placement.stores.values())
    for i in sorted(placement.loads):
        start = program.blocks[int(program.block_of[i])].start
        at, cycles, free = i, 0, idle[i]
        while at > start and cycles < LOAD_CYCLES:
            j = at - 1
            stored = (at, False) in stores or (j, True) in stores
            if j in access.reads or j in access.writes or stored or not free & idle[j]:
                break
            free &= idle[j]
            at = j
            cycles += max(1, int(stall[j]))
        if at == i:
            continue
        taken = free & -free
        for j in range(at, i + 1):
            idle[j] &= ~taken
        placement.hoisted[i] = at


def unreduced(
    program: Program,
    live: Liveness,
    access: Access,
    away: Sequence[bool] | NDArray[np.bool_],
    placed: Placement,
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
            if j in access.writes and program.code.guard[j] == 7:
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
