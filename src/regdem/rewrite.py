"""Rewrites of one kernel, proved before they exist as a file.

Each function takes a cubin and a kernel and returns a new cubin with what was done. A rewrite that
the checker does not prove is tried again in a plainer way; if none is proved, `ProofError` says
why and nothing comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from regdem.binary import Cubin, Kernel
from regdem.check import Verdict, check_pair
from regdem.check.layout import declared_threads
from regdem.errors import ProofError, RegdemError, UnsupportedError, UsageError
from regdem.isa.table import require_architecture
from regdem.machine import BlockShape, Launch, Occupancy, occupancy, reach_blocks, slots_that_fit
from regdem.transform.demote import demote
from regdem.transform.demoted import (
    RESERVED_REGISTERS,
    Demoted,
    DemoteOptions,
    Rewrite,
)
from regdem.transform.fold import Folded
from regdem.transform.paper import ELIMINATE

AnyRewrite = TypeVar("AnyRewrite", bound=Rewrite)


@dataclass(frozen=True)
class State:
    """A kernel before or after: what it needs of an SM and what stays resident."""

    registers_per_thread: int
    static_shared_bytes: int
    active_blocks: int
    active_warps: int
    occupancy_pct: float

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "registers_per_thread": self.registers_per_thread,
            "static_shared_bytes": self.static_shared_bytes,
            "active_blocks": self.active_blocks,
            "active_warps": self.active_warps,
            "occupancy_pct": self.occupancy_pct,
        }


@dataclass(frozen=True)
class KernelRewrite:
    """One proved rewrite."""

    name: str
    before: State
    after: State
    rewrite: Rewrite
    verdict: Verdict
    threads: int

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, one entry of `kernels`."""
        return {
            "name": self.name,
            "method": self.rewrite.method,
            "threads_per_block": self.threads,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "slots": self.rewrite.slots,
            "demoted": [_value(d) for d in self.rewrite.demoted],
            "rematerialised": [_value(d) for d in self.rewrite.rematerialised],
            "uniform": [_value(d) for d in self.rewrite.uniform],
            "folded": [_folded(f) for f in self.rewrite.folded],
            "inserted_instructions": self.rewrite.inserted_instructions,
            "removed_instructions": self.rewrite.removed_instructions,
            "reordered_blocks": self.rewrite.reordered_blocks,
            "checks": dict(self.verdict.checks),
            "assumptions": list(self.verdict.assumptions),
        }

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{key}</th><td>{getattr(self.before, key)}</td>"
            f"<td>{getattr(self.after, key)}</td></tr>"
            for key in self.before.to_dict()
        )
        return f"<table><tr><th></th><th>before</th><th>after</th></tr>{rows}</table>"


def _value(entry: Demoted) -> dict[str, Any]:
    value: dict[str, Any] = {
        "register": f"R{entry.register}",
        "web": entry.web,
        "loads": entry.loads,
        "stores": entry.stores,
        "loop_depth": entry.loop_depth,
    }
    if entry.slot >= 0:
        value["slot"] = entry.slot
    return value


def _folded(entry: Folded) -> dict[str, Any]:
    return {
        "register": f"R{entry.register}",
        "web": entry.web,
        "source": entry.source,
        "uses": entry.uses,
        "definition_removed": entry.is_gone,
        "loop_depth": entry.loop_depth,
    }


_MOST_THREADS, _WARP = 1024, 32


@dataclass(frozen=True)
class Request:
    """What to do to a kernel, as the command line has it.

    `threads`: the launch's block. `registers` or `blocks`: the target. `candidates`: the order
    (`transform/candidates.py`). `dynamic_shared_bytes`: of the launch, for the occupancy.
    `fold`: instructions may name immediates and uniform registers themselves instead of a register
    with that value; `fold_banks`: and words of constant banks, which ptxas never does on sm_90.
    `shared_opt_in`: the host lets the kernel have more than 48 KiB of shared memory, static and
    dynamic together (`cudaFuncAttributeMaxDynamicSharedMemorySize`).
    `reschedule`: instructions may get a new order (`rescheduling.py`).
    `local_slots`: what may go to a longer stack frame where shared memory holds no more.
    `paper_passes`: of the paper's orders (`transform/paper.py`).
    """

    threads: BlockShape
    registers: int | None = None
    blocks: int | None = None
    dynamic_shared_bytes: int = 0
    shared_opt_in: bool = False
    candidates: str = "live-range"
    rematerialise: bool = True
    uniform: bool = True
    fold: bool = True
    fold_banks: bool = False
    reschedule: bool = False
    local_slots: int = 0
    paper_passes: frozenset[str] = frozenset({ELIMINATE})


def launch_of(kernel: Kernel, request: Request, registers: int, static_bytes: int) -> Launch:
    """The launch the occupancy is asked for. Raises `UsageError` for illegal numbers."""
    return state_of(kernel, request, registers, static_bytes).launch


def state_of(kernel: Kernel, request: Request, registers: int, static_bytes: int) -> Occupancy:
    """Residency with that many registers and static shared bytes."""
    cluster = 1
    for size in kernel.cluster or ():
        cluster *= max(1, size)
    result: Occupancy = occupancy(
        kernel.arch,
        request.threads.threads,
        registers,
        static_shared_bytes=static_bytes,
        dynamic_shared_bytes=request.dynamic_shared_bytes,
        barriers=kernel.barriers,
        cluster=cluster,
    )
    return result


def _state(kernel: Kernel, request: Request, registers: int, static_bytes: int) -> State:
    o = state_of(kernel, request, registers, static_bytes)
    return State(registers, static_bytes, o.active_blocks, o.active_warps, o.occupancy_pct)


def most_slots(kernel: Kernel, request: Request, registers: int) -> int:
    """Slots per thread that leave the residency at `registers` as it is."""
    there = state_of(kernel, request, registers, kernel.static_shared_bytes)
    return slots_that_fit(there.launch, there.active_blocks, opted_in=request.shared_opt_in)


def target_registers(kernel: Kernel, request: Request) -> int:
    """The register count to reach, from `registers` or `blocks`. Raises `UsageError`."""
    if (request.registers is None) == (request.blocks is None):
        raise UsageError("give either the registers or the blocks to reach")
    if request.registers is not None:
        return request.registers
    assert request.blocks is not None
    launch = launch_of(kernel, request, kernel.registers_per_thread, kernel.static_shared_bytes)
    reach = reach_blocks(launch, request.blocks)
    if not reach.reachable or reach.registers_max is None:
        raise UsageError(
            f"{request.blocks} blocks can't be reached",
            hint=reach.sentence(),
            kernel=kernel.name,
        )
    return reach.registers_max


def refuse_architecture(kernel: Kernel) -> None:
    """Raises `UnsupportedError` for code of an architecture whose instructions are not known."""
    require_architecture(kernel.arch, kernel.name)


def refuse_block(kernel: Kernel, threads: int) -> None:
    """Raises `UsageError` for a block that the driver would not launch the kernel with.

    Slots would be sized for it, and not for the blocks that do run.
    """
    most = declared_threads(kernel)
    fixed = kernel.required_block is not None
    if most is not None and (threads > most or (fixed and threads != most)):
        raise UsageError(
            f"the kernel can't be launched with {threads} threads per block",
            hint=f"it declares {'' if fixed else 'at most '}{most}",
            kernel=kernel.name,
        )


def demote_kernel(cubin: Cubin, kernel: Kernel, request: Request) -> tuple[Cubin, KernelRewrite]:
    """Demotes registers of one kernel until it needs the target count, and proves the result.

    Raises `UsageError`, `UnsupportedError` (with the reason) or `ProofError`.
    """
    refuse_architecture(kernel)
    refuse_block(kernel, request.threads.threads)
    registers = target_registers(kernel, request)
    most_allowed = 65536 // (-(-request.threads.threads // 32) * 32)
    if registers > min(255, max(most_allowed, RESERVED_REGISTERS)):
        raise UsageError(
            f"{registers} registers can't be a target for {request.threads.threads} threads",
            kernel=kernel.name,
        )
    slots = most_slots(kernel, request, registers)

    def made(*, rematerialise: bool, fold: bool) -> Rewrite:
        options = DemoteOptions(
            registers=registers,
            threads=request.threads.threads,
            most_slots=slots,
            order=request.candidates,
            rematerialise=rematerialise,
            local_slots=request.local_slots,
            uniform=request.uniform and rematerialise == request.rematerialise,
            fold=fold,
            banks=request.fold_banks,
            paper_passes=request.paper_passes,
        )
        return demote(kernel, options)

    def ways() -> Iterator[Callable[[], Rewrite]]:
        """The next is asked for where the last was refused or not proved."""
        again = request.rematerialise
        done: list[Rewrite] = []

        def first() -> Rewrite:
            done.append(made(rematerialise=again, fold=request.fold))
            return done[0]

        yield first
        if done and done[0].folded:
            yield lambda: made(rematerialise=again, fold=False)
        if again:
            yield lambda: made(rematerialise=False, fold=False)

    new, rewrite, verdict = prove_first(cubin, kernel, request, ways())
    return new, described(kernel, request, rewrite, verdict)


def described(
    kernel: Kernel, request: Request, rewrite: Rewrite, verdict: Verdict
) -> KernelRewrite:
    """A proved rewrite with its residency before and after, and for which blocks it can run."""
    if rewrite.registers_per_thread > kernel.registers_per_thread:
        most = _largest_block(kernel, request, rewrite.registers_per_thread)
        if most < _largest_block(kernel, request, kernel.registers_per_thread):
            bound = (
                f"blocks of at most {most} threads: larger ones need more registers than there are"
            )
            verdict = replace(verdict, assumptions=(*verdict.assumptions, bound))
    return KernelRewrite(
        kernel.name,
        _state(kernel, request, kernel.registers_per_thread, kernel.static_shared_bytes),
        _state(kernel, request, rewrite.registers_per_thread, rewrite.shared_bytes),
        rewrite,
        verdict,
        request.threads.threads,
    )


def _largest_block(kernel: Kernel, request: Request, registers: int) -> int:
    """Threads of the largest block that fits on an SM with so many registers, in whole warps."""
    for threads in range(_MOST_THREADS, 0, -_WARP):
        other = replace(request, threads=BlockShape(threads))
        if state_of(kernel, other, registers, kernel.static_shared_bytes).active_blocks:
            return threads
    return 0


def bounded(kernel: Kernel, rewrite: AnyRewrite, request: Request) -> AnyRewrite:
    """The rewrite with the block that its slots are made for as the largest the driver accepts.

    A larger block would reach beyond its slots into other memory. A rewrite without slots stands
    for every block, and stays as it is.
    """
    if rewrite.shared_bytes <= kernel.static_shared_bytes or rewrite.edit.max_threads is not None:
        return rewrite
    edit = replace(rewrite.edit, max_threads=request.threads.threads)
    return replace(rewrite, edit=edit)


def _demand_bound(written: Kernel, threads: int) -> None:
    """That the file keeps blocks away that its slots do not hold for. Raises `ProofError`."""
    most = declared_threads(written)
    if most is None or most > threads:
        raise ProofError(f"the file accepts more than {threads} threads", kernel=written.name)


def prove_first(
    cubin: Cubin,
    kernel: Kernel,
    request: Request,
    ways: Iterable[Callable[[], Rewrite]],
    wanted: Callable[[Kernel], None] | None = None,
) -> tuple[Cubin, Rewrite, Verdict]:
    """The first of several rewrites that is proved, with the cubin that holds it.

    The proof is of the bytes: the cubin is written, parsed again and checked. `wanted` is asked
    before that; what it raises ends the search. Raises the first way's own error if no way makes a
    rewrite, `ProofError` if none is proved.
    """
    refused: RegdemError | None = None
    unproved: Verdict | None = None
    for way in ways:
        try:
            rewrite = bounded(kernel, way(), request)
        except UnsupportedError as error:
            refused = refused or error
            continue
        new = Cubin.parse(cubin.with_kernel(kernel.name, rewrite.edit).to_bytes(), cubin.name)
        written = new.kernel(kernel.name)
        if wanted is not None:
            wanted(written)
        verdict = check_pair(kernel, written, kernel.arch, threads=request.threads.threads)
        if not verdict.findings:
            if rewrite.shared_bytes > kernel.static_shared_bytes:
                _demand_bound(written, request.threads.threads)
            return new, rewrite, verdict
        unproved = unproved or verdict
    if unproved is None:
        assert refused is not None
        raise refused
    first = unproved.findings[0]
    raise ProofError(
        f"the rewrite could not be proved: {first.kind}: {first.message}",
        hint=f"{len(unproved.findings)} findings; nothing was written",
        kernel=kernel.name,
        offset=first.offset if first.offset >= 0 else None,
    )
