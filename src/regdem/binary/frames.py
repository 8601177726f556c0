"""`.debug_frame`: how a debugger unwinds; its offsets follow the code.

Each FDE names a function by a relocation and steps through its code by `advance_loc`. ptxas
always writes the four-byte form, which is patched in place; shorter forms are re-encoded as the
four-byte form where the new step needs it, and the FDE is padded to its alignment.

Not claimed: rules that name registers are left as they are, so after renumbering a debugger may
show a caller's registers wrongly. Execution never reads this section.
"""

from __future__ import annotations

from collections.abc import Callable

from regdem.binary.dwarf import read_uint, read_uleb
from regdem.binary.lines import AddressMap, MovedSection
from regdem.errors import InputError, UnsupportedError

_ADVANCE_LOC4 = 4
_CIE = 0xFFFFFFFF
_ADDRESS_MASK = 0xFFFFFFFF
_WIDE_CIE = 0xFFFFFFFFFFFFFFFF

# Operands of the opcodes with the two top bits clear: u = ULEB/SLEB, b = block, a digit = bytes.
_OPERANDS = {
    0x00: "",
    0x01: "8",
    0x05: "uu",
    0x06: "u",
    0x07: "u",
    0x08: "u",
    0x09: "uu",
    0x0A: "",
    0x0B: "",
    0x0C: "uu",
    0x0D: "u",
    0x0E: "u",
    0x0F: "b",
    0x10: "ub",
    0x11: "uu",
    0x12: "uu",
    0x13: "u",
    0x14: "uu",
    0x15: "uu",
    0x16: "ub",
    0x2D: "",
    0x2E: "u",
}


def move_frames(
    data: bytes,
    addresses: AddressMap,
    code_section: int,
    move: Callable[[int], int],
    in_place: bool,
) -> MovedSection:
    """The frame section after the code of one section moved by `move`.

    `in_place`: addresses stand in the section itself (REL) rather than in relocations.
    """
    out = bytearray()
    starts: list[tuple[int, int]] = []
    factors: dict[int, int] = {}
    cies: dict[int, int] = {}
    pointers: list[tuple[int, int, int]] = []
    position = 0
    while position < len(data):
        start, new_start = position, len(out)
        starts.append((start, new_start))
        size, head = read_uint(data, position, 4), 4
        if size == 0xFFFFFFFF:
            size, head = read_uint(data, position + 4, 8), 12
        end = position + head + size
        if end > len(data) or size < (8 if head == 12 else 4):
            raise InputError("the frame table is truncated")
        width = 8 if head == 12 else 4
        identity = read_uint(data, position + head, width)
        body = position + head + width
        position = end
        if identity == (_WIDE_CIE if head == 12 else _CIE):
            factors[start] = _code_alignment(data, body)
            cies[start] = new_start
            out += data[start:end]
            continue
        pointers.append((new_start + head, width, identity))
        where, begin = addresses.get(body, (-1, 0))
        if where != code_section:
            out += data[start:end]
            continue
        if identity not in factors:
            raise InputError("a frame description names no common entry before it")
        length = read_uint(data, body + 8, 8)
        moved = move(begin)
        program = _move_program(data[:end], body + 16, begin, move, factors[identity])
        out += data[start:body]
        out += moved.to_bytes(8, "little") if in_place else data[body : body + 8]
        out += (move(begin + length) - moved).to_bytes(8, "little")
        out += program + bytes(-(len(program) - (end - body - 16)) % 8)
        new_size = len(out) - new_start - head
        out[new_start + head - width : new_start + head] = new_size.to_bytes(width, "little")
    for place, width, identity in pointers:
        if identity in cies:
            out[place : place + width] = cies[identity].to_bytes(width, "little")
    return MovedSection(bytes(out), tuple(starts) or ((0, 0),))


def _code_alignment(data: bytes, body: int) -> int:
    version = read_uint(data, body, 1)
    if version not in (1, 3, 4) or read_uint(data, body + 1, 1):
        raise UnsupportedError("the frame table has a version regdem does not know")
    factor, _ = read_uleb(data, body + (4 if version == 4 else 2))
    return factor or 1


def _move_program(
    data: bytes, position: int, begin: int, move: Callable[[int], int], factor: int
) -> bytes:
    out = bytearray()
    address, moved = begin, move(begin)
    while position < len(data):
        start, code = position, data[position]
        position += 1
        step = None
        if code >> 6 == 1:
            step = code & 63
        elif code in (2, 3, _ADVANCE_LOC4):
            width = {2: 1, 3: 2, 4: 4}[code]
            step = read_uint(data, position, width)
            position += width
        elif code >> 6 == 2:
            _, position = read_uleb(data, position)
        elif code >> 6 == 0:
            position = _skip(data, code, position)
        if step is None:
            out += data[start:position]
            continue
        # ptxas steps back by wrapping around 32 bits, in kernels that are shorter than their setup.
        address = (address + step * factor) & _ADDRESS_MASK
        target = move(address)
        new_step, rest = divmod((target - moved) & _ADDRESS_MASK, factor)
        if rest:
            raise UnsupportedError("a frame description can't follow the moved code")
        moved = target
        out += data[start:position] if new_step == step else _encode(code, new_step)
    return bytes(out)


def _encode(code: int, step: int) -> bytes:
    """The same opcode with another step, or the four-byte form where it does not fit."""
    if code >> 6 == 1 and step < 64:
        return bytes((0x40 | step,))
    width = {2: 1, 3: 2}.get(code, 4)
    if step < 1 << 8 * width and code in (2, 3):
        return bytes((code,)) + step.to_bytes(width, "little")
    return bytes((_ADVANCE_LOC4,)) + step.to_bytes(4, "little")


def _skip(data: bytes, code: int, position: int) -> int:
    shape = _OPERANDS.get(code)
    if shape is None:
        raise UnsupportedError(f"the frame table has an opcode 0x{code:x} regdem does not know")
    for operand in shape:
        if operand == "u":
            _, position = read_uleb(data, position)
        elif operand == "b":
            size, position = read_uleb(data, position)
            position += size
        else:
            position += int(operand)
    if position > len(data):
        raise InputError("the frame table is truncated inside an opcode")
    return position
