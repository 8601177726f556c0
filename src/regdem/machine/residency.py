"""Occupancy: blocks and warps resident on one SM, for one launch or for arrays of launches.

Problem: what a kernel's registers, shared memory, barriers and block size allow, exactly as the
vendor's calculator counts it, and as the textbook counts it for comparison.

Method: check the request, apply `formulas`, take the least bound. The hardware model gives a
warp's registers out of one sub-partition, so 33 registers at 256 threads keep 48 warps; the
textbook divides the whole file by a warp's allocation, floor(65536 / 1280) = 51 warps, counts
shared memory with no reserve and no granule, and counts neither block slots nor whole blocks.

Invariants: legal values that don't fit give `active_blocks == 0`; illegal ones raise UsageError.

Not claimed: clusters. They don't change what one SM holds; how many clusters a GPU holds depends
on how its SMs are grouped, which is a property of the single chip (see `waves`).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from regdem.errors import UsageError
from regdem.machine.block import BlockShape, block_shape
from regdem.machine.capability import KIB, SmLimits, limits
from regdem.machine.formulas import (
    SCALAR,
    UNLIMITED,
    ArrayOperations,
    Bounds,
    Demand,
    block_bounds,
    least,
    registers_per_warp,
    round_up,
    warps_per_block,
)

if TYPE_CHECKING:
    from regdem.machine.cliffs import Cliff, Reach
    from regdem.machine.vectors import OccupancyArrays

MODELS = ("hardware", "textbook")
RESOURCES = ("warps", "blocks", "registers", "shared", "barriers", "virtual_resources")


@dataclass(frozen=True)
class BlockLimits:
    """Blocks per SM each resource would allow; None where it sets no limit."""

    warps: int | None
    blocks: int | None
    registers: int | None
    shared: int | None
    barriers: int | None
    virtual_resources: int | None

    def to_dict(self) -> dict[str, int | None]:
        """The `limits` key of JSON output."""
        return {name: getattr(self, name) for name in RESOURCES}


@dataclass(frozen=True)
class Launch:
    """A checked request: one kernel launched with one block size on one architecture."""

    arch: str
    threads: int
    registers: int | None = None
    static_shared_bytes: int = 0
    dynamic_shared_bytes: int = 0
    barriers: int = 0
    cluster: int = 1
    carveout_kib: int | None = None
    virtual_resources: int = 0
    opt_in: bool = True
    model: str = "hardware"

    @property
    def sm(self) -> SmLimits:
        """The limits of the architecture."""
        return limits(self.arch)

    @property
    def carveout_bytes(self) -> int:
        """The shared memory the SM is configured with: as asked, rounded up, else the largest."""
        if self.carveout_kib is None:
            return self.sm.shared_bytes_per_sm
        return SCALAR.round_up_to(self.sm.carveouts_bytes, self.carveout_kib * KIB)

    def demand(self) -> Demand:
        """The request as the formulas take it."""
        return Demand(
            threads=self.threads,
            registers=self.registers or 0,
            static_shared_bytes=self.static_shared_bytes,
            dynamic_shared_bytes=self.dynamic_shared_bytes,
            barriers=self.barriers,
            virtual_resources=self.virtual_resources,
            carveout_bytes=self.carveout_bytes,
            opt_in=self.opt_in,
        )


@dataclass(frozen=True)
class Occupancy:
    """What is resident on one SM, and why not more.

    `active_warps` and `active_blocks` count one SM; `occupancy_pct` is warps over warp slots.
    `limiters` names the resources whose bound is the least. Barriers drain per block, so blocks
    resident matter beside the per cent.
    """

    launch: Launch
    active_blocks: int
    active_warps: int
    limits: BlockLimits
    limiters: tuple[str, ...]
    warps_per_block: int
    allocated_registers_per_block: int
    allocated_shared_bytes_per_block: int

    @property
    def arch(self) -> str:
        """The architecture, as `sm_90`."""
        return self.launch.arch

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.launch.threads

    @property
    def registers(self) -> int | None:
        """Registers per thread; None where none were given."""
        return self.launch.registers

    @property
    def model(self) -> str:
        """`hardware` or `textbook`."""
        return self.launch.model

    @property
    def max_warps(self) -> int:
        """Warp slots of the SM."""
        return self.launch.sm.max_warps_per_sm

    @property
    def occupancy_pct(self) -> float:
        """Active warps over warp slots, in per cent."""
        return 100 * self.active_warps / self.max_warps

    @cached_property
    def cliffs(self) -> tuple[Cliff, ...]:
        """Every step of the staircase, from the highest register count to the lowest."""
        from regdem.machine.cliffs import cliff_table

        return cliff_table(self.launch)

    @cached_property
    def reach(self) -> tuple[Reach, ...]:
        """What must be given up for each number of blocks above the present one.

        Empty for the textbook model, which knows no whole blocks.
        """
        if self.model == "textbook":
            return ()
        from regdem.machine.cliffs import reach_table

        return reach_table(self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, keys and units as in the interface."""
        launch = self.launch
        return {
            "arch": self.arch,
            "model": self.model,
            "threads": self.threads,
            "registers": self.registers,
            "static_shared_bytes": launch.static_shared_bytes,
            "dynamic_shared_bytes": launch.dynamic_shared_bytes,
            "barriers": launch.barriers,
            "cluster": launch.cluster,
            "carveout_kib": launch.carveout_kib,
            "active_blocks": self.active_blocks,
            "active_warps": self.active_warps,
            "max_warps": self.max_warps,
            "warps_per_block": self.warps_per_block,
            "occupancy_pct": self.occupancy_pct,
            "limits": self.limits.to_dict(),
            "limiters": list(self.limiters),
            "allocated_registers_per_block": self.allocated_registers_per_block,
            "allocated_shared_bytes_per_block": self.allocated_shared_bytes_per_block,
            "cliffs": [cliff.to_dict() for cliff in self.cliffs],
            "reach": [reach.to_dict() for reach in self.reach],
        }

    def _repr_html_(self) -> str:
        from regdem.machine.staircase import html_fragment

        return html_fragment(self)


def occupancy(
    arch: str,
    threads: Any,
    registers: Any = None,
    *,
    static_shared_bytes: Any = 0,
    dynamic_shared_bytes: Any = 0,
    barriers: Any = 0,
    cluster: int = 1,
    carveout_kib: Any = None,
    virtual_resources: Any = 0,
    opt_in: bool = True,
    model: str = "hardware",
) -> Any:
    """Blocks and warps resident on one SM.

    With plain numbers: an `Occupancy`. With numpy arrays or lists for any of `threads`,
    `registers`, the bytes, `barriers`, `carveout_kib` or `virtual_resources`: an
    `OccupancyArrays` with the broadcast shape (hardware model only).

    arch: in any spelling (`"sm_90"`, `90`, `9.0`). threads: per block, or (x, y, z).
    registers: per thread, 0 to 255; None: registers set no limit. static_shared_bytes: without
    the architecture's reserve. barriers: named barriers of a block. cluster: blocks per cluster.
    carveout_kib: shared memory of the SM, rounded up to a size it has; None: the largest.
    opt_in: whether the host raises the dynamic limit above 48 KiB where needed.

    Legal values that don't fit give `active_blocks == 0`. Raises UsageError for illegal ones.
    """
    if model not in MODELS:
        raise UsageError(f"no model {model!r}", hint=f"one of: {', '.join(MODELS)}")
    values = {
        "threads": threads,
        "registers": registers,
        "static_shared_bytes": static_shared_bytes,
        "dynamic_shared_bytes": dynamic_shared_bytes,
        "barriers": barriers,
        "carveout_kib": carveout_kib,
        "virtual_resources": virtual_resources,
    }
    name = limits(arch).arch
    _check_cluster(limits(name), cluster)
    if any(_is_array(value) for value in values.values()):
        return _vectorised(name, values, cluster=cluster, opt_in=opt_in, model=model)
    if threads is None:
        raise UsageError("the block size is needed", hint="give threads=")
    launch = Launch(
        arch=name,
        threads=_block(threads).threads,
        registers=None if registers is None else _integer("registers", registers),
        static_shared_bytes=_integer("static_shared_bytes", static_shared_bytes),
        dynamic_shared_bytes=_integer("dynamic_shared_bytes", dynamic_shared_bytes),
        barriers=_integer("barriers", barriers),
        cluster=cluster,
        carveout_kib=None if carveout_kib is None else _integer("carveout_kib", carveout_kib),
        virtual_resources=_integer("virtual_resources", virtual_resources),
        opt_in=opt_in,
        model=model,
    )
    for field, (low, high) in legal_ranges(launch.sm).items():
        value = getattr(launch, field)
        if value is not None and not low <= value <= high:
            raise range_error(field, value, low, high)
    return resident(launch)


def resident(launch: Launch) -> Occupancy:
    """The occupancy of a checked launch."""
    bounds = _textbook_bounds(launch) if launch.model == "textbook" else _bounds(launch)
    warps = warps_per_block(launch.threads)
    blocks = least(bounds)
    if launch.model == "textbook":
        active_warps = _textbook_warps(launch)
        blocks = active_warps // warps
    else:
        active_warps = blocks * warps
    return Occupancy(
        launch=launch,
        active_blocks=blocks,
        active_warps=active_warps,
        limits=BlockLimits(**{name: _limit(getattr(bounds, name)) for name in RESOURCES}),
        limiters=tuple(name for name in RESOURCES if getattr(bounds, name) == least(bounds)),
        warps_per_block=warps,
        allocated_registers_per_block=bounds.allocated_registers_per_block,
        allocated_shared_bytes_per_block=bounds.allocated_shared_bytes_per_block,
    )


def legal_ranges(sm: SmLimits) -> dict[str, tuple[int, int]]:
    """The least and greatest legal value of each number in a request."""
    shared = sm.shared_bytes_per_sm
    return {
        "threads": (1, sm.max_threads_per_block),
        "registers": (0, sm.max_registers_per_thread),
        "static_shared_bytes": (0, shared),
        "dynamic_shared_bytes": (0, shared),
        "barriers": (0, sm.max_barriers_per_block),
        "carveout_kib": (0, shared // KIB),
        "virtual_resources": (0, UNLIMITED),
    }


def range_error(field: str, value: object, low: int, high: int) -> UsageError:
    """The error for a value outside its range."""
    label = field.replace("_", " ")
    top = "" if high == UNLIMITED else f" to {high}"
    return UsageError(f"{label} {value}: legal are {low}{top or ' and more'}", code="bad_value")


def carveout_kib_for(arch: str, percent: int) -> int:
    """The carve-out, in KiB, that a preferred share of shared memory in per cent selects.

    `percent` as in cudaFuncAttributePreferredSharedMemoryCarveout, 0 to 100; the driver takes the
    next size up. Raises UsageError outside that.
    """
    if not 0 <= percent <= 100:
        raise range_error("carveout_pct", percent, 0, 100)
    sm = limits(arch)
    wanted = percent * sm.shared_bytes_per_sm // 100
    return SCALAR.round_up_to(sm.carveouts_bytes, wanted) // KIB


def _bounds(launch: Launch) -> Bounds:
    return block_bounds(launch.sm, launch.demand())


def _textbook_warps(launch: Launch) -> int:
    sm = launch.sm
    warps = warps_per_block(launch.threads)
    candidates = [sm.max_warps_per_sm]
    if launch.registers:
        candidates.append(sm.registers_per_sm // registers_per_warp(launch.registers, sm))
    used = launch.static_shared_bytes + launch.dynamic_shared_bytes
    if used:
        candidates.append(launch.carveout_bytes // used * warps)
    return min(candidates)


def _textbook_bounds(launch: Launch) -> Bounds:
    sm = launch.sm
    warps = warps_per_block(launch.threads)
    per_warp = registers_per_warp(launch.registers or 0, sm)
    used = launch.static_shared_bytes + launch.dynamic_shared_bytes
    return Bounds(
        warps=sm.max_warps_per_sm // warps,
        blocks=UNLIMITED,
        registers=sm.registers_per_sm // per_warp // warps if per_warp else UNLIMITED,
        shared=launch.carveout_bytes // used if used else UNLIMITED,
        barriers=UNLIMITED,
        virtual_resources=UNLIMITED,
        allocated_registers_per_block=per_warp * warps,
        allocated_shared_bytes_per_block=round_up(used, 1),
    )


def _limit(bound: int) -> int | None:
    return None if bound >= UNLIMITED else bound


def _check_cluster(sm: SmLimits, cluster: int) -> None:
    size = _integer("cluster", cluster)
    if size > 1 and sm.max_cluster_blocks == 1:
        raise UsageError(f"a cluster of {size} blocks: {sm.arch} has no clusters", code="bad_value")
    if not 1 <= size <= sm.max_cluster_blocks:
        raise range_error("cluster", size, 1, sm.max_cluster_blocks)


def _is_array(value: Any) -> bool:
    return isinstance(value, (list, range)) or getattr(value, "ndim", 0) > 0


def _block(threads: Any) -> BlockShape:
    if isinstance(threads, tuple):
        sizes = cast("tuple[Any, ...]", threads)
        if not 1 <= len(sizes) <= 3:
            raise UsageError(f"{sizes!r} is no block size", hint="give N or (x, y, z)")
        return block_shape(*(_integer("threads", size) for size in sizes))
    return BlockShape(_integer("threads", threads))


def _integer(field: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise UsageError(f"{field} {value!r} is no whole number", code="bad_value") from error


def _vectorised(
    arch: str, values: dict[str, Any], *, cluster: int, opt_in: bool, model: str
) -> OccupancyArrays:
    from regdem.machine.vectors import occupancy_arrays

    if model != "hardware":
        raise UsageError("arrays are computed with the hardware model only")
    if isinstance(values["threads"], tuple):
        values["threads"] = _block(values["threads"]).threads
    return occupancy_arrays(arch, values, cluster=cluster, opt_in=opt_in, ops=ArrayOperations())
