"""Per-instruction timing facts, from the decoded bytes and the latency table.

Roles: a consumer's operand is named by its register file and the lowest bit of its field
("r24", "p87", "u32"); the guard is "guard". The least distance from a producer depends on which
of its consumer's ports the value goes to: an address is read earlier than a data operand.
"""

from __future__ import annotations

from regdem.check.pipeline import Timing
from regdem.check.view import CodeView
from regdem.machine.latency import LatencyTable

_FILE_LETTER = "rupq"
_DEPBAR_LE = 0x91A
GUARD = "guard"


def timing_of(view: CodeView, table: LatencyTable) -> Timing:
    """Everything the pipeline model needs to know about each instruction."""
    code = view.code
    groups: dict[str, int] = {}
    group: list[int] = []
    variable = view.variable_latency
    for i, name in enumerate(view.name):
        if not variable[i]:
            group.append(-1)
            continue
        group.append(groups.setdefault(table.order_group(name), len(groups)))
    operands: list[tuple[tuple[int, str], ...]] = []
    reads: list[int] = []
    writes: list[int] = []
    for i in range(len(view)):
        found: list[tuple[int, str]] = []
        if view.guard[i] >= 0:
            found.append((1 << view.guard[i], GUARD))
        written = 0
        for row in view.rows[i]:
            mask = ((1 << row.width) - 1) << row.first
            if row.reads:
                found.append((mask, f"{_FILE_LETTER[row.file]}{row.bit}"))
            if row.writes:
                written |= mask
        total = 0
        for mask, _ in found:
            total |= mask
        operands.append(tuple(found))
        reads.append(total)
        writes.append(written)
    return Timing(
        stall=code.stall.tolist(),
        wait=code.wait_mask.tolist(),
        write_scoreboard=code.write_scoreboard.tolist(),
        read_scoreboard=code.read_scoreboard.tolist(),
        group=group,
        reads=reads,
        writes=writes,
        operands=operands,
        depbar=[_depbar(low, high) for low, high in zip(view.low, view.high, strict=True)],
    )


def _depbar(low: int, high: int) -> tuple[int, int] | None:
    """(scoreboard, count) of a DEPBAR.LE."""
    del high
    if low & 0xFFF != _DEPBAR_LE:
        return None
    return low >> 44 & 0xF, low >> 38 & 0x3F
