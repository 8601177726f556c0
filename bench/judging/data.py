"""Measured builds with what the predictor needs to know of them.

A features file holds, for every timed build, the summary of its code (`regdem.predict.summary`),
its launch and its time, so that judging and fitting need neither the cubins nor a GPU. It is made
from measured sessions (`bench.run`: a database and the folder of its cubins); a build whose cubin
is not the one that was timed (by SHA-256) is left out, and so is one whose outputs differ from the
input's. Builds that were withdrawn for what the proof did not cover stay: they were timed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regdem.binary import Cubin, Kernel
from regdem.errors import UsageError
from regdem.machine import Occupancy, occupancy
from regdem.predict.profile import read_profile
from regdem.predict.summary import Summary, from_json, summarise, to_json

SAME_CODE = "throttle"
"""The session of inputs that only declare more registers, so that fewer warps are resident: for the
fit, and in a row of their own."""
_QUERY = """
select t.kernel, t.variant, avg(t.median_ms), k.block, k.dynamic_shared_bytes, v.family, v.sha256
from timing t
join kernel k on k.run = t.run and k.name = t.kernel
join variant v on v.run = t.run and v.kernel = t.kernel and v.name = t.variant
where t.run = (select max(id) from run) and not exists (
  select * from equality e where e.run = t.run and e.kernel = t.kernel and e.variant = t.variant
  and e.identical = 0)
group by t.kernel, t.variant order by t.kernel, t.variant
"""

_COUNTERS = """
select kernel, metric, value from counter
where variant = 'default' and run = (select max(id) from run)
"""


_FROM_INPUT = re.compile(r"renumber|schedule(_\d+)?|(demote|promote|recover)(_\d+)?_scheduled")
"""Withdrawn builds that were made from the input."""
_SAME_CODE = re.compile(r"default|throttle_\d+")


@dataclass(frozen=True)
class Build:
    """One timed build. `session`: where it was timed. `family`: "default" is what the optimiser
    gets; "binary" was made from it; the rest from other builds. `launch`: keywords of `occupancy`.
    """

    session: str
    kernel: str
    variant: str
    family: str
    milliseconds: float
    grid_blocks: int
    launch: dict[str, int]
    summary: Summary
    profile: dict[str, float] | None = None
    """What was measured of it by hardware counters, if it was; fields of `Profile`."""

    @property
    def is_default(self) -> bool:
        """The input of the optimiser."""
        return self.variant == "default"

    @property
    def is_binary(self) -> bool:
        """Whether it needs nothing but the input."""
        return self.family in ("default", "binary") or (
            self.family == "withdrawn" and _FROM_INPUT.fullmatch(self.variant) is not None
        )

    @property
    def is_order(self) -> bool:
        """Whether only registers and the order of instructions are new."""
        return self.variant in ("schedule", "renumber")

    @cached_property
    def residency(self) -> Occupancy:
        """What stays resident of it."""
        launch = self.launch
        return occupancy(
            self.summary.arch,
            launch["threads"],
            launch["registers"],
            static_shared_bytes=launch["static_shared_bytes"],
            dynamic_shared_bytes=launch["dynamic_shared_bytes"],
            barriers=launch["barriers"],
        )


@dataclass(frozen=True)
class Group:
    """All timed builds of one kernel in one session; the input first."""

    session: str
    kernel: str
    builds: tuple[Build, ...]

    @property
    def name(self) -> str:
        """For a row of a table."""
        return f"{self.kernel} ({self.session})"

    @property
    def is_same_code(self) -> bool:
        """Whether the builds differ in their residency only."""
        return self.session == SAME_CODE

    def part(self, builds: Iterable[Build]) -> Group:
        """Some of its builds."""
        return Group(self.session, self.kernel, tuple(builds))


def measured(results: Path, folder: Path, session: str, grids: dict[str, int]) -> list[Build]:
    """The timed builds of a session whose cubins are in `folder`; `grids`: blocks by kernel."""
    with sqlite3.connect(f"file:{results}?mode=ro", uri=True) as store:
        rows = store.execute(_QUERY).fetchall()
        counters = store.execute(_COUNTERS).fetchall()
    profiles = _profiles(counters)
    found: list[Build] = []
    for name, variant, milliseconds, block, dynamic, family, digest in rows:
        path = folder / f"{name}.{variant}.cubin"
        is_other = session == SAME_CODE and _SAME_CODE.fullmatch(variant) is None
        if is_other or not path.exists():
            continue
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            continue
        kernel = Cubin.parse(data, path.name).kernels[0]
        launch = _launch(kernel, math.prod(json.loads(block)), int(dynamic))
        found.append(
            Build(
                session, name, variant, family, float(milliseconds), grids[name], launch,
                summarise(kernel), profiles.get(name) if variant == "default" else None,
            )
        )  # fmt: skip
    return found


def _profiles(counters: Sequence[tuple[str, str, str]]) -> dict[str, dict[str, float]]:
    """Profiles by kernel from (kernel, metric, value) of the default builds."""
    metrics: dict[str, dict[str, str]] = {}
    for kernel, metric, value in counters:
        metrics.setdefault(kernel, {})[metric] = value
    found: dict[str, dict[str, float]] = {}
    for kernel, known in metrics.items():
        try:
            found[kernel] = read_profile(json.dumps(known)).to_dict()
        except UsageError:
            continue
    return found


def _launch(kernel: Kernel, threads: int, dynamic: int) -> dict[str, int]:
    return {
        "threads": threads,
        "registers": kernel.registers_per_thread,
        "static_shared_bytes": kernel.static_shared_bytes,
        "dynamic_shared_bytes": dynamic,
        "barriers": kernel.barriers,
    }


def grids_of(names: Iterable[str]) -> dict[str, int]:
    """Blocks of the measured launch of each kernel."""
    from bench.suite.kernels import find_spec

    return {name: math.prod(find_spec(name).make(0, False).grid) for name in names}


def kernels_in(results: Path) -> list[str]:
    """Names of the kernels of a database's last run."""
    with sqlite3.connect(f"file:{results}?mode=ro", uri=True) as store:
        rows = store.execute("select name from kernel where run = (select max(id) from run)")
        return [name for (name,) in rows]


def grouped(builds: Sequence[Build]) -> list[Group]:
    """By kernel and session; kernels with the input and at least one other build."""
    found: dict[tuple[str, str], list[Build]] = {}
    for build in builds:
        found.setdefault((build.session, build.kernel), []).append(build)
    groups: list[Group] = []
    for (session, kernel), some in found.items():
        some.sort(key=lambda build: (not build.is_default, build.variant))
        if some[0].is_default and len(some) > 1:
            groups.append(Group(session, kernel, tuple(some)))
    return groups


def save(builds: Sequence[Build], path: Path) -> None:
    """Writes a features file (gzipped JSON, the same bytes for the same builds)."""
    rows = [{**vars(build), "summary": _rounded(to_json(build.summary))} for build in builds]
    for row in rows:
        row.pop("residency", None)
    text = json.dumps(rows, separators=(",", ":"), sort_keys=True)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(text.encode())


def load(path: Path) -> list[Build]:
    """Reads a features file."""
    rows: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))
    for row in rows:
        row["summary"] = from_json(row["summary"])
    return [Build(**row) for row in rows]


def _rounded(data: Any) -> Any:
    """Numbers with the digits that matter."""
    if isinstance(data, float):
        return round(data, 2)
    if isinstance(data, dict):
        return {key: _rounded(each) for key, each in data.items()}  # pyright: ignore
    if isinstance(data, list | tuple):
        return [_rounded(each) for each in data]  # pyright: ignore
    return data
