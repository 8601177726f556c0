"""Limits of a streaming multiprocessor per compute capability, with the source of each value.

The values stand in `data/limits.toml`; this module only loads them. An architecture that is not
in the file is refused: nothing is guessed from a neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from regdem.errors import UsageError
from regdem.machine.arch import parse_arch

WARP_THREADS = 32
KIB = 1024


@dataclass(frozen=True)
class SmLimits:
    """What one SM holds. Names and units as in `data/limits.toml`; sizes there in KiB are bytes."""

    arch: str
    max_threads_per_sm: int
    max_threads_per_block: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    register_granule: int
    sub_partitions: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    shared_bytes_per_block_opt_in: int
    reserved_shared_bytes_per_block: int
    shared_granule_bytes: int
    carveouts_kib: tuple[int, ...]
    barriers_per_block_slot: int
    barriers_limit_residency: bool
    max_barriers_per_block: int
    virtual_resources_per_sm: int
    max_cluster_blocks: int
    fp32_per_fp64: int
    reference_device: str | None
    reference_sms: int | None

    @property
    def max_warps_per_sm(self) -> int:
        """Resident warps per SM."""
        return self.max_threads_per_sm // WARP_THREADS

    @property
    def registers_per_sub_partition(self) -> int:
        """The part of the register file one scheduler's warps share."""
        return self.registers_per_sm // self.sub_partitions

    @property
    def barriers_per_sm(self) -> int:
        """Named barriers that all resident blocks share."""
        return self.max_blocks_per_sm * self.barriers_per_block_slot

    @property
    def carveouts_bytes(self) -> tuple[int, ...]:
        """The sizes the shared memory of the SM can take, ascending."""
        return tuple(size * KIB for size in self.carveouts_kib)


@cache
def _data() -> dict[str, Any]:
    import tomllib

    text = resources.files("regdem.machine").joinpath("data/limits.toml").read_text("utf-8")
    return tomllib.loads(text)


def known_archs() -> tuple[str, ...]:
    """Every architecture with limits, oldest first."""
    return tuple(_data()["arch"])


@cache
def limits(arch: str) -> SmLimits:
    """The limits of an architecture, in any spelling of its name.

    Raises UsageError if the name is none, or not in the data.
    """
    name = parse_arch(arch)
    values = _data()["arch"].get(name)
    if values is None:
        raise UsageError(
            f"no limits are known for {name}",
            code="bad_arch",
            hint=f"one of: {', '.join(known_archs())}",
        )
    merged = {"reference_device": None, "reference_sms": None} | _data()["common"] | values
    merged.pop("sources", None)
    for key in [key for key in merged if "_kib_" in key]:
        merged[key.replace("_kib_", "_bytes_")] = merged.pop(key) * KIB
    merged["carveouts_kib"] = tuple(merged["carveouts_kib"])
    return SmLimits(arch=name, **merged)


def sources(arch: str, field: str) -> tuple[str, ...]:
    """Where the value of a field comes from, as full references.

    `field` is an attribute of `SmLimits`. Raises UsageError if there is no such field.
    """
    data = _data()
    key = field.replace("_bytes_", "_kib_") if field.startswith("shared_bytes_") else field
    if key not in data["field"]:
        raise UsageError(f"no limit is called {field!r}", hint=", ".join(data["field"]))
    special = data["arch"][limits(arch).arch].get("sources", {})
    return tuple(data["source"][name] for name in special.get(key, data["field"][key]["source"]))


def assumed(name: str) -> tuple[int, str]:
    """A value that is assumed for every architecture, and where it comes from."""
    entry = _data()["assumed"][name]
    return entry["value"], entry["source"]
