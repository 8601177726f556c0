"""`regdem predict`: predicted cycles of kernels in any number of files, ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from regdem.cli.kernels import block_threads, cubin_kernels, kernel_program
from regdem.cli.options import (
    KernelPattern,
    debug_option,
    dynamic_shared_option,
    kernel_option,
    output_options,
    threads_option,
)
from regdem.cli.output import Output, dump_json, envelope, input_entry
from regdem.machine import BlockShape, block_shape

if TYPE_CHECKING:
    from regdem.predict.model import Prediction

EPILOG = """
Cycles are for 64 warps' work on one SM, or for the whole launch with --grid-blocks. They rank
variants of one kernel; they are no measurement. --model paper is the RegDem paper's formula.
"""


@click.command("predict", epilog=EPILOG, short_help="Rank files by predicted cycles.")
@click.argument("files", nargs=-1, required=True)
@kernel_option
@threads_option()
@dynamic_shared_option
@click.option("--grid-blocks", type=int, metavar="G", help="Blocks of the launch, for waves.")
@click.option(
    "--trip-count", type=float, default=10.0, show_default=True, metavar="T",
    help="Executions per loop level.",
)  # fmt: skip
@click.option(
    "--model", type=click.Choice(["throughput", "paper"]), default="throughput", show_default=True,
    help="What to rank by.",
)  # fmt: skip
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
    explain: bool,
    output: Output,
) -> int:
    """Predict the kernels of FILES, the fastest first."""
    from regdem.predict.paper import paper_cycles
    from regdem.rewrite import Request
    from regdem.variants import predict_kernel, residency_of

    found: list[tuple[str, Prediction, float]] = []
    inputs: list[dict[str, str]] = []
    for file in files:
        _, kernels, data = cubin_kernels(file, kernel)
        inputs.append(input_entry(file, data))
        for each in kernels:
            request = Request(
                threads=threads or block_shape(block_threads(each, file)),
                dynamic_shared_bytes=dynamic_shared_bytes,
            )
            prediction = predict_kernel(each, request, grid_blocks, trip_count)
            key = prediction.predicted_cycles
            if model == "paper":
                share = residency_of(each, request).occupancy_pct / 100
                key = paper_cycles(kernel_program(each), share)
            found.append((file, prediction, key))
    found.sort(key=lambda entry: (entry[2], entry[0]))
    body: dict[str, Any] = {
        "inputs": inputs,
        "model": model,
        "ranking": [
            {
                "rank": rank,
                "file": file,
                **({"paper_cycles": round(key, 1)} if model == "paper" else {}),
                **prediction.to_dict(),
            }
            for rank, (file, prediction, key) in enumerate(found, 1)
        ],
    }
    output.emit(
        text=lambda: _text(found, explain),
        json=lambda: dump_json(envelope(body)),
    )
    return 0


def _text(found: list[tuple[str, Prediction, float]], explain: bool) -> str:
    best = found[0][2]
    lines = ["rank    cycles  to best  warps  bound by          kernel"]
    for rank, (file, prediction, key) in enumerate(found, 1):
        ratio = f"{key / best:.2f}" if best else "1.00"
        lines.append(
            f"{rank:>4} {key:>9,.0f}  {ratio:>7}  {prediction.active_warps:>5}  "
            f"{prediction.bound_by:<16}  {prediction.kernel}  ({file})"
        )
        if explain:
            lines.extend("     " + line for line in prediction.explain().splitlines())
    return "\n".join(lines) + "\n"
