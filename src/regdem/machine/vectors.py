"""Occupancy of many launches at once: the same formulas over numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regdem.errors import UsageError
from regdem.machine.capability import KIB, SmLimits, limits
from regdem.machine.formulas import (
    UNLIMITED,
    ArrayOperations,
    Demand,
    block_bounds,
    least,
    warps_per_block,
)
from regdem.machine.residency import RESOURCES, legal_ranges, range_error

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class OccupancyArrays:
    """Occupancy of launches on one architecture; every array has the broadcast shape.

    `limits` holds, per resource, the blocks per SM it would allow; `UNLIMITED` (2**31 - 1) where
    it sets no limit.
    """

    arch: str
    cluster: int
    max_warps: int
    active_blocks: Integers
    active_warps: Integers
    limits: dict[str, Integers]
    allocated_registers_per_block: Integers
    allocated_shared_bytes_per_block: Integers

    @property
    def occupancy_pct(self) -> NDArray[np.float64]:
        """Active warps over warp slots, in per cent."""
        return 100.0 * self.active_warps / self.max_warps

    @property
    def limiters(self) -> dict[str, NDArray[np.bool_]]:
        """Per resource, whether its bound is the least."""
        return {name: bound == self.active_blocks for name, bound in self.limits.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, keys as in the scalar result; unlimited bounds become None."""

        def plain(bound: Integers) -> list[int | None]:
            flat = bound.ravel().tolist()
            return [None if value >= UNLIMITED else int(value) for value in flat]

        return {
            "arch": self.arch,
            "cluster": self.cluster,
            "max_warps": self.max_warps,
            "shape": list(self.active_blocks.shape),
            "active_blocks": self.active_blocks.ravel().tolist(),
            "active_warps": self.active_warps.ravel().tolist(),
            "occupancy_pct": self.occupancy_pct.ravel().tolist(),
            "limits": {name: plain(bound) for name, bound in self.limits.items()},
        }

    def _repr_html_(self) -> str:
        least_pct, most_pct = (
            (float(self.occupancy_pct.min()), float(self.occupancy_pct.max()))
            if self.active_blocks.size
            else (0.0, 0.0)
        )
        return (
            f"<p>{self.active_blocks.size:,} launches on {self.arch}: occupancy "
            f"{least_pct:.1f} to {most_pct:.1f} %</p>"
        )


def occupancy_arrays(
    arch: str, values: dict[str, Any], *, cluster: int, opt_in: bool, ops: ArrayOperations
) -> OccupancyArrays:
    """The occupancy of each element of the broadcast arrays in `values`.

    Raises UsageError if an element is illegal, with its index, or if the shapes don't broadcast.
    """
    sm = limits(arch)
    ranges = legal_ranges(sm)
    # Without a leading zero, `registers` of None means that registers set no limit.
    arrays = {
        field: _checked(field, 0 if value is None else value, *ranges[field])
        for field, value in values.items()
    }
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError as error:
        raise UsageError(f"arrays that don't broadcast: {error}", code="bad_value") from error
    demand = Demand(
        threads=arrays["threads"],
        registers=arrays["registers"],
        static_shared_bytes=arrays["static_shared_bytes"],
        dynamic_shared_bytes=arrays["dynamic_shared_bytes"],
        barriers=arrays["barriers"],
        virtual_resources=arrays["virtual_resources"],
        carveout_bytes=_carveouts(sm, values["carveout_kib"], arrays["carveout_kib"], ops),
        opt_in=opt_in,
    )
    bounds = block_bounds(sm, demand, ops)
    blocks = np.broadcast_to(least(bounds, ops), shape)
    return OccupancyArrays(
        arch=arch,
        cluster=cluster,
        max_warps=sm.max_warps_per_sm,
        active_blocks=blocks,
        active_warps=blocks * warps_per_block(demand.threads),
        limits={name: np.broadcast_to(getattr(bounds, name), shape) for name in RESOURCES},
        allocated_registers_per_block=np.broadcast_to(bounds.allocated_registers_per_block, shape),
        allocated_shared_bytes_per_block=np.broadcast_to(
            bounds.allocated_shared_bytes_per_block, shape
        ),
    )


def _carveouts(sm: SmLimits, given: Any, array: Integers, ops: ArrayOperations) -> Any:
    if given is None:
        return np.int64(sm.shared_bytes_per_sm)
    return ops.round_up_to(sm.carveouts_bytes, array * KIB)


def _checked(field: str, value: Any, low: int, high: int) -> Integers:
    array = np.asarray(value)
    if array.size and array.dtype.kind not in "iu":
        raise UsageError(f"{field}: whole numbers are needed, not {array.dtype}", code="bad_value")
    wide = array.astype(np.int64)
    outside = (wide < low) | (wide > high)
    if outside.any():
        index = tuple(int(place) for place in np.argwhere(outside)[0])
        where = f" at index {index[0] if len(index) == 1 else index}" if index else ""
        raise range_error(field, f"{int(wide[index])}{where}", low, high)
    return wide
