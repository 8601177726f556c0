"""The slot prologue, run on paper for every thread of a block.

`run` executes the few operations of the prologue on their encoded words, so that a wrong field or
a wrong immediate shows. Cycles play no part here.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regdem.isa.decode import decode
from regdem.isa.encode import RZ, Word
from regdem.isa.fields import get_field
from regdem.transform.slots import SLOT_BYTES, WINDOW_BASE, SlotLayout, layout, prologue

MASK = 0xFFFFFFFF
ADDRESS, SCRATCH = 9, (4, 5, 6, 7)
BLOCKS = [(1, 1, 1), (32, 1, 1), (96, 1, 1), (100, 1, 1), (16, 8, 1), (7, 5, 3), (2, 3, 64)]
Block = tuple[int, int, int]


def run(
    words: list[Word], thread: Block, block: Block, *, dynamic_bytes: int = 0, rank: int = 0
) -> dict[int, int]:
    """Registers after the words, by their meaning in the PTX and CUDA documents."""
    special = {0x21: thread[0], 0x22: thread[1], 0x23: thread[2], 0x88: rank}
    bank0 = {0x0: block[0], 0x4: block[1], 0x8: block[2], 0x2C: dynamic_bytes}
    registers: dict[int, int] = {}

    def get(number: int) -> int:
        return 0 if number == RZ else registers[number]

    for lo, hi in words:
        opcode, rd, ra = (get_field(lo, hi, at, n) for at, n in ((0, 12), (16, 8), (24, 8)))
        immediate, rc = get_field(lo, hi, 32, 32), get_field(lo, hi, 64, 8)
        match opcode:
            case 0x919:
                value = special[get_field(lo, hi, 72, 8)]
            case 0xB82:
                assert get_field(lo, hi, 54, 5) == 0
                value = bank0[get_field(lo, hi, 38, 16)]
            case 0x824:
                value = get(ra) * immediate + get(rc)
            case 0x224:
                value = get(ra) * get(get_field(lo, hi, 32, 8)) + get(rc)
            case 0x819:
                value = get(rc) >> immediate
            case 0x812:
                assert get_field(lo, hi, 72, 8) == 0xC0
                value = get(ra) & immediate
            case 0x836:
                value = get(ra) + immediate
            case _:
                raise AssertionError(f"opcode 0x{opcode:x} is not of the prologue")
        registers[rd] = value & MASK
    return registers


def addresses(where: SlotLayout, block: Block, dynamic_bytes: int = 0) -> dict[int, Block]:
    """Every slot's address in one block, as offsets into shared memory, and whose it is."""
    words = prologue(ADDRESS, SCRATCH, where)
    found: dict[int, Block] = {}
    for z, y, x in product(*(range(n) for n in reversed(block))):
        base = run(words, (x, y, z), block, dynamic_bytes=dynamic_bytes)[ADDRESS]
        for slot in range(where.slots):
            at = base + where.offset(slot) - WINDOW_BASE
            assert at not in found, f"{(x, y, z)} shares slot {slot} with {found[at]}"
            found[at] = (x, y, z)
    return found


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("slots", [1, 5])
@pytest.mark.parametrize("static_bytes", [0, 4, 128, 4620])
def test_after_static_memory(block: Block, slots: int, static_bytes: int) -> None:
    threads = block[0] * block[1] * block[2]
    where = layout(slots, threads, static_bytes, dynamic=False)
    found = addresses(where, block)
    assert len(found) == slots * threads
    assert all(at % 4 == 0 for at in found)
    assert min(found) >= static_bytes
    assert max(found) + 4 <= where.shared_bytes


@pytest.mark.parametrize("block", [(96, 1, 1), (7, 5, 3)])
@pytest.mark.parametrize("dynamic_bytes", [0, 1, 4, 127, 128, 129, 1000, 20000])
@pytest.mark.parametrize("static_bytes", [0, 4, 4620])
def test_after_dynamic_memory(block: Block, dynamic_bytes: int, static_bytes: int) -> None:
    """Slots stand above the dynamic part, whose start the old code holds as an immediate."""
    threads = block[0] * block[1] * block[2]
    where = layout(3, threads, static_bytes, dynamic=True)
    found = addresses(where, block, dynamic_bytes)
    assert len(found) == 3 * threads
    assert all(at % 4 == 0 for at in found)
    # The dynamic part begins at the end of the old static part, aligned to 16 at most.
    assert min(found) >= -(-static_bytes // 16) * 16 + dynamic_bytes
    assert max(found) + 4 <= where.shared_bytes + dynamic_bytes


def test_a_warp_s_words_of_one_slot_are_neighbours() -> None:
    """No bank conflicts: 32 consecutive words, 128-byte aligned."""
    block = (64, 2, 1)
    where = layout(4, 128, 0, dynamic=False)
    words = prologue(ADDRESS, SCRATCH, where)
    for warp in range(4):
        first = None
        for lane in range(32):
            linear = 32 * warp + lane
            at = run(words, (linear % 64, linear // 64, 0), block)[ADDRESS] + where.offset(0)
            first = at if first is None else first
            assert at == first + 4 * lane
            assert first % SLOT_BYTES == 0


@pytest.mark.parametrize("rank", [0, 1, 7, 15])
def test_cluster_rank_is_the_top_byte(rank: int) -> None:
    where = layout(2, 64, 0, dynamic=True)
    words = prologue(ADDRESS, SCRATCH, where)
    alone = run(words, (40, 0, 0), (64, 1, 1))[ADDRESS]
    assert run(words, (40, 0, 0), (64, 1, 1), rank=rank)[ADDRESS] == alone + (rank << 24)


@given(
    slots=st.integers(1, 60),
    threads=st.integers(1, 1024),
    static_bytes=st.integers(0, 40000),
    dynamic=st.booleans(),
)
def test_layout(slots: int, threads: int, static_bytes: int, dynamic: bool) -> None:
    where = layout(slots, threads, static_bytes, dynamic=dynamic)
    assert static_bytes <= where.start_bytes < static_bytes + SLOT_BYTES
    assert where.start_bytes % SLOT_BYTES == 0
    room = where.shared_bytes - where.start_bytes
    assert room == slots * SLOT_BYTES * -(-threads // 32) + SLOT_BYTES * dynamic
    row = SLOT_BYTES * -(-threads // 32)
    first = WINDOW_BASE + where.start_bytes
    assert [where.offset(k) for k in range(slots)] == [first + k * row for k in range(slots)]


def test_prologue_writes_its_own_registers_only() -> None:
    for dynamic in (False, True):
        words = prologue(ADDRESS, SCRATCH, layout(3, 64, 0, dynamic=dynamic))
        code = decode(b"".join(w.to_bytes(8, "little") for word in words for w in word))
        assert (code.form >= 0).all()
        assert {get_field(lo, hi, 16, 8) for lo, hi in words} <= {ADDRESS, *SCRATCH}
