"""Scoreboard covers and latency bounds; for whole kernels see `test_pair` and `test_faults`."""

from __future__ import annotations

from regdem.check.flow import flow_of
from regdem.check.graph import build_graph
from regdem.check.hazards import hazard_findings
from regdem.check.scoreboards import BARE, OVER, after_wait, also_covered, covered_by
from regdem.check.view import view_of
from regdem.machine.latency import LOW_HALF, LatencyRow, LatencyTable, latency_table, roles_of

SB0, SB1, SB5 = 1 << 0, 1 << 1, 1 << 5


def test_a_wait_for_any_cover_ends_an_access() -> None:
    access = also_covered(covered_by(0, 7), 5)
    assert after_wait(access, SB1) == access
    assert after_wait(access, SB0) == OVER
    assert after_wait(access, SB5) == OVER


def test_paths_with_different_covers_need_both_waits() -> None:
    access = covered_by(0) | covered_by(1)
    left = after_wait(access, SB0)
    assert left == covered_by(1)
    assert after_wait(left, SB1) == OVER
    assert after_wait(access, SB0 | SB1) == OVER


def test_a_later_instruction_covers_a_bare_one() -> None:
    assert covered_by(7, 7) == BARE
    assert after_wait(BARE, 0x3F) == BARE
    assert after_wait(also_covered(BARE, 5), SB5) == OVER


def test_known_bounds_of_the_hardware() -> None:
    table = latency_table("sm_90")
    known = {
        ("alu:IADD3", "alu:IADD3", "r24"): 4,
        ("alu:IADD3", "imad:IMAD", "r24"): 5,
        ("alu:IADD3", "memory_shared:STS", "r32"): 5,
        ("alu:LOP3", "memory_shared:LDS", "r24"): 5,
        ("alu:ISETP", "control:BRA", "guard"): 13,
        ("fp64:DFMA", "fp64:DFMA", "r64"): 8,
    }
    found = {key: table.required("RAW", *key) for key in known}
    assert found == known


def row(producer: str, consumer: str, least: int, seen: int, files: int = 50) -> LatencyRow:
    return LatencyRow("RAW", producer, consumer, "r24", least, seen, seen // 2, files)


def test_the_table_is_asked_from_the_particular_to_the_general() -> None:
    table = LatencyTable("sm_90", [row("a:X", "b:P", 4, 1000), row("a:Y", "b:P", 6, 1000)])
    assert table.required("RAW", "a:X", "b:P", "r24") == 4
    assert table.required("RAW", "a:Y", "b:P", "r24") == 6
    assert table.required("RAW", "a:Y", "b:Q", "r24") == 6
    assert table.required("RAW", "a:Z", "b:Q", "r24") == 4


def test_rare_pairs_and_single_templates_do_not_make_bounds() -> None:
    rows = [row("a:X", "b:P", 4, 1000), row("a:Y", "b:P", 19, 1000, files=1)]
    table = LatencyTable("sm_90", rows)
    assert table.required("RAW", "a:Y", "b:P", "r24") == 4


def test_an_unknown_producer_is_given_time() -> None:
    assert LatencyTable("sm_90", []).required("RAW", "new:OP", "alu:IADD3", "r24") >= 24


MOV = (0x3E2AAAAB004C7802, 0x000FC00000000F00)  # MOV R76, 0x3e2aaaab
MOV_ABOVE = (0x3E2AAAAB004D7802, 0x000FC00000000F00)  # MOV R77, 0x3e2aaaab
WITH_IMMEDIATE = (0x3F800000494C7423, 0x000FCA000000084C)  # FFMA R76, R73, -R76, 1
WITH_REGISTERS = (0x0000004949567223, 0x000FCA000000004C)  # FFMA R86, R73, R73, R76
WIDE = (0x000000044A4A7825, 0x000FCA00078E004C)  # IMAD.WIDE.U32 R74, R74, 0x4, R76
EXIT = (0x000000000000794D, 0x000FEA0003800000)


def test_operands_of_one_field_that_are_read_at_different_times() -> None:
    """R76 is a second source, a third source, the low half of a third source; R77 the high half."""
    assert roles_of(WITH_IMMEDIATE[0], 0, 64, 1) == ["r32"]
    assert roles_of(WITH_REGISTERS[0], 0, 64, 1) == ["r64"]
    assert roles_of(WITH_IMMEDIATE[0], 0, 24, 1) == roles_of(WITH_REGISTERS[0], 0, 24, 1) == ["r24"]
    assert roles_of(WIDE[0], 0, 64, 2) == [LOW_HALF, "r64"]
    cases = (
        (MOV, WITH_IMMEDIATE, 5),
        (MOV, WITH_REGISTERS, 4),
        (MOV, WIDE, 5),
        (MOV_ABOVE, WIDE, 3),
    )
    for producer, consumer, least in cases:
        for stall in (2, 3, 4, 5):
            words = [(producer[0], producer[1] | stall << 41), consumer, EXIT]
            code = b"".join(word.to_bytes(8, "little") for pair in words for word in pair)
            view = view_of("k", code, "sm_90")
            found = hazard_findings(view, build_graph(flow_of(view, [])))
            assert [f.kind for f in found] == (["raw"] if stall < least else [])
