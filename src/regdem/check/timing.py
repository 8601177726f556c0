"""Per-instruction timing facts, from the decoded bytes.

The least distance from a producer depends on which of its consumer's ports the value goes to: an
address is read earlier than a data operand (`machine.latency.roles_of`).
"""

from __future__ import annotations

from functools import cache

from regdem.check.pipeline import Timing
from regdem.check.view import CodeView
from regdem.isa.decoded import NO_SCOREBOARD, RegisterFile
from regdem.isa.table import table_for
from regdem.machine.latency import (
    WIDE_MULTIPLY,
    minds_sync,
    reads_uniform_late,
    roles_of,
    sync_cycles,
)

_DEPBAR_LE = 0x91A
GUARD = "guard"
_ZERO_FILL_BIT = 87
"""Predicate of LDGSTS: the disassembler's life ranges mark it as written too, but ptxas overwrites
it two cycles later with no wait (thousands of cases), so it is only read, at issue."""
_GENERAL = (1 << 255) - 1

_GROUPS = {
    "shared": ("LDS", "LDSM", "SHFL"),
    "constant": ("LDC",),
    "special": ("S2UR",),
    "transcendental": ("MUFU", "FCHK", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV"),
}
"""Instructions of one group deliver results in order: a later one's scoreboard covers earlier."""
_MEMORY = """
LDS LDSM SHFL STS ATOMS LDL STL LDG STG LD ST ATOM ATOMG RED REDG LDGSTS STSM CCTL
"""
_READ_GROUPS = {
    "memory": tuple(_MEMORY.split()),
    "transcendental": _GROUPS["transcendental"],
}
"""Instructions of one group read their operands in order."""

_IN_ORDER = {name: group for group, names in _GROUPS.items() for name in names}
_READ_IN_ORDER = {name: group for group, names in _READ_GROUPS.items() for name in names}


def timing_of(view: CodeView) -> Timing:
    """Everything the pipeline model needs to know about each instruction."""
    code = view.code
    group = _result_groups(view)
    read_group = _read_groups(view)
    operands: list[tuple[tuple[int, str], ...]] = []
    reads: list[int] = []
    writes: list[int] = []
    is_async = [name == "LDGSTS" for name in view.name]
    for i in range(len(view)):
        found: list[tuple[int, str]] = []
        if view.guard[i] >= 0:
            found.append((1 << view.guard[i], GUARD))
        written = 0
        for row in view.rows[i]:
            mask = ((1 << row.width) - 1) << row.first
            if row.reads:
                roles = roles_of(view.low[i], row.file, row.bit, row.width)
                if len(set(roles)) == 1:
                    found.append((mask, roles[0]))
                else:
                    found += [(1 << row.first + k, role) for k, role in enumerate(roles)]
            if row.writes and not (row.reads and row.bit == _ZERO_FILL_BIT and is_async[i]):
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
        read_group=read_group,
        reads=reads,
        late_reads=[mask & _GENERAL for mask in reads],
        writes=writes,
        operands=operands,
        depbar=[_depbar(low) for low in view.low],
        late_half=[_high_half(view, i) for i in range(len(view))],
        uniform_reads=[_uniform_reads(view, i) for i in range(len(view))],
        sync=[sync_cycles(name) for name in view.name],
        minds_sync=[minds_sync(name.partition(":")[0]) for name in view.timing_name],
    )


def _high_half(view: CodeView, i: int) -> int:
    """The place of the high half of a wide multiply's result, as a mask.

    IMAD.HI keeps that half alone: its one register comes as late. (Missed at first: 3 cycles to
    the integer pipe were enough, where ptxas leaves 5.)
    """
    if view.timing_name[i] != WIDE_MULTIPLY:
        return 0
    rows = [row for row in view.rows[i] if row.writes and row.file == RegisterFile.GPR]
    return sum(1 << row.first + row.width - 1 for row in rows)


def _uniform_reads(view: CodeView, i: int) -> int:
    """Uniform registers that an instruction reads after issue, as a mask."""
    if not reads_uniform_late(view.timing_name[i]):
        return 0
    rows = [row for row in view.rows[i] if row.reads and row.file == RegisterFile.UGPR]
    return sum(((1 << row.width) - 1) << row.first for row in rows)


def _result_groups(view: CodeView) -> list[int]:
    """A number per order group of results; an instruction in no group is alone in its own.

    Two global loads, say, may return in either order: the second may not overwrite the first's
    register before that has arrived. (Missed once: a 128-bit load's dead last word, overwritten by
    the next load, gave wrong results on an H200.)
    """
    numbers = {group: k for k, group in enumerate(_GROUPS)}
    return [
        (numbers[_IN_ORDER[name]] if name in _IN_ORDER else len(numbers) + i) if variable else -1
        for i, (name, variable) in enumerate(zip(view.name, _variable(view), strict=True))
    ]


def _read_groups(view: CodeView) -> list[int]:
    """A number per order group of operand reads; otherwise one for each operation."""
    numbers: dict[str, int] = {}
    return [
        numbers.setdefault(_READ_IN_ORDER.get(name, name), len(numbers)) if variable else -1
        for name, variable in zip(view.name, _variable(view), strict=True)
    ]


def _variable(view: CodeView) -> list[bool]:
    """Of variable latency: by the table, in any form, or because it names a write scoreboard."""
    scoreboards = view.code.write_scoreboard.tolist()
    names = _variable_names(view.code.table.arch)
    return [
        name in names or scoreboard != NO_SCOREBOARD
        for name, scoreboard in zip(view.name, scoreboards, strict=True)
    ]


@cache
def _variable_names(arch: str) -> frozenset[str]:
    return frozenset(form.name for form in table_for(arch).forms if form.variable_latency)


def _depbar(low: int) -> tuple[int, int] | None:
    """(scoreboard, count) of a DEPBAR.LE."""
    if low & 0xFFF != _DEPBAR_LE or not low >> 47 & 1:
        return None
    return low >> 44 & 7, low >> 38 & 0x3F
