"""`regdem promote`: local-memory spills of a kernel into shared memory, proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from regdem.binary.demangle import demangle
from regdem.cli.kernels import block_threads, note_open_dynamic_shared
from regdem.cli.options import KernelPattern, rewrite_options
from regdem.cli.output import Output, dump_json, envelope, input_entry
from regdem.cli.rewrites import NOTHING, open_file, rewrite_each
from regdem.errors import UsageError
from regdem.machine import BlockShape, block_shape

if TYPE_CHECKING:
    from regdem.binary import Cubin, Kernel
    from regdem.promotion import KernelPromotion

EPILOG = """
Words of the stack frame that only plain spill code reaches get a slot in shared memory that lies
idle at the kernel's residency; the hottest first where not all fit. Arrays stay where they are.
Nothing is written that is not proved.
"""


@click.command("promote", epilog=EPILOG, short_help="Local spills into shared memory.")
@click.argument("file")
@rewrite_options
@click.option(
    "--registers",
    type=click.IntRange(16, 255),
    metavar="R",
    help="Stay within R registers per thread: below the kernel's own, values are demoted too; "
    "above, spills come back into registers first.",
)
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
    threads: BlockShape | None,
    dynamic_shared_bytes: int,
    shared_opt_in: bool,
    arch: str | None,
    compile_options: tuple[str, ...],
    reschedule: bool,
    report: Output,
) -> int:
    """Turn local-memory spills of kernels of FILE into shared-memory accesses.

    FILE: a cubin; a fat binary, object, program or library, of which a copy with the new code in
    place is written; or a .cu or .ptx source.
    """
    from regdem.isa.table import require_architecture
    from regdem.promotion import promote_kernel
    from regdem.rescheduling import with_new_order
    from regdem.rewrite import Request

    opened = open_file(file, kernel, arch=arch, options=compile_options)

    def make(cubin: Cubin, each: Kernel) -> tuple[Cubin, KernelPromotion]:
        require_architecture(each.arch, each.name)
        if not each.local_bytes:
            raise UsageError("there are no local spills", code=NOTHING, file=file, kernel=each.name)
        request = Request(
            threads=threads or block_shape(block_threads(each, file)),
            registers=registers,
            dynamic_shared_bytes=dynamic_shared_bytes,
            shared_opt_in=shared_opt_in,
        )
        made = promote_kernel(cubin, each, request)
        return with_new_order(cubin, each, request, made) if reschedule else made

    done = rewrite_each(opened, make)
    written = opened.write(out, done.cubins)
    note_open_dynamic_shared(kernel for _, kernel in opened.kernels)
    body = {"kernels": done.to_list(), "output": input_entry(out, written)}
    report.emit(
        text=lambda: done.text(summary) + f"\nwritten: {out}\n",
        json=lambda: dump_json(envelope(body, path=file, data=opened.data)),
    )
    return 0


def summary(done: KernelPromotion) -> str:
    """What moved, what stayed, and what it costs."""
    a, b, what = done.before, done.after, done.promotion
    loads = sum(word.loads for word in what.promoted)
    stores = sum(word.stores for word in what.promoted)
    back = [f"  back in registers      {len(what.recovered):>7} words of the frame"]
    lines = [
        f"{demangle(done.name)}  ({done.threads} threads per block)",
        f"  registers per thread   {a.registers_per_thread:>7} -> {b.registers_per_thread}",
        f"  resident warps         {a.active_warps:>7} -> {b.active_warps}",
        f"  static shared memory   {a.static_shared_bytes:>7} -> {b.static_shared_bytes} bytes",
        f"  promoted               {len(what.promoted):>7} live ranges of words of the frame "
        f"({loads} loads, {stores} stores)",
        *(back if what.recovered else []),
        f"  left in local memory   {what.local_accesses_left:>7} accesses",
    ]
    if done.rewrite.reordered_blocks:
        lines.append(f"  in a new order         {done.rewrite.reordered_blocks:>7} blocks")
    if what.demoted:
        lines.append(f"  demoted to make room   {len(what.demoted):>7} values")
    checks = ", ".join(f"{name} {result}" for name, result in done.verdict.checks.items())
    lines.append(f"  checked                {checks}")
    lines.extend(f"    for {assumption}" for assumption in done.verdict.assumptions)
    return "\n".join(lines)
