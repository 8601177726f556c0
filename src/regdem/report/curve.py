"""The pressure curve as SVG: live general registers over the code, with limits.

Bands are loops; the strip below shows the basic blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.report.model import CodeAnalysis

_WIDTH, _HEIGHT = 1000, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 90, 14, 34
Scale = Callable[[float], float]

_STRIP = 5
_POINTS = 1600
"""Longer curves are drawn by the highest value of each stretch."""


def svg_curve(
    analysis: CodeAnalysis, registers_per_thread: int, leaders: Sequence[int] = ()
) -> str:
    """The curve; the page's script adds the cursor. leaders: first instructions of the blocks but
    the first."""
    curve = analysis.pressure.curve
    count = max(1, len(curve))
    top = max(registers_per_thread, analysis.pressure.peak, 8)
    plot = _WIDTH - _LEFT - _RIGHT
    floor = _HEIGHT - _BOTTOM

    def x(index: float) -> float:
        return _LEFT + plot * index / count

    def y(registers: float) -> float:
        return floor - (floor - _TOP) * registers / (top * 1.05)

    peak = analysis.pressure.peak
    parts = [
        f'<svg class="curve" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'data-left="{_LEFT}" data-plot="{plot}">',
        f"<title>Live general registers over the code: {peak} at the peak, offset "
        f"0x{analysis.pressure.peak_offset:x}, of {registers_per_thread} allocated</title>",
    ]
    for loop in analysis.loops:
        first = loop.start_offset // INSTRUCTION_BYTES
        last = loop.end_offset // INSTRUCTION_BYTES
        inset = 6 * (loop.depth - 1)
        parts.append(
            f'<rect class="band" x="{x(first):.1f}" width="{max(1.0, x(last) - x(first)):.1f}" '
            f'y="{_TOP + inset}" height="{floor - _TOP - inset}">'
            f"<title>loop, depth {loop.depth}, 0x{loop.start_offset:x} to 0x{loop.end_offset:x}"
            f"</title></rect>"
        )
    starts = [0, *leaders, count]
    strips = "".join(
        f"M{x(first):.1f} {floor}H{x(last):.1f}v{_STRIP}H{x(first):.1f}Z"
        for first, last in zip(starts[:-1:2], starts[1::2], strict=False)
    )
    parts.append(
        f'<path class="blocks" d="{strips}"><title>{len(starts) - 1} basic blocks, every other one '
        "shaded</title></path>"
    )
    step = next(s for s in (4, 8, 16, 32, 64) if top / s <= 6)
    for level in range(0, top + 1, step):
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(level):.1f}" '
            f'y2="{y(level):.1f}"/><text x="{_LEFT - 6}" y="{y(level) + 4:.1f}" '
            f'text-anchor="end">{level}</text>'
        )
    parts.append(f'<path class="area" d="{_path(curve, count, x, y)}"/>')
    limit = y(registers_per_thread)
    parts.append(
        f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{limit:.1f}" '
        f'y2="{limit:.1f}"/><text x="{_WIDTH - _RIGHT + 6}" y="{limit + 4:.1f}">'
        f"{registers_per_thread} allocated</text>"
    )
    at = analysis.pressure.peak_offset / INSTRUCTION_BYTES + 0.5
    near = abs(y(peak) - limit) < 14
    parts.append(
        f'<text x="{_WIDTH - _RIGHT + 6}" y="{(limit + 18 if near else y(peak) + 4):.1f}">'
        f"{peak} live</text>"
        f'<circle cx="{x(at):.1f}" cy="{y(peak):.1f}" r="3.5" fill="currentColor"/>'
    )
    for tick in range(5):
        index = count * tick // 4
        anchor = ("start", "middle", "middle", "middle", "end")[tick]
        parts.append(
            f'<text x="{x(index):.1f}" y="{_HEIGHT - 16}" text-anchor="{anchor}">'
            f"0x{INSTRUCTION_BYTES * index:x}</text>"
        )
    parts.append(
        f'<line class="cursor" x1="0" x2="0" y1="{_TOP}" y2="{floor}"/>'
        f'<text class="value" x="{_LEFT}" y="{_HEIGHT - 2}"></text></svg>'
    )
    return "".join(parts)


def _path(curve: tuple[int, ...], count: int, x: Scale, y: Scale) -> str:
    stretch = max(1, -(-len(curve) // _POINTS))
    parts = [f"M{x(0):.1f} {y(0):.1f}"]
    previous = -1
    for first in range(0, len(curve), stretch):
        level = max(curve[first : first + stretch])
        if level != previous:
            parts.append(f"H{x(first):.1f}V{y(level):.1f}")
            previous = level
    parts.append(f"H{x(count):.1f}V{y(0):.1f}Z")
    return "".join(parts)
