"""The last phase: renaming, control bits, and the edit for the file."""

from __future__ import annotations

from collections.abc import Sequence

from regdem.analysis.forms import forms_of
from regdem.analysis.webs import STACK_POINTER, Webs
from regdem.binary.edit import KernelEdit
from regdem.binary.kernel import SPILL_ANNOTATION, Annotation, Kernel
from regdem.errors import UnsupportedError
from regdem.isa.decode import decode
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.program.edit import NOP, Word
from regdem.program.loops import block_weights
from regdem.program.program import Program
from regdem.transform.colour import Colouring
from regdem.transform.demoted import (
    RESERVED_REGISTERS,
    STATIC_SHARED_LIMIT_BYTES,
    Rewrite,
    Spilled,
)
from regdem.transform.hazards import repair
from regdem.transform.latencies import LATENCY_CYCLES
from regdem.transform.pace import block_cycles
from regdem.transform.rename import rename

_ISSUE_CYCLES = 4
"""What an instruction costs besides a warp's own time: some warps share a scheduler."""


def finish(
    kernel: Kernel, spilled: Spilled, found: Webs, colouring: Colouring, method: str
) -> Rewrite:
    """Renaming, control bits, and the edit for the file."""
    edited = spilled.edited
    program = edited.program
    origin = edited.origin.tolist()
    inserted = [o < 0 for o in origin]
    words, cycles = _written(program, found, colouring, origin)
    highest = max(
        (colouring.register[w.index] for w in found.webs if w.points or w.reads or w.writes),
        default=STACK_POINTER,
    )
    code = b"".join(lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in words)
    shared = spilled.where.shared_bytes if spilled.where else kernel.static_shared_bytes
    if shared > STATIC_SHARED_LIMIT_BYTES:
        raise UnsupportedError(
            f"the slots need {shared} bytes of static shared memory",
            code="slots_do_not_fit",
            hint="48 KiB is the most a block can have without opting in",
            kernel=kernel.name,
        )
    registers = highest + 1 + RESERVED_REGISTERS
    edit = KernelEdit(
        code=code,
        offset_map=edited.index_map * INSTRUCTION_BYTES,
        target_map=edited.label_map * INSTRUCTION_BYTES,
        registers_per_thread=registers,
        shared_bytes=shared if spilled.where else None,
        frame_bytes=kernel.local_bytes + spilled.frame_bytes if spilled.frame_bytes else None,
        register_map=_register_map(found, colouring),
        new_annotations=tuple(
            Annotation(SPILL_ANNOTATION, i * INSTRUCTION_BYTES)
            for i, form in enumerate(forms_of(program.code))
            if inserted[i] and form.memory in ("shared", "local")
        ),
    )
    count = sum(1 for o, w in zip(origin, words, strict=True) if o < 0 and w[0] != NOP[0])
    return Rewrite(
        edit, registers, shared, spilled.slots, tuple(spilled.demoted),
        tuple(spilled.rematerialised), count, method, tuple(spilled.uniform),
        cycles, tuple(spilled.folded), spilled.removed,
    )  # fmt: skip


def _written(
    program: Program, found: Webs, colouring: Colouring, origin: Sequence[int]
) -> tuple[list[Word], float]:
    """The words with their new registers and control bits, and the cycles that they are estimated
    to take; kept with the program."""
    key = "written", colouring.register
    known: tuple[list[Word], float] | None = program.memo.get(key)
    if known is None:
        renamed = _with_words(program, rename(program, found, colouring.register, origin))
        words = repair(renamed, [o < 0 for o in origin])
        known = words, estimated_cycles(_with_words(program, words))
        program.memo[key] = known
    return known


def estimated_cycles(program: Program) -> float:
    """Cycles of one warp with loops, and the issue slots that it takes from others."""
    late = [LATENCY_CYCLES.get(form.latency, 26) for form in forms_of(program.code)]
    return sum(
        weight * (cycles + _ISSUE_CYCLES * (block.end - block.start))
        for weight, cycles, block in zip(
            block_weights(program), block_cycles(program, late), program.blocks, strict=True
        )
    )


def _with_words(program: Program, words: Sequence[Word]) -> Program:
    """The same program with other words (register fields only)."""
    code = decode(
        b"".join(lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in words),
        program.code.table.arch,
    )
    return Program(
        program.name, code, program.target, program.callee, program.tables, program.functions,
        program.blocks, program.block_of,
    )  # fmt: skip


def _register_map(found: Webs, colouring: Colouring) -> dict[int, int]:
    """Old to new register numbers, for those whose webs all got one number."""
    new: dict[int, set[int]] = {}
    for web in found.webs:
        new.setdefault(web.register, set()).add(colouring.register[web.index])
    return {r: next(iter(s)) for r, s in new.items() if len(s) == 1}
