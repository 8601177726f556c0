"""`regdem plan`: from the latency to hide to the warps needed and the register budget."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import click

from regdem.cli.options import (
    KernelPattern,
    arch_option,
    compile_options,
    debug_option,
    dynamic_shared_option,
    kernel_option,
    output_options,
    threads_option,
)
from regdem.cli.output import Output, dump_json, envelope
from regdem.cli.page import html_page
from regdem.cli.terminal import table
from regdem.errors import UsageError
from regdem.machine import (
    BlockShape,
    Latency,
    Launch,
    RegisterBudget,
    known_archs,
    occupancy,
    register_budget,
)
from regdem.machine.capability import assumed
from regdem.machine.staircase import html_fragment, text_staircase

if TYPE_CHECKING:
    from regdem.analysis.loop_demand import LoopDemand
    from regdem.binary import Kernel

EPILOG = """
Little's law: warps = schedulers * ceil(latency / (issue cycles per load * loads in flight * ILP)).
It says what the latency asks for; a kernel bound by bandwidth or by issue gains nothing from more.
"""


@dataclass(frozen=True)
class KernelPlan:
    """A kernel's budget and the loops it was made from; `ruling` needs the most warps."""

    name: str
    demangled_name: str
    budget: RegisterBudget
    demands: tuple[LoopDemand, ...]
    ruling: LoopDemand | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "name": self.name,
            "demangled_name": self.demangled_name,
            **self.budget.to_dict(),
            "loops": [demand.to_dict() for demand in self.demands],
            "ruling_loop_offset": None if self.ruling is None else self.ruling.start_offset,
        }


@click.command("plan", epilog=EPILOG, short_help="Backward from a latency to a register budget.")
@click.argument("file", required=False)
@arch_option(allow_all=True)
@threads_option()
@kernel_option
@click.option(
    "--latency-cycles",
    type=float,
    metavar="L",
    help="From a load to its value; with FILE 600 if not given.",
)
@click.option(
    "--issue-cycles-per-load",
    type=float,
    metavar="I",
    help="Cycles of its scheduler a warp takes for each load: instructions between loads.",
)
@click.option("--ilp", type=float, metavar="K", help="Independent chains. [1]")
@click.option(
    "--loads-in-flight", type=float, metavar="M", help="Independent loads of a chain. [1]"
)
@click.option("--warps", type=int, metavar="W", help="Warps needed per SM, in place of a latency.")
@click.option("--registers", type=int, metavar="R", help="The kernel's count, to compare with.")
@click.option("--static-shared-bytes", type=int, metavar="S", help="Per block. [0]")
@dynamic_shared_option
@click.option("--barriers", type=int, metavar="B", help="Named barriers. [0]")
@compile_options
@output_options("text", "json", "html")
@debug_option
def command(
    *,
    file: str | None,
    arch: str | None,
    threads: BlockShape | None,
    kernel: KernelPattern | None,
    compile_options: tuple[str, ...],
    output: Output,
    latency_cycles: float | None,
    issue_cycles_per_load: float | None,
    ilp: float | None,
    loads_in_flight: float | None,
    warps: int | None,
    **numbers: Any,
) -> None:
    """Work backward from the latency to hide: warps needed, register budget, and why.

    From numbers (--arch, --threads and a latency), or from the innermost loops of the kernels of
    FILE: instructions and loads are counted there, and waits on their scoreboards.
    """
    if file is not None:
        if issue_cycles_per_load is not None or ilp is not None or loads_in_flight is not None:
            raise UsageError("with a FILE, issue cycles and loads are read from its loops")
        if arch == "all":
            raise UsageError("--arch all compares numbers, not files", file=file)
        plans, head = _of_file(
            file, kernel, arch, threads, latency_cycles, warps, numbers, compile_options
        )
        _emit_kernels(output, plans, head)
        return
    if arch is None or threads is None:
        raise UsageError("--arch and --threads are needed", hint="or give a FILE")
    latency = _latency(latency_cycles, issue_cycles_per_load, ilp, loads_in_flight)
    budgets = [
        register_budget(_launch(name, threads.threads, numbers), latency=latency, warps=warps)
        for name in (known_archs() if arch == "all" else (arch,))
    ]
    output.emit(
        text=lambda: _text(budgets),
        json=lambda: dump_json(envelope(_body(budgets, compared=arch == "all"))),
        html=lambda: html_page("Register budget", "\n".join(map(_html, budgets))),
    )


def _launch(arch: str, threads: int, numbers: dict[str, Any]) -> Launch:
    given = {key: value for key, value in numbers.items() if value is not None}
    return occupancy(arch, threads, **given).launch


def _of_file(
    path: str,
    pattern: KernelPattern | None,
    arch: str | None,
    threads: BlockShape | None,
    latency_cycles: float | None,
    warps: int | None,
    numbers: dict[str, Any],
    options: tuple[str, ...],
) -> tuple[list[KernelPlan], dict[str, Any]]:
    from regdem.cli.kernels import (
        Refusals,
        file_kernels,
        launch_threads,
        note_open_dynamic_shared,
        note_refused_launches,
        understood,
    )

    located, head = file_kernels(path, pattern, options)
    refusals = Refusals()
    plans: list[KernelPlan] = []
    for place in located if warps is not None else understood(located, path):
        kernel = place.kernel
        read = {
            "registers": kernel.registers_per_thread,
            "static_shared_bytes": kernel.static_shared_bytes,
            "barriers": kernel.barriers,
        }
        values = read | {key: value for key, value in numbers.items() if value is not None}
        count = threads.threads if threads else launch_threads(place, path)
        launch = _launch(arch or kernel.arch, count, values)
        with refusals.kept(kernel.name):
            plans.append(_plan_kernel(kernel, launch, latency_cycles, warps))
    refusals.settle(len(plans))
    note_refused_launches((place.kernel, threads.threads if threads else None) for place in located)
    note_open_dynamic_shared(place.kernel for place in located)
    return plans, envelope({"input": head})


def _plan_kernel(
    kernel: Kernel, launch: Launch, latency_cycles: float | None, warps: int | None
) -> KernelPlan:
    """The budget that the neediest of the deepest loops asks for, remainders left out."""
    if warps is not None:
        budget = register_budget(launch, warps=warps)
        return KernelPlan(kernel.name, kernel.demangled_name, budget, (), None)
    from regdem.analysis.loop_demand import loop_demands
    from regdem.cli.kernels import kernel_program

    cycles = assumed("global_latency_cycles")[0] if latency_cycles is None else latency_cycles
    demands = loop_demands(kernel_program(kernel))
    whole = [demand for demand in demands if demand.remainder_of_offset is None]
    deepest = max(demand.depth for demand in whole)
    schedulers = launch.sm.sub_partitions
    ruling = max(
        (demand for demand in whole if demand.depth == deepest),
        key=lambda demand: _loop_latency(demand, cycles).warps_needed(schedulers),
    )
    budget = register_budget(launch, latency=_loop_latency(ruling, cycles))
    return KernelPlan(kernel.name, kernel.demangled_name, budget, demands, ruling)


def _loop_latency(demand: LoopDemand, cycles: float) -> Latency:
    if demand.loads == 0:
        # Nothing to wait for but its own pipes: cover the stall counts.
        return Latency(max(1, demand.stall_cycles), demand.instructions)
    return Latency(cycles, demand.issue_cycles_per_load, loads_in_flight=demand.loads_in_flight)


def _emit_kernels(output: Output, plans: list[KernelPlan], head: dict[str, Any]) -> None:
    output.emit(
        text=lambda: "\n".join(_kernel_text(plan) for plan in plans),
        json=lambda: dump_json(head | {"kernels": [plan.to_dict() for plan in plans]}),
        html=lambda: html_page(
            "Register budgets",
            "\n".join(
                f"<h2><code>{escape(plan.demangled_name)}</code></h2>"
                f"<p>{escape(_ruling_text(plan))}</p>{_html(plan.budget)}"
                for plan in plans
            ),
        ),
    )


def _kernel_text(plan: KernelPlan) -> str:
    return f"{plan.demangled_name}\n{_ruling_text(plan)}\n{_text([plan.budget])}"


def _ruling_text(plan: KernelPlan) -> str:
    demand = plan.ruling
    if demand is None:
        return "From the warps given."
    where = (
        f"Loop 0x{demand.start_offset:x} to 0x{demand.end_offset:x} (depth {demand.depth})"
        if demand.depth
        else "No loop; the whole kernel"
    )
    counts = f"{where}: {demand.instructions} instructions, {demand.loads} loads"
    if demand.loads == 0:
        return f"{counts}; only the pipes' own latencies to hide."
    times = "once" if demand.stalls == 1 else f"{demand.stalls} times"
    return f"{counts}, waiting for them {times}."


def _latency(
    cycles: float | None, issue: float | None, ilp: float | None, in_flight: float | None
) -> Latency | None:
    if cycles is None and issue is None:
        if ilp is not None or in_flight is not None:
            raise UsageError("--ilp and --loads-in-flight need --latency-cycles")
        return None
    if cycles is None or issue is None:
        raise UsageError("--latency-cycles and --issue-cycles-per-load go together")
    return Latency(cycles, issue, 1 if ilp is None else ilp, 1 if in_flight is None else in_flight)


def _body(budgets: list[RegisterBudget], *, compared: bool) -> dict[str, Any]:
    if compared:
        return {"archs": [budget.to_dict() for budget in budgets]}
    return budgets[0].to_dict()


def _text(budgets: list[RegisterBudget]) -> str:
    if len(budgets) > 1:
        header = ["arch", "warps needed", "of", "registers", "blocks", "warps", "%"]
        rows = [
            [
                budget.launch.arch,
                budget.warps_needed,
                budget.at_budget.max_warps,
                budget.register_budget,
                budget.at_budget.active_blocks,
                budget.at_budget.active_warps,
                f"{budget.at_budget.occupancy_pct:.1f}",
            ]
            for budget in budgets
        ]
        return table(header, rows)
    (budget,) = budgets
    lines = [
        f"warps needed     {budget.warps_needed} of {budget.at_budget.max_warps} per SM",
        f"register budget  {budget.register_budget} per thread",
        f"                 = {budget.formula}",
        budget.reason,
    ]
    if budget.registers_to_remove is not None:
        over = budget.registers_to_remove
        lines.append(
            f"The kernel uses {budget.launch.registers}: "
            + (f"{over} above the budget." if over else "within the budget.")
        )
    return "\n".join(lines) + "\n\n" + text_staircase(budget.at_budget)


def _html(budget: RegisterBudget) -> str:
    return f"{budget.to_html()}{html_fragment(budget.at_budget)}"
