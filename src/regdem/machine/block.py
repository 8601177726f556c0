"""The shape of a thread block, as the launch gives it."""

from __future__ import annotations

import re
from typing import NamedTuple

from regdem.errors import UsageError

MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK_DIMENSIONS = (1024, 1024, 64)
"""Largest x, y and z of a block on every architecture (CUDA programming guide, 5.1)."""

_SEPARATOR = re.compile(r"\s*[,x]\s*")


class BlockShape(NamedTuple):
    """Threads of a block in x, y and z."""

    x: int
    y: int = 1
    z: int = 1

    @property
    def threads(self) -> int:
        """Threads in the block."""
        return self.x * self.y * self.z

    def __str__(self) -> str:
        if self.y == 1 and self.z == 1:
            return str(self.x)
        return f"{self.x},{self.y},{self.z}"


def block_shape(x: int, y: int = 1, z: int = 1) -> BlockShape:
    """A checked shape. Raises UsageError if no architecture launches it."""
    shape = BlockShape(x, y, z)
    for size, largest, axis in zip(shape, MAX_BLOCK_DIMENSIONS, "xyz", strict=True):
        if not 1 <= size <= largest:
            raise UsageError(f"{size} threads in {axis}: a block has 1 to {largest}")
    if shape.threads > MAX_THREADS_PER_BLOCK:
        raise UsageError(
            f"{shape.threads} threads: a block has 1 to {MAX_THREADS_PER_BLOCK} in all"
        )
    return shape


def parse_block(text: str | int) -> BlockShape:
    """`"256"`, `"16,16"`, `"8,8,4"` or `"16x16"` as a checked shape.

    Raises UsageError if it is no shape or none that can be launched.
    """
    parts = _SEPARATOR.split(str(text).strip())
    if not 1 <= len(parts) <= 3 or not all(re.fullmatch(r"[+-]?\d{1,9}", part) for part in parts):
        raise UsageError(f"{text!r} is no block size", hint="write N or X,Y,Z")
    return block_shape(*(int(part) for part in parts))
