"""Intervals, noise, and the rule that stops early."""

from __future__ import annotations

import math
import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regdem.tune.board import Board
from regdem.tune.made import Made
from regdem.tune.results import Comparison, Measurement, median_interval
from regdem.tune.stopping import LEAST_MEASURED, MARGIN, allowance, why_excluded


def made(name: str, typical: float, most: float | None = None) -> Made:
    return Made(
        name, "proved", predicted=(typical, typical * 0.9, most or typical * 1.1), cubin=b"x"
    )


def measured(speedup: float, spread: float = 0.001) -> Measurement:
    variant = [(1 + spread * math.sin(k)) / speedup for k in range(25)]
    ones = [1.0] * 25
    return Measurement(
        "identical", samples_ms={"original": ones, "again": ones, "variant": variant}
    )


def comparison(speedup: float) -> Comparison:
    found = measured(speedup).comparison
    assert found is not None
    return found


def test_known_ranks_of_the_sign_test() -> None:
    values = [float(k) for k in range(1, 26)]
    assert median_interval(values) == (8, 18)  # 25 values: ranks 8 and 18, 95.7 %
    assert median_interval(values[:6]) == (1, 6)  # 6 values: the range, 96.9 %
    assert median_interval([3.0]) == (3.0, 3.0)
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=60))
def test_the_interval_holds_the_median_of_its_sample(values: list[float]) -> None:
    low, high = median_interval(values)
    ordered = sorted(values)
    assert low <= ordered[(len(values) - 1) // 2] <= high
    assert low <= ordered[len(values) // 2] <= high


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    rng = random.Random(1)
    hits = 0
    for _ in range(2000):
        low, high = median_interval([rng.gauss(5, 1) for _ in range(25)])
        hits += low <= 5 <= high
    assert hits / 2000 >= 0.94


def test_drift_of_the_clock_cancels() -> None:
    clock = [1 + 0.02 * k for k in range(25)]
    c = Comparison.of(clock, clock, [t / 1.1 for t in clock])
    assert c.speedup == pytest.approx(1.1)
    assert c.high - c.low < 1e-9
    assert c.is_faster


def test_a_gain_within_the_noise_is_none() -> None:
    rng = random.Random(2)
    first, second, own = ([1 + rng.gauss(0, 0.05) for _ in range(25)] for _ in range(3))
    assert not Comparison.of(first, second, [t / 1.01 for t in own]).is_faster


def test_the_rule() -> None:
    few = [(made("a", 1.2), comparison(1.2)), (made("b", 1.1), comparison(1.1))]
    assert why_excluded(made("c", 0.2), few) is None, "too few are measured to stop"
    enough = [*few, (made("d", 1.0), comparison(1.0))]
    assert len(enough) == LEAST_MEASURED
    assert allowance(enough) < MARGIN
    assert why_excluded(made("e", 1.0, most=1.2 / MARGIN + 0.01), enough) is None
    reason = why_excluded(made("e", 1.0, most=1.2 / MARGIN - 0.01), enough)
    assert reason is not None
    assert "predicted at most 1.08" in reason
    assert why_excluded(Made("f", "built", cubin=b"x"), enough) is None, "nothing is predicted"


def test_a_predictor_that_underrates_is_allowed_more() -> None:
    timed = [(made(str(k), 1.0, most=1.0), comparison(1.5)) for k in range(3)]
    assert allowance(timed) == pytest.approx(1.5, rel=1e-3)
    assert why_excluded(made("x", 1.0, most=1.05), timed) is None
    assert why_excluded(made("x", 0.9, most=0.95), timed) is not None


def test_the_input_is_a_candidate() -> None:
    timed = [(made(str(k), 0.7), comparison(0.7)) for k in range(3)]
    assert why_excluded(made("x", 0.8, most=0.85), timed) is not None
    assert why_excluded(made("x", 0.9, most=0.95), timed) is None


def test_board_gives_the_most_promising_first_and_stops() -> None:
    board = Board()
    for name, typical in {"low": 0.5, "best": 1.3, "middle": 1.2, "third": 1.15}.items():
        board.add(made(name, typical))
    board.add(Made("not made", "unsupported", "why"))
    board.end_making()
    order: list[str] = []
    while (one := board.take()) is not None:
        order.append(one.name)
        board.record(one.name, measured(one.typical))
    assert order == ["best", "middle", "third"]
    assert list(board.excluded()) == ["low"]


def test_board_measures_all_when_told_to() -> None:
    board = Board(exhaustive=True)
    for k in range(6):
        board.add(made(str(k), 1 / (k + 1)))
    board.end_making()
    count = 0
    while (one := board.take()) is not None:
        count += 1
        board.record(one.name, measured(one.typical))
    assert count == 6
    assert not board.excluded()


def test_board_waits_for_variants_and_brings_excluded_ones_back() -> None:
    board = Board()
    for k in range(3):
        board.add(made(f"known {k}", 1.2), measured(1.2))
    board.add(made("doubtful", 0.9, most=1.0))  # 1.0 x 1.1 < 1.2: out, for now
    taken: list[str] = []

    def work() -> None:
        while (one := board.take()) is not None:
            taken.append(one.name)
            # far better than predicted: the predictor underrates this kernel
            board.record(one.name, measured(1.25 if one.name == "doubtful" else 1.9))

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.1)
    assert taken == []
    board.add(made("late", 1.15, most=1.2))
    board.end_making()
    thread.join(10)
    assert taken == ["late"], "1.0 x 1.58 is still below 1.9"
    board = Board()
    for k in range(3):
        board.add(made(f"known {k}", 1.0, most=1.0), measured(1.3))
    board.add(made("doubtful", 0.9, most=1.05))
    board.end_making()
    again = board.take()
    assert again is not None
    assert again.name == "doubtful"


def test_a_stopped_board_forgets_what_comes_late() -> None:
    board = Board()
    board.add(made("a", 1.0))
    one = board.take()
    assert one is not None
    board.stop(KeyboardInterrupt())
    assert not board.record(one.name, measured(1.0))
    assert board.measured() == {}
    assert board.take() is None
    assert isinstance(board.error, KeyboardInterrupt)
