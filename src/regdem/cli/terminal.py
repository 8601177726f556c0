"""Plain tables and, on a terminal, colour.

`NO_COLOR` (any non-empty value), `TERM=dumb` and a stream that is no terminal all mean plain
text. rich is imported only by `console()`, so verbs that print tables start fast.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def colour_enabled(stream: IO[Any]) -> bool:
    """Whether ANSI colour may be written to `stream`."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def console(*, stderr: bool = False) -> Console:
    """A rich console that honours the same rules, for verbs that draw more than tables."""
    import sys

    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    coloured = colour_enabled(stream)
    return Console(stderr=stderr, no_color=not coloured, highlight=False, soft_wrap=not coloured)


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> str:
    """An aligned plain-text table; the first `left` columns are flush left, the rest right.

    `None` is shown as `-`. Lines carry no trailing blanks; the text ends in a newline.
    """
    cells = [list(header)] + [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = (
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )
    return "\n".join(lines) + "\n"
