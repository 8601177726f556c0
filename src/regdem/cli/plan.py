"""`regdem plan`: from the latency to hide to the warps needed and the register budget."""

from __future__ import annotations

from typing import Any

import click

from regdem.cli.options import (
    arch_option,
    debug_option,
    dynamic_shared_option,
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
    RegisterBudget,
    known_archs,
    occupancy,
    register_budget,
)
from regdem.machine.staircase import html_fragment, text_staircase

EPILOG = """
Little's law: warps = schedulers * ceil(latency / (issue cycles per load * loads in flight * ILP)).
It says what the latency asks for; a kernel bound by bandwidth or by issue gains nothing from more.
"""


@click.command("plan", epilog=EPILOG, short_help="Backward from a latency to a register budget.")
@arch_option(allow_all=True)
@threads_option()
@click.option("--latency-cycles", type=float, metavar="L", help="From a load to its first use.")
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
@click.option("--static-shared-bytes", type=int, default=0, metavar="S", help="Per block. [0]")
@dynamic_shared_option
@click.option("--barriers", type=int, default=0, metavar="B", help="Named barriers. [0]")
@output_options("text", "json", "html")
@debug_option
def command(
    *,
    arch: str | None,
    threads: BlockShape | None,
    output: Output,
    latency_cycles: float | None,
    issue_cycles_per_load: float | None,
    ilp: float | None,
    loads_in_flight: float | None,
    warps: int | None,
    **numbers: Any,
) -> None:
    """Work backward from the latency to hide: warps needed, register budget, and why."""
    if arch is None or threads is None:
        raise UsageError("--arch and --threads are needed")
    latency = _latency(latency_cycles, issue_cycles_per_load, ilp, loads_in_flight)
    archs = known_archs() if arch == "all" else (arch,)
    budgets = [
        register_budget(
            occupancy(name, threads.threads, **numbers).launch, latency=latency, warps=warps
        )
        for name in archs
    ]
    output.emit(
        text=lambda: _text(budgets),
        json=lambda: dump_json(envelope(_body(budgets, compared=arch == "all"))),
        html=lambda: html_page("Register budget", "\n".join(map(_html, budgets))),
    )


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
