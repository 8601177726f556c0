"""Every planted fault is caught; `faults.py` plants many more than this sample."""

from __future__ import annotations

import pytest
from faults import KINDS, THREADS, Bench, faults

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
    assert len(planted) >= len(KINDS) - 6
