"""`.nv.info` records: the attribute lists of a cubin and of each of its kernels.

A record is `u8 format, u8 attribute, u16 value`; format 4 is followed by `value` bytes of
payload, formats 1 to 3 hold at most two bytes inline. Unknown attributes are kept as they are.

The second half knows which attributes hold **code offsets** (they move when code moves), which
hold **register numbers**, and which are known to hold neither; an attribute in none of the lists
makes a rewrite refuse the kernel by name, since a stale offset would go unnoticed. Names are
those the vendor's `cuobjdump -elf` prints; the lists were checked against the records of CUDA 12
and 13 compilers and of shipped libraries (`docs/design/binary.md`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from regdem.binary.attributes import ATTRIBUTE_NAMES
from regdem.errors import InputError, UnsupportedError, UsageError

FORMAT_NONE, FORMAT_BYTE, FORMAT_HALF, FORMAT_SIZED = 1, 2, 3, 4

MAX_THREADS, PARAM_CBANK, EXTERNS, REQNTID = 0x05, 0x0A, 0x0F, 0x10
FRAME_SIZE, MIN_STACK_SIZE, KPARAM_INFO, CBANK_PARAM_SIZE = 0x11, 0x12, 0x17, 0x19
MAXREG_COUNT, EXIT_INSTR_OFFSETS = 0x1B, 0x1C
COOP_GROUP_INSTR_OFFSETS, COOP_GROUP_MASK_REGIDS = 0x28, 0x29
REGCOUNT, INT_WARP_WIDE_INSTR_OFFSETS, SHARED_SCRATCH = 0x2F, 0x31, 0x32
INDIRECT_BRANCH_TARGETS, CTA_PER_CLUSTER, EXPLICIT_CLUSTER = 0x34, 0x3D, 0x3E
RESERVED_SMEM_USED, UNUSED_LOAD_BYTE_OFFSET, SYSCALL_OFFSETS = 0x41, 0x44, 0x46
NUM_BARRIERS, REG_RECONFIG, ANNOTATIONS = 0x4C, 0x54, 0x55

OFFSET_LISTS = frozenset(
    {0x1C, 0x1D, 0x25, 0x27, 0x28, 0x2D, 0x31, 0x39, 0x46, 0x47, 0x57, 0x59, 0x65, 0x6C}
)
"""Attributes whose payload is a list of u32 code offsets of single instructions."""

NO_CODE_OFFSETS = frozenset(
    {0x01, 0x04, 0x05, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0F, 0x10, 0x11, 0x12, 0x13, 0x15}
    | {0x16, 0x17, 0x18, 0x19, 0x1A, 0x1B, 0x1E, 0x1F, 0x20, 0x21, 0x22, 0x23, 0x24, 0x26, 0x29}
    | {0x2A, 0x2B, 0x2C, 0x2F, 0x30, 0x32, 0x33, 0x35, 0x36, 0x37, 0x38, 0x3B, 0x3D, 0x3E, 0x3F}
    | {0x41, 0x42, 0x45, 0x49, 0x4A, 0x4C, 0x4D, 0x50, 0x51, 0x52, 0x53, 0x54, 0x58, 0x5B, 0x5C}
    | {0x5D, 0x5E, 0x5F, 0x62, 0x64, 0x66, 0x68, 0x69, 0x6B, 0x6D}
)
"""Attributes known to hold no code offset."""

_MOST_THREADS = 1024
NO_MASK_REGISTER = 0xFFFFFFFF
"""Entry of COOP_GROUP_MASK_REGIDS for an operation without a mask register."""
_MASK_REGISTER_KIND = 0x050000
"""Upper bits of an entry whose low byte is a general register (in all 22,000 seen)."""


@dataclass(frozen=True, slots=True)
class InfoRecord:
    """One record; `payload` is the sized payload, or the two inline bytes of the other formats."""

    format: int
    attribute: int
    payload: bytes

    @property
    def name(self) -> str:
        """The vendor's name, or `0x..` for an attribute without one."""
        return ATTRIBUTE_NAMES.get(self.attribute, f"0x{self.attribute:02x}")

    @property
    def words(self) -> tuple[int, ...]:
        """The payload as little-endian 32-bit words (a rest that fills none is left out)."""
        return struct.unpack_from(f"<{len(self.payload) // 4}I", self.payload)

    @property
    def inline(self) -> int:
        """The value of a byte or half-word record."""
        if self.format == FORMAT_BYTE:
            return self.payload[0]
        return int.from_bytes(self.payload[:2], "little")

    def pack(self) -> bytes:
        head = bytes((self.format, self.attribute))
        if self.format == FORMAT_SIZED:
            return head + struct.pack("<H", len(self.payload)) + self.payload
        return head + self.payload


def parse_info(content: bytes, where: str = ".nv.info") -> tuple[InfoRecord, ...]:
    """All records of one section; raises InputError when they don't fill it exactly."""
    records: list[InfoRecord] = []
    position, end = 0, len(content)
    while position < end:
        if position + 4 > end:
            raise InputError(f"{where} ends inside a record")
        kind, attribute = content[position], content[position + 1]
        inline = content[position + 2 : position + 4]
        position += 4
        if kind == FORMAT_SIZED:
            size = int.from_bytes(inline, "little")
            if position + size > end:
                raise InputError(f"{where} ends inside a record")
            inline = content[position : position + size]
            position += size
        elif kind not in (FORMAT_NONE, FORMAT_BYTE, FORMAT_HALF):
            raise InputError(f"{where} holds a record of unknown format {kind}")
        records.append(InfoRecord(kind, attribute, inline))
    return tuple(records)


def pack_info(records: Iterable[InfoRecord]) -> bytes:
    """The bytes of a section; the inverse of `parse_info`."""
    return b"".join(record.pack() for record in records)


def with_max_threads(records: Sequence[InfoRecord], threads: int) -> list[InfoRecord]:
    """The records of a kernel that is to be launched with blocks of at most `threads` threads.

    The driver refuses a launch of more than the product of MAX_THREADS. Written as nvcc writes it
    for `__launch_bounds__(threads)`, in front of the size of the parameters; a kernel that
    declares as few already, or a fixed block, keeps what it has.
    """
    if not 0 < threads <= _MOST_THREADS:
        raise UsageError(f"a block can't have {threads} threads")
    limits = [r for r in records if r.attribute in (MAX_THREADS, REQNTID)]
    if any(math.prod(record.words) <= threads for record in limits):
        return list(records)
    bound = InfoRecord(FORMAT_SIZED, MAX_THREADS, struct.pack("<3I", threads, 1, 1))
    if any(record.attribute == MAX_THREADS for record in limits):
        return [bound if record.attribute == MAX_THREADS else record for record in records]
    size = (k for k, record in enumerate(records) if record.attribute == CBANK_PARAM_SIZE)
    place = next(size, len(records))
    return [*records[:place], bound, *records[place:]]


def branch_tables(records: Iterable[InfoRecord]) -> list[tuple[int, tuple[int, ...]]]:
    """(offset of the BRX, its targets in table order) from INDIRECT_BRANCH_TARGETS."""
    tables: list[tuple[int, tuple[int, ...]]] = []
    for record in records:
        if record.attribute != INDIRECT_BRANCH_TARGETS:
            continue
        words, position = record.words, 0
        while position < len(words):
            if position + 3 > len(words) or position + 3 + words[position + 2] > len(words):
                raise InputError("an indirect branch record ends inside a list of targets")
            count = words[position + 2]
            tables.append((words[position], words[position + 3 : position + 3 + count]))
            position += 3 + count
    return tables


def move_record(
    record: InfoRecord,
    move: Callable[[int], int],
    move_target: Callable[[int], int],
    rename: Callable[[int], int],
) -> InfoRecord:
    """The record after its kernel's code moved.

    `move` maps the offset of an instruction, `move_target` that of a branch target, `rename` a
    general register. Raises UnsupportedError for an attribute that may hold offsets in a layout
    we don't know.
    """
    attribute = record.attribute
    if attribute == COOP_GROUP_MASK_REGIDS:
        return _repack(record, [_rename_mask(word, rename) for word in record.words])
    if attribute in NO_CODE_OFFSETS:
        return record
    if record.format in (FORMAT_NONE, FORMAT_BYTE):
        return record  # a flag or a small number: eight bits hold no code offset
    if record.format == FORMAT_HALF:
        if attribute in ATTRIBUTE_NAMES:
            return record
        raise _unknown(record)
    words = record.words
    if len(record.payload) != 4 * len(words):
        raise _unknown(record)
    if attribute in OFFSET_LISTS:
        return _repack(record, [move(word) for word in words])
    if attribute == UNUSED_LOAD_BYTE_OFFSET and len(words) % 2 == 0:
        return _repack(record, [w if i & 1 else move(w) for i, w in enumerate(words)])
    if attribute == ANNOTATIONS and len(words) % 2 == 0:
        return _repack(record, [move(w) if i & 1 else w for i, w in enumerate(words)])
    if attribute == INDIRECT_BRANCH_TARGETS:
        moved: list[int] = []
        position = 0
        for offset, targets in branch_tables([record]):
            moved += [move(offset), words[position + 1], len(targets)]
            moved += [move_target(target) for target in targets]
            position += 3 + len(targets)
        return _repack(record, moved)
    raise _unknown(record)


def _rename_mask(word: int, rename: Callable[[int], int]) -> int:
    if word == NO_MASK_REGISTER:
        return word
    if word >> 8 != _MASK_REGISTER_KIND:
        raise UnsupportedError(
            f"a mask of cooperative groups is given as 0x{word:x}, which regdem does not know"
        )
    return (word & ~0xFF) | rename(word & 0xFF)


def _repack(record: InfoRecord, words: list[int]) -> InfoRecord:
    payload = struct.pack(f"<{len(words)}I", *words)
    return InfoRecord(record.format, record.attribute, payload)


def _unknown(record: InfoRecord) -> UnsupportedError:
    return UnsupportedError(
        f"the kernel's .nv.info has attribute {record.name}, which may hold code offsets in a"
        " layout regdem does not know",
        hint="leave this kernel as it is",
    )
