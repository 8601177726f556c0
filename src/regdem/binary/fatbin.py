"""Fat binaries: device code for several architectures in one stretch of bytes.

Format, as seen in what nvcc 12 and 13 write for every `--compress-mode` and as public readers
describe it: a header `u32 magic 0xBA55ED50, u16 version, u16 header size, u64 size`, then entries.
An entry is `u16 kind, u16 version, u32 header size, u64 padded size, u32 compressed size, u32,
u16 minor, u16 major, u32 architecture, u32 name offset, u32 name size, u64 flags, u64, u64
uncompressed size` and its payload. Flag 0x2000 marks LZ4 (block format), 0x8000 Zstandard.

Payloads are decompressed when they are asked for, never beyond the size that their entry states
and never beyond the caller's limit.
"""

from __future__ import annotations

import importlib
import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from regdem.errors import InputError

MAGIC = 0xBA55ED50
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
KINDS = {1: "ptx", 2: "cubin", 8: "ltoir"}

_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_FLAG_LZ4, _FLAG_ZSTD, _FLAG_ZLIB = 0x2000, 0x8000, 0x1000
_MAX_WINDOW = 1 << 27
_MAX_EXPANSION = 1000
"""Device code shrinks 3 to 20 times; more than this is an attack."""


@dataclass(frozen=True)
class FatbinEntry:
    """One entry; `kind` is `cubin`, `ptx`, `ltoir` or `other`, `size` the bytes of `read()`."""

    kind: str
    arch: str
    size: int
    payload: memoryview
    compression: str | None

    def read(self, limit: int = 1 << 30) -> bytes:
        """The decompressed payload; InputError if it is damaged or larger than `limit` bytes."""
        if self.size > limit:
            raise InputError(f"a fat binary entry of {self.size} bytes is above the limit")
        if self.compression is None:
            return bytes(self.payload)
        expand = _DECOMPRESSORS.get(self.compression)
        if expand is None:
            raise InputError(f"a fat binary entry has unknown compression {self.compression}")
        if self.size > _MAX_EXPANSION * len(self.payload) + (1 << 16):
            raise InputError("a fat binary entry expands beyond reason")
        data = expand(bytes(self.payload), self.size)
        if len(data) != self.size:
            raise InputError("a compressed fat binary entry has another size than it states")
        return data


def _read_lz4(payload: bytes, size: int) -> bytes:
    block = cast("Any", importlib.import_module("lz4.block"))
    try:
        return block.decompress(payload, uncompressed_size=size)
    except (block.LZ4BlockError, ValueError, MemoryError) as error:
        raise InputError("a compressed fat binary entry is damaged") from error


def _read_zstd(payload: bytes, size: int) -> bytes:
    import zstandard

    out = bytearray()
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        with decompressor.stream_reader(io.BytesIO(payload)) as reader:
            while len(out) <= size and (chunk := reader.read(1 << 20)):
                out += chunk
    except (zstandard.ZstdError, ValueError, MemoryError) as error:
        raise InputError("a compressed fat binary entry is damaged") from error
    return bytes(out)


_DECOMPRESSORS = {"lz4": _read_lz4, "zstd": _read_zstd}


def read_fatbins(data: memoryview, *, section: bool = False) -> Iterator[FatbinEntry]:
    """The entries of the fat binaries that stand in `data` one behind the other.

    With `section`, zero padding between and behind them is skipped, as in a linked program.
    Raises InputError when a header does not hold together.
    """
    position = 0
    while position + _HEADER.size <= len(data):
        magic, _, header_size, size = _HEADER.unpack_from(data, position)
        if magic != MAGIC:
            if section and position and not any(data[position : position + 8]):
                position += 8
                continue
            raise InputError("a fat binary starts with the wrong bytes")
        end = position + header_size + size
        if header_size < _HEADER.size or end > len(data):
            raise InputError("a fat binary is truncated")
        yield from _entries(data, position + header_size, end)
        position = end + (-end % 8 if section else 0)
    if not position:
        raise InputError("a fat binary is truncated")


def _entries(data: memoryview, position: int, end: int) -> Iterator[FatbinEntry]:
    while position + _ENTRY.size <= end:
        fields = _ENTRY.unpack_from(data, position)
        kind, header_size, padded, compressed = fields[0], fields[2], fields[3], fields[4]
        arch, flags, uncompressed = fields[8], fields[11], fields[13]
        start = position + header_size
        position = start + padded
        if header_size < _ENTRY.size or position > end:
            raise InputError("a fat binary entry lies outside its fat binary")
        compression = _compression(flags)
        size = padded if compression is None else compressed or padded
        if size > padded:
            raise InputError("a fat binary entry lies outside its fat binary")
        yield FatbinEntry(
            kind=KINDS.get(kind, "other"),
            arch=f"sm_{arch}",
            size=padded if compression is None else uncompressed,
            payload=data[start : start + size],
            compression=compression,
        )
    if any(data[position:end]):
        raise InputError("a fat binary ends inside an entry")


def _compression(flags: int) -> str | None:
    if flags & _FLAG_ZSTD:
        return "zstd"
    if flags & _FLAG_LZ4:
        return "lz4"
    return "zlib" if flags & _FLAG_ZLIB else None
