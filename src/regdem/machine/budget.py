"""Backward: from the latency to hide to the warps needed, and from those to a register budget.

Problem: full occupancy is rarely needed. A kernel needs as many warps as cover its stalls, and
may spend the rest of the register file.

Method: Little's law (Volkov, "Better performance at lower occupancy", 2010): what must be in
flight is latency times throughput. A scheduler issues one instruction per cycle; a warp issues
I cycles' worth for each load, and K independent loads (loads in flight times independent
chains) are outstanding at once, so one warp covers I * K cycles of its scheduler's time, and

    warps = schedulers * ceil(latency / (I * K)).

The budget is the highest register count whose residency, in whole blocks, still holds them.

Not claimed: that memory bandwidth allows it. The law says what the latency asks for; a kernel
bound by bandwidth or by issue gains nothing from more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

from regdem.errors import UsageError
from regdem.machine.residency import Launch, Occupancy, resident


@dataclass(frozen=True)
class Latency:
    """What a warp does while it waits.

    `latency_cycles`: from a load's issue to its first use's. `issue_cycles_per_load`: cycles of
    its scheduler's issue slot a warp takes for each load. `loads_in_flight`: independent loads a
    chain has outstanding; `ilp`: independent chains.
    """

    latency_cycles: float
    issue_cycles_per_load: float
    ilp: float = 1
    loads_in_flight: float = 1

    def warps_needed(self, schedulers: int) -> int:
        """Warps per SM that cover the latency; at least one per scheduler."""
        for name, value in vars(self).items():
            if not 0 < value < float("inf"):
                raise UsageError(
                    f"{name.replace('_', ' ')} {value}: must be above 0", code="bad_value"
                )
        covered = Fraction(self.issue_cycles_per_load) * Fraction(self.ilp)
        covered *= Fraction(self.loads_in_flight)
        return schedulers * max(1, ceil(Fraction(self.latency_cycles) / covered))

    def formula(self, schedulers: int) -> str:
        """The law with the numbers in it."""
        parts = [f"{self.issue_cycles_per_load:g} issue cycles per load"]
        if self.loads_in_flight != 1:
            parts.append(f"{self.loads_in_flight:g} loads in flight")
        if self.ilp != 1:
            parts.append(f"ILP {self.ilp:g}")
        return (
            f"{schedulers} schedulers * ceil({self.latency_cycles:g} cycles / "
            f"({' * '.join(parts)})) = {self.warps_needed(schedulers)} warps"
        )


@dataclass(frozen=True)
class RegisterBudget:
    """The answer of `plan`.

    `warps_needed` may exceed what an SM holds; `warps_target` is what can be had.
    `register_budget` is the highest count that keeps the target.
    """

    launch: Launch
    warps_needed: int
    warps_target: int
    register_budget: int
    at_budget: Occupancy
    formula: str
    reason: str

    @property
    def registers_to_remove(self) -> int | None:
        """Registers above the budget, where the kernel's count was given."""
        if self.launch.registers is None:
            return None
        return max(0, self.launch.registers - self.register_budget)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "arch": self.launch.arch,
            "threads": self.launch.threads,
            "registers": self.launch.registers,
            "warps_needed": self.warps_needed,
            "warps_target": self.warps_target,
            "max_warps": self.at_budget.max_warps,
            "register_budget": self.register_budget,
            "registers_to_remove": self.registers_to_remove,
            "active_blocks": self.at_budget.active_blocks,
            "active_warps": self.at_budget.active_warps,
            "occupancy_pct": self.at_budget.occupancy_pct,
            "formula": self.formula,
            "reason": self.reason,
        }

    def to_html(self) -> str:
        """Formula and reason as paragraphs."""
        from html import escape

        return f"<p>{escape(self.formula)}</p><p>{escape(self.reason)}</p>"

    def _repr_html_(self) -> str:
        return self.to_html()


def register_budget(
    launch: Launch, *, latency: Latency | None = None, warps: int | None = None
) -> RegisterBudget:
    """The registers a launch may use and still hide its latency.

    Give either a `Latency` or the `warps` needed per SM. Raises UsageError for values that are
    no positive numbers, or where no block of the launch fits.
    """
    sm = launch.sm
    if (latency is None) == (warps is None):
        raise UsageError("give either a latency or the warps needed")
    if latency is not None:
        needed = latency.warps_needed(sm.sub_partitions)
        formula = latency.formula(sm.sub_partitions)
    else:
        needed = warps or 0
        formula = f"{needed} warps, as given"
    if needed < 1:
        raise UsageError(f"{needed} warps: must be 1 or more", code="bad_value")
    ceiling = resident(replace(launch, registers=1))
    if ceiling.active_blocks == 0:
        raise UsageError(
            f"no block of {launch.threads} threads fits: limited by "
            f"{' and '.join(ceiling.limiters)}",
            code="bad_value",
        )
    target = min(needed, ceiling.active_warps)
    budget = next(
        at
        for registers in range(sm.max_registers_per_thread, 0, -1)
        if (at := resident(replace(launch, registers=registers))).active_warps >= target
    )
    return RegisterBudget(
        launch=launch,
        warps_needed=needed,
        warps_target=target,
        register_budget=budget.registers or 0,
        at_budget=budget,
        formula=formula,
        reason=_reason(launch, needed, ceiling, budget),
    )


def _reason(launch: Launch, needed: int, ceiling: Occupancy, budget: Occupancy) -> str:
    size = f"{budget.active_blocks} blocks of {budget.warps_per_block} warps"
    if needed > ceiling.max_warps:
        return (
            f"{needed} warps are needed and an SM holds {ceiling.max_warps}: the latency can't be "
            f"covered by warps alone. {budget.registers} registers keep all that fit ({size}); "
            f"{needed / ceiling.active_warps:.1f} times as many independent loads would cover it."
        )
    if needed > ceiling.active_warps:
        return (
            f"{needed} warps are needed; {' and '.join(ceiling.limiters)} allow "
            f"{ceiling.active_warps} whatever the registers. {budget.registers} registers keep "
            f"those ({size})."
        )
    return (
        f"{needed} of {ceiling.max_warps} warps are needed: {size} hold "
        f"{budget.active_warps}, and {budget.registers} registers per thread are the most that "
        "keep them."
    )
