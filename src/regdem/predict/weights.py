"""How often each block runs: loops, calls, and the paths that are hardly ever taken.

Loops count `per_level` times a level (`program/loops.py`). What is added here: ptxas puts the rare
part of a division, a square root or a reduction of large angles into functions of its own, named
for it, and guards the call with a branch. Such a function, and the block that calls it, count
`RARE` times as much as their surroundings: their spills and waits would otherwise rule the sum.

A function that calls itself counts as a loop does.

Not claimed: any other branch is taken as always falling into both of its sides.
"""

from __future__ import annotations

import re

from regdem.program.loops import block_weights
from regdem.program.program import Program

RARE = 0.02
"""Share of executions that take a guarded slow path. An assumption."""
_RARE_NAMES = re.compile(r"slowpath|mediumpath|_rn_f64_full")


def recursive(program: Program) -> frozenset[int]:
    """Functions that call themselves, directly or through others."""
    calls: dict[int, set[int]] = {}
    for site, function in program.callee.items():
        caller = program.blocks[int(program.block_of[site])].function
        calls.setdefault(caller, set()).add(function)
    found: set[int] = set()
    for start in calls:
        seen: set[int] = set()
        work = list(calls[start])
        while work:
            function = work.pop()
            if function not in seen:
                seen.add(function)
                work.extend(calls.get(function, ()))
        if start in seen:
            found.add(start)
    return frozenset(found)


def executions(program: Program, per_level: float) -> list[float]:
    """Estimated executions of each block; 0 where no path leads."""
    rare = {k for k, f in enumerate(program.functions) if k and _RARE_NAMES.search(f.name)}
    again = recursive(program)
    calling = {
        int(program.block_of[site]) for site, function in program.callee.items() if function in rare
    }
    reachable = program.reachable
    found: list[float] = []
    for block, weight in zip(program.blocks, block_weights(program, per_level), strict=True):
        if block.function in rare or block.index in calling:
            weight *= RARE
        if block.function in again:
            weight *= per_level
        found.append(weight if block.index in reachable else 0.0)
    return found
