"""Loads and stalls of loops, on hand-made control words."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("regdem.isa.fields", reason="the decoder is not installed")

from regdem.analysis.loop_demand import loop_demands
from regdem.binary import Cubin
from regdem.cli.kernels import kernel_program
from regdem.cli.main import run

ALU, LOAD, BRANCH, EXIT = range(4)
FORMS = [
    SimpleNamespace(reads_memory=False, memory="none", control="none", name="IADD3"),
    SimpleNamespace(reads_memory=True, memory="global", control="none", name="LDG"),
    SimpleNamespace(reads_memory=False, memory="none", control="branch", name="BRA"),
    SimpleNamespace(reads_memory=False, memory="none", control="exit", name="EXIT"),
]
NONE = 7


def program(rows: list[tuple[int, int, int]], *, loop: bool) -> Any:
    """A kernel of (form, write scoreboard, wait mask): one block, then an EXIT."""
    rows = [*rows, (BRANCH if loop else ALU, NONE, 0), (EXIT, NONE, 0)]
    import numpy as np

    from regdem.program.program import Block, Function, Program

    code: Any = SimpleNamespace(
        form=np.array([row[0] for row in rows]),
        stall=np.ones(len(rows), np.uint8),
        write_scoreboard=np.array([row[1] for row in rows]),
        wait_mask=np.array([row[2] for row in rows]),
        table=SimpleNamespace(forms=FORMS),
    )
    last = len(rows) - 1
    blocks = (
        Block(0, 0, last, 0, (0, 1) if loop else (1,), (0,) if loop else ()),
        Block(1, last, last + 1, 0, (), (0,)),
    )
    block_of = np.array([0] * last + [1], np.int32)
    target = np.full(len(rows), -1, np.int32)
    function = (Function("k", 0, len(rows)),)
    return cast("Any", Program)("k", code, target, {}, {}, function, blocks, block_of)


def test_two_loads_in_flight_and_one_stall() -> None:
    rows = [(LOAD, 0, 0), (LOAD, 1, 0), (ALU, NONE, 0b01), (ALU, NONE, 0b10)]
    (demand,) = loop_demands(program(rows, loop=True))
    assert (demand.depth, demand.instructions, demand.loads, demand.stalls) == (1, 5, 2, 1)
    assert demand.loads_in_flight == 2
    assert demand.issue_cycles_per_load == 2.5


def test_dependent_loads_stall_each() -> None:
    rows = [(LOAD, 0, 0), (LOAD, 1, 0b01), (ALU, NONE, 0b10)]
    (demand,) = loop_demands(program(rows, loop=True))
    assert (demand.loads, demand.stalls, demand.loads_in_flight) == (2, 2, 1)


def test_a_wait_in_the_next_iteration_is_seen() -> None:
    (demand,) = loop_demands(program([(ALU, NONE, 0b1), (LOAD, 0, 0)], loop=True))
    assert (demand.loads, demand.stalls) == (1, 1)


def test_a_kernel_without_loops_is_one_stretch() -> None:
    (demand,) = loop_demands(program([(ALU, NONE, 0b1), (LOAD, 0, 0)], loop=False))
    assert (demand.depth, demand.loads, demand.stalls) == (0, 1, 1)
    (demand,) = loop_demands(program([(ALU, NONE, 0)], loop=False))
    assert (demand.loads, demand.stalls) == (0, 0)


DATA = Path(__file__).parent / "data" / "remainders.cubin"


@pytest.mark.parametrize(
    ("name", "loads", "remainders"),
    [("copies", [2, 16], [0]), ("unlike", [1, 4], []), ("rows", [1], []), ("dots", [8], [])],
)
def test_the_remainder_of_an_unrolled_loop_is_told(
    name: str, loads: list[int], remainders: list[int]
) -> None:
    kernel = Cubin.parse(DATA.read_bytes()).kernel(name)
    demands = loop_demands(kernel_program(kernel))
    assert [demand.loads for demand in demands] == loads
    told = [k for k, d in enumerate(demands) if d.remainder_of_offset is not None]
    assert told == remainders
    for k in told:
        assert demands[k].remainder_of_offset in {d.start_offset for d in demands} - {
            demands[k].start_offset
        }


def test_a_plan_is_not_made_from_a_remainder(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["plan", str(DATA), "--threads", "256", "--kernel", "copies", "--format", "json"]
    assert run(call) == 0
    (plan,) = json.loads(capsys.readouterr().out)["kernels"]
    by_start = {loop["start_offset"]: loop for loop in plan["loops"]}
    assert by_start[plan["ruling_loop_offset"]]["loads"] == 16
