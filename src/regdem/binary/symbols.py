"""What a symbol index of one file is called in another: a name that does not count symbols.

Problem: relocations and a few `.nv.info` attributes name symbols by their index, and two builds of
one source count them differently (debug sections have symbols of their own). The names in a file
need not be distinct either.

Method: a symbol is its name, its section's name, what it is, where it lies and how large it is,
and its turn among those of the same name, section and kind, so that two symbols of one file are
never the same. Place and size of code are left out: they move with it, and who asks compares them.

Not claimed: that the data a symbol names is the same in both files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from regdem.binary import elf
from regdem.binary.elf import ElfImage
from regdem.binary.info import EXTERNS, FORMAT_SIZED, PARAM_CBANK, InfoRecord

_NO_PLACE = -1


@dataclass(frozen=True, slots=True, order=True)
class Symbol:
    """A symbol apart from its index. `place` and `size_bytes` are -1 of symbols in code."""

    name: str
    section: str
    kind: int
    """ELF's binding and type (`st_info`)."""
    other: int
    """ELF's `st_other`, with the vendor's bits."""
    place: int
    size_bytes: int
    turn: int


def symbol_words(record: InfoRecord) -> int:
    """How many of a record's first words are symbol indices."""
    if record.format != FORMAT_SIZED:
        return 0
    if record.attribute == PARAM_CBANK:
        return min(1, len(record.words))
    return len(record.words) if record.attribute == EXTERNS else 0


def named_by(records: Iterable[InfoRecord]) -> Iterator[int]:
    """The symbol indices in records of `.nv.info`."""
    for record in records:
        yield from record.words[: symbol_words(record)]


def identify(image: ElfImage, index: int) -> Symbol | None:
    """The symbol of an index, or None where the file has none of that index."""
    if not 0 <= index < len(image.symbols):
        return None
    row, sections = image.symbols[index], image.symbol_sections
    owner, kind, name = int(sections[index]), int(row["info"]), image.symbol_name(index)
    alike = (sections[:index] == owner) & (image.symbols["info"][:index] == kind)
    turn = sum(image.symbol_name(i) == name for i in np.flatnonzero(alike).tolist())
    in_file = 0 < owner < len(image.sections)
    is_code = in_file and bool(image.sections[owner].flags & elf.SHF_EXECINSTR)
    return Symbol(
        name,
        image.sections[owner].name if in_file else f"#{owner}",
        kind,
        int(row["other"]),
        _NO_PLACE if is_code else int(row["value"]),
        _NO_PLACE if is_code else int(row["size"]),
        turn,
    )
