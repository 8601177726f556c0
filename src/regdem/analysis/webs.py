"""Webs: the live ranges that register allocation works on (Chaitin; Muchnick ch. 16).

A web is a maximal set of definitions and uses of one register number that must share a register:
every use is joined with all definitions that reach it. A guarded definition of a live register is
joined with the value it may leave in place. Registers in `whole` are not split: all their accesses
are one web (call conventions, and the paper's register granularity).

Tuples tie webs to neighbours: the webs an operand of width 2, 4, ... names form a *group*. All ties
keep the differences of the original register numbers, so one number places a whole group: `shift`,
the new register minus the old one, a multiple of the group's alignment.

Device functions of the section are not split: all accesses to a register in them are one web, and
a call joins with it what the caller passes in that register or takes from it. What the caller keeps
in the same register at other times are webs of their own.

Points: instruction i reads at point 2i and writes at point 2i + 1. `Web.points` is a Python int
with a bit per point at which the web holds its register; two webs may share a register iff their
points are disjoint. Matrix instructions take several passes over their operands, so their results
may not overlap a dying source unless the original code had the two in one place, in which case
both are one web.

Only the GPR file is split; other files are not renamed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.bits import FILE_MASK, members
from regdem.analysis.liveness import Liveness
from regdem.isa.decoded import RegisterFile, Role
from regdem.program.program import Program

STACK_POINTER = 1


@dataclass
class Web:
    """One live range: its original register, where it holds it, and who touches it."""

    index: int
    register: int
    points: int = 0
    reads: list[int] = field(default_factory=lambda: list[int]())
    writes: list[int] = field(default_factory=lambda: list[int]())
    whole: bool = False
    group: int = -1


@dataclass(frozen=True)
class Group:
    """Webs that must keep their distances; `alignment` is that of its strictest operand."""

    webs: tuple[int, ...]
    alignment: int
    low: int
    high: int


@dataclass(frozen=True)
class Webs:
    """All webs of a section. `of_row[row]` are the webs of an operand row, in tuple order."""

    webs: tuple[Web, ...]
    groups: tuple[Group, ...]
    of_row: Mapping[int, tuple[int, ...]]

    def at(self, instruction_rows: Iterable[int]) -> set[int]:
        """The webs that the given operand rows name."""
        return {w for row in instruction_rows for w in self.of_row.get(row, ())}


class _Union:
    def __init__(self) -> None:
        self.parent: list[int] = []

    def new(self) -> int:
        self.parent.append(len(self.parent))
        return len(self.parent) - 1

    def find(self, x: int) -> int:
        parent = self.parent
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    def join(self, a: int, b: int) -> int:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[max(a, b)] = min(a, b)
        return min(a, b)

    def roots(self) -> list[int]:
        """The root of every element, paths compressed: a root is the least of its set."""
        parent = self.parent
        for x, above in enumerate(parent):
            parent[x] = parent[above]
        return list(parent)


def call_touched(program: Program, live: Liveness) -> int:
    """Registers (GPR mask) that any device function of the section reads or writes."""
    mask = 0
    for block in program.blocks:
        if block.function > 0:
            for i in range(block.start, block.end):
                mask |= live.uses[i] | live.defs[i]
    return mask & FILE_MASK[RegisterFile.GPR]


def allocation_pressure(program: Program, live: Liveness) -> NDArray[np.int32]:
    """(n,) registers that must be distinct at each instruction.

    The stack pointer and the live values of the entry function; at a call also what the callee
    touches; in a device function only the registers that device functions touch.
    """
    gpr = FILE_MASK[RegisterFile.GPR]
    touched = call_touched(program, live) | (1 << STACK_POINTER)
    result = np.zeros(len(program), dtype=np.int32)
    for block in program.blocks:
        mine = touched if block.function else gpr
        for i in range(block.start, block.end):
            mask = (live.occupied[i] & mine) | (1 << STACK_POINTER)
            if i in program.callee:
                summary = live.summaries[program.callee[i]]
                mask |= (summary.uses | summary.defs) & gpr
            result[i] = mask.bit_count()
    return result


def webs(program: Program, live: Liveness, whole: int = 0) -> Webs:
    """Splits the GPR file of `program` into webs; `whole` is a mask of registers not to split.

    The stack pointer R1 is never split.

    Blocks are walked in order of address. A value that enters a block takes the node it left a
    walked predecessor with; other predecessors are joined to it, those walked later at their end.
    """
    code = program.code
    whole |= 1 << STACK_POINTER
    touched = call_touched(program, live) & ~whole
    union = _Union()
    parent = union.parent
    register_of: list[int] = []
    intervals: list[_Interval] = []
    appearance: list[int] = []

    def new(register: int) -> int:
        register_of.append(register)
        node = len(parent)
        parent.append(node)
        return node

    everywhere = {r: new(r) for r in members(whole)}
    shared = {r: new(r) for r in members(touched)}
    in_functions = {**everywhere, **shared}

    rows = _gpr_rows(program)
    first_row, register_of_row, width_of, role_of = rows.first, rows.register, rows.width, rows.role
    place_of, node_at = rows.place, [-1] * rows.place[-1]
    at_exit: dict[int, dict[int, int]] = {}
    at_entry: dict[int, dict[int, int]] = {}
    multi_pass: list[bool] = code.table.multi_pass[code.form].tolist()
    killing: list[bool] = ((code.guard == 7) & ~code.guard_negated).tolist()
    entry = int(program.block_of[0])
    current: dict[int, int] = {}
    since: dict[int, int] = {}
    for block in program.blocks:
        whole_node = in_functions if block.function else everywhere
        # What a caller keeps across a call is not this function's to place: it is kept off the
        # registers the function touches at the call itself.
        gpr = FILE_MASK[RegisterFile.GPR] if not block.function else touched | whole
        walked = [at_exit[p] for p in block.predecessors if p in at_exit]
        if block.index == entry:
            walked = []
        previous, previous_since = current, since
        start = 2 * block.start
        entering = members(live.before[block.start] & gpr)
        source = walked[-1] if walked else {}
        if source is previous and len(previous) == len(entering):
            current = {r: previous[r] for r in entering}
            since = {r: previous_since[r] for r in entering}
        else:
            current = {r: source.get(r, -1) for r in entering}
            for r in [r for r, node in current.items() if node < 0]:
                node = whole_node.get(r, -1)
                current[r] = node if node >= 0 else new(r)
            # A value that stays in place across the border keeps its interval open.
            since = {
                r: previous_since[r] if previous.get(r) == node else start
                for r, node in current.items()
            }
            intervals += [
                (node, previous_since[r], start - 1)
                for r, node in previous.items()
                if current.get(r) != node
            ]
        for other in walked[:-1]:
            if other is not source:
                _join_all(union, current, other)
        if block.predecessors and (block.predecessors[-1] >= block.index or block.index == entry):
            at_entry[block.index] = dict(current)
        for i in range(block.start, block.end):
            before, after = live.before[i] & gpr, live.after[i] & gpr
            first, last = first_row[i], first_row[i + 1]
            calls = i in program.callee and not block.function
            if first == last and before == after and not calls:
                continue
            old_at_call = dict(current) if calls else current
            coalesce = multi_pass[i]
            old: dict[int, int] = {}
            writes = False
            for k in range(first, last):
                role, r = role_of[k], register_of_row[k]
                if role & _WRITE:
                    writes = True
                    if role == _BOTH or coalesce or not killing[i]:
                        for each in range(r, r + width_of[k]):
                            if each in current:
                                old[each] = current[each]
                if role & _READ:
                    place = place_of[k]
                    for each in range(r, r + width_of[k]):
                        node = current.get(each, -1)
                        node_at[place] = node if node >= 0 else whole_node.get(each, -1)
                        place += 1
            # What dies here gives its register back after the read.
            if before != after:
                for r in members(before & ~after):
                    if r in current:
                        node = current.pop(r)
                        intervals.append((node, since.pop(r), 2 * i))
                        appearance.append(node)
            for k in range(first, last) if writes else ():
                role = role_of[k]
                if not role & _WRITE:
                    continue
                place, lowest = place_of[k], register_of_row[k]
                for r in range(lowest, lowest + width_of[k]):
                    node = old.get(r, -1)
                    if node < 0 or (
                        r not in whole_node and role != _BOTH and killing[i] and not coalesce
                    ):
                        node = whole_node.get(r, -1)
                        if node < 0:
                            node = new(r)
                    read = node_at[place]
                    if role == _BOTH and read >= 0 and read != node:
                        union.join(read, node)
                    node_at[place] = node
                    place += 1
                    begin = 2 * i if coalesce else 2 * i + 1
                    present = current.get(r, -1)
                    if present >= 0 and present != node:
                        intervals.append((present, since[r], 2 * i))
                        appearance.append(present)
                        del current[r]
                        present = -1
                    if (after >> r) & 1:
                        if present != node:
                            current[r] = node
                            since[r] = begin
                    else:
                        intervals.append((node, begin, 2 * i + 1))
                        appearance.append(node)
            if calls:
                summary = live.summaries[program.callee[i]]
                for r in members((summary.uses | summary.defs) & touched):
                    passes = (before >> r) & 1 and (
                        (summary.uses >> r) & 1 or ((after >> r) & 1 and (summary.defs >> r) & 1)
                    )
                    if passes and r in old_at_call:
                        union.join(old_at_call[r], shared[r])
                    if (after >> r) & 1 and (summary.defs >> r) & 1:
                        if r in current and current[r] != shared[r]:
                            node = current.pop(r)
                            intervals.append((node, since.pop(r), 2 * i))
                            appearance.append(node)
                        if r not in current:
                            current[r], since[r] = shared[r], 2 * i + 1
        at_exit[block.index] = current
        appearance.extend(current.values())
        for s in block.successors:
            if s in at_entry:
                _join_all(union, at_entry[s], current)
    intervals.extend((node, since[r], 2 * len(program) - 1) for r, node in current.items())
    return _assemble(
        program, live, union, register_of, intervals, appearance, node_at, rows, in_functions
    )


_READ, _WRITE, _BOTH = int(Role.READ), int(Role.WRITE), int(Role.BOTH)
_Interval = tuple[int, int, int]
"""Node, first point, last point."""


def _join_all(union: _Union, entering: dict[int, int], left: dict[int, int]) -> None:
    """Joins the values that enter a block with those a predecessor left."""
    for r, node in entering.items():
        other = left.get(r, -1)
        if other >= 0 and other != node:
            union.join(node, other)


@dataclass(frozen=True)
class _Rows:
    """The GPR operands in order; those of instruction i are `first[i]` up to `first[i + 1]`.

    The registers of operand k are the elements `place[k]` up to `place[k + 1]` of flat lists.
    """

    first: list[int]
    register: list[int]
    width: list[int]
    role: list[int]
    place: list[int]
    chosen: NDArray[np.int64]
    """The operand's row in the decoded code."""


def _gpr_rows(program: Program) -> _Rows:
    code = program.code
    chosen = (code.operand_file == RegisterFile.GPR).nonzero()[0]
    instruction = code.operand_instruction[chosen]
    width = code.operand_width[chosen]
    return _Rows(
        np.searchsorted(instruction, np.arange(len(code) + 1)).tolist(),
        code.operand_register[chosen].tolist(),
        width.tolist(),
        code.operand_role[chosen].tolist(),
        [0, *np.cumsum(width, dtype=np.int64).tolist()],
        chosen,
    )


class _WebsOfRow(Mapping[int, tuple[int, ...]]):
    """The webs of each operand row, cut from one flat list when asked for."""

    def __init__(self, rows: _Rows, web_at: list[int]) -> None:
        self._webs = web_at
        self._place = rows.place
        self._index = {row: k for k, row in enumerate(rows.chosen.tolist())}

    def __getitem__(self, row: int) -> tuple[int, ...]:
        k = self._index[row]
        return tuple(self._webs[self._place[k] : self._place[k + 1]])

    def __iter__(self) -> Iterator[int]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


def _assemble(
    program: Program,
    live: Liveness,
    union: _Union,
    register_of: list[int],
    intervals: list[_Interval],
    appearance: list[int],
    node_at: list[int],
    rows: _Rows,
    whole_node: dict[int, int],
) -> Webs:
    """Numbers the webs in order of appearance, gathers who touches them, and ties the groups."""
    root_of = union.roots()
    index: dict[int, int] = {}
    for node in (*whole_node.values(), *dict.fromkeys(appearance)):
        index.setdefault(root_of[node], len(index))
    # Values that never hold a register, and reads that nothing reaches (in unreachable code).
    for node in dict.fromkeys(node_at):
        if node >= 0:
            index.setdefault(root_of[node], len(index))
    register = [register_of[root] for root in index]
    web_of = [index.get(root, -1) for root in root_of]
    points = [0] * len(index)
    for node, first, last in intervals:
        points[web_of[node]] |= ((1 << (last - first + 1)) - 1) << first

    code = program.code
    width = code.operand_width[rows.chosen].astype(np.int64)
    role = np.repeat(code.operand_role[rows.chosen], width)
    instruction = np.repeat(code.operand_instruction[rows.chosen], width)
    web_at = np.array([*web_of, -1], dtype=np.int64)[np.array(node_at, dtype=np.int64)]
    for place in (web_at < 0).nonzero()[0].tolist():
        k = bisect_right(rows.place, place) - 1
        web_at[place] = len(register)
        register.append(rows.register[k] + place - rows.place[k])
        points.append(0)
    reads = _accesses(web_at, instruction, (role & _READ) != 0, len(register))
    writes = _accesses(web_at, instruction, (role & _WRITE) != 0, len(register))
    result = list(map(Web, range(len(register)), register, points, reads, writes))
    for node in whole_node.values():
        result[web_of[node]].whole = True
    of_row = _WebsOfRow(rows, web_at.tolist())
    # The stack pointer is never shared, not even where it looks dead.
    if STACK_POINTER in whole_node:
        result[web_of[whole_node[STACK_POINTER]]].points = (1 << (2 * len(program))) - 1
    # A call may write whatever its callee touches: those registers are taken there.
    for site, function in program.callee.items():
        summary = live.summaries[function]
        for r in members((summary.uses | summary.defs) & FILE_MASK[RegisterFile.GPR]):
            if r in whole_node:
                result[web_of[whole_node[r]]].points |= 3 << (2 * site)
    groups = _groups(result, rows, web_at, width, code.operand_alignment[rows.chosen])
    return Webs(tuple(result), groups, of_row)


def _groups(
    webs: list[Web],
    rows: _Rows,
    web_at: NDArray[np.int64],
    width: NDArray[np.int64],
    alignment: NDArray[np.uint8],
) -> tuple[Group, ...]:
    """The webs tied by operands that name several, each with the strictest alignment."""
    leader = web_at[np.array(rows.place[:-1], dtype=np.int64)]
    strictest = np.ones(len(webs), dtype=np.int64)
    np.maximum.at(strictest, leader, alignment)
    leaders = np.repeat(leader, width)
    tied = leaders != web_at
    union = _Union()
    union.parent.extend(range(len(webs)))
    pairs = np.unique(leaders[tied] * len(webs) + web_at[tied])
    for a, b in zip((pairs // len(webs)).tolist(), (pairs % len(webs)).tolist(), strict=True):
        union.join(a, b)
    by_root: dict[int, list[int]] = {}
    for w, root in enumerate(union.roots()):
        if root == w:
            by_root[w] = [w]
        else:
            by_root[root].append(w)
    strict: list[int] = strictest.tolist()
    groups: list[Group] = []
    for root, names in by_root.items():
        low = high = webs[root].register
        wanted = strict[root]
        for w in names:
            web = webs[w]
            web.group = len(groups)
            low, high = min(low, web.register), max(high, web.register)
            wanted = max(wanted, strict[w])
        groups.append(Group(tuple(names), wanted, low, high))
    return tuple(groups)


def _accesses(
    web_at: NDArray[np.int64],
    instruction: NDArray[np.int32],
    chosen: NDArray[np.bool_],
    count: int,
) -> list[list[int]]:
    """Per web the instructions of the chosen elements, in order."""
    web = web_at[chosen]
    order = np.argsort(web, kind="stable")
    bounds: list[int] = np.searchsorted(web[order], np.arange(count + 1)).tolist()
    flat: list[int] = instruction[chosen][order].tolist()
    return [flat[a:b] for a, b in pairwise(bounds)]
