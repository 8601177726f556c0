"""What became of each loop of one build in another: copies, a changed step, or gone.

Problem: say from the machine code alone whether a build holds a loop of the first build unrolled,
by how much, fully, or not at all; and how often its parts run for the same work.

Method: regions of two builds are compared by the amounts of work they share, key by key
(`anatomy`). The copies of a loop in a region are the median over its keys of the region's amount
over the loop's. The main region is the loop with the most copies; where no loop as deep holds the
work any more, the loop is gone and its copies are the turns it made. The counter's step, where
both have one, is a second witness. Weights follow: the main loop turns 1/copies as often, what is
left of a loop beside it runs only for the turns that don't divide.

Not claimed: a match where a build shares no work with the first (other line numbers, say): such a
loop is `unmatched`, and counts as turning as often as any loop of unknown length.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from regdem.study.anatomy import STRAIGHT, Anatomy, Key, Region

AGREES = 0.2
"""Copies within this share of a number count as that number."""


@dataclass(frozen=True)
class LoopEffect:
    """One loop of the first build (`loop`) in another build.

    `main` is the region that holds most of it (None: no work in common); `copies` per turn of
    that region; `gone`: `main` is no longer a loop of its own. `step_ratio`: the counter's step
    over the first build's, None where either is unknown.
    """

    loop: int
    main: int | None
    copies: float
    gone: bool
    step_ratio: float | None

    @property
    def step_agrees(self) -> bool:
        """Whether the step says much the same as the copies. It does not where one build counts
        turns and the other bytes of a pointer; and copies fall short of it where the compiler
        shares work between them.
        """
        if self.step_ratio is None or self.gone:
            return False
        return 0.5 * self.step_ratio <= self.copies <= (1 + AGREES) * self.step_ratio

    @property
    def factor(self) -> float:
        """The step's ratio where it agrees with the copies, else the copies."""
        return self.step_ratio if self.step_agrees and self.step_ratio else self.copies

    @property
    def changed(self) -> bool:
        """Whether the loop is unrolled further than in the first build."""
        return self.gone or self.factor >= 1 + AGREES

    def agrees_with(self, ratio: float) -> bool:
        """Whether the loop holds `ratio` copies, as was asked."""
        return abs(self.factor - ratio) <= AGREES * ratio


@dataclass(frozen=True)
class Comparison:
    """All loops of the first build in another, and the other's loops by the first's.

    `origin[k]`: the loop of the first build that loop k of this one is a form of, or None.
    """

    effects: tuple[LoopEffect, ...]
    origin: dict[int, int | None]

    def effect(self, loop: int) -> LoopEffect:
        """What became of a loop."""
        return self.effects[loop]


def compare_builds(base: Anatomy, other: Anatomy) -> Comparison:
    """Finds every loop of `base` in `other`."""
    effects = tuple(_effect(base, other, loop) for loop in base.loops)
    origin: dict[int, int | None] = {}
    for region in other.loops:
        origin[region.index] = _origin(base, effects, region)
    return Comparison(effects, origin)


def _work(region: Region, kind: str) -> dict[Key, int]:
    return region.work if kind == "work" else region.integer_work


def _kind(loop: Region) -> str:
    """Memory and floating point where the loop has them, else integer operations."""
    return "work" if loop.work else "integer"


def copies_in(loop: Region, region: Region) -> float:
    """Median over the loop's keys of what the region holds of each, in copies."""
    kind = _kind(loop)
    mine, theirs = _work(loop, kind), _work(region, kind)
    if not mine:
        return 0.0
    ratios = [theirs.get(key, 0) / amount for key, amount in mine.items()]
    present = [ratio for ratio in ratios if ratio > 0]
    # A key may vanish because a value is kept in a register; most of them must be there.
    return median(present) if 2 * len(present) >= len(ratios) else 0.0


def _effect(base: Anatomy, other: Anatomy, loop: Region) -> LoopEffect:
    held = [(copies_in(loop, region), region) for region in other.regions]
    held = [(copies, region) for copies, region in held if copies > 0]
    if not held:
        return LoopEffect(loop.index, None, 0.0, False, None)
    own = [(copies, region) for copies, region in held if _may_be(base, loop, region)]
    copies, main = max(own or held, key=lambda entry: (entry[0], entry[1].depth))
    ratio = None
    if own and loop.counter is not None and main.counter is not None:
        ratio = abs(main.counter.step / loop.counter.step)
    return LoopEffect(loop.index, main.index, copies, not own, ratio)


def _may_be(base: Anatomy, loop: Region, region: Region) -> bool:
    """Whether the region can be a form of the loop: a loop that is not one of those around it."""
    if not region.is_loop:
        return False
    if region.depth >= loop.depth:
        return True
    # Less deep: loops around it may be gone, too, unless this is one of them.
    return not any(
        copies_in(base.region(outer), region) > 0
        for outer in base.ancestors(loop.index)
        if outer != STRAIGHT
    ) and any(
        not _kept(base.region(outer)) for outer in base.ancestors(loop.index) if outer != STRAIGHT
    )


def _kept(outer: Region) -> bool:
    """Whether a loop has work by which it would be found again."""
    return bool(outer.work or outer.integer_work)


def _origin(base: Anatomy, effects: tuple[LoopEffect, ...], region: Region) -> int | None:
    """The loop of the first build that a loop is a form of."""
    for effect in effects:
        if effect.main == region.index and not effect.gone:
            return effect.loop
    shared = [
        (copies_in(base.region(effect.loop), region), effect.loop)
        for effect in effects
        if not effect.gone
    ]
    best = max(shared, default=(0.0, -1))
    return best[1] if best[0] > 0 else None
