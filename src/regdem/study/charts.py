"""Charts of a study as inline SVG: bars by build, and times as ranges with their samples.

Colours are classes that the page's style gives a value for light and for dark. Each drawing has a
title for screen readers; every number in it also stands in the page's table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

_WIDTH, _LEFT, _RIGHT, _ROW = 520, 132, 64, 22
_TOP, _BOTTOM = 6, 24
_STEPS = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)


@dataclass(frozen=True)
class Series:
    """One part of each bar: a label for the key, and a value per build. `colour` is 0 to 5."""

    label: str
    values: Sequence[float]
    colour: int


@dataclass(frozen=True)
class Mark:
    """A vertical line at a value, with its label."""

    value: float
    label: str


def bars(
    title: str,
    names: Sequence[str],
    series: Sequence[Series],
    marks: Sequence[Mark] = (),
    digits: int = 0,
) -> str:
    """Horizontal bars, one per build, their parts side by side; the total stands at the end."""
    totals = [sum(part.values[k] for part in series) for k in range(len(names))]
    top = _round_up(max(totals, default=0.0))
    shown = [mark for mark in marks if 0 < mark.value <= top]
    parts = _frame(title, names, top, digits)
    floor_y = _TOP + _ROW * len(names)
    for k in range(len(names)):
        left = 0.0
        y = _TOP + _ROW * k + 4
        for part in series:
            value = part.values[k]
            if value > 0:
                parts.append(
                    f'<rect class="s{part.colour}" x="{_x(left, top):.1f}" y="{y}" '
                    f'width="{max(0.5, _x(left + value, top) - _x(left, top)):.1f}" '
                    f'height="{_ROW - 8}"><title>{escape(names[k])}: {escape(part.label)} '
                    f"{value:,.{digits}f}</title></rect>"
                )
            left += value
        parts.append(
            f'<text x="{_x(totals[k], top) + 5:.1f}" y="{y + 11}">{totals[k]:,.{digits}f}</text>'
        )
    for mark in shown:
        x = _x(mark.value, top)
        parts.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{floor_y}">'
            f"<title>{escape(mark.label)}</title></line>"
        )
    key = "".join(
        f'<span><i style="background:var(--s{part.colour})"></i>{escape(part.label)}</span>'
        for part in series
    )
    return _figure(title, parts, f'<div class="key">{key}</div>' if len(series) > 1 else "")


def ranges(
    title: str,
    names: Sequence[str],
    samples: Sequence[Sequence[float]],
    spans: Sequence[tuple[float, float, float] | None],
) -> str:
    """One row per build: its samples as dots, p10 to p90 as a line, the median as a tick.

    spans: (p10, median, p90), None where a build has no times.
    """
    highest = max((max(row) for row in samples if row), default=0.0)
    lowest = min((min(row) for row in samples if row), default=0.0)
    low = lowest - 0.1 * (highest - lowest)
    span = (highest - low) * 1.05 or 1.0

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - low) / span

    parts = _head(title, len(names)) + _names(names)
    for k, (row, found) in enumerate(zip(samples, spans, strict=True)):
        y = _TOP + _ROW * k + _ROW / 2
        if found is None:
            parts.append(f'<text x="{_LEFT}" y="{y + 4}">not timed</text>')
            continue
        p10, median, p90 = found
        parts += [f'<circle class="dot" cx="{x(s):.1f}" cy="{y}" r="3"/>' for s in row]
        parts.append(
            f'<line class="range" x1="{x(p10):.1f}" x2="{x(p90):.1f}" y1="{y}" y2="{y}"/>'
            f'<line class="median" x1="{x(median):.1f}" x2="{x(median):.1f}" y1="{y - 7}" '
            f'y2="{y + 7}"/><text x="{x(p90) + 8:.1f}" y="{y + 4}">{median:.4f} ms</text>'
        )
    return _figure(title, parts, "")


def _figure(title: str, parts: list[str], key: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{''.join(parts)}</svg>{key}</figure>"


def _head(title: str, rows: int) -> list[str]:
    height = _TOP + _ROW * rows + _BOTTOM
    return [
        f'<svg class="bars" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img"><title>{escape(title)}, by build</title>'
    ]


def _names(names: Sequence[str]) -> list[str]:
    return [
        f'<text class="name" x="{_LEFT - 8}" y="{_TOP + _ROW * k + 15}" text-anchor="end">'
        f"{escape(name)}</text>"
        for k, name in enumerate(names)
    ]


def _frame(title: str, names: Sequence[str], top: float, digits: int) -> list[str]:
    parts = _head(title, len(names)) + _names(names)
    floor_y = _TOP + _ROW * len(names)
    for step in range(5):
        value = top * step / 4
        x = _x(value, top)
        parts.append(
            f'<line stroke="currentColor" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{floor_y}"/>'
            f'<text x="{x:.1f}" y="{floor_y + 16}" text-anchor="middle">'
            f"{value:,.{digits}f}</text>"
        )
    return parts


def _x(value: float, top: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / top


def _round_up(value: float) -> float:
    """The next number whose quarters are round."""
    if value <= 0:
        return 4.0
    power = 10.0 ** floor(log10(value))
    return next(
        step * power for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * power >= value
    )
