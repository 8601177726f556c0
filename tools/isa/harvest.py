"""Collects the distinct instruction shapes of a corpus of cubins.

    python tools/isa/harvest.py OUT.npz CUBIN_OR_DIR...

A shape is a word with what names registers, immediates and scheduling masked out. For each shape
one sample word and the number of instructions of that shape are kept.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

U64 = (1 << 64) - 1
# Low word: guard 12-15, Rd 16-23, Ra 24-31. The upper half (32-63) depends on the operand form.
LOW_MASK = U64 & ~0xFFFFF000
LOW_MASK_FULL = LOW_MASK & 0xFFF
# High word: Rc 64-71 and the control bits 105-125.
HIGH_MASK = U64 & ~0xFF & ~(((1 << 21) - 1) << 41)


def sections(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the executable sections of an ELF64 file."""
    if data[:4] != b"\x7fELF":
        return
    shoff = struct.unpack_from("<Q", data, 0x28)[0]
    shentsize, shnum, shstrndx = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + k * shentsize) for k in range(shnum)]
    names = headers[shstrndx][4]
    for h in headers:
        if h[1] == 1 and h[2] & 4:
            end = data.index(b"\0", names + h[0])
            yield data[names + h[0] : end].decode(), data[h[4] : h[4] + h[5]]


def shapes(words: np.ndarray) -> np.ndarray:
    """Masked copies of (n, 2) words.

    Operand form bits 9-11: 1 register B; 2-3 and 4, 5 immediates or constants; 6, 7 uniform.
    In register forms bits 40-63 hold modifiers, or offsets in memory instructions; they are masked
    except for 62, 63 (negate, absolute), which never change an operand's width.
    """
    masked = words.copy()
    masked[:, 0] &= np.uint64(LOW_MASK_FULL)
    masked[:, 1] &= np.uint64(HIGH_MASK)
    return masked


def named(words: np.ndarray) -> np.ndarray:
    """How many register and predicate fields of each word are not RZ or PT."""
    low, high = words[:, 0], words[:, 1]
    count = np.zeros(len(words), dtype=np.int64)
    for word, shift, null in (
        (low, 16, 255), (low, 24, 255), (low, 32, 255), (high, 0, 255),
        (high, 4, 7), (high, 13, 7), (high, 17, 7), (high, 20, 7), (high, 23, 7),
    ):  # fmt: skip
        width = 8 if null == 255 else 3
        count += ((word >> np.uint64(shift)) & np.uint64((1 << width) - 1)) != null
    return count


def main() -> None:
    out, roots = sys.argv[1], sys.argv[2:]
    files = [
        p for r in roots for p in ([Path(r)] if Path(r).is_file() else Path(r).rglob("*.cubin"))
    ]
    table: dict[bytes, list[Any]] = {}
    total = 0
    for path in sorted(files):
        for _name, code in sections(path.read_bytes()):
            words = np.frombuffer(code[: len(code) // 16 * 16], dtype="<u8").reshape(-1, 2)
            total += len(words)
            masked = shapes(words)
            keys = np.ascontiguousarray(masked).view("V16").ravel()
            # Of each shape keep the sample that names most registers: an operand that is RZ or PT
            # is often not printed, and could not be learned.
            rank = named(words)
            order = np.argsort(-rank, kind="stable")
            unique, first, counts = np.unique(keys[order], return_index=True, return_counts=True)
            for key, at, count in zip(unique, order[first], counts, strict=True):
                entry = table.setdefault(key.tobytes(), [words[at].copy(), 0, int(rank[at])])
                entry[1] += int(count)
                if rank[at] > entry[2]:
                    entry[0], entry[2] = words[at].copy(), int(rank[at])
    samples = np.array([e[0] for e in table.values()], dtype=np.uint64)
    counts = np.array([e[1] for e in table.values()], dtype=np.int64)
    np.savez_compressed(out, samples=samples, counts=counts, total=total)
    print(f"{total} instructions, {len(samples)} shapes from {len(files)} files")


if __name__ == "__main__":
    main()
