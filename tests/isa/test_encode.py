"""Inserted instructions mean what their constructors say: recorded text, and the live tool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from regdem.integrations.toolkit import find_tool
from regdem.isa import RegisterFile, decode, encode
from regdem.isa.control import ControlWord
from regdem.isa.encode import Guard, Word

RECORDED: dict[str, Word] = {
    "LDS R4, [R9+0x1234]": encode.lds(4, 9, 0x1234),
    "LDS.64 R4, [R9+0x1200]": encode.lds(4, 9, 0x1200, words=2),
    "STS.64 [R9+0x1200], R4": encode.sts(9, 0x1200, 4, words=2),
    "@!P2 LDS R4, [R9+-0x10]": encode.lds(4, 9, -16, guard=Guard(2, True)),
    "STS [R9+0x80], R7": encode.sts(9, 0x80, 7),
    "@P1 STS [R9+0x80], R7": encode.sts(9, 0x80, 7, guard=Guard(1)),
    "R2UR UR62, R7": encode.to_uniform(62, 7),
    "MOV R9, UR61": encode.from_uniform(9, 61),
    "S2R R3, SR_TID.X": encode.s2r(3, encode.TID_X),
    "S2R R3, SR_TID.Y": encode.s2r(3, encode.TID_Y),
    "S2R R3, SR_TID.Z": encode.s2r(3, encode.TID_Z),
    "S2R R3, SR_CgaCtaId": encode.s2r(3, encode.CGA_CTA_ID),
    "IMAD R5, R6, 0x400, R7": encode.imad(5, 6, 0x400, 7),
    "IMAD R5, R6, R8, R7": encode.imad_register(5, 6, 8, 7),
    "SHF.R.U32.HI R5, RZ, 0x5, R6": encode.shift_right(5, 6, 5),
    "LOP3.LUT R5, R6, 0x1f, RZ, 0xc0, !PT": encode.and_immediate(5, 6, 31),
    "VIADD R5, R6, 0xfffffffc": encode.add_immediate(5, 6, -4),
    "IMAD.IADD R5, R6, 0x1, R7": encode.add(5, 6, 7),
    "LDC R5, c[0x0][0x28]": encode.ldc(5, 0, 0x28),
    "NOP": encode.nop(),
    "LDL.64 R4, [R1+-0x8]": encode.ldl(4, 1, -8, words=2),
    "@P1 STL [R1+-0x4], R7": encode.stl(1, -4, 7, guard=Guard(1)),
    "MOV R5, R6": encode.mov(5, 6),
    "@!P1 MOV R5, RZ": encode.mov(5, 255, guard=Guard(1, True)),
    "ULDC UR4, c[0x0][0x28]": encode.uldc(4, 0, 0x28),
    "ULDC.64 UR60, c[0x0][0x228]": encode.uldc(60, 0, 0x228, words=2),
    "UMOV UR61, 0x3f800000": encode.umov(61, 0x3F800000),
    "UIADD3 UR4, UR5, -0x68, URZ": encode.uniform_add_immediate(4, 5, -0x68),
    "LDL R9, [UR8+0x8]": encode.by_uniform_address((0x80001097983, 0x1EA40000100800), 8),
    "LDL.64 R26, [UR6+0x8]": encode.by_uniform_address((0x800011A7983, 0xEE80000100A00), 6),
    "@P0 STL [UR5+0x4], R2": encode.by_uniform_address((0x40201000387, 0x1E20000100800), 5),
}
"""Text as printed by nvdisasm 13.5.37."""


@pytest.mark.parametrize(("text", "word"), RECORDED.items(), ids=str)
def test_decoder_agrees_with_the_text(text: str, word: Word) -> None:
    code = decode(np.array([word], dtype=np.uint64))
    assert code.form[0] >= 0
    body = re.sub(r"^@!?P\d ", "", text)
    assert code.table.forms[int(code.form[0])].name == body.split()[0].split(".")[0]
    gpr = code.operand_file == RegisterFile.GPR
    named = sorted(int(n) for n in re.findall(r"\bR(\d+)\b", text))
    assert sorted(code.operand_register[gpr].tolist()) == named
    guard = re.match(r"@(!?)P(\d)", text)
    assert int(code.guard[0]) == (int(guard[2]) if guard else 7)
    assert bool(code.guard_negated[0]) is bool(guard and guard[1])


@pytest.mark.tools
def test_disassembler_prints_the_recorded_text(tmp_path: Path) -> None:
    tool = find_tool("nvdisasm")
    assert tool is not None
    raw = tmp_path / "words.bin"
    raw.write_bytes(
        b"".join(
            lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in RECORDED.values()
        )
    )
    run = subprocess.run([tool, "-b", "SM90", raw], capture_output=True, text=True, check=True)
    printed = [line.strip() for line in re.findall(r"/\*[0-9a-f]{4}\*/(.*?);", run.stdout)]
    assert printed == list(RECORDED)


def test_control_bits_are_carried() -> None:
    control = ControlWord(stall=7, write_scoreboard=3, wait_mask=0b101)
    code = decode(np.array([encode.lds(4, 9, 0, control=control)], dtype=np.uint64))
    assert (int(code.stall[0]), int(code.write_scoreboard[0]), int(code.wait_mask[0])) == (7, 3, 5)


@pytest.mark.parametrize("offset", [1 << 23, -(1 << 23) - 1])
def test_offsets_that_do_not_fit(offset: int) -> None:
    with pytest.raises(ValueError, match="24 bits"):
        encode.lds(0, 1, offset)
