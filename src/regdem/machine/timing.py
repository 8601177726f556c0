"""Latencies and rates of an SM, with the source of each value (`data/timing.toml`).

Only `sm_90` is measured. Other architectures have documented values where there are any, each with
its source, and take the rest, all latencies among it, from `sm_90`: `Timing.borrowed` says so.
Relative order of variants of one kernel rests on the ratios more than on the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_REFERENCE = "sm_90"


@dataclass(frozen=True)
class Timing:
    """`latency`: cycles by level or class; `rate`: warp instructions per cycle and SM by pipe;
    `model`: constants of the predictor that no measurement of one thing gives, fitted."""

    arch: str
    latency: Mapping[str, float]
    rate: Mapping[str, float]
    l1_and_shared_bytes: int
    l2_bytes: int
    l2_bytes_per_cycle: float
    dram_bytes_per_cycle: float
    borrowed: bool
    model: Mapping[str, float]


@cache
def _data() -> dict[str, Any]:
    import tomllib

    text = resources.files("regdem.machine").joinpath("data/timing.toml").read_text("utf-8")
    return tomllib.loads(text)


def _values(name: str) -> dict[str, dict[str, Any]]:
    """The values of an architecture by group, those of the reference where it has none."""
    known = _data()["arch"]
    own = known.get(name, {})
    return {group: {**each, **own.get(group, {})} for group, each in known[_REFERENCE].items()}


@cache
def timing(arch: str) -> Timing:
    """The timing of an architecture (`sm_90`, also with a suffix)."""
    name = arch.rstrip("af")
    values = _values(name)
    memory = values["memory"]
    return Timing(
        arch=name,
        latency={key: float(entry["cycles"]) for key, entry in values["latency"].items()},
        rate={key: float(entry["per_cycle"]) for key, entry in values["rate"].items()},
        l1_and_shared_bytes=int(memory["l1_and_shared_bytes"]["value"]),
        l2_bytes=int(memory["l2_bytes"]["value"]),
        l2_bytes_per_cycle=float(memory["l2_bytes_per_cycle"]["value"]),
        dram_bytes_per_cycle=float(memory["dram_bytes_per_cycle"]["value"]),
        borrowed=name != _REFERENCE,
        model={key: float(entry["value"]) for key, entry in values["model"].items()},
    )


def timing_source(arch: str, group: str, name: str) -> str:
    """Where a value comes from, as a full reference. `group`: latency, rate or memory."""
    entry = _values(arch.rstrip("af"))[group][name]
    return str(_data()["source"][entry["source"]])
