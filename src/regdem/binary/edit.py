"""Replace a kernel's code and move everything in the file that refers to it.

What moves: function symbols, the register count (`.nv.info`, and `sh_info` before sm_90), the
largest block and code offsets in `.nv.info.KERNEL`, relocations of the code and into the code, jump
tables in `.nv.constant2.KERNEL`, frame and line tables, the shared memory section, and the headers.
The call graph and everything that names symbols by index needs no change, since symbols keep
theirs.

Two maps say where code went. `offset_map` gives the new place of each original *instruction*
(exit lists, annotations, relocated fields). `target_map` gives the place of the *label* in front
of it, before any code inserted for it (functions, branch targets, return addresses, source lines).

Refused, by name: attributes of unknown layout, jump tables that can't be found, relocations with
addends inside the code, full debug information (`-G`), in which variables are bound to registers.

Not claimed: `.nv.merc.*` and `.nv.capmerc.*` (sm_100 and later) stay as they are: they hold the
original program for other chips of the family, which is still a correct program.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regdem.binary import elf, info
from regdem.binary.elf import Section
from regdem.binary.frames import move_frames
from regdem.binary.info import InfoRecord, move_record, pack_info, parse_info
from regdem.binary.kernel import Annotation, Kernel
from regdem.binary.layout import NewSection, rebuild
from regdem.binary.lines import MovedSection, address_map, move_lines
from regdem.errors import InputError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from regdem.binary.cubin import Cubin

_DEBUG_WITH_REGISTERS = (".debug_loc", ".debug_loclists", ".nv_debug_info_reg_sass")
_CUDA_13_ABI = 0x41
_ANNOTATIONS_PER_RECORD = 8000
"""A record's payload has a 16-bit size."""
_RELOCATION_BYTES = {1: 4, 2: 8}
"""Size of the place of R_CUDA_32 and R_CUDA_64, for addends that stand in it (REL)."""


@dataclass(frozen=True)
class KernelEdit:
    """What to put in a kernel's place.

    `code`: the new section, a multiple of 16 bytes. `offset_map`: (n + 1,) int64, new byte offset
    of each original instruction and of the end; `target_map`: the same for labels, never
    decreasing, by default equal to `offset_map`. `registers_per_thread`, `shared_bytes` (user's
    static shared memory, without the reserve), `frame_bytes` (the kernel's stack frame): None keeps
    them. `max_threads`: the largest block
    that the driver shall accept; what the kernel declares is lowered to it, never raised.
    `register_map`: old to new general register, for records that name registers. `removed`: (n,)
    bool, instructions that no longer exist; their annotations go too. `new_annotations`: records to
    add, at new offsets.
    """

    code: bytes = field(repr=False)
    offset_map: NDArray[np.int64]
    target_map: NDArray[np.int64] | None = None
    registers_per_thread: int | None = None
    shared_bytes: int | None = None
    frame_bytes: int | None = None
    max_threads: int | None = None
    register_map: Mapping[int, int] = field(default_factory=dict[int, int])
    removed: NDArray[np.bool_] | None = None
    new_annotations: tuple[Annotation, ...] = ()


def apply_edit(cubin: Cubin, kernel: Kernel, edit: KernelEdit) -> elf.ElfImage:
    """The image with one kernel replaced; see the module."""
    try:
        return _Edit(cubin, kernel, edit).image()
    except (struct.error, IndexError, OverflowError) as error:
        # A damaged file can parse and still hold numbers that no table can be rebuilt from.
        raise InputError(
            f"the file's tables contradict each other ({error})",
            file=cubin.name or None,
            kernel=kernel.name,
        ) from error


class _Edit:
    """One edit in progress: new section contents by index."""

    def __init__(self, cubin: Cubin, kernel: Kernel, edit: KernelEdit) -> None:
        self.cubin, self.kernel, self.edit = cubin, kernel, edit
        self.source = cubin.image
        self.text = self.source.sections[kernel.section_index]
        self.contents: dict[int, bytes] = {}
        self.sizes: dict[int, int] = {}
        self.infos: dict[int, int] = {}
        self.new: NewSection | None = None
        self.offsets = _checked_map(edit.offset_map, kernel, edit, "offset_map")
        labels = edit.target_map if edit.target_map is not None else edit.offset_map
        self.targets = _checked_map(labels, kernel, edit, "target_map")
        if (np.diff(self.targets) < 0).any() or self.targets[-1] != len(edit.code):
            raise UsageError("target_map must not decrease and must end at the end of the code")

    def image(self) -> elf.ElfImage:
        self._refuse_debug()
        self.contents[self.text.index] = self.edit.code
        self._move_symbols()
        self._write_register_count()
        self._move_info()
        self._move_tables()
        self._move_debug()
        self._move_relocations()
        self._resize_shared()
        data = rebuild(self.source, self.contents, self.sizes, self.infos, self.new)
        return elf.ElfImage.parse(data)

    def move(self, offset: int) -> int:
        """New offset of the instruction at `offset`."""
        return self._look_up(self.offsets, offset)

    def move_target(self, offset: int) -> int:
        """New offset of the label at `offset`."""
        return self._look_up(self.targets, offset)

    def _look_up(self, table: NDArray[np.int64], offset: int) -> int:
        index, rest = divmod(offset, 16)
        if rest or not 0 <= index < len(table):
            raise self._refusal(f"a reference to its code at 0x{offset:x} is not an instruction")
        return int(table[index])

    def _refusal(self, message: str, hint: str | None = None) -> UnsupportedError:
        return UnsupportedError(
            message, hint=hint, file=self.cubin.name or None, kernel=self.kernel.name
        )

    def _content(self, section: Section) -> bytes:
        return self.contents.get(section.index, self.source.content(section))

    def _refuse_debug(self) -> None:
        for name in _DEBUG_WITH_REGISTERS:
            section = self.source.by_name.get(name)
            if section is not None and section.file_size:
                raise self._refusal(
                    f"the file has full debug information ({name})",
                    "compile without -G; -lineinfo is fine",
                )

    @cached_property
    def _owned(self) -> NDArray[np.bool_]:
        """Symbols that stand in the kernel's code section."""
        return self.source.symbol_sections == self.text.index

    @cached_property
    def _new_values(self) -> NDArray[np.uint64]:
        """Symbol values after the edit."""
        values = self.source.symbols["value"].astype(np.uint64)
        for index in np.flatnonzero(self._owned).tolist():
            values[index] = self.move_target(int(values[index]))
        return values

    def _move_symbols(self) -> None:
        section = self.source.symbol_section
        assert section is not None
        rows = self.source.symbols.copy()
        for index in np.flatnonzero(self._owned).tolist():
            row = self.source.symbols[index]
            start, size = int(row["value"]), int(row["size"])
            rows[index]["value"] = self._new_values[index]
            if size:
                rows[index]["size"] = self.move_target(start + size) - self.move_target(start)
        if int(rows[self.kernel.symbol_index]["value"]) != int(
            self.source.symbols[self.kernel.symbol_index]["value"]
        ):
            raise UsageError("target_map must keep the kernel's entry where it is")
        self.contents[section.index] = rows.tobytes()

    def _write_register_count(self) -> None:
        count, frame = self.edit.registers_per_thread, self.edit.frame_bytes
        if count is None and frame is None:
            return
        if count is None:
            count = self.kernel.registers_per_thread
        if not 0 < count <= 255:
            raise UsageError(f"a kernel can't have {count} registers per thread")
        if self.cubin.sm < 90:
            low = self.text.info & 0xFFFFFF
            self.infos[self.text.index] = low | count << 24
        section = self.source.by_name.get(".nv.info")
        if section is None:
            return
        symbols = set(np.flatnonzero(self._owned).tolist())
        records = [
            InfoRecord(r.format, r.attribute, struct.pack("<II", r.words[0], count))
            if r.attribute == info.REGCOUNT and r.words[0] in symbols
            else r
            for r in self.cubin.global_info
        ]
        if frame is not None:
            records = [self._with_frame(record, frame) for record in records]
        self.contents[section.index] = pack_info(records)

    def _with_frame(self, record: InfoRecord, frame: int) -> InfoRecord:
        """A record of the kernel's frame, or of the stack that it needs at least, larger."""
        kept = (info.FRAME_SIZE, info.MIN_STACK_SIZE)
        if record.attribute not in kept or record.words[0] != self.kernel.symbol_index:
            return record
        size = record.words[1] + frame - self.kernel.local_bytes
        return InfoRecord(
            record.format, record.attribute, struct.pack("<II", record.words[0], size)
        )

    def _move_info(self) -> None:
        section = self.cubin.info_section(self.kernel.name)
        if section is None:
            if self.edit.max_threads is not None:
                raise self._refusal("the file has no .nv.info of it, which holds its block size")
            return
        records: list[InfoRecord] = []
        for record in parse_info(self.source.content(section), section.name):
            kept = self._without_removed(record)
            if kept is None:
                continue
            try:
                moved = move_record(kept, self.move, self.move_target, self._rename)
            except UnsupportedError as error:
                error.kernel = error.kernel or self.kernel.name
                raise
            records.append(moved)
        # Tools before CUDA 13 don't know the record.
        if self.edit.new_annotations and self.source.header.ident[7] == _CUDA_13_ABI:
            records = _with_annotations(records, self.edit.new_annotations)
        if self.edit.max_threads is not None:
            records = info.with_max_threads(records, self.edit.max_threads)
        self.contents[section.index] = pack_info(records)

    def _rename(self, register: int) -> int:
        return self.edit.register_map.get(register, register)

    def _is_removed(self, offset: int) -> bool:
        removed = self.edit.removed
        return removed is not None and offset // 16 < len(removed) and bool(removed[offset // 16])

    def _without_removed(self, record: InfoRecord) -> InfoRecord | None:
        if self.edit.removed is None:
            return record
        column = {info.ANNOTATIONS: 1, info.UNUSED_LOAD_BYTE_OFFSET: 0}.get(record.attribute)
        words = record.words
        if column is not None and len(words) % 2 == 0:
            pairs = [words[i : i + 2] for i in range(0, len(words), 2)]
            kept = [word for p in pairs if not self._is_removed(p[column]) for word in p]
            if not kept:
                return None
            return InfoRecord(record.format, record.attribute, struct.pack(f"<{len(kept)}I", *kept))
        if record.attribute in info.OFFSET_LISTS and any(self._is_removed(w) for w in words):
            raise self._refusal(f"an instruction listed in {record.name} was removed")
        return record

    def _move_tables(self) -> None:
        tables = self.kernel.branch_tables
        if not tables:
            return
        section = self.source.by_name.get(f".nv.constant2.{self.kernel.name}")
        if section is None or any(table.table_offset is None for table in tables):
            raise self._refusal("the targets of an indirect branch are not in a jump table")
        content = self.source.content(section)
        words = np.frombuffer(content[: len(content) & ~3], "<u4").copy()
        marked: set[int] = set()
        for table in tables:
            places = _occurrences(words, table.targets)
            if len(table.targets) < 2 and len(places) > 1:
                raise self._refusal("the jump table of an indirect branch can't be told apart")
            marked.update(p + i for p in places for i in range(len(table.targets)))
        for place in marked:
            words[place] = self.move_target(int(words[place]))
        self.contents[section.index] = words.tobytes() + content[len(content) & ~3 :]

    def _move_debug(self) -> None:
        self._moved: dict[int, MovedSection] = {}
        for name in (".debug_line", ".nv_debug_line_sass", ".debug_frame"):
            section = self.source.by_name.get(name)
            if section is None or not section.file_size:
                continue
            addresses = address_map(self.cubin, section)
            if self.text.index not in {where for where, _ in addresses.values()}:
                continue
            data = self.source.content(section)
            code = self.text.index
            if name == ".debug_frame":
                in_place = self._is_rel(section)
                moved = move_frames(data, addresses, code, self.move_target, in_place)
            else:
                moved = move_lines(data, addresses, code, self.move_target)
            self._moved[section.index] = moved
            self.contents[section.index] = moved.content

    def _is_rel(self, section: Section) -> bool:
        return any(
            table.type == elf.SHT_REL
            for table in self.cubin.relocation_sections
            if table.info == section.index
        )

    def _move_relocations(self) -> None:
        for table in self.cubin.relocation_sections:
            target = self.source.sections[table.info]
            rows = self.source.relocations(table).copy()
            if not len(rows):
                continue
            named = self._owned[rows["symbol"]]
            inside = target.index == self.text.index
            moved = self._moved.get(target.index)
            if not (inside or moved is not None or bool(named.any())):
                continue
            in_place = table.type == elf.SHT_REL
            for i in np.flatnonzero(named).tolist():
                if in_place:
                    self._move_place(rows[i], target, moved is not None, inside)
                else:
                    rows[i]["addend"] = self._new_addend(
                        int(rows[i]["symbol"]), int(rows[i]["addend"])
                    )
            for i in range(len(rows)):
                place = int(rows[i]["offset"])
                if inside:
                    rows[i]["offset"] = self.move(place & ~15) + place % 16
                elif moved is not None:
                    rows[i]["offset"] = moved.position(place)
            if in_place:
                short = np.zeros(len(rows), elf.REL_DTYPE)
                for name in ("offset", "type", "symbol"):
                    short[name] = rows[name]
                self.contents[table.index] = short.tobytes()
            else:
                self.contents[table.index] = rows.tobytes()

    def _new_addend(self, symbol: int, addend: int) -> int:
        old = int(self.source.symbols[symbol]["value"]) + addend
        return self.move_target(old) - int(self._new_values[symbol])

    def _move_place(self, row: np.void, target: Section, moved: bool, inside: bool) -> None:
        """An addend that stands in the relocated place itself."""
        if moved and target.name == ".debug_frame":
            return  # written with the frame
        width = _RELOCATION_BYTES.get(int(row["type"]))
        if inside or width is None:
            raise self._refusal("its code has relocations whose addends stand in instructions")
        place, symbol = int(row["offset"]), int(row["symbol"])
        old_content = self.source.content(target)
        addend = int.from_bytes(old_content[place : place + width], "little")
        new = self._new_addend(symbol, addend).to_bytes(width, "little")
        if moved:
            place = self._moved[target.index].position(place)
        content = bytearray(self._content(target))
        content[place : place + width] = new
        self.contents[target.index] = bytes(content)

    def _resize_shared(self) -> None:
        wanted = self.edit.shared_bytes
        if wanted is None or wanted == self.kernel.static_shared_bytes:
            return
        if wanted < 0:
            raise UsageError("shared memory can't have a negative size")
        section = self.cubin.shared_section(self.kernel.name)
        if section is not None:
            self.sizes[section.index] = wanted + self.kernel.reserved_shared_bytes
            return
        linked_reserve = self.cubin.sm >= 90 and not self.cubin.is_relocatable
        size = wanted + (1024 if linked_reserve else 0)
        self.new = self._new_shared(size)

    def _new_shared(self, size: int) -> NewSection:
        """Where `.nv.shared.KERNEL` goes: behind the shared sections there are."""
        sections = self.source.sections
        shared = [s.index for s in sections if s.name.startswith(".nv.shared.")]
        anchor = max(shared, default=None)
        if anchor is None:
            data = elf.SHF_WRITE | elf.SHF_ALLOC
            writable = [s.index for s in sections if s.flags & data == data]
            code = [s.index for s in sections if s.flags & elf.SHF_EXECINSTR]
            before = max(writable or code) + 1
        else:
            before = anchor + 1
        name = f".nv.shared.{self.kernel.name}"
        kind = elf.SHT_NOBITS
        if self.cubin.is_relocatable and self.source.header.ident[7] == _CUDA_13_ABI:
            kind = 0x7000000A
        return NewSection(name, size, before, anchor, self.text.index, kind)


def _checked_map(
    table: NDArray[np.int64], kernel: Kernel, edit: KernelEdit, name: str
) -> NDArray[np.int64]:
    table = np.asarray(table, np.int64)
    size = len(edit.code)
    if size % 16 or not size:
        raise UsageError("new code must be a whole number of instructions")
    if table.shape != (kernel.instruction_count + 1,):
        raise UsageError(f"{name} needs an entry per original instruction and one for the end")
    if (table % 16).any() or (table < 0).any() or (table > size).any():
        raise UsageError(f"{name} points outside the new code")
    return table


def _occurrences(words: NDArray[np.uint32], targets: tuple[int, ...]) -> list[int]:
    """Word positions at which `targets` stand in a row."""
    count = len(targets)
    if count == 0 or count > len(words):
        return []
    windows = np.lib.stride_tricks.sliding_window_view(words, count)
    return np.flatnonzero((windows == np.array(targets, "<u4")).all(axis=1)).tolist()


def _with_annotations(records: list[InfoRecord], added: tuple[Annotation, ...]) -> list[InfoRecord]:
    pairs = [(a.offset, a.kind) for a in added]
    place = len(records)
    kept: list[InfoRecord] = []
    for record in records:
        if record.attribute == info.ANNOTATIONS:
            words = record.words
            pairs += [(words[i + 1], words[i]) for i in range(0, len(words) - 1, 2)]
            place = min(place, len(kept))
            continue
        kept.append(record)
    ordered = sorted(set(pairs))
    merged: list[InfoRecord] = []
    for start in range(0, len(ordered), _ANNOTATIONS_PER_RECORD):
        part = ordered[start : start + _ANNOTATIONS_PER_RECORD]
        words = [word for offset, kind in part for word in (kind, offset)]
        payload = struct.pack(f"<{len(words)}I", *words)
        merged.append(InfoRecord(info.FORMAT_SIZED, info.ANNOTATIONS, payload))
    place = min(place, len(kept))
    return [*kept[:place], *merged, *kept[place:]]
