"""How long one warp takes through each block, by the control bits as they are written.

`timeline.py` tells what an order could be worth; this tells what became of it, once the waits share
six scoreboards. Blocks are walked in order of address with the times at which scoreboards will be
zero; what is outstanding at a block's start is that of its predecessor in a loop, else of the one
above. Reads of one register bank beyond the first take another cycle, and one more is charged: it
is taken from other warps, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from regdem.analysis.banks import bank_conflicts
from regdem.isa.control import SCOREBOARDS
from regdem.program.program import Program
from regdem.transform.latencies import READ_CYCLES

_CONFLICT_CYCLES = 2


def block_cycles(program: Program, late_cycles: Sequence[int]) -> list[int]:
    """Cycles of each block. `late_cycles[i]`: until instruction i's late results arrive."""
    code = program.code
    stall: list[int] = code.stall.tolist()
    waits: list[int] = code.wait_mask.tolist()
    write: list[int] = code.write_scoreboard.tolist()
    read: list[int] = code.read_scoreboard.tolist()
    extra = bank_conflicts(program, lasting=True)
    left: list[list[int]] = [[0] * SCOREBOARDS for _ in program.blocks]
    cycles = [0] * len(program.blocks)
    for _ in range(2):
        for block in program.blocks:
            loops = [p for p in block.predecessors if p >= block.index]
            above = [p for p in block.predecessors if p < block.index]
            before = loops[-1] if loops else above[-1] if above else -1
            ready = list(left[before]) if before >= 0 else [0] * SCOREBOARDS
            now = 0
            for i in range(block.start, block.end):
                mask = waits[i]
                for k in range(SCOREBOARDS) if mask else ():
                    if mask >> k & 1:
                        now = max(now, ready[k])
                if write[i] < SCOREBOARDS:
                    ready[write[i]] = max(ready[write[i]], now + late_cycles[i])
                if read[i] < SCOREBOARDS:
                    ready[read[i]] = max(ready[read[i]], now + READ_CYCLES)
                now += max(1, stall[i]) + _CONFLICT_CYCLES * extra[i]
            cycles[block.index] = now
            left[block.index] = [max(0, t - now) for t in ready]
    return cycles


__all__ = ["block_cycles"]
