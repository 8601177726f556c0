"""Scoreboard covers and latency bounds; for whole kernels see `test_pair` and `test_faults`."""

from __future__ import annotations

import pytest

from regdem.check.flow import flow_of
from regdem.check.graph import build_graph
from regdem.check.hazards import hazard_findings
from regdem.check.scoreboards import BARE, OVER, after_wait, also_covered, covered_by
from regdem.check.view import view_of
from regdem.machine.latency import (
    LOW_HALF,
    OF_HIGH_HALF,
    WIDE_MULTIPLY,
    LatencyRow,
    LatencyTable,
    latency_table,
    roles_of,
)

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
    assert table.required("RAW", "a:Z", "b:Q", "r24") == 6  # nothing is known: as the slowest


def test_what_is_known_of_some_of_a_class_is_not_taken_for_all() -> None:
    """UMOV's results are there after 2 cycles, UIADD3's after 6: a new order of `lennard_jones`
    took 2 for both, since UIADD3 before IMAD.WIDE is rare, and was wrong on an H200."""
    table = latency_table("sm_90")
    assert table.required("RAW", "uniform:UMOV", "imad_wide:IMAD", "u32") == 2
    for name in ("UIADD3", "USHF", "ULEA", "UIMAD", "UNKNOWN"):
        assert table.required("RAW", f"uniform:{name}", "imad_wide:IMAD", "u32") >= 6
    rare = LatencyTable("sm_90", [row("a:X", "b:P", 4, 1000), row("a:Y", "b:P", 6, 36)])
    assert rare.required("RAW", "a:Y", "b:P", "r24") == 4  # too rare to be a bound of its own
    rare = LatencyTable(
        "sm_90",
        [row("a:X", "b:P", 4, 1000), row("a:Y", "b:P", 6, 36), row("a:X", "b:R", 7, 1000)],
    )
    assert rare.required("RAW", "a:Y", "b:P", "r24") == 6


def test_rare_pairs_and_single_templates_do_not_make_bounds() -> None:
    rows = [row("a:X", "b:P", 4, 1000), row("a:Y", "b:P", 19, 1000, files=1)]
    table = LatencyTable("sm_90", rows)
    assert table.required("RAW", "a:Y", "b:P", "r24") == 4


def test_an_unknown_producer_is_given_time() -> None:
    assert LatencyTable("sm_90", []).required("RAW", "new:OP", "alu:IADD3", "r24") >= 24


MOV = (0x3E2AAAAB004C7802, 0x000FC00000000F00)  # MOV R76, 0x3e2aaaab
MOV_ABOVE = (0x3E2AAAAB004D7802, 0x000FC00000000F00)  # MOV R77, 0x3e2aaaab
MULTIPLY = (0x000000FFFF4C7224, 0x000FC000078E0054)  # IMAD.MOV.U32 R76, RZ, RZ, R84
WITH_IMMEDIATE = (0x3F800000494C7423, 0x000FCA000000084C)  # FFMA R76, R73, -R76, 1
WITH_REGISTERS = (0x0000004949567223, 0x000FCA000000004C)  # FFMA R86, R73, R73, R76
WIDE = (0x000000044A4A7825, 0x000FC000078E004C)  # IMAD.WIDE.U32 R74, R74, 0x4, R76
ADD = (0x000000014A167810, 0x000FCA0007FFE0FF)  # IADD3 R22, R74, 0x1, RZ
ADD_ABOVE = (0x000000014B167810, 0x000FCA0007FFE0FF)  # IADD3 R22, R75, 0x1, RZ
UNIFORM = (0x0000000108047890, 0x000FC0000FFFE03F)  # UIADD3 UR4, UR8, 0x1, URZ
UNIFORM_LOAD = (0x0000900000087AB9, 0x000FCA0000000800)  # ULDC UR8, c[0x0][0x240]
UNIFORM_MOVE = (0x0000000800047C82, 0x000FC00008000000)  # UMOV UR4, UR8
HIGH = (0x000000070E0E7227, 0x000FC000078E02FF)  # IMAD.HI.U32 R14, R14, R7, RZ
LOGIC = (0x000000070E0E7212, 0x000FC000078E9606)  # LOP3.LUT R14, R14, R7, R6, 0x96
WIDE_AGAIN = (0x249249250F107825, 0x000FC000078E00FF)  # IMAD.WIDE.U32 R16, R15, 0x24924925, RZ
WIDE_PAIR = (0x00000011040E7225, 0x000FC000078E020E)  # IMAD.WIDE R14, R4, R17, R14
FLOAT = (0x0000000B000B7220, 0x000FC00000400000)  # FMUL R11, R0, R11
DOUBLE = (0x000000001C0A7229, 0x000FC0000000000A)  # DADD R10, R28, R10
HALF = (0x20000002FF027230, 0x000FC00000004100)  # HADD2.F32 R2, -RZ, R2.H0_H0
HALF_MULTIPLY = (0x0000000502027235, 0x000FC00000200006)  # HFMA2.MMA.BF16 R2, R2, R5, R6
SQUARE = (0x0000002626267228, 0x000FC00000000000)  # DMUL R38, R38, R38
ZERO = (0x0000000000267805, 0x000FC0000001FF00)  # CS2R R38, SRZ
OVERWRITES_LOW = (0x00000001020A7810, 0x000FC00007FFE0FF)  # IADD3 R10, R2, 0x1, RZ
BARRIER = (0x0000000000007B1D, 0x000FC00000010000)  # BAR.SYNC.DEFER_BLOCKING 0x0
LOAD = (0x001000008E447984, 0x000F620000000C00)  # LDS.128 R68, [R142+0x1000]
EXIT = (0x000000000000794D, 0x000FEA0003800000)


def kinds(producer: tuple[int, int], stall: int, consumer: tuple[int, int]) -> list[str]:
    """What is found where `consumer` issues `stall` cycles after `producer`."""
    words = [(producer[0], producer[1] | stall << 41), consumer, EXIT]
    code = b"".join(word.to_bytes(8, "little") for pair in words for word in pair)
    view = view_of("k", code, "sm_90")
    return [found.kind for found in hazard_findings(view, build_graph(flow_of(view, [])))]


@pytest.mark.parametrize(
    ("producer", "consumer", "least", "kind"),
    [
        (MOV, WITH_IMMEDIATE, 5, "raw"),
        (MOV, WITH_REGISTERS, 5, "raw"),
        (MULTIPLY, WITH_IMMEDIATE, 4, "raw"),
        (MULTIPLY, WITH_REGISTERS, 4, "raw"),
        (MOV, WIDE, 5, "raw"),
        (MOV_ABOVE, WIDE, 3, "raw"),
        (WIDE, ADD, 3, "raw"),
        (WIDE, ADD_ABOVE, 5, "raw"),
        (HIGH, LOGIC, 5, "raw"),
        (WIDE_PAIR, WIDE_AGAIN, 6, "raw"),
        (FLOAT, DOUBLE, 6, "raw"),
        (HALF, HALF_MULTIPLY, 6, "raw"),
        (DOUBLE, OVERWRITES_LOW, 6, "waw"),
        (SQUARE, ZERO, 9, "waw"),
        (UNIFORM, UNIFORM_LOAD, 3, "war"),
        (UNIFORM_MOVE, UNIFORM_LOAD, 1, "war"),
        (BARRIER, LOAD, 6, "sync"),
        (BARRIER, ADD, 1, "sync"),
        (BARRIER, DOUBLE, 6, "sync"),
    ],
)
def test_distances_that_the_operands_field_does_not_tell(
    producer: tuple[int, int], consumer: tuple[int, int], least: int, kind: str
) -> None:
    """Second and third sources, halves of sources and of results, uniform operands, barriers: each
    was once taken to be ready, read or over too early, and a new order was wrong on an H200.
    CS2R, of which nothing tells when it writes, does so before an FP64 result that nobody reads.
    IMAD.HI and pipes that libraries hardly have next to each other were taken to be faster than
    ptxas ever leaves them in chains; and results that nobody reads still land."""
    for stall in range(1, 9):
        assert kinds(producer, stall, consumer) == ([kind] if stall < least else [])


def test_roles_are_ports_rather_than_fields() -> None:
    assert roles_of(WITH_IMMEDIATE[0], 0, 64, 1) == ["r32"]
    assert roles_of(WITH_REGISTERS[0], 0, 64, 1) == ["r64"]
    assert roles_of(WITH_IMMEDIATE[0], 0, 24, 1) == roles_of(WITH_REGISTERS[0], 0, 24, 1) == ["r24"]
    assert roles_of(WIDE[0], 0, 64, 2) == [LOW_HALF, "r64"]


def test_an_exact_operand_comes_before_others_of_its_port() -> None:
    """Of IMAD.WIDE's high half, IMAD.WIDE takes 6 cycles as its first source; where the register
    is two of its sources, ptxas has been seen to leave 4, as for the other one."""
    rows = [
        LatencyRow("RAW", "a:X", "b:P", "r24", 6, 9000, 6000, 50),
        LatencyRow("RAW", "a:X", "b:P", "r32", 4, 120, 100, 50),
    ]
    table = LatencyTable("sm_90", rows)
    assert table.required("RAW", "a:X", "b:P", "r24") == 6
    assert table.required("RAW", "a:X", "b:P", "r32") == 4


def test_rare_pairs_that_mostly_stand_so_make_bounds() -> None:
    rare = LatencyRow("RAW", "a:Y", "b:P", "r24", 7, 60, 20, 8)
    assert LatencyTable("sm_90", [rare]).required("RAW", "a:Y", "b:P", "r24") == 7
    seldom = LatencyRow("RAW", "a:Y", "b:P", "r24", 7, 600, 20, 8)
    table = LatencyTable("sm_90", [row("a:X", "b:P", 4, 1000), seldom])
    assert table.required("RAW", "a:Y", "b:P", "r24") == 4


def test_the_low_half_is_there_no_later_than_the_high_one() -> None:
    table = latency_table("sm_90")
    consumers = ["alu:LOP3", "alu:VOTE", "imad:IMAD", "memory_global:LDG", "memory_shared:STS"]
    for consumer in consumers:
        for role in ("r24", "r32", "r64"):
            low = table.required("RAW", WIDE_MULTIPLY, consumer, role)
            assert low <= table.required("RAW", WIDE_MULTIPLY, consumer, role + OF_HIGH_HALF)


def test_pairs_of_pipes_take_what_chains_of_them_take() -> None:
    """One bound for each pair of pipes: what ptxas leaves in chains, also for rare instructions."""
    table = latency_table("sm_90")
    of = {
        "alu": ("IADD3", "LOP3", "SHF", "PRMT", "LEA", "SEL", "VIMNMX", "FMNMX", "MOV", "I2FP"),
        "fma": ("FADD", "FMUL", "FFMA"),
        "half": ("HADD2", "HFMA2", "HMUL2"),
        "imad": ("IMAD",),
        "fp64": ("DADD", "DMUL", "DFMA"),
    }
    known = {
        ("alu", "alu"): 4,
        ("alu", "fma"): 5,
        ("alu", "half"): 5,
        ("alu", "imad"): 5,
        ("alu", "fp64"): 6,
        ("fma", "alu"): 5,
        ("fma", "fma"): 4,
        ("fma", "half"): 5,
        ("fma", "imad"): 4,
        ("fma", "fp64"): 6,
        ("half", "alu"): 5,
        ("half", "fma"): 5,
        ("half", "fp64"): 6,
        ("half", "imad"): 5,
        ("imad", "alu"): 5,
        ("imad", "fma"): 4,
        ("imad", "half"): 5,
        ("imad", "fp64"): 6,
        ("fp64", "alu"): 10,
        ("fp64", "fma"): 10,
        ("fp64", "half"): 10,
        ("fp64", "fp64"): 8,
        ("fp64", "imad"): 10,
    }
    for (first, second), cycles in known.items():
        for producer in of[first]:
            for consumer in of[second]:
                names = f"{first}:{producer}", f"{second}:{consumer}"
                assert table.required("RAW", *names, "r24") == cycles, names


def test_where_nothing_tells_the_second_of_two_writes_lands_early() -> None:
    table = latency_table("sm_90")
    assert table.required("WAW", "fp64:DADD", "alu:IADD3", "") == 6  # lands at 10, at 5
    assert table.required("WAW", "fp64:DADD", "cs2r:CS2R", "") >= 9
    for later in ("memory_shared:LDS", "mufu:MUFU", "special:S2R", "shuffle:SHFL"):
        assert table.required("WAW", "fp64:DADD", later, "") == table.arrival("fp64:DADD") - 1
