"""The parts of DWARF's encoding that line and frame tables need: LEB128 and bounded reads."""

from __future__ import annotations

from regdem.errors import InputError


def read_uleb(data: bytes, position: int) -> tuple[int, int]:
    """(value, next position); InputError past the end or above ten bytes."""
    value = shift = 0
    for index in range(10):
        if position + index >= len(data):
            raise InputError("debug information ends inside a number")
        byte = data[position + index]
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, position + index + 1
    raise InputError("debug information holds a number that is too long")


def read_sleb(data: bytes, position: int) -> tuple[int, int]:
    """(signed value, next position)."""
    value, after = read_uleb(data, position)
    bits = 7 * (after - position)
    return (value - (1 << bits) if value >> (bits - 1) & 1 else value), after


def write_uleb(value: int, width: int = 0) -> bytes:
    """The encoding of `value`, padded to `width` bytes where it is shorter."""
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if value or len(out) + 1 < width:
            out.append(byte | 0x80)
        else:
            out.append(byte)
            return bytes(out)


def read_uint(data: bytes, position: int, size: int) -> int:
    """A little-endian unsigned number; InputError past the end."""
    if position + size > len(data):
        raise InputError("debug information is truncated")
    return int.from_bytes(data[position : position + size], "little")


def read_cstring(data: bytes, position: int) -> tuple[str, int]:
    """(text, next position) of a NUL-terminated string."""
    end = data.find(b"\0", position)
    if end < 0:
        raise InputError("debug information holds a string without an end")
    return data[position:end].decode("utf-8", "backslashreplace"), end + 1
