"""Which values go first: the paper's three orders, and live ranges by cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from words import EXIT, branch, ldg, program

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import STACK_POINTER, allocation_pressure, webs
from regdem.binary.cubin import Cubin
from regdem.isa.encode import add_immediate, imad_register
from regdem.transform.candidates import (
    ORDERS,
    choose_webs,
    occupied_instructions,
    register_order,
    used_registers,
    web_candidates,
)
from regdem.transform.demoted import program_of
from regdem.transform.recompute import recomputable

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = Cubin.parse((ROOT / "examples" / "neighbour" / "neighbour.cubin").read_bytes())
PROGRAM = program_of(EXAMPLE.kernel("pair_forces"))
LIVE = liveness(PROGRAM)


@pytest.mark.parametrize("order", [order for order in ORDERS if order != "live-range"])
def test_every_register_once_singles_first(order: str) -> None:
    found = register_order(PROGRAM, LIVE, order)
    flat = [r for group in found for r in group]
    assert len(flat) == len(set(flat))
    assert STACK_POINTER not in flat
    assert set(flat) <= set(used_registers(LIVE))
    sizes = [len(group) for group in found]
    tuples_from = sizes.index(2)
    assert all(size == 1 for size in sizes[:tuples_from])
    assert found == register_order(PROGRAM, LIVE, order)


def loop() -> list[tuple[int, int]]:
    """R4 is read once in a loop, R5 three times before it; R6 meets many others."""
    return [
        add_immediate(20, 5, 1),
        add_immediate(21, 5, 2),
        add_immediate(22, 5, 3),
        imad_register(23, 6, 20, 21),
        imad_register(24, 6, 22, 23),
        add_immediate(25, 4, 1),
        branch(-2, predicate=0),
        EXIT,
    ]


def test_static_counts_and_cfg_weighs() -> None:
    code = program(loop())
    live = liveness(code)
    static = [group[0] for group in register_order(code, live, "static")]
    cfg = [group[0] for group in register_order(code, live, "cfg")]
    assert static.index(4) < static.index(5)
    assert cfg.index(5) < cfg.index(4)


def test_conflict_counts_neighbours() -> None:
    code = program(loop())
    order = [group[0] for group in register_order(code, liveness(code), "conflict")]
    assert order.index(4) < order.index(6)
    assert order.index(5) < order.index(6)


def test_members_of_tuples_come_last_and_together() -> None:
    code = program([ldg(8, 2, 8), imad_register(20, 8, 9, 12), EXIT])
    found = register_order(code, liveness(code), "static")
    assert found[: found.index((2, 3))] == [(12,), (20,)]
    assert (8, 9) in found


def test_occupied_instructions() -> None:
    code = program(loop())
    found = webs(code, liveness(code))
    (web,) = (w for w in found.webs if w.register == 5 and w.reads)
    occupied = occupied_instructions(web, len(code))
    assert occupied.tolist() == [True, True, True, False, False, False, False, False]


@pytest.mark.parametrize("target", [38, 34, 30])
def test_choice_brings_pressure_down(target: int) -> None:
    found = webs(PROGRAM, LIVE)
    ways = recomputable(PROGRAM, found)
    pressure = allocation_pressure(PROGRAM, LIVE)
    hot = (pressure > target).tolist()
    candidates = web_candidates(PROGRAM, LIVE, found, ways, hot)
    assert all(c.web.register != STACK_POINTER for c in candidates)
    assert not any((c.idle & ~c.occupied).any() for c in candidates)
    chosen = choose_webs(candidates, pressure, target, 200, ways)
    assert chosen is not None
    assert len({c.web.index for c in chosen}) == len(chosen)
    left = pressure - sum(c.idle.astype(np.int32) for c in chosen)
    assert int(left.max()) <= target


def test_choice_within_a_bound_of_slots() -> None:
    found = webs(PROGRAM, LIVE)
    pressure = allocation_pressure(PROGRAM, LIVE)
    candidates = web_candidates(PROGRAM, LIVE, found, {}, (pressure > 30).tolist())
    assert choose_webs(candidates, pressure, 30, 2, {}) is None
    assert choose_webs(candidates, pressure, int(pressure.max()), 0, {}) == []
