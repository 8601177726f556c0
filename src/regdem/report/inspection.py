"""Inspect one kernel: every analysis, put together as a `KernelReport`.

A pure function of (kernel, launch), so that a hundred kernels can be inspected by as many
processes. Code that is not understood does not stop it: the report then holds the refusal and
what the headers say.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regdem.analysis.bits import FILE_BASE, FILE_MASK
from regdem.analysis.forms import forms_of
from regdem.analysis.frame import frame_of
from regdem.analysis.ilp import is_padding, loop_parallelism
from regdem.analysis.interference import colour, interference
from regdem.analysis.liveness import Liveness, liveness
from regdem.analysis.spills import spills
from regdem.analysis.webs import Webs, webs
from regdem.binary.kernel import SPILL_ANNOTATION, Kernel
from regdem.errors import RegdemError, UnsupportedError, UsageError
from regdem.isa.decoded import INSTRUCTION_BYTES, RegisterFile
from regdem.machine import Occupancy, occupancy
from regdem.program.from_kernel import program_of
from regdem.program.loops import Loop, loop_depth, loops
from regdem.program.program import Program
from regdem.report.advice import advise, cliffs_below, slots_at
from regdem.report.copies import line_loads
from regdem.report.model import (
    NOTHING_SAID,
    Asked,
    CodeAnalysis,
    Forecast,
    GraphSummary,
    KernelReport,
    LoopInfo,
    Pressure,
    SourceLine,
    SpillReport,
)
from regdem.report.values import peak_values

ALLOCATION_EXTRA = 2
"""Registers per thread beyond the highest number used + 1 that every count includes (measured)."""
FAR_BELOW = 8
_DEEPEST = 9
_ONES = np.array([n.bit_count() for n in range(256)], dtype=np.uint8)


def inspect_kernel(
    kernel: Kernel,
    threads: int | None = None,
    dynamic_shared_bytes: int = 0,
    origin: str | None = None,
    *,
    predict: bool = True,
    asked: Asked = NOTHING_SAID,
) -> KernelReport:
    """Everything about one kernel.

    threads: per block of the launch; None: what the kernel declares (required, else its most).
    dynamic_shared_bytes: of the launch. predict: ask the predictor what crossing the next cliff is
    worth (several times the work of everything else). asked: what commands in the advice repeat.
    Raises UsageError for a launch the architecture has not.
    """
    if threads is None:
        threads = declared_threads(kernel)
    analysis: CodeAnalysis | None = None
    refusal: RegdemError | None = None
    try:
        analysis = analyse(kernel)
    except UnsupportedError as error:
        refusal = error
        refusal.kernel = refusal.kernel or kernel.name
    report = KernelReport(
        name=kernel.name,
        demangled_name=kernel.demangled_name,
        arch=kernel.arch,
        registers_per_thread=kernel.registers_per_thread,
        static_shared_bytes=kernel.static_shared_bytes,
        local_bytes=kernel.local_bytes,
        barriers=kernel.barriers,
        threads=threads,
        occupancy=_occupancy(kernel, threads, dynamic_shared_bytes),
        analysis=analysis,
        advice=(),
        refusal=refusal,
        unlaunchable=launch_refusal(kernel, threads),
        origin=origin,
        asked=asked,
    )
    if analysis is None:
        return report
    if predict and report.unlaunchable is None:
        report = replace(report, forecasts=_forecasts(kernel, report, analysis))
    return replace(report, advice=advise(report))


def _forecasts(
    kernel: Kernel, report: KernelReport, analysis: CodeAnalysis
) -> tuple[Forecast, ...] | None:
    if report.occupancy is None:
        return None
    from regdem.report.forecast import forecasts

    needed = analysis.interference.registers_needed
    cliffs = [
        (cliff.registers_max, needed - cliff.registers_max)
        for cliff in cliffs_below(report)
        if needed - cliff.registers_max <= slots_at(report.occupancy, cliff)
    ]
    words = {
        (site.place_bytes or 0) + at
        for site in analysis.spills.spills.spill_sites
        if site.space == "local" and not analysis.frame_reason
        for at in range(0, site.bytes_per_thread, 4)
    }
    try:
        return forecasts(kernel, report.occupancy, cliffs, analysis.pressure.values, len(words))
    except UnsupportedError:  # the predictor's own limits are no reason to withhold the rest
        return None


def declared_threads(kernel: Kernel) -> int | None:
    """Threads per block the kernel declares: what it requires, else the most it allows."""
    if kernel.required_block is not None:
        x, y, z = kernel.required_block
        return x * y * z
    return kernel.max_threads


def launch_refusal(kernel: Kernel, threads: int | None) -> str | None:
    """Why the driver refuses a block of so many threads, as "can't be ..."; None: it may run."""
    most = declared_threads(kernel)
    if threads is None or most is None:
        return None
    fixed = kernel.required_block is not None
    if threads == most or (threads < most and not fixed):
        return None
    return (
        f"can't be launched with {threads} threads per block: it declares "
        f"{'' if fixed else 'at most '}{most}"
    )


def _occupancy(kernel: Kernel, threads: int | None, dynamic: int) -> Occupancy | None:
    if threads is None:
        return None
    cluster = 1
    if kernel.cluster is not None:
        x, y, z = kernel.cluster
        cluster = max(1, x * y * z)
    try:
        result = occupancy(
            kernel.arch,
            threads,
            registers=kernel.registers_per_thread,
            static_shared_bytes=kernel.static_shared_bytes,
            dynamic_shared_bytes=dynamic,
            barriers=kernel.barriers,
            cluster=cluster,
        )
    except UsageError as error:
        error.kernel = error.kernel or kernel.name
        raise
    assert isinstance(result, Occupancy)
    return result


def analyse(kernel: Kernel) -> CodeAnalysis:
    """All that the instructions say. Raises UnsupportedError where they aren't understood."""
    program = program_of(kernel)
    live = liveness(program)
    nest = loops(program)
    split = webs(program, live)
    depth = depth_through_calls(program, loop_depth(program, nest))
    annotated = [note.offset for note in kernel.annotations if note.kind == SPILL_ANNOTATION]
    found = spills(program, annotated, depth)
    counts = pressures(live)
    curve = counts[RegisterFile.GPR]
    return CodeAnalysis(
        max_live={file.name.lower(): int(counts[file].max(initial=0)) for file in RegisterFile},
        instructions=len(program),
        blocks=len(program.blocks),
        loops=_loops(kernel, program, nest, curve.tolist()),
        pressure=_pressure(kernel, program, curve, split, nest, depth),
        interference=graph_summary(split, kernel.registers_per_thread),
        spills=SpillReport(
            found,
            {
                site.offset: line
                for site in found.sites
                if (line := _line(kernel, site.offset)) is not None
            },
            has_scratch=bool(kernel.shared_scratch),
        ),
        parallelism=loop_parallelism(program, nest),
        mix=instruction_mix(program),
        calls=len(program.callee),
        line_loads=line_loads(kernel, program, nest, {site.instruction for site in found.sites}),
        frame_reason=frame_of(program).reason if found.sites else "",
    )


def pressures(live: Liveness) -> dict[RegisterFile, NDArray[np.int32]]:
    """Live registers per instruction of every file: `Liveness.pressure` of all in one pass.

    The files begin at whole bytes of the masks.
    """
    size = 1 + max(FILE_BASE.values()) // 8
    packed = b"".join([mask.to_bytes(size, "little") for mask in live.occupied])
    rows = np.frombuffer(packed, dtype=np.uint8).reshape(-1, size)
    columns = {
        file: slice(base // 8, 1 + FILE_MASK[file].bit_length() // 8)
        for file, base in FILE_BASE.items()
    }
    return {
        file: _ONES[rows[:, place]].sum(axis=1, dtype=np.int32) for file, place in columns.items()
    }


def depth_through_calls(program: Program, depth: list[int]) -> list[int]:
    """Loop depth per block, with that of the deepest call on top in device functions."""
    if not program.callee:
        return depth
    outer = [0] * len(program.functions)
    for _ in program.functions:  # recursion would count without end
        updated = list(outer)
        for site, function in program.callee.items():
            block = program.blocks[int(program.block_of[site])]
            if block.function != function:
                inside = depth[block.index] + outer[block.function]
                updated[function] = min(_DEEPEST, max(updated[function], inside))
        if updated == outer:
            break
        outer = updated
    return [d + outer[block.function] for d, block in zip(depth, program.blocks, strict=True)]


def graph_summary(split: Webs, registers_per_thread: int) -> GraphSummary:
    """Nodes, edges, colours, and what renumbering alone would save."""
    graph = interference(split)
    colours = colour(graph).colours
    needed = colours + ALLOCATION_EXTRA
    return GraphSummary(
        nodes=len(graph.nodes),
        edges=graph.edges,
        tuples=sum(1 for group in split.groups if len(group.webs) > 1),
        colours=colours,
        registers_needed=needed,
        renumbering_saves=max(0, registers_per_thread - needed),
    )


def instruction_mix(program: Program) -> dict[str, int]:
    """Instructions by mnemonic, the most frequent first; the padding behind the end left out."""
    reachable = program.reachable
    blocks: list[int] = program.block_of.tolist()
    counts = Counter(
        form.name
        for form, block in zip(forms_of(program.code), blocks, strict=True)
        if block in reachable
    )
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _line(kernel: Kernel, offset: int) -> SourceLine | None:
    found = kernel.line_at(offset)
    return None if found is None else SourceLine(*found)


def _loops(
    kernel: Kernel, program: Program, nest: tuple[Loop, ...], curve: list[int]
) -> tuple[LoopInfo, ...]:
    result: list[LoopInfo] = []
    for loop in nest:
        if is_padding(program, loop):
            continue
        spans = [(program.blocks[b].start, program.blocks[b].end) for b in loop.blocks]
        header = program.blocks[loop.header].start
        result.append(
            LoopInfo(
                start_offset=INSTRUCTION_BYTES * min(start for start, _ in spans),
                end_offset=INSTRUCTION_BYTES * max(end for _, end in spans),
                depth=loop.depth,
                header_offset=INSTRUCTION_BYTES * header,
                instructions=sum(end - start for start, end in spans),
                max_live_gpr=max(max(curve[start:end], default=0) for start, end in spans),
                source=_line(kernel, INSTRUCTION_BYTES * header),
            )
        )
    return tuple(sorted(result, key=lambda loop: (loop.start_offset, loop.depth)))


def _pressure(
    kernel: Kernel,
    program: Program,
    curve: NDArray[np.int32],
    split: Webs,
    nest: tuple[Loop, ...],
    depth: list[int],
) -> Pressure:
    peak = int(curve.max(initial=0))
    at = int(np.argmax(curve)) if len(curve) else 0
    block = int(program.block_of[at])
    code = max(1, int(np.count_nonzero(curve)))
    far = int(np.count_nonzero((curve > 0) & (curve <= peak - FAR_BELOW)))
    return Pressure(
        peak=peak,
        peak_offset=INSTRUCTION_BYTES * at,
        peak_block=block,
        peak_loop_depth=depth[block],
        peak_source=_line(kernel, INSTRUCTION_BYTES * at),
        curve=tuple(curve.tolist()),
        far_below_pct=round(100.0 * far / code, 1),
        values=peak_values(program, split, nest, at, lambda offset: _line(kernel, offset)),
    )
