"""The staircase of an SM: what one register more costs, and what the next block takes.

Problem: occupancy falls in steps. For each step a kernel engineer wants the highest register
count that keeps it and the shared memory still free there, which is what demotion can spend; and
backwards, what must be given up to reach a number of blocks.

Method: the residency of the launch at every register count, kept where it changes; the free
shared memory of a step is the most that can be added to each block with the step still held.

Invariants: rows go from the highest count to the lowest; resident blocks strictly rise. A step
whose blocks can't be launched has no row.

Not claimed: that slots within `slots_per_thread` can be placed without the host's help. A launch
whose static and dynamic shared memory pass 48 KiB per block fails unless the host has opted in, and
static memory alone never passes them; `static_slots_per_thread` keeps to that. Rounding costs a
rewrite up to 256 bytes of either (`slots_that_fit`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from regdem.machine.capability import WARP_THREADS
from regdem.machine.formulas import UNLIMITED, block_bounds, warps_per_block
from regdem.machine.residency import Launch, resident

if TYPE_CHECKING:
    from regdem.machine.residency import Occupancy

SLOT_BYTES = 4


@dataclass(frozen=True)
class Cliff:
    """One step: the most registers that keep it, and what a block still has to spend there.

    `free_shared_bytes_per_block`: shared memory that can be added to a block with the step still
    held. `slots_per_thread`: 4-byte slots every thread (of whole warps) gets from it;
    `static_slots_per_thread`: those that fit below 48 KiB of static shared memory; the launch's
    dynamic memory counts unless it passes them by itself, which only a host that opts in can do.
    """

    registers_max: int
    active_blocks: int
    active_warps: int
    occupancy_pct: float
    free_shared_bytes_per_block: int
    slots_per_thread: int
    static_slots_per_thread: int

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "registers_max": self.registers_max,
            "active_blocks": self.active_blocks,
            "active_warps": self.active_warps,
            "occupancy_pct": self.occupancy_pct,
            "free_shared_bytes_per_block": self.free_shared_bytes_per_block,
            "slots_per_thread": self.slots_per_thread,
            "static_slots_per_thread": self.static_slots_per_thread,
        }


@dataclass(frozen=True)
class Reach:
    """What reaches a number of blocks: registers and shared bytes to remove, both as needed.

    `reachable` is False where another resource (`blocked_by`) ends before; the amounts are None
    then. `registers_max` is the highest count that allows the blocks.
    """

    active_blocks: int
    active_warps: int
    reachable: bool
    registers_to_remove: int | None
    registers_max: int | None
    shared_bytes_to_remove: int | None
    blocked_by: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "active_blocks": self.active_blocks,
            "active_warps": self.active_warps,
            "reachable": self.reachable,
            "registers_to_remove": self.registers_to_remove,
            "registers_max": self.registers_max,
            "shared_bytes_to_remove": self.shared_bytes_to_remove,
            "blocked_by": list(self.blocked_by),
        }

    def sentence(self) -> str:
        """The row as advice."""
        blocks = f"{self.active_blocks} block{'s' if self.active_blocks > 1 else ''}"
        if not self.reachable:
            return f"{blocks}: out of reach, limited by {' and '.join(self.blocked_by)}"
        needs: list[str] = []
        if self.registers_to_remove:
            plural = "s" if self.registers_to_remove > 1 else ""
            needs.append(f"{self.registers_to_remove} register{plural} (to {self.registers_max})")
        if self.shared_bytes_to_remove:
            needs.append(f"{self.shared_bytes_to_remove} bytes of shared memory per block")
        return f"{blocks}: remove {' and '.join(needs)}"


def cliff_table(launch: Launch) -> tuple[Cliff, ...]:
    """Every step of a launch's staircase, its own register count left aside."""
    rows: list[Cliff] = []
    held = 0
    for registers in _counts(launch):
        at = resident(replace(launch, registers=registers))
        if at.active_warps <= held:
            continue
        held = at.active_warps
        free = free_shared_bytes(launch, at.active_blocks)
        static_free = max(0, min(free, _static_room(launch)))
        slot_bytes = SLOT_BYTES * WARP_THREADS * at.warps_per_block
        rows.append(
            Cliff(
                registers_max=registers,
                active_blocks=at.active_blocks,
                active_warps=at.active_warps,
                occupancy_pct=at.occupancy_pct,
                free_shared_bytes_per_block=free,
                slots_per_thread=free // slot_bytes,
                static_slots_per_thread=static_free // slot_bytes,
            )
        )
    return tuple(rows)


def slots_that_fit(launch: Launch, active_blocks: int, *, opted_in: bool = False) -> int:
    """Slots per thread that a rewrite can place with `active_blocks` still resident.

    A launch whose static and dynamic shared memory pass 48 KiB fails unless the host has opted in;
    one that does not pass them by itself may come from a host that has not. `opted_in`: it has.
    """
    free = min(free_shared_bytes(launch, active_blocks), _static_room(launch, opted_in=opted_in))
    warp_bytes = SLOT_BYTES * WARP_THREADS
    margin = 2 * warp_bytes  # rounding of the first slot, and of the dynamic part at run time
    return max(0, (free - margin) // (warp_bytes * warps_per_block(launch.threads)))


def _static_room(launch: Launch, *, opted_in: bool = False) -> int:
    """Static bytes that a block may have more, by the limit of 48 KiB; can be < 0."""
    left = launch.sm.shared_bytes_per_block - launch.static_shared_bytes
    if not opted_in and left >= launch.dynamic_shared_bytes:
        left -= launch.dynamic_shared_bytes
    return left


def _counts(launch: Launch) -> list[int]:
    """The counts at which a warp's allocation changes, the highest of each, downwards."""
    step = max(1, launch.sm.register_granule // WARP_THREADS)
    most = launch.sm.max_registers_per_thread
    return [most, *(n for n in range(most // step * step, 0, -step) if n != most)]


def free_shared_bytes(launch: Launch, blocks: int) -> int:
    """Shared memory that can be added to each block with `blocks` of them still resident.

    0 where not even the present amount allows them.
    """
    return max(0, _shared_room(launch, blocks) - _own_shared(launch))


def reach_table(present: Occupancy) -> tuple[Reach, ...]:
    """One row for each number of blocks above the present one, up to the SM's warp slots."""
    launch = present.launch
    most = launch.sm.max_warps_per_sm // present.warps_per_block
    return tuple(
        reach_blocks(launch, blocks) for blocks in range(present.active_blocks + 1, most + 1)
    )


def reach_blocks(launch: Launch, blocks: int) -> Reach:
    """What must be removed for `blocks` resident blocks, by the hardware's count."""
    bounds = block_bounds(launch.sm, launch.demand())
    warps = warps_per_block(launch.threads)
    blocked = tuple(
        name
        for name in ("warps", "blocks", "barriers", "virtual_resources")
        if getattr(bounds, name) < blocks
    )
    room = _shared_room(launch, blocks)
    most = _most_registers(launch, blocks)
    if room < 0:
        blocked = (*blocked, "shared")
    if most is None:
        blocked = (*blocked, "registers")
    if blocked or most is None:
        return Reach(blocks, blocks * warps, False, None, None, None, blocked)
    return Reach(
        active_blocks=blocks,
        active_warps=blocks * warps,
        reachable=True,
        registers_to_remove=max(0, (launch.registers or 0) - most),
        registers_max=most,
        shared_bytes_to_remove=max(0, _own_shared(launch) - room),
        blocked_by=(),
    )


def _own_shared(launch: Launch) -> int:
    return launch.static_shared_bytes + launch.dynamic_shared_bytes


def _most_registers(launch: Launch, blocks: int) -> int | None:
    """The highest count with which registers allow so many blocks: the bound falls with it."""
    fits, fails = 0, launch.sm.max_registers_per_thread + 1
    while fails - fits > 1:
        registers = (fits + fails) // 2
        demand = replace(launch, registers=registers).demand()
        if block_bounds(launch.sm, demand).registers >= blocks:
            fits = registers
        else:
            fails = registers
    return fits or None


def _shared_room(launch: Launch, blocks: int) -> int:
    """The most static plus dynamic bytes a block may have with `blocks` resident; can be < 0."""
    sm = launch.sm
    granule = sm.shared_granule_bytes
    reserved = sm.reserved_shared_bytes_per_block
    largest = sm.shared_bytes_per_block_opt_in if launch.opt_in else sm.shared_bytes_per_block
    room = -1
    # A block larger than the carve-out raises it; each size is tried for what it would give.
    for capacity in (size for size in sm.carveouts_bytes if size >= launch.carveout_bytes):
        allocated = min(capacity // max(blocks, 1) // granule * granule, largest + reserved)
        bytes_ = allocated - reserved
        if bytes_ < 0:
            continue
        demand = replace(launch, static_shared_bytes=bytes_, dynamic_shared_bytes=0).demand()
        bound = block_bounds(sm, demand).shared
        if bound >= blocks or bound >= UNLIMITED:
            room = max(room, bytes_)
    return room
