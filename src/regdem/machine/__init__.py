"""Facts per compute capability, and what follows from them: occupancy, cliffs, budgets.

Data with sources in `data/`, one loader (`capability`), one set of formulas (`formulas`).
"""

from regdem.machine.arch import compute_capability, parse_arch
from regdem.machine.block import BlockShape, block_shape, parse_block
from regdem.machine.budget import Latency, RegisterBudget, register_budget
from regdem.machine.capability import SmLimits, known_archs, limits, sources
from regdem.machine.cliffs import (
    Cliff,
    Reach,
    cliff_table,
    free_shared_bytes,
    reach_blocks,
    slots_that_fit,
)
from regdem.machine.residency import BlockLimits, Launch, Occupancy, carveout_kib_for, occupancy
from regdem.machine.waves import Waves, waves

__all__ = [
    "BlockLimits",
    "BlockShape",
    "Cliff",
    "Latency",
    "Launch",
    "Occupancy",
    "Reach",
    "RegisterBudget",
    "SmLimits",
    "Waves",
    "block_shape",
    "carveout_kib_for",
    "cliff_table",
    "compute_capability",
    "free_shared_bytes",
    "known_archs",
    "limits",
    "occupancy",
    "parse_arch",
    "parse_block",
    "reach_blocks",
    "register_budget",
    "slots_that_fit",
    "sources",
    "waves",
]
