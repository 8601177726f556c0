"""What a kernel asks of the memory system, judged from its code.

An access touches as many 32-byte sectors as its lanes' addresses show (`lanes`): one where they are
the same, those of a run of words, one a lane where structures are strided or where the address is
loaded (a gather, taken to find half of its sectors beside each other).

Accesses through the same address register touch known distances. A sector that an earlier one has
touched is free if the two are under way together; if the warp has waited for memory in between, the
sector must have stayed in L1 (`repeats`), which it does as long as the resident warps' lines fit.

How often a sector touched for the first time is in L1 or L2, because other warps or blocks used it,
the code does not say: that is an assumption, and predictions are made under several (`locality`).
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.analysis.forms import forms_of
from regdem.isa.decoded import NO_SCOREBOARD
from regdem.isa.fields import get_field
from regdem.predict.lanes import COPY, Address, Lanes, addresses
from regdem.program.program import Program

SECTOR_BYTES, LINE_BYTES = 32, 128
_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}
_LANES = 32
_GATHER_STRIDE = SECTOR_BYTES // 2
"""A gather is counted as if its lanes were half a sector apart: an assumption."""
_STACK, _RZ = 1, 255
_FAR = frozenset({"global", "generic", "texture", "surface"})


@dataclass(frozen=True)
class MemoryAccess:
    """One memory instruction of a warp: `space`, bytes a lane, L1 wavefronts, and the sectors it
    touches for the first time (`sectors`), again after a wait for memory (`repeats`), or again
    without one (`pending`)."""

    space: str
    bytes_per_lane: int
    wavefronts: float
    sectors: float
    repeats: float
    pending: float
    is_gather: bool
    is_load: bool
    is_atomic: bool

    @property
    def kind(self) -> str:
        """What it counts as: load, gather, store, atomic, local_load, local_store, shared or ""."""
        if self.space == "other":
            return ""
        if self.space == "shared":
            return "shared"
        if self.space == "local":
            return "local_load" if self.is_load else "local_store"
        if self.is_atomic:
            return "atomic"
        if not self.is_load:
            return "store"
        return "gather" if self.is_gather else "load"


@dataclass(frozen=True)
class MemoryUse:
    """The memory instructions of a program, constant bank aside, and the bytes of L1 lines that one
    warp comes back to after a wait (`reused_bytes`, of the block where they are most), or without
    one (`pending_bytes`). `places`: accesses to global memory with the same one are at known
    distances from each other; gathers have none. `slots`: bytes of the local frame that are
    accessed at known places; `indexed`: accesses to it at other places."""

    accesses: dict[int, MemoryAccess]
    reused_bytes: int
    pending_bytes: int
    places: dict[int, tuple[int, int]]
    slots: frozenset[int]
    indexed: frozenset[int]


def memory_use(program: Program) -> MemoryUse:
    """Judges every memory instruction of a program."""
    code = program.code
    forms = forms_of(code)
    known = addresses(program)
    waits: list[int] = code.wait_mask.tolist()
    boards: list[int] = code.write_scoreboard.tolist()
    words: list[list[int]] = code.words.tolist()
    found: dict[int, MemoryAccess] = {}
    most = pending_most = 0
    slots: set[int] = set()
    indexed: set[int] = set()
    for block in program.blocks:
        groups: dict[tuple[int, int], _Group] = {}
        epoch = outstanding = 0
        for i in range(block.start, block.end):
            if waits[i] & outstanding:
                epoch, outstanding = epoch + 1, 0
            form = forms[i]
            if form.memory in ("none", "constant"):
                continue
            size = _BYTES.get(get_field(words[i][0], words[i][1], 73, 3), 4)
            address = known.get(i)
            touched, again, pending, all_sectors = size, 0, 0, float(size)
            copied = form.name == COPY
            far = form.memory in _FAR or copied
            if far and address is not None:
                group = groups.setdefault(address.base, _Group())
                touched, again, pending, all_sectors = group.touch(address, size, epoch)
                if form.reads_memory and boards[i] != NO_SCOREBOARD:
                    outstanding |= 1 << boards[i]
            if form.memory == "local":
                if address is None or address.base[0] in (_STACK, _RZ):
                    start = address.offset if address is not None else 0
                    slots.update(range(start, start + size))
                else:
                    indexed.add(i)
            found[i] = MemoryAccess(
                space="global" if copied else form.memory,
                bytes_per_lane=size,
                wavefronts=max(1.0, size / 4, all_sectors / 4 if far else 0.0),
                sectors=touched,
                repeats=again,
                pending=pending,
                is_gather=far and address is not None and address.lanes.kind == "loaded",
                is_load=form.reads_memory,
                is_atomic=form.reads_memory and form.writes_memory and not copied,
            )
        most = max(most, sum(group.reused_bytes for group in groups.values()))
        pending_most = max(pending_most, sum(group.pending_bytes for group in groups.values()))
    places = {i: known[i].base for i, each in found.items() if i in known and not each.is_gather}
    return MemoryUse(found, most, pending_most, places, frozenset(slots), frozenset(indexed))


def accesses(program: Program) -> dict[int, MemoryAccess]:
    """The memory instructions of a program, constant bank aside."""
    return memory_use(program).accesses


class _Group:
    """Accesses through one value of one address register: sectors with when they were touched."""

    def __init__(self) -> None:
        self.sectors: dict[int, int] = {}
        self.lines_again: set[int] = set()
        self.lines_pending: set[int] = set()

    def touch(self, address: Address, size: int, epoch: int) -> tuple[int, int, int, float]:
        """Sectors touched first, sectors touched again after a wait or without, and all of them."""
        first = again = pending = 0
        mine = _sectors(address.lanes, address.offset, size)
        for sector in mine:
            known = self.sectors.get(sector)
            if known is None:
                first += 1
            elif known != epoch:
                again += 1
                self.lines_again.add(sector * SECTOR_BYTES // LINE_BYTES)
            else:
                pending += 1
                self.lines_pending.add(sector * SECTOR_BYTES // LINE_BYTES)
            self.sectors[sector] = epoch
        return first, again, pending, float(len(mine))

    @property
    def pending_bytes(self) -> int:
        return len(self.lines_pending) * LINE_BYTES

    @property
    def reused_bytes(self) -> int:
        return len(self.lines_again) * LINE_BYTES


def _sectors(lanes: Lanes, offset: int, size: int) -> set[int]:
    """Sectors of a warp's access, counted from where its address register points."""
    stride = size
    if lanes.kind == "affine":
        stride = abs(lanes.coefficient)
    elif lanes.kind == "loaded":
        stride = max(size, _GATHER_STRIDE)
    if stride <= SECTOR_BYTES:
        end = offset + (_LANES - 1) * stride + size - 1
        return set(range(offset // SECTOR_BYTES, end // SECTOR_BYTES + 1))
    starts = [offset + lane * stride for lane in range(_LANES)]
    found = {start // SECTOR_BYTES for start in starts}
    return found | {(start + size - 1) // SECTOR_BYTES for start in starts}
