"""Faults in frames that stay in part, and in spills that are back in registers: all are caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from frame_faults import REGISTER_KINDS, UNIFORM_KINDS, Kind, Promoted
from rewrites import with_field

from regdem.binary.cubin import Cubin
from regdem.check import check_pair
from regdem.transform.promoted import PromoteOptions

THREADS = 256
MOST = 3
"""Faults of each kind."""


@pytest.fixture(scope="module")
def cubin() -> Cubin:
    data = (Path(__file__).parent.parent / "transform" / "data" / "spills.cubin").read_bytes()
    return Cubin.parse(data, "spills.cubin")


def _accepted(bench: Promoted, kinds: tuple[Kind, ...]) -> Iterator[str]:
    for kind in kinds:
        planted = list(kind(bench))
        assert planted, kind.__name__
        for offset, kernel in planted[:: 1 + len(planted) // MOST]:
            verdict = check_pair(bench.original, kernel, threads=THREADS, hazards=False)
            if not verdict.findings:
                yield f"{kind.__name__} at 0x{16 * offset:x}"


@pytest.mark.parametrize(("name", "slots"), [("dynamic", 7), ("single", 5)])
def test_faults_at_a_uniform_register_are_caught(cubin: Cubin, name: str, slots: int) -> None:
    bench = Promoted(cubin, name, PromoteOptions(THREADS, slots))
    assert not check_pair(bench.original, bench.rewritten, threads=THREADS).findings
    assert bench.local()
    assert list(_accepted(bench, UNIFORM_KINDS)) == []


@pytest.mark.parametrize(("name", "registers"), [("dynamic", 36), ("single", 64)])
def test_faults_in_recovered_spills_are_caught(cubin: Cubin, name: str, registers: int) -> None:
    bench = Promoted(cubin, name, PromoteOptions(THREADS, 0, registers=registers))
    assert not check_pair(bench.original, bench.rewritten, threads=THREADS).findings
    assert bench.moves()
    assert list(_accepted(bench, REGISTER_KINDS)) == []


def test_a_store_that_never_happens_fills_no_slot(cubin: Cubin) -> None:
    bench = Promoted(cubin, "single", PromoteOptions(THREADS, 64))
    stores = [i for i in bench.opcodes(0x388) if bench.words[i][0] >> 24 & 0xFF == 1]
    assert stores
    for i in stores[:3]:
        never = bench.with_word(i, with_field(bench.words[i], 12, 4, 0xF))
        assert check_pair(bench.original, never, threads=THREADS, hazards=False).findings
