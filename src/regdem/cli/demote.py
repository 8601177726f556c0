"""`regdem demote`: a kernel with fewer registers, proved equal to its original."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from regdem.binary.demangle import demangle
from regdem.cli.kernels import block_threads, note_open_dynamic_shared
from regdem.cli.options import KernelPattern, rewrite_options
from regdem.cli.output import Output, dump_json, envelope, input_entry
from regdem.cli.rewrites import open_file, rewrite_each
from regdem.errors import UsageError
from regdem.machine import BlockShape, block_shape

if TYPE_CHECKING:
    from regdem.binary import Cubin, Kernel
    from regdem.rewrite import KernelRewrite

EPILOG = """
Values that wait are kept in shared memory that lies idle, or are computed again; the rest is
renumbered. Candidates: live-range (whole program live ranges, the default), or the register orders
of the RegDem paper: cfg, static, conflict. Nothing is written that is not proved.
"""


@click.command("demote", epilog=EPILOG, short_help="Fewer registers, by shared memory.")
@click.argument("file")
@rewrite_options
@click.option("--registers", type=int, metavar="R", help="Registers per thread to reach.")
@click.option("--blocks", type=int, metavar="B", help="Resident blocks per SM to reach.")
@click.option(
    "--candidates",
    type=click.Choice(["live-range", "cfg", "static", "conflict", "none"]),
    default="live-range",
    show_default=True,
    help="What is demoted first; none: nothing, registers are renumbered, also at their own count.",
)
@click.option(
    "--paper-options", "paper_options", metavar="PASSES",
    help="Post-passes of the paper's orders: all, none, or some of eliminate,substitute,reschedule."
    "  [default: eliminate]",
)  # fmt: skip
@click.option(
    "--no-rematerialise", "rematerialise", flag_value=False, default=True, type=bool,
    help="Never compute a value again instead of storing it.",
)  # fmt: skip
@click.option(
    "--no-uniform", "uniform", flag_value=False, default=True, type=bool,
    help="Never keep a value that all threads share in a uniform register.",
)  # fmt: skip
@click.option(
    "--no-fold", "fold", flag_value=False, default=True, type=bool,
    help="Never let an instruction name an immediate or a uniform register itself instead of a "
    "register with that value.",
)  # fmt: skip
@click.option(
    "--fold-banks", is_flag=True,
    help="Let instructions name words of constant banks, too. ptxas does not for sm_90: not yet "
    "measured.",
)  # fmt: skip
@click.option(
    "--local-slots", type=click.IntRange(0, 4096), default=0, metavar="N",
    help="Where shared memory holds no more: let N further 4-byte slots, the coldest, be in local "
    "memory.",
)  # fmt: skip
@click.option(
    "--reschedule/--no-reschedule", default=False, show_default=True,
    help="Then put instructions in an order with fewer waits, where one is found.",
)  # fmt: skip
def command(
    *,
    file: str,
    out: str,
    kernel: KernelPattern | None,
    registers: int | None,
    blocks: int | None,
    threads: BlockShape | None,
    dynamic_shared_bytes: int,
    shared_opt_in: bool,
    arch: str | None,
    compile_options: tuple[str, ...],
    candidates: str,
    paper_options: str | None,
    rematerialise: bool,
    uniform: bool,
    fold: bool,
    fold_banks: bool,
    local_slots: int,
    reschedule: bool,
    report: Output,
) -> int:
    """Rewrite kernels of FILE to need fewer registers per thread.

    FILE: a cubin; a fat binary, object, program or library, of which a copy with the new code in
    place is written; or a .cu or .ptx source.
    """
    from regdem.rescheduling import reschedule_kernel, with_new_order
    from regdem.rewrite import Request, demote_kernel
    from regdem.transform.candidates import NO_ORDER
    from regdem.transform.paper import ELIMINATE, parse_passes

    if (registers is None) == (blocks is None):
        raise UsageError("give either --registers or --blocks")
    if blocks is not None and blocks < 1:
        raise UsageError(f"--blocks {blocks}: at least one block is resident")
    if paper_options is not None and candidates == "live-range":
        raise UsageError(
            "--paper-options are of the paper's orders", hint="give --candidates cfg, for example"
        )
    passes = parse_passes(paper_options or ELIMINATE)
    opened = open_file(file, kernel, arch=arch, options=compile_options)
    grown: dict[str, int] = {}

    def make(cubin: Cubin, each: Kernel) -> tuple[Cubin, KernelRewrite]:
        request = Request(
            threads=threads or block_shape(block_threads(each, file)),
            registers=registers,
            blocks=blocks,
            dynamic_shared_bytes=dynamic_shared_bytes,
            shared_opt_in=shared_opt_in,
            candidates=candidates,
            rematerialise=rematerialise,
            uniform=uniform,
            fold=fold,
            fold_banks=fold_banks,
            local_slots=local_slots,
            paper_passes=passes,
        )
        if reschedule and candidates == NO_ORDER and (registers or 0) > each.registers_per_thread:
            return reschedule_kernel(cubin, each, request)
        made = demote_kernel(cubin, each, request)
        if reschedule:
            made = with_new_order(cubin, each, request, made)
        grown[each.name] = made[0].kernel(each.name).local_bytes - each.local_bytes
        return made

    done = rewrite_each(opened, make)
    written = opened.write(out, done.cubins)
    note_open_dynamic_shared(kernel for _, kernel in opened.kernels)
    body = {"kernels": done.to_list(), "output": input_entry(out, written)}
    report.emit(
        text=lambda: (
            done.text(lambda each: summary(each, grown.get(each.name, 0))) + f"\nwritten: {out}\n"
        ),
        json=lambda: dump_json(envelope(body, path=file, data=opened.data)),
    )
    return 0


def summary(done: KernelRewrite, frame_bytes: int = 0) -> str:
    """The lines a performance engineer wants first; `frame_bytes`: what the frame grew by."""
    a, b = done.before, done.after
    rewrite = done.rewrite
    lines = [
        f"{demangle(done.name)}  ({done.threads} threads per block)",
        f"  registers per thread   {a.registers_per_thread:>7} -> {b.registers_per_thread}",
        f"  resident blocks        {a.active_blocks:>7} -> {b.active_blocks}",
        f"  resident warps         {a.active_warps:>7} -> {b.active_warps}",
        f"  occupancy              {a.occupancy_pct:>6.1f}% -> {b.occupancy_pct:.1f}%",
        f"  static shared memory   {a.static_shared_bytes:>7} -> {b.static_shared_bytes} bytes",
    ]
    if rewrite.reordered_blocks:
        lines.append(f"  in a new order         {rewrite.reordered_blocks:>7} blocks")
    if rewrite.method == "renumber":
        lines.append("  by renumbering alone: the live values already fit")
    elif rewrite.method == "reschedule":
        lines.append("  nothing was demoted")
    else:
        loads = sum(d.loads for d in rewrite.demoted)
        stores = sum(d.stores for d in rewrite.demoted)
        deepest = max((d.loop_depth for d in rewrite.demoted), default=0)
        lines.append(
            f"  demoted                {len(rewrite.demoted):>7} values in {rewrite.slots} slots "
            f"({loads} loads, {stores} stores, deepest in loop level {deepest})"
        )
        if frame_bytes:
            lines.append(
                f"  in local memory        {frame_bytes:>7} bytes of it, in a longer stack frame"
            )
        if rewrite.rematerialised:
            copies = sum(d.loads for d in rewrite.rematerialised)
            lines.append(
                f"  computed again         {len(rewrite.rematerialised):>7} values "
                f"({copies} instructions)"
            )
        if rewrite.uniform:
            moves = sum(d.loads + d.stores for d in rewrite.uniform)
            lines.append(
                f"  in uniform registers   {len(rewrite.uniform):>7} values ({moves} instructions)"
            )
        if rewrite.folded:
            uses = sum(f.uses for f in rewrite.folded)
            gone = sum(f.is_gone for f in rewrite.folded)
            lines.append(
                f"  named where used       {len(rewrite.folded):>7} values "
                f"({uses} uses, {gone} definitions removed)"
            )
        lines.append(f"  inserted               {rewrite.inserted_instructions:>7} instructions")
    checks = ", ".join(f"{name} {result}" for name, result in done.verdict.checks.items())
    lines.append(f"  checked                {checks}")
    lines.extend(f"    for {assumption}" for assumption in done.verdict.assumptions)
    return "\n".join(lines)
