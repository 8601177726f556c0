"""A kernel's code section as a control-flow graph.

The unit is the instruction index (offset = 16 * index). A section holds the kernel's entry
function and every device function that was not inlined; each is a `Function`, and all of them
share one list of blocks. Edges inside a function treat a call as falling through to its return
point; what the callee does is the business of the interprocedural part of an analysis
(`analysis/liveness.py`).

Targets come from three places: displacements in the word (BRA, BSSY, CALL.REL, ...), branch tables
(`.nv.info` attribute 0x34, for BRX), and, for BSYNC, the BSSY that armed the same convergence
barrier, found by a forward dataflow over the barrier registers. Where a barrier's BSSY is not
seen (a barrier restored by BMOV), every BSSY of that barrier in the function is a possible source.

Not claimed: the graph may hold edges that never run (a predicated EXIT whose predicate is always
true, say); it never lacks one that does, or building it fails with a typed error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regdem.errors import UnsupportedError
from regdem.isa.decoded import INSTRUCTION_BYTES, DecodedCode
from regdem.isa.fields import get_displacement


@dataclass(frozen=True)
class Function:
    """A function of the section: instructions `start` (inclusive) to `end` (exclusive)."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Block:
    """A basic block: instructions `start` (inclusive) to `end` (exclusive) of one function."""

    index: int
    start: int
    end: int
    function: int
    successors: tuple[int, ...]
    predecessors: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A decoded section with its control flow.

    `target[i]` is the instruction index that the displacement of instruction `i` names, or -1.
    `callee[i]` is the index of the function that a call names, or -1.
    `tables` maps a BRX (instruction index) to its possible targets.
    """

    name: str
    code: DecodedCode
    target: NDArray[np.int32]
    callee: Mapping[int, int]
    tables: Mapping[int, tuple[int, ...]]
    functions: tuple[Function, ...]
    blocks: tuple[Block, ...]
    block_of: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.code)

    @cached_property
    def block_starts(self) -> NDArray[np.int64]:
        """The first instruction of each block."""
        return np.array([block.start for block in self.blocks], dtype=np.int64)

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """What analyses of the program keep for each other, by their names."""
        return {}

    @cached_property
    def control(self) -> list[str]:
        """The control-flow kind of each instruction (see `isa.table.Form.control`)."""
        kinds = [form.control for form in self.code.table.forms]
        return [kinds[f] if f >= 0 else "other" for f in self.code.form_indices]

    @cached_property
    def calls_by_function(self) -> list[list[int]]:
        """Call instructions (indices) that target each function."""
        calls: list[list[int]] = [[] for _ in self.functions]
        for site, function in self.callee.items():
            calls[function].append(site)
        return calls

    @cached_property
    def returns_by_function(self) -> list[list[int]]:
        """Return instructions (indices) of each function."""
        returns: list[list[int]] = [[] for _ in self.functions]
        for i, kind in enumerate(self.control):
            if kind == "return":
                returns[self.blocks[int(self.block_of[i])].function].append(i)
        return returns

    @cached_property
    def reachable(self) -> frozenset[int]:
        """Blocks reachable from the entry, through calls as well."""
        entry = int(self.block_of[self.functions[0].start])
        seen = {entry}
        work = [entry]
        while work:
            block = self.blocks[work.pop()]
            nexts = list(block.successors)
            for i in range(block.start, block.end):
                if i in self.callee:
                    start = self.functions[self.callee[i]].start
                    nexts.append(int(self.block_of[start]))
            for b in nexts:
                if b not in seen:
                    seen.add(b)
                    work.append(b)
        return frozenset(seen)


_ENDS_BLOCK = frozenset(
    {"branch", "call", "call_register", "return", "indirect", "exit", "bssy", "bsync", "warpsync"}
)


def build(
    name: str,
    code: DecodedCode,
    functions: Iterable[tuple[str, int, int]] = (),
    branch_tables: Mapping[int, Sequence[int]] | None = None,
) -> Program:
    """Builds the graph of a section.

    `functions` holds (name, offset_bytes, size_bytes) of the section's FUNC symbols;
    `branch_tables` maps the byte offset of a BRX to the byte offsets it may jump to.

    Raises `UnsupportedError` for an instruction outside the table, an indirect branch without a
    table, and a target outside the section.
    """
    n = len(code)
    unknown = np.flatnonzero(code.form < 0)
    if len(unknown):
        i = int(unknown[0])
        lo, hi = code.word(i)
        raise UnsupportedError(
            f"instruction 0x{hi:016x}{lo:016x} is not in the instruction table",
            code="unknown_instruction",
            hint=f"{len(unknown)} of {n} instructions of this kernel are not understood",
            kernel=name,
            offset=i * INSTRUCTION_BYTES,
        )
    control = [form.control for form in code.table.forms]
    kinds = [control[f] for f in code.form_indices]
    target = np.full(n, -1, dtype=np.int32)
    displacements = [form.displacement for form in code.table.forms]
    for i in np.flatnonzero(_has_displacement(code)).tolist():
        displacement = displacements[int(code.form[i])]
        kind = kinds[i]
        if displacement is None or kind in ("return", "indirect", "call_register"):
            continue
        lo, hi = code.word(i)
        value = get_displacement(lo, hi, displacement)
        offset = value + (i + 1) * INSTRUCTION_BYTES if displacement.relative else value
        if kind == "other":
            continue
        if offset % INSTRUCTION_BYTES or not 0 <= offset < n * INSTRUCTION_BYTES:
            raise UnsupportedError(
                f"{code.table.forms[int(code.form[i])].name} leaves the code section",
                code="external_call" if kind == "call" else "external_target",
                kernel=name,
                offset=i * INSTRUCTION_BYTES,
            )
        target[i] = offset // INSTRUCTION_BYTES
    tables = {
        site // INSTRUCTION_BYTES: tuple(sorted({t // INSTRUCTION_BYTES for t in targets}))
        for site, targets in (branch_tables or {}).items()
    }
    parts = _functions(name, n, functions)
    starts = {f.start: k for k, f in enumerate(parts)}
    callee: dict[int, int] = {}
    for i, kind in enumerate(kinds):
        if kind == "call":
            if int(target[i]) not in starts:
                raise UnsupportedError(
                    "a call names an address that is not the start of a function",
                    code="unknown_call_target",
                    kernel=name,
                    offset=i * INSTRUCTION_BYTES,
                )
            callee[i] = starts[int(target[i])]
        elif kind == "call_register":
            raise UnsupportedError(
                "an indirect call has unknown targets",
                code="indirect_call",
                kernel=name,
                offset=i * INSTRUCTION_BYTES,
            )
        elif kind == "indirect" and i not in tables:
            raise UnsupportedError(
                "an indirect branch has no branch table",
                code="indirect_branch",
                kernel=name,
                offset=i * INSTRUCTION_BYTES,
            )
    blocks, block_of = _blocks(code, kinds, target, callee, tables, parts)
    return Program(name, code, target, callee, tables, parts, blocks, block_of)


def _has_displacement(code: DecodedCode) -> NDArray[np.bool_]:
    per_form = np.array([form.displacement is not None for form in code.table.forms], dtype=bool)
    return per_form[code.form]


def _functions(
    name: str, n: int, functions: Iterable[tuple[str, int, int]]
) -> tuple[Function, ...]:
    """The functions in order of address; the entry function is what no device function covers."""
    inner = sorted(
        {
            (offset // INSTRUCTION_BYTES, label)
            for label, offset, _size in functions
            if label != name and offset > 0
        }
    )
    starts: list[tuple[int, str]] = [(0, name)]
    for start, label in inner:
        if start != starts[-1][0] and start < n:
            starts.append((start, label))
    ends = [start for start, _ in starts[1:]] + [n]
    return tuple(
        Function(label, start, end) for (start, label), end in zip(starts, ends, strict=True)
    )


def _conditional(code: DecodedCode, i: int) -> bool:
    """Whether instruction `i` may fall through: guarded, or with any register condition."""
    if code.guard[i] != 7:
        return True
    first, last = int(code.operand_start[i]), int(code.operand_start[i + 1])
    return last > first or bool(code.table.falls_through[code.form[i]])


def _blocks(
    code: DecodedCode,
    kinds: Sequence[str],
    target: NDArray[np.int32],
    callee: Mapping[int, int],
    tables: Mapping[int, tuple[int, ...]],
    functions: Sequence[Function],
) -> tuple[tuple[Block, ...], NDArray[np.int32]]:
    n = len(code)
    leaders = {f.start for f in functions}
    for i, kind in enumerate(kinds):
        if kind in _ENDS_BLOCK and i + 1 < n:
            leaders.add(i + 1)
        if target[i] >= 0:
            leaders.add(int(target[i]))
    for targets in tables.values():
        leaders.update(targets)
    starts = sorted(leaders)
    bounds = list(zip(starts, [*starts[1:], n], strict=True))
    block_of = np.zeros(n, dtype=np.int32)
    for b, (start, end) in enumerate(bounds):
        block_of[start:end] = b
    function_of = np.zeros(n, dtype=np.int32)
    for k, f in enumerate(functions):
        function_of[f.start : f.end] = k

    successors: list[set[int]] = []
    syncs: list[tuple[int, int]] = []
    for b, (_start, end) in enumerate(bounds):
        last = end - 1
        kind = kinds[last]
        out: set[int] = set()
        never = bool(code.guard[last] == 7 and code.guard_negated[last])
        falls = True
        if never:
            pass
        elif kind == "branch":
            out.add(int(block_of[target[last]]))
            falls = _conditional(code, last)
        elif kind == "indirect":
            out.update(int(block_of[t]) for t in tables[last])
            falls = code.guard[last] != 7
        elif kind == "exit":
            falls = _conditional(code, last)  # EXIT may have a predicate besides its guard
        elif kind == "return":
            falls = code.guard[last] != 7
        elif kind == "warpsync" and target[last] >= 0:
            out.add(int(block_of[target[last]]))
        elif kind == "bsync":
            syncs.append((b, last))
            falls = code.guard[last] != 7
        if falls and end < n and function_of[end] == function_of[last]:
            out.add(int(block_of[end]))
        successors.append(out)
    _connect_barriers(code, kinds, target, bounds, successors, syncs, block_of, function_of)

    predecessors: list[list[int]] = [[] for _ in bounds]
    for b, out in enumerate(successors):
        for s in sorted(out):
            predecessors[s].append(b)
    blocks = tuple(
        Block(
            b, start, end, int(function_of[start]), tuple(sorted(successors[b])),
            tuple(predecessors[b]),
        )
        for b, (start, end) in enumerate(bounds)
    )  # fmt: skip
    return blocks, block_of


def _barrier_number(code: DecodedCode, i: int) -> int:
    """The convergence barrier B0-B15 of BSSY and BSYNC: bits 16-19 of the word."""
    return int(code.words[i, 0] >> np.uint64(16)) & 15


def _connect_barriers(
    code: DecodedCode,
    kinds: Sequence[str],
    target: NDArray[np.int32],
    bounds: Sequence[tuple[int, int]],
    successors: list[set[int]],
    syncs: Sequence[tuple[int, int]],
    block_of: NDArray[np.int32],
    function_of: NDArray[np.int32],
) -> None:
    """Adds the edges of BSYNC by iterating: which BSSY targets reach each block, per barrier."""
    if not syncs:
        return
    armed: dict[int, tuple[int, int]] = {}  # block -> (barrier, target) of the BSSY that ends it
    by_function: dict[tuple[int, int], set[int]] = {}
    for b, (_start, end) in enumerate(bounds):
        if kinds[end - 1] == "bssy":
            barrier = _barrier_number(code, end - 1)
            armed[b] = (barrier, int(target[end - 1]))
            key = (int(function_of[end - 1]), barrier)
            by_function.setdefault(key, set()).add(int(target[end - 1]))
    reach: list[dict[int, frozenset[int]]] = [{} for _ in bounds]
    entry: set[int] = {int(block_of[0])}
    for f in set(function_of.tolist()):
        entry.add(int(block_of[int(np.argmax(function_of == f))]))
    work = sorted(entry)
    visited: set[int] = set(work)
    sync_at = dict(syncs)
    while work:
        b = work.pop()
        state = dict(reach[b])
        if b in armed:
            barrier, where = armed[b]
            state[barrier] = frozenset({where})
        if b in sync_at:
            last = sync_at[b]
            barrier = _barrier_number(code, last)
            targets = state.pop(barrier, None) or frozenset(
                by_function.get((int(function_of[last]), barrier), ())
            )
            successors[b].update(int(block_of[t]) for t in targets)
            if not targets and bounds[b][1] < len(code):
                successors[b].add(int(block_of[bounds[b][1]]))
        for s in successors[b]:
            merged = dict(reach[s])
            changed = s not in visited
            for barrier, targets in state.items():
                union = merged.get(barrier, frozenset()) | targets
                if union != merged.get(barrier):
                    merged[barrier] = union
                    changed = True
            if changed:
                visited.add(s)
                reach[s] = merged
                work.append(s)
    # Blocks that control never reaches keep a fall-through, so that they stay well formed.
    for b, last in syncs:
        if not successors[b] and last + 1 < len(code):
            successors[b].add(int(block_of[last + 1]))
