"""A kernel of a cubin as a value: its code and everything the file says about it.

Offsets are bytes from the start of the kernel's code section. A `Kernel` can be pickled and sent
to another process; `source`, the cubin it was read from, stays behind then. What the file does not
say is `None`, never a guess.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from regdem.binary.demangle import demangle
from regdem.binary.info import InfoRecord
from regdem.binary.symbols import Symbol

if TYPE_CHECKING:
    from regdem.binary.cubin import Cubin


@dataclass(frozen=True, slots=True)
class Function:
    """A FUNC symbol of the kernel's section: the kernel itself or a device function in it."""

    name: str
    offset: int
    size: int
    symbol_index: int
    is_kernel: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """A relocation: at `offset` of `section` stands symbol + addend.

    `target_offset` is the offset in the kernel's code that the relocation names, if it names one.
    """

    section: str
    offset: int
    type: int
    symbol_index: int
    symbol: str
    addend: int
    target_offset: int | None


@dataclass(frozen=True, slots=True)
class BranchTable:
    """An indirect branch and its targets, in table order.

    `table_offset` is where the targets stand in `.nv.constant2.KERNEL`, `None` if nowhere.
    """

    offset: int
    targets: tuple[int, ...]
    table_offset: int | None


@dataclass(frozen=True, slots=True)
class Annotation:
    """A record of EIATTR_ANNOTATIONS; kind 1 marks a spill or fill."""

    kind: int
    offset: int


SPILL_ANNOTATION = 1


@dataclass(frozen=True, slots=True)
class LineEntry:
    """From `offset` on (until the next entry) code belongs to `file`:`line`."""

    offset: int
    file: str
    line: int


@dataclass(frozen=True)
class Kernel:
    """One entry function. Sizes in bytes; see the fields."""

    name: str
    arch: str
    symbol_index: int
    section_index: int
    code: bytes = field(repr=False)
    registers_per_thread: int
    static_shared_bytes: int
    """As the occupancy calculation counts it: without the architecture's reserve."""
    reserved_shared_bytes: int
    """Reserve that `.nv.shared.KERNEL` includes (sm_90 and later, linked: 1024)."""
    shared_section_bytes: int
    """Size of `.nv.shared.KERNEL`, 0 if there is none."""
    local_bytes: int
    """Stack frame of the kernel's own code (EIATTR_FRAME_SIZE)."""
    min_stack: int | None
    max_threads: int | None
    """Threads per block the kernel was compiled for (EIATTR_MAX_THREADS), a product."""
    max_block: tuple[int, int, int] | None
    required_block: tuple[int, int, int] | None
    max_registers: int | None
    barriers: int
    cluster: tuple[int, int, int] | None
    shared_scratch: tuple[int, ...] | None
    """The words of EIATTR_SHARED_SCRATCH: ptxas's own spill area in shared memory."""
    uses_dynamic_shared: bool | None
    """True where a relocation names an undefined shared symbol; None where it can't be told."""
    reconfigures_registers: bool
    """EIATTR_REG_RECONFIG: the kernel uses `setmaxnreg`."""
    is_relocatable: bool
    functions: tuple[Function, ...]
    info: tuple[InfoRecord, ...] = field(repr=False)
    relocations: tuple[Relocation, ...] = field(repr=False)
    """Relocations of the code itself."""
    incoming_relocations: tuple[Relocation, ...] = field(repr=False)
    """Relocations of other sections, debug information excepted, that name this code."""
    symbols: dict[int, Symbol] = field(repr=False)
    """The symbols that relocations and info records name, by index in this file."""
    branch_tables: tuple[BranchTable, ...] = field(repr=False)
    annotations: tuple[Annotation, ...] = field(repr=False)
    constant_bank_bytes: dict[int, int]
    constant2: bytes = field(repr=False)
    """Content of `.nv.constant2.KERNEL` (jump tables and literals)."""
    has_sass_lines: bool
    """A `.nv_debug_line_sass` table covers this kernel."""
    lines: tuple[LineEntry, ...] = field(repr=False)
    """Source lines from `.debug_line`, sorted by offset; empty without `-lineinfo`."""

    def with_source(self, cubin: Cubin) -> Kernel:
        """Notes the cubin this kernel was read from; no part of its value."""
        self.__dict__["_source"] = cubin
        return self

    @property
    def source(self) -> Cubin | None:
        """The cubin it was read from, in the process that read it."""
        return self.__dict__.get("_source")

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_source"}

    @cached_property
    def demangled_name(self) -> str:
        return demangle(self.name)

    @property
    def instruction_count(self) -> int:
        return len(self.code) // 16

    @cached_property
    def _line_offsets(self) -> list[int]:
        return [entry.offset for entry in self.lines]

    def line_at(self, offset: int) -> tuple[str, int] | None:
        """(file, line) of the instruction at `offset`, or None."""
        index = bisect_right(self._line_offsets, offset) - 1
        if index < 0 or self.lines[index].line == 0:
            return None
        return self.lines[index].file, self.lines[index].line
