"""What a verb prints: the format asked for, the JSON envelope, and files written whole.

A file is written to a temporary name in its own folder and renamed, so that on failure no output
file exists. The same input gives the same bytes: nothing here adds a time, a date or a host.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regdem import __version__
from regdem.errors import InputError, UsageError

SCHEMA_VERSION = 1

_SUFFIX_FORMATS = {".json": "json", ".html": "html", ".htm": "html", ".sarif": "sarif"}

Renderer = Callable[[], str]


def tool_name() -> str:
    """`"regdem X.Y.Z"`, the value of the `tool` key."""
    return f"regdem {__version__}"


def envelope(
    body: dict[str, Any], *, path: str | Path | None = None, data: bytes | None = None
) -> dict[str, Any]:
    """`body` behind the keys every JSON answer begins with.

    `path` and `data` name the input file and hold its bytes; without them there is no `input`.
    """
    head: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "tool": tool_name()}
    if path is not None and data is not None:
        head["input"] = input_entry(path, data)
    return head | body


def input_entry(path: str | Path, data: bytes) -> dict[str, str]:
    """The `input` key: the path as given and the SHA-256 of the bytes."""
    import hashlib

    return {"path": str(path), "sha256": hashlib.sha256(data).hexdigest()}


def dump_json(value: Any) -> str:
    """JSON text with a final newline; key order is the order of insertion."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_input(path: str | Path) -> bytes:
    """The bytes of an input file.

    Raises InputError if it can't be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(f"can't be read: {reason}", file=str(path)) from error


def write_atomically(path: str | Path, data: bytes | str) -> None:
    """Write a file whole: to a temporary name beside it, then renamed over it.

    An existing file keeps its permissions; a device such as `/dev/null` is written to directly.
    Raises UsageError if it can't be written.
    """
    from regdem.binary.atomic import write_atomically as write

    write(path, data.encode() if isinstance(data, str) else data)


@dataclass(frozen=True)
class Output:
    """Where a verb's answer goes and in which format; `path` None is stdout."""

    format: str = "text"
    path: str | None = None

    def emit(self, **renderers: Renderer | str) -> None:
        """Render in the format asked for and write it.

        One keyword per format (`text=`, `json=`, `html=`): the text, or a function that makes it
        and is called only if its format was asked for.
        Raises UsageError if the format has no renderer.
        """
        renderer = renderers.get(self.format)
        if renderer is None:
            raise UsageError(
                f"no {self.format} output here", hint=f"one of: {', '.join(renderers)}"
            )
        text = renderer if isinstance(renderer, str) else renderer()
        if self.path is None or self.path == "-":
            sys.stdout.write(text)
        else:
            write_atomically(self.path, text)

    @property
    def to_terminal(self) -> bool:
        """Whether the answer is text on a terminal that may be coloured."""
        from regdem.cli.terminal import colour_enabled

        return self.format == "text" and self.path is None and colour_enabled(sys.stdout)


def format_for(path: str | None, explicit: str | None, default: str = "text") -> str:
    """The format: the one asked for, else by the suffix of the output file, else the default."""
    if explicit is not None:
        return explicit
    suffix = Path(path).suffix.lower() if path else ""
    return _SUFFIX_FORMATS.get(suffix, default)


def requested_format(arguments: list[str]) -> str:
    """The format named on a command line that may not parse, for reporting its error."""
    explicit: str | None = None
    path: str | None = None
    for position, argument in enumerate(arguments):
        following = arguments[position + 1] if position + 1 < len(arguments) else None
        if argument == "--format":
            explicit = following
        elif argument.startswith("--format="):
            explicit = argument.partition("=")[2]
        elif argument in ("-o", "--output"):
            path = following
        elif argument.startswith("--output="):
            path = argument.partition("=")[2]
        elif argument.startswith("-o") and not argument.startswith("--"):
            path = argument[2:]
    return format_for(path, explicit)


def note(message: str) -> None:
    """A remark or progress: on stderr, never mixed with results."""
    print(message, file=sys.stderr)
