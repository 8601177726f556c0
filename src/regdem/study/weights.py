"""How often each block of a build runs for the same work as the first build.

Problem: a loop unrolled four times turns a quarter as often. Counts and predictions that give every
loop the same number of turns would make it look four times as dear.

Method: every loop of the first build has a number of turns: as its code says, else as a build in
which it is gone shows (its copies), else assumed. In another build the main form of the loop, and
clones of it, turn that number over their copies; remainders, and straight code with the same work
beside a main loop, run for the turns that don't divide. A gone loop's copies run once with what
they lie in.

Not claimed: divergence, early exits, and turns that depend on data.
"""

from __future__ import annotations

from regdem.predict.weights import executions
from regdem.program.loops import block_weights as loop_weights
from regdem.program.program import Program
from regdem.study.anatomy import STRAIGHT, Anatomy, Region
from regdem.study.effect import Comparison, shares_work

DEFAULT_TURNS = 64


def base_turns(
    base: Anatomy, comparisons: list[Comparison], assumed: float = DEFAULT_TURNS
) -> tuple[list[float], list[bool]]:
    """Turns per entry of each loop of the first build, and whether they are known."""
    turns: list[float] = []
    known: list[bool] = []
    for loop in base.loops:
        shown = [_copies_if_gone(base, comparison, loop) for comparison in comparisons]
        told = loop.turns if loop.turns is not None else max(shown)
        turns.append(float(told) if told else assumed)
        known.append(bool(told))
    return turns, known


def _copies_if_gone(base: Anatomy, comparison: Comparison, loop: Region) -> int:
    """Copies of a loop that is gone; shared between versions of it that went to one place."""
    effect = comparison.effect(loop.index)
    if not effect.gone:
        return 0
    versions = sum(
        1
        for other in base.loops
        if shares_work(loop, other)
        and comparison.effect(other.index).gone
        and comparison.effect(other.index).main == effect.main
    )
    return round(effect.copies / versions)


def block_weights(
    program: Program,
    anatomy: Anatomy,
    comparison: Comparison,
    turns: list[float],
    assumed: float = DEFAULT_TURNS,
) -> list[float]:
    """Executions of each block for one execution of the kernel by a warp."""
    per_loop: dict[int, float] = {STRAIGHT: 1.0}
    for loop in anatomy.loops:
        per_loop[loop.index] = per_loop[loop.parent] * _turns_of(
            loop.index, comparison, turns, assumed
        )
    weights: list[float] = []
    reachable = program.reachable
    for block, region in enumerate(anatomy.region_of):
        weight = per_loop[region] if block in reachable else 0.0
        if weight and _is_remainder(program, anatomy, comparison, turns, block):
            weight = 0.0
        weights.append(weight)
    return _rarely(program, _through_calls(program, weights))


def _turns_of(loop: int, comparison: Comparison, turns: list[float], assumed: float) -> float:
    form = comparison.forms.get(loop)
    if form is None:
        return assumed
    factor = max(1.0, comparison.effect(form.origin).factor)
    if form.kind == "remainder":
        return turns[form.origin] % factor
    return max(1.0, turns[form.origin] // factor)


def _is_remainder(
    program: Program, anatomy: Anatomy, comparison: Comparison, turns: list[float], block: int
) -> bool:
    """Whether a block outside the main form of an unrolled loop holds only that loop's work, and
    the turns divide, so that it doesn't run.
    """
    found = {
        anatomy.key_of[i] for i in range(program.blocks[block].start, program.blocks[block].end)
    }
    keys = {key for key in found if key is not None}
    region = anatomy.region_of[block]
    for effect in comparison.effects:
        if effect.gone or effect.main is None or effect.factor <= 1 or effect.main == region:
            continue
        main = anatomy.region(effect.main)
        if block in main.blocks or region not in anatomy.ancestors(effect.main):
            continue
        work = {key for key in keys if key in main.work}
        others = {
            key for key in keys if key not in main.work and key in anatomy.region(region).work
        }
        if work and not others and turns[effect.loop] % effect.factor == 0:
            return True
    return False


def _rarely(program: Program, weights: list[float]) -> list[float]:
    """Slow paths of ptxas's own functions run as rarely as the predictor takes them to."""
    plain = loop_weights(program, 1.0)
    rare = executions(program, 1.0)
    return [w * r / p if p else 0.0 for w, r, p in zip(weights, rare, plain, strict=True)]


def _through_calls(program: Program, weights: list[float]) -> list[float]:
    """Blocks of a device function run as often as its calls do."""
    if len(program.functions) == 1:
        return weights
    entry = [0.0] * len(program.functions)
    entry[0] = 1.0
    for _ in range(min(4, len(program.functions))):
        updated = [0.0] * len(program.functions)
        updated[0] = 1.0
        for site, function in program.callee.items():
            block = program.blocks[int(program.block_of[site])]
            if block.function != function:
                updated[function] += weights[block.index] * entry[block.function]
        entry = updated
    return [weight * entry[program.blocks[block].function] for block, weight in enumerate(weights)]
