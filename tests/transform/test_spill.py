"""Where loads and stores of one value go, on programs of a few instructions."""

from __future__ import annotations

from collections.abc import Iterable

from words import EXIT, branch, ldg, program, with_control

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import webs
from regdem.isa.encode import Guard, Word, add_immediate, lds, sts
from regdem.isa.fields import get_field, set_field
from regdem.transform.candidates import access_of
from regdem.transform.spill import STORE_CYCLES, Placement, insertions, place, sink


def other(k: int) -> Word:
    """An instruction that has nothing to do with R4."""
    return add_immediate(20 + k, 10 + k, 1)


def placed(
    words: list[Word], hot: Iterable[int], *, early: bool = False, calls: bool = False
) -> Placement:
    """The placement of the value in R4."""
    code = program(words)
    live = liveness(code)
    found = webs(code, live, 1 << 4)
    (web,) = (w for w in found.webs if w.register == 4)
    where = set(hot)
    return place(
        code,
        live,
        access_of(web, touched_by_calls=calls, early=early),
        [i in where for i in range(len(code))],
    )


def test_stored_behind_its_definition_and_loaded_at_its_use() -> None:
    words = [add_immediate(4, 2, 1), other(0), other(1), add_immediate(30, 4, 1), EXIT]
    result = placed(words, hot=[1, 2])
    assert result.stores == {0: (0, True)}
    assert result.loads == {3}


def test_nothing_where_no_instruction_is_hot() -> None:
    words = [add_immediate(4, 2, 1), other(0), add_immediate(30, 4, 1), EXIT]
    result = placed(words, hot=[])
    assert not result.loads
    assert not result.stores


def test_one_load_serves_neighbouring_uses() -> None:
    words = [
        add_immediate(4, 2, 1),
        other(0),
        add_immediate(30, 4, 1),
        other(1),
        add_immediate(31, 4, 1),
        EXIT,
    ]
    assert placed(words, hot=[1]).loads == {2}
    assert placed(words, hot=[1, 3]).loads == {2, 4}


def test_a_store_that_no_load_reads_is_dropped() -> None:
    """The second definition is used at once: only the first needs its slot."""
    words = [
        add_immediate(4, 2, 1),
        other(0),
        add_immediate(30, 4, 1),
        add_immediate(4, 2, 2),
        add_immediate(31, 4, 1),
        EXIT,
    ]
    result = placed(words, hot=[1])
    assert set(result.stores) == {0}
    assert result.loads == {2}


def test_a_load_under_way_is_stored_where_it_is_waited_for() -> None:
    words = [
        ldg(4, 2, write_scoreboard=3),
        other(0),
        other(1),
        with_control(other(2), wait_mask=1 << 3),
        other(3),
        add_immediate(30, 4, 1),
        EXIT,
    ]
    hot = [1, 2, 3, 4]
    assert placed(words, hot).stores == {0: (3, False)}
    assert placed(words, hot, early=True).stores == {0: (1, False)}


def test_a_guarded_definition_reads_the_old_value() -> None:
    guarded = set_field(*add_immediate(4, 2, 2), 12, 3, 1)
    words = [add_immediate(4, 2, 1), other(0), guarded, other(1), add_immediate(30, 4, 1), EXIT]
    result = placed(words, hot=[1, 3])
    assert result.loads == {2, 4}
    assert set(result.stores) == {0, 2}


def test_value_of_a_loop_is_loaded_in_every_turn() -> None:
    """Hot in the loop's body: the back edge brings no value along."""
    words = [
        add_immediate(4, 2, 1),
        add_immediate(30, 4, 1),
        other(0),
        branch(-3, predicate=0),
        EXIT,
    ]
    assert placed(words, hot=[2]).loads == {1}
    assert not placed(words, hot=[]).loads


def test_insertions_store_under_the_definition_s_guard() -> None:
    guarded = set_field(*add_immediate(4, 2, 2), 12, 3, 1)
    words = [add_immediate(4, 2, 1), guarded, other(1), add_immediate(30, 4, 1), EXIT]
    code = program(words)
    before: dict[int, list[Word]] = {}
    after: dict[int, list[Word]] = {}

    def store(guard: Guard) -> Word:
        return sts(9, 128, 4, guard=guard)

    result = placed(words, hot=[2])
    counts = insertions(code, result, lds(4, 9, 128), store, before, after)
    assert counts == (1, 2)
    assert before == {3: [lds(4, 9, 128)]}
    assert [get_field(*after[i][-1], 12, 3) for i in (0, 1)] == [7, 1]


def test_a_guarded_definition_with_nothing_before_it_reads_nothing() -> None:
    """Defined and used under one guard: live from the definition, no load in front of it."""
    lo, hi = add_immediate(4, 2, 1)
    guarded = set_field(lo, hi, 12, 3, 1)
    user = set_field(*add_immediate(30, 4, 1), 12, 3, 1)
    code = program([other(0), guarded, other(1), user, EXIT])
    live = liveness(code, follow_guards=True)
    (web,) = (w for w in webs(code, live).webs if w.register == 4 and w.reads)
    result = place(code, live, access_of(web), [True] * 5)
    assert result.loads == {3}
    assert set(result.stores) == {1}


def test_stores_stand_behind_their_latency() -> None:
    words = [add_immediate(4, 2, 1), *[other(k) for k in range(9)], add_immediate(30, 4, 1), EXIT]
    code = program(words)
    live = liveness(code)
    (web,) = (w for w in webs(code, live).webs if w.register == 4)
    value = access_of(web)
    away = [0 < i < 10 for i in range(len(code))]
    placement = place(code, live, value, away)
    room = [1] * len(code)
    sink(code, live, value, placement, away, room)
    ((position, after),) = placement.stores.values()
    assert not after
    assert position == STORE_CYCLES
    assert room == [1] + [0] * (STORE_CYCLES - 1) + [1] * (len(code) - STORE_CYCLES)
    none = place(code, live, value, away)
    sink(code, live, value, none, away, [0] * len(code))
    assert none.stores == {0: (0, True)}


def test_zero_is_stored_as_zero() -> None:
    zero: Word = (0x0000000000047805, 0x000FE2000001FF00)  # CS2R R4, SRZ
    code = program([zero, other(0), add_immediate(30, 4, 1), add_immediate(31, 5, 1), EXIT])
    placement = Placement(loads={2}, stores={0: (0, True)})
    before: dict[int, list[Word]] = {}
    after: dict[int, list[Word]] = {}
    insertions(
        code, placement, lds(4, 6, 0), lambda guard: sts(6, 0, 4, guard=guard), before, after
    )
    ((low, high),) = after[0]
    assert get_field(low, high, 32, 8) == 255


def test_a_store_under_a_guard_is_dead_before_one_under_the_same_guard() -> None:
    def guarded(word: Word, predicate: int) -> Word:
        return set_field(*word, 12, 3, predicate)

    def stores(second: int) -> set[int]:
        words = [
            add_immediate(4, 2, 1),
            other(0),
            guarded(add_immediate(4, 2, 2), 1),
            guarded(add_immediate(4, 2, 3), second),
            other(1),
            add_immediate(30, 4, 1),
            EXIT,
        ]
        return set(placed(words, hot=[4]).stores)

    assert stores(1) == {0, 3}
    assert stores(2) == {0, 2, 3}
