"""Errors a user can act on.

Every failure that is caused by the input, by the request or by a limit of regdem is a
`RegdemError`. The command line turns it into one line on stderr and exit status 2, or into the
JSON error object; anything else is a bug of regdem.
"""

from __future__ import annotations

from typing import Any


class RegdemError(Exception):
    """A failure with a stable code and what the user needs to mend the input.

    `code` is a short snake_case word that scripts may match; `message` is one sentence;
    `hint` says what to do next. `file`, `kernel` and `offset` (bytes from the start of the
    kernel's code section) say where.
    """

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        file: str | None = None,
        kernel: str | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.hint = hint
        self.file = file
        self.kernel = kernel
        self.offset = offset

    def to_dict(self) -> dict[str, Any]:
        """The value of the `error` key of JSON output."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "file": self.file,
            "kernel": self.kernel,
            "offset": self.offset,
        }

    def __str__(self) -> str:
        place = [part for part in (self.file, self.kernel) if part]
        if self.offset is not None:
            place.append(f"offset 0x{self.offset:x}")
        head = f"{', '.join(place)}: " if place else ""
        tail = f" ({self.hint})" if self.hint else ""
        return f"{head}{self.message}{tail}"


class InputError(RegdemError):
    """The file is not what it should be: empty, truncated, another format or architecture."""

    code = "bad_input"


class UsageError(RegdemError):
    """The request is wrong: an unknown kernel, an illegal number, a missing block size."""

    code = "bad_usage"


class UnsupportedError(RegdemError):
    """Legal input that regdem refuses, by name, because it can't prove a rewrite of it safe."""

    code = "unsupported"


class ProofError(RegdemError):
    """A rewrite was made but not proved; nothing is written."""

    code = "not_proved"
