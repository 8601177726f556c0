"""DWARF line tables: `.debug_line` (source lines) and `.nv_debug_line_sass` (PTX lines).

A line program is a byte code whose sequences start at an address given by a relocation against a
kernel. Reading runs it. Rewriting keeps every opcode and only re-encodes the address advances,
so that vendor opcodes (inlined calls, function names) survive without being understood: a special
opcode whose advance changed becomes `advance_pc` and the special opcode with the same line step.

Invariant: `move_lines` with the identity map gives the same bytes. Not claimed: file names of
DWARF 5 headers (the lines are read, the names are empty).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regdem.binary import elf
from regdem.binary.dwarf import read_cstring, read_sleb, read_uint, read_uleb, write_uleb
from regdem.binary.kernel import LineEntry
from regdem.errors import InputError

if TYPE_CHECKING:
    from regdem.binary.cubin import Cubin

_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE = 1, 2, 3, 4
_CONST_ADD_PC, _FIXED_ADVANCE_PC = 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2

AddressMap = Mapping[int, tuple[int, int]]
"""Offset of a set_address operand in the section -> (code section index, base offset in it)."""


@dataclass(frozen=True, slots=True)
class _Unit:
    start: int
    program: int
    end: int
    minimum: int
    line_base: int
    line_range: int
    opcode_base: int
    operand_counts: tuple[int, ...]
    files: tuple[str, ...]


@dataclass(slots=True)
class _Op:
    """One opcode: bytes `start` to `end`; `advance` is what it adds to the address."""

    start: int
    end: int
    code: int
    advance: int = 0
    line_step: int = 0
    emits_row: bool = False
    ends: bool = False
    set_address: tuple[int, int] | None = None
    set_file: int | None = None


def units(data: bytes) -> Iterator[_Unit]:
    """The compilation units of a line section."""
    position = 0
    while position < len(data):
        start = position
        size = read_uint(data, position, 4)
        if size >= 0xFFFFFFF0:
            raise InputError("64-bit DWARF line tables are not supported")
        end = position + 4 + size
        if end > len(data) or size < 10:
            raise InputError("a line table is truncated")
        version = read_uint(data, position + 4, 2)
        position += 6 + (2 if version >= 5 else 0)
        program = position + 4 + read_uint(data, position, 4)
        position += 4
        minimum = read_uint(data, position, 1)
        position += 2 if version >= 4 else 1
        line_base = read_uint(data, position + 1, 1)
        line_range = read_uint(data, position + 2, 1)
        opcode_base = read_uint(data, position + 3, 1)
        if program > end or not line_range or not opcode_base or not 2 <= version <= 5:
            raise InputError("a line table has a header that does not hold together")
        counts = tuple(data[position + 4 : position + 3 + opcode_base])
        position += 3 + opcode_base
        files = _read_files(data[:program], position) if version < 5 else ()
        line_base -= (line_base & 0x80) << 1
        yield _Unit(start, program, end, minimum, line_base, line_range, opcode_base, counts, files)
        position = end


def _read_files(header: bytes, position: int) -> tuple[str, ...]:
    directories = [""]
    while position < len(header) and header[position]:
        text, position = read_cstring(header, position)
        directories.append(text)
    position += 1
    files = [""]
    while position < len(header) and header[position]:
        text, position = read_cstring(header, position)
        directory, position = read_uleb(header, position)
        for _ in range(2):
            _, position = read_uleb(header, position)
        folder = directories[directory] if directory < len(directories) else ""
        files.append(f"{folder}/{text}" if folder and not text.startswith("/") else text)
    return tuple(files)


def _operations(data: bytes, unit: _Unit, addresses: AddressMap) -> Iterator[_Op]:
    position = unit.program
    data = data[: unit.end]
    while position < unit.end:
        start, code = position, data[position]
        position += 1
        op = _Op(start, position, code)
        if code >= unit.opcode_base:
            adjusted = code - unit.opcode_base
            op.advance = adjusted // unit.line_range * unit.minimum
            op.line_step = unit.line_base + adjusted % unit.line_range
            op.emits_row = True
        elif code == 0:
            size, position = read_uleb(data, position)
            sub = read_uint(data, position, 1)
            if position + size > unit.end or size == 0:
                raise InputError("a line table is truncated inside an opcode")
            if sub == _SET_ADDRESS:
                operand = position + 1
                op.set_address = addresses.get(operand, (-1, read_uint(data, operand, size - 1)))
            op.ends = op.emits_row = sub == _END_SEQUENCE
            op.end = position = position + size
        elif code == _ADVANCE_PC:
            value, op.end = read_uleb(data, position)
            op.advance = value * unit.minimum
        elif code == _ADVANCE_LINE:
            op.line_step, op.end = read_sleb(data, position)
        elif code == _SET_FILE:
            op.set_file, op.end = read_uleb(data, position)
        elif code == _CONST_ADD_PC:
            op.advance = (255 - unit.opcode_base) // unit.line_range * unit.minimum
        elif code == _FIXED_ADVANCE_PC:
            op.advance = read_uint(data, position, 2)
            op.end = position + 2
        else:
            op.emits_row = code == _COPY
            for _ in range(unit.operand_counts[code - 1]):
                _, position = read_uleb(data, position)
            op.end = position
        position = op.end
        yield op


def address_map(cubin: Cubin, section: elf.Section) -> dict[int, tuple[int, int]]:
    """Where the sequences of a line section start, from its relocations."""
    image = cubin.image
    content = image.content(section)
    found: dict[int, tuple[int, int]] = {}
    for table in cubin.relocation_sections:
        if table.info != section.index:
            continue
        in_place = table.type == elf.SHT_REL
        for row in image.relocations(table):
            symbol, offset = int(row["symbol"]), int(row["offset"])
            if symbol >= len(image.symbols):
                raise InputError(f"{table.name} names a symbol that does not exist")
            addend = read_uint(content, offset, 8) if in_place else int(row["addend"])
            base = int(image.symbols[symbol]["value"]) + addend
            found[offset] = (int(image.symbol_sections[symbol]), base)
    return found


def read_lines(cubin: Cubin, name: str) -> dict[int, list[LineEntry]]:
    """Line entries per code section index, sorted by offset."""
    section = cubin.image.by_name.get(name)
    if section is None:
        return {}
    data = cubin.image.content(section)
    addresses = address_map(cubin, section)
    found: dict[int, dict[int, LineEntry]] = defaultdict(dict)
    for unit in units(data):
        code_section, address, file, line = -1, 0, 1, 1
        for op in _operations(data, unit, addresses):
            if op.set_address is not None:
                code_section, address = op.set_address
            address += op.advance
            line += op.line_step
            file = op.set_file if op.set_file is not None else file
            if op.emits_row and code_section >= 0 and not op.ends:
                text = unit.files[file] if 0 <= file < len(unit.files) else ""
                found[code_section][address] = LineEntry(address, text, max(line, 0))
            if op.ends:
                code_section, address, file, line = -1, 0, 1, 1
    return {
        index: sorted(entries.values(), key=lambda entry: entry.offset)
        for index, entries in found.items()
    }


@dataclass(frozen=True)
class MovedSection:
    """New content of a section, and where each old byte of it went (for its relocations)."""

    content: bytes
    starts: tuple[tuple[int, int], ...]
    """(old start, new start) of each stretch, ascending."""

    def position(self, old: int) -> int:
        """The new offset of the byte at the old offset `old`."""
        from bisect import bisect_right

        index = bisect_right(self.starts, (old, 1 << 62)) - 1
        start, new = self.starts[max(index, 0)]
        return new + old - start


def move_lines(
    data: bytes, addresses: AddressMap, code_section: int, move: Callable[[int], int]
) -> MovedSection:
    """The line section after the code of one section moved by `move`."""
    out = bytearray()
    starts: list[tuple[int, int]] = []
    for unit in units(data):
        starts.append((unit.start, len(out)))
        unit_start = len(out)
        out += data[unit.start : unit.program]
        where, address, moved = -1, 0, 0
        for op in _operations(data, unit, addresses):
            if op.set_address is not None:
                where, address = op.set_address
                moved = move(address) if where == code_section else address
            elif op.ends and where == code_section:
                out += _advance(unit, move(address) - moved)
            address += op.advance
            raw = data[op.start : op.end]
            if where == code_section and op.advance:
                target = move(address)
                starts.append((op.start, len(out)))
                out += _encode_advance(unit, op, raw, target - moved)
                moved = target
            else:
                starts.append((op.start, len(out)))
                out += raw
            if op.ends:
                where, address, moved = -1, 0, 0
        size = len(out) - unit_start - 4
        out[unit_start : unit_start + 4] = size.to_bytes(4, "little")
    return MovedSection(bytes(out), tuple(starts) or ((0, 0),))


def _encode_advance(unit: _Unit, op: _Op, raw: bytes, advance: int) -> bytes:
    """The opcode with another address advance: as it was, adjusted, or split in two."""
    if advance == op.advance:
        return raw
    if op.code < unit.opcode_base:
        return _advance(unit, advance, at_least=1)
    line_part = (op.code - unit.opcode_base) % unit.line_range
    steps, rest = divmod(advance, unit.minimum or 1)
    code = unit.opcode_base + line_part + steps * unit.line_range
    if not rest and steps >= 0 and code <= 255:
        return bytes((code,))
    return _advance(unit, advance) + bytes((unit.opcode_base + line_part,))


def _advance(unit: _Unit, advance: int, at_least: int = 0) -> bytes:
    """`advance_pc` by a number of bytes (nothing for none)."""
    if advance == 0 and not at_least:
        return b""
    steps, rest = divmod(advance, unit.minimum or 1)
    if rest or steps < 0:
        raise InputError("a line table goes backwards and can't follow the moved code")
    return bytes((_ADVANCE_PC,)) + write_uleb(steps)
