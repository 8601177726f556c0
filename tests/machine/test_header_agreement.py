"""Occupancy against the vendor's own calculator.

240,000 launches (20,000 on each of 12 architectures, half of them around block-size, register
and shared-memory edges, with barriers, virtual resources, carve-outs and both opt-in settings)
are answered by `cuda_occupancy.h` and by regdem; see `header_oracle` for what is compared. Where
the header or a compiler is missing, 9,600 recorded answers stand in.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from header_oracle import (
    INPUTS,
    OUTPUTS,
    all_launches,
    ask_header,
    build_harness,
    compare,
    missing_for_oracle,
)

from regdem.machine import known_archs

LAUNCHES_PER_ARCH = 20_000
RECORDED = Path(__file__).with_name("header_vectors.npz")


@pytest.mark.tools
def test_every_launch_agrees_with_the_header(tmp_path: Path) -> None:
    if reason := missing_for_oracle():
        pytest.skip(reason)
    table = all_launches(LAUNCHES_PER_ARCH)
    answers = ask_header(build_harness(tmp_path), table)
    assert len(answers) == len(table) == LAUNCHES_PER_ARCH * len(known_archs()) >= 200_000
    assert compare(table, answers) == []
    blocks = answers[:, OUTPUTS.index("active_blocks")]
    bits = answers[:, OUTPUTS.index("limiting_factors")]
    # The sample reaches what it claims to reach: launches that don't fit, and every limiter.
    assert (blocks == 0).any()
    assert all((bits & bit).any() for bit in (1, 2, 4, 8, 16, 32))


def test_recorded_answers_of_the_header() -> None:
    with np.load(RECORDED) as recorded:
        table, answers = recorded["launches"], recorded["answers"]
    assert table.shape[1] == len(INPUTS)
    assert len(table) >= 800 * len(known_archs())
    assert compare(table, answers) == []


def test_a_wrong_formula_is_noticed() -> None:
    with np.load(RECORDED) as recorded:
        table, answers = recorded["launches"], recorded["answers"].copy()
    answers[17, OUTPUTS.index("registers")] += 1
    assert len(compare(table, answers)) == 1
