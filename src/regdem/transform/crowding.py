"""How crowded the registers are at each instruction, and where no colouring can exist.

Colouring is dear, and most choices that fail do so because registers are plainly missing somewhere.

Method: sets of points are Python ints; how many of them each point is a member of is counted in bit
planes with carry, so that a program of thousands of live ranges takes milliseconds. The bound
counts aligned pairs of registers: what is occupied as a pair, and single values in what is left.

Invariant: where `shortfall` is above 0, no colouring within the limit exists. Not claimed: that one
exists where it is 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.webs import STACK_POINTER, Webs


def shortfall(webs: Webs, limit: int, instructions: int) -> NDArray[np.int32]:
    """(n,) registers that are certainly missing at each instruction, 0 where all may fit.

    Registers come in aligned pairs. A pair is occupied as a whole by the two halves of an aligned
    tuple, even where one half is dead; the dead half can hold a single value. The stack pointer
    occupies a pair, and its other half can.
    """
    n = 2 * instructions
    singles: list[int] = []
    pairs: list[int] = []
    halves: list[int] = []
    for group in webs.groups:
        by_pair: dict[int, dict[int, int]] = {}
        for name in group.webs:
            web = webs.webs[name]
            pair = by_pair.setdefault(web.register // 2, {})
            pair[web.register] = pair.get(web.register, 0) | web.points
        for pair in by_pair.values():
            if STACK_POINTER in pair:
                continue
            if group.alignment == 1:
                singles.extend(pair.values())
                continue
            both, odd = 0, 0
            for points in pair.values():
                both |= points
                odd ^= points
            pairs.append(both)
            halves.append(odd)
    occupied, half = _count(pairs, n), _count(halves, n)
    alone = _count(singles, n)
    spare = half + 1 + limit % 2
    needed = occupied + (np.maximum(alone - spare, 0) + 1) // 2
    missing = np.maximum(2 * (needed - (limit // 2 - 1)), 2 * occupied - half + alone + 1 - limit)
    return np.maximum(missing.reshape(-1, 2).max(axis=1), 0).astype(np.int32)


def occupancy(masks: Iterable[int], instructions: int) -> NDArray[np.int32]:
    """(n,) of how many sets of points each instruction's fuller point is a member."""
    at_points = _count(masks, 2 * instructions)
    return at_points.reshape(-1, 2).max(axis=1)


def _count(masks: Iterable[int], n: int) -> NDArray[np.int32]:
    """(n,) in how many of the masks each bit is set; counted in bit planes with carry."""
    planes: list[int] = []
    for mask in masks:
        carry, k = mask, 0
        while carry:
            if k == len(planes):
                planes.append(0)
            planes[k], carry = planes[k] ^ carry, planes[k] & carry
            k += 1
    total = np.zeros(n, dtype=np.int32)
    for k, plane in enumerate(planes):
        data = np.frombuffer(plane.to_bytes((n + 7) // 8, "little"), dtype=np.uint8)
        total += np.unpackbits(data, bitorder="little")[:n].astype(np.int32) << k
    return total
