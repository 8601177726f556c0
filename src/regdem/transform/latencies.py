"""How long instructions take, as transformations plan with it.

Two kinds of numbers. *Bounds* for results of fixed latency: at or above the least distance that
ptxas ever leaves, since too short a stall is a wrong result. *Typical* cycles for what scoreboards
tell of: they only rank orders, places and scoreboards, and being wrong costs time, not results.

Both are by latency class of the instruction table (`isa/table.py`). The tables per instruction that
decide when a result lands are mined, in `machine/latency.py`; the checker has its own bounds.
"""

from __future__ import annotations

FIXED_LATENCY_CYCLES = {
    "alu": 7, "fma": 7, "imad": 7, "imad_wide": 11, "half": 8, "half_mma": 11, "fp64": 14,
    "cs2r": 26, "mma": 36, "gmma": 40, "fp64_mma": 40, "uniform": 13, "r2ur": 13, "control": 13,
}  # fmt: skip
"""Cycles from issue until any consumer may read (at or above the least seen in ptxas code)."""
STORE_DATA_CYCLES = {
    "alu": 5, "fma": 5, "imad": 5, "imad_wide": 6, "half": 6, "half_mma": 8, "fp64": 8,
}  # fmt: skip
"""The same for the data of a store to shared memory (least seen: 5 and, of double words, 7)."""
LATENCY_CYCLES = {
    "memory_global": 500, "memory_generic": 500, "memory_texture": 500, "memory_surface": 500,
    "memory_local": 60, "memory_shared": 30, "memory_constant": 40, "memory_other": 30,
    "special": 30, "mufu": 22, "shuffle": 26, "variable": 26,
}  # fmt: skip
"""Typical cycles until a result arrives (H100 and H200: L2 260 to 290, DRAM 480 to 700)."""
READ_CYCLES = 20
"""Typical cycles until a memory instruction has read its sources."""
LONG_CYCLES = 100
"""A result that takes so long comes from memory."""
