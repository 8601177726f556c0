"""Stall counts for blocks in a new order: fixed-latency results are ready where they are read.

Within a block every distance between dependent instructions is the mined one at least
(`timeline.py`, without late results, which scoreboards are for). Across its end, a value that lives
on is as far from the end as it was, or as far as any reader could ask for; what was under way when
the block began and is not touched in it has as many cycles to arrive in as before.

Instructions that keep their place keep at least their stall. A stall count ends at 15: a longer
distance is spread over the instructions before; where there are none, as before the first of a
block, `UnsupportedError` says so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from regdem.analysis.banks import CACHE_SLOT
from regdem.errors import UnsupportedError
from regdem.isa.control import MAX_STALL
from regdem.isa.decoded import INSTRUCTION_BYTES, RegisterFile, Role
from regdem.transform.timeline import Timeline

_ROUNDS = 12
_REACH = 8
_ALL_REGISTERS = 1
_REUSED = {
    "FFMA": (0, 1, 2), "FMUL": (0, 1), "FADD": (0,), "DFMA": (0, 1, 2), "DADD": (0, 2),
    "DMUL": (0, 1), "DSETP": (0,), "IMAD": (0, 1, 2), "imad_wide:IMAD": (0,), "IADD3": (0, 1, 2),
    "LOP3": (0, 1, 2), "ISETP": (0, 1), "LEA": (0, 1), "SEL": (0, 1), "SHF": (0, 1, 2),
    "FSETP": (0,), "FMNMX": (0, 1), "VIADD": (0,),
}  # fmt: skip
"""Slots that ptxas was seen to keep, by instruction (counted in builds of the suite's kernels)."""


def restall(timeline: Timeline, order: Sequence[int], free: Sequence[bool]) -> list[int]:
    """The stall of each instruction, by place; instruction `order[k]` stands at k.

    `free[i]`: instruction i is of a segment that was ordered anew.
    """
    stalls: list[int] = []
    encoded: list[int] = timeline.program.code.stall.tolist()
    for block in timeline.program.blocks:
        inside = order[block.start : block.end]
        if any(free[i] for i in inside):
            stalls += _of_block(timeline, block.index, inside, free)
        else:
            stalls += [encoded[i] for i in inside]
    return stalls


def reuse_flags(timeline: Timeline, order: Sequence[int], blocks: Collection[int]) -> list[int]:
    """The reuse flags by place, anew in `blocks`, 0 elsewhere.

    An operand is kept where the next instruction that reads its slot names the same live range,
    which nothing writes in between; only in instructions and slots where ptxas does so, too.
    """
    program = timeline.program
    code = program.code
    first: list[int] = code.operand_start.tolist()
    bit: list[int] = code.operand_bit.tolist()
    role: list[int] = code.operand_role.tolist()
    file: list[int] = code.operand_file.tolist()
    encoded: list[int] = code.reuse.tolist()
    flags = [0] * len(program)
    for b in blocks:
        block = program.blocks[b]
        held: dict[int, tuple[int, tuple[int, ...]]] = {}  # slot -> place, live ranges
        for k in range(block.start, block.end):
            i = order[k]
            mine: dict[int, tuple[int, ...]] = {}
            for row in range(first[i], first[i + 1]):
                slot = CACHE_SLOT.get(bit[row])
                if slot is None or file[row] != RegisterFile.GPR or not role[row] & Role.READ:
                    continue
                mine[slot] = timeline.keys_of_row[row]
            for slot, keys in mine.items():
                known = held.pop(slot, None)
                if known is not None and known[1] == keys and k - known[0] <= _REACH:
                    flags[known[0]] |= 1 << slot
            for slot, (_, keys) in list(held.items()):
                if not set(keys).isdisjoint(timeline.writes[i]):
                    del held[slot]
            usual = _usual_slots(timeline, i)
            for slot, keys in mine.items():
                flagged = encoded[i] >> slot & 1 or slot in usual
                if flagged and set(keys).isdisjoint(timeline.writes[i]):
                    held[slot] = (k, keys)
    return flags


def _usual_slots(timeline: Timeline, i: int) -> tuple[int, ...]:
    """Slots that may be kept though ptxas did not: only where all sources are registers, since
    other forms allow some combinations only."""
    lo, _ = timeline.program.code.word(i)
    if lo >> 9 & 7 != _ALL_REGISTERS:
        return ()
    _, _, name = timeline.names[i].partition(":")
    return _REUSED.get(timeline.names[i], _REUSED.get(name, ()))


def _of_block(timeline: Timeline, b: int, order: Sequence[int], free: Sequence[bool]) -> list[int]:
    n = len(order)
    least = [0] * (n + 1)
    for _ in range(_ROUNDS):
        clock = timeline.clock(b, late=False)
        times: list[int] = []
        for k, i in enumerate(order):
            bound = least[k]
            if k and not free[order[k - 1]]:
                bound = max(bound, times[-1] + timeline.stall[order[k - 1]])
            clock.now = max(clock.now, bound)
            times.append(clock.issue(i))
        end = max(least[n], clock.now, _end(timeline, b, order, times))
        if n and not free[order[-1]]:
            end = max(end, times[-1] + timeline.stall[order[-1]])
        times.append(end)
        if n and times[0] > 0:
            raise _not_ready(timeline, order[0])  # no stall of this block comes before it
        wide = [k for k in range(n) if times[k + 1] - times[k] > MAX_STALL]
        if not wide:
            return [times[k + 1] - times[k] for k in range(n)]
        for k in reversed(wide):
            later = times[k + 1]
            for j in range(k, -1, -1):
                later -= MAX_STALL
                if times[j] >= later:
                    break
                least[j] = max(least[j], later)
    raise _not_ready(timeline, order[0])


def _not_ready(timeline: Timeline, i: int) -> UnsupportedError:
    return UnsupportedError(
        "a result is not ready in time and no stall can cover it",
        code="latency",
        kernel=timeline.program.name,
        offset=INSTRUCTION_BYTES * i,
    )


def _end(timeline: Timeline, b: int, order: Sequence[int], times: Sequence[int]) -> int:
    """When the block may end, for what lives on behind it."""
    length = timeline.length[b]
    lives = timeline.next_use[b]
    end = 0
    written: set[int] = set()
    for i, at in zip(order, times, strict=True):
        written.update(timeline.writes[i])
        if timeline.variable[i]:
            continue
        if any(key in lives for key in timeline.writes[i]):
            end = max(end, at + min(length - timeline.since[i], timeline.bound[i]))
    for key, left in timeline.entry[b].fixed.items():
        if key in lives and key not in written:
            end = max(end, min(left, length))
    return end


__all__ = ["restall"]
