"""Where memory accesses end: what the code does not say, as a set of assumptions.

A prediction is made under each. Three of them (`TYPICAL`, `CACHED`, `STREAMING`) are averaged for
the answer; the fourth (`CROWDED`) only widens the interval: loaded addresses find their data in L1
because few warps share it, so that every additional warp pushes some of it out. It is what made
more warps slower by half on kernels that gather, and it can't be told from code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Locality:
    """`l1`: share of sectors touched for the first time by a warp that are in L1 all the same.
    `dram`: share of what misses L1 that goes on to DRAM. `gather`: sectors of a gather, relative to
    lanes half a sector apart. `crowd_bytes`: L1 bytes per warp below which gathers, and the stacks
    of recursions, lose their hits, with the square of what is missing; 0 for never. `array`: share
    of arrays in local memory that are indexed at run time which is in use: of a stack little may
    be, all of a table."""

    name: str
    l1: float
    dram: float
    gather: float
    crowd_bytes: int = 0
    array: float = 1.0


TYPICAL = Locality("typical", l1=0.45, dram=0.40, gather=1.0)
CACHED = Locality("cached", l1=0.85, dram=0.10, gather=0.5, array=0.0)
STREAMING = Locality("streaming", l1=0.05, dram=0.80, gather=1.5)
CROWDED = Locality("crowded", l1=0.85, dram=0.10, gather=1.0, crowd_bytes=12288, array=0.0)
AVERAGED = (TYPICAL, CACHED, STREAMING)
SCENARIOS = (*AVERAGED, CROWDED)
