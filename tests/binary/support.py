"""Helpers of the tests of `binary/`: files, tools, and an edit that inserts instructions."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regdem.binary import Kernel

DATA = Path(__file__).parent / "data"
CUBINS = sorted(DATA.glob("*.cubin"))
INSERTED = (0x0000DEAD00007802, 0x000FC00000000F00)
"""`MOV R0, 0xdead`: an instruction that occurs nowhere else in the test files."""

_BRANCH_FIELDS = ((16, 8), (34, 48))
_OLD_BRANCH_FIELDS = ((34, 48),)
_BRANCHES = (0x947, 0x547, 0x944, 0x344, 0x948, 0x348, 0x949, 0x950)


def tool(name: str) -> str | None:
    """Path of one of NVIDIA's tools: on PATH, in a toolkit, or in the wheels of this Python."""
    places = [str(p) for p in Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/*/bin")]
    for path in (None, *places, "/usr/local/cuda/bin"):
        found = shutil.which(name, path=path)
        if found:
            return found
    return None


def insert(
    kernel: Kernel, rng: random.Random, probability: float = 0.15
) -> tuple[bytes, NDArray[np.int64], NDArray[np.int64]]:
    """(code, offset map, target map) with instructions inserted at random places."""
    count = kernel.instruction_count
    words = np.frombuffer(kernel.code, "<u8").reshape(count, 2)
    out: list[tuple[int, int]] = []
    offsets, targets = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    for i in range(count):
        targets[i] = 16 * len(out)
        while rng.random() < probability:
            out.append(INSERTED)
        offsets[i] = 16 * len(out)
        out.append((int(words[i, 0]), int(words[i, 1])))
    offsets[count] = targets[count] = 16 * len(out)
    for i in range(count):
        place = int(offsets[i]) // 16
        out[place] = _retarget(out[place], 16 * i, int(offsets[i]), targets, kernel.arch)
    return np.array(out, "<u8").tobytes(), offsets, targets


def _retarget(
    word: tuple[int, int], old: int, new: int, targets: NDArray[np.int64], arch: str
) -> tuple[int, int]:
    value, opcode = word[0] | word[1] << 64, word[0] & 0xFFF
    if opcode == 0x945:
        fields, unit = ((34, 30),), 4
    elif opcode == 0x94E:
        fields, unit = ((24, 58),), 1
    elif opcode in _BRANCHES:
        fields = _OLD_BRANCH_FIELDS if int(arch[3:]) < 90 else _BRANCH_FIELDS
        unit = 4
    else:
        return word
    displacement, shift = 0, 0
    for bit, width in fields:
        displacement |= ((value >> bit) & ((1 << width) - 1)) << shift
        shift += width
    displacement -= (displacement >> (shift - 1)) << shift
    target = old + 16 + displacement * unit
    if target % 16 or not 0 <= target // 16 < len(targets):
        return word
    moved = (int(targets[target // 16]) - new - 16) // unit
    for bit, width in fields:
        mask = (1 << width) - 1
        value = value & ~(mask << bit) | (moved & mask) << bit
        moved >>= width
    return value & (1 << 64) - 1, value >> 64
