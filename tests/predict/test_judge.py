"""The judge: its measures on made-up times, and the goals on the measured ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from bench.judging.data import Build, Group, grouped, load, save
from bench.judging.fit import GRID, PRIOR, Fit, setting_of, with_setting
from bench.judging.scores import binary_only, both, kendall, predictions, score, total, varied

from regdem.binary.cubin import Cubin
from regdem.choice import best_of, least_gain
from regdem.machine.timing import timing
from regdem.predict.summary import summarise

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = Path(__file__).parent / "data" / "patterns.cubin"
MACHINE = timing("sm_90")


def build(variant: str, family: str, registers: int, milliseconds: float) -> Build:
    kernel = Cubin.parse(DATA.read_bytes(), DATA.name).kernel("gathered")
    launch = {
        "threads": 256, "registers": registers, "static_shared_bytes": 0,
        "dynamic_shared_bytes": 0, "barriers": 0,
    }  # fmt: skip
    return Build("s", "k", variant, family, milliseconds, 4096, launch, summarise(kernel))


@pytest.fixture(scope="module")
def group() -> Group:
    builds = [
        build("fewer", "binary", 64, 2.0),
        build("default", "default", 40, 1.0),
        build("fewest", "nvidia", 128, 4.0),
    ]
    return grouped(builds)[0]


def test_groups_begin_with_the_input(group: Group) -> None:
    assert [b.variant for b in group.builds] == ["default", "fewer", "fewest"]
    part = binary_only(group)
    assert part is not None
    assert [b.variant for b in part.builds] == ["default", "fewer"]


def test_measures(group: Group) -> None:
    assert kendall(group.builds, {"default": 1.0, "fewer": 2.0, "fewest": 3.0}) == 1.0
    assert kendall(group.builds, {"default": 3.0, "fewer": 2.0, "fewest": 1.0}) == -1.0
    found = score(group, predictions(group, MACHINE, grid=False))
    assert found.chosen == found.best == "default"
    assert found.regret == found.gain == 1.0
    assert found.tau == 1.0
    means = total([found, found])
    assert means.builds == 6
    assert means.unchanged == 1.0


def test_the_rule_of_choice(group: Group) -> None:
    assert best_of([]) is None
    assert best_of([(1.01, 0.95, 1.1), (1.3, 0.5, 2.0)]) is None
    assert best_of([(1.05, 0.95, 1.1), (1.2, 0.9, 1.5), (1.5, 0.8, 2.0)]) == 1
    same = predictions(group, MACHINE, grid=False)["default"]
    build = least_gain(same, same, is_rewrite=False, is_order=False)
    rewrite = least_gain(same, same, is_rewrite=True, is_order=False)
    order = least_gain(same, same, is_rewrite=True, is_order=True)
    assert 1.0 <= order < rewrite < build
    assert build == least_gain(same, same, is_rewrite=False, is_order=True)
    assert best_of([(1.015, 0.95, 1.1)] * 2, [build, rewrite]) == 1
    assert best_of([(1.005, 0.95, 1.1)] * 2, [rewrite, order]) == 1


def test_fewer_warps_must_gain_more(group: Group) -> None:
    known = predictions(group, MACHINE, grid=False)
    before, fewer, fewest = (known[name] for name in ("default", "fewer", "fewest"))
    floors = [
        least_gain(before, after, is_rewrite=True, is_order=True)
        for after in (before, fewer, fewest)
    ]
    assert floors == sorted(set(floors))
    assert least_gain(fewest, before, is_rewrite=True, is_order=False) == pytest.approx(1.01)
    far = dataclasses.replace(before, fetched_from_l2=0.3)
    assert least_gain(before, far, is_rewrite=True, is_order=True) > floors[0]


def test_features_survive_a_file(group: Group, tmp_path: Path) -> None:
    path = tmp_path / "features.json.gz"
    save(group.builds, path)
    assert [dataclasses.replace(b, summary=group.builds[0].summary) for b in load(path)] == list(
        group.builds
    )
    first = path.read_bytes()
    save(load(path), path)
    assert path.read_bytes() == first


def test_constants_are_set_and_read(group: Group) -> None:
    assert setting_of(with_setting(MACHINE, PRIOR)) == PRIOR
    for value, values in zip(setting_of(MACHINE), GRID.values(), strict=True):
        assert value in values
    assert len(Fit([group], MACHINE, grid=False).best(without="k")) == len(GRID)


def test_goals_on_measured_builds() -> None:
    groups = grouped(load(ROOT / "docs" / "results" / "predictor-features.json.gz"))
    scores = [both(group, MACHINE, grid=False) for group in groups]
    every = total(varied([whole for whole, _ in scores]))
    binary = total(varied([part for _, part in scores if part is not None]))
    for means in (every, binary):
        assert means.tau >= 0.6
        assert means.regret >= 0.97
        assert means.covered >= 0.85
        assert means.worst.gain >= 0.98


def test_fewer_warps_of_the_same_code() -> None:
    groups = grouped(load(ROOT / "docs" / "results" / "predictor-features.json.gz"))
    scores = [both(group, MACHINE, grid=False)[0] for group in groups if group.is_same_code]
    means = total(scores)
    assert means.tau >= 0.85
    assert means.worst.gain >= 0.99
    gains = {score.group.kernel: score.gain for score in scores if score.chosen != "default"}
    assert set(gains) == {"fft_radix16", "selective_state"}
    assert min(gains.values()) > 1.15
