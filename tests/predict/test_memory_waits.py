"""Waits: for the latest of several places, for copies, at barriers, for code from L2."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.machine import occupancy
from regdem.machine.timing import Timing, timing
from regdem.predict.demand import fetched_from_l2
from regdem.predict.model import Prediction, predict, predict_summary
from regdem.predict.phases import barriers, piece_of
from regdem.predict.summary import Summary, from_json, summarise, to_json
from regdem.predict.waits import barrier_cycles, memory_cycles
from regdem.transform.demoted import program_of

DATA = Path(__file__).parent / "data" / "waits.cubin"
MACHINE = timing("sm_90")


@pytest.fixture(scope="module")
def cubin() -> Cubin:
    return Cubin.parse(DATA.read_bytes(), DATA.name)


def ask(kernel: Kernel, threads: int) -> Prediction:
    resident = occupancy(
        kernel.arch,
        threads,
        kernel.registers_per_thread,
        static_shared_bytes=kernel.static_shared_bytes,
        barriers=kernel.barriers,
    )
    return predict(kernel, resident)


def with_constants(**values: float) -> Timing:
    return dataclasses.replace(MACHINE, model={**MACHINE.model, **values})


def test_places_are_told_from_neighbours(cubin: Cubin) -> None:
    apart = summarise(cubin.kernel("places"))
    beside = summarise(cubin.kernel("neighbours"))
    assert [places for places, _ in beside.awaited] == [1]
    assert max(apart.awaited, key=lambda each: each[1])[0] == 4
    assert sum(share for _, share in apart.awaited) == pytest.approx(1.0)
    assert memory_cycles(apart, 0.5, 0.5, MACHINE) > memory_cycles(beside, 0.5, 0.5, MACHINE)


def test_the_latest_of_several(cubin: Cubin) -> None:
    summary = summarise(cubin.kernel("places"))
    known = MACHINE.latency
    machine = with_constants(loads_apart=0.0)
    beyond = 0.5 * known["l2"] + 0.5 * known["dram"]
    mean = 0.5 * known["l1"] + 0.5 * beyond
    assert memory_cycles(summary, 0.5, 0.5, machine) == pytest.approx(mean)
    many = dataclasses.replace(summary, awaited=((1000, 1.0),))
    assert memory_cycles(many, 0.5, 0.5, with_constants(loads_apart=1.0)) == pytest.approx(
        known["dram"]
    )
    assert memory_cycles(many, 1.0, 0.5, MACHINE) == pytest.approx(known["l1"])


def test_copies_one_turn_ahead_are_waited_for_less(cubin: Cubin) -> None:
    at_once = summarise(cubin.kernel("awaited")).times[-1][0].lost["async_copy"]
    ahead = summarise(cubin.kernel("copied")).times[-1][0].lost["async_copy"]
    assert 0.0 < ahead < 0.8 * at_once
    answer = ask(cubin.kernel("awaited"), 256)
    assert max(answer.stalls, key=answer.stalls.__getitem__) == "async_copy"
    assert "asynchronous copies" in answer.explain()
    assert not any("copies" in note for note in answer.notes)


def test_phases_between_barriers(cubin: Cubin) -> None:
    kernel = cubin.kernel("together")
    program = program_of(kernel)
    cuts = barriers(program)
    assert len(cuts) == 1
    of, inside, count = piece_of(program, cuts)
    assert count >= 2
    at = next(iter(cuts))
    assert of[at] != of[at + 1]
    assert len(of) == len(program)
    assert sum(len(pieces) for pieces in inside) == len(program.blocks) + 1
    waiting, busy = summarise(kernel).phases
    assert waiting.cycles[-1] - waiting.cycles[0] > 1000.0
    assert busy.cycles[-1] == busy.cycles[0]
    assert summarise(cubin.kernel("apart")).phases == ()


def test_barriers_cost_where_few_blocks_are_resident(cubin: Cubin) -> None:
    small, large = (ask(cubin.kernel("together"), threads) for threads in (256, 1024))
    assert small.active_warps == large.active_warps
    assert small.stalls["barrier"] < 0.2 * large.stalls["barrier"]
    assert large.predicted_cycles > small.predicted_cycles
    assert "barrier" not in ask(cubin.kernel("apart"), 1024).stalls
    assert "at barriers" in large.explain()


def test_phases_that_are_alike_cost_nothing(cubin: Cubin) -> None:
    summary = summarise(cubin.kernel("together"))
    first = summary.phases[0]
    alike = dataclasses.replace(summary, phases=(first, first))
    busy = {"issue": 3000.0, "l1": 500.0}
    assert barrier_cycles(alike, 1000.0, 300.0, busy, 0.5, MACHINE) == pytest.approx(0.0, abs=1e-6)
    assert barrier_cycles(summary, 1000.0, 300.0, busy, 0.5, MACHINE) > 1.0


def test_code_beyond_the_caches_comes_from_l2(cubin: Cubin) -> None:
    summary = summarise(cubin.kernel("apart"))
    (size, count), *rest = summary.fetched
    assert not rest
    assert size == summary.code_bytes
    assert count == summary.instructions
    assert fetched_from_l2(summary, MACHINE) < 1.0
    large = dataclasses.replace(summary, fetched=((1 << 20, count),))
    assert fetched_from_l2(large, MACHINE) > 0.9 * count
    answer, before = _on(large), _on(summary)
    assert answer.predicted_cycles > before.predicted_cycles
    assert answer.to_dict()["fetched_from_l2_pct"] > 90
    assert "instruction caches" in answer.explain()
    assert "instruction caches" not in before.explain()


def _on(summary: Summary) -> Prediction:
    return predict_summary(summary, occupancy("sm_90", 256, 32), MACHINE)


def test_a_summary_survives_json(cubin: Cubin) -> None:
    for kernel in cubin.kernels:
        summary = summarise(kernel)
        assert from_json(to_json(summary)) == summary
