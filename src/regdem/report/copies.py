"""How often the loads of each source line stand in the code, and where those copies grew.

Problem: unrolling shows in machine code as copies. Their number alone says little: turns of nested
loops multiply, what nvcc adds for the last turns counts too, and a line may have several loads. Two
builds say more, but lines move between them and files get other names.

Method: per line, the count of its rarest form of load (`line_loads`). Between two builds a line is
itself where file name and number agree; where either build calls its main file otherwise, those
two files are one. A line that is only in the second build is compared with the most repeated of the
first, which it may have been. It has grown when its copies have at least doubled and the loads of
the whole kernel increased by at least half of what it gained: a line that only moved brings none.

Not claimed: the factor of any loop. `is_one_loop` says where copies in the second build are those
of one loop only: the line stood in the first once, all its loads in one loop, and the loop around
that one (if any) was not unrolled itself, as another line there shows that has no more loads now.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from regdem.analysis.forms import forms_of
from regdem.binary.kernel import Kernel
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.program.loops import Loop
from regdem.program.program import Program
from regdem.report.model import LineLoads, SourceLine

COPIES = 4
"""Fewer copies are not worth a word."""
_LOADED = ("global", "generic", "shared")
_Key = tuple[str, int]


@dataclass(frozen=True)
class Growth:
    """A line that has more copies in the second build; `before` is None where it wasn't found."""

    before: LineLoads | None
    after: LineLoads
    is_one_loop: bool

    @property
    def is_full(self) -> bool:
        """Whether a loop around the line is gone."""
        return self.before is not None and self.after.depth < self.before.depth


def line_loads(
    kernel: Kernel, program: Program, nest: tuple[Loop, ...], excluded: set[int]
) -> tuple[LineLoads, ...]:
    """The loads of every source line, by file and line; empty without line information.

    A line may have loads of several forms; the rarest form counts. `excluded` instructions, fills
    of spilled values, are nobody's source.
    """
    if not kernel.lines:
        return ()
    around = _around(program, nest)
    forms: dict[SourceLine, Counter[int]] = {}
    places: dict[SourceLine, set[tuple[int, ...]]] = {}
    for i, form in enumerate(forms_of(program.code)):
        if not form.reads_memory or form.memory not in _LOADED or i in excluded:
            continue
        found = kernel.line_at(INSTRUCTION_BYTES * i)
        if found is not None:
            line = SourceLine(*found)
            forms.setdefault(line, Counter())[form.index] += 1
            places.setdefault(line, set()).add(around[int(program.block_of[i])])
    return tuple(
        LineLoads(
            source=line,
            copies=min(counts.values()),
            loads=counts.total(),
            depth=max(len(place) for place in places[line]),
            loop=next(iter(places[line])) if len(places[line]) == 1 else None,
        )
        for line, counts in sorted(forms.items(), key=lambda item: (item[0].file, item[0].line))
    )


def _around(program: Program, nest: tuple[Loop, ...]) -> list[tuple[int, ...]]:
    """Per block the loops around it, by index, the outermost first."""
    return [
        tuple(
            sorted(
                (k for k, loop in enumerate(nest) if block.index in loop.blocks),
                key=lambda k: nest[k].depth,
            )
        )
        for block in program.blocks
    ]


def most_repeated(lines: tuple[LineLoads, ...]) -> LineLoads | None:
    """The line with the most copies."""
    return max(lines, key=lambda line: (line.copies, str(line.source)), default=None)


def growth(before: tuple[LineLoads, ...], after: tuple[LineLoads, ...]) -> Growth | None:
    """The line with the most copies of those that have grown; None where that can't be told."""
    top = most_repeated(before)
    if top is None:
        return None
    old = _by_line(before, *_renamed(before, after))
    new = _by_line(after)
    gained = sum(line.loads for line in after) - sum(line.loads for line in before)
    grown: list[LineLoads] = []
    for line in after:
        was = old.get(_key(line), top)
        more = line.copies - was.copies
        if line.copies >= max(COPIES, 2 * was.copies) and 2 * gained >= more:
            grown.append(line)
    best = most_repeated(tuple(grown))
    if best is None:
        return None
    origin = old.get(_key(best))
    one = origin is not None and _is_one_loop(origin, old, new)
    return Growth(origin, best, one)


def _is_one_loop(line: LineLoads, old: dict[_Key, LineLoads], new: dict[_Key, LineLoads]) -> bool:
    if line.copies != 1 or not line.loop:
        return False
    outer = line.loop[:-1]
    return not outer or any(
        other.loop == outer and key in new and new[key].loads <= other.loads
        for key, other in old.items()
    )


def _by_line(
    lines: tuple[LineLoads, ...], file: str = "", called: str = ""
) -> dict[_Key, LineLoads]:
    """By name of the file, `file` as `called`; of two files of one name the line with more."""
    found: dict[_Key, LineLoads] = {}
    for line in sorted(lines, key=lambda line: line.copies):
        name, number = _key(line)
        found[called if name == file else name, number] = line
    return found


def _key(line: LineLoads) -> _Key:
    return _name(line), line.source.line


def _name(line: LineLoads) -> str:
    return line.source.file.rsplit("/", 1)[-1]


def _renamed(before: tuple[LineLoads, ...], after: tuple[LineLoads, ...]) -> tuple[str, str]:
    """The main file's names, where neither build knows the other's; else two empty ones."""
    first, second = _main_file(before), _main_file(after)
    if any(_name(line) == second for line in before) or any(_name(line) == first for line in after):
        return "", ""
    return first, second


def _main_file(lines: tuple[LineLoads, ...]) -> str:
    """The file with the most lines."""
    count = Counter(_name(line) for line in lines)
    return min(count, key=lambda name: (-count[name], name), default="")
