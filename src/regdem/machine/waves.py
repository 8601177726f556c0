"""A grid in waves: how often the GPU is filled, and whether occupancy matters at all.

Problem: a grid smaller than what the GPU holds at once gains nothing from more resident blocks,
and a grid of one to two waves is ruled by its tail. Half of the register-limited kernels
measured at their programs' default sizes were of this kind.

Method: blocks per wave = SMs * resident blocks, in whole clusters; the last wave's fill is what
is left over.

Not claimed: that blocks of a wave end together, or that clusters never straddle a group of SMs:
the count of resident clusters here is an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regdem.errors import UsageError
from regdem.machine.residency import Occupancy

FEW_WAVES = 2


@dataclass(frozen=True)
class Waves:
    """How a grid of `grid` blocks runs on `sms` SMs.

    `fill_pct`: blocks of the last wave over blocks per wave. `efficiency_pct`: blocks over the
    places of all waves. `occupancy_matters` is False where every block fits at once.
    """

    grid: int
    sms: int
    device: str | None
    blocks_per_wave: int
    full_waves: int
    waves: int
    last_wave_blocks: int
    last_wave_fill_pct: float
    efficiency_pct: float
    occupancy_matters: bool
    statement: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "grid_blocks": self.grid,
            "sms": self.sms,
            "device": self.device,
            "blocks_per_wave": self.blocks_per_wave,
            "full_waves": self.full_waves,
            "waves": self.waves,
            "last_wave_blocks": self.last_wave_blocks,
            "last_wave_fill_pct": self.last_wave_fill_pct,
            "efficiency_pct": self.efficiency_pct,
            "occupancy_matters": self.occupancy_matters,
            "statement": self.statement,
        }


def waves(present: Occupancy, grid: int, sms: int | None = None) -> Waves:
    """The waves of a grid of `grid` blocks.

    `sms` defaults to the SMs of the architecture's reference device. Raises UsageError for a grid
    or a number of SMs below 1, a grid that is no multiple of the cluster, a kernel that doesn't
    fit, or an architecture with no reference device.
    """
    sm = present.launch.sm
    device = sm.reference_device if sms is None else None
    sms = sm.reference_sms if sms is None else sms
    if sms is None:
        raise UsageError(f"no device is on record for {sm.arch}", hint="give --sms")
    if sms < 1 or grid < 1:
        raise UsageError(f"grid {grid} on {sms} SMs: both must be 1 or more", code="bad_value")
    if grid % present.launch.cluster:
        raise UsageError(
            f"grid {grid} is no multiple of the cluster, {present.launch.cluster} blocks",
            code="bad_value",
        )
    cluster = present.launch.cluster
    per_wave = sms * present.active_blocks // cluster * cluster
    if per_wave == 0:
        raise UsageError("a block that does not fit on an SM has no waves", code="bad_value")
    full, rest = divmod(grid, per_wave)
    count = full + (rest > 0)
    last = rest or per_wave
    return Waves(
        grid=grid,
        sms=sms,
        device=device,
        blocks_per_wave=per_wave,
        full_waves=full,
        waves=count,
        last_wave_blocks=last,
        last_wave_fill_pct=100 * last / per_wave,
        efficiency_pct=100 * grid / (count * per_wave),
        occupancy_matters=grid > per_wave,
        statement=_statement(present, grid, sms, per_wave, count),
    )


def _statement(present: Occupancy, grid: int, sms: int, per_wave: int, count: int) -> str:
    if grid <= per_wave:
        return (
            f"The grid is too small for occupancy to matter: {grid} blocks fit at once "
            f"({per_wave} places), at most {-(-grid // sms)} per SM; more resident blocks change "
            "nothing."
        )
    if count <= FEW_WAVES:
        wanted = -(-grid // sms)
        most = present.launch.sm.max_warps_per_sm // present.warps_per_block
        head = f"{grid / per_wave:.2f} waves: the tail rules."
        if wanted > most:
            return f"{head} No residency holds the whole grid at once ({wanted} blocks per SM)."
        return (
            f"{head} {wanted} resident blocks per SM would hold the whole grid at once "
            f"(now {present.active_blocks})."
        )
    return f"{grid / per_wave:.2f} waves: occupancy matters."
