"""What to do about a kernel, ranked, each with the evidence that asks for it.

One function a rule: it looks at the report and returns an `Advice` or None. A rule speaks only
where its evidence stands in the report, and names the command or the source change. Rules that lead
below a cliff, or spills into shared memory, carry the predictor's estimate as their gain and are
ranked by it; where it says that nothing is won they are silent, and `stop_chasing_occupancy` says
why. Where the predictor was not asked, gains are what changes (warps, bytes, registers).

`partial_unroll` is a question and names no factor. Copies of a line multiply those of nested loops,
and whether a loop indexes an array that only its full unroll keeps in registers can't be told from
one build: a number could mean more unrolling than there is, and obeying it local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from regdem.analysis.ilp import LoopParallelism
from regdem.machine import Cliff, Occupancy, slots_that_fit
from regdem.report.commands import launch_options
from regdem.report.copies import COPIES, most_repeated
from regdem.report.model import Advice, CodeAnalysis, Forecast, KernelReport, PeakValue

MANY_VALUES = 4
"""Fewer values than this at the peak are not worth a rule."""
UNCERTAIN_GAIN = 1.02
"""A typical gain from here on that is not safe is worth a measurement."""
SHORT_PEAK_PCT = 10.0
UNPREDICTED_WEIGHT = 10
"""Of a question that the code can't answer: below all advice with a prediction."""
FAR_ABOVE = 1.25
"""A bound from here on leaves room for what demotion costs: the rewrite is worth naming itself."""


def advise(report: KernelReport) -> tuple[Advice, ...]:
    """All rules that apply, the most valuable first."""
    if report.analysis is None:
        return ()
    if report.unlaunchable is not None:
        return (_other_block(report, report.unlaunchable),)
    found = [advice for rule in RULES if (advice := rule(report, report.analysis)) is not None]
    return tuple(sorted(found, key=lambda advice: (-advice.weight, advice.rule)))


def cliffs_below(report: KernelReport) -> list[Cliff]:
    """The steps with more blocks, the nearest first, where registers are what limits."""
    present = report.occupancy
    if present is None or "registers" not in present.limiters or not present.active_blocks:
        return []
    above = [cliff for cliff in present.cliffs if cliff.active_blocks > present.active_blocks]
    return sorted(above, key=lambda cliff: -cliff.registers_max)


def next_cliff(report: KernelReport) -> Cliff | None:
    """The step to go to: the best of those predicted to pay, else the nearest."""
    cliffs = cliffs_below(report)
    best = _best(report)
    if best is not None and best.pays:
        return next((cliff for cliff in cliffs if cliff.registers_max == best.registers), None)
    return cliffs[0] if cliffs else None


def _best(report: KernelReport) -> Forecast | None:
    """The forecast of the best step that slots allow: one that pays if there is one."""
    steps = [
        each
        for each in report.forecasts or ()
        if each.kind == "renumber" or (each.kind == "demote" and _has_slots(report, each))
    ]
    return max(steps, key=lambda each: (each.pays, each.speedup), default=None)


def _has_slots(report: KernelReport, step: Forecast) -> bool:
    """Whether static shared memory holds a slot for every value too many, and their address."""
    if report.analysis is None or report.occupancy is None:
        return True
    excess = report.analysis.interference.registers_needed + 1 - step.registers
    cliffs = [c for c in report.occupancy.cliffs if c.registers_max >= step.registers]
    return not cliffs or excess <= slots_at(report.occupancy, cliffs[-1])


def slots_at(present: Occupancy, cliff: Cliff) -> int:
    """Slots per thread that `regdem demote` may use there, without the host's help."""
    return slots_that_fit(present.launch, cliff.active_blocks)


def _other_block(report: KernelReport, reason: str) -> Advice:
    return Advice(
        rule="block_not_allowed",
        message=f"The kernel {reason}: nothing here is about a launch that runs.",
        evidence={"threads": report.threads},
        gain="answers for a launch that runs",
        action="give the --threads of the launch, or change __launch_bounds__",
    )


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


def _pays(report: KernelReport) -> bool:
    """Whether crossing the next cliff is worth it, as far as the predictor was asked."""
    forecast = _best(report)
    return forecast is None or forecast.pays


def _gain(report: KernelReport, cliff: Cliff) -> str:
    forecast = _best(report)
    step = _step(report, cliff)
    if forecast is None:
        return f"{step}; not predicted here: regdem predict, or regdem optimize"
    if forecast.kind != "demote":
        return f"{forecast.words}: {step}"
    return (
        f"{forecast.words}, before what demotion costs beyond about "
        f"{forecast.inserted_instructions:.0f} inserted instructions a warp: {step}"
    )


def _weight(forecast: Forecast | None, default: float) -> float:
    """Predicted gains are ranked by size: 2 % and 50 % are 61 and 85."""
    if forecast is None:
        return default
    return min(100.0, 60.0 + 50.0 * (forecast.speedup - 1.0))


def _renumber(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    cliff = next_cliff(report)
    graph = analysis.interference
    if cliff is None or graph.registers_needed > cliff.registers_max or not _pays(report):
        return None
    forecast = _best(report)
    return Advice(
        rule="renumber",
        message=f"{report.registers_per_thread} registers are allocated, but a colouring needs "
        f"{graph.registers_needed}: renumbering alone reaches the cliff at {cliff.registers_max}.",
        evidence={
            "registers_per_thread": report.registers_per_thread,
            "max_live_gpr": analysis.pressure.peak,
            "colours": graph.colours,
            "cliff_registers": cliff.registers_max,
            "forecast": forecast.to_dict() if forecast else None,
        },
        gain=_gain(report, cliff),
        action=f"regdem demote FILE -o OUT --kernel {report.name} "
        f"--registers {cliff.registers_max}{launch_options(report)}",
        weight=_weight(forecast, 58),
    )


def _passed_over(report: KernelReport, chosen: Cliff) -> str:
    """What is predicted of nearer steps than the one advised; a blank in front."""
    said: list[str] = []
    for cliff in cliffs_below(report):
        if cliff.registers_max <= chosen.registers_max:
            break
        step = next((f for f in report.forecasts or () if f.registers == cliff.registers_max), None)
        words = step.words if step is not None else "not predicted"
        said.append(f" The nearer cliff at {cliff.registers_max} is {words}.")
    return "".join(said)


def _cross_cliff(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    cliff = next_cliff(report)
    present = report.occupancy
    if cliff is None or present is None:
        return None
    if analysis.interference.registers_needed <= cliff.registers_max:
        return None
    forecast = _best(report)
    if not _pays(report) or (forecast is None and wants_warps(report, analysis) is False):
        return None
    excess = analysis.interference.registers_needed - cliff.registers_max
    slots = slots_at(present, cliff)
    if excess + 1 > slots:
        return None
    optimize = f"regdem optimize FILE -o OUT --kernel {report.name}{launch_options(report)}"
    action = f"{optimize}, which makes, proves and predicts every way there"
    if forecast is not None and forecast.speedup >= FAR_ABOVE:
        action = (
            f"regdem demote FILE -o OUT --kernel {report.name} "
            f"--registers {cliff.registers_max}{launch_options(report)}, or {action}"
        )
    return Advice(
        rule="cross_cliff",
        message=f"The cliff at {cliff.registers_max} registers is "
        f"{report.registers_per_thread - cliff.registers_max} below; about {excess} values have "
        f"to leave the peak, and {slots} slots per thread fit into shared memory there."
        + _passed_over(report, cliff),
        evidence={
            "registers_per_thread": report.registers_per_thread,
            "registers_needed": analysis.interference.registers_needed,
            "cliff_registers": cliff.registers_max,
            "slots_per_thread": slots,
            "warps_needed": max((loop.warps_needed for loop in main_loops(analysis)), default=None),
            "forecast": forecast.to_dict() if forecast else None,
        },
        gain=_gain(report, cliff),
        action=action,
        weight=_weight(forecast, 55 - excess),
    )


def _stop_chasing(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    present = report.occupancy
    if present is None:
        return None
    forecast = _best(report)
    if forecast is not None:
        if forecast.pays:
            return None
        is_open = forecast.speedup >= UNCERTAIN_GAIN
        return (_too_uncertain if is_open else _not_predicted_faster)(report, forecast)
    if wants_warps(report, analysis) is not False:
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


def _too_uncertain(report: KernelReport, forecast: Forecast) -> Advice:
    present = report.occupancy
    assert present is not None
    return Advice(
        rule="measure_cliff",
        message=f"With {forecast.active_warps} warps instead of {present.active_warps}, at "
        f"{forecast.registers} registers, it is {forecast.words}: that depends on where memory "
        "accesses go, which the code does not say.",
        evidence={"active_warps": present.active_warps, "forecast": forecast.to_dict()},
        gain=f"{forecast.words}, not safely",
        action=f"regdem optimize FILE -o OUT --all-variants DIR --kernel {report.name}"
        f"{launch_options(report)}, and measure; or regdem tune",
        weight=28,
    )


def _not_predicted_faster(report: KernelReport, forecast: Forecast) -> Advice:
    present = report.occupancy
    assert present is not None
    inserted = (
        f", about {forecast.inserted_instructions:.0f} inserted instructions a warp counted in"
        if forecast.inserted_instructions
        else ""
    )
    return Advice(
        rule="stop_chasing_occupancy",
        message=f"More warps would not help: with {forecast.active_warps} instead of "
        f"{present.active_warps}, at {forecast.registers} registers, it is {forecast.words}"
        f"{inserted}; the kernel is bound by {forecast.bound_by.replace('_', ' ')}.",
        evidence={
            "active_warps": present.active_warps,
            "forecast": forecast.to_dict(),
        },
        gain="none from more warps",
        action="spend the effort on what bounds it: regdem predict FILE --explain --kernel "
        f"{report.name}{launch_options(report)} shows the sum",
        weight=30,
    )


def _spills_promoted(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    """Spills inside loops, unless that is predicted slower; others where it is predicted faster."""
    found = analysis.spills
    sites = [s for s in found.spills.spill_sites if s.space == "local" and s.is_counted]
    hot = [site for site in sites if site.loop_depth]
    present = report.occupancy
    forecast = report.forecast("promote")
    if forecast is not None and forecast.speedup < (1.0 if hot else UNCERTAIN_GAIN):
        return None
    if not sites or analysis.frame_reason or (report.forecasts is None and not hot):
        return None
    fit = slots_that_fit(present.launch, present.active_blocks) if present is not None else None
    if fit == 0:
        return None
    gain = f"{forecast.words}: " if forecast else ""
    action = f"regdem promote FILE -o OUT --kernel {report.name}{launch_options(report)}"
    if forecast is None and report.forecasts is not None:
        gain = f"not predicted here, as only {fit} slots per thread fit: up to "
        action = (
            f"regdem optimize FILE -o OUT --kernel {report.name}{launch_options(report)}, which "
            "promotes what fits, proves and predicts it"
        )
    shown = hot or sites
    total = sum(site.bytes_per_thread for site in shown)
    place, unit = ("inside loops", " and iteration") if hot else ("outside loops", "")
    return Advice(
        rule="promote_spills",
        message=f"{len(shown)} spill accesses to local memory run {place}, {total} bytes per "
        f"thread{unit}; in shared memory they would not go through L1 and L2.",
        evidence={
            "sites": len(sites),
            "sites_in_loops": len(hot),
            "bytes_per_iteration": total if hot else 0,
            "deepest_loop": max(site.loop_depth for site in shown),
            "offsets": [site.offset for site in shown[:16]],
            "forecast": forecast.to_dict() if forecast else None,
        },
        gain=f"{gain}{total} bytes per thread{unit} off the memory path",
        action=action,
        weight=_weight(forecast, 59 if hot else 29),
    )


def _partial_unroll(report: KernelReport, analysis: CodeAnalysis) -> Advice | None:
    line = most_repeated(analysis.line_loads)
    if line is None or line.copies < COPIES:
        return None
    spilling = bool(analysis.spills.spills.spill_sites)
    if not spilling and (next_cliff(report) is None or not _pays(report)):
        return None
    return Advice(
        rule="partial_unroll",
        message=f"Would less unrolling help? Loads of {line.source} stand in the code "
        f"{line.copies} times (turns of nested loops multiply, and a line may have several "
        f"loads), and {analysis.pressure.peak} values are live at the peak"
        + (", some of them spilled." if spilling else "."),
        evidence={
            "source": str(line.source),
            "copies": line.copies,
            "peak_gpr": analysis.pressure.peak,
        },
        gain="not predicted: fewer values live at once, but fewer loads in flight; and an array "
        "in registers that the loop indexes would move to local memory",
        action="only where that loop indexes no array kept in registers: try a smaller factor than "
        "it has now, and compare by regdem diff; regdem study unroll tries several",
        weight=UNPREDICTED_WEIGHT,
    )


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
    if len(values) < MANY_VALUES or next_cliff(report) is None or not _pays(report):
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
    if len(held) < MANY_VALUES or next_cliff(report) is None or not _pays(report):
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
    if share > SHORT_PEAK_PCT or len(pressure.curve) < 100:
        return None
    if next_cliff(report) is None or not _pays(report):
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
    if cliff is None or analysis.pressure.peak_loop_depth == 0 or not _pays(report):
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
        gain=_gain(report, cliff),
        action="keep the rarest accumulators in shared memory, or let regdem demote choose",
        weight=25,
    )


def _of_kind(analysis: CodeAnalysis, kinds: Iterable[str]) -> list[PeakValue]:
    wanted = set(kinds)
    return [value for value in analysis.pressure.values if value.kind in wanted]


Rule = Callable[[KernelReport, CodeAnalysis], Advice | None]

RULES: tuple[Rule, ...] = (
    _renumber,
    _spills_promoted,
    _cross_cliff,
    _partial_unroll,
    _dynamic_array,
    _recompute,
    _shorten,
    _split_peak,
    _stop_chasing,
    _accumulators,
)
