"""Code between barriers: what a block's warps must all have done before any goes on.

Problem: warps of different blocks fill each other's waits, but at a barrier those of one block wait
for the slowest. What a warp waits for before a barrier can't be filled with what comes behind it.

Method: the code is cut at barriers of all threads (BAR.SYNC, BAR.RED). A phase is what can be
reached from each other without passing one: pieces of blocks, joined along edges and calls. A loop
with one barrier is one phase (its turns are alike), one with two has two.

Not claimed: barriers of some warps only (warp-specialised code) are taken for barriers of all.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from regdem.analysis.forms import forms_of
from regdem.isa.fields import get_field
from regdem.program.program import Program

_ARRIVE = 1
"""BAR.ARV, by the mode in bits 77 to 79, does not wait."""


@dataclass(frozen=True)
class Phase:
    """Sums over a phase's executions: warp instructions, L1 wavefronts, bytes to and from memory,
    and cycles of one warp alone, one for each latency of the walk."""

    instructions: float
    wavefronts: float
    far_bytes: float
    cycles: tuple[float, ...]


def barriers(program: Program) -> frozenset[int]:
    """Instructions at which a warp waits for those of its block."""
    words: list[list[int]] = program.code.words.tolist()
    return frozenset(
        i
        for i, form in enumerate(forms_of(program.code))
        if form.name == "BAR" and get_field(words[i][0], words[i][1], 77, 3) != _ARRIVE
    )


def pieces(program: Program, cuts: frozenset[int]) -> tuple[list[list[int]], int]:
    """The phase of each piece of each block, and how many phases there are."""
    inside = [sorted(i for i in cuts if b.start <= i < b.end) for b in program.blocks]
    first: list[int] = []
    total = 0
    for some in inside:
        first.append(total)
        total += len(some) + 1
    parent = list(range(total))

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    for block in program.blocks:
        last = first[block.index] + len(inside[block.index])
        for successor in block.successors:
            parent[root(last)] = root(first[successor])
    for site, function in program.callee.items():
        caller = int(program.block_of[site])
        last = first[caller] + len(inside[caller])
        for block in program.blocks:
            if block.function == function:
                parent[root(last)] = root(first[block.index])
    names: dict[int, int] = {}
    found = [
        [names.setdefault(root(first[b] + k), len(names)) for k in range(len(inside[b]) + 1)]
        for b in range(len(program.blocks))
    ]
    return found, len(names)


def piece_of(program: Program, cuts: frozenset[int]) -> tuple[list[int], list[list[int]], int]:
    """The phase of each instruction, that of each piece of each block, and how many there are."""
    found, count = pieces(program, cuts)
    of: list[int] = []
    for block in program.blocks:
        k = 0
        for i in range(block.start, block.end):
            of.append(found[block.index][k])
            k += i in cuts
    return of, found, count


def spans(cycles: float, cuts: Sequence[float]) -> list[float]:
    """Cycles of each piece of a block, from when its barriers were passed."""
    edges = [0.0, *cuts, cycles]
    return [b - a for a, b in itertools.pairwise(edges)]


__all__ = ["Phase", "barriers", "piece_of", "pieces", "spans"]
