"""Replace cubins where they are embedded: in a fat binary, or in a host object, program or library.

Problem: other parts of a host ELF file refer to places in it, so its sections can't grow, but a
rewritten cubin is longer than its original.

Method: in a host file an entry keeps its place and its padded size. A new cubin that is too long
for it as it is is stored compressed, as nvcc does under `--compress-mode` (Zstandard, or LZ4 where
that was used); machine code shrinks three to five times. What still does not fit is refused. A fat
binary by itself is written anew with the sizes that its entries need.

Invariants: entries that are not replaced keep every byte; reading the result back gives exactly
the cubins that were put in, which is checked before it is returned.

Not claimed: that every driver reads Zstandard; those that load what nvcc 12.8 and later compress
do.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from regdem.binary import elf
from regdem.binary.fatbin import MAGIC, MAGIC_BYTES, read_fatbins
from regdem.errors import InputError, UnsupportedError

SECTIONS = frozenset({".nv_fatbin", "__nv_relfatbin", "__nv_fatbin"})
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_PADDED, _COMPRESSED, _FLAGS, _UNCOMPRESSED = 3, 4, 11, 13
_LZ4, _ZSTD, _ZLIB = 0x2000, 0x8000, 0x1000
_EXTRACT = "take the cubin out with regdem extract and load it with the driver API"


@dataclass(frozen=True)
class _Place:
    """One entry: offsets of its header, its payload, and the end of its padding, in the file."""

    header: int
    payload: int
    end: int
    fields: tuple[int, ...]


def replace_cubins(data: bytes, new: Mapping[int, bytes], *, name: str | None = None) -> bytes:
    """The file with other cubins. `new`: by position among the entries, as `open_container` lists
    them.

    Raises UnsupportedError for files that are not written in place (archives, directories) and
    where a cubin does not fit.
    """
    if data[:4] == MAGIC_BYTES:
        result = _rebuilt(data, new)
    elif data[:4] == b"\x7fELF":
        result = _in_place(data, new, name)
    else:
        raise UnsupportedError(
            "cubins can't be replaced in this kind of file",
            code="not_in_place",
            file=name,
            hint=_EXTRACT,
        )
    for position, (entry, payload) in enumerate(_payloads(result)):
        if position in new and payload != new[position]:
            raise InputError(f"entry {entry} is not what was written", file=name)
    return result


def _rebuilt(data: bytes, new: Mapping[int, bytes]) -> bytes:
    """Fat binaries by themselves: entries take the size they need."""
    out = bytearray()
    position = 0
    start = 0
    while start + _HEADER.size <= len(data):
        magic, version, header_size, size = _HEADER.unpack_from(data, start)
        if magic != MAGIC:
            raise InputError("a fat binary starts with the wrong bytes")
        end = start + header_size + size
        body = bytearray()
        for place in _entries(data, start + header_size, end):
            content = new.get(position)
            body += data[place.header : place.end] if content is None else _entry(
                data, place, content
            )  # fmt: skip
            position += 1
        out += _HEADER.pack(magic, version, header_size, len(body))
        out += data[start + _HEADER.size : start + header_size] + body
        start = end
    return bytes(out + data[start:])


def _entry(data: bytes, place: _Place, content: bytes) -> bytes:
    """An entry with another payload, compressed if the old one was."""
    fields = list(place.fields)
    payload = content
    if way := _way(fields[_FLAGS]):
        payload = _compress(content, way)
        fields[_COMPRESSED], fields[_UNCOMPRESSED] = len(payload), len(content)
    padding = bytes(-len(payload) % 8)
    fields[_PADDED] = len(payload) + len(padding)
    between = data[place.header + _ENTRY.size : place.payload]
    return _ENTRY.pack(*fields) + between + payload + padding


def _in_place(data: bytes, new: Mapping[int, bytes], name: str | None) -> bytes:
    out = bytearray(data)
    for position, place in enumerate(_places(data)):
        content = new.get(position)
        if content is None:
            continue
        room = place.end - place.payload
        fields = list(place.fields)
        way = _way(fields[_FLAGS])
        payload = content
        if way or len(content) != room:
            # A raw payload is as long as its padding; a shorter one is stored compressed as well.
            way = way or "zstd"
            payload = _compress(content, way)
            fields[_FLAGS] |= _ZSTD if way == "zstd" else _LZ4
            fields[_COMPRESSED], fields[_UNCOMPRESSED] = len(payload), len(content)
        if len(payload) > room:
            raise UnsupportedError(
                f"the new cubin needs {len(payload)} bytes where {room} are",
                code="does_not_fit",
                file=name,
                hint=_EXTRACT,
            )
        out[place.header : place.header + _ENTRY.size] = _ENTRY.pack(*fields)
        out[place.payload : place.end] = payload + bytes(room - len(payload))
    return bytes(out)


def _way(flags: int) -> str:
    if flags & _ZLIB:
        raise UnsupportedError("an entry is compressed in an unknown way", code="not_in_place")
    return "zstd" if flags & _ZSTD else "lz4" if flags & _LZ4 else ""


def _compress(content: bytes, way: str) -> bytes:
    if way == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=19, write_checksum=False).compress(content)
    block = cast("Any", importlib.import_module("lz4.block"))
    return bytes(block.compress(content, mode="high_compression", compression=12, store_size=False))


def _places(data: bytes) -> Iterator[_Place]:
    """Entries of a host file in the order of `open_container`."""
    _, sections = elf.read_headers(data)
    for section in sections:
        if section.name not in SECTIONS or not section.file_size:
            continue
        start, stop = section.offset, section.offset + section.file_size
        while start + _HEADER.size <= stop:
            magic, _, header_size, size = _HEADER.unpack_from(data, start)
            if magic != MAGIC:
                if any(data[start : start + 8]):
                    raise InputError("a fat binary starts with the wrong bytes")
                start += 8
                continue
            end = start + header_size + size
            yield from _entries(data, start + header_size, end)
            start = end + (-(end - section.offset) % 8)


def _entries(data: bytes, position: int, end: int) -> Iterator[_Place]:
    while position + _ENTRY.size <= end:
        fields = _ENTRY.unpack_from(data, position)
        payload = position + fields[2]
        stop = payload + fields[_PADDED]
        if fields[2] < _ENTRY.size or stop > end:
            raise InputError("a fat binary entry lies outside its fat binary")
        yield _Place(position, payload, stop, fields)
        position = stop


def _payloads(data: bytes) -> Iterator[tuple[str, bytes]]:
    view = memoryview(data)
    if data[:4] == MAGIC_BYTES:
        parts = [(view, False)]
    else:
        _, sections = elf.read_headers(data)
        parts = [
            (view[s.offset : s.offset + s.file_size], True)
            for s in sections
            if s.name in SECTIONS and s.file_size
        ]
    for part, is_section in parts:
        for entry in read_fatbins(part, section=is_section):
            yield f"{entry.arch} {entry.kind}", entry.read()
