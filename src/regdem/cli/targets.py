"""Where a verb will write, looked at before it works: a bad `-o` must not cost an hour.

What is found out here is what can be known before: that the folder is there and may be written,
that a file is no folder and a folder no file. The write itself may still fail, and says so then.
"""

from __future__ import annotations

import os
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


def _check_folder(folder: Path, path: str) -> None:
    if not folder.is_dir():
        raise UsageError(f"can't be written: {folder} is no folder", file=path)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"can't be written: {folder} may not be written to", file=path)
