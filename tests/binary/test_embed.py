"""Cubins replaced where they are embedded: everything else keeps its bytes."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from regdem.binary import open_container
from regdem.binary.embed import replace_cubins
from regdem.errors import UnsupportedError

from .support import DATA

FATBINS = sorted((DATA / "containers").glob("*.fatbin"))


def contents(data: bytes) -> list[tuple[str, bytes]]:
    return [(entry.kind, entry.read()) for entry in open_container(data)]


def host_file(fatbin: bytes) -> bytes:
    """An ELF file with nothing but the fat binary in a section of the name nvcc uses."""
    names = b"\0.nv_fatbin\0.shstrtab\0"
    start = 64
    tables = start + len(fatbin) + len(names)
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, tables, 0, 64, 0, 0, 64, 3, 2)

    def section(name: int, kind: int, offset: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 8, 0)

    rows = bytes(64)
    rows += section(1, 1, start, len(fatbin))
    rows += section(12, 3, start + len(fatbin), len(names))
    return header + fatbin + names + rows


@pytest.mark.parametrize("path", FATBINS, ids=lambda p: p.name)
def test_nothing_to_replace_changes_nothing(path: Path) -> None:
    data = path.read_bytes()
    assert replace_cubins(data, {}) == data
    assert replace_cubins(host_file(data), {}) == host_file(data)


@pytest.mark.parametrize("path", FATBINS, ids=lambda p: p.name)
@pytest.mark.parametrize("grow", [0, 64, 100_000])
def test_a_fat_binary_takes_cubins_of_any_size(path: Path, grow: int) -> None:
    data = path.read_bytes()
    before = contents(data)
    new = {
        k: content + bytes(range(256)) * (grow // 256) + bytes(grow % 256)
        for k, (kind, content) in enumerate(before)
        if kind == "cubin"
    }
    assert new
    after = contents(replace_cubins(data, new))
    assert after == [(kind, new.get(k, old)) for k, (kind, old) in enumerate(before)]


@pytest.mark.parametrize("path", FATBINS, ids=lambda p: p.name)
def test_a_host_file_keeps_its_size(path: Path) -> None:
    data = host_file(path.read_bytes())
    before = contents(data)
    new = {k: old[:-64] for k, (kind, old) in enumerate(before) if kind == "cubin"}
    written = replace_cubins(data, new)
    assert len(written) == len(data)
    assert contents(written) == [(kind, new.get(k, old)) for k, (kind, old) in enumerate(before)]


def test_what_does_not_fit_is_refused_with_a_way_out() -> None:
    data = host_file(FATBINS[0].read_bytes())
    place = next(k for k, (kind, _) in enumerate(contents(data)) if kind == "cubin")
    noise = random.Random(1).randbytes(300_000)
    with pytest.raises(UnsupportedError) as caught:
        replace_cubins(data, {place: noise})
    assert caught.value.code == "does_not_fit"
    assert "extract" in (caught.value.hint or "")


def test_archives_are_not_written() -> None:
    with pytest.raises(UnsupportedError):
        replace_cubins(b"PK\3\4" + bytes(40), {0: b""})
