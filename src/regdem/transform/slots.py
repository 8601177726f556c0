"""Where demoted values live: a slot per value and thread in shared memory.

Layout: thread `lin` (linear index in its block) finds slot k at `base + k * row + 4 * lin`, where
`row` is 4 bytes for every thread of the block (rounded up to warps): a warp's 32 words of one slot
are consecutive, so no bank conflicts. Base and slot are in the immediate offset of the access; the
address register holds

    4 * lin + (SR_CgaCtaId << 24) [+ roundup(dynamic, 128)]

With 64-bit values among them (`wide`), two slots share rows of 8 bytes a thread: slot k is at
`base + (k / 2) * 2 * row + 8 * lin + (k % 2) * 4`, an even count of slots. A 64-bit access moves
both; a 32-bit one takes two cycles of the banks instead of one.

`base` is the shared window's start (0x400 on sm_90, below it lies the driver's reserve) plus the
kernel's own static shared memory, rounded up. The cluster term addresses the right block of a
cluster, whose size may be a launch attribute, and is 0 without one. Dynamic shared memory begins
at a fixed end of the static part that the code holds as an immediate: in a kernel that may use it,
slots go after it, at its run-time size, which the driver leaves in c[0x0][0x2c].

The linear index is computed from all three dimensions, so that the result is right for every block
shape with as many threads as the slots were sized for; a larger block would run past the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regdem.analysis.forms import forms_of
from regdem.isa import encode
from regdem.isa.encode import RZ, Word
from regdem.program.program import Program

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
        words = 2 if self.wide else 1
        row = SLOT_BYTES * -(-self.threads // 32) * words
        return WINDOW_BASE + self.start_bytes + slot // words * row + slot % words * 4


def may_use_dynamic(program: Program) -> bool:
    """Whether a kernel may reach dynamic shared memory: it reaches any but global memory."""
    return any(
        form.memory in ("shared", "generic") or (form.memory == "other" and form.name != "BAR")
        for form in forms_of(program.code)
    )


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


def prologue(
    address: int, scratch: Sequence[int], where: SlotLayout, *, again: bool = False
) -> list[Word]:
    """Instructions for the kernel's entry that leave the slot address in register `address`.

    `scratch` names `SCRATCH_REGISTERS` registers; nothing is live at a kernel's entry. `again`: the
    kernel begins with such code already; the new one has another order, to be told from it.
    """
    a, (b, c, d, e) = address, scratch
    words = [
        encode.s2r(a, encode.TID_X),
        encode.s2r(b, encode.TID_Y),
        encode.s2r(c, encode.TID_Z),
        encode.ldc(d, *_BLOCK_DIM_Y),
        encode.ldc(e, *_BLOCK_DIM_X),
    ]
    if again:
        words.reverse()
    words += [
        encode.imad_register(b, c, d, b),
        encode.s2r(d, encode.CGA_CTA_ID),
        encode.imad_register(a, b, e, a),
    ]
    if where.after_dynamic:
        words += [
            encode.ldc(c, *DYNAMIC_SIZE),
            encode.add_immediate(c, c, SLOT_BYTES - 1),
            encode.and_immediate(c, c, 0x100000000 - SLOT_BYTES),
            encode.imad(d, d, 1 << 24, c),
        ]
    else:
        words.append(encode.imad(d, d, 1 << 24, RZ))
    return [*words, encode.imad(a, a, 8 if where.wide else 4, d)]
