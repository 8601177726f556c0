"""`regdem occupancy`: what one SM holds, from numbers or from the kernels of a cubin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from regdem.machine import BlockShape, Occupancy, Waves, carveout_kib_for, known_archs
from regdem.machine import occupancy as compute
from regdem.machine import waves as compute_waves
from regdem.machine.staircase import html_fragment, summary, text_staircase

EPILOG = """
Why hardware differs from the textbook: the register file is cut into four sub-partitions and a
warp's registers come out of one, and whole blocks must fit. 33 registers at 256 threads round up
to 40 per thread, 1,280 per warp; the textbook divides 65,536 by 1,280 and gets 51 warps (80 %),
the hardware 12 in each quarter, 48 warps (75 %), 6 blocks.
"""


@dataclass(frozen=True)
class Answer:
    """One launch judged: the kernel's name where there is a file, and its grid if given."""

    name: str | None
    occupancy: Occupancy
    waves: Waves | None


@click.command("occupancy", epilog=EPILOG, short_help="Blocks and warps per SM.")
@click.argument("file", required=False)
@arch_option(allow_all=True)
@threads_option()
@kernel_option
@click.option("--registers", type=int, metavar="R", help="Registers per thread; else no limit.")
@click.option(
    "--static-shared-bytes", type=int, metavar="S", help="Static shared memory per block. [0]"
)
@dynamic_shared_option
@click.option("--barriers", type=int, metavar="B", help="Named barriers of a block. [0]")
@click.option("--cluster", type=int, metavar="C", help="Blocks per cluster. [1]")
@click.option("--carveout-kib", type=int, metavar="K", help="Shared memory of the SM. [largest]")
@click.option("--carveout-pct", type=int, metavar="P", help="The same, as the runtime's per cent.")
@click.option("--virtual-resources", type=int, default=0, metavar="V", help="From sm_100 on. [0]")
@click.option("--no-opt-in", is_flag=True, help="The host doesn't raise the 48 KiB limit.")
@click.option(
    "--model",
    type=click.Choice(["hardware", "textbook"]),
    default="hardware",
    show_default=True,
    help="textbook: no sub-partitions, no whole blocks.",
)
@click.option("--grid", type=int, metavar="G", help="Blocks of the grid: waves and tail.")
@click.option("--sms", type=int, metavar="N", help="SMs of the GPU. [the reference device]")
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
    grid: int | None,
    sms: int | None,
    no_opt_in: bool,
    **numbers: Any,
) -> None:
    """Blocks and warps one SM holds, every cliff, and what reaches the next one.

    From numbers (--arch and --threads), or from the kernels of FILE, whose registers, shared
    memory, barriers and cluster are read and may be overridden.
    """
    numbers["opt_in"] = not no_opt_in
    if file is not None:
        answers, head = _of_file(file, kernel, arch, threads, numbers, grid, sms, compile_options)
        _emit_kernels(output, answers, head)
        return
    if arch is None or threads is None:
        raise UsageError("--arch and --threads are needed", hint="or give a FILE")
    if arch == "all":
        fitting, skipped = _compare(threads, numbers, grid, sms)
        _emit_comparison(output, fitting, skipped)
        return
    _emit_one(output, _answer(None, arch, threads.threads, numbers, grid, sms))


def _answer(
    name: str | None,
    arch: str,
    threads: int,
    numbers: dict[str, Any],
    grid: int | None,
    sms: int | None,
) -> Answer:
    values = dict(numbers)
    percent = values.pop("carveout_pct", None)
    if percent is not None:
        if values.get("carveout_kib") is not None:
            raise UsageError("give --carveout-kib or --carveout-pct, not both")
        values["carveout_kib"] = carveout_kib_for(arch, percent)
    defaults = {"static_shared_bytes": 0, "barriers": 0, "cluster": 1}
    for key, default in defaults.items():
        values[key] = default if values.get(key) is None else values[key]
    result: Occupancy = compute(arch, threads, **values)
    return Answer(name, result, None if grid is None else compute_waves(result, grid, sms))


def _compare(
    threads: BlockShape, numbers: dict[str, Any], grid: int | None, sms: int | None
) -> tuple[list[Answer], dict[str, str]]:
    """Every architecture; one where the numbers are illegal is listed with the reason."""
    fitting: list[Answer] = []
    skipped: dict[str, str] = {}
    error: UsageError | None = None
    for arch in known_archs():
        try:
            fitting.append(_answer(None, arch, threads.threads, numbers, grid, sms))
        except UsageError as reason:
            skipped[arch] = reason.message
            error = reason
    if not fitting and error is not None:
        raise error
    return fitting, skipped


def _of_file(
    path: str,
    pattern: KernelPattern | None,
    arch: str | None,
    threads: BlockShape | None,
    numbers: dict[str, Any],
    grid: int | None,
    sms: int | None,
    options: tuple[str, ...],
) -> tuple[list[Answer], dict[str, Any]]:
    from regdem.cli.kernels import (
        cluster_blocks,
        file_kernels,
        launch_threads,
        note_open_dynamic_shared,
        note_refused_launches,
    )

    if arch == "all":
        raise UsageError("--arch all compares numbers, not files", file=path)
    located, head = file_kernels(path, pattern, options)
    answers: list[Answer] = []
    for place in located:
        entry = place.kernel
        read = {
            "registers": entry.registers_per_thread,
            "static_shared_bytes": entry.static_shared_bytes,
            "barriers": entry.barriers,
            "cluster": cluster_blocks(entry),
        }
        values = numbers | {key: value for key, value in read.items() if numbers.get(key) is None}
        count = threads.threads if threads else launch_threads(place, path)
        answers.append(_answer(entry.name, arch or entry.arch, count, values, grid, sms))
    note_refused_launches((place.kernel, threads.threads if threads else None) for place in located)
    note_open_dynamic_shared(place.kernel for place in located)
    return answers, envelope({"input": head})


def _emit_one(output: Output, answer: Answer) -> None:
    title = f"Occupancy on {answer.occupancy.arch}"
    output.emit(
        text=lambda: _text(answer),
        json=lambda: dump_json(envelope(_body(answer))),
        html=lambda: html_page(title, _html(answer)),
    )


def _emit_kernels(output: Output, answers: list[Answer], head: dict[str, Any]) -> None:
    from regdem.binary.demangle import demangle

    shown = [(demangle(answer.name or ""), answer) for answer in answers]
    output.emit(
        text=lambda: "\n".join(
            f"{demangle(answer.name or '')}\n{_text(answer)}" for answer in answers
        ),
        json=lambda: dump_json(
            head | {"kernels": [{"name": answer.name} | _body(answer) for answer in answers]}
        ),
        html=lambda: html_page(
            "Occupancy",
            "\n".join(f"<h2><code>{_safe(name)}</code></h2>{_html(a)}" for name, a in shown),
        ),
    )


def _emit_comparison(output: Output, answers: list[Answer], skipped: dict[str, str]) -> None:
    header = ["arch", "blocks", "warps", "of", "%", "next cliff", "slots", "limited by"]

    def rows() -> list[list[object]]:
        return [_comparison_row(answer.occupancy) for answer in answers]

    def text() -> str:
        lines = "".join(f"{arch}: not legal there: {why}\n" for arch, why in skipped.items())
        tails = "".join(
            f"{answer.occupancy.arch}: {answer.waves.statement}\n"
            for answer in answers
            if answer.waves
        )
        return table(header, rows()) + lines + tails

    def html() -> str:
        head = "".join(f"<th>{cell}</th>" for cell in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in row) + "</tr>" for row in rows()
        )
        details = "".join(f"<h2>{answer.occupancy.arch}</h2>{_html(answer)}" for answer in answers)
        return html_page(
            "Occupancy on every architecture",
            f'<div class="regdem"><table><tr>{head}</tr>{body}</table></div>{details}',
        )

    output.emit(
        text=text,
        json=lambda: dump_json(
            envelope({"archs": [_body(answer) for answer in answers], "not_legal": skipped})
        ),
        html=html,
    )


def _comparison_row(result: Occupancy) -> list[object]:
    above = [cliff for cliff in result.cliffs if cliff.active_warps > result.active_warps]
    here = [cliff for cliff in result.cliffs if cliff.active_warps == result.active_warps]
    return [
        result.arch,
        result.active_blocks,
        result.active_warps,
        result.max_warps,
        f"{result.occupancy_pct:.1f}",
        above[0].registers_max if above else None,
        (above or here)[0].slots_per_thread if above or here else None,
        ", ".join(result.limiters),
    ]


def _body(answer: Answer) -> dict[str, Any]:
    body = answer.occupancy.to_dict()
    if answer.waves is not None:
        body["waves"] = answer.waves.to_dict()
    return body


def _text(answer: Answer) -> str:
    result = answer.occupancy
    launch = result.launch
    bounds = ", ".join(
        f"{name.replace('_', ' ')} {'-' if bound is None else bound}"
        for name, bound in result.limits.to_dict().items()
    )
    parts = [f"{summary(result)}\nBlocks each resource allows: {bounds}.\n"]
    if launch.cluster > 1 and result.active_blocks:
        spans = -(-launch.cluster // result.active_blocks)
        parts.append(f"A cluster of {launch.cluster} blocks spans {spans} SMs or more.\n")
    if result.cliffs:
        parts.append("\n" + _cliff_table(result) + "\n" + text_staircase(result))
    if result.reach:
        parts.append("\nTo reach more blocks:\n")
        parts.extend(f"  {row.sentence()}\n" for row in result.reach)
    if answer.waves is not None:
        parts.append("\n" + _waves_text(answer.waves))
    return "".join(parts)


def _cliff_table(result: Occupancy) -> str:
    rows = [
        [
            f"{cliff.registers_max}{' *' if _is_here(result, cliff.active_warps) else ''}",
            cliff.active_blocks,
            cliff.active_warps,
            f"{cliff.occupancy_pct:.1f}",
            cliff.free_shared_bytes_per_block,
            cliff.slots_per_thread,
            cliff.static_slots_per_thread,
        ]
        for cliff in result.cliffs
    ]
    shared = ["free shared B/block", "slots/thread", "in 48 KiB"]
    return table(["registers", "blocks", "warps", "%", *shared], rows)


def _is_here(result: Occupancy, active_warps: int) -> bool:
    return result.registers is not None and active_warps == result.active_warps


def _waves_text(waves: Waves) -> str:
    device = f" ({waves.device})" if waves.device else ""
    return (
        f"Grid of {waves.grid} blocks on {waves.sms} SMs{device}: {waves.blocks_per_wave} blocks "
        f"per wave, {waves.waves} waves, the last {waves.last_wave_fill_pct:.1f} % full, "
        f"{waves.efficiency_pct:.1f} % of all places used.\n{waves.statement}\n"
    )


def _html(answer: Answer) -> str:
    tail = "" if answer.waves is None else f"<p>{_safe(_waves_text(answer.waves))}</p>"
    return html_fragment(answer.occupancy) + tail


def _safe(value: object) -> str:
    from html import escape

    return escape("-" if value is None else str(value))
