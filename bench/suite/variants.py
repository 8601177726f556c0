"""The variants that are measured: how a cubin is built, and what is then done to it.

The list is data: a new lever is a new line here, nothing else. A rewrite of a build other than the
default is called `BUILD+REWRITE`; a rewrite of the default has no prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from regdem.bases import ALL_FRONTS, COMPARED_FRONTS, FRONTS

Verb = Literal["demote", "promote", "optimize"]
Family = Literal["default", "nvidia", "front", "binary", "ours", "blind"]


@dataclass(frozen=True)
class Build:
    """A compilation: nvcc's defaults, a register cap, NVIDIA's shared-memory spilling pragma.

    `front`: further options of the front end, a key of `regdem.bases.ALL_FRONTS`.
    """

    cap: int | None = None
    pragma: bool = False
    front: str = ""

    @property
    def name(self) -> str:
        """As `regdem optimize` calls it."""
        limit = "" if self.cap is None else f"_{self.cap}"
        how = "pragma" if self.pragma else "cap" if limit else ""
        words = [word for word in (self.front, how + limit) if word]
        return "_".join(words) or "default"

    @property
    def front_options(self) -> tuple[str, ...]:
        return ALL_FRONTS[self.front] if self.front else ()


@dataclass(frozen=True)
class Rewrite:
    """A `regdem` verb applied to a build, or to the source itself."""

    verb: Verb
    registers: int | None = None
    options: tuple[str, ...] = ()
    from_source: bool = False


@dataclass(frozen=True)
class Variant:
    """`name` is unique within a kernel; `family` groups variants in the tables.

    Families: "default"; "nvidia" (compiler levers, need source or PTX); "front" (the compiler with
    the undocumented options that `optimize` tries beside them); "binary" (ours, on the default
    build: needs no source); "ours" (ours on any build); "blind" (what `optimize` chose from the
    source: a build of the compiler or a rewrite of one).
    """

    name: str
    family: Family
    build: Build
    rewrite: Rewrite | None = None


@dataclass(frozen=True)
class Facts:
    """What the plan for a kernel is made from.

    `below`: register counts under the default's at which a block more fits, highest first; `above`:
    such boundaries from the count of the build with cap 255 down to the default's own.
    `spills`: whether the default build spills. `own`: its registers, 0 if they are not known;
    `room`: the most registers at which as many blocks fit; `wider`: at which one less does, two...
    """

    below: Sequence[int]
    above: Sequence[int] = ()
    spills: bool = False
    own: int = 0
    room: int = 0
    wider: Sequence[int] = ()


def front_of(name: str) -> str:
    """The front that a variant's build has; "" for the compiler's own."""
    build = name.partition("+")[0]
    return max(
        (front for front in ALL_FRONTS if build == front or build.startswith(f"{front}_")),
        key=len,
        default="",
    )


DEFAULT = Variant("default", "default", Build())
MOST_CLIFFS = 3
MOST_REGISTERS, LOCAL_SLOTS = 255, 512
"""A kernel at the limit may need more slots than fit: one demotion lets them be in local memory."""


def _nvidia(build: Build) -> Variant:
    return Variant(build.name, "front" if build.front else "nvidia", build)


def _demoted(build: Build, target: int) -> Variant:
    name = f"demote_{target}"
    if build == DEFAULT.build:
        return Variant(name, "binary", build, Rewrite("demote", target))
    return Variant(f"{build.name}+{name}", "ours", build, Rewrite("demote", target))


def _promoted(build: Build, target: int | None = None) -> Variant:
    name = "promote" if target is None else f"promote_{target}"
    if build == DEFAULT.build:
        return Variant(name, "binary", build, Rewrite("promote", target))
    return Variant(f"{build.name}+{name}", "ours", build, Rewrite("promote", target))


def ten_variants(facts: Facts) -> list[Variant]:
    """Default, and per target: capped, capped with the pragma, ours."""
    variants = [DEFAULT]
    for target in facts.below[:2]:
        variants += [
            _nvidia(Build(target)),
            _nvidia(Build(target, pragma=True)),
            _demoted(DEFAULT.build, target),
        ]
    return variants


def _scheduled(variant: Variant) -> Variant:
    """The same rewrite with its instructions in a new order as well."""
    assert variant.rewrite is not None
    options = (*variant.rewrite.options, "--reschedule")
    rewrite = replace(variant.rewrite, options=options)
    return replace(variant, name=f"{variant.name}_scheduled", rewrite=rewrite)


def _new_order(build: Build, registers: int) -> Variant:
    """A new order of a build within `registers`, nothing else."""
    rewrite = Rewrite("demote", registers, ("--candidates", "none", "--reschedule"))
    if build == DEFAULT.build:
        return Variant("schedule", "binary", build, rewrite)
    return Variant(f"{build.name}+schedule", "ours", build, rewrite)


def _paper(target: int) -> Iterable[Variant]:
    for order in ("static", "cfg", "conflict"):
        options = ("--candidates", order)
        rewrite = Rewrite("demote", target, options)
        yield Variant(f"paper_{order}_{target}", "binary", Build(), rewrite)


_QUICK = ("--effort", "quick")
_FROM_SOURCE = Rewrite("optimize", options=_QUICK, from_source=True)


def suite_variants(facts: Facts) -> list[Variant]:
    """NVIDIA's levers, and ours on each of them.

    On the default: renumbering, demotion to the next cliffs, promotion of its spills. On builds
    with more registers (cap 255 and the boundaries above the default): demotion to the boundaries
    below. On builds with fewer: promotion of their spills, and demotion or promotion one cliff
    further.
    """
    below = list(facts.below[:MOST_CLIFFS])
    variants = [
        DEFAULT,
        _nvidia(Build(255)),
        _nvidia(Build(pragma=True)),
        _nvidia(Build(255, pragma=True)),
        Variant("optimize", "binary", Build(), Rewrite("optimize", options=_QUICK)),
        Variant("optimize_source", "blind", Build(), _FROM_SOURCE),
    ]
    if facts.own:
        renumber = Rewrite("demote", facts.own, ("--candidates", "none"))
        variants.append(Variant("renumber", "binary", DEFAULT.build, renumber))
        variants.append(_new_order(DEFAULT.build, facts.room))
        for target in facts.wider:
            wider = _new_order(DEFAULT.build, target)
            variants.append(replace(wider, name=f"schedule_{target}"))
    if facts.spills:
        variants += [_promoted(DEFAULT.build), _scheduled(_promoted(DEFAULT.build))]
        for target in sorted({n for n in (facts.room, *facts.above, 255) if n > facts.own})[:3]:
            recover = Rewrite("promote", target)
            recovered = Variant(f"recover_{target}", "binary", DEFAULT.build, recover)
            variants += [recovered, _scheduled(recovered)]
    variants.append(_new_order(Build(255), 255))
    variants.append(_promoted(Build(255)))
    variants.append(_promoted(Build(pragma=True)))
    variants += [_demoted(Build(255), target) for target in [*facts.above[-2:], *below[:1]]]
    for rank, target in enumerate(facts.above):
        variants += [
            _nvidia(Build(target)),
            _nvidia(Build(target, pragma=True)),
            _promoted(Build(target)),
        ]
        following = [*facts.above[rank + 1 :], *below][:1]
        variants += [_demoted(Build(target), further) for further in following]
    for rank, target in enumerate(below):
        variants += [
            _nvidia(Build(target)),
            _nvidia(Build(target, pragma=True)),
            _demoted(DEFAULT.build, target),
            _scheduled(_demoted(DEFAULT.build, target)),
            _promoted(Build(target)),
            _promoted(Build(target, pragma=True)),
        ]
        for further in below[rank + 1 : rank + 2]:
            variants += [
                _demoted(Build(target), further),
                _promoted(Build(target), further),
                _promoted(Build(target, pragma=True), further),
            ]
        if rank == 0:
            if facts.own >= MOST_REGISTERS:
                rewrite = Rewrite("demote", target, ("--local-slots", str(LOCAL_SLOTS)))
                local = Variant(f"demote_{target}_local", "binary", DEFAULT.build, rewrite)
                variants.append(local)
            variants += _paper(target)
            variants.append(_new_order(Build(target), target))
    for front in FRONTS:
        variants += _of_front(front, below)
    for front in COMPARED_FRONTS:
        caps = (None, MOST_REGISTERS, *below[:2], *facts.above[-1:])
        variants += [
            _nvidia(Build(cap, pragma, front))
            for cap in caps
            for pragma in (False, True)
            if not (pragma and cap == MOST_REGISTERS)
        ]  # fmt: skip
    return variants


def rewrites_of(build: Build, facts: Facts) -> list[Variant]:
    """Ours on one build, by what is known of that build: for those that were measured as fastest.

    New orders at its residency and the next two lower ones, promotion of what it spills, demotion
    to the next cliff, and both in new orders.
    """
    variants = [_new_order(build, facts.room)]
    for target in facts.wider[:2]:
        wider = _new_order(build, target)
        variants.append(replace(wider, name=f"{wider.name}_{target}"))
    if facts.spills:
        promoted = [_promoted(build), *(_promoted(build, n) for n in facts.below[:1])]
        variants += [*promoted, _scheduled(promoted[0])]
    for target in facts.below[:1]:
        demoted = _demoted(build, target)
        variants += [demoted, _scheduled(demoted)]
    return variants


def _of_front(front: str, below: Sequence[int]) -> Iterable[Variant]:
    """Builds of another front without a cap and at the next cliff, and ours on them."""
    for build in (Build(front=front), Build(255, front=front)):
        yield _nvidia(build)
        yield _promoted(build)
        for target in below[:1]:
            yield _demoted(build, target)
    yield _nvidia(Build(pragma=True, front=front))
    yield _promoted(Build(pragma=True, front=front))
    for target in below[:1]:
        yield _nvidia(Build(target, front=front))
        yield _promoted(Build(target, front=front))
        yield _nvidia(Build(target, pragma=True, front=front))
        yield _promoted(Build(target, pragma=True, front=front))
