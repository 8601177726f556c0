"""Register counts at which an sm_90 multiprocessor holds one block more.

Independent of the package on purpose: the runner compares these numbers with what the driver
reports and with what `regdem occupancy` says. Formula of the toolkit's `cuda_occupancy.h`.
"""

from __future__ import annotations

REGISTERS_PER_PARTITION = 65536 // 4
WARPS_PER_SM = 64
BLOCKS_PER_SM = 32
SHARED_BYTES_PER_SM = 228 * 1024
SHARED_RESERVE_BYTES = 1024
SHARED_GRANULE_BYTES = 128


def resident_blocks(threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks per multiprocessor; `shared_bytes` is static and dynamic together, no reserve."""
    warps = (threads + 31) // 32
    per_warp = (registers * 32 + 255) // 256 * 256
    by_registers = 4 * (REGISTERS_PER_PARTITION // per_warp) // warps
    shared = shared_bytes + SHARED_RESERVE_BYTES
    shared = (shared + SHARED_GRANULE_BYTES - 1) // SHARED_GRANULE_BYTES * SHARED_GRANULE_BYTES
    return min(by_registers, WARPS_PER_SM // warps, BLOCKS_PER_SM, SHARED_BYTES_PER_SM // shared)


def next_cliffs(
    threads: int, registers: int, shared_bytes: int, count: int, least: int = 24
) -> list[int]:
    """The next `count` register counts below `registers` that let more blocks in, highest first.

    Counts under `least` registers are left out: nothing useful runs there.
    """
    cliffs: list[int] = []
    blocks = resident_blocks(threads, registers, shared_bytes)
    for target in range((registers - 1) // 8 * 8, least - 1, -8):
        more = resident_blocks(threads, target, shared_bytes)
        if more > blocks:
            cliffs.append(target)
            blocks = more
        if len(cliffs) == count:
            break
    return cliffs
