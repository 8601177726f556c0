"""The search from the fastest variant on: steps are proved, kept where they gain, and resumable."""

from __future__ import annotations

from dataclasses import dataclass

from regdem.binary import Cubin
from regdem.check import check_pair
from regdem.machine import BlockShape
from regdem.rewrite import Request
from regdem.tune.made import Made
from regdem.tune.results import Measurement
from regdem.tune.steps import steps_from
from regdem.tune.tuner import PATIENCE, Choices, tune

from .conftest import NEIGHBOUR, FakeDevice, Prepared

REQUEST = Request(BlockShape(256))
ORIGINAL = Made("input", "built", cubin=NEIGHBOUR.read_bytes())
KERNEL = Cubin.parse(NEIGHBOUR.read_bytes()).kernels[0].name


@dataclass
class StepDevice(FakeDevice):
    """A device on which every step with a lower name is faster than one with a higher."""

    gains: bool = True

    def measure(self, name: str, cubin: bytes) -> Measurement:
        if "+near_" in name:
            digits = int(name.partition("+near_")[2], 16) / 16**8
            self.speedups[name] = 1.5 - 0.2 * digits if self.gains else 0.9
        return super().measure(name, cubin)


def test_steps_are_proved_and_only_order_or_declare() -> None:
    before = Cubin.parse(ORIGINAL.cubin or b"").kernel(KERNEL)
    words = sorted(before.code[k : k + 8] for k in range(0, len(before.code), 16))
    made = [step.run() for step in steps_from(ORIGINAL, KERNEL, REQUEST, 0)]
    usable = [one for one in made if one.is_usable]
    assert len(usable) > len(made) // 2
    assert len({one.name for one in made}) == len(made)
    orders = 0
    for one in usable:
        assert one.cubin is not None
        after = Cubin.parse(one.cubin).kernel(KERNEL)
        assert not check_pair(before, after, "sm_90", threads=256).findings
        if one.name.startswith("input+fewer_"):
            assert after.code == before.code
            assert one.details["active_warps"] < 48
            continue
        orders += after.code != before.code
        # opcodes and immediates stay; registers may get other numbers
        assert len(after.code) == len(before.code)
        opcodes = [int.from_bytes(w[:2], "little") & 0xFFF for w in words]
        moved = [
            int.from_bytes(after.code[k : k + 2], "little") & 0xFFF
            for k in range(0, len(after.code), 16)
        ]
        assert sorted(moved) == sorted(opcodes)
    assert orders >= 6


def test_a_step_is_the_same_wherever_it_is_made() -> None:
    first, second = (steps_from(ORIGINAL, KERNEL, REQUEST, 3)[5].run() for _ in range(2))
    assert (first.name, first.cubin) == (second.name, second.cubin)
    names = {step.name for g in range(3) for step in steps_from(ORIGINAL, KERNEL, REQUEST, g)}
    assert len(names) >= 36


def test_each_generation_starts_from_the_fastest(prepared: Prepared) -> None:
    device = StepDevice({"poor": 0.9})
    folder = prepared(poor=(0.8, 0.7, 0.9))
    said: list[str] = []
    result = tune(
        None, out=folder, devices=[device], choices=Choices(jobs=1, generations=3),
        progress=said.append,
    )  # fmt: skip
    rows = {row.made.name: row for row in result.rows}
    assert result.best is not None
    assert "+near_" in result.best
    parents = {row.made.details.get("parent") for row in rows.values()} - {None}
    assert parents & {name for name in rows if "+near_" in name}, "no step from a step"
    assert any(line.startswith("generation 3 of 3") for line in said)
    best = Cubin.parse((folder / "best.cubin").read_bytes()).kernel(KERNEL)
    original = Cubin.parse(ORIGINAL.cubin or b"").kernel(KERNEL)
    assert not check_pair(original, best, "sm_90", threads=256).findings
    # a second run makes and measures nothing again
    again = StepDevice({"poor": 0.9})
    repeated = tune(
        None, out=folder, devices=[again], choices=Choices(jobs=1, generations=3)
    )  # fmt: skip
    assert again.measured == []
    assert repeated.best == result.best
    # and more generations go on from there
    further = StepDevice({"poor": 0.9})
    tune(None, out=folder, devices=[further], choices=Choices(jobs=1, generations=4))
    assert 0 < len(further.measured) <= 17


def test_a_search_without_gains_ends(prepared: Prepared) -> None:
    device = StepDevice({"poor": 0.9}, gains=False)
    said: list[str] = []
    result = tune(
        None, out=prepared(poor=(0.8, 0.7, 0.9)), devices=[device],
        choices=Choices(jobs=1, generations=PATIENCE + 5), progress=said.append,
    )  # fmt: skip
    assert result.best is None
    assert said.count(f"no step has gained for {PATIENCE} generations") == 1
    assert len(device.measured) < 20 * (PATIENCE + 1)


def test_none_unless_asked_for(prepared: Prepared) -> None:
    device = StepDevice()
    tune(None, out=prepared(poor=(0.8, 0.7, 0.9)), devices=[device], choices=Choices(jobs=1))
    assert device.measured == ["poor"]
