"""Bit fields and displacements of one 128-bit word, as two Python ints (low, high)."""

from __future__ import annotations

from dataclasses import dataclass

_MASK64 = (1 << 64) - 1


@dataclass(frozen=True)
class Displacement:
    """A code address inside a word.

    `pieces` are (lowest bit, width) from the least significant piece up; the value is signed, in
    units of `unit` bytes, relative to the next instruction if `relative`, else to the section.
    """

    pieces: tuple[tuple[int, int], ...]
    unit: int
    relative: bool = True

    @property
    def bits(self) -> int:
        return sum(width for _, width in self.pieces)


def get_field(lo: int, hi: int, bit: int, width: int) -> int:
    """The unsigned value of bits `bit` to `bit + width - 1` of the word."""
    return ((lo | (hi << 64)) >> bit) & ((1 << width) - 1)


def set_field(lo: int, hi: int, bit: int, width: int, value: int) -> tuple[int, int]:
    """The word with that field replaced. Raises `ValueError` if the value does not fit."""
    if not 0 <= value < 1 << width:
        raise ValueError(f"{value} does not fit a field of {width} bits")
    full = ((lo | (hi << 64)) & ~(((1 << width) - 1) << bit)) | (value << bit)
    return full & _MASK64, full >> 64


def get_displacement(lo: int, hi: int, displacement: Displacement) -> int:
    """The displacement in bytes, signed."""
    value, at = 0, 0
    for bit, width in displacement.pieces:
        value |= get_field(lo, hi, bit, width) << at
        at += width
    if value >> (at - 1):
        value -= 1 << at
    return value * displacement.unit


def set_displacement(lo: int, hi: int, displacement: Displacement, value: int) -> tuple[int, int]:
    """The word with its displacement set to `value` bytes. Raises `ValueError` if unfit."""
    units, rest = divmod(value, displacement.unit)
    bits = displacement.bits
    if rest or not -(1 << (bits - 1)) <= units < 1 << (bits - 1):
        raise ValueError(f"displacement {value} cannot be encoded")
    units &= (1 << bits) - 1
    for bit, width in displacement.pieces:
        lo, hi = set_field(lo, hi, bit, width, units & ((1 << width) - 1))
        units >>= width
    return lo, hi
