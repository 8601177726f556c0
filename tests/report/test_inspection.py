"""What `inspect` finds, against what the compiler said when it made the files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from regdem.analysis.bits import file_mask
from regdem.analysis.liveness import liveness
from regdem.binary import Cubin, Kernel
from regdem.isa.decoded import RegisterFile
from regdem.machine import BlockShape
from regdem.program.from_kernel import program_of
from regdem.report.advice import advise
from regdem.report.inspection import inspect_kernel, launch_refusal, pressures
from regdem.report.model import Advice, Asked, CodeAnalysis, KernelReport
from regdem.report.text import sparkline, text_report
from regdem.rewrite import Request, most_slots

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def code(report: KernelReport) -> CodeAnalysis:
    assert report.analysis is not None
    return report.analysis


def rules(report: KernelReport) -> list[str]:
    return [advice.rule for advice in report.advice]


def test_example_stands_on_a_cliff(neighbour: KernelReport) -> None:
    assert neighbour.registers_per_thread == 48
    assert neighbour.occupancy is not None
    assert neighbour.occupancy.active_warps == 40
    assert rules(neighbour) == ["stop_chasing_occupancy"]
    assert neighbour.advice[0].evidence["forecast"]["registers"] == 40


def test_distances_to_both_boundaries(neighbour: KernelReport) -> None:
    assert neighbour.boundaries == (8, 0), "48 registers: 40 is the next step, 48 ends this one"
    assert "boundaries   8 registers above the next step with more warps (40)" in text_report(
        neighbour
    )
    assert replace(neighbour, registers_per_thread=44).boundaries == (4, 4)
    assert replace(neighbour, occupancy=None).boundaries == (None, None)


def test_advice_asks_what_the_optimiser_asks(neighbour: KernelReport) -> None:
    """No advice to demote where the predictor sees nothing won; its estimate where it does."""
    step = neighbour.forecast("demote")
    assert step is not None
    assert step.active_warps == 48
    assert not step.pays
    assert "cross_cliff" not in rules(neighbour)
    assert step.words in neighbour.advice[0].message
    fast = replace(step, speedup=1.2, least=1.0, most=1.4, pays=True)
    promised = replace(neighbour, forecasts=(fast,))
    first = advise(promised)[0]
    assert first.rule == "cross_cliff"
    assert first.gain.startswith("predicted at most 1.20 times as fast (1.00 to 1.40), before what")
    assert first.action.startswith(
        "regdem optimize FILE -o OUT --kernel pair_forces --threads 256, which makes"
    ), "a bound is no promise: the rewrite has to be made and predicted"
    far = replace(neighbour, forecasts=(replace(fast, speedup=1.5),))
    assert advise(far)[0].action.startswith(
        "regdem demote FILE -o OUT --kernel pair_forces --registers 40 --threads 256, or regdem"
    )
    assert "stop_chasing_occupancy" not in [advice.rule for advice in advise(promised)]


def test_the_best_step_is_advised(neighbour: KernelReport) -> None:
    near = neighbour.forecast("demote")
    assert near is not None
    far = replace(near, registers=32, speedup=1.3, least=1.0, pays=True)
    first = advise(replace(neighbour, forecasts=(near, far)))[0]
    assert (first.rule, first.evidence["cliff_registers"]) == ("cross_cliff", 32)
    assert f"The nearer cliff at 40 is {near.words}." in first.message


def kernel_of(path: str) -> Kernel:
    (kernel,) = Cubin.parse((EXAMPLES / path).read_bytes(), path).kernels
    return kernel


def test_advice_is_for_the_launch_asked_about(neighbour: KernelReport) -> None:
    """Dynamic shared memory stands in the command, and leaves what static memory has below 48 KiB
    for slots, as for `regdem demote`.
    """
    kernel = kernel_of("neighbour/neighbour.cubin")
    step = neighbour.forecast("demote")
    assert step is not None
    pays = replace(step, speedup=1.5, least=1.0, pays=True)
    dynamic = 36 * 1024 - 512
    report = replace(inspect_kernel(kernel, 512, dynamic, predict=False), forecasts=(pays,))
    request = Request(BlockShape(512), registers=40, dynamic_shared_bytes=dynamic)
    fit = most_slots(kernel, request, 40)
    assert report.occupancy is not None
    (cliff,) = [each for each in report.occupancy.cliffs if each.registers_max == 40]
    assert fit == 6 < cliff.slots_per_thread
    first = advise(report)[0]
    assert first.evidence["slots_per_thread"] == fit
    assert f"and {fit} slots per thread fit" in first.message
    assert first.action.count(f"--threads 512 --dynamic-shared-bytes {dynamic}") == 2
    full = replace(inspect_kernel(kernel, 512, 47 * 1024, predict=False), forecasts=(pays,))
    assert "cross_cliff" not in [each.rule for each in advise(full)]


def test_commands_repeat_what_was_said(neighbour: KernelReport) -> None:
    """The shape of the block, the architecture and the compiler's options, as they were given."""
    kernel = kernel_of("neighbour/neighbour.cubin")
    asked = Asked(BlockShape(16, 16), "sm_90", ("-DUNROLL=2", "-I my include"))
    report = inspect_kernel(kernel, 256, 1024, predict=False, asked=asked)
    words = (
        " --kernel pair_forces --threads 16,16,1 --dynamic-shared-bytes 1024 --arch sm_90"
        " --compile-option=-DUNROLL=2 '--compile-option=-I my include'"
    )
    step = neighbour.forecast("demote")
    assert step is not None
    for forecast in (
        replace(step, speedup=1.2, pays=True),
        replace(step, speedup=1.1, pays=False),
        replace(step, speedup=0.9, pays=False),
    ):
        found = advise(replace(report, forecasts=(forecast,)))
        actions = [each.action for each in found if "regdem" in each.action]
        assert actions[0].startswith(("regdem", "spend the effort"))
        assert words in actions[0]
    plain = advise(replace(neighbour, forecasts=(replace(step, speedup=1.2, pays=True),)))
    assert " --threads 256," in plain[0].action
    assert "--arch" not in plain[0].action


def test_a_block_larger_than_declared_gets_no_commands() -> None:
    kernel = kernel_of("unroll/variance_unrolled.cubin")
    assert inspect_kernel(kernel, 256).unlaunchable is None
    report = inspect_kernel(kernel, 512)
    assert report.unlaunchable == (
        "can't be launched with 512 threads per block: it declares at most 256"
    )
    assert rules(report) == ["block_not_allowed"]
    assert not report.advice[0].action.startswith("regdem")
    assert launch_refusal(replace(kernel, required_block=(64, 2, 1)), 64) == (
        "can't be launched with 64 threads per block: it declares 128"
    )


def test_an_unsafe_gain_is_to_be_measured(neighbour: KernelReport) -> None:
    step = neighbour.forecast("demote")
    assert step is not None
    unsafe = replace(step, speedup=1.1, least=0.8, pays=False)
    found = [each.rule for each in advise(replace(neighbour, forecasts=(unsafe,)))]
    assert found == ["measure_cliff"]


def test_gains_are_not_promised_unasked(neighbour: KernelReport) -> None:
    first = advise(replace(neighbour, forecasts=None))[0]
    assert first.rule == "cross_cliff"
    assert "not predicted here" in first.gain


def test_promotion_carries_its_estimate(unrolled: KernelReport) -> None:
    forecast = unrolled.forecast("promote")
    assert forecast is not None
    assert forecast.speedup > 1.0
    (advice,) = [each for each in unrolled.advice if each.rule == "promote_spills"]
    assert forecast.words in advice.gain
    slower = replace(forecast, speedup=0.9)
    assert "promote_spills" not in [
        each.rule for each in advise(replace(unrolled, forecasts=(slower,)))
    ]


def test_spills_outside_loops_are_promoted_where_that_pays(unrolled: KernelReport) -> None:
    analysis = code(unrolled)
    found = analysis.spills.spills
    sites = tuple(replace(site, loop_depth=0) for site in found.sites)
    spills = replace(analysis.spills, spills=replace(found, sites=sites))
    cold = replace(unrolled, analysis=replace(analysis, spills=spills))
    step = unrolled.forecast("promote")
    assert step is not None

    def promotion(speedup: float) -> list[Advice]:
        faster = replace(cold, forecasts=(replace(step, speedup=speedup),))
        return [each for each in advise(faster) if each.rule == "promote_spills"]

    assert not promotion(1.01)
    (advice,) = promotion(1.6)
    assert "run outside loops, 224 bytes per thread;" in advice.message
    assert advice.gain.startswith("predicted 1.60 times as fast")
    assert not [a for a in advise(replace(cold, forecasts=None)) if a.rule == "promote_spills"]
    (part,) = [a for a in advise(replace(cold, forecasts=())) if a.rule == "promote_spills"]
    assert "slots per thread fit" in part.gain, "the whole frame does not, so it has no estimate"
    assert part.action.startswith("regdem optimize")


def test_a_frame_that_is_not_understood_is_not_promoted(unrolled: KernelReport) -> None:
    """Where `regdem promote` refuses, it is not advised."""
    assert code(unrolled).frame_reason == ""
    moving = replace(code(unrolled), frame_reason="the stack pointer moves")
    found = advise(replace(unrolled, analysis=moving))
    assert "promote_spills" not in [each.rule for each in found]


def test_needed_registers_lie_between_live_and_allocated(
    neighbour: KernelReport, rolled: KernelReport, unrolled: KernelReport
) -> None:
    for report in (neighbour, rolled, unrolled):
        graph = code(report).interference
        assert graph.registers_needed <= report.registers_per_thread
        assert graph.colours >= code(report).pressure.peak - 1
        assert graph.renumbering_saves == report.registers_per_thread - graph.registers_needed


def test_counts_of_all_files_are_those_of_each() -> None:
    for name in ("neighbour/neighbour", "unroll/variance_unrolled"):
        (kernel,) = Cubin.parse((EXAMPLES / f"{name}.cubin").read_bytes()).kernels
        live = liveness(program_of(kernel))
        for file, counts in pressures(live).items():
            assert counts.tolist() == live.pressure(file).tolist()


def test_no_spills_where_there_are_none(neighbour: KernelReport, rolled: KernelReport) -> None:
    for report in (neighbour, rolled):
        assert code(report).spills.spills.sites == ()


def test_spill_bytes_are_those_of_the_compiler(unrolled: KernelReport) -> None:
    """ptxas -v said: 72 bytes stack frame, 120 bytes spill stores, 104 bytes spill loads."""
    spills = code(unrolled).spills
    assert (unrolled.local_bytes, spills.store_bytes, spills.load_bytes) == (72, 120, 104)
    assert spills.spills.annotated
    assert "promote_spills" in rules(unrolled)
    assert "partial_unroll" in rules(unrolled)


def test_less_unrolling_is_asked_about(
    ring_full: KernelReport, taps_unrolled: KernelReport, unrolled: KernelReport
) -> None:
    """Obeyed, a factor takes the ring's array to local memory; of 9 times 12 copies of the taps,
    a quarter is more than their loop has turns. So no number is given, and both risks are.
    """
    for report, copies in ((ring_full, 24), (taps_unrolled, 108), (unrolled, 24)):
        (asked,) = [each for each in report.advice if each.rule == "partial_unroll"]
        assert asked.evidence["copies"] == copies
        assert asked.message.startswith("Would less unrolling help?")
        assert f"stand in the code {copies} times (turns of nested loops multiply" in asked.message
        assert "fewer loads in flight" in asked.gain
        assert "an array in registers that the loop indexes would move" in asked.gain
        assert not any(character.isdigit() for character in asked.gain + asked.action)


def test_a_question_stands_below_predicted_gains(
    ring_full: KernelReport, taps_unrolled: KernelReport
) -> None:
    assert rules(ring_full) == ["promote_spills", "stop_chasing_occupancy", "partial_unroll"]
    assert rules(taps_unrolled) == ["cross_cliff", "accumulators", "partial_unroll"]
    step = ring_full.forecast("demote")
    assert step is not None
    unsafe = replace(step, speedup=1.1, least=0.8, pays=False)
    found = [each.rule for each in advise(replace(ring_full, forecasts=(unsafe,)))]
    assert found[-2:] == ["measure_cliff", "partial_unroll"]


def test_spills_without_annotations(unrolled: KernelReport) -> None:
    """The dataflow finds the same sites when the file does not name them."""
    path = Path(__file__).resolve().parents[2] / "examples" / "unroll" / "variance_unrolled.cubin"
    (kernel,) = Cubin.parse(path.read_bytes()).kernels
    blind = inspect_kernel(replace(kernel, annotations=()))
    assert not code(blind).spills.spills.annotated
    assert code(blind).spills.spills.sites == code(unrolled).spills.spills.sites


def test_arrays_are_no_spills(array: KernelReport) -> None:
    spills = code(array).spills
    assert spills.spills.spill_sites == ()
    assert {site.kind for site in spills.spills.sites} == {"array"}
    assert len(spills.spills.sites) == 28
    assert rules(array)[0] == "dynamic_array"


def test_the_frame_of_an_array_is_not_understood(array: KernelReport) -> None:
    assert code(array).frame_reason == "local memory is reached by a computed address"
    assert array.forecast("promote") is None


def test_shared_spills_are_seen(shared_spills: KernelReport) -> None:
    spills = code(shared_spills).spills
    assert spills.load_bytes == spills.store_bytes == 0
    assert spills.spills.count("shared", store=True) > 10
    assert spills.spills.count("shared", store=False) > 10
    assert all(site.place_bytes is not None for site in spills.spills.sites)


def test_curve_is_the_liveness_of_the_code() -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "neighbour" / "neighbour.cubin"
    (kernel,) = Cubin.parse(path.read_bytes()).kernels
    report = inspect_kernel(kernel)
    live = liveness(program_of(kernel))
    counts = [file_mask(mask, RegisterFile.GPR).bit_count() for mask in live.occupied]
    assert list(code(report).pressure.curve) == counts
    assert code(report).pressure.peak == max(counts)
    assert report.occupancy is None
    assert "give --threads" in text_report(report)


def test_values_at_the_peak_add_up(neighbour: KernelReport) -> None:
    pressure = code(neighbour).pressure
    registers = {value.register for value in pressure.values}
    assert pressure.peak - 1 <= len(registers) <= pressure.peak
    assert all(value.definitions for value in pressure.values)
    assert pressure.peak_source is not None
    assert pressure.peak_source.file.endswith("neighbour.cu")


def test_loops(neighbour: KernelReport, rolled: KernelReport) -> None:
    (loop,) = code(neighbour).parallelism
    assert loop.loads == 8
    assert loop.load_chain >= 2, "the position is gathered through the list"
    assert loop.recurrence_cycles <= loop.warp_cycles
    assert loop.limited_by(40) == "latency"
    assert loop.limited_by(None) == "unknown"
    assert [entry.depth for entry in code(rolled).loops] == [1, 2, 2]


def test_reports_are_deterministic(neighbour: KernelReport) -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "neighbour" / "neighbour.cubin"
    (kernel,) = Cubin.parse(path.read_bytes()).kernels
    assert inspect_kernel(kernel, 256).to_dict() == neighbour.to_dict()


@pytest.mark.parametrize(("values", "line"), [((), ""), ((0, 8, 4), " █▄"), ((1,), "█")])
def test_sparkline(values: tuple[int, ...], line: str) -> None:
    assert sparkline(values) == line


def test_notebook_form_is_escaped(neighbour: KernelReport) -> None:
    html = neighbour._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert html.startswith("<pre>")
    assert "<" not in html[5:-6]
