"""Write an ELF image with some of its sections replaced, everything else byte for byte.

The file is seen as a row of extents (sections, header tables, and opaque gaps between them).
Extents in front of the first change keep their place; behind it each one moves to the next
position that satisfies its alignment, and every offset of the section and program headers follows.
Sections that share bytes (as the `.nv.merc.*` copies do) move together.

A new NOBITS section gets its header in the middle of the table; every reference by section index
(`sh_link`, `sh_info` where it is one, symbols, extended indices) is renumbered. Symbol indices
never change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from regdem.binary import elf
from regdem.binary.elf import ElfImage, Section, Segment
from regdem.errors import UnsupportedError

_SYMBOL_TABLES = frozenset({elf.SHT_SYMTAB, 0x70000085})


@dataclass(frozen=True)
class NewSection:
    """A NOBITS section to add: its header goes in front of section `before`."""

    name: str
    size: int
    before: int
    offset_of: int | None
    """Index of the section whose file offset it takes; None: the end of section `before - 1`."""
    info: int
    type: int = elf.SHT_NOBITS
    flags: int = elf.SHF_WRITE | elf.SHF_ALLOC | elf.SHF_INFO_LINK
    alignment: int = 16


@dataclass(slots=True)
class _Extent:
    start: int
    end: int
    alignment: int
    section: int = -1  # index of a section with exactly these bytes, or -1
    new_start: int = 0
    new_end: int = 0


def rebuild(
    image: ElfImage,
    contents: Mapping[int, bytes],
    sizes: Mapping[int, int] | None = None,
    infos: Mapping[int, int] | None = None,
    new: NewSection | None = None,
) -> bytes:
    """The file with `contents[i]` in section i, NOBITS sizes `sizes[i]` and `sh_info` `infos[i]`.

    Raises UnsupportedError where sections overlap in a way that can't be kept.
    """
    contents, sizes, infos = dict(contents), dict(sizes or {}), dict(infos or {})
    sections, header = list(image.sections), image.header
    name_offset = 0
    if new is not None:
        names = sections[header.string_index]
        table = contents.get(names.index, image.content(names))
        name_offset = len(table)
        contents[names.index] = table + new.name.encode() + b"\0"
        _renumber_symbols(image, contents, new.before)
    segments = list(image.segments)
    needs_segment = new is not None and _writable(segments) is None and bool(segments)
    program_growth = elf.PROGRAM_HEADER.size if needs_segment else 0
    extents = _extents(image)
    out = _place(image, extents, contents, 1 if new is not None else 0, program_growth)
    places = _Places(extents)
    moved = [
        replace(
            section,
            offset=places.start(section.offset, section.file_size) if section.index else 0,
            size=sizes.get(section.index, _new_size(section, contents)),
            info=infos.get(section.index, section.info),
        )
        for section in sections
    ]
    growth = sum(moved[i].size - sections[i].size for i in sizes)
    segments = [_move_segment(segment, places) for segment in segments]
    if new is not None:
        before = moved[new.before - 1]
        offset = before.offset + before.file_size
        if new.offset_of is not None:
            offset = moved[new.offset_of].offset
        row = Section(
            new.before, name_offset, new.name, new.type, new.flags, 0, offset,
            new.size, 0, new.info, new.alignment, 0,
        )  # fmt: skip
        moved = _insert_header(moved, row)
        growth += new.size
        if needs_segment:
            segments = _insert_segment(segments, offset, growth)
            growth = 0
        header = replace(
            header,
            section_count=header.section_count + 1,
            string_index=header.string_index + (header.string_index >= new.before),
        )
    segments = _grow_segment(segments, growth)
    if header.program_offset:
        header = replace(
            header,
            program_offset=places.start(header.program_offset, 1),
            program_count=len(segments),
        )
    header = replace(header, section_offset=places.start(header.section_offset, 1))
    if header.section_count >= elf.SHN_LORESERVE:
        moved[0] = replace(moved[0], size=header.section_count)
    if header.string_index >= elf.SHN_LORESERVE:
        moved[0] = replace(moved[0], link=header.string_index)
    out[: elf.HEADER.size] = header.pack()
    _write(out, header.section_offset, [section.pack() for section in moved])
    _write(out, header.program_offset, [segment.pack() for segment in segments])
    return bytes(out)


def _new_size(section: Section, contents: Mapping[int, bytes]) -> int:
    return len(contents[section.index]) if section.index in contents else section.size


def _write(out: bytearray, offset: int, rows: list[bytes]) -> None:
    data = b"".join(rows)
    out[offset : offset + len(data)] = data


def _extents(image: ElfImage) -> list[_Extent]:
    """The file's extents in order; overlapping sections are merged, empty ones kept as points."""
    header = image.header
    raw = [_Extent(0, elf.HEADER.size, 1)]
    tables = [(header.section_offset, header.section_count * elf.SECTION_HEADER.size)]
    tables.append((header.program_offset, header.program_count * elf.PROGRAM_HEADER.size))
    raw += [_Extent(start, start + size, 8) for start, size in tables if size]
    for section in image.sections[1:]:
        end = section.offset + section.file_size
        raw.append(_Extent(section.offset, end, max(section.alignment, 1), section.index))
    raw.sort(key=lambda e: (e.start, e.end, e.section))
    merged: list[_Extent] = []
    for extent in raw:
        last = merged[-1] if merged else None
        if last is None or extent.start >= last.end:
            merged.append(extent)
            continue
        if extent.start == extent.end:
            merged.append(extent)  # an empty section inside another's bytes: a point
            continue
        if last.start == last.end:
            last = next(e for e in reversed(merged) if e.start != e.end)
            if extent.start >= last.end:
                merged.append(extent)
                continue
        if (last.start, last.end) != (extent.start, extent.end):
            last.end, last.section = max(last.end, extent.end), -1
        last.alignment = max(last.alignment, extent.alignment)
    return merged


def _place(
    image: ElfImage,
    extents: list[_Extent],
    contents: Mapping[int, bytes],
    extra_sections: int,
    program_growth: int,
) -> bytearray:
    """Give every extent its new place and write the sections' bytes."""
    data, out = image.data, bytearray()
    pending = dict(contents)
    cursor = 0  # end of the old bytes already written
    for extent in extents:
        if extent.start < cursor:  # a point inside the bytes before it
            extent.new_start = extent.new_end = len(out) - (cursor - extent.start)
            continue
        gap = data[cursor : extent.start]
        if len(out) == cursor:
            out += gap
        else:
            out += gap if gap.strip(b"\0") else b""
            out += bytes(-len(out) % extent.alignment)
        extent.new_start = len(out)
        body = data[extent.start : extent.end]
        if extent.section in pending:
            body = pending.pop(extent.section)
        if extent.start == image.header.section_offset and extent.section < 0:
            body += bytes(extra_sections * elf.SECTION_HEADER.size)
        if extent.start == image.header.program_offset and extent.section < 0:
            body += bytes(program_growth)
        out += body
        extent.new_end = len(out)
        cursor = max(cursor, extent.end)
    tail = data[cursor:]
    out += tail
    for index, content in list(pending.items()):
        section = image.sections[index]
        if len(content) != section.file_size:
            raise UnsupportedError(f"section {section.name} shares its bytes and can't change size")
        start = _Places(extents).start(section.offset, section.file_size)
        out[start : start + len(content)] = content
    return out


class _Places:
    """Maps old file offsets to new ones."""

    def __init__(self, extents: list[_Extent]) -> None:
        self._full = [e for e in extents if e.end > e.start]
        self._starts = [e.start for e in self._full]
        self._points = {e.start: e.new_start for e in extents if e.end == e.start}
        self._ends = {e.end: e.new_end for e in self._full}

    def start(self, offset: int, size: int) -> int:
        """Where something of `size` bytes at `offset` begins now."""
        if size == 0 and offset in self._points:
            return self._points[offset]
        index = max(bisect_right(self._starts, offset) - 1, 0)
        extent = self._full[index]
        if offset < extent.end or (size == 0 and offset == extent.end):
            return min(extent.new_start + offset - extent.start, extent.new_end)
        return extent.new_end + offset - extent.end

    def end(self, offset: int) -> int:
        """Where a stretch that ended at `offset` ends now."""
        if offset in self._ends:
            return self._ends[offset]
        if offset in self._points:
            return self._points[offset]
        return self.start(offset, 1)


def _move_segment(segment: Segment, places: _Places) -> Segment:
    start = places.start(segment.offset, 1 if segment.file_size else 0)
    if not segment.file_size:
        return replace(segment, offset=start)
    size = places.end(segment.offset + segment.file_size) - start
    return replace(
        segment,
        offset=start,
        file_size=size,
        memory_size=segment.memory_size + size - segment.file_size,
    )


def _writable(segments: list[Segment]) -> int | None:
    found = [i for i, s in enumerate(segments) if s.type == elf.PT_LOAD and s.flags & elf.PF_W]
    return found[-1] if found else None


def _grow_segment(segments: list[Segment], growth: int) -> list[Segment]:
    index = _writable(segments)
    if index is None or growth == 0:
        return segments
    grown = replace(segments[index], memory_size=segments[index].memory_size + growth)
    return [*segments[:index], grown, *segments[index + 1 :]]


def _insert_segment(segments: list[Segment], offset: int, size: int) -> list[Segment]:
    """Add a read-write segment behind the code's; segments that hold the table itself grow."""
    entry = elf.PROGRAM_HEADER.size
    table = next((s.offset for s in segments if s.type == elf.PT_PHDR), -1)
    segments = [
        replace(s, file_size=len(segments) * entry + entry, memory_size=(len(segments) + 1) * entry)
        if s.offset == table
        else s
        for s in segments
    ]
    code = [i for i, s in enumerate(segments) if s.flags & elf.PF_X]
    place = code[-1] + 1 if code else len(segments)
    added = Segment(elf.PT_LOAD, elf.PF_R | elf.PF_W, offset, 0, 0, 0, size, 8)
    return [*segments[:place], added, *segments[place:]]


def _insert_header(sections: list[Section], row: Section) -> list[Section]:
    at = row.index

    def shift(index: int) -> int:
        return index + 1 if index >= at else index

    moved: list[Section] = []
    for section in sections:
        relocates = section.type in (elf.SHT_REL, elf.SHT_RELA)
        is_index = relocates or bool(section.flags & elf.SHF_INFO_LINK)
        moved.append(
            replace(
                section,
                index=shift(section.index),
                link=shift(section.link),
                info=shift(section.info) if is_index else section.info,
            )
        )
    row = replace(row, info=shift(row.info))
    return [*moved[:at], row, *moved[at:]]


def _renumber_symbols(image: ElfImage, contents: dict[int, bytes], at: int) -> None:
    for section in image.sections:
        raw = contents.get(section.index, image.content(section))
        if section.type in _SYMBOL_TABLES:
            rows = np.frombuffer(raw, elf.SYMBOL_DTYPE).copy()
            index = rows["shndx"]
            rows["shndx"] = index + ((index >= at) & (index < elf.SHN_LORESERVE))
            if (rows["shndx"] == elf.SHN_LORESERVE).any():
                raise UnsupportedError("the file has too many sections to add one")
            contents[section.index] = rows.tobytes()
        elif section.type == elf.SHT_SYMTAB_SHNDX:
            wide = np.frombuffer(raw, "<u4").copy()
            wide += (wide >= at).astype("<u4")
            contents[section.index] = wide.tobytes()
