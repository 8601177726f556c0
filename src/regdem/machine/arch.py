"""Names of architectures: read in every common spelling, written as `sm_90`.

`sm_90`, `sm90`, `90`, `9.0`, `sm_90a`, `compute_90` and (9, 0) name the same machine here: the
suffixes `a` and `f` select instructions, not limits.
"""

from __future__ import annotations

import re

from regdem.errors import UsageError

_NAME = re.compile(r"(?:(?:sm|compute)_?)?(?:(\d{1,2})\.(\d)|(\d{2,3}))[af]?", re.IGNORECASE)


def parse_arch(name: str | int | float | tuple[int, int]) -> str:
    """The canonical name, such as `"sm_90"`.

    Takes a spelling, an integer (90), a float (9.0) or a (major, minor) pair. Does not ask whether
    regdem knows the machine: `limits()` and `table_for()` do. Raises UsageError if it is no name.
    """
    if isinstance(name, tuple):
        return f"sm_{name[0]}{name[1]}"
    match = _NAME.fullmatch(str(name).strip())
    if match is None:
        raise UsageError(
            f"{str(name)!r} names no architecture", hint="write sm_90, 90 or 9.0", code="bad_arch"
        )
    major, minor, digits = match.groups()
    return f"sm_{digits}" if digits else f"sm_{major}{minor}"


def compute_capability(arch: str) -> tuple[int, int]:
    """(major, minor) of a name in any spelling: (9, 0) for `"sm_90"`."""
    digits = parse_arch(arch)[3:]
    return int(digits[:-1]), int(digits[-1])
