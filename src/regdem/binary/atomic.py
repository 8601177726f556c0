"""Write a file whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from regdem.errors import UsageError


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to a temporary name beside `path` and rename it.

    On failure no output file exists (or the old one is unchanged) and UsageError says why. A
    link is followed; a device such as `/dev/null` is written directly.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            if stat.S_ISDIR(mode):
                raise UsageError("can't be written: it is a folder", file=str(path))
            target.write_bytes(data)
            return
        _replace(target, data, mode)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"can't be written: {reason}", file=str(path)) from error


def _replace(target: Path, data: bytes, mode: int | None) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is None:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        os.chmod(name, stat.S_IMODE(mode))
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
