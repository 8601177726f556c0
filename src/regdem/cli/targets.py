"""Where a verb will write, looked at before it works: a bad `-o` must not cost an hour.

What is found out here is what can be known before: that the folder is there and takes files (a
nameless one is made), that a file is no folder and a folder no file, that a device takes bytes
(none are written to it), that the target is not what is read. The write itself may still fail, and
says so then.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from regdem.errors import UsageError


def check_file_target(path: str, *, stdout: bool = False) -> str:
    """The path, if a file can be written there. `stdout`: whether `-` is allowed.

    Raises UsageError: no such folder, no folder, a folder itself, not writable.
    """
    if path == "-" and stdout:
        return path
    if path in ("", "-"):
        raise UsageError(
            f"-o {path or '(empty)'} is no file to write", hint="a binary needs the name of a file"
        )
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise UsageError("can't be written: it is a folder", file=path)
    if target.is_char_device():
        _check_device(target, path)
    if target.exists() and not target.is_file():
        return path  # a device or a pipe
    parent = target.parent
    if not parent.exists():
        raise UsageError(f"can't be written: there is no folder {parent}", file=path)
    _check_folder(parent, path)
    return path


def check_folder_target(path: str) -> str:
    """The path, if it is a folder that can be written to, or can be made.

    Raises UsageError: a file, below a file, not writable.
    """
    if not path:
        raise UsageError("the name of the folder is empty")
    target = Path(os.path.realpath(path))
    nearest = next(place for place in (target, *target.parents) if os.path.lexists(place))
    _check_folder(nearest, path)
    return path


def check_not_input(path: str, inputs: Iterable[str], hint: str = "") -> None:
    """That `path` names none of the files that are read; links are followed.

    Raises UsageError.
    """
    target = os.path.realpath(path)
    for name in inputs:
        if os.path.isfile(target) and os.path.realpath(name) == target:
            raise UsageError("is what is read, and would be replaced", file=path, hint=hint)


def _check_folder(folder: Path, path: str) -> None:
    if not folder.is_dir():
        raise UsageError(f"can't be written: {folder} is no folder", file=path)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"can't be written: {folder} may not be written to", file=path)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"can't be written: {folder} takes no files", file=path) from error


def _check_device(device: Path, path: str) -> None:
    try:
        handle = os.open(device, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            os.write(handle, b"")
        finally:
            os.close(handle)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"can't be written: {reason}", file=path) from error
