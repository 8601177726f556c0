"""Everything that may hold cubins, as one list of entries.

`open_container` takes a cubin, a fat binary, a host executable, shared object, relocatable object
or `ar` archive with embedded device code, a zip (`.whl`, `.zip`, `.pt2`), a directory such as a
Triton cache, PTX or CUDA source text, bytes, or `-` for standard input. What a file is is told by
its first bytes, not by its name (source text excepted). Entries are cheap: payloads stay where they
are (mapped or compressed) until `read` is called.

A JSON file beside a cubin with the same stem (Triton writes one) becomes the entry's `sidecar`.
Inside archives and directories a damaged member becomes an entry of kind `unreadable` with its
reason, so that one bad file does not hide the others; a damaged file that was named itself raises.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from regdem.binary import elf
from regdem.binary.archives import (
    AR_MAGIC,
    ZIP_MAGICS,
    Budget,
    LimitExceeded,
    Limits,
    Source,
    ZipSource,
    ar_members,
)
from regdem.binary.fatbin import MAGIC_BYTES, read_fatbins
from regdem.errors import InputError

_FATBIN_SECTIONS = frozenset({".nv_fatbin", "__nv_relfatbin", "__nv_fatbin"})
_ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True)
class Sidecar:
    """Launch facts from a JSON file beside a cubin; None where it does not say."""

    threads: int | None
    dynamic_shared_bytes: int | None
    cluster: tuple[int, int, int] | None
    name: str | None
    values: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Entry:
    """One piece of device code.

    `kind`: `cubin`, `ptx`, `cuda` (source text), `ltoir`, `other` or `unreadable` (see `problem`).
    `arch` is what the container says, None if it does not. `size` in bytes, decompressed.
    """

    name: str
    kind: str
    arch: str | None
    size: int
    sidecar: Sidecar | None = None
    problem: str | None = None
    _load: Callable[[], bytes] = field(default=lambda: b"", repr=False)

    def read(self) -> bytes:
        """The bytes; InputError if they are damaged."""
        try:
            return self._load()
        except InputError as error:
            error.file = error.file or self.name
            raise


def open_container(
    source: str | os.PathLike[str] | bytes, *, name: str | None = None, limits: Limits | None = None
) -> list[Entry]:
    """All device code in `source`; see the module.

    Raises InputError when nothing can be read from it, or nothing in it is device code.
    """
    limits = limits or Limits()
    budget = Budget(limits)
    if isinstance(source, bytes):
        label, entries = name or "<bytes>", _named(source, name or "<bytes>", budget)
    elif os.fspath(source) == "-":
        data = sys.stdin.buffer.read(limits.member_bytes + 1)
        if len(data) > limits.member_bytes:
            raise InputError("standard input is larger than regdem is willing to read")
        label, entries = "<stdin>", _named(data, "<stdin>", budget)
    else:
        label = name or os.fspath(source)
        path = Path(source)
        entries = _directory(path, budget) if path.is_dir() else _named(_map(path), label, budget)
    found = list(entries)
    if not found:
        raise InputError("no device code found", file=label)
    return found


def _map(path: Path) -> Source:
    try:
        if not path.exists():
            raise InputError("no such file", file=str(path))
        if not path.is_file():
            raise InputError("not a regular file", file=str(path))
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size <= 1 << 20:
                return stream.read()
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise InputError(f"can't read it: {error.strerror or error}", file=str(path)) from error


def _named(data: Source, name: str, budget: Budget) -> Iterator[Entry]:
    """Entries of one file, errors carrying its name."""
    try:
        yield from _entries(data, name, budget, 0)
    except InputError as error:
        error.file = error.file or name
        raise


def _entries(
    data: Source, name: str, budget: Budget, depth: int, sidecar: Sidecar | None = None
) -> Iterator[Entry]:
    if depth > budget.limits.depth:
        raise InputError("archives are nested too deeply")
    start = data[:8]
    if start[:4] == _ELF_MAGIC:
        yield from _from_elf(data, name, budget, sidecar)
    elif start[:4] == MAGIC_BYTES:
        yield from _from_fatbin(memoryview(data), name, budget, section=False)
    elif start == AR_MAGIC:
        yield from _from_ar(data, name, budget, depth)
    elif start[:4] in ZIP_MAGICS:
        yield from _from_zip(data, name, budget, depth)
    else:
        yield _from_text(data, name, budget)


def _from_elf(data: Source, name: str, budget: Budget, sidecar: Sidecar | None) -> Iterator[Entry]:
    machine = int.from_bytes(data[18:20], "little")
    if machine == elf.EM_CUDA:
        budget.take_entry()
        yield Entry(name, "cubin", _cubin_arch(data), len(data), sidecar, None, lambda: data[:])
        return
    _, sections = elf.read_headers(data)
    view = memoryview(data)
    for section in sections:
        if section.name in _FATBIN_SECTIONS and section.file_size:
            part = view[section.offset : section.offset + section.file_size]
            yield from _from_fatbin(part, name, budget, section=True)


def _cubin_arch(data: Source) -> str | None:
    if len(data) < 52:
        return None
    flags = int.from_bytes(data[48:52], "little")
    return f"sm_{flags >> 8 & 0xFF if data[7] == 0x41 else flags & 0xFF}"


def _from_fatbin(data: memoryview, name: str, budget: Budget, section: bool) -> Iterator[Entry]:
    limit = budget.limits.member_bytes
    for index, entry in enumerate(read_fatbins(data, section=section)):
        budget.take_entry()
        label = f"{name}!{index}.{entry.arch}.{entry.kind}"
        yield Entry(
            label,
            entry.kind,
            entry.arch,
            entry.size,
            _load=lambda entry=entry: entry.read(limit),
        )


def _from_ar(data: Source, name: str, budget: Budget, depth: int) -> Iterator[Entry]:
    for member, content in ar_members(memoryview(data)):
        budget.take_file()
        if bytes(content[:4]) not in (_ELF_MAGIC, MAGIC_BYTES):
            continue
        budget.take_bytes(len(content))
        yield from _tolerant(bytes(content), f"{name}!{member}", budget, depth + 1, None)


def _from_zip(data: Source, name: str, budget: Budget, depth: int) -> Iterator[Entry]:
    archive = ZipSource(data, budget)
    for member in archive.names:
        label = f"{name}!{member}"
        try:
            start = archive.peek(member)
            if not _may_hold_code(start, member):
                continue
            content = archive.read(member)
        except LimitExceeded:
            raise
        except InputError as error:
            yield Entry(label, "unreadable", None, 0, problem=error.message)
            continue
        sidecar = None
        if member.endswith(".cubin"):
            sidecar = _sidecar(archive.small(member[: -len(".cubin")] + ".json"))
        yield from _tolerant(content, label, budget, depth + 1, sidecar)


def _directory(folder: Path, budget: Budget) -> Iterator[Entry]:
    for root, folders, files in os.walk(folder):
        folders.sort()
        for file in sorted(files):
            budget.take_file()
            path = Path(root, file)
            label = str(path)
            try:
                if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
                    continue
                if not path.is_file():
                    continue
                with path.open("rb") as stream:
                    start = stream.read(64)
                if not _may_hold_code(start, file):
                    continue
                content = _map(path)
                sidecar = _sidecar(_small_file(path.with_suffix(".json")))
            except (OSError, InputError) as error:
                yield Entry(label, "unreadable", None, 0, problem=str(error))
                continue
            yield from _tolerant(content, label, budget, 1, sidecar)


def _tolerant(
    data: Source, name: str, budget: Budget, depth: int, sidecar: Sidecar | None
) -> Iterator[Entry]:
    try:
        yield from _entries(data, name, budget, depth, sidecar)
    except LimitExceeded:
        raise
    except InputError as error:
        yield Entry(name, "unreadable", None, len(data), problem=error.message)


def _may_hold_code(start: bytes, name: str) -> bool:
    if start[:4] in (_ELF_MAGIC, MAGIC_BYTES, *ZIP_MAGICS) or start[:8] == AR_MAGIC:
        return True
    return name.endswith((".ptx", ".cu"))


def _from_text(data: Source, name: str, budget: Budget) -> Entry:
    if not data:
        raise InputError("the file is empty", hint="give a file that holds device code")
    head = data[: 1 << 16].lstrip(b" \t\r\n\0")
    if b"\0" not in data[: 1 << 12]:
        budget.take_entry()
        if b".version" in head and b".target" in head:
            arch = head.split(b".target", 1)[1].split(maxsplit=1)[:1]
            target = arch[0].decode("ascii", "replace").rstrip(",") if arch else None
            return Entry(name, "ptx", target, len(data), _load=lambda: data[:])
        if name.endswith(".cu"):
            return Entry(name, "cuda", None, len(data), _load=lambda: data[:])
    raise InputError(
        "not a file that regdem knows",
        hint="cubin, fat binary, host ELF, ar or zip archive, PTX, .cu or a directory",
    )


def _small_file(path: Path, limit: int = 1 << 20) -> bytes | None:
    if not path.is_file() or path.stat().st_size > limit:
        return None
    return path.read_bytes()


def _sidecar(content: bytes | None) -> Sidecar | None:
    """Launch facts from Triton's JSON; None where it is none."""
    if content is None:
        return None
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    values = cast("dict[str, Any]", parsed)
    target = values.get("target")
    lanes = cast("dict[str, Any]", target).get("warp_size") if isinstance(target, dict) else None
    warps = _count(values.get("total_num_warps")) or _count(values.get("num_warps"))
    threads = warps * (_count(lanes) or 32) if warps else None
    return Sidecar(
        threads=threads if threads is not None and threads <= 1024 else None,
        dynamic_shared_bytes=_count(values.get("shared")),
        cluster=_cluster(values.get("cluster_dims")),
        name=values["name"] if isinstance(values.get("name"), str) else None,
        values=values,
    )


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
        return value
    return None


def _cluster(value: object) -> tuple[int, int, int] | None:
    if not isinstance(value, list):
        return None
    counts = [_count(item) for item in cast("list[object]", value)]
    if len(counts) != 3 or None in counts or counts == [1, 1, 1]:
        return None
    return cast("tuple[int, int, int]", tuple(counts))
