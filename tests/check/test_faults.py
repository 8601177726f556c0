"""Every planted fault is caught; `faults.py` plants many more than this sample."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import KINDS, THREADS, Bench, faults, lost_spill

from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.check import check_pair

SAMPLED = ["shared_block", "dynamic_block", "calls", "guarded"]


@pytest.mark.parametrize("name", SAMPLED)
def test_planted_faults_are_caught(kernels: dict[str, Kernel], name: str) -> None:
    bench = Bench.of(kernels[name])
    assert check_pair(bench.original, bench.rewritten, threads=THREADS).findings == ()
    planted = list(faults(bench, 1))
    accepted = [
        f"{fault.kind} at 0x{fault.offset:x}"
        for fault in planted
        if check_pair(bench.original, fault.kernel, threads=THREADS).verdict != "rejected"
    ]
    assert accepted == []
    assert len(planted) >= len(KINDS) - 7


@pytest.mark.parametrize("name", ["single", "twice", "dynamic"])
def test_a_load_from_the_stack_needs_its_store(name: str) -> None:
    file = Path(__file__).parent.parent / "transform" / "data" / "spills.cubin"
    bench = Bench.of(Cubin.parse(file.read_bytes()).kernel(name))
    planted = list(lost_spill(bench))
    assert planted
    for _, kernel in planted:
        verdict = check_pair(bench.original, kernel, threads=THREADS)
        assert verdict.verdict == "rejected"
        assert any("stack word" in finding.message for finding in verdict.findings)
