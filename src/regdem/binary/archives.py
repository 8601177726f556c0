"""`ar` and zip archives: their members as byte sources, bounded and never written by name.

Nothing is extracted to a path that the archive names: a zip member goes to an anonymous temporary
file (deleted when it is closed), so that names such as `../../x` mean nothing. Sizes are limited
by `Limits`; a member whose stated expansion is beyond reason is refused before it is read.
"""

from __future__ import annotations

import io
import lzma
import mmap
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from regdem.errors import InputError

AR_MAGIC = b"!<arch>\n"
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_AR_HEADER = 60
_CHUNK = 1 << 20

Source = bytes | mmap.mmap
T = TypeVar("T")

_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,  # encrypted, or a method that this Python lacks
    struct.error,
)


class LimitExceeded(InputError):
    """The whole input costs more than its limits allow; never forgiven as one bad member."""

    code = "too_large"


@dataclass(frozen=True)
class Limits:
    """What reading one input may cost at most."""

    member_bytes: int = 4 << 30
    total_bytes: int = 16 << 30
    entries: int = 200_000
    files: int = 200_000
    depth: int = 4
    expansion: int = 300


@dataclass
class Budget:
    """What is left of `limits` for one input."""

    limits: Limits
    used_bytes: int = 0
    entries: int = 0
    files: int = 0
    keep: list[object] = field(default_factory=list[object])

    def take_bytes(self, count: int) -> None:
        self.used_bytes += count
        if self.used_bytes > self.limits.total_bytes:
            raise LimitExceeded("the archive expands to more than regdem is willing to read")

    def take_file(self) -> None:
        self.files += 1
        if self.files > self.limits.files:
            raise LimitExceeded("there are more files than regdem is willing to read")

    def take_entry(self) -> None:
        self.entries += 1
        if self.entries > self.limits.entries:
            raise LimitExceeded(
                "there are more entries of device code than regdem is willing to read"
            )


def ar_members(data: memoryview) -> Iterator[tuple[str, memoryview]]:
    """(name, content) of the members of an `ar` archive (GNU or BSD long names)."""
    position = len(AR_MAGIC)
    long_names = b""
    while position + _AR_HEADER <= len(data):
        header = bytes(data[position : position + _AR_HEADER])
        position += _AR_HEADER
        digits = header[48:58].strip()
        if header[58:60] != b"`\n" or not digits.isdigit():
            raise InputError("an archive member has a damaged header")
        size = int(digits)
        if position + size > len(data):
            raise InputError("the archive is truncated")
        content = data[position : position + size]
        position += size + (size & 1)
        name = header[:16].rstrip()
        if name == b"//":
            long_names = bytes(content)
            continue
        if name in (b"/", b"/SYM64/", b"__.SYMDEF", b"__.SYMDEF SORTED"):
            continue
        if name.startswith(b"/") and name[1:].isdigit():
            start = int(name[1:])
            name = long_names[start : start + 4096].split(b"\n", 1)[0]
        elif name.startswith(b"#1/") and name[3:].isdigit():
            length = min(int(name[3:]), len(content))
            name, content = bytes(content[:length]).rstrip(b"\0"), content[length:]
        yield name.rstrip(b"/").decode("utf-8", "backslashreplace") or "member", content


class ZipSource:
    """The members of a zip archive by name."""

    def __init__(self, data: Source, budget: Budget) -> None:
        self._budget = budget
        try:
            stream = io.BytesIO(data) if isinstance(data, bytes) else _MapFile(data)
            self._zip = zipfile.ZipFile(stream)
            self._members = {info.filename: info for info in self._zip.infolist()}
        except _ZIP_ERRORS as error:
            raise InputError("the zip archive is damaged") from error

    @property
    def names(self) -> list[str]:
        """Member names in order, folders left out."""
        return sorted(name for name, info in self._members.items() if not info.is_dir())

    def peek(self, name: str, size: int = 64) -> bytes:
        """The first bytes of a member."""
        self._budget.take_file()
        return self._guarded(lambda: self._read_start(name, size), name)

    def small(self, name: str, limit: int = 1 << 20) -> bytes | None:
        """A small member whole, None if there is none or it is larger than `limit`."""
        info = self._members.get(name)
        if info is None or info.file_size > limit:
            return None
        return self._guarded(lambda: self._read_start(name, limit), name)

    def read(self, name: str) -> Source:
        """A member, in memory when small, else in an anonymous temporary file."""
        info = self._members[name]
        limits = self._budget.limits
        too_large = info.file_size > limits.member_bytes
        if too_large or info.file_size > limits.expansion * info.compress_size + _CHUNK:
            raise InputError(f"archive member {name!r} expands beyond reason")
        self._budget.take_bytes(info.file_size)
        return self._guarded(lambda: self._read_whole(name, info.file_size), name)

    def _read_start(self, name: str, size: int) -> bytes:
        with self._zip.open(self._members[name]) as stream:
            return stream.read(size)

    def _read_whole(self, name: str, size: int) -> Source:
        with self._zip.open(self._members[name]) as stream:
            if size <= 4 * _CHUNK:
                return stream.read(size)
            file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as its mapping
            self._budget.keep.append(file)
            left = size
            while left and (chunk := stream.read(min(_CHUNK, left))):
                file.write(chunk)
                left -= len(chunk)
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _guarded(self, action: Callable[[], T], name: str) -> T:
        """Run a read; what zipfile raises on damaged or encrypted members becomes InputError."""
        try:
            return action()
        except _ZIP_ERRORS as error:
            raise InputError(f"archive member {name!r} can't be read ({error})") from error


class _MapFile(io.RawIOBase):
    """A seekable file over a mapping, without a copy of it."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._position = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, len(self._data))[whence]
        self._position = max(base + offset, 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = len(self._data) if size < 0 else min(self._position + size, len(self._data))
        chunk = self._data[self._position : end]
        self._position += len(chunk)
        return chunk
