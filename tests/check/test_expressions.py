"""Addresses rebuilt from instruction words and computed for every thread."""

from __future__ import annotations

import numpy as np

from regdem.check.expressions import SR_TID_X, SR_TID_Y, BlockShape, Expressions, operation_of
from regdem.check.layout import NAMING_SIZE, agree_everywhere

# The words that nvcc 13 emitted for a kernel that computes its linear thread index, the warp's
# row of 1280 bytes and the lane's word in it, with the rank in the cluster in bits 24 and up.
PROLOGUE = [
    (0x0000000000007919, 0x000E220000002300),  # S2R R0, SR_TID.Z
    (0x00000000000679C3, 0x000E620000008800),  # S2UR UR6, SR_CgaCtaId
    (0x0000010000047AB9, 0x000FE20000000800),  # ULDC UR4, c[0x0][0x4]
    (0x0000000000037919, 0x000E240000002200),  # S2R R3, SR_TID.Y
    (0x0000000000077919, 0x000EA20000002100),  # S2R R7, SR_TID.X
    (0x0000000400007C24, 0x001FE2000F8E0203),  # IMAD R0, R0, UR4, R3
    (0x0000000000047AB9, 0x000FE20000000800),  # ULDC UR4, c[0x0][0x0]
    (0x0000000400077C24, 0x004FE4000F8E0207),  # IMAD R7, R0, UR4, R7
    (0x0000040000047882, 0x000FE20000000000),  # UMOV UR4, 0x400
    (0x0000000407067824, 0x000FE400078E00FF),  # IMAD.SHL.U32 R6, R7, 0x4, RZ
    (0x00000005FF007819, 0x000FE20000011607),  # SHF.R.U32.HI R0, RZ, 0x5, R7
    (0x0000000406047291, 0x002FE2000F8EC03F),  # ULEA UR4, UR6, UR4, 0x18
    (0x0000007C06057812, 0x000FC400078EC0FF),  # LOP3.LUT R5, R6, 0x7c, RZ, 0xc0, !PT
    (0x0000050000007824, 0x000FE200078E0205),  # IMAD R0, R0, 0x500, R5
    (0x0000000400007C36, 0x000FE20008000000),  # VIADD R0, R0, UR4
]


def run(words: list[tuple[int, int]]) -> tuple[Expressions, dict[tuple[str, int], int]]:
    expressions = Expressions()
    held: dict[tuple[str, int], int] = {}
    for low, high in words:
        operation = operation_of(low, high)
        assert operation is not None, hex(low)
        result = expressions.result(operation, lambda kind, r: held.get((kind, r)))
        assert result is not None
        uniform = (low & 0x1FF) in (0x091, 0x082) or (low & 0xFFF) in (0x9C3, 0xAB9)
        held["ugpr" if uniform else "gpr", low >> 16 & 0xFF] = result
    return expressions, held


def test_linear_index_rows_and_rank() -> None:
    expressions, held = run(PROLOGUE)
    for x, y, z in [(256, 1, 1), (8, 4, 5), (1, 64, 2)]:
        shape = BlockShape(x, y, z, cluster_rank=3)
        values = expressions.evaluate(held["gpr", 0], shape)
        linear = np.arange(x * y * z)
        expected = linear // 32 * 1280 + linear % 32 * 4 + 0x400 + (3 << 24)
        assert values is not None
        assert np.array_equal(values, expected.astype(np.uint32))


def test_equal_computations_share_a_number() -> None:
    expressions, held = run(PROLOGUE[:1])
    again = operation_of(*PROLOGUE[0])
    assert again is not None
    assert expressions.result(again, lambda kind, number: None) == held["gpr", 0]


def test_dynamic_shared_size_is_a_constant_of_the_launch() -> None:
    low = 0x00000B00FF007B82  # LDC R0, c[0x0][0x2c]
    expressions, held = run([(low, 0x000E220000000800)])
    values = expressions.evaluate(held["gpr", 0], BlockShape(64, dynamic_shared_bytes=4096))
    assert values is not None
    assert set(values.tolist()) == {4096}


def test_unknown_leaves_and_modifiers_have_no_value() -> None:
    expressions, held = run([(0x00008A00FF007B82, 0x000E220000000800)])  # a parameter
    assert expressions.evaluate(held["gpr", 0], BlockShape(32)) is None
    clock = operation_of(0x0000000000007919, 0x000E220000005000)
    assert clock is None
    shifted_high = operation_of(0x0000000909097211, 0x000FE200078F08FF)  # LEA.HI
    assert shifted_high is None


def test_addresses_that_meet_only_in_some_blocks_are_told_apart() -> None:
    expressions = Expressions()
    x = expressions.intern(("special", SR_TID_X))
    y = expressions.intern(("special", SR_TID_Y))
    elsewhere = expressions.intern(("add", 0, x, y))
    same = expressions.intern(("add", 0, x, expressions.intern(("imm", 0))))
    flat, square = BlockShape(64), BlockShape(16, 4)
    assert agree_everywhere(expressions, [x, elsewhere], [flat], (0,))
    assert not agree_everywhere(expressions, [x, elsewhere], [flat, square], (0,))
    assert agree_everywhere(expressions, [x, same], [flat, square], (0,))
    size = expressions.intern(("const", 0x2C))
    big = expressions.intern(("logic", 0xC0, size, expressions.intern(("imm", NAMING_SIZE)), x))
    assert not agree_everywhere(expressions, [size, big], [flat], (0, 100))
    assert agree_everywhere(expressions, [size, x], [flat], (0, 100))
