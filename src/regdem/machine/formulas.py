"""How many blocks each resource of an SM allows: the formulas of the vendor's calculator.

Problem: registers, warp slots, block slots, shared memory, named barriers and virtual resources
each bound the resident blocks; the least bound is the occupancy.

Method: the formulas of `cuda_occupancy.h`, written once over operations (`minimum`, `where`,
`round_up_to`) that exist for plain integers and for numpy arrays, so that the scalar and the
vectorised answer can't drift apart. A warp's registers come in units of the granule and out of
one sub-partition; a block is held against the per-block limit as if it used every sub-partition.

Invariants: inputs are checked by the caller (`residency`); every bound is at least 0, and
`UNLIMITED` where a resource is not used.

Not claimed: the share of shared memory that the driver really configures when no carve-out is
asked for. Like the vendor's calculator, the default is the largest.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Protocol

from regdem.machine.capability import WARP_THREADS, SmLimits

UNLIMITED = 2**31 - 1
"""The bound of a resource that is not used (INT_MAX, as the vendor's calculator writes it)."""

Number = Any
"""An int or an integer array; arrays broadcast against each other."""


class Operations(Protocol):
    """What the formulas need beyond arithmetic."""

    def minimum(self, *values: Number) -> Number:
        """The least, element by element."""
        ...

    def maximum(self, left: Number, right: Number) -> Number:
        """The greater, element by element."""
        ...

    def where(self, condition: Number, if_true: Number, if_false: Number) -> Number:
        """A choice, element by element; both sides are evaluated."""
        ...

    def round_up_to(self, sizes: tuple[int, ...], value: Number) -> Number:
        """The first of the ascending sizes that is no less than the value, else the last."""
        ...


class ScalarOperations:
    """The operations on Python integers."""

    def minimum(self, *values: Number) -> Number:
        return min(values)

    def maximum(self, left: Number, right: Number) -> Number:
        return max(left, right)

    def where(self, condition: Number, if_true: Number, if_false: Number) -> Number:
        return if_true if condition else if_false

    def round_up_to(self, sizes: tuple[int, ...], value: Number) -> Number:
        return sizes[min(bisect_left(sizes, value), len(sizes) - 1)]


class ArrayOperations:
    """The operations on numpy arrays."""

    def __init__(self) -> None:
        import numpy

        self.numpy: Any = numpy

    def minimum(self, *values: Number) -> Number:
        least = values[0]
        for value in values[1:]:
            least = self.numpy.minimum(least, value)
        return least

    def maximum(self, left: Number, right: Number) -> Number:
        return self.numpy.maximum(left, right)

    def where(self, condition: Number, if_true: Number, if_false: Number) -> Number:
        return self.numpy.where(condition, if_true, if_false)

    def round_up_to(self, sizes: tuple[int, ...], value: Number) -> Number:
        steps = self.numpy.asarray(sizes)
        return steps[self.numpy.minimum(self.numpy.searchsorted(steps, value), len(sizes) - 1)]


SCALAR = ScalarOperations()


@dataclass(frozen=True)
class Demand:
    """What a launch asks of an SM; each an int or an array. `registers` 0 stands for none.

    `carveout_bytes` is the shared memory the SM is configured with (one of its sizes).
    """

    threads: Number
    registers: Number
    static_shared_bytes: Number
    dynamic_shared_bytes: Number
    barriers: Number
    virtual_resources: Number
    carveout_bytes: Number
    opt_in: bool = True


@dataclass(frozen=True)
class Bounds:
    """Blocks each resource allows, and what a block is given."""

    warps: Number
    blocks: Number
    registers: Number
    shared: Number
    barriers: Number
    virtual_resources: Number
    allocated_registers_per_block: Number
    allocated_shared_bytes_per_block: Number


def round_up(value: Number, unit: int) -> Number:
    """The least multiple of `unit` that is no less than `value`."""
    return -(-value // unit) * unit


def warps_per_block(threads: Number) -> Number:
    """Warps of a block; the last may be partly empty."""
    return -(-threads // WARP_THREADS)


def registers_per_warp(registers: Number, sm: SmLimits) -> Number:
    """Registers a warp is given for a count per thread."""
    return round_up(registers * WARP_THREADS, sm.register_granule)


def block_bounds(sm: SmLimits, demand: Demand, ops: Operations = SCALAR) -> Bounds:
    """The bounds of every resource."""
    warps = warps_per_block(demand.threads)
    per_warp = registers_per_warp(demand.registers, sm)
    shared, allocated_shared = _shared_bound(sm, demand, ops)
    return Bounds(
        warps=sm.max_warps_per_sm // warps,
        blocks=sm.max_blocks_per_sm,
        registers=_register_bound(sm, per_warp, warps, ops),
        shared=shared,
        barriers=_pool_bound(
            sm.barriers_per_sm if sm.barriers_limit_residency else 0, demand.barriers, ops
        ),
        virtual_resources=_pool_bound(sm.virtual_resources_per_sm, demand.virtual_resources, ops),
        allocated_registers_per_block=per_warp * warps,
        allocated_shared_bytes_per_block=allocated_shared,
    )


def least(bounds: Bounds, ops: Operations = SCALAR) -> Number:
    """Resident blocks: the least of the bounds."""
    return ops.minimum(
        bounds.warps,
        bounds.blocks,
        bounds.registers,
        bounds.shared,
        bounds.barriers,
        bounds.virtual_resources,
    )


def _register_bound(sm: SmLimits, per_warp: Number, warps: Number, ops: Operations) -> Number:
    in_partition = sm.registers_per_sub_partition // ops.maximum(per_warp, 1)
    resident = in_partition * sm.sub_partitions // warps
    assumed = per_warp * round_up(warps, sm.sub_partitions)
    fitting = ops.where(assumed <= sm.registers_per_block, resident, 0)
    return ops.where(per_warp > 0, fitting, UNLIMITED)


def _shared_bound(sm: SmLimits, demand: Demand, ops: Operations) -> tuple[Number, Number]:
    reserved = sm.reserved_shared_bytes_per_block
    used = demand.static_shared_bytes + demand.dynamic_shared_bytes + reserved
    allocated = round_up(used, sm.shared_granule_bytes)
    largest = sm.shared_bytes_per_block_opt_in if demand.opt_in else sm.shared_bytes_per_block
    # A carve-out too small for one block is raised to the first that holds it.
    capacity = ops.where(
        demand.carveout_bytes >= allocated,
        demand.carveout_bytes,
        ops.round_up_to(sm.carveouts_bytes, allocated),
    )
    resident = ops.where(allocated <= largest + reserved, capacity // ops.maximum(allocated, 1), 0)
    return ops.where(allocated > 0, resident, UNLIMITED), allocated


def _pool_bound(pool: int, used: Number, ops: Operations) -> Number:
    if pool == 0:
        return UNLIMITED
    return ops.where(used > 0, pool // ops.maximum(used, 1), UNLIMITED)
