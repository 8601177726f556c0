"""What makes demotion quick in long programs gives what the plain way over every point gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from words import EXIT, branch, program

from regdem.analysis.liveness import Liveness, liveness
from regdem.analysis.webs import Group, Web, Webs, allocation_pressure, webs
from regdem.binary.cubin import Cubin
from regdem.errors import UnsupportedError
from regdem.isa.encode import Word, add_immediate
from regdem.program.program import Program
from regdem.transform.colour import (
    _intervals,  # pyright: ignore[reportPrivateUsage]
    _Neighbours,  # pyright: ignore[reportPrivateUsage]
    _tuples,  # pyright: ignore[reportPrivateUsage]
)
from regdem.transform.demote import demote
from regdem.transform.demoted import DemoteOptions, program_of
from regdem.transform.gap_choice import Choice
from regdem.transform.gaps import GapSearch
from regdem.transform.shortage import Shortage
from regdem.transform.slot_sharing import slot_points
from regdem.transform.spill import Access, keeps_old, place, touched_blocks
from regdem.transform.values import values_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "neighbour" / "neighbour.cubin"
KERNELS = Path(__file__).resolve().parents[1] / "check" / "data" / "kernels.cubin"
LENGTH = 24

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(4, 9), st.integers(4, 9)),
        st.tuples(st.just("branch"), st.integers(-8, 8), st.sampled_from([0, 1])),
    ),
    min_size=8,
    max_size=LENGTH,
)


def code_of(made: Sequence[tuple[str, int, int]]) -> Program:
    words: list[Word] = [add_immediate(r, 2, r) for r in range(4, 10)]
    for i, (kind, a, b) in enumerate(made):
        if kind == "add":
            words.append(add_immediate(a, b, 1))
        else:
            goal = min(max(6, 6 + i + 1 + a), 6 + len(made))
            words.append(branch(goal - (6 + i) - 1, predicate=b))
    words += [add_immediate(r, r, 1) for r in range(4, 10)]
    return program([*words, EXIT])


def loads_by_walking(
    code: Program, live: Liveness, value: Access, away: Sequence[bool]
) -> set[int]:
    """The uses that need a load: availability over every instruction of every block."""
    reads = set(value.reads) | keeps_old(code, live, value)

    def walk(b: int, available: bool, note: set[int]) -> bool:
        for i in range(code.blocks[b].start, code.blocks[b].end):
            if i in reads:
                if not available:
                    note.add(i)
                available = True
            elif i not in value.writes and away[i]:
                available = False
            if i in value.writes:
                available = True
        return available

    exits = [True] * len(code.blocks)
    entry = int(code.block_of[0])
    for _ in range(len(code.blocks) + 1):
        for b, block in enumerate(code.blocks):
            known = b != entry and all(exits[p] for p in block.predecessors)
            exits[b] = walk(b, known, set())
    found: set[int] = set()
    for b, block in enumerate(code.blocks):
        walk(b, b != entry and all(exits[p] for p in block.predecessors), found)
    return found


def slots_by_walking(code: Program, loads: set[int], stores: dict[tuple[int, bool], bool]) -> int:
    """Points between stores and loads, over every point of every block."""

    def walk(b: int, needed: bool) -> tuple[bool, int]:
        mask = 0
        for i in range(code.blocks[b].end - 1, code.blocks[b].start - 1, -1):
            for after in (True, False):
                needed = needed or (not after and i in loads)
                if needed or (i, after) in stores:
                    mask |= 1 << 2 * i + after
                if stores.get((i, after)):
                    needed = False
        return needed, mask

    entry = [False] * len(code.blocks)
    for _ in range(len(code.blocks) + 1):
        for b, block in enumerate(code.blocks):
            entry[b] = walk(b, any(entry[s] for s in block.successors))[0]
    points = 0
    for b, block in enumerate(code.blocks):
        points |= walk(b, any(entry[s] for s in block.successors))[1]
    return points


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(0, 2**40 - 1))
def test_values_are_followed_as_by_walking(made: list[tuple[str, int, int]], where: int) -> None:
    code = code_of(made)
    live = liveness(code)
    for value in values_of(code, webs(code, live), {}, pairs=False):
        access = value.access()
        touched = {
            int(code.block_of[i]) for i in range(len(code)) if value.points >> 2 * i & 3
        }  # fmt: skip
        assert touched_blocks(code, value.points) == sorted(touched)
        if not all(b in code.reachable for b in touched):
            continue
        away = np.array([where >> i % 40 & 1 for i in range(len(code))], dtype=np.bool_)
        placed = place(code, live, access, away)
        assert placed.loads == loads_by_walking(code, live, access, away.tolist())
        stores = dict.fromkeys(placed.stores.values(), True)  # none is guarded
        expected = slots_by_walking(code, placed.loads, stores)
        assert slot_points(code, live, Choice(value, away)) == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(2, 9), st.integers(1, 2**400 - 1), st.integers(0, 350)),
        min_size=1,
        max_size=12,
    )
)
def test_what_is_in_the_way_is_what_shares_points(made: list[tuple[int, int, int]]) -> None:
    listed = tuple(
        Web(k, register, points >> shift or 1) for k, (register, points, shift) in enumerate(made)
    )
    groups = tuple(Group((w.index,), 1, w.register, w.register) for w in listed)
    tuples = _tuples(Webs(listed, groups, {}), 32, 0)
    neighbours = _Neighbours(tuples)
    for k, mine in enumerate(listed):
        expected = [
            (w.index, w.register - mine.register)
            for w in listed
            if w is not mine and w.points & mine.points
        ]
        found = neighbours.of(k)
        assert list(zip(found.others.tolist(), found.distances.tolist(), strict=True)) == expected
        covered = sum((1 << b) - (1 << a) for a, b in _intervals(mine.points))
        assert covered == mine.points


def test_a_search_gives_the_same_gaps_again() -> None:
    code = program_of(Cubin.parse(EXAMPLE.read_bytes()).kernel("pair_forces"))
    live = liveness(code, follow_guards=True)
    pressure = allocation_pressure(code, live)
    values = values_of(code, webs(code, live), {})
    search = GapSearch(code, live)
    for below in (4, 10, 2):
        hot = pressure > int(pressure.max()) - below
        again = search.find(values, hot)
        fresh = GapSearch(code, live).find(values, hot)
        assert [(g.value, g.places.tolist(), g.load_cost, g.store_cost) for g in again] == [
            (g.value, g.places.tolist(), g.load_cost, g.store_cost) for g in fresh
        ]


def test_a_hopeless_target_is_refused_before_any_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer slots than values that must leave: nothing is looked for."""

    def never(*_: object) -> None:
        raise AssertionError("gaps were looked for")

    monkeypatch.setattr(GapSearch, "find", never)
    kernel = Cubin.parse(KERNELS.read_bytes()).kernel("doubles")
    options = DemoteOptions(registers=16, threads=256, most_slots=0, rematerialise=False)
    with pytest.raises(UnsupportedError) as raised:
        demote(kernel, options)
    assert raised.value.code == "slots_do_not_fit"


def test_registers_are_given_up_in_larger_steps_in_long_programs() -> None:
    small, large = Shortage(2000, 94), Shortage(20_000, 94)
    taken: list[tuple[int, int]] = []
    for _ in range(4):
        small.give_up_evenly()
        large.give_up_evenly()
        taken.append((int(small.lost[0]), int(large.lost[0])))
    assert taken == [(1, 4), (2, 12), (3, 20), (4, 28)]
    assert not any(large.room(np.zeros(20_000, dtype=np.int32) + 5)[k] > 0 for k in (0, 19_999))
