"""Kernels of many cubin files, in a fixed order, for mining and for the held-out test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.errors import RegdemError


def cubin_files(places: list[str]) -> list[Path]:
    """The cubins under files and folders, smallest first."""
    found: set[Path] = set()
    for place in places:
        path = Path(place)
        found.update(path.rglob("*.cubin") if path.is_dir() else [path])
    return sorted(found, key=lambda path: (path.stat().st_size, path.name))


def kernels_of(
    places: list[str], largest_instructions: int, per_file: int = 0
) -> Iterator[tuple[Path, Kernel]]:
    """Every kernel of at most so many instructions; files that can't be read are skipped.

    With `per_file`, at most so many of each file, evenly spread, since neighbours in a library are
    often instances of one template.
    """
    for path in cubin_files(places):
        try:
            cubin = Cubin.parse(path.read_bytes(), path.name)
            kernels = cubin.kernels
        except RegdemError:
            continue
        fitting = [k for k in kernels if len(k.code) // 16 <= largest_instructions]
        step = max(1, len(fitting) // per_file) if per_file else 1
        for kernel in fitting[::step][: per_file or None]:
            yield path, kernel
