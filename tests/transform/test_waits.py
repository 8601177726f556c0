"""Control bits of rewritten code, on programs of a few instructions.

Where a program is broken before the repair, the checker must say so, or the test would show
nothing; `repaired` asserts that it is content afterwards.
"""

from __future__ import annotations

import pytest
from words import EXIT, NO_SCOREBOARD, branch, depbar, kinds, ldg, repaired, with_control

from regdem.errors import UnsupportedError
from regdem.isa.encode import Word, add_immediate, imad, ldc, lds, sts

R2, R4, R6, R8, R11 = 2, 4, 6, 8, 11


def use(register: int) -> Word:
    """`VIADD R30, register, 1`."""
    return add_immediate(30, register, 1)


def test_inserted_load_is_waited_for_two_cycles_later() -> None:
    words = [lds(R4, R2, 0), use(R4), EXIT]
    assert "raw_scoreboard" in kinds(words)
    load, user, _ = repaired(words, inserted=[0])
    assert load.write_scoreboard != NO_SCOREBOARD
    assert (user.wait_mask >> load.write_scoreboard) & 1
    assert load.stall >= 2


def test_two_cycles_at_least_between_setter_and_waiter() -> None:
    """One cycle may miss the scoreboard (measured); the checker calls it an early wait."""
    words = [
        lds(R4, R2, 0),
        with_control(use(R4), wait_mask=1),
        EXIT,
    ]
    words[0] = with_control(words[0], write_scoreboard=0, stall=1)
    assert "early_wait" in kinds(words)
    load, _, _ = repaired(words)
    assert load.stall >= 2


def test_store_of_a_load_without_a_scoreboard_waits() -> None:
    words = [ldg(R4, R2), sts(R6, 0, R4), EXIT]
    load, store, _ = repaired(words, inserted=[1])
    assert load.write_scoreboard != NO_SCOREBOARD
    assert (store.wait_mask >> load.write_scoreboard) & 1


def test_store_data_is_read_before_it_is_overwritten() -> None:
    words = [sts(R6, 0, R4), add_immediate(R4, 9, 1), EXIT]
    assert "war_scoreboard" in kinds(words)
    store, writer, _ = repaired(words, inserted=[0])
    assert store.read_scoreboard != NO_SCOREBOARD
    assert (writer.wait_mask >> store.read_scoreboard) & 1


@pytest.mark.parametrize("half", [R2, R2 + 1])
def test_load_address_is_read_before_it_is_overwritten(half: int) -> None:
    words = [ldg(R8, R2), add_immediate(half, 9, 1), EXIT]
    assert "war_scoreboard" in kinds(words)
    load, writer, _ = repaired(words)
    boards = {load.read_scoreboard, load.write_scoreboard} - {NO_SCOREBOARD}
    assert any((writer.wait_mask >> board) & 1 for board in boards)


@pytest.mark.parametrize("last", [R8, R8 + 1, R11])
@pytest.mark.parametrize("size", [4, 8, 16])
def test_second_global_load_waits_for_the_first_s_registers(last: int, size: int) -> None:
    """Global loads don't return in order: a later one must not be overwritten by an earlier."""
    words = [ldg(R8, R2, size), ldg(last, R4), EXIT]
    overlaps = R8 <= last < R8 + size // 4
    assert ("waw_scoreboard" in kinds(words)) == overlaps
    first, second, _ = repaired(words)
    if overlaps:
        assert (second.wait_mask >> first.write_scoreboard) & 1
    else:
        assert second.wait_mask == 0


def test_fixed_latency_result_is_stored_late_enough() -> None:
    words = [imad(R4, R2, 3, R6), sts(R6, 0, R4), EXIT]
    assert "raw" in kinds(words)
    producer, store, _ = repaired(words, inserted=[1])
    assert producer.stall > 1
    assert store.wait_mask == 0


def test_inserted_result_is_read_late_enough() -> None:
    words = [add_immediate(R4, R2, 1), ldc(9, 0, 0x210), use(R4), EXIT]
    producer, between, user, _ = repaired(words, inserted=[0])
    assert producer.stall + between.stall >= 5
    assert user.wait_mask == 0


def test_what_ptxas_scheduled_is_left_alone() -> None:
    """Old pairs of producer and user keep their distances, whatever the tables here say."""
    words = [
        with_control(imad(R4, R2, 3, R6), stall=5),
        with_control(use(R4), stall=4),
        with_control(ldg(R8, R2, write_scoreboard=3), stall=2, write_scoreboard=3),
        with_control(use(R8), stall=6, wait_mask=8),
        EXIT,
    ]
    first, second, load, last, _ = repaired(words)
    assert (first.stall, second.stall, load.stall, last.stall) == (5, 4, 2, 6)
    assert (last.wait_mask >> load.write_scoreboard) & 1


def test_counted_scoreboard_is_not_shared() -> None:
    """DEPBAR.LE SB0, 1 counts: one more setter of SB0 would change what it waits for."""
    words = [
        ldg(8, R2, write_scoreboard=0, stall=2),
        ldg(9, R2, write_scoreboard=0, stall=2),
        lds(R4, R6, 0),
        sts(R6, 128, R4),
        depbar(0, 1),
        with_control(use(9), wait_mask=1),
        EXIT,
    ]
    first, second, load, store, _, user, _ = repaired(words, inserted=[2, 3])
    assert first.write_scoreboard == second.write_scoreboard == 0
    used = {load.write_scoreboard, load.read_scoreboard}
    used |= {store.write_scoreboard, store.read_scoreboard}
    assert 0 not in used
    assert load.write_scoreboard != NO_SCOREBOARD
    assert (store.wait_mask >> load.write_scoreboard) & 1
    assert user.wait_mask & 1


def test_no_scoreboard_left() -> None:
    words = [*(depbar(k, 1) for k in range(6)), lds(R4, R2, 0), use(R4), EXIT]
    with pytest.raises(UnsupportedError) as caught:
        repaired(words, inserted=[6])
    assert caught.value.code == "no_scoreboard"


def test_wait_reaches_over_a_loop_s_edge() -> None:
    """A load at the loop's end, its register overwritten at the loop's head."""
    words = [add_immediate(R8, 9, 1), ldg(R8, R2), branch(-3, predicate=0), EXIT]
    assert "waw_scoreboard" in kinds(words)
    head, load, _, _ = repaired(words)
    assert (head.wait_mask >> load.write_scoreboard) & 1


def test_what_only_shared_a_scoreboard_waits_for_its_own_user() -> None:
    """ptxas gave two loads one scoreboard; the first user needs the first load only."""
    words = [
        ldg(8, 2, write_scoreboard=0, stall=2),
        ldg(9, 4, write_scoreboard=0, stall=2),
        with_control(add_immediate(30, 8, 1), wait_mask=1),
        add_immediate(31, 9, 1),
        EXIT,
    ]
    first, second, user, other, _ = repaired(words)
    assert first.write_scoreboard != second.write_scoreboard
    assert user.wait_mask == 1 << first.write_scoreboard
    assert other.wait_mask == 1 << second.write_scoreboard


def test_no_stall_is_added_twice() -> None:
    """Two stores behind one double-word result: the second finds it ready."""
    words = [ldg(4, 2, size=8), with_control(add_immediate(8, 20, 1), stall=1), sts(6, 0, 8),
             sts(6, 128, 8), EXIT]  # fmt: skip
    _, result, first, second, _ = repaired(words, inserted=[2, 3])
    assert result.stall == 5
    assert first.stall <= 2
    assert second.stall <= 2
