"""Global loads do not return in order: the order in which they write one register is open.

Seen on an H200: `LDG.E.128 R8` missed the caches, `LDG.E R11` behind it hit, and R11 ended up with
the last word of the former. Code that lets this happen is rejected; `regdem.transform` adds a wait.
"""

from __future__ import annotations

import struct

import pytest

from regdem.check.findings import Finding
from regdem.check.flow import flow_of
from regdem.check.graph import build_graph
from regdem.check.hazards import hazard_findings
from regdem.check.view import view_of
from regdem.isa.decode import decode
from regdem.program.program import build
from regdem.transform.hazards import repair

Word = tuple[int, int]
# From ptxas, with the registers changed: scoreboards 5 and 2, no waits.
LDG_128_R8: Word = (0x000000040C087981, 0x000F62000C1E9D00)
LDG_R11: Word = (0x00000004040B7981, 0x000EA2000C1E9900)
LDG_R12: Word = (0x00000004040C7981, 0x000EA2000C1E9900)
EXIT: Word = (0x000000000000794D, 0x000FEA0003800000)
_WAIT_FIELD = 52


def to_bytes(words: list[Word]) -> bytes:
    return b"".join(struct.pack("<QQ", *word) for word in words)


def hazards(words: list[Word]) -> list[Finding]:
    view = view_of("k", to_bytes(words), "sm_90")
    return hazard_findings(view, build_graph(flow_of(view, [])))


def test_load_into_a_load_under_way_is_rejected() -> None:
    (finding,) = hazards([LDG_128_R8, LDG_R11, EXIT])
    assert finding.kind == "waw_scoreboard"
    assert finding.offset == 16
    assert "LDG" in finding.message


def test_neighbouring_register_is_no_conflict() -> None:
    assert not [f for f in hazards([LDG_128_R8, LDG_R12, EXIT]) if f.kind == "waw_scoreboard"]


@pytest.mark.parametrize(("waited", "clean"), [(5, True), (2, False), (0, False)])
def test_only_a_wait_on_the_first_load_s_scoreboard_helps(waited: int, clean: bool) -> None:
    second = (LDG_R11[0], LDG_R11[1] | 1 << (_WAIT_FIELD + waited))
    first = (LDG_128_R8[0], LDG_128_R8[1] & ~(0xF << 41) | 2 << 41)
    found = {f.kind for f in hazards([first, second, EXIT])}
    assert ("waw_scoreboard" not in found) == clean


def test_repair_adds_the_wait() -> None:
    program = build("k", decode(to_bytes([LDG_128_R8, LDG_R11, EXIT])))
    words = repair(program, [False] * 3)
    assert not hazards(words)
    board = words[0][1] >> 46 & 7
    assert words[1][1] >> (_WAIT_FIELD + board) & 1
