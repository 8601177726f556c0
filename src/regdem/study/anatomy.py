"""The loops of a kernel taken apart: work, overhead, the counter's step, the turns it makes.

Problem: whether an unroll factor really changed a loop can only be told from the machine code, in
which loops have no names, move, split into main and remainder, or are gone.

Method: every instruction belongs to the innermost loop around it, or to the straight code (region
-1). Per region, work is counted by what the source asks for: bytes of memory accesses and
floating-point operations, each under a key of mnemonic and source line. Keys survive unrolling;
their amounts grow with the number of copies (bytes, not accesses, so that copies merged into wide
accesses count in full). Where a kernel has neither, integer operations are counted the same way.
The counter's step is found from the back edge: its predicate, the comparison that makes it, and
what one turn adds to the register compared.

Invariants: regions partition the reachable instructions; spill accesses are no work.

Not claimed: a step where the counter is updated through anything but additions of constants; turns
where the start or the end of the count is not a constant.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from regdem.analysis.forms import forms_of
from regdem.analysis.ilp import is_padding
from regdem.binary.kernel import Kernel
from regdem.isa.decoded import INSTRUCTION_BYTES, DecodedCode, Role
from regdem.isa.fields import get_field
from regdem.isa.table import Form
from regdem.program.loops import loops
from regdem.program.program import Program
from regdem.study.counter import CounterStep, counter_of

Key = tuple[str, str]
"""Mnemonic and source line ("" without line information)."""

STRAIGHT = -1
"""The region of code outside loops."""

MEMORY = frozenset({"global", "generic", "shared", "texture", "surface"})
ARITHMETIC = frozenset({"fma", "fp64", "half", "half_mma", "mma", "gmma", "fp64_mma", "mufu"})
_COMPARISONS = frozenset({"DSETP", "HSETP2", "HSET2"})
_ACCESS_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}
_MEMORY_SIZE_BIT = 73
_CLASS_OF = {"memory": 0, "arithmetic": 1, "integer": 2, "move": 3, "overhead": 4, "spill": 5}
CLASSES = tuple(_CLASS_OF)
"""What instructions are for: "integer" is any other computation, addresses included; "move" copies
a register or makes a constant; "overhead" is branches, convergence and predicates."""

_MOVES = frozenset({"MOV", "UMOV", "R2UR", "CS2R"})
_MOVES_AT_TIMES = frozenset({"HFMA2", "IMAD"})
_GUARD_BIT, _ADDEND_BIT = 12, 64
_OVERHEAD_NAMES = frozenset({"ISETP", "UISETP", "PLOP3", "UPLOP3", "NOP", "BSSY", "BSYNC"})


@dataclass(frozen=True)
class Region:
    """A loop, or the straight code, without what lies in loops inside it.

    `classes` counts instructions by what they are for; `work` holds amounts by key (bytes for
    memory, operations otherwise). `turns` is what the code says where it does.
    """

    index: int
    parent: int
    depth: int
    blocks: frozenset[int]
    start_offset: int
    end_offset: int
    instructions: int
    own_instructions: int
    work: dict[Key, int]
    integer_work: dict[Key, int]
    classes: dict[str, int]
    counter: CounterStep | None
    line: str
    """The source line of most of its work."""

    @property
    def turns(self) -> int | None:
        """Turns per entry, where the code says."""
        return self.counter.turns if self.counter else None

    @property
    def is_loop(self) -> bool:
        """Whether it is a loop."""
        return self.index != STRAIGHT


@dataclass(frozen=True)
class Anatomy:
    """All regions of a kernel: the straight code first, then loops, outer before inner.

    `region_of` gives, per block, the index of its region (`STRAIGHT` or a loop).
    """

    regions: tuple[Region, ...]
    region_of: tuple[int, ...]
    class_of: tuple[str, ...]
    """Per instruction what it is for."""
    key_of: tuple[Key | None, ...]
    """Per instruction the key of its work, None where it has none."""
    bytes_of: tuple[int, ...]
    """Per instruction the bytes a thread moves, spills left out."""

    @property
    def loops(self) -> tuple[Region, ...]:
        """The loops."""
        return self.regions[1:]

    def region(self, index: int) -> Region:
        """The region of an index (`STRAIGHT` or a loop's)."""
        return self.regions[index + 1]

    def ancestors(self, index: int) -> list[int]:
        """The loops around a loop, from its parent outwards, then `STRAIGHT`."""
        found: list[int] = []
        while index != STRAIGHT:
            index = self.region(index).parent
            found.append(index)
        return found


def anatomy_of(kernel: Kernel, program: Program, spill_sites: frozenset[int]) -> Anatomy:
    """Takes a kernel apart. `spill_sites`: instructions that spill or fill."""
    every = loops(program)
    kept = [
        k
        for k, loop in enumerate(every)
        if loop.blocks & program.reachable and not is_padding(program, loop)
    ]
    nest = [every[k] for k in kept]
    # `parent` counts all loops; renumbered for those kept.
    number = {k: new for new, k in enumerate(kept)}
    parents = [number.get(loop.parent, STRAIGHT) for loop in nest]
    region_of = [STRAIGHT] * len(program.blocks)
    for k, loop in enumerate(nest):
        for block in loop.blocks:
            if region_of[block] == STRAIGHT or loop.depth >= nest[region_of[block]].depth:
                region_of[block] = k
    forms = forms_of(program.code)
    classes: list[str] = []
    keys: list[Key | None] = []
    amounts: list[int] = []
    for i, form in enumerate(forms):
        kind = "spill" if i in spill_sites else _class(program.code, i, form)
        classes.append(kind)
        amounts.append(_amount(program.code, i, kind))
        found = kernel.line_at(INSTRUCTION_BYTES * i)
        line = "" if found is None else f"{found[0].rsplit('/', 1)[-1]}:{found[1]}"
        keys.append((form.name, line) if kind in ("memory", "arithmetic", "integer") else None)
    regions: list[Region] = []
    for k in range(STRAIGHT, len(nest)):
        inside = frozenset(program.reachable) if k == STRAIGHT else nest[k].blocks
        own = [b for b in sorted(inside & program.reachable) if region_of[b] == k]
        body = [i for b in own for i in range(program.blocks[b].start, program.blocks[b].end)]
        work: Counter[Key] = Counter()
        integer: Counter[Key] = Counter()
        per_line: Counter[str] = Counter()
        for i in body:
            key = keys[i]
            if key is None:
                continue
            if classes[i] == "integer":
                integer[key] += 1
            else:
                work[key] += amounts[i]
                per_line[key[1]] += 1
        spans = [(program.blocks[b].start, program.blocks[b].end) for b in inside]
        regions.append(
            Region(
                index=k,
                parent=STRAIGHT if k == STRAIGHT else parents[k],
                depth=0 if k == STRAIGHT else nest[k].depth,
                blocks=inside,
                start_offset=INSTRUCTION_BYTES * min((s for s, _ in spans), default=0),
                end_offset=INSTRUCTION_BYTES * max((e for _, e in spans), default=0),
                instructions=sum(e - s for s, e in spans),
                own_instructions=len(body),
                work=dict(work),
                integer_work=dict(integer),
                classes=dict(Counter(classes[i] for i in body)),
                counter=None if k == STRAIGHT else counter_of(program, nest[k], forms),
                line=per_line.most_common(1)[0][0] if per_line else "",
            )
        )
    moved = [a if kind == "memory" else 0 for a, kind in zip(amounts, classes, strict=True)]
    return Anatomy(tuple(regions), tuple(region_of), tuple(classes), tuple(keys), tuple(moved))


def _class(code: DecodedCode, i: int, form: Form) -> str:
    if form.memory in MEMORY and (form.reads_memory or form.writes_memory):
        return "memory"
    if form.control != "none" or form.name in _OVERHEAD_NAMES:
        return "overhead"
    if _is_move(code, i, form):
        return "move"
    if form.latency in ARITHMETIC and form.name not in _COMPARISONS:
        return "arithmetic"
    return "integer"


def _is_move(code: DecodedCode, i: int, form: Form) -> bool:
    """Moves by name, and as ptxas writes them: constants as half-precision arithmetic without
    register operands, copies as IMAD with a product of zero.
    """
    if form.name in _MOVES:
        return True
    if form.name not in _MOVES_AT_TIMES:
        return False
    rows = range(int(code.operand_start[i]), int(code.operand_start[i + 1]))
    bits = [
        int(code.operand_bit[row])
        for row in rows
        if code.operand_role[row] & Role.READ and code.operand_bit[row] != _GUARD_BIT
    ]
    return not bits or (form.name == "IMAD" and bits == [_ADDEND_BIT])


def _amount(code: DecodedCode, i: int, kind: str) -> int:
    if kind != "memory":
        return 1
    lo, hi = code.word(i)
    return _ACCESS_BYTES.get(get_field(lo, hi, _MEMORY_SIZE_BIT, 3), 4)
