"""How long one warp takes through a program alone: issue, stalls and waits, block by block.

The control bits say everything but the latencies: after an instruction the warp may not issue for
its stall count; before one it waits for the scoreboards of its mask. Each block is walked in order
with the times at which scoreboards will be zero; what is still outstanding at its end is carried
into its successors, from the heaviest predecessor (two passes settle loops). The cycles lost are
charged to what was waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regdem.isa.control import SCOREBOARDS
from regdem.program.program import Program

_PASSES = 2


@dataclass
class BlockWalk:
    """Cycles of one execution of a block: all, and those lost by cause."""

    instructions: int = 0
    cycles: float = 0.0
    lost: dict[str, float] = field(default_factory=dict[str, float])


@dataclass
class _Board:
    ready: float = 0.0
    cause: str = ""


def walk(
    program: Program,
    weights: Sequence[float],
    latency: Mapping[int, tuple[float, str]],
    read_cycles: float,
) -> list[BlockWalk]:
    """Walks every block. `latency[i]`: cycles and cause of a variable-latency instruction."""
    code = program.code
    stall: list[int] = code.stall.tolist()
    waits: list[int] = code.wait_mask.tolist()
    write: list[int] = code.write_scoreboard.tolist()
    read: list[int] = code.read_scoreboard.tolist()
    out: list[list[_Board] | None] = [None] * len(program.blocks)
    result = [BlockWalk() for _ in program.blocks]
    for _ in range(_PASSES):
        for block in program.blocks:
            boards = [_Board() for _ in range(SCOREBOARDS)]
            known = [p for p in block.predecessors if out[p] is not None]
            if known:
                heaviest = max(known, key=lambda p: (weights[p], p))
                boards = [_Board(b.ready, b.cause) for b in out[heaviest] or ()]
            now = 0.0
            done = BlockWalk(block.end - block.start)
            for i in range(block.start, block.end):
                mask = waits[i]
                if mask:
                    last = now
                    cause = ""
                    for k in range(SCOREBOARDS):
                        if (mask >> k) & 1 and boards[k].ready > last:
                            last, cause = boards[k].ready, boards[k].cause
                    if cause:
                        done.lost[cause] = done.lost.get(cause, 0.0) + last - now
                        now = last
                if i in latency:
                    cycles, cause = latency[i]
                    if write[i] < SCOREBOARDS and now + cycles > boards[write[i]].ready:
                        boards[write[i]] = _Board(now + cycles, cause)
                    if read[i] < SCOREBOARDS and now + read_cycles > boards[read[i]].ready:
                        boards[read[i]] = _Board(now + read_cycles, "operand_read")
                step = max(1, stall[i])
                if step > 1:
                    done.lost["fixed_latency"] = done.lost.get("fixed_latency", 0.0) + step - 1
                now += step
            done.cycles = now
            result[block.index] = done
            out[block.index] = [_Board(max(0.0, b.ready - now), b.cause) for b in boards]
    return result
