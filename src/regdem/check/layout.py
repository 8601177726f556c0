"""Layout: the slots' bytes, the sizes in the ELF file, and the register count.

Slots must lie inside what the rewritten kernel's shared section adds behind the original's own
shared memory (dynamic shared memory, whatever its size at launch, included), be aligned, and
never share a byte between two threads of a block or two slots of a thread. Nothing is argued
algebraically: addresses are computed for every thread, for several shapes of the block, several
sizes of dynamic shared memory and several ranks in a cluster (`expressions.py`).

On sm_90 user shared memory starts at 0x400 of the block's window, and the window of a block in a
cluster at its rank << 24.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from regdem.binary.kernel import Kernel
from regdem.check.expressions import BlockShape, Expressions, Values
from regdem.check.findings import Finding
from regdem.check.slots import SharedAccess
from regdem.check.view import CodeView

WINDOW_START = 0x400
STATIC_LIMIT_BYTES = 48 * 1024
"""Most static shared memory a launch accepts without opting in."""
DYNAMIC_SIZES = (0, 4, 100, 128, 1000, 4096, 16384, 100_000)
"""Sizes of dynamic shared memory, in bytes, for which the slots' place is computed."""
NAMING_SIZE = 1 << 18
"""More bytes of dynamic shared memory than any launch can have; see `pair._slots`."""
CLUSTER_RANKS = (1, 2, 5, 15)
_ORDERING = frozenset(
    {
        *("BAR", "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR", "FENCE", "CCTL"),
        *("UCGABAR_ARV", "UCGABAR_WAIT"),
    }
)
"""Instructions that order memory accesses and make none."""
_RANK_SHIFT = 24
ABI_REGISTERS = 2
"""What ptxas counts above the highest register it names."""


@dataclass(frozen=True)
class LayoutInput:
    """What the layout checks look at; `shapes` are the blocks to compute addresses for.

    `dynamic_shared_bytes` is the launch's, or None where any size may come.
    """

    original: Kernel
    rewritten: Kernel
    original_view: CodeView
    rewritten_view: CodeView
    accesses: Sequence[SharedAccess]
    expressions: Expressions
    shapes: Sequence[BlockShape]
    dynamic_shared_bytes: int | None


def shapes_of(
    kernel: Kernel, threads: int | tuple[int, int, int] | None
) -> tuple[list[BlockShape], str]:
    """Blocks to check, and in words what that assumes of launches; none where nothing is known.

    A count stands for every shape of so many threads or fewer; a triple for itself.
    """
    if isinstance(threads, tuple):
        return [BlockShape(*threads)], "blocks of {}x{}x{} threads".format(*threads)
    if threads is None and kernel.required_block is not None:
        shape = kernel.required_block
        return [BlockShape(*shape)], "blocks of {}x{}x{} threads".format(*shape)
    count = threads if threads is not None else kernel.max_threads
    if count is None:
        return [], ""
    shapes = [BlockShape(count)]
    if count % 4 == 0:
        shapes += [BlockShape(count // 4, 4), BlockShape(4, count // 4)]
        if count % 16 == 0:
            shapes.append(BlockShape(count // 16, 4, 4))
    shapes += [BlockShape(small) for small in (1, 33, count - 1) if 0 < small < count]
    most = declared_threads(kernel)
    says = "enforces" if most is not None and most <= count else "does not enforce"
    return shapes, f"blocks of at most {count} threads, which the file {says}"


def declared_threads(kernel: Kernel) -> int | None:
    """The most threads of a block that the driver accepts for this kernel, where the file says."""
    declared = [prod(kernel.required_block)] if kernel.required_block is not None else []
    if kernel.max_threads is not None:
        declared.append(kernel.max_threads)
    return min(declared, default=None)


def check_layout(given: LayoutInput) -> list[Finding]:
    """All findings about registers, sizes and slots."""
    findings = _check_registers(given) + _check_sizes(given)
    if given.accesses:
        findings += _check_slots(given)
    return findings


def _finding(given: LayoutInput, kind: str, message: str, offset: int = -1) -> Finding:
    return Finding(kind, given.rewritten.name, offset, message)


def highest_register(view: CodeView) -> int:
    """The highest general register the code names, or -1."""
    code = view.code
    general = code.operand_file == 0
    if not bool(general.any()):
        return -1
    last = code.operand_register[general].astype(np.int64) + code.operand_width[general] - 1
    return int(last.max())


def _check_registers(given: LayoutInput) -> list[Finding]:
    before = given.original.registers_per_thread - (highest_register(given.original_view) + 1)
    highest = highest_register(given.rewritten_view)
    needed = highest + 1 + max(0, min(ABI_REGISTERS, before))
    have = given.rewritten.registers_per_thread
    if have >= needed:
        return []
    message = f"the code names R{highest} and needs {needed} registers; the file says {have}"
    return [_finding(given, "register_count", message)]


def _check_sizes(given: LayoutInput) -> list[Finding]:
    old, new = given.original, given.rewritten
    findings: list[Finding] = []
    if new.static_shared_bytes < old.static_shared_bytes:
        message = f"{new.static_shared_bytes} shared bytes, fewer than {old.static_shared_bytes}"
        findings.append(_finding(given, "shared_size", message))
    if new.static_shared_bytes > max(STATIC_LIMIT_BYTES, old.static_shared_bytes):
        message = f"{new.static_shared_bytes} static shared bytes are more than a launch takes"
        findings.append(_finding(given, "shared_size", message))
    uses_frame = "local" in given.rewritten_view.memory or "generic" in given.rewritten_view.memory
    if new.local_bytes < old.local_bytes and uses_frame:
        message = f"the stack frame shrank from {old.local_bytes} to {new.local_bytes} bytes"
        findings.append(_finding(given, "frame_size", message))
    if new.barriers < old.barriers:
        message = f"{new.barriers} barriers are declared, the original had {old.barriers}"
        findings.append(_finding(given, "barriers", message))
    findings += [_finding(given, "launch_bounds", why) for why in _bounds_differ(given)]
    return findings


def _bounds_differ(given: LayoutInput) -> list[str]:
    """What is wrong with the launches that the file admits, in words.

    Slots are sized for a block: with them, the file may admit smaller blocks than the original's,
    down to those asked about.
    """
    old, new = given.original, given.rewritten
    if (new.required_block, new.cluster) != (old.required_block, old.cluster):
        return ["the launch bounds differ from the original's"]
    if new.max_threads == old.max_threads:
        return []
    if new.max_threads is None or (old.max_threads or new.max_threads) < new.max_threads:
        return ["the file admits larger blocks than the original's"]
    if not given.accesses:
        return ["the file admits smaller blocks than the original's, and no slots ask for it"]
    asked = max(shape.x * shape.y * shape.z for shape in given.shapes)
    if new.max_threads < min(asked, old.max_threads or asked):
        return [f"the file admits blocks of at most {new.max_threads} threads, not {asked}"]
    return []


def _check_slots(given: LayoutInput) -> list[Finding]:
    if not given.shapes:
        message = "the block size is unknown, so the slots can't be proved apart"
        return [_finding(given, "block_size", message)]
    follows = _follows_dynamic(given)
    if not follows and given.dynamic_shared_bytes is None and _may_use_dynamic(given.original_view):
        message = "slots don't make room for dynamic shared memory, which the kernel may use"
        return [_finding(given, "dynamic_shared", message)]
    sizes: tuple[int, ...] = DYNAMIC_SIZES
    if given.dynamic_shared_bytes is not None:
        sizes = (given.dynamic_shared_bytes,)
    elif not follows:
        sizes = (0,)
    bases = sorted({access.base for access in given.accesses})
    if not agree_everywhere(given.expressions, bases, given.shapes, sizes):
        message = "two addresses of slots are the same in some blocks and not in others"
        return [_finding(given, "slot_address", message)]
    for shape in given.shapes:
        for size in sizes:
            sized = BlockShape(shape.x, shape.y, shape.z, size)
            findings = _check_addresses(given, sized)
            if findings:
                return findings
    return []


def agree_everywhere(
    expressions: Expressions,
    bases: Sequence[int],
    shapes: Sequence[BlockShape],
    sizes: Sequence[int],
) -> bool:
    """Whether expressions that are equal in the first shape are so in every other.

    Slots are named after their addresses in blocks of the first shape, so a store and a load that
    meet there must meet everywhere. `sizes` are of dynamic shared memory, in bytes.
    """
    if len(bases) < 2:
        return True
    named: dict[tuple[int, bytes], list[int]] = {}
    for size in {*sizes, 0, NAMING_SIZE} if len(sizes) > 1 else set(sizes):
        for base in bases:
            values = expressions.evaluate(base, replace(shapes[0], dynamic_shared_bytes=size))
            if values is not None:
                named.setdefault((size, values.tobytes()), []).append(base)
    pairs = {(group[0], base) for group in named.values() for base in group[1:]}
    return all(
        _same(expressions.evaluate(a, sized), expressions.evaluate(b, sized))
        for shape in shapes
        for sized in (replace(shape, dynamic_shared_bytes=size) for size in sizes)
        for a, b in pairs
        if a != b
    )


def _may_use_dynamic(view: CodeView) -> bool:
    """Whether the original may reach shared memory beyond its static part."""
    return any(
        memory in ("shared", "generic") or (memory == "other" and name not in _ORDERING)
        for memory, name in zip(view.memory, view.name, strict=True)
    )


def _follows_dynamic(given: LayoutInput) -> bool:
    shape = given.shapes[0]
    moved = BlockShape(shape.x, shape.y, shape.z, 4096)
    return any(
        not _same(given.expressions.evaluate(base, shape), given.expressions.evaluate(base, moved))
        for base in {access.base for access in given.accesses}
    )


def _same(a: Values | None, b: Values | None) -> bool:
    return a is not None and b is not None and bool(np.array_equal(a, b))


def _check_addresses(given: LayoutInput, shape: BlockShape) -> list[Finding]:
    first = WINDOW_START + given.original.static_shared_bytes + shape.dynamic_shared_bytes
    end = WINDOW_START + given.rewritten.static_shared_bytes + shape.dynamic_shared_bytes
    words: dict[bytes, NDArray[np.int64]] = {}
    where = f"a block of {shape.x}x{shape.y}x{shape.z} threads"
    if shape.dynamic_shared_bytes:
        where += f" with {shape.dynamic_shared_bytes} dynamic bytes"
    bases: dict[int, Values] = {}
    for access in given.accesses:
        at = 16 * access.instruction
        if access.base not in bases:
            computed = given.expressions.evaluate(access.base, shape)
            if computed is None:
                return [_finding(given, "slot_address", "a slot's address is not computable", at)]
            if not _follows_rank(given, access.base, shape, computed):
                message = "a slot's address doesn't follow the block's rank in its cluster"
                return [_finding(given, "slot_address", message, at)]
            bases[access.base] = computed
        low = bases[access.base].astype(np.int64) + access.offset
        if int((low % (4 * access.words)).max()):
            return [_finding(given, "slot_alignment", f"a slot is misaligned in {where}", at)]
        if int(low.min()) < first or int(low.max()) + 4 * access.words > end:
            message = (
                f"slot bytes 0x{int(low.min()):x} to 0x{int(low.max()) + 4 * access.words:x} in "
                f"{where} leave the room for slots, 0x{first:x} to 0x{end:x}"
            )
            return [_finding(given, "slot_range", message, at)]
        for word in range(access.words):
            each = low + 4 * word
            words[each.tobytes()] = each
    everything = np.concatenate(list(words.values()))
    if len(np.unique(everything)) != len(everything):
        return [_finding(given, "slot_overlap", f"two slots share bytes in {where}")]
    return []


def _follows_rank(given: LayoutInput, base: int, shape: BlockShape, values: Values) -> bool:
    for rank in CLUSTER_RANKS:
        ranked = BlockShape(shape.x, shape.y, shape.z, shape.dynamic_shared_bytes, rank)
        moved = given.expressions.evaluate(base, ranked)
        if moved is None or not np.array_equal(moved, values + np.uint32(rank << _RANK_SHIFT)):
            return False
    return True
