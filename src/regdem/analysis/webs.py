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

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.bits import FILE_MASK, members
from regdem.analysis.liveness import Liveness
from regdem.isa.decoded import RegisterFile, Role
from regdem.program.program import Block, Program

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
    of_row: dict[int, tuple[int, ...]]

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
    """
    code = program.code
    whole |= 1 << STACK_POINTER
    touched = call_touched(program, live) & ~whole
    union = _Union()
    register_of: list[int] = []
    intervals: list[tuple[int, int, int]] = []  # node, first point, last point

    def new(register: int) -> int:
        register_of.append(register)
        return union.new()

    everywhere = {r: new(r) for r in members(whole)}
    shared = {r: new(r) for r in members(touched)}
    in_functions = {**everywhere, **shared}
    whole_node = everywhere
    at_entry: dict[tuple[int, int], int] = {}

    def placeholder(block: int, register: int) -> int:
        if register in whole_node:
            return whole_node[register]
        key = (block, register)
        if key not in at_entry:
            at_entry[key] = new(register)
        return at_entry[key]

    rows = _gpr_rows(program)
    node_of_row: dict[int, list[int]] = {}
    at_exit: dict[int, dict[int, int]] = {}
    multi_pass: list[bool] = code.table.multi_pass[code.form].tolist()
    killing = ((code.guard == 7) & ~code.guard_negated).tolist()
    for block in program.blocks:
        whole_node = in_functions if block.function else everywhere
        # What a caller keeps across a call is not this function's to place: it is kept off the
        # registers the function touches at the call itself.
        gpr = FILE_MASK[RegisterFile.GPR] if not block.function else touched | whole
        current: dict[int, int] = {}
        since: dict[int, int] = {}
        inherited = _inherited(program, block, at_exit)
        for r in members(live.before[block.start] & gpr):
            node = inherited.get(r, -1)
            current[r] = node if node >= 0 else placeholder(block.index, r)
            since[r] = 2 * block.start
        for i in range(block.start, block.end):
            before, after = live.before[i] & gpr, live.after[i] & gpr
            mine = rows.get(i)
            calls = i in program.callee and not block.function
            if mine is None and before == after and not calls:
                continue
            old_at_call = dict(current) if calls else current
            old = {
                r: current[r]
                for _row, register, width, _role, _align in mine or ()
                for r in range(register, register + width)
                if r in current
            }
            for row, register, width, role, _align in mine or ():
                if role & Role.READ:
                    node_of_row[row] = [
                        old[r] if r in old else whole_node.get(r, -1)
                        for r in range(register, register + width)
                    ]
            # What dies here gives its register back after the read.
            dying = before & ~after
            for r in members(dying) if dying else ():
                if r in current:
                    intervals.append((current.pop(r), since.pop(r), 2 * i))
            coalesce = multi_pass[i]
            for row, register, width, role, _align in mine or ():
                if not role & Role.WRITE:
                    continue
                nodes: list[int] = []
                for r in range(register, register + width):
                    joined = r in old and (
                        r in whole_node or role == Role.BOTH or not killing[i] or coalesce
                    )
                    node = old[r] if joined else whole_node.get(r, -1)
                    if node < 0:
                        node = new(r)
                    nodes.append(node)
                    first = 2 * i if coalesce else 2 * i + 1
                    if r in current and current[r] != node:
                        intervals.append((current[r], since[r], 2 * i))
                        del current[r]
                    if (after >> r) & 1:
                        if current.get(r) != node:
                            current[r] = node
                            since[r] = first
                    else:
                        intervals.append((node, first, 2 * i + 1))
                if role == Role.BOTH:
                    for a, b in zip(node_of_row[row], nodes, strict=True):
                        if a >= 0:
                            union.join(a, b)
                node_of_row[row] = nodes
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
                            intervals.append((current.pop(r), since.pop(r), 2 * i))
                        if r not in current:
                            current[r], since[r] = shared[r], 2 * i + 1
        at_exit[block.index] = current
        joining = [
            (s, live.before[program.blocks[s].start])
            for s in block.successors
            if not _inherits(program.blocks[s], block.index)
        ]
        for r, node in current.items():
            intervals.append((node, since[r], 2 * block.end - 1))
            for s, wanted in joining:
                if (wanted >> r) & 1:
                    union.join(node, placeholder(s, r))
    return _assemble(program, live, union, register_of, intervals, node_of_row, rows, in_functions)


def _inherits(block: Block, predecessor: int) -> bool:
    """Whether the block has that one predecessor, walked before it: its values are the same."""
    return block.predecessors == (predecessor,) and predecessor < block.index


def _inherited(
    program: Program, block: Block, at_exit: dict[int, dict[int, int]]
) -> dict[int, int]:
    """What the only predecessor left, where there is one and it was walked; else nothing."""
    if len(block.predecessors) != 1 or block.index == int(program.block_of[0]):
        return {}
    predecessor = block.predecessors[0]
    return at_exit[predecessor] if _inherits(block, predecessor) else {}


_Row = tuple[int, int, int, int, int]


def _gpr_rows(program: Program) -> dict[int, list[_Row]]:
    """Per instruction its GPR operands: (row, register, width, role, alignment)."""
    code = program.code
    rows: dict[int, list[_Row]] = {}
    chosen = (code.operand_file == RegisterFile.GPR).nonzero()[0]
    for row, i, register, width, role, align in zip(
        chosen.tolist(),
        code.operand_instruction[chosen].tolist(),
        code.operand_register[chosen].tolist(),
        code.operand_width[chosen].tolist(),
        code.operand_role[chosen].tolist(),
        code.operand_alignment[chosen].tolist(),
        strict=True,
    ):
        rows.setdefault(i, []).append((row, register, width, role, align))
    return rows


def _assemble(
    program: Program,
    live: Liveness,
    union: _Union,
    register_of: list[int],
    intervals: list[tuple[int, int, int]],
    node_of_row: dict[int, list[int]],
    rows: dict[int, list[_Row]],
    whole_node: dict[int, int],
) -> Webs:
    index: dict[int, int] = {}
    result: list[Web] = []
    root_of = union.roots()

    def web_of(node: int) -> int:
        root = root_of[node]
        if root not in index:
            index[root] = len(result)
            result.append(Web(len(result), register_of[root]))
        return index[root]

    def undefined(register: int) -> int:
        """A node for a register that is read although nothing reaches (unreachable code)."""
        register_of.append(register)
        root_of.append(union.new())
        return root_of[-1]

    for node in whole_node.values():
        result[web_of(node)].whole = True
    for node, first, last in intervals:
        result[web_of(node)].points |= ((1 << (last - first + 1)) - 1) << first
    group = _Union()
    alignment: dict[int, int] = {}
    of_row: dict[int, tuple[int, ...]] = {}
    ties: list[tuple[int, int]] = []
    for i, mine in rows.items():
        for row, register, _width, role, align in mine:
            nodes = node_of_row[row]
            if role & Role.READ and min(nodes) < 0:
                nodes = [n if n >= 0 else undefined(register + k) for k, n in enumerate(nodes)]
            names = of_row[row] = tuple([web_of(n) for n in nodes])
            for w in names:
                if role & Role.READ:
                    result[w].reads.append(i)
                if role & Role.WRITE:
                    result[w].writes.append(i)
            first_name = names[0]
            if len(names) > 1:
                ties.extend([(first_name, w) for w in names])
            if align > alignment.get(first_name, 0):
                alignment[first_name] = align
    # The stack pointer is never shared, not even where it looks dead.
    if STACK_POINTER in whole_node:
        result[web_of(whole_node[STACK_POINTER])].points = (1 << (2 * len(program))) - 1
    # A call may write whatever its callee touches: those registers are taken there.
    for site, function in program.callee.items():
        summary = live.summaries[function]
        for r in members((summary.uses | summary.defs) & FILE_MASK[RegisterFile.GPR]):
            if r in whole_node:
                result[web_of(whole_node[r])].points |= 3 << (2 * site)
    for _ in result:
        group.new()
    for a, b in ties:
        group.join(a, b)
    by_root: dict[int, list[int]] = {}
    for w in result:
        by_root.setdefault(group.find(w.index), []).append(w.index)
    strict: dict[int, int] = {}
    for w, align in alignment.items():
        root = group.find(w)
        strict[root] = max(strict.get(root, 1), align)
    groups: list[Group] = []
    for root, names in by_root.items():
        registers = [result[w].register for w in names]
        for w in names:
            result[w].group = len(groups)
        groups.append(Group(tuple(names), strict.get(root, 1), min(registers), max(registers)))
    return Webs(tuple(result), tuple(groups), of_row)
