"""The variants that are measured: how a cubin is built, and what is then done to it.

The list is data: a new lever is a new line here, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verb = Literal["demote", "promote", "optimize"]


@dataclass(frozen=True)
class Build:
    """A compilation: nvcc's defaults, a register cap, NVIDIA's shared-memory spilling pragma."""

    cap: int | None = None
    pragma: bool = False

    @property
    def name(self) -> str:
        if self.cap is None:
            return "pragma" if self.pragma else "default"
        return f"{'pragma' if self.pragma else 'cap'}_{self.cap}"


@dataclass(frozen=True)
class Rewrite:
    """A `regdem` verb applied to a build."""

    verb: Verb
    registers: int | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Variant:
    """`name` is unique within a kernel; `family` groups variants in the tables.

    Families: "default"; "nvidia" (compiler levers, need source or PTX); "binary" (ours, on the
    default build: needs no source); "ours" (ours on any build).
    """

    name: str
    family: Literal["default", "nvidia", "binary", "ours"]
    build: Build
    rewrite: Rewrite | None = None


DEFAULT = Variant("default", "default", Build())


def _nvidia(build: Build) -> Variant:
    return Variant(build.name, "nvidia", build)


def ten_variants(cliffs: list[int]) -> list[Variant]:
    """Default, and per target: capped, capped with the pragma, ours."""
    variants = [DEFAULT]
    for target in cliffs[:2]:
        variants += [
            _nvidia(Build(target)),
            _nvidia(Build(target, pragma=True)),
            Variant(f"demote_{target}", "binary", Build(), Rewrite("demote", target)),
        ]
    return variants


def suite_variants(cliffs: list[int], *, spills: bool) -> list[Variant]:
    """NVIDIA's levers and ours at the next three cliffs, and the blind choices."""
    variants = [
        DEFAULT,
        _nvidia(Build(255)),
        _nvidia(Build(pragma=True)),
        Variant("optimize", "binary", Build(), Rewrite("optimize")),
    ]
    if spills:
        variants.append(Variant("promote", "binary", Build(), Rewrite("promote")))
    for rank, target in enumerate(cliffs[:3]):
        variants += [
            _nvidia(Build(target)),
            _nvidia(Build(target, pragma=True)),
            Variant(f"demote_{target}", "binary", Build(), Rewrite("demote", target)),
            Variant(f"promote_{target}", "ours", Build(target), Rewrite("promote")),
        ]
        if rank < 2:
            variants.append(
                Variant(f"demote_{target}_of_255", "ours", Build(255), Rewrite("demote", target))
            )
        if rank == 0:
            variants += [
                Variant(
                    f"paper_{order}_{target}",
                    "binary",
                    Build(),
                    Rewrite("demote", target, ("--candidates", order)),
                )
                for order in ("static", "cfg", "conflict")
            ]
    return variants
