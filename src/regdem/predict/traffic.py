"""What a kernel asks of the memory system, judged from its code.

Where a load goes decides its latency, and the code alone does not say. What it does say: the space,
the width, and whether an address comes from loaded data (a gather or a pointer chase, whose lanes
may each touch a sector of their own) or from indices alone (neighbouring lanes, as a rule,
neighbouring words). That is found by a forward dataflow of registers that depend on loads. The rest
is an assumption about locality, and since it is one, predictions are made under three: `typical`,
`cached` and `streaming`; their spread is the interval of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.analysis.bits import def_masks, use_masks
from regdem.analysis.forms import forms_of
from regdem.isa.fields import get_field
from regdem.program.program import Program

_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}
_SECTOR_BYTES = 32
_GATHER_SECTORS = 16.0
"""Sectors that a gather of 32 lanes touches: half of them by themselves. An assumption."""
_LOADS = frozenset({"global", "generic", "texture", "surface"})
"""Shared and local memory hold indices and addresses as often as data: they pass for neither."""


@dataclass(frozen=True)
class Locality:
    """Shares of global loads that hit L1, that hit L2, and that go to DRAM; they add up to 1."""

    name: str
    l1: float
    l2: float
    dram: float


TYPICAL = Locality("typical", 0.30, 0.40, 0.30)
CACHED = Locality("cached", 0.60, 0.36, 0.04)
STREAMING = Locality("streaming", 0.05, 0.35, 0.60)
SCENARIOS = (TYPICAL, CACHED, STREAMING)


@dataclass(frozen=True)
class MemoryAccess:
    """One memory instruction: `space`, bytes a lane, L1 wavefronts, sectors, gather or not."""

    space: str
    bytes_per_lane: int
    wavefronts: float
    sectors: float
    is_gather: bool
    is_load: bool
    is_atomic: bool


def accesses(program: Program) -> dict[int, MemoryAccess]:
    """The memory instructions of a program, constant bank aside."""
    code = program.code
    tainted = _tainted_addresses(program)
    found: dict[int, MemoryAccess] = {}
    for i, form in enumerate(forms_of(code)):
        if form.memory in ("none", "constant"):
            continue
        lo, hi = (int(word) for word in code.words[i])
        size = _BYTES.get(get_field(lo, hi, 73, 3), 4)
        gather = i in tainted and form.memory not in ("local",)
        words = max(1.0, size / 4)
        sectors = words * 4
        wavefronts = words
        if gather and form.memory != "shared":
            sectors = _GATHER_SECTORS * max(1.0, size / _SECTOR_BYTES)
            wavefronts = max(words, _GATHER_SECTORS / 4)
        found[i] = MemoryAccess(
            space=form.memory,
            bytes_per_lane=size,
            wavefronts=wavefronts,
            sectors=sectors,
            is_gather=gather,
            is_load=form.reads_memory,
            is_atomic=form.reads_memory and form.writes_memory,
        )
    return found


def _tainted_addresses(program: Program) -> set[int]:
    """Memory instructions whose address depends on a value loaded from memory."""
    code = program.code
    forms = forms_of(code)
    uses, defs = use_masks(code), def_masks(code)
    loads = [form.memory in _LOADS and form.reads_memory for form in forms]
    address = _address_masks(program)
    killing = [int(g) == 7 for g in code.guard.tolist()]
    entry: list[int | None] = [None] * len(program.blocks)
    starts = {int(program.block_of[f.start]) for f in program.functions}
    for b in starts:
        entry[b] = 0
    found: set[int] = set()
    work = sorted(starts)
    while work:
        b = work.pop()
        block = program.blocks[b]
        state = entry[b] or 0
        for i in range(block.start, block.end):
            if address[i] & state:
                found.add(i)
            if loads[i] or uses[i] & state:
                state |= defs[i]
            elif killing[i]:
                state &= ~defs[i]
        for s in block.successors:
            known = entry[s]
            if known is None or state & ~known:
                entry[s] = state | (known or 0)
                work.append(s)
    return found


def _address_masks(program: Program) -> list[int]:
    """The registers at the address field (bits 24 to 31) of each memory instruction, as masks."""
    code = program.code
    masks = [0] * len(code)
    forms = forms_of(code)
    rows = ((code.operand_bit == 24) & (code.operand_file == 0)).nonzero()[0].tolist()
    for row in rows:
        i = int(code.operand_instruction[row])
        if forms[i].memory != "none":
            first, width = int(code.operand_register[row]), int(code.operand_width[row])
            masks[i] |= ((1 << width) - 1) << first
    return masks
