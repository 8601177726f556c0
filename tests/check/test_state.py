"""The symbolic state: definitions, guarded facts, meets, calls."""

from __future__ import annotations

from regdem.check.places import FILE_BASE
from regdem.check.state import UNKNOWN, State

P0 = 2 * FILE_BASE[2]
NOT_P0 = P0 ^ 1
R5, R6 = 5, 6
SLOT = 512
EVERY = (1 << 16) - 1


def defined(state: State, value: int, place: int, guard: int = -2) -> None:
    state.redefine(1 << value, guard)
    state.write([(place, (1 << value, {}))], guard)


def copy(state: State, place: int, source: int, guard: int = -2) -> None:
    state.write([(place, state.facts(source))], guard)


def test_a_definition_makes_copies_stale() -> None:
    state = State.entry(EVERY)
    defined(state, R5, R5)
    copy(state, SLOT, R5)
    assert state.holds(SLOT, R5)
    defined(state, R5, R5)
    assert state.holds(R5, R5)
    assert not state.holds(SLOT, R5)


def test_undefined_values_are_held_everywhere() -> None:
    state = State.entry(EVERY)
    assert state.holds(99, R5)
    defined(state, R5, R5)
    assert not state.holds(99, R5)


def test_a_guarded_definition_and_store_keep_a_mirror_exact() -> None:
    state = State.entry(EVERY)
    defined(state, R5, 20)
    copy(state, SLOT, 20)
    defined(state, R6, 20)  # the temporary serves another value
    state.redefine(1 << R5, P0)
    state.write([(20, (1 << R5, {}))], P0)
    assert state.holds(20, R5, P0)
    assert not state.holds(20, R5)
    assert not state.holds(SLOT, R5)
    assert state.holds(SLOT, R5, NOT_P0)
    copy(state, SLOT, 20, P0)
    assert state.holds(SLOT, R5)


def test_facts_under_a_predicate_end_with_it() -> None:
    state = State.entry(EVERY | 1 << FILE_BASE[2])
    defined(state, R5, 20)
    defined(state, R5, 21, P0)
    assert state.holds(21, R5, P0)
    state.redefine(1 << FILE_BASE[2])
    assert not state.holds(21, R5, P0)
    assert not state.holds(20, R5, NOT_P0)


def test_a_branch_turns_conditions_into_facts() -> None:
    state = State.entry(EVERY)
    defined(state, R5, 20)
    defined(state, R5, 21, P0)
    taken, fallen = state.copy(), state.copy()
    taken.assume(P0)
    fallen.assume(NOT_P0)
    assert taken.holds(21, R5)
    assert not taken.holds(20, R5)
    assert fallen.holds(20, R5)
    met, less = taken.met_with(fallen)
    assert less
    assert not met.holds(20, R5)
    assert not met.holds(21, R5)


def test_meet_reaches_a_fixpoint() -> None:
    first, second = State.entry(EVERY), State.entry(EVERY)
    defined(first, R5, 20)
    copy(first, SLOT, 20)
    defined(second, R5, 20)
    met, less = first.met_with(second)
    assert less
    assert met.holds(20, R5)
    assert not met.holds(SLOT, R5)
    again, less = met.met_with(second)
    assert not less
    assert again == met


def test_an_unknown_guard_keeps_only_what_both_cases_have() -> None:
    state = State.entry(EVERY)
    defined(state, R5, 20)
    copy(state, 21, 20)
    defined(state, R6, 22)
    copy(state, 21, 22, UNKNOWN)
    assert not state.holds(21, R5)
    assert not state.holds(21, R6)
    copy(state, 20, 20, UNKNOWN)
    assert state.holds(20, R5)


def test_copies_of_the_original_are_held_by_all_holders() -> None:
    state = State.entry(EVERY)
    defined(state, R5, 20)
    copy(state, SLOT, 20)
    state.copy_values([(R6, R5)])
    assert state.holds(SLOT, R6)
    assert state.holds(20, R6)
    defined(state, R5, 21)
    assert state.holds(SLOT, R6)
    assert not state.holds(SLOT, R5)


def test_behind_a_call_untouched_facts_remain() -> None:
    before = State.entry(EVERY)
    defined(before, R5, 20)
    defined(before, R6, 21)
    returned = State.entry(EVERY)
    defined(returned, 7, 22)
    returned.undefined = 0
    after = before.after_call(returned, values=1 << R6, places=1 << 22)
    assert after.holds(20, R5)
    assert not after.holds(21, R6)
    assert after.holds(22, 7)
