"""What to do about a kernel, ranked, each with the evidence that asks for it.

One function a rule: it looks at the report and returns an `Advice` or None. A rule speaks only
where its evidence stands in the report, and names the command or the source change. Gains are
stated as what changes (warps, bytes, registers), not as promised time: what the warps are worth
is for `regdem optimize` to predict and for a GPU to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from regdem.analysis.ilp import LoopParallelism
from regdem.machine import Cliff
from regdem.report.model import Advice, CodeAnalysis, KernelReport, PeakValue

MANY_VALUES = 4
"""Fewer values than this at the peak are not worth a rule."""
UNROLLED_COPIES = 4
SHORT_PEAK_PCT = 10.0


def advise(report: KernelReport) -> tuple[Advice, ...]:
    """All rules that apply, the most valuable first."""
    if report.analysis is None:
        return ()
    found = [advice for rule in RULES if (advice := rule(report, report.analysis)) is not None]
    return tuple(sorted(found, key=lambda advice: (-advice.weight, advice.rule)))


def next_cliff(report: KernelReport) -> Cliff | None:
    """The nearest step with more blocks, where registers are what limits; else None."""
    present = report.occupancy
    if present is None or "registers" not in present.limiters or not present.active_blocks:
        return None
    above = [cliff for cliff in present.cliffs if cliff.active_blocks > present.active_blocks]
    return max(above, key=lambda cliff: cliff.registers_max, default=None)


def main_loops(analysis: CodeAnalysis) -> list[LoopParallelism]:
    """The innermost loops at the greatest depth: where the time is, as far as the code says."""
    inner = analysis.parallelism
    deepest = max((loop.depth for loop in inner), default=0)
    return [loop for loop in inner if loop.depth == deepest]


def wants_warps(report: KernelReport, analysis: CodeAnalysis) -> bool | None:
    """Whether a main loop needs more warps than are resident; None where it can't be told."""
    loops = [loop for loop in main_loops(analysis) if loop.loads]
    if report.occupancy is None or not loops:
        return None
    return any(loop.warps_needed > report.occupancy.active_warps for loop in loops)


def _step(report: KernelReport, cliff: Cliff) -> str:
    present = report.occupancy
    assert present is not None
    return (
        f"{present.active_warps} to {cliff.active_warps} active warps "
        f"({present.occupancy_pct:.0f} to {cliff.occupancy_pct:.0f} %)"
    )


def _renumber(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    cliff = next_cliff(report)
    graph = analysis.interference
    if cliff is None or graph.registers_needed > cliff.registers_max:
        return None
    return Advice(
        rule="renumber",
        message=f"{report.registers_per_thread} registers are allocated, but a colouring needs "
        f"{graph.registers_needed}: renumbering alone reaches the cliff at {cliff.registers_max}.",
        evidence={
            "registers_per_thread": report.registers_per_thread,
            "max_live_gpr": analysis.pressure.peak,
            "colours": graph.colours,
            "cliff_registers": cliff.registers_max,
        },
        gain=_step(report, cliff),
        action=f"regdem demote FILE -o OUT --kernel {report.name} "
        f"--registers {cliff.registers_max} --threads {report.threads}",
        weight=90,
    )


def _cross_cliff(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    cliff = next_cliff(report)
    if cliff is None or analysis.interference.registers_needed <= cliff.registers_max:
        return None
    if wants_warps(report, analysis) is False:
        return None
    excess = analysis.interference.registers_needed - cliff.registers_max
    if excess > cliff.slots_per_thread:
        return None
    return Advice(
        rule="cross_cliff",
        message=f"The cliff at {cliff.registers_max} registers is "
        f"{report.registers_per_thread - cliff.registers_max} below; about {excess} values have "
        f"to leave the peak, and {cliff.slots_per_thread} slots per thread lie idle in shared "
        "memory there.",
        evidence={
            "registers_per_thread": report.registers_per_thread,
            "registers_needed": analysis.interference.registers_needed,
            "cliff_registers": cliff.registers_max,
            "slots_per_thread": cliff.slots_per_thread,
            "warps_needed": max((loop.warps_needed for loop in main_loops(analysis)), default=None),
        },
        gain=_step(report, cliff),
        action=f"regdem demote FILE -o OUT --kernel {report.name} "
        f"--registers {cliff.registers_max} --threads {report.threads}",
        weight=80 - excess,
    )


def _stop_chasing(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    present = report.occupancy
    if present is None or wants_warps(report, analysis) is not False:
        return None
    loops = [loop for loop in main_loops(analysis) if loop.loads]
    needed = max(loop.warps_needed for loop in loops)
    spare = max(
        (c.registers_max for c in present.cliffs if c.active_warps >= needed),
        default=report.registers_per_thread,
    )
    return Advice(
        rule="stop_chasing_occupancy",
        message=f"{needed} warps cover the waits of the main loop and {present.active_warps} are "
        f"resident: more warps would not help. Up to {spare} registers per thread keep enough.",
        evidence={
            "warps_needed": needed,
            "active_warps": present.active_warps,
            "loads_in_flight": max(loop.loads_in_flight for loop in loops),
            "register_budget": spare,
        },
        gain=f"{spare - report.registers_per_thread} registers per thread to spend on unrolling",
        action="unroll or prefetch more in the main loop instead of lowering registers",
        weight=30,
    )


def _spills_in_loop(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    hot = [site for site in analysis.spills.hot if site.space == "local"]
    if not hot:
        return None
    total = sum(site.bytes_per_thread for site in hot)
    threads = f" --threads {report.threads}" if report.threads else ""
    return Advice(
        rule="promote_spills",
        message=f"{len(hot)} spill accesses to local memory run inside loops, {total} bytes per "
        "thread and iteration; in shared memory they would not go through L1 and L2.",
        evidence={
            "sites_in_loops": len(hot),
            "bytes_per_iteration": total,
            "deepest_loop": max(site.loop_depth for site in hot),
            "offsets": [site.offset for site in hot[:16]],
        },
        gain=f"{total} bytes per thread and iteration off the memory path",
        action=f"regdem promote FILE -o OUT --kernel {report.name}{threads}",
        weight=85,
    )


def _partial_unroll(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    copies = unrolled_copies(report)
    if copies is None:
        return None
    place, count = copies
    spilling = bool(analysis.spills.spills.spill_sites)
    if not spilling and next_cliff(report) is None:
        return None
    return Advice(
        rule="partial_unroll",
        message=f"{place} stands in the code {count} times, so its loop was unrolled, and the "
        f"copies' values are live together: {analysis.pressure.peak} at the peak"
        + (", some of them spilled." if spilling else "."),
        evidence={"source": place, "copies": count, "peak_gpr": analysis.pressure.peak},
        gain="fewer values live at once",
        action=f"#pragma unroll {max(1, count // 4)} on that loop, or less",
        weight=70 if spilling else 40,
    )


def unrolled_copies(report: KernelReport) -> tuple[str, int] | None:
    """The source line whose loads stand most often in the code, and how often; from 4 times on."""
    if report.analysis is None:
        return None
    best = report.analysis.repeated_line
    return best if best is not None and best[1] >= UNROLLED_COPIES else None


def _dynamic_array(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    arrays = [site for site in analysis.spills.spills.sites if site.kind == "array"]
    if not arrays:
        return None
    places = sorted(
        {str(line) for site in arrays if (line := analysis.spills.sources.get(site.offset))}
    )
    return Advice(
        rule="dynamic_array",
        message=f"An array of {report.local_bytes} bytes per thread is indexed at run time, so it "
        f"lives in local memory: {len(arrays)} accesses. No register count removes them.",
        evidence={
            "local_bytes": report.local_bytes,
            "accesses": len(arrays),
            "in_loops": sum(1 for site in arrays if site.loop_depth),
            "sources": places[:8],
        },
        gain=f"{len(arrays)} local accesses",
        action="index it by constants (unroll the loops over it), or keep it in shared memory",
        weight=60 if any(site.loop_depth for site in arrays) else 20,
    )


def _recompute(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    values = _of_kind(analysis, ("constant", "recomputable", "warp_uniform"))
    if len(values) < MANY_VALUES or next_cliff(report) is None:
        return None
    return Advice(
        rule="recompute",
        message=f"{len(values)} of the {analysis.pressure.peak} values at the peak cost one cheap "
        "instruction each: immediates, kernel parameters, special or uniform registers.",
        evidence={"registers": [value.register for value in values[:16]], "count": len(values)},
        gain=f"up to {len(values)} registers at the peak",
        action="regdem demote recomputes them before it uses slots",
        weight=45,
    )


def _shorten(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    held = sorted(_of_kind(analysis, ("held",)), key=lambda value: -value.length)
    if len(held) < MANY_VALUES or next_cliff(report) is None:
        return None
    where = [str(value.source) for value in held[:4] if value.source]
    return Advice(
        rule="shorten_live_range",
        message=f"{len(held)} values at the peak are only held for later; the longest lives for "
        f"{held[0].length} instructions"
        + (f" (from {', '.join(dict.fromkeys(where))})." if where else "."),
        evidence={
            "count": len(held),
            "longest": [
                {"register": v.register, "length": v.length, "definitions": list(v.definitions)}
                for v in held[:8]
            ],
        },
        gain=f"up to {len(held)} registers at the peak",
        action="load or compute them after the peak; regdem demote takes these first",
        weight=44,
    )


def _split_peak(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    pressure = analysis.pressure
    near = sum(1 for live in pressure.curve if live > pressure.peak - 8)
    share = 100.0 * near / max(1, len(pressure.curve))
    if share > SHORT_PEAK_PCT or len(pressure.curve) < 100 or next_cliff(report) is None:
        return None
    place = f" ({pressure.peak_source})" if pressure.peak_source else ""
    return Advice(
        rule="split_peak",
        message=f"Only {share:.1f} % of the instructions come within 8 registers of the peak at "
        f"0x{pressure.peak_offset:x}{place}: the peak sets the cost for all.",
        evidence={
            "near_peak_pct": round(share, 1),
            "peak_offset": pressure.peak_offset,
            "peak_loop_depth": pressure.peak_loop_depth,
        },
        gain="the registers of the rest of the kernel",
        action="split that region off into a kernel of its own, or order its work to need less",
        weight=35 if pressure.peak_loop_depth == 0 else 15,
    )


def _accumulators(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    cliff = next_cliff(report)
    if cliff is None or analysis.pressure.peak_loop_depth == 0:
        return None
    sums = [
        value
        for value in analysis.pressure.values
        if value.kind == "working" and set(value.definitions) & set(value.uses)
    ]
    if len(sums) < 2 * MANY_VALUES:
        return None
    return Advice(
        rule="accumulators",
        message=f"{len(sums)} accumulators are live in the loop at the peak; a sum that is only "
        "added to can wait in shared memory between iterations.",
        evidence={"registers": [value.register for value in sums[:32]], "count": len(sums)},
        gain=_step(report, cliff),
        action="keep the rarest accumulators in shared memory, or let regdem demote choose",
        weight=25,
    )


def _of_kind(analysis: CodeAnalysis, kinds: Iterable[str]) -> list[PeakValue]:
    wanted = set(kinds)
    return [value for value in analysis.pressure.values if value.kind in wanted]


Rule = Callable[[KernelReport, CodeAnalysis], Advice | None]

RULES: tuple[Rule, ...] = (
    _renumber,
    _spills_in_loop,
    _cross_cliff,
    _partial_unroll,
    _dynamic_array,
    _recompute,
    _shorten,
    _split_peak,
    _stop_chasing,
    _accumulators,
)
