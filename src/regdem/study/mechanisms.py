"""By which mechanisms a build is better or worse than the first, each with its figures.

Problem: "unroll 8 is slower" teaches nothing; why it is does. What an unroll or a cap can change is
a short list, and each entry can be counted in the machine code.

Method: one function a mechanism; each compares the build with the first and returns a `Mechanism`
(improved, hurt or neutral), or nothing where nothing changed. Counts are for the same work
(`weights`); waits are those of one warp alone, as the predictor walks it.

Not claimed: that a mechanism decides the time. Which does is said by the prediction, or by the
measured times where there are some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from regdem.study.model import Analysed, Build, Mechanism

NOTEWORTHY = 0.05
"""A change of a count by less than this share is not told."""
L0_INSTRUCTION_BYTES = 12 * 1024
"""The level-0 instruction cache of Volta (Jia et al. 2018). Hopper's is not published; a loop
longer than this is told, not judged."""

_MEMORY_WAITS = ("long_scoreboard", "short_scoreboard", "local_memory", "constant")
_FIXED_WAITS = ("fixed_latency", "fma", "fp64", "mufu", "variable", "operand_read")


def mechanisms(base: Build, build: Build) -> tuple[Mechanism, ...]:
    """Everything that differs, in the order in which a person would ask.

    Of a build that doesn't fit on an SM, only that.
    """
    if not build.analysed.active_blocks:
        return (_no_room(build),)
    found = [tell(base, build) for tell in _TELL]
    return tuple(mechanism for mechanism in found if mechanism is not None)


def _no_room(build: Build) -> Mechanism:
    registers = build.analysed.kernel.registers_per_thread
    occupancy = build.analysed.report.occupancy
    assert occupancy is not None
    return Mechanism(
        "residency",
        "hurt",
        "can't be launched",
        f"can't be launched: {registers} registers for {occupancy.threads} threads don't fit on an "
        f"SM (limited by {', '.join(occupancy.limiters)})",
        {"registers_after": registers, "active_blocks_after": 0},
    )


def _overhead(base: Build, build: Build) -> Mechanism | None:
    before, after = base.executed.overhead, build.executed.overhead
    if not before or abs(after - before) < NOTEWORTHY * before:
        return None
    total = (base.executed.instructions, build.executed.instructions)
    better = after < before
    return Mechanism(
        "loop_overhead",
        "improved" if better else "hurt",
        f"{_percent(after, before)} counter, address and branch instructions",
        f"{_percent(after, before)} counter, address and branch instructions: "
        f"{_number(before)} to {_number(after)} of {_number(total[0])} and {_number(total[1])} "
        "executed by a warp",
        {"before": round(before, 1), "after": round(after, 1)},
    )


def _reloads(base: Build, build: Build) -> Mechanism | None:
    before, after = base.executed.memory_bytes, build.executed.memory_bytes
    if not before or abs(after - before) < NOTEWORTHY * before:
        return None
    words = (
        "values are kept in registers instead of loaded again"
        if after < before
        else "more is loaded or stored again"
    )
    return Mechanism(
        "memory_traffic",
        "improved" if after < before else "hurt",
        f"{_percent(after, before)} bytes loaded and stored",
        f"{_percent(after, before)} bytes of loads and stores for the same work: {words}",
        {"before_bytes": round(before, 1), "after_bytes": round(after, 1)},
    )


def _in_flight(base: Build, build: Build) -> Mechanism | None:
    if base.hot is None or build.hot is None:
        return None
    before, after = base.hot.loads_in_flight, build.hot.loads_in_flight
    words = "at the first wait"
    if build.hot.gone:
        # The first wait there may be for something else than the loop that is gone.
        before, after = base.hot.loads_per_wait, build.hot.loads_per_wait
        words = "per wait"
    if not before or not after or abs(after - before) < NOTEWORTHY * before:
        return None
    return Mechanism(
        "loads_in_flight",
        "improved" if after > before else "hurt",
        f"{after:g} loads in flight",
        f"{after:g} load{_s(after)} in flight {words} instead of {before:g}",
        {"before": before, "after": after, "counted": words},
    )


def _waits(base: Build, build: Build) -> Mechanism | None:
    def total(one: Build, causes: tuple[str, ...]) -> float:
        return sum(one.prediction.stalls.get(cause, 0.0) for cause in causes)

    figures = {
        name: (total(base, causes), total(build, causes))
        for name, causes in (("memory", _MEMORY_WAITS), ("fixed", _FIXED_WAITS))
    }
    every = (sum(base.prediction.stalls.values()), sum(build.prediction.stalls.values()))
    if not every[0] or abs(every[1] - every[0]) < NOTEWORTHY * every[0]:
        return None
    parts = [
        f"{word} {_number(figures[name][0])} to {_number(figures[name][1])}"
        for name, word in (("memory", "for memory"), ("fixed", "for results of arithmetic"))
        if figures[name] != (0.0, 0.0)
    ]
    return Mechanism(
        "dependence_stalls",
        "improved" if every[1] < every[0] else "hurt",
        f"{_percent(every[1], every[0])} cycles waited",
        f"{_percent(every[1], every[0])} cycles that a warp alone waits ({', '.join(parts)})",
        {
            "memory_before": round(figures["memory"][0], 1),
            "memory_after": round(figures["memory"][1], 1),
            "fixed_before": round(figures["fixed"][0], 1),
            "fixed_after": round(figures["fixed"][1], 1),
        },
    )


def crossed_cliffs(before: Analysed, after: Analysed) -> list[int]:
    """The cliffs of the occupancy staircase between two register counts."""
    if before.report.occupancy is None:
        return []
    low, high = sorted((before.kernel.registers_per_thread, after.kernel.registers_per_thread))
    return sorted(
        cliff.registers_max
        for cliff in before.report.occupancy.cliffs
        if low <= cliff.registers_max < high
    )


def _residency(base: Build, build: Build) -> Mechanism | None:
    before, after = base.analysed, build.analysed
    registers = (before.kernel.registers_per_thread, after.kernel.registers_per_thread)
    blocks = (before.active_blocks, after.active_blocks)
    if registers[0] == registers[1] and blocks[0] == blocks[1]:
        return None
    occupancy = (before.report.occupancy, after.report.occupancy)
    assert occupancy[0] is not None
    assert occupancy[1] is not None
    warps = (occupancy[0].active_warps, occupancy[1].active_warps)
    cliffs = crossed_cliffs(before, after)
    evidence = {
        "registers_before": registers[0],
        "registers_after": registers[1],
        "cliffs": cliffs,
        "active_blocks_before": blocks[0],
        "active_blocks_after": blocks[1],
    }
    change = f"{registers[0]} to {registers[1]} registers"
    if blocks[0] == blocks[1]:
        return Mechanism(
            "residency",
            "neutral",
            "the same residency",
            f"{change}: the same {blocks[0]} block{_s(blocks[0])} resident",
            evidence,
        )
    moved = abs(blocks[1] - blocks[0])
    past = f", past the cliff{_s(len(cliffs))} at {_listed(cliffs)}" if cliffs else ""
    if not cliffs:
        past = f" (limited by {', '.join(occupancy[1].limiters)})"
    verb = "gained" if blocks[1] > blocks[0] else "lost"
    return Mechanism(
        "residency",
        "improved" if blocks[1] > blocks[0] else "hurt",
        f"{moved} resident block{_s(moved)} {verb}",
        f"{change}{past}: {moved} resident block{_s(moved)} {verb} ({blocks[0]} to {blocks[1]}; "
        f"{warps[0]} to {warps[1]} warps)",
        evidence,
    )


def _local_spills(base: Build, build: Build) -> Mechanism | None:
    before, after = base.analysed, build.analysed
    sums = (before.spill_bytes, after.spill_bytes)
    hot = tuple(
        sum(site.bytes_per_thread for site in one.code.spills.hot if site.space == "local")
        for one in (before, after)
    )
    if sums[0] == sums[1] and hot[0] == hot[1]:
        return None
    inside = f", {hot[1]} of them inside loops" if hot[1] else ", none inside loops"
    run = build.executed.local_spill_bytes
    short = "no spills"
    if sums[1]:
        short = "spills inside loops" if hot[1] else "spills outside loops"
        if run <= base.executed.local_spill_bytes:
            short = "fewer spills"
    words = (
        f"{sums[1]} bytes of local spills{inside} (was {sums[0]}); a thread moves "
        f"{_number(run)} bytes of them"
        if sums[1]
        else f"no local spills (was {sums[0]} bytes)"
    )
    return Mechanism(
        "local_spills",
        "hurt" if run > base.executed.local_spill_bytes else "improved",
        short,
        words,
        {
            "before_bytes": sums[0],
            "after_bytes": sums[1],
            "in_loops_before_bytes": hot[0],
            "in_loops_after_bytes": hot[1],
            "executed_bytes": round(run, 1),
        },
    )


def _shared_spills(base: Build, build: Build) -> Mechanism | None:
    sums = (base.analysed.shared_spill_bytes, build.analysed.shared_spill_bytes)
    if sums[0] == sums[1]:
        return None
    room = build.analysed.kernel.static_shared_bytes - base.analysed.kernel.static_shared_bytes
    return Mechanism(
        "shared_spills",
        "neutral" if sums[1] > sums[0] else "improved",
        "spills in shared memory" if sums[1] else "no shared spills",
        f"{sums[1]} bytes spilled to shared memory and back (was {sums[0]}), which takes "
        f"{room} bytes of it per block",
        {"before_bytes": sums[0], "after_bytes": sums[1], "shared_bytes_per_block": room},
    )


def _code_size(base: Build, build: Build) -> Mechanism | None:
    if base.hot is None or build.hot is None:
        return None
    before, after = base.hot.code_bytes, build.hot.code_bytes
    if after <= L0_INSTRUCTION_BYTES or after <= before:
        return None
    return Mechanism(
        "instruction_cache",
        "hurt",
        f"a loop of {after / 1024:.0f} KiB of code",
        f"the loop is {after / 1024:.1f} KiB of code (was {before / 1024:.1f}), beyond "
        f"the {L0_INSTRUCTION_BYTES // 1024} KiB of Volta's level-0 instruction cache (Hopper's is "
        "not published)",
        {"before_bytes": before, "after_bytes": after},
    )


def operations(build: Analysed) -> Counter[str]:
    """The operations of a build by mnemonic: memory, arithmetic and integer instructions, without
    moves, branches and spill accesses.
    """
    program = build.program
    blocks: list[int] = program.block_of.tolist()
    reachable = program.reachable
    return Counter(
        key[0]
        for key, block in zip(build.anatomy.key_of, blocks, strict=True)
        if key is not None and block in reachable
    )


def operation_changes(base: Analysed, build: Analysed) -> list[tuple[str, int]]:
    """(mnemonic, more or fewer than the first build has), the largest change first."""
    before, after = operations(base), operations(build)
    changes = [(name, after[name] - before[name]) for name in {*before, *after}]
    return sorted(
        (entry for entry in changes if entry[1]), key=lambda entry: (-abs(entry[1]), entry[0])
    )


_TELL: tuple[Callable[[Build, Build], Mechanism | None], ...] = (
    _overhead,
    _reloads,
    _in_flight,
    _waits,
    _residency,
    _local_spills,
    _shared_spills,
    _code_size,
)


def _percent(after: float, before: float) -> str:
    change = 100 * (after - before) / before
    return f"{abs(change):.0f} % {'fewer' if change < 0 else 'more'}"


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _s(count: float) -> str:
    return "" if count == 1 else "s"


def _listed(values: list[int]) -> str:
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
