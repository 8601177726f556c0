"""The six scoreboards: who shares one, and which waits remain."""

from __future__ import annotations

from collections import Counter

import pytest
from words import EXIT, NO_SCOREBOARD, ldg, program, repaired, with_control

from regdem.errors import UnsupportedError
from regdem.isa.control import ControlWord
from regdem.isa.encode import Word, add_immediate, lds
from regdem.transform.scoreboards import Event, assign


def waits_on(waiter: ControlWord, setter: ControlWord) -> bool:
    return bool((waiter.wait_mask >> setter.write_scoreboard) & 1)


def test_short_wait_does_not_wait_for_a_long_load() -> None:
    """A slot's load between a global load and its use gets a scoreboard of its own."""
    words = [
        ldg(8, 2, write_scoreboard=0, stall=2),
        lds(12, 6, 0),
        add_immediate(30, 12, 1),
        with_control(add_immediate(31, 8, 1), wait_mask=1),
        EXIT,
    ]
    long, short, first, second, _ = repaired(words, inserted=[1])
    assert long.write_scoreboard != short.write_scoreboard
    assert waits_on(first, short)
    assert not waits_on(first, long)
    assert waits_on(second, long)


def test_more_events_than_scoreboards() -> None:
    """Nine loads under way at once: some share, and everything is still waited for."""
    words: list[Word] = [ldg(8 + k, 2) for k in range(9)]
    words += [add_immediate(30 + k, 8 + k, 1) for k in range(9)]
    words.append(EXIT)
    done = repaired(words, inserted=range(18))
    boards = [c.write_scoreboard for c in done[:9]]
    assert NO_SCOREBOARD not in boards
    assert set(boards) == set(range(6))
    assert max(Counter(boards).values()) == 2
    seen = 0
    for k, waiter in enumerate(done[9:18]):
        seen |= waiter.wait_mask
        assert (seen >> boards[k]) & 1


def test_waited_for_once() -> None:
    """The second user of a load that the first one waited for has nothing to wait for."""
    words = [lds(8, 2, 0), add_immediate(30, 8, 1), add_immediate(31, 8, 2), EXIT]
    load, first, second, _ = repaired(words, inserted=[0])
    assert waits_on(first, load)
    assert second.wait_mask == 0


def test_nothing_needed_nothing_given() -> None:
    code = program([ldg(8, 2), EXIT])
    events = [Event(0, 0, True, 500, 3, False), Event(1, 0, False, 20, 7, False)]
    boards, waits = assign(code, [[]], events, [True, True], [0, 0], [1, 2], 0, [1, 1])
    assert boards == {}
    assert waits == [0, 0]


def test_original_scoreboard_on_a_tie() -> None:
    code = program([ldg(8, 2), add_immediate(30, 8, 1), EXIT])
    events = [Event(0, 0, True, 500, 4, False)]
    boards, waits = assign(code, [[]], events, [True], [0, 1, 0], [1], 0, [1, 1, 1])
    assert boards == {0: 4}
    assert waits == [0, 1 << 4, 0]


def test_pinned_event_keeps_its_scoreboard_and_others_keep_off() -> None:
    code = program([ldg(8, 2), ldg(9, 2), add_immediate(30, 9, 1), EXIT])
    events = [Event(0, 0, True, 500, 2, True), Event(1, 1, True, 500, 2, False)]
    boards, waits = assign(
        code, [[]], events, [True, True], [0, 0, 2, 0], [1, 2], 1 << 2, [1, 1, 1, 1]
    )
    assert boards[0] == 2
    assert boards[1] != 2
    assert waits[2] == 1 << boards[1]


def test_all_reserved() -> None:
    with pytest.raises(UnsupportedError) as caught:
        assign(program([EXIT]), [[]], [], [], [0], [], 0b111111, [1])
    assert caught.value.code == "no_scoreboard"
