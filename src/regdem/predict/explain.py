"""A prediction's sum, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regdem.predict.model import Prediction

_PIPES = 6
_FETCHED = 0.01
"""Share of instructions from L2 that is worth a word."""
_WORDS = {
    "long_scoreboard": "waiting for global memory",
    "local_memory": "waiting for spilled values",
    "short_scoreboard": "waiting for shared memory",
    "fixed_latency": "stall counts between dependent instructions",
    "operand_read": "waiting until operands are read",
    "barrier": "waiting for the block's other warps at barriers",
    "async_copy": "waiting for asynchronous copies",
    "mufu": "waiting for MUFU results",
    "constant": "waiting for constants",
    "issue": "issue slots",
    "memory": "memory instructions",
    "l1": "L1 wavefronts",
    "l2": "bytes from and to L2",
    "dram": "bytes from and to DRAM",
}


def explain(prediction: Prediction) -> str:
    """What one warp does with its time, what the pipes are asked for, and what follows."""
    p = prediction
    if not p.active_warps:
        return f"{p.kernel}: {', '.join(p.notes)}"
    low, high = p.interval
    of_what = "64 warps' work on an SM"
    if p.waves is not None:
        of_what = f"an SM's part of the grid ({p.waves:.1f} waves)"
    known = "as profiled" if p.is_profiled else "by locality"
    lines = [
        f"{p.kernel}: {p.predicted_cycles:,.0f} cycles for {of_what} "
        f"({low:,.0f} to {high:,.0f} {known}), bound by {_word(p.bound_by)}",
        f"  one warp alone takes {p.warp_cycles:,.0f} cycles for {p.warp_instructions:,.0f} "
        f"instructions; {p.active_warps} warps are resident. It loses",
    ]
    for cause, cycles in sorted(p.stalls.items(), key=lambda item: -item[1]):
        lines.append(f"    {cycles:>10,.0f} cycles {_word(cause)}")
    if p.places_awaited:
        lines.append(
            f"  a wait for global memory takes {p.memory_wait_cycles:,.0f} cycles: for the latest "
            f"of {p.places_awaited:.1f} places"
        )
    if p.fetched_from_l2 >= _FETCHED:
        lines.append(
            f"  {100 * p.fetched_from_l2:.0f} % of instructions come from L2: the code between two "
            "executions of one is larger than the instruction caches"
        )
    lines.append(f"  {p.l1_bytes // 1024} KiB are L1 beside shared memory; all warps together use")
    for pipe, share in sorted(p.utilisation.items(), key=lambda item: -item[1])[:_PIPES]:
        lines.append(f"    {100 * share:>10.1f} % of {_word(pipe)}")
    lines.append("  cycles if accesses were " + _cases(p))
    lines.extend(f"  note: {note}" for note in p.notes)
    return "\n".join(lines)


def _word(name: str) -> str:
    return f"{_WORDS[name]} ({name})" if name in _WORDS else name


def _cases(p: Prediction) -> str:
    return ", ".join(f"{name}: {cycles:,.0f}" for name, cycles in p.by_scenario.items())
