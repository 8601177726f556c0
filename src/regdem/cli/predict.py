"""`regdem predict`: predicted cycles of kernels in any number of files, ranked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from regdem.cli.kernels import (
    Refusals,
    file_kernels,
    kernel_program,
    launch_threads,
    note_open_dynamic_shared,
    note_refused_launches,
    understood,
)
from regdem.cli.options import (
    KernelPattern,
    arch_option,
    compile_options,
    debug_option,
    dynamic_shared_option,
    grid_blocks_option,
    kernel_option,
    output_options,
    profile_option,
    threads_option,
    trip_count_option,
)
from regdem.cli.output import Output, dump_json, envelope
from regdem.machine import BlockShape, block_shape

if TYPE_CHECKING:
    from regdem.api import Located
    from regdem.predict.model import Prediction


class Row(NamedTuple):
    """One kernel of one file. `cycles`: by the model asked for; `work`: what a run of it does, over
    what the same kernel of the first file does, where loops are unrolled otherwise; `gains`:
    speed-up over that one, typical, least and most."""

    file: str
    place: Located
    prediction: Prediction
    cycles: float
    work: float
    gains: tuple[float, float, float]

    @property
    def key(self) -> float:
        """What it is ranked by."""
        return self.cycles / self.work


EPILOG = """
Cycles are for 64 warps' work on one SM, or for an SM's part of the launch with --grid-blocks. They
rank variants of one kernel (kernels of other names are ranked apart); they are no measurement.
Speed-ups are over the same kernel in the first file, with the interval over assumptions about
locality. Loops that are unrolled otherwise than there are compared by the work that they do, which
is known less well: a loop for what turns remain counts like any other.

--profile takes a JSON or CSV export of ncu of the first file's kernel (issue slots, L1, L2 and DRAM
throughput, stall reasons), or latency-bound, memory-bound, issue-bound. --model paper is the RegDem
paper's formula.
"""


@click.command("predict", epilog=EPILOG, short_help="Rank files by predicted cycles.")
@click.argument("files", nargs=-1, required=True)
@kernel_option
@threads_option()
@dynamic_shared_option
@grid_blocks_option
@trip_count_option
@click.option(
    "--model", type=click.Choice(["throughput", "paper"]), default="throughput", show_default=True,
    help="What to rank by.",
)  # fmt: skip
@profile_option
@arch_option()
@compile_options
@click.option("--explain", is_flag=True, help="Show the sum for each kernel.")
@output_options("text", "json")
@debug_option
def command(
    *,
    files: tuple[str, ...],
    kernel: KernelPattern | None,
    threads: BlockShape | None,
    dynamic_shared_bytes: int,
    grid_blocks: int | None,
    trip_count: float,
    model: str,
    profile_text: str | None,
    arch: str | None,
    compile_options: tuple[str, ...],
    explain: bool,
    output: Output,
) -> int:
    """Predict the kernels of FILES, of each kernel the fastest first.

    FILES: cubins, programs, objects, sources: what `inspect` takes.
    """
    from regdem.choice import gain
    from regdem.predict.model import learn, predict, repeats
    from regdem.predict.paper import paper_cycles
    from regdem.predict.profile import Corrections, read_profile
    from regdem.rewrite import Request
    from regdem.variants import residency_of

    found: list[Row] = []
    inputs: list[dict[str, str]] = []
    first: dict[str, Prediction] = {}
    learned: dict[str, Corrections] = {}
    papers: dict[str, float] = {}

    def row(file: str, place: Located) -> Row:
        each = place.kernel
        request = Request(
            threads=threads or block_shape(launch_threads(place, file)),
            dynamic_shared_bytes=dynamic_shared_bytes,
        )
        residency = residency_of(each, request)
        if profile_text is not None and file is files[0]:
            profile = read_profile(profile_text, each.name)
            learned[each.name] = learn(each, residency, profile, trip_count=trip_count)
        prediction = predict(
            each,
            residency,
            grid_blocks=grid_blocks,
            trip_count=trip_count,
            correct=learned.get(each.name),
        )
        before = first.setdefault(each.name, prediction)
        cycles, gains = prediction.predicted_cycles, gain(before, prediction)
        work = repeats(before.work, prediction.work)
        if model == "paper":
            cycles = paper_cycles(kernel_program(each), residency.occupancy_pct / 100)
            gain_of_paper = work * papers.setdefault(each.name, cycles) / max(cycles, 1.0)
            gains = (gain_of_paper, gain_of_paper, gain_of_paper)
        return Row(file, place, prediction, cycles, work, gains)

    for file in files:
        located, entry = file_kernels(file, kernel, compile_options, arch)
        inputs.append(entry)
        refusals, done = Refusals(), len(found)
        for place in understood(located, file):
            with refusals.kept(place.kernel.name):
                found.append(row(file, place))
        refusals.settle(len(found) - done)
        count = threads.threads if threads else None
        note_refused_launches((place.kernel, count) for place in located)
    note_open_dynamic_shared(row.place.kernel for row in found)
    groups = _by_kernel(found)
    placed = [(place, row) for group in groups for place, row in enumerate(group, 1)]
    placed.sort(key=lambda each: (each[1].key, each[1].file))
    body: dict[str, Any] = {
        "inputs": inputs,
        "model": model,
        "ranking": [
            {
                "rank": rank,
                "kernel_rank": place,
                "file": row.file,
                **({"origin": row.place.origin} if row.place.origin else {}),
                **({"paper_cycles": round(row.cycles, 1)} if model == "paper" else {}),
                **({"work_ratio": round(row.work, 3)} if row.work != 1.0 else {}),
                **_speedup(row),
                **row.prediction.to_dict(),
            }
            for rank, (place, row) in enumerate(placed, 1)
        ],
    }
    output.emit(
        text=lambda: _text(groups, explain),
        json=lambda: dump_json(envelope(body)),
    )
    return 0


def _by_kernel(found: list[Row]) -> list[list[Row]]:
    """The rows of each kernel name, the fastest first; names in the order of the files."""
    groups: dict[str, list[Row]] = {}
    for row in found:
        groups.setdefault(row.place.kernel.name, []).append(row)
    return [sorted(group, key=lambda row: (row.key, row.file)) for group in groups.values()]


def _speedup(row: Row) -> dict[str, Any]:
    if not all(map(math.isfinite, row.gains)):
        return {}
    typical, least, most = row.gains
    return {
        "predicted_speedup": round(typical, 3),
        "predicted_speedup_interval": [round(least, 3), round(most, 3)],
    }


def _text(groups: list[list[Row]], explain: bool) -> str:
    lines = ["rank    cycles  speed-up              warps  bound by          kernel"]
    is_list = all(len(group) == 1 for group in groups)  # one file of many kernels: nothing to rank
    for number, group in enumerate(groups):
        lines += [""] if number and not is_list else []
        lines += _rows(group, explain)
    return "\n".join(lines) + "\n"


def _rows(group: list[Row], explain: bool) -> list[str]:
    lines: list[str] = []
    for rank, row in enumerate(group, 1):
        prediction = row.prediction
        typical, least, most = row.gains
        speedup = f"{typical:.2f} ({least:.2f} to {most:.2f})"
        lines.append(
            f"{rank:>4} {row.cycles:>9,.0f}  {speedup:<20}  {prediction.active_warps:>5}  "
            f"{prediction.bound_by:<16}  {row.place.kernel.demangled_name}  "
            f"({row.place.origin or row.file})"
        )
        if row.work != 1.0:
            lines.append(
                f"     unrolled otherwise: a run of its code does {row.work:.2f} times the work, "
                "and is compared by that"
            )
        if explain:
            lines.extend("     " + line for line in prediction.explain().splitlines())
    return lines
