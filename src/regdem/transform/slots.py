"""Where demoted values live: a slot per value and thread in shared memory.

Layout, as ptxas lays out its own shared-memory spills (measured): thread `lin` (linear index in
its block) finds slot k at `base + (lin / 32) * slots * 128 + k * 128 + (lin % 32) * 4`: a warp's 32
words of one slot are consecutive, so no bank conflicts, and the slot is in the immediate offset of
one address register. The address register holds

    base + 4 * lin + (slots - 1) * 128 * (lin / 32) + (SR_CgaCtaId << 24) [+ roundup(dynamic, 128)]

With 64-bit values among them (`wide`), two slots share rows of 8 bytes a lane: word k is at
`base + (lin / 32) * slots * 128 + (k / 2) * 256 + (lin % 32) * 8 + (k % 2) * 4`, an even count of
slots. A 64-bit access moves both; a 32-bit one takes two cycles of the banks instead of one.

`base` is the shared window's start (0x400 on sm_90, below it lies the driver's reserve) plus the
kernel's own static shared memory, rounded up. The cluster term addresses the right block of a
cluster, whose size may be a launch attribute, and is 0 without one. Dynamic shared memory begins
at a fixed end of the static part that the code holds as an immediate: slots go after it, at its
run-time size, which the driver leaves in c[0x0][0x2c].

The linear index is computed from all three dimensions, so that the result is right for every block
shape with as many threads as the slots were sized for; a larger block would run past the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regdem.isa import encode
from regdem.isa.encode import RZ, Word

SLOT_BYTES = 128
"""One slot of one warp: 32 lanes of 4 bytes."""
WINDOW_BASE = 0x400
DYNAMIC_SIZE = (0, 0x2C)
"""Constant bank and offset of the launch's dynamic shared memory size on sm_90 (measured)."""
SCRATCH_REGISTERS = 4
_BLOCK_DIM_X, _BLOCK_DIM_Y = (0, 0x0), (0, 0x4)


@dataclass(frozen=True)
class SlotLayout:
    """Slots of one kernel: count, threads per block, offset of slot 0, total shared bytes.

    `start_bytes` counts from the start of the user's shared memory; `shared_bytes` is the kernel's
    new static size (slots included).
    """

    slots: int
    threads: int
    start_bytes: int
    shared_bytes: int
    after_dynamic: bool
    wide: bool = False

    def offset(self, slot: int) -> int:
        """Immediate offset of a slot from the address register."""
        if self.wide:
            return slot // 2 * 2 * SLOT_BYTES + slot % 2 * 4
        return slot * SLOT_BYTES


def layout(
    slots: int, threads: int, static_bytes: int, *, dynamic: bool, wide: bool = False
) -> SlotLayout:
    """Lays out `slots` slots after `static_bytes` of the kernel's own.

    With `dynamic`, the region is 128 bytes larger, since the dynamic part is rounded up at run
    time. With `wide`, there are rows of two words, and one slot more where `slots` is odd.
    """
    warps = -(-threads // 32)
    slots += slots % 2 if wide else 0
    start = -(-static_bytes // SLOT_BYTES) * SLOT_BYTES
    size = slots * SLOT_BYTES * warps
    end = start + size + (SLOT_BYTES if dynamic else 0)
    return SlotLayout(slots, threads, start, end, dynamic, wide)


def prologue(address: int, scratch: Sequence[int], where: SlotLayout) -> list[Word]:
    """Instructions for the kernel's entry that leave the slot address in register `address`.

    `scratch` names `SCRATCH_REGISTERS` registers; nothing is live at a kernel's entry.
    """
    a, (b, c, d, e) = address, scratch
    row = 2 if where.wide else 1
    words = [
        encode.s2r(a, encode.TID_X),
        encode.s2r(b, encode.TID_Y),
        encode.s2r(c, encode.TID_Z),
        encode.ldc(d, *_BLOCK_DIM_Y),
        encode.ldc(e, *_BLOCK_DIM_X),
        encode.imad_register(b, c, d, b),
        encode.imad_register(a, b, e, a),
        encode.s2r(d, encode.CGA_CTA_ID),
        encode.shift_right(b, a, 5),
        encode.imad(a, a, 4 * row, RZ),
        encode.imad(a, b, (where.slots - row) * SLOT_BYTES, a),
        encode.imad(a, d, 1 << 24, a),
    ]
    if where.after_dynamic:
        words += [
            encode.ldc(c, *DYNAMIC_SIZE),
            encode.add_immediate(c, c, SLOT_BYTES - 1),
            encode.and_immediate(c, c, 0x100000000 - SLOT_BYTES),
            encode.add(a, a, c),
        ]
    words.append(encode.add_immediate(a, a, WINDOW_BASE + where.start_bytes))
    return words
