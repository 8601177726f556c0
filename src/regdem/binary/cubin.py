"""A cubin: an ELF file of device code, read into kernels and written back byte for byte.

Both flavours are read: OSABI 0x33/ABI 7 (CUDA 12 and earlier) and OSABI 0x41/ABI 8 (CUDA 13), and
both linked (EXEC) and relocatable (REL) files. `to_bytes` of an unedited value is the input
itself. Edits go through `with_kernel` (see `edit`), which returns a new value.

Raises only `InputError` for bad input, whatever the bytes are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from regdem.binary import elf, info
from regdem.binary.elf import ElfImage, Section
from regdem.binary.info import InfoRecord, parse_info
from regdem.binary.kernel import Annotation, BranchTable, Function, Kernel, LineEntry, Relocation
from regdem.binary.lines import read_lines
from regdem.binary.symbols import Symbol, identify, named_by
from regdem.errors import InputError, UsageError

if TYPE_CHECKING:
    from regdem.binary.edit import KernelEdit

SHT_CUDA_INFO = 0x70000000
SHT_CUDA_RESOLVED_RELA = 0x70000003
STO_CUDA_ENTRY = 0x10
STT_CUDA_OBJECT = 13
STO_CUDA_SHARED = 0x40
SHARED_RESERVE_BYTES = 1024
"""What linked cubins of sm_90 and later include in `.nv.shared.KERNEL` besides the user's data."""

_ARCHITECTURES = range(50, 200)
"""Compute capabilities taken for real; new ones appear with every toolkit."""


@dataclass(frozen=True)
class Cubin:
    """One cubin as an immutable value."""

    image: ElfImage
    name: str = ""

    @staticmethod
    def parse(data: bytes, name: str = "") -> Cubin:
        """Read a cubin; `name` is only used in messages.

        Raises InputError: empty or truncated, not ELF, another vendor's or host ELF, or headers
        that don't hold together.
        """
        try:
            image = ElfImage.parse(bytes(data))
            if image.header.machine != elf.EM_CUDA:
                raise InputError(
                    f"an ELF file for machine {image.header.machine}, not a CUDA cubin",
                    hint="host programs and fat binaries are read as containers",
                )
            cubin = Cubin(image, name)
            _ = cubin.arch
            _ = cubin._kernel_symbols
        except InputError as error:
            error.file = error.file or name or None
            raise
        return cubin

    def to_bytes(self) -> bytes:
        """The file's bytes; those of the input where nothing was edited."""
        return self.image.data

    @cached_property
    def sm(self) -> int:
        """The compute capability as a number: 90 for sm_90."""
        ident, flags = self.image.header.ident, self.image.header.flags
        version = (flags >> 8) & 0xFF if ident[7] == 0x41 else flags & 0xFF
        if version not in _ARCHITECTURES:
            raise InputError(f"a cubin for an unknown architecture (e_flags 0x{flags:x})")
        return version

    @property
    def arch(self) -> str:
        """`sm_90`; variants such as sm_90a have the name of their base."""
        return f"sm_{self.sm}"

    @property
    def is_relocatable(self) -> bool:
        """True for an object that still has to be linked (`nvcc -dc`)."""
        return self.image.header.type == elf.ET_REL

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """All entry functions in the order of the symbol table."""
        return tuple(
            self._build(index).with_source(self) for index in self._kernel_symbols.values()
        )

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """Names without building the kernels."""
        return tuple(self._kernel_symbols)

    def kernel(self, name: str) -> Kernel:
        """One kernel by its mangled name; UsageError if the file has none of that name."""
        index = self._kernel_symbols.get(name)
        if index is None:
            known = ", ".join(list(self._kernel_symbols)[:3]) or "none"
            raise UsageError(
                f"no kernel named {name!r}", hint=f"the file has: {known}", file=self.name or None
            )
        if "kernels" in self.__dict__:
            return next(k for k in self.kernels if k.name == name)
        return self._build(index).with_source(self)

    def with_kernel(self, name: str, edit: KernelEdit) -> Cubin:
        """A new cubin in which the kernel's code is replaced and everything else follows.

        Raises UnsupportedError where something that may hold code offsets is not understood.
        """
        from regdem.binary.edit import apply_edit

        return Cubin(apply_edit(self, self.kernel(name), edit), self.name)

    @cached_property
    def _kernel_symbols(self) -> dict[str, int]:
        image = self.image
        symbols = image.symbols
        is_entry = (symbols["info"] & 15 == elf.STT_FUNC) & (symbols["other"] & STO_CUDA_ENTRY != 0)
        found: dict[str, int] = {}
        for index in np.flatnonzero(is_entry).tolist():
            section = int(image.symbol_sections[index])
            if not 0 < section < len(image.sections):
                continue
            found.setdefault(image.symbol_name(index), index)
        return found

    @cached_property
    def _function_symbols(self) -> dict[int, list[int]]:
        """FUNC symbols per section index."""
        found: dict[int, list[int]] = defaultdict(list)
        for index in np.flatnonzero(self.image.symbols["info"] & 15 == elf.STT_FUNC).tolist():
            found[int(self.image.symbol_sections[index])].append(index)
        return found

    @cached_property
    def global_info(self) -> tuple[InfoRecord, ...]:
        """The records of `.nv.info`, which name functions by symbol index."""
        section = self.image.by_name.get(".nv.info")
        return () if section is None else parse_info(self.image.content(section))

    @cached_property
    def _function_info(self) -> dict[tuple[int, int], int]:
        """(attribute, symbol index) -> value, for the records of `.nv.info` of that shape."""
        found: dict[tuple[int, int], int] = {}
        for record in self.global_info:
            words = record.words
            if record.format == info.FORMAT_SIZED and len(words) == 2:
                found[record.attribute, words[0]] = words[1]
        return found

    @cached_property
    def relocation_sections(self) -> tuple[Section, ...]:
        """All sections of relocations that apply to this file's own sections."""
        kinds = (elf.SHT_REL, elf.SHT_RELA, SHT_CUDA_RESOLVED_RELA)
        found = tuple(s for s in self.image.sections if s.type in kinds and s.size)
        for section in found:
            if section.info >= len(self.image.sections):
                raise InputError(f"{section.name} applies to a section that does not exist")
        return found

    @cached_property
    def _relocations(self) -> tuple[dict[int, list[Relocation]], dict[int, list[Relocation]]]:
        """Relocations by the section they stand in, and by the code section they name."""
        inside: dict[int, list[Relocation]] = defaultdict(list)
        incoming: dict[int, list[Relocation]] = defaultdict(list)
        image = self.image
        owners = image.symbol_sections
        values = image.symbols["value"]
        for section in self.relocation_sections:
            target = image.sections[section.info]
            is_code = bool(target.flags & elf.SHF_EXECINSTR)
            if not is_code and not target.flags & elf.SHF_ALLOC:
                continue  # debug information
            rows = image.relocations(section)
            if len(rows) and int(rows["symbol"].max()) >= len(owners):
                raise InputError(f"{section.name} names a symbol that does not exist")
            for row in rows:
                symbol = int(row["symbol"])
                owner, addend = int(owners[symbol]), int(row["addend"])
                in_code = 0 < owner < len(image.sections) and bool(
                    image.sections[owner].flags & elf.SHF_EXECINSTR
                )
                relocation = Relocation(
                    target.name,
                    int(row["offset"]),
                    int(row["type"]),
                    symbol,
                    image.symbol_name(symbol),
                    addend,
                    int(values[symbol]) + addend if in_code else None,
                )
                if is_code:
                    inside[target.index].append(relocation)
                if in_code and owner != target.index:
                    incoming[owner].append(relocation)
        return inside, incoming

    @cached_property
    def _lines(self) -> dict[int, list[LineEntry]]:
        return read_lines(self, ".debug_line")

    @cached_property
    def _sass_lines(self) -> frozenset[int]:
        section = self.image.by_name.get(".nv_debug_line_sass")
        if section is None:
            return frozenset()
        found: set[int] = set()
        for table in self.relocation_sections:
            if table.info == section.index:
                rows = self.image.relocations(table)
                symbols = rows["symbol"][rows["symbol"] < len(self.image.symbols)]
                found |= set(self.image.symbol_sections[symbols].tolist())
        return frozenset(found)

    def shared_section(self, kernel_name: str) -> Section | None:
        return self.image.by_name.get(f".nv.shared.{kernel_name}")

    def info_section(self, kernel_name: str) -> Section | None:
        return self.image.by_name.get(f".nv.info.{kernel_name}")

    def _build(self, index: int) -> Kernel:
        try:
            return self._build_kernel(index)
        except InputError as error:
            error.file = error.file or self.name or None
            error.kernel = error.kernel or self.image.symbol_name(index)
            raise

    def _build_kernel(self, index: int) -> Kernel:
        image = self.image
        name = image.symbol_name(index)
        text = image.sections[int(image.symbol_sections[index])]
        code = image.content(text)
        if len(code) % 16 or text.type != elf.SHT_PROGBITS:
            raise InputError("the code section is damaged: its size is no multiple of 16")
        section = self.info_section(name)
        records = () if section is None else parse_info(image.content(section), section.name)
        shared = self.shared_section(name)
        shared_bytes = shared.size if shared is not None else 0
        reserve = 0
        if self.sm >= 90 and not self.is_relocatable and shared_bytes >= SHARED_RESERVE_BYTES:
            reserve = SHARED_RESERVE_BYTES
        inside, incoming = self._relocations
        banks, constant2 = self._constant_banks(name)
        max_block = _triple(records, info.MAX_THREADS)
        barriers = _first(records, info.NUM_BARRIERS)
        maxreg = _first(records, info.MAXREG_COUNT)
        scratch = _first(records, info.SHARED_SCRATCH)
        functions = self._functions(text.index, len(code))
        relocations = tuple(sorted(inside.get(text.index, []), key=lambda r: (r.offset, r.type)))
        incoming_here = tuple(incoming.get(text.index, ()))
        named = {each.symbol_index for each in (*relocations, *incoming_here)}
        return Kernel(
            name=name,
            arch=self.arch,
            symbol_index=index,
            section_index=text.index,
            code=code,
            registers_per_thread=self._registers(index, text),
            static_shared_bytes=shared_bytes - reserve,
            reserved_shared_bytes=reserve,
            shared_section_bytes=shared_bytes,
            local_bytes=self._function_info.get((info.FRAME_SIZE, index), 0),
            min_stack=self._function_info.get((info.MIN_STACK_SIZE, index)),
            max_threads=None if max_block is None else max_block[0] * max_block[1] * max_block[2],
            max_block=max_block,
            required_block=_triple(records, info.REQNTID),
            max_registers=None if maxreg is None else maxreg.inline,
            barriers=barriers.inline if barriers else self._flag_barriers(text),
            cluster=_triple(records, info.CTA_PER_CLUSTER),
            shared_scratch=None if scratch is None else scratch.words,
            uses_dynamic_shared=self._uses_dynamic_shared(relocations),
            reconfigures_registers=_first(records, info.REG_RECONFIG) is not None,
            is_relocatable=self.is_relocatable,
            functions=functions,
            info=records,
            relocations=relocations,
            incoming_relocations=incoming_here,
            symbols=self._symbols_of(named.union(named_by(records))),
            branch_tables=_branch_tables(records, constant2, len(code)),
            annotations=_annotations(records),
            constant_bank_bytes=banks,
            constant2=constant2,
            has_sass_lines=text.index in self._sass_lines,
            lines=tuple(self._lines.get(text.index, ())),
        )

    @cached_property
    def _known_symbols(self) -> dict[int, Symbol | None]:
        return {}

    def _symbols_of(self, indices: set[int]) -> dict[int, Symbol]:
        known = self._known_symbols
        for index in indices - known.keys():
            known[index] = identify(self.image, index)
        found = ((index, known[index]) for index in sorted(indices))
        return {index: symbol for index, symbol in found if symbol is not None}

    def _registers(self, symbol: int, text: Section) -> int:
        count = self._function_info.get((info.REGCOUNT, symbol))
        if count is None and self.sm < 90:
            count = text.info >> 24
        if count is None or count > 256:
            raise InputError("the file does not say how many registers the kernel uses")
        return count

    def _flag_barriers(self, text: Section) -> int:
        """Before CUDA 12.8 the number of barriers stood in bits 20 to 26 of the section flags."""
        return (text.flags >> 20) & 0x7F

    def _constant_banks(self, name: str) -> tuple[dict[int, int], bytes]:
        banks: dict[int, int] = {}
        constant2 = b""
        for bank in range(18):
            section = self.image.by_name.get(f".nv.constant{bank}.{name}")
            if section is None:
                section = self.image.by_name.get(f".nv.constant{bank}")
            if section is None:
                continue
            banks[bank] = section.size
            if bank == 2 and section.name.endswith(name):
                constant2 = self.image.content(section)
        return banks, constant2

    def _functions(self, section: int, code_size: int) -> tuple[Function, ...]:
        functions: list[Function] = []
        for index in self._function_symbols.get(section, ()):
            row = self.image.symbols[index]
            offset, size = int(row["value"]), int(row["size"])
            if offset + size > code_size or offset % 16:
                raise InputError("a function symbol lies outside its code section")
            is_kernel = bool(int(row["other"]) & STO_CUDA_ENTRY)
            name = self.image.symbol_name(index)
            functions.append(Function(name, offset, size, index, is_kernel))
        return tuple(sorted(functions, key=lambda f: (f.offset, f.symbol_index)))

    def _uses_dynamic_shared(self, relocations: tuple[Relocation, ...]) -> bool | None:
        symbols = self.image.symbols
        for relocation in relocations:
            row = symbols[relocation.symbol_index]
            if int(self.image.symbol_sections[relocation.symbol_index]) != 0:
                continue
            if int(row["info"]) & 15 == STT_CUDA_OBJECT and int(row["other"]) & STO_CUDA_SHARED:
                return True
        return False if self.is_relocatable else None


def _first(records: tuple[InfoRecord, ...], attribute: int) -> InfoRecord | None:
    return next((record for record in records if record.attribute == attribute), None)


def _triple(records: tuple[InfoRecord, ...], attribute: int) -> tuple[int, int, int] | None:
    record = _first(records, attribute)
    if record is None or len(record.words) < 3:
        return None
    return record.words[0], record.words[1], record.words[2]


def _annotations(records: tuple[InfoRecord, ...]) -> tuple[Annotation, ...]:
    found: list[Annotation] = []
    for record in records:
        if record.attribute == info.ANNOTATIONS:
            words = record.words
            found += [Annotation(words[i], words[i + 1]) for i in range(0, len(words) - 1, 2)]
    return tuple(found)


def _branch_tables(
    records: tuple[InfoRecord, ...], constant2: bytes, code_size: int
) -> tuple[BranchTable, ...]:
    tables: list[BranchTable] = []
    for offset, targets in info.branch_tables(records):
        if any(place >= code_size or place % 16 for place in (offset, *targets)):
            raise InputError("an indirect branch record names an offset outside the code")
        tables.append(BranchTable(offset, targets, _find_table(targets, constant2)))
    return tuple(tables)


def _find_table(targets: tuple[int, ...], constant2: bytes) -> int | None:
    """Where the targets stand one after the other in bank 2, on a word boundary."""
    if not targets:
        return None
    needle = np.array(targets, "<u4").tobytes()
    place = constant2.find(needle)
    while place >= 0 and place % 4:
        place = constant2.find(needle, place + 1)
    return place if place >= 0 else None
