"""Compares regdem's occupancy with the vendor's `cuda_occupancy.h`, launch by launch.

What is compared, for each launch: resident blocks; the bound of each resource (warp slots, block
slots, registers, shared memory, named barriers, virtual resources); registers and shared bytes
given to a block; and which resources limit. What the header takes as given (threads and shared
memory per SM, the opt-in limit, the reserve) is passed to it from regdem's data and is therefore
not checked by it; block slots, granules, carve-out sizes, sub-partitions, barrier pools and
virtual resources are the header's own.

The header names a limiting resource before it looks at barriers and leaves the name standing
when barriers then allow fewer; limiters are compared as the header means them.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regdem import occupancy
from regdem.integrations.toolkit import find_header
from regdem.machine import carveout_kib_for, compute_capability, known_archs, limits
from regdem.machine.vectors import OccupancyArrays

HARNESS = Path(__file__).with_name("occupancy_harness.cpp")

INPUTS = (
    "major",
    "minor",
    "threads_per_sm",
    "shared_per_sm",
    "shared_opt_in",
    "shared_reserved",
    "threads",
    "registers",
    "static_shared_bytes",
    "dynamic_shared_bytes",
    "barriers",
    "virtual_resources",
    "carveout_pct",
    "opt_in",
)
OUTPUTS = (
    "status",
    "active_blocks",
    "limiting_factors",
    "warps",
    "blocks",
    "registers",
    "shared",
    "barriers",
    "virtual_resources",
    "allocated_registers_per_block",
    "allocated_shared_bytes_per_block",
)
BOUNDS = ("warps", "blocks", "registers", "shared", "barriers", "virtual_resources")
FACTOR_BITS = {
    "warps": 0x01,
    "registers": 0x02,
    "shared": 0x04,
    "blocks": 0x08,
    "barriers": 0x10,
    "virtual_resources": 0x20,
}

Table = NDArray[np.int32]


@dataclass(frozen=True)
class Mismatch:
    """A launch on which the two differ: what, regdem's value, the header's."""

    arch: str
    what: str
    ours: int
    theirs: int
    launch: dict[str, int]


def missing_for_oracle() -> str | None:
    """Why the header can't be asked here, or None."""
    if find_header("cuda_occupancy.h") is None:
        return "cuda_occupancy.h was not found (CUDA_HOME, nvcc on PATH, wheels)"
    if _compiler() is None:
        return "no C++ compiler was found"
    return None


def build_harness(folder: Path) -> Path:
    """Compile the harness against the header found here."""
    header = find_header("cuda_occupancy.h")
    compiler = _compiler()
    assert header is not None
    assert compiler is not None
    program = folder / "occupancy_harness"
    subprocess.run(
        [compiler, "-O1", "-w", "-I", str(header.parent), str(HARNESS), "-o", str(program)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return program


def ask_header(program: Path, table: Table) -> Table:
    """The header's answers: (n, len(OUTPUTS))."""
    done = subprocess.run(
        [str(program)], input=table.tobytes(), capture_output=True, check=True, timeout=120
    )
    return np.frombuffer(done.stdout, np.int32).reshape(-1, len(OUTPUTS))


def ask_regdem(arch: str, table: Table, *, opt_in: bool) -> OccupancyArrays:
    """regdem's answers to rows of one architecture and one opt-in setting."""
    column = {name: table[:, position] for position, name in enumerate(INPUTS)}
    # -1, the driver's default, is the largest carve-out.
    sizes = [carveout_kib_for(arch, percent) for percent in range(101)]
    largest = limits(arch).carveouts_kib[-1]
    carveouts = np.asarray([*sizes, largest])[column["carveout_pct"]]
    return occupancy(
        arch,
        column["threads"],
        column["registers"],
        static_shared_bytes=column["static_shared_bytes"],
        dynamic_shared_bytes=column["dynamic_shared_bytes"],
        barriers=column["barriers"],
        virtual_resources=column["virtual_resources"],
        carveout_kib=carveouts,
        opt_in=opt_in,
    )


def compare(table: Table, answers: Table) -> list[Mismatch]:
    """Every difference, at most ten per architecture and quantity."""
    found: list[Mismatch] = []
    theirs = {name: answers[:, position] for position, name in enumerate(OUTPUTS)}
    assert not theirs["status"].any(), "the header refused a launch"
    for arch in known_archs():
        major, minor = compute_capability(arch)
        for opt_in in (False, True):
            chosen = (
                (table[:, 0] == major)
                & (table[:, 1] == minor)
                & (table[:, INPUTS.index("opt_in")] == int(opt_in))
            )
            if not chosen.any():
                continue
            rows = table[chosen]
            ours = ask_regdem(arch, rows, opt_in=opt_in)
            for what, values in _quantities(ours).items():
                expected = theirs[what][chosen]
                for row in np.flatnonzero(values != expected)[:10]:
                    launch = {name: int(rows[row, at]) for at, name in enumerate(INPUTS)}
                    found.append(Mismatch(arch, what, int(values[row]), int(expected[row]), launch))
    return found


def _quantities(ours: OccupancyArrays) -> dict[str, NDArray[Any]]:
    values: dict[str, NDArray[Any]] = {
        "active_blocks": ours.active_blocks,
        "allocated_registers_per_block": ours.allocated_registers_per_block,
        "allocated_shared_bytes_per_block": ours.allocated_shared_bytes_per_block,
        "limiting_factors": _header_factors(ours),
    }
    return values | {name: ours.limits[name] for name in BOUNDS}


def _header_factors(ours: OccupancyArrays) -> NDArray[Any]:
    before = np.minimum.reduce([ours.limits[name] for name in BOUNDS if name != "barriers"])
    factors = np.zeros(before.shape, np.int64)
    for name, bit in FACTOR_BITS.items():
        reference = ours.active_blocks if name == "barriers" else before
        factors |= np.where(ours.limits[name] == reference, bit, 0)
    return factors


def launches(arch: str, count: int, seed: int) -> Table:
    """`count` launches on one architecture: half at random, half around the edges."""
    generator = np.random.default_rng([seed, int(arch[3:])])
    sm = limits(arch)
    major, minor = compute_capability(arch)
    edge = generator.random(count) < 0.5

    def pick(low: int, high: int, edges: list[int]) -> NDArray[np.int64]:
        legal = np.asarray(sorted({value for value in edges if low <= value <= high}))
        return np.where(
            edge & (generator.random(count) < 0.8),
            generator.choice(legal, count),
            generator.integers(low, high + 1, count),
        )

    around = (-1, 0, 1)
    shared = sm.shared_bytes_per_sm
    reserved = sm.reserved_shared_bytes_per_block
    sizes = [
        size // blocks - reserved + offset
        for size in (*sm.carveouts_bytes, sm.shared_bytes_per_block)
        for blocks in range(1, sm.max_blocks_per_sm + 1)
        for offset in (-sm.shared_granule_bytes, *around, sm.shared_granule_bytes)
    ]
    sizes += [
        bound + offset
        for bound in (0, sm.shared_bytes_per_block, sm.shared_bytes_per_block_opt_in, shared)
        for offset in (-reserved, *around, reserved)
    ]
    total = pick(0, shared, sizes)
    static = np.minimum(
        total, np.where(generator.random(count) < 0.5, generator.integers(0, total + 1), total)
    )
    columns = {
        "major": major,
        "minor": minor,
        "threads_per_sm": sm.max_threads_per_sm,
        "shared_per_sm": shared,
        "shared_opt_in": sm.shared_bytes_per_block_opt_in,
        "shared_reserved": reserved,
        "threads": pick(1, 1024, [32 * warps + off for warps in range(33) for off in around]),
        "registers": pick(0, 255, [8 * unit + off for unit in range(33) for off in around]),
        "static_shared_bytes": static,
        "dynamic_shared_bytes": total - static,
        "barriers": pick(0, sm.max_barriers_per_block, [0, 1, 2, 16]),
        "virtual_resources": np.where(
            generator.random(count) < 0.7, 0, pick(0, 140, [0, 1, 127, 128, 129])
        ),
        "carveout_pct": np.where(
            generator.random(count) < 0.4, -1, generator.integers(0, 101, count)
        ),
        "opt_in": generator.random(count) < 0.8,
    }
    stacked = [np.broadcast_to(columns[name], count) for name in INPUTS]
    return np.ascontiguousarray(np.stack(stacked, axis=1), np.int32)


def all_launches(count_per_arch: int, seed: int = 20190703) -> Table:
    """The launches of every architecture, one after the other."""
    return np.concatenate([launches(arch, count_per_arch, seed) for arch in known_archs()])


def _compiler() -> str | None:
    return shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
