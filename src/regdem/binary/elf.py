"""ELF64 as NVIDIA's tools write it, kept byte for byte.

The problem: general ELF libraries rebuild a file when they write it, and reorder symbols on the
way, which breaks cubins (symbol indices stand in `.nv.info`, `.nv.callgraph` and elsewhere).
Here an image is its original bytes plus views: headers are decoded into values and arrays, the
bytes themselves are never re-generated unless an edit replaces them (see `layout`).

Invariants: every offset, size and count is checked against the length of the file before it is
used, so that hostile input costs no more memory than its own size; every failure is an
`InputError`.

Not claimed: ELF32, big-endian files and compressed sections are refused.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regdem.errors import InputError

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")

SYMBOL_DTYPE = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("shndx", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
RELA_DTYPE = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
REL_DTYPE = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4")])

SHT_NULL, SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA = 0, 1, 2, 3, 4
SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_SYMTAB_SHNDX = 7, 8, 9, 18
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_INFO_LINK = 0x1, 0x2, 0x4, 0x40
STT_OBJECT, STT_FUNC, STT_SECTION = 1, 2, 3
ET_REL, ET_EXEC = 1, 2
PT_LOAD, PT_PHDR = 1, 6
PF_X, PF_W, PF_R = 1, 2, 4
EM_CUDA = 190
SHN_LORESERVE, SHN_XINDEX = 0xFF00, 0xFFFF

_NOBITS_TYPES = frozenset({SHT_NULL, SHT_NOBITS, 0x70000007, 0x7000000A, 0x70000015})
"""Types without bytes in the file: NULL, NOBITS and NVIDIA's global, shared and reserved kinds."""


@dataclass(frozen=True, slots=True)
class Section:
    """One section header; `offset` and `size` are bytes of the file."""

    index: int
    name_offset: int
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int

    @property
    def file_size(self) -> int:
        """Bytes the section takes in the file (none for NOBITS)."""
        return 0 if self.type in _NOBITS_TYPES else self.size

    def pack(self) -> bytes:
        return SECTION_HEADER.pack(
            self.name_offset,
            self.type,
            self.flags,
            self.address,
            self.offset,
            self.size,
            self.link,
            self.info,
            self.alignment,
            self.entry_size,
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """One program header."""

    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    file_size: int
    memory_size: int
    alignment: int

    def pack(self) -> bytes:
        return PROGRAM_HEADER.pack(
            self.type,
            self.flags,
            self.offset,
            self.vaddr,
            self.paddr,
            self.file_size,
            self.memory_size,
            self.alignment,
        )


@dataclass(frozen=True, slots=True)
class ElfHeader:
    """The file header; counts and indices are those in force (extended numbering resolved)."""

    ident: bytes
    type: int
    machine: int
    version: int
    entry: int
    program_offset: int
    section_offset: int
    flags: int
    header_size: int
    program_entry_size: int
    program_count: int
    section_entry_size: int
    section_count: int
    string_index: int

    def pack(self) -> bytes:
        extended = self.section_count >= SHN_LORESERVE
        return HEADER.pack(
            self.ident,
            self.type,
            self.machine,
            self.version,
            self.entry,
            self.program_offset,
            self.section_offset,
            self.flags,
            self.header_size,
            self.program_entry_size,
            self.program_count,
            self.section_entry_size,
            0 if extended else self.section_count,
            SHN_XINDEX if self.string_index >= SHN_LORESERVE else self.string_index,
        )


class StringTable:
    """Bounded access to a string table: no hostile table can make names cost much memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._cache: dict[int, str] = {}
        self._budget = 16 * len(data) + 65536

    def __getitem__(self, offset: int) -> str:
        found = self._cache.get(offset)
        if found is not None:
            return found
        if offset >= len(self._data):
            if offset == 0:
                return ""
            raise InputError("a name points outside its string table")
        end = self._data.find(b"\0", offset)
        if end < 0:
            raise InputError("a name in a string table is not terminated")
        self._budget -= end - offset
        if self._budget < 0:
            raise InputError("the names of a string table overlap beyond reason")
        text = self._data[offset:end].decode("utf-8", "backslashreplace")
        self._cache[offset] = text
        return text


@dataclass(frozen=True)
class ElfImage:
    """The bytes of one ELF64 file and its decoded headers."""

    data: bytes
    header: ElfHeader
    sections: tuple[Section, ...]
    segments: tuple[Segment, ...]

    @staticmethod
    def parse(data: bytes) -> ElfImage:
        """Decode the headers; raises InputError when they don't hold together."""
        header = _parse_header(data)
        sections, header = _parse_sections(data, header)
        segments = _parse_segments(data, header)
        return ElfImage(data, header, sections, segments)

    def content(self, section: Section) -> bytes:
        """The bytes of a section in the file (empty for NOBITS)."""
        return self.data[section.offset : section.offset + section.file_size]

    @cached_property
    def by_name(self) -> dict[str, Section]:
        """Sections by name; of several with one name the first."""
        found: dict[str, Section] = {}
        for section in self.sections:
            found.setdefault(section.name, section)
        return found

    @cached_property
    def symbol_section(self) -> Section | None:
        """The (first) symbol table."""
        return next((s for s in self.sections if s.type == SHT_SYMTAB), None)

    @cached_property
    def symbols(self) -> NDArray[np.void]:
        """The symbol table as a structured array of `SYMBOL_DTYPE`, empty if there is none."""
        section = self.symbol_section
        if section is None:
            return np.zeros(0, SYMBOL_DTYPE)
        return self.table(section, SYMBOL_DTYPE)

    @cached_property
    def symbol_names(self) -> StringTable:
        section = self.symbol_section
        if section is None or section.link >= len(self.sections):
            return StringTable(b"\0")
        return StringTable(self.content(self.sections[section.link]))

    @cached_property
    def symbol_sections(self) -> NDArray[np.int64]:
        """Section index per symbol, extended indices resolved; reserved ones (ABS...) as -1."""
        index = self.symbols["shndx"].astype(np.int64)
        if (index == SHN_XINDEX).any():
            table = next((s for s in self.sections if s.type == SHT_SYMTAB_SHNDX), None)
            if table is None:
                raise InputError("extended section indices without their table")
            wide = np.frombuffer(self.content(table)[: 4 * len(index)], "<u4")
            if len(wide) < len(index):
                raise InputError("the table of extended section indices is too short")
            index = np.where(index == SHN_XINDEX, wide.astype(np.int64), index)
            return np.where((index >= SHN_LORESERVE) & (wide == 0), -1, index)
        return np.where(index >= SHN_LORESERVE, -1, index)

    def symbol_name(self, index: int) -> str:
        """Name of a symbol by index; section symbols are named by their section."""
        if not 0 <= index < len(self.symbols):
            raise InputError(f"symbol index {index} is outside the symbol table")
        row = self.symbols[index]
        if int(row["name"]) == 0 and int(row["info"]) & 15 == STT_SECTION:
            target = int(self.symbol_sections[index])
            return self.sections[target].name if 0 <= target < len(self.sections) else ""
        return self.symbol_names[int(row["name"])]

    def table(self, section: Section, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        """A section as a read-only array of fixed-size entries."""
        content = self.content(section)
        if len(content) % dtype.itemsize:
            raise InputError(f"section {section.name} has a size that is no multiple of its entry")
        return np.frombuffer(content, dtype)

    def relocations(self, section: Section) -> NDArray[np.void]:
        """A REL or RELA section as an array of `RELA_DTYPE` (REL entries have addend 0)."""
        if section.entry_size == REL_DTYPE.itemsize or section.type == SHT_REL:
            short = self.table(section, REL_DTYPE)
            full = np.zeros(len(short), RELA_DTYPE)
            for field in ("offset", "type", "symbol"):
                full[field] = short[field]
            return full
        return self.table(section, RELA_DTYPE)


def read_headers(data: bytes | mmap.mmap) -> tuple[ElfHeader, tuple[Section, ...]]:
    """The headers of any little-endian ELF64 file, without a copy of a mapped one."""
    header = _parse_header(data)
    sections, header = _parse_sections(data, header)
    return header, sections


def _parse_header(data: bytes | mmap.mmap) -> ElfHeader:
    if not data:
        raise InputError("the file is empty", hint="give a cubin made by nvcc or ptxas")
    if data[:4] != b"\x7fELF":
        raise InputError("not an ELF file", hint="give a cubin made by nvcc or ptxas")
    if len(data) < HEADER.size:
        raise InputError("the file is truncated inside its ELF header")
    header = ElfHeader(*HEADER.unpack_from(data))
    if header.ident[4] != 2 or header.ident[5] != 1:
        raise InputError("not a little-endian 64-bit ELF file")
    return header


def _parse_sections(
    data: bytes | mmap.mmap, header: ElfHeader
) -> tuple[tuple[Section, ...], ElfHeader]:
    offset, count = header.section_offset, header.section_count
    if offset == 0:
        return (), header
    if header.section_entry_size != SECTION_HEADER.size:
        raise InputError("the section headers have an unknown size")
    if offset + SECTION_HEADER.size > len(data):
        raise InputError("the file is truncated: its section headers lie outside it")
    first = SECTION_HEADER.unpack_from(data, offset)
    if count == 0:
        count = first[5]
    names_index = first[6] if header.string_index == SHN_XINDEX else header.string_index
    header = replace(header, section_count=count, string_index=names_index)
    if offset + count * SECTION_HEADER.size > len(data):
        raise InputError("the file is truncated: its section headers lie outside it")
    raw = [SECTION_HEADER.unpack_from(data, offset + i * 64) for i in range(count)]
    if count and not names_index < count:
        raise InputError("the index of the section name table is outside the section headers")
    names = StringTable(b"\0")
    if count:
        names_row = raw[names_index]
        _check_extent(data, names_row, "the section name table")
        names = StringTable(data[names_row[4] : names_row[4] + names_row[5]])
    sections: list[Section] = []
    for index, row in enumerate(raw):
        name = names[row[0]]
        if index:
            _check_extent(data, row, f"section {name[:80]!r}")
        sections.append(Section(index, row[0], name, *row[1:]))
    return tuple(sections), header


def _check_extent(data: bytes | mmap.mmap, row: tuple[int, ...], what: str) -> None:
    _, kind, _, _, offset, size, _, _, alignment, _ = row
    if kind in _NOBITS_TYPES:
        if offset > len(data) or size > 1 << 40:
            raise InputError(f"{what} lies outside the file")
    elif offset + size > len(data):
        raise InputError(f"{what} lies outside the file", hint="the file is truncated or damaged")
    if alignment & (alignment - 1) or alignment > 1 << 16:
        raise InputError(f"{what} has an illegal alignment")


def _parse_segments(data: bytes, header: ElfHeader) -> tuple[Segment, ...]:
    count, offset = header.program_count, header.program_offset
    if offset == 0 or count == 0:
        return ()
    if header.program_entry_size != PROGRAM_HEADER.size:
        raise InputError("the program headers have an unknown size")
    if offset + count * PROGRAM_HEADER.size > len(data):
        raise InputError("the file is truncated: its program headers lie outside it")
    segments = [Segment(*PROGRAM_HEADER.unpack_from(data, offset + i * 56)) for i in range(count)]
    for segment in segments:
        if segment.offset + segment.file_size > len(data):
            raise InputError("a program segment lies outside the file")
        if segment.memory_size > 1 << 40:
            raise InputError("a program segment has an impossible size")
    return tuple(segments)
