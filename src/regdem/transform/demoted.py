"""What a demotion is asked for, and what comes of it: the types that its phases share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from regdem.binary.edit import KernelEdit
from regdem.binary.kernel import Kernel
from regdem.errors import UnsupportedError
from regdem.isa.decode import decode
from regdem.program.edit import Edited
from regdem.program.program import Program, build
from regdem.transform.fold import Folded
from regdem.transform.gaps import EXPOSED_COST
from regdem.transform.paper import ELIMINATE
from regdem.transform.slots import SlotLayout

RESERVED_REGISTERS = 2
"""A count of N allows registers 0 to N - 3 (measured: count = highest number + 1 + 2)."""
STATIC_SHARED_LIMIT_BYTES = 48 * 1024


@dataclass(frozen=True)
class DemoteOptions:
    """What to reach and how.

    `registers`: registers per thread to reach. `threads`: threads per block of the launch.
    `most_slots`: slots per thread that fit at the target occupancy. `uniform`: values that a block
    shares may go to uniform registers. `fold`: instructions may name
    immediates and uniform registers themselves (`transform/fold.py`); `banks`: and words of
    constant banks. `exposed_cost`: of a load whose latency nothing covers
    (`transform/gaps.py`). `local_slots`: further slots, in a longer stack frame
    (`transform/overflow.py`). `paper_passes`: of the paper's orders (`transform/paper.py`).
    """

    registers: int
    threads: int
    most_slots: int
    order: str = "live-range"
    rematerialise: bool = True
    uniform: bool = True
    fold: bool = True
    banks: bool = False
    exposed_cost: float = EXPOSED_COST
    local_slots: int = 0
    paper_passes: frozenset[str] = frozenset({ELIMINATE})


@dataclass(frozen=True)
class Demoted:
    """One value that was moved: original register, slot (-1 if it has none), accesses inserted.

    `words`: 2 for a 64-bit value, moved by 64-bit accesses. `early`: stored while still under way.
    """

    register: int
    web: int
    slot: int
    loads: int
    stores: int
    loop_depth: int
    words: int = 1
    early: bool = False


@dataclass(frozen=True)
class Rewrite:
    """A rewritten kernel: the edit for the cubin and what was done."""

    edit: KernelEdit
    registers_per_thread: int
    shared_bytes: int
    slots: int
    demoted: tuple[Demoted, ...]
    rematerialised: tuple[Demoted, ...]
    inserted_instructions: int
    method: str
    uniform: tuple[Demoted, ...] = ()
    """Values kept in uniform registers."""
    cycles: float = 0.0
    """Estimated cycles of one warp among others, with loops, to compare rewrites of one kernel."""
    folded: tuple[Folded, ...] = ()
    """Values that their users name themselves."""
    removed_instructions: int = 0
    reordered_blocks: int = 0
    """Blocks whose instructions stand in a new order."""


@dataclass
class Spilled:
    """A program after insertion of loads and stores."""

    edited: Edited
    slots: int
    where: SlotLayout | None
    frame_bytes: int = 0
    """What the stack frame grows by."""
    demoted: list[Demoted] = field(default_factory=lambda: list[Demoted]())
    rematerialised: list[Demoted] = field(default_factory=lambda: list[Demoted]())
    uniform: list[Demoted] = field(default_factory=lambda: list[Demoted]())
    folded: list[Folded] = field(default_factory=lambda: list[Folded]())
    removed: int = 0


def program_of(kernel: Kernel) -> Program:
    """The control-flow graph of a kernel's section. Raises `UnsupportedError` (named).

    The same code is read once: the last few programs are kept, with what is kept with them.
    """
    functions = tuple((f.name, f.offset, f.size) for f in kernel.functions)
    tables = tuple((table.offset, tuple(table.targets)) for table in kernel.branch_tables)
    return _program_of(kernel.name, kernel.arch, kernel.code, functions, tables)


def require_rewritable(kernel: Kernel) -> None:
    """Raises `UnsupportedError` for kernels that no transformation may touch."""
    if kernel.reconfigures_registers:
        raise UnsupportedError(
            "the kernel moves registers between warps (setmaxnreg)",
            code="setmaxnreg",
            kernel=kernel.name,
        )
    if kernel.is_relocatable:
        raise UnsupportedError(
            "the object is relocatable: its functions are not linked yet",
            code="relocatable",
            hint="rewrite the linked cubin",
            kernel=kernel.name,
        )


@lru_cache(maxsize=4)
def _program_of(
    name: str,
    arch: str,
    code: bytes,
    functions: tuple[tuple[str, int, int], ...],
    tables: tuple[tuple[int, tuple[int, ...]], ...],
) -> Program:
    return build(name, decode(code, arch), list(functions), dict(tables))
