"""Where values may leave their registers: their idle stretches, and what each costs.

The unit is not the live range but the *gap*: a connected stretch of the flow graph in which a live
value is not accessed (the next-use distance of Belady, and of Braun and Hack's spilling, on a whole
function). Giving up a gap costs one load at each use it leads to, and one store per definition for
the first gap of a value; it frees the register in the whole gap. So a value that is busy in one
loop and idle through the next one gives up only the second, and short gaps, whose load would stand
right behind the store or the use before, lose against long ones.

Method: the idle instructions of a value are cut at block borders into runs, and runs that follow
each other in the flow graph are joined (union-find). Costs are loop-weighted accesses; a load whose
latency nothing covers, since all instructions in front of it are full, costs more.

A load under way (the result of a global load that the original code has not waited for) can't be
stored without waiting for it, which costs the overlap of all loads behind it. Such `early` stores
are a second choice of the caller: candidates with and without are made separately.

Invariants: the gaps of one value never overlap, and a value is accessed at none of their
instructions. Not claimed: that costs are cycles; they only rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.liveness import Liveness
from regdem.isa.control import SCOREBOARDS
from regdem.program.loops import block_weights
from regdem.program.program import Program
from regdem.transform.candidates import (
    EARLY_COST,
    LOAD_COST,
    RECOMPUTE_COST,
    STORE_COST,
)
from regdem.transform.latencies import LATENCY_CYCLES, LONG_CYCLES
from regdem.transform.spill import LOAD_CYCLES, Placement, keeps_old, store_positions
from regdem.transform.values import Value

_SHORT_CYCLES = 40
"""A gap shorter than this hardly covers a store and a load behind it."""
_SHORT_COST = 2.0
EXPOSED_COST = 1.0
"""A load whose latency nothing covers costs so much more."""


@dataclass(frozen=True)
class Gap:
    """One idle stretch of a value: instructions at which it may leave (ascending, at least one),
    cost of its loads."""

    value: int
    places: NDArray[np.intp]
    load_cost: float
    store_cost: float


@dataclass(frozen=True)
class _Stretch:
    """A connected idle stretch of a value, whatever is crowded: its instructions, the uses that it
    leads to, and what it costs more for being short."""

    places: NDArray[np.intp]
    uses: set[int]
    short_cost: float
    weight: float
    """Of its uses together."""


class GapSearch:
    """Finds gaps of one program; what does not depend on the crowded places is found once."""

    def __init__(self, program: Program, live: Liveness) -> None:
        self._program = program
        self._live = live
        n = len(program)
        weights = block_weights(program)
        self._weight = [weights[int(b)] for b in program.block_of]
        self._starts = np.zeros(n + 1, dtype=np.bool_)
        self._starts[program.block_starts] = True
        self._starts[n] = True
        stall = np.maximum(1, program.code.stall.astype(np.int64))
        self._clock: list[int] = np.concatenate(([0], np.cumsum(stall))).tolist()
        self._stretches: dict[tuple[object, ...], list[_Stretch]] = {}

    def find(
        self, values: Sequence[Value], hot: NDArray[np.bool_], exposed_cost: float = EXPOSED_COST
    ) -> list[Gap]:
        """All gaps that cross an instruction of `hot`, with their costs.

        `exposed_cost`: what a load costs more if nothing covers its latency.
        """
        late_cost = [exposed_cost * part for part in self._exposed(hot)]
        hot_points = int.from_bytes(np.packbits(np.repeat(hot, 2), bitorder="little"), "little")
        weight = self._weight
        result: list[Gap] = []
        for k, value in enumerate(values):
            if not value.points & hot_points:
                continue
            store_cost = 0.0
            if value.definition is None:
                per_store = STORE_COST + (EARLY_COST if value.early else 0.0)
                store_cost = per_store * sum(weight[i] for i in value.access().writes)
            per_load = LOAD_COST if value.takes_slot else RECOMPUTE_COST
            for stretch in self._stretches_of(value, hot):
                places = stretch.places[hot[stretch.places]]
                if not len(places):
                    continue
                cost = per_load * stretch.weight
                if value.takes_slot:
                    cost += sum(weight[u] * late_cost[u] for u in stretch.uses)
                cost += stretch.short_cost
                result.append(Gap(k, places, cost, store_cost))
        return result

    def _exposed(self, hot: NDArray[np.bool_]) -> list[float]:
        """(n,) which part of a load's latency is waited for at a use, from 0 to 1.

        A load moves up over instructions that are not full. Nothing is waited for where the use
        waits for memory anyway.
        """
        code, clock = self._program.code, self._clock
        full: list[bool] = hot.tolist()
        wait_mask: list[int] = code.wait_mask.tolist()
        write_scoreboard: list[int] = code.write_scoreboard.tolist()
        forms = [code.table.forms[f] for f in code.form_indices]
        result = [0.0] * len(code)
        for block in self._program.blocks:
            long_boards = 0
            for i in range(block.start, block.end):
                waits = wait_mask[i]
                covered = bool(waits & long_boards)
                long_boards &= ~waits
                board = write_scoreboard[i]
                if board < SCOREBOARDS:
                    is_long = LATENCY_CYCLES.get(forms[i].latency, 0) >= LONG_CYCLES
                    long_boards = long_boards & ~(1 << board) | is_long << board
                if covered:
                    continue
                at = i
                while at > block.start and clock[i] - clock[at] < LOAD_CYCLES and not full[at - 1]:
                    at -= 1
                result[i] = max(0.0, 1.0 - (clock[i] - clock[at]) / LOAD_CYCLES)
        return result

    def _stretches_of(self, value: Value, hot: NDArray[np.bool_]) -> list[_Stretch]:
        """Of an early value they depend on what is crowded, by way of its stores."""
        key: tuple[object, ...] = (
            value.webs[0].index, value.words, value.definition is None, value.folded, value.early,
        )  # fmt: skip
        busy: dict[int, int] = {}
        if value.early and value.definition is None:
            busy = store_positions(self._program, self._live, value.access(), Placement(), hot)
            key = (*key, *busy.items())
        known = self._stretches.get(key)
        if known is None:
            if not value.early and value.definition is None:
                access = value.access()
                busy = store_positions(self._program, self._live, access, Placement(), hot)
            known = self._stretches[key] = self._found(value, busy)
        return known

    def _found(self, value: Value, busy: dict[int, int]) -> list[_Stretch]:
        """`busy`: the instructions that its definitions stay up to, if it is stored."""
        program = self._program
        access = value.access()
        guarded = keeps_old(program, self._live, access)
        first, idle = _held(value.points)
        for i in (*access.reads, *access.writes):
            if 0 <= i - first < len(idle):
                idle[i - first] = False
        for i, until in busy.items():
            idle[max(0, i - first) : max(0, until - first)] = False
        runs = self._runs(first, idle)
        root = list(range(len(runs)))

        def find(x: int) -> int:
            while root[x] != x:
                root[x] = root[root[x]]
                x = root[x]
            return x

        run_at = {a: k for k, (a, _) in enumerate(runs)}
        uses: list[set[int]] = [set() for _ in runs]
        touching = access.reads | guarded
        for k, (_, end) in enumerate(runs):
            block = program.blocks[int(program.block_of[end - 1])]
            nexts = (end,) if end < block.end else tuple(
                program.blocks[s].start for s in block.successors
            )  # fmt: skip
            for start in nexts:
                other = run_at.get(start)
                if other is not None:
                    root[find(other)] = find(k)
                elif start in touching:
                    uses[k].add(start)
        members: dict[int, list[int]] = {}
        for k in range(len(runs)):
            members.setdefault(find(k), []).append(k)
        found: list[_Stretch] = []
        for ks in members.values():
            places = np.concatenate([np.arange(*runs[k]) for k in ks])
            short = 0.0
            if value.definition is None and len(ks) == 1:
                a, b = runs[ks[0]]
                same = int(program.block_of[a]) == int(
                    program.block_of[min(b, len(program) - 1)]
                )  # fmt: skip
                if same and self._clock[b] - self._clock[a] < _SHORT_CYCLES:
                    short = _SHORT_COST * self._weight[a]
            used = set[int]().union(*(uses[k] for k in ks))
            found.append(_Stretch(places, used, short, sum(self._weight[u] for u in used)))
        return found

    def _runs(self, first: int, idle: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """Maximal idle stretches within blocks, as half-open ranges."""
        starts = self._starts[first : first + len(idle) + 1]
        previous = np.concatenate(([False], idle[:-1]))
        begins = (idle & (~previous | starts[:-1])).nonzero()[0] + first
        following = np.concatenate((idle[1:], [False]))
        ends = (idle & (~following | starts[1:])).nonzero()[0] + first + 1
        return list(zip(begins.tolist(), ends.tolist(), strict=True))


def _held(points: int) -> tuple[int, NDArray[np.bool_]]:
    """The first instruction of a live range, and from there on whether it holds its register."""
    first = ((points & -points).bit_length() - 1) // 2
    trimmed = points >> 2 * first
    size = (trimmed.bit_length() + 1) // 2
    data = np.frombuffer(trimmed.to_bytes((2 * size + 7) // 8, "little"), dtype=np.uint8)
    bits = np.unpackbits(data, bitorder="little")[: 2 * size]
    return first, (bits[0::2] | bits[1::2]).astype(np.bool_)
