"""Spill sites: loads and stores that exist only because registers ran out.

Problem: local memory holds two different things. A spill is ptxas's own, at a fixed place of the
frame, and goes away with fewer live values; an array that is indexed at run time is the
programmer's, and no register count removes it. Since CUDA 13, ptxas also spills to shared memory.

Method: ptxas names its spills in the file (EIATTR_ANNOTATIONS, kind 1), and so do our rewrites.
Where any are named, that is the answer, with the places where device functions keep their caller's
registers. Otherwise by dataflow over the address: an access at R1 + constant is a spill unless the
frame's address was computed elsewhere (the base of an array) at or below that place; an access
through any other register is an array. Spills in shared memory are known only where they are named.

`ptxas -v` prints a line for the kernel and one for each device function that was not inlined; what
its own routines for division and roots (`$__internal_...`) spill, it prints nowhere. Sites in those
are `uncounted`, so that sums over the others equal what it prints.

Invariants: every local access is one site, a spill or an array; counts and sums leave the
uncounted sites out.

Not claimed: without annotations, an array that is only ever indexed by constants looks like
spills, and a spill placed behind an array looks like part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from regdem.analysis.forms import forms_of
from regdem.analysis.webs import STACK_POINTER
from regdem.isa.decoded import INSTRUCTION_BYTES, DecodedCode, RegisterFile, Role
from regdem.isa.fields import get_field
from regdem.program.program import Program

_ADDRESS_BIT = 24
_MEMORY_SIZE_BIT = 73
_INTERNAL = "$__internal_"
_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}


@dataclass(frozen=True)
class SpillSite:
    """One access. `place_bytes` is its frame or slot offset, None where it is computed."""

    instruction: int
    opcode: str
    space: str
    kind: str
    is_store: bool
    bytes_per_thread: int
    place_bytes: int | None
    loop_depth: int
    function: str = ""
    """The function of the section that it lies in."""

    @property
    def is_counted(self) -> bool:
        """Whether `ptxas -v` counts it."""
        return not self.function.startswith(_INTERNAL)

    @property
    def offset(self) -> int:
        """Bytes from the start of the code."""
        return self.instruction * INSTRUCTION_BYTES


@dataclass(frozen=True)
class Spills:
    """All sites in order of address; `annotated` says whether the file named the spills."""

    sites: tuple[SpillSite, ...]
    annotated: bool

    def count(self, space: str, *, store: bool, kind: str = "spill") -> int:
        """Number of sites of one sort, as `ptxas -v` would count them."""
        return len(self._of(space, store, kind))

    def total_bytes(self, space: str, *, store: bool, kind: str = "spill") -> int:
        """Bytes per thread over the sites of one sort, each counted once as `ptxas -v` does."""
        return sum(site.bytes_per_thread for site in self._of(space, store, kind))

    @property
    def spill_sites(self) -> tuple[SpillSite, ...]:
        """Sites of kind "spill", those that ptxas doesn't count among them."""
        return tuple(site for site in self.sites if site.kind == "spill")

    @property
    def uncounted_bytes(self) -> int:
        """Spill bytes per thread in ptxas's own routines, which `ptxas -v` leaves out."""
        return sum(site.bytes_per_thread for site in self.spill_sites if not site.is_counted)

    def loop_bytes(self, space: str) -> int:
        """Spill bytes per thread inside loops, each access once."""
        return sum(
            site.bytes_per_thread
            for site in self.spill_sites
            if site.space == space and site.loop_depth and site.is_counted
        )

    def _of(self, space: str, store: bool, kind: str) -> list[SpillSite]:
        return [
            site
            for site in self.sites
            if (site.space, site.is_store, site.kind) == (space, store, kind) and site.is_counted
        ]


def spills(program: Program, annotated: Iterable[int], depth: list[int]) -> Spills:
    """Finds the sites. `annotated`: byte offsets of kind-1 annotations; `depth`: loop depth per
    block.
    """
    code = program.code
    named = {offset // INSTRUCTION_BYTES for offset in annotated}
    if named:
        named |= _saved_registers(program)
    bases = _frame_bases(code)
    sites: list[SpillSite] = []
    for i, form in enumerate(forms_of(code)):
        local = form.memory == "local"
        if not local and not (form.memory == "shared" and i in named):
            continue
        place = _place(code, i, local)
        if named:
            kind = "spill" if i in named else "array"
        elif place is None or any(base <= place for base in bases):
            kind = "array"
        else:
            kind = "spill"
        size = _BYTES.get(int(code.words[i, 1] >> (_MEMORY_SIZE_BIT - 64)) & 7, 4)
        sites.append(
            SpillSite(
                instruction=i,
                opcode=form.name,
                space="local" if local else "shared",
                kind=kind,
                is_store=form.writes_memory,
                bytes_per_thread=size,
                place_bytes=place,
                loop_depth=depth[int(program.block_of[i])],
                function=program.functions[program.blocks[int(program.block_of[i])].function].name,
            )
        )
    return Spills(tuple(sites), bool(named))


def _saved_registers(program: Program) -> set[int]:
    """Accesses with which device functions keep the caller's registers.

    ptxas counts them as spills without naming them: in a function, a place at R1 + constant that
    one register only is stored to and loaded from.
    """
    code = program.code
    if len(program.functions) < 2:
        return set()
    found: dict[tuple[int, int], list[tuple[int, bool, int]]] = {}
    for i, form in enumerate(forms_of(code)):
        function = program.blocks[int(program.block_of[i])].function
        if not function or form.memory != "local":
            continue
        place = _place(code, i, True)
        if place is None:
            continue
        lo, hi = (int(word) for word in code.words[i])
        register = get_field(lo, hi, 32 if form.writes_memory else 16, 8)
        found.setdefault((function, place), []).append((register, form.writes_memory, i))
    result: set[int] = set()
    for accesses in found.values():
        registers = {register for register, _, _ in accesses}
        stores = {is_store for _, is_store, _ in accesses}
        if len(registers) == 1 and len(stores) == 2:
            result.update(i for _, _, i in accesses)
    return result


def _place(code: DecodedCode, i: int, local: bool) -> int | None:
    """The constant part of the address, where the register part is the frame or slot base."""
    register = None
    for row in range(int(code.operand_start[i]), int(code.operand_start[i + 1])):
        if code.operand_bit[row] == _ADDRESS_BIT and code.operand_file[row] == RegisterFile.GPR:
            register = int(code.operand_register[row])
    if local and register not in (STACK_POINTER, None):
        return None
    lo, hi = (int(word) for word in code.words[i])
    value = get_field(lo, hi, 40, 24)
    return value - ((value & 0x800000) << 1)


def _frame_bases(code: DecodedCode) -> list[int]:
    """Frame offsets whose address is computed: R1 + constant read by an arithmetic instruction.

    A register + register form, or any form whose constant isn't plain, counts as offset 0.
    """
    found: list[int] = []
    stack = (
        (code.operand_file == RegisterFile.GPR)
        & (code.operand_register <= STACK_POINTER)
        & (code.operand_register + code.operand_width > STACK_POINTER)
        & ((code.operand_role & Role.READ) != 0)
    )
    writes_stack = {
        int(i)
        for i in code.operand_instruction[
            (code.operand_file == RegisterFile.GPR)
            & (code.operand_register == STACK_POINTER)
            & ((code.operand_role & Role.WRITE) != 0)
        ]
    }
    for row in stack.nonzero()[0].tolist():
        i = int(code.operand_instruction[row])
        form = code.table.forms[int(code.form[i])]
        if i in writes_stack or (form.memory != "none" and code.operand_bit[row] == _ADDRESS_BIT):
            continue
        lo = int(code.words[i, 0])
        immediate = (lo >> 9) & 7 == 4
        constant = lo >> 32 if immediate and form.name in ("IADD3", "VIADD", "IADD") else 0
        found.append(constant if constant < 1 << 24 else 0)
    return found
