"""The six scoreboards: who shares one, and which waits remain."""

from __future__ import annotations

from collections import Counter

import pytest
from words import EXIT, NO_SCOREBOARD, branch, ldg, program, repaired, with_control

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


def test_short_events_among_many_loads_from_memory() -> None:
    """Ten global loads in a row, then a slot's load and work with it: it waits for that alone."""
    words: list[Word] = [ldg(8 + k, 2) for k in range(10)]
    words += [lds(30, 6, 0), add_immediate(31, 30, 1)]
    words += [with_control(add_immediate(60 + k, 70 + k, 1), stall=11) for k in range(9)]
    words += [add_immediate(40 + k, 8 + k, 1) for k in range(10)]
    words.append(EXIT)
    done = repaired(words, inserted=[10])
    load, reader = done[10], done[11]
    assert waits_on(reader, load)
    assert not any(waits_on(reader, done[k]) for k in range(10))


def test_events_of_the_block_before_count() -> None:
    """What the second load waits for began in another block: the first load keeps off its board."""
    code = program([lds(4, 6, 0), branch(0, predicate=0), ldg(8, 2), ldg(10, 4), EXIT])
    events = [
        Event(0, 0, True, 30, 0, False),
        Event(1, 2, True, 500, 0, False),
        Event(2, 3, True, 500, 1, False),
    ]
    successors = [list(block.successors) for block in code.blocks]
    boards, waits = assign(
        code, successors, events, [True] * 3, [0, 0, 0, 1, 0b110], [1, 2, 4], 0, [1] * 5
    )
    assert boards[1] != boards[0]
    assert waits[3] == 1 << boards[0]
