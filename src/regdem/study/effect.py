"""What became of each loop of one build in another: copies, a changed step, or gone.

Problem: say from the machine code alone whether a build holds a loop of the first build unrolled,
by how much, fully, or not at all; and how often its parts run for the same work.

Method: regions of two builds are compared by the amounts of work they share, key by key
(`anatomy`). The copies of a loop in a region are the median over its keys of the region's amount
over the loop's. Loops are placed from the outside in. The main region of a loop is the loop with
the most copies that lies as deep (less the loops around it that are gone) and is not itself one of
those around it; where there is none, the loop is gone, and its copies are the turns it made. The
counter's step, where both have one, is a second witness. Other loops that hold a loop's work are
its clones, where they hold as many copies, or what is left of it for turns that don't divide.

Not claimed: a match where a build shares no work with the first (other line numbers, say): such a
loop has no main region, and counts as turning as often as any loop of unknown length. Versions of
one loop of which only one runs are counted as if each ran.
"""

from __future__ import annotations

from collections.abc import Sequence
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
class Form:
    """What a loop of another build is: of which loop of the first (`origin`), and how.

    `kind`: "main" or "clone" (as many copies), or "remainder".
    """

    origin: int
    kind: str


@dataclass(frozen=True)
class Comparison:
    """All loops of the first build in another, and the other's loops as forms of the first's."""

    effects: tuple[LoopEffect, ...]
    forms: dict[int, Form]

    def effect(self, loop: int) -> LoopEffect:
        """What became of a loop."""
        return self.effects[loop]

    def count(self, loop: int, kind: str) -> int:
        """How many forms of one kind a loop has."""
        return sum(1 for form in self.forms.values() if form == Form(loop, kind))


def compare_builds(base: Anatomy, other: Anatomy) -> Comparison:
    """Finds every loop of `base` in `other`."""
    if other is base:
        effects = [
            LoopEffect(loop.index, loop.index, 1.0, False, 1.0 if loop.counter else None)
            for loop in base.loops
        ]
        return Comparison(
            tuple(effects), {loop.index: Form(loop.index, "main") for loop in base.loops}
        )
    found: list[LoopEffect] = []
    for loop in base.loops:
        found.append(_effect(base, other, loop, found))
    forms: dict[int, Form] = {}
    for region in other.loops:
        form = _form(base, found, region)
        if form is not None:
            forms[region.index] = form
    return Comparison(tuple(found), forms)


def shares_work(loop: Region, other: Region) -> bool:
    """Whether two loops of the first build hold the same keys, as versions of one loop do."""
    return set(_work(loop)) == set(_work(other))


def _work(loop: Region) -> dict[Key, int]:
    """Memory and floating point where the loop has them, else integer operations."""
    return loop.work or loop.integer_work


def copies_in(loop: Region, region: Region) -> float:
    """Median over the loop's keys of what the region holds of each, in copies."""
    mine = _work(loop)
    theirs = region.work if loop.work else region.integer_work
    ratios = [theirs.get(key, 0) / amount for key, amount in mine.items()]
    present = [ratio for ratio in ratios if ratio > 0]
    # A key may vanish because a value is kept in a register; most of them must be there.
    return median(present) if present and 2 * len(present) >= len(ratios) else 0.0


def _effect(
    base: Anatomy, other: Anatomy, loop: Region, placed: Sequence[LoopEffect]
) -> LoopEffect:
    """Places a loop; `placed` holds all loops before it, those around it among them."""
    held = [(copies_in(loop, region), region) for region in other.regions]
    held = [(copies, region) for copies, region in held if copies > 0]
    if not held:
        return LoopEffect(loop.index, None, 0.0, False, None)
    around = [placed[outer] for outer in base.ancestors(loop.index) if outer != STRAIGHT]
    depth = loop.depth - sum(1 for effect in around if effect.gone)
    outside = {effect.main for effect in around if not effect.gone}
    own = [
        (copies, region)
        for copies, region in held
        if region.is_loop and region.depth >= depth and region.index not in outside
    ]
    if not own:
        copies, main = max(held, key=lambda entry: (entry[0], entry[1].depth))
        return LoopEffect(loop.index, main.index, copies, True, None)
    most = max(copies for copies, _ in own)
    best = [(copies, region) for copies, region in own if copies >= (1 - AGREES) * most]
    # Of versions of one loop each gets its own, in their order.
    taken = {effect.main for effect in placed if not effect.gone}
    copies, main = next((entry for entry in best if entry[1].index not in taken), best[0])
    ratio = None
    if loop.counter is not None and main.counter is not None:
        ratio = abs(main.counter.step / loop.counter.step)
    return LoopEffect(loop.index, main.index, copies, False, ratio)


def _form(base: Anatomy, effects: Sequence[LoopEffect], region: Region) -> Form | None:
    for effect in effects:
        if effect.main == region.index and not effect.gone:
            return Form(effect.loop, "main")
    best: tuple[float, LoopEffect] | None = None
    for effect in effects:
        copies = copies_in(base.region(effect.loop), region)
        if copies and not effect.gone and (best is None or copies > best[0]):
            best = copies, effect
    if best is None:
        return None
    copies, effect = best
    kind = "clone" if copies >= (1 - AGREES) * effect.copies else "remainder"
    return Form(effect.loop, kind)
