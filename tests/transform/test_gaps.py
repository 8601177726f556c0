"""Which idle stretches are given up, on programs of a few instructions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from words import EXIT, branch, ldg, program

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import allocation_pressure, webs
from regdem.binary.cubin import Cubin
from regdem.isa.encode import Word, add, add_immediate, ldc
from regdem.program.program import Program
from regdem.transform.demoted import program_of
from regdem.transform.gap_choice import (
    Choice,
    _first_scores,  # pyright: ignore[reportPrivateUsage]
    choose_gaps,
    out_of_reach,
    settled,
)
from regdem.transform.gaps import GapSearch
from regdem.transform.recompute import recomputable, recomputable_from_inputs
from regdem.transform.slot_sharing import share_slots, slot_points
from regdem.transform.values import Value, values_of


def other(k: int) -> Word:
    """An instruction that has nothing to do with the values of interest."""
    return add_immediate(40 + k, 60 + k, 1)


def values(code: Program, *, pairs: bool = True, again: bool = False) -> list[Value]:
    live = liveness(code, follow_guards=True)
    found = webs(code, live)
    ways: dict[int, int] = {}
    if again:
        ways = recomputable_from_inputs(code, live, found)
        ways |= recomputable(code, found, pairs=True)
    return values_of(code, found, ways, pairs=pairs)


def value_in(found: list[Value], register: int) -> Value:
    (value,) = (v for v in found if v.webs[0].register == register)
    return value


def chosen(code: Program, target: int, slots: int = 100) -> list[Choice] | None:
    live = liveness(code, follow_guards=True)
    pressure = allocation_pressure(code, live)
    found = values(code)
    gaps = GapSearch(code, live).find(found, pressure > target)
    return choose_gaps(found, gaps, pressure, target, slots)


def test_each_idle_stretch_is_a_gap() -> None:
    words = [
        add_immediate(4, 2, 1),
        other(0),
        other(1),
        add_immediate(30, 4, 1),
        other(2),
        add_immediate(31, 4, 2),
        EXIT,
    ]
    code = program(words)
    found = [value_in(values(code), 4)]
    hot = np.ones(len(code), dtype=np.bool_)
    gaps = GapSearch(code, liveness(code)).find(found, hot)
    assert sorted(gap.places.tolist() for gap in gaps) == [[1, 2], [4]]


def test_a_gap_reaches_around_a_loop() -> None:
    """Idle through the loop, used behind it: one gap, whose load is paid for once."""
    words = [
        add_immediate(4, 2, 1),
        *[other(k) for k in range(20)],
        branch(-21, predicate=0),
        add_immediate(30, 4, 1),
        EXIT,
    ]
    code = program(words)
    found = [value_in(values(code), 4)]
    (gap,) = GapSearch(code, liveness(code)).find(found, np.ones(len(code), dtype=np.bool_))
    assert gap.places.tolist() == list(range(1, 22))
    assert gap.load_cost < 4


def test_halves_that_go_together_are_one_value() -> None:
    words = [ldg(8, 2, size=8), other(0), ldg(12, 8), add(14, 12, 12), EXIT]
    code = program(words)
    pair = value_in(values(code), 8)
    assert [web.register for web in pair.webs] == [8, 9]
    assert pair.words == 2
    assert pair.access().words == 2
    assert len(value_in(values(code, pairs=False), 8).webs) == 1


def test_halves_used_apart_are_two_values() -> None:
    words = [ldg(8, 2, size=8), other(0), add_immediate(20, 8, 1), add_immediate(21, 9, 1), EXIT]
    found = values(program(words))
    assert value_in(found, 8).words == 1
    assert value_in(found, 9).words == 1


def test_recomputed_where_inputs_stay() -> None:
    words = [
        add_immediate(4, 2, 1),
        other(0),
        add_immediate(30, 4, 1),
        add_immediate(31, 2, 1),
        EXIT,
    ]
    assert value_in(values(program(words), again=True), 4).definition == 0


@pytest.mark.parametrize(
    "between", [add_immediate(2, 60, 1), add_immediate(2, 2, 1)], ids=["other value", "changed"]
)
def test_not_recomputed_where_an_input_is_overwritten(between: Word) -> None:
    words = [
        add_immediate(4, 2, 1),
        between,
        add_immediate(30, 4, 1),
        add_immediate(31, 2, 1),
        EXIT,
    ]
    assert value_in(values(program(words), again=True), 4).definition is None


def test_stored_after_all_where_an_input_leaves() -> None:
    words = [
        add_immediate(4, 2, 1),
        other(0),
        add_immediate(30, 4, 1),
        add_immediate(31, 2, 1),
        EXIT,
    ]
    code = program(words)
    found = values(code, again=True)
    away = np.zeros(len(code), dtype=np.bool_)
    away[1] = True
    result, base = (
        value_in(found, 4),
        value_in(found, 2) if any(v.webs[0].register == 2 for v in found) else None,
    )
    alone = settled(liveness(code), [Choice(result, away)])
    assert alone[0].value.definition == 0
    if base is not None:
        both = settled(liveness(code), [Choice(result, away), Choice(base, away)])
        assert both[0].value.definition is None


def test_constants_need_no_slot() -> None:
    words = [ldc(4, 0, 0x210), other(0), add_immediate(30, 4, 1), EXIT]
    value = value_in(values(program(words), again=True), 4)
    away = np.ones(4, dtype=np.bool_)
    assert share_slots([Choice(value, away)]) == ({}, 0)


def crossing(count: int) -> list[Word]:
    """`count` values defined, then other work, then all of them used."""
    return [
        *[add_immediate(4 + k, 2, k) for k in range(count)],
        *[other(k % 4) for k in range(40)],
        *[add_immediate(70 + k, 4 + k, 1) for k in range(count)],
        EXIT,
    ]


@settings(max_examples=25, deadline=None)
@given(count=st.integers(3, 12), relieved=st.integers(1, 6))
def test_choice_meets_the_target_and_nothing_is_superfluous(count: int, relieved: int) -> None:
    code = program(crossing(count))
    pressure = allocation_pressure(code, liveness(code, follow_guards=True))
    middle = int(pressure[count + 5])
    target = middle - min(relieved, count - 1)
    choices = chosen(code, target)
    if choices is None:
        return
    after = pressure - sum(c.away * c.value.words for c in choices)
    assert int(after.max()) <= target
    for choice in choices:
        assert ((after + choice.away * choice.value.words) > target).any()


def test_too_few_slots() -> None:
    code = program(crossing(8))
    pressure = allocation_pressure(code, liveness(code, follow_guards=True))
    target = int(pressure[13]) - 5
    full = chosen(code, target)
    if full is not None:
        assert sum(c.value.words for c in full) >= 5
    assert chosen(code, target, slots=2) is None


def test_values_that_never_meet_share_a_slot() -> None:
    words = [
        add_immediate(4, 2, 1),
        other(0),
        add_immediate(30, 4, 1),
        add_immediate(5, 2, 1),
        other(1),
        add_immediate(31, 5, 1),
        EXIT,
    ]
    code = program(words)
    found = values(code)
    away = np.ones(len(code), dtype=np.bool_)
    slots, count = share_slots([Choice(value_in(found, r), away) for r in (4, 5)])
    assert count == 1
    assert set(slots.values()) == {0}


def test_pairs_have_even_slots() -> None:
    words = [
        add_immediate(4, 2, 1),
        ldg(8, 2, size=8),
        other(0),
        ldg(12, 8),
        add(14, 12, 4),
        EXIT,
    ]
    code = program(words)
    found = values(code)
    away = np.ones(len(code), dtype=np.bool_)
    single, pair = value_in(found, 4), value_in(found, 8)
    slots, count = share_slots([Choice(single, away), Choice(pair, away)])
    assert slots[pair.webs[0].index] % 2 == 0
    assert count == 3


def away_everywhere(code: Program, value: Value) -> Choice:
    away = np.zeros(len(code), dtype=np.bool_)
    away[[i for i in range(len(code)) if value.points >> 2 * i & 3]] = True
    away[[i for web in value.webs for i in (*web.reads, *web.writes)]] = False
    return Choice(value, away)


def test_a_slot_is_needed_from_the_store_to_the_last_load() -> None:
    """The value is used at once and again late: its slot is free before the gap ends in no load."""
    words = [
        add_immediate(4, 2, 1),
        other(0),
        other(1),
        add_immediate(30, 4, 1),
        other(2),
        EXIT,
    ]
    code = program(words)
    live = liveness(code, follow_guards=True)
    value = value_in(values(code), 4)
    points = slot_points(code, live, away_everywhere(code, value))
    assert points >> 2 * 3 & 1  # in front of the use, where the load stands
    assert not points >> 2 * 3 + 1  # and nowhere behind it
    assert not points & 1  # nor before the definition


def test_slots_follow_each_other_sooner_than_values() -> None:
    """Two values overlap in registers, where one is used up after the other is stored."""
    words = [
        add_immediate(4, 2, 1),
        other(0),
        add_immediate(30, 4, 1),  # 4 is loaded here, and stays to the end
        add_immediate(6, 30, 1),
        other(1),
        add_immediate(31, 6, 1),
        add_immediate(32, 4, 1),
        EXIT,
    ]
    code = program(words)
    live = liveness(code, follow_guards=True)
    found = values(code)
    first = Choice(value_in(found, 4), np.array([False, True, *[False] * (len(code) - 2)]))
    second = away_everywhere(code, value_in(found, 6))
    both = [first, second]
    assert share_slots(both)[1] == 2
    assert share_slots(both, lambda choice: slot_points(code, live, choice))[1] == 1


def test_a_slot_around_a_loop_is_needed_all_through_it() -> None:
    words = [
        add_immediate(4, 2, 1),
        other(0),
        other(1),
        branch(-3, 1),
        add_immediate(30, 4, 1),
        EXIT,
    ]
    code = program(words)
    live = liveness(code, follow_guards=True)
    points = slot_points(code, live, away_everywhere(code, value_in(values(code), 4)))
    assert all(points >> 2 * i & 1 for i in (1, 2, 3, 4))


@pytest.mark.parametrize("early", [False, True])
def test_reach_and_first_scores_are_those_of_a_plain_count(example_path: Path, early: bool) -> None:
    code = program_of(Cubin.parse(example_path.read_bytes()).kernel("pair_forces"))
    live = liveness(code, follow_guards=True)
    pressure = allocation_pressure(code, live)
    found = values(code, again=True)
    if early:
        found += [replace(value, early=True) for value in found if value.takes_slot]
    n = len(code)
    for target in range(int(pressure.max()) - 12, int(pressure.max()) + 1, 3):
        gaps = GapSearch(code, live).find(found, pressure > target)
        excess = np.maximum(pressure.astype(np.int32) - target, 0)
        away: dict[int, np.ndarray] = {}
        for gap in gaps:
            mine = away.setdefault(found[gap.value].webs[0].index, np.zeros(n, dtype=np.bool_))
            mine[gap.places] = True
        words = {value.webs[0].index: value.words for value in found}
        again = {found[g.value].webs[0].index for g in gaps if not found[g.value].takes_slot}
        reach = sum((words[web] * mine for web, mine in away.items()), np.zeros(n))
        free = sum((words[web] * away[web] for web in again), np.zeros(n))
        for most in (0, 1, 3, 8, 99):
            expected = bool((excess > reach).any() or (excess - free > most).any())
            assert out_of_reach(found, gaps, pressure, target, most) == expected
        where, scores = _first_scores(gaps, excess, [value.words for value in found])
        for gap, place, score in zip(gaps, where, scores, strict=True):
            assert np.arange(n)[place].tolist() == gap.places.tolist()
            over = excess[gap.places]
            freed = int(np.minimum(over, found[gap.value].words).sum())
            cost = gap.load_cost + gap.store_cost
            assert score == freed * (1.0 + int(over.max())) / (cost + 0.5)
