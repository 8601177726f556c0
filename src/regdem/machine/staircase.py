"""The staircase drawn: warps against registers per thread, as text and as SVG in HTML.

Both drawings are made from the cliff table and mark the kernel's place. They are plain strings
with nothing but their input in them; printing is the caller's.
"""

from __future__ import annotations

from html import escape

from regdem.machine.residency import Occupancy

TEXT_COLUMNS = 64
TEXT_ROWS = 8

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 16, 16, 44

STYLE = """
.regdem{font:14px/1.5 system-ui,sans-serif;color:#1d2733;max-width:60em}
.regdem table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.regdem th,.regdem td{padding:.2em .7em;text-align:right;border-bottom:1px solid #d9dfe6}
.regdem tr.here{background:#fff3d6;font-weight:600}
.regdem svg text{font:12px system-ui,sans-serif;fill:#46535f}
""".strip()


def warps_at(present: Occupancy, registers: int) -> int:
    """Active warps of the launch at a register count, from its cliff table."""
    held = [cliff.active_warps for cliff in present.cliffs if cliff.registers_max >= registers]
    return held[-1] if held else 0


def text_staircase(present: Occupancy) -> str:
    """A drawing of 64 columns (4 registers each) and 8 rows; `*` stands where the kernel is."""
    top = present.max_warps
    per_column = (present.launch.sm.max_registers_per_thread + 1) // TEXT_COLUMNS
    # A column shows its own highest count, so that a cliff at 32 ends the column of 29 to 32.
    heights = [
        warps_at(present, min((column + 1) * per_column, 255)) for column in range(TEXT_COLUMNS)
    ]
    here = None if not present.registers else (present.registers - 1) // per_column
    lines: list[str] = []
    for row in range(TEXT_ROWS, 0, -1):
        level = top * row // TEXT_ROWS
        floor = top * (row - 1) // TEXT_ROWS
        cells = ["#" if height > floor else " " for height in heights]
        if here is not None and floor < present.active_warps <= level:
            cells[here] = "*"
        lines.append(f"{level:>5} |{''.join(cells)}".rstrip())
    lines.append("    0 +" + "-" * TEXT_COLUMNS)
    ticks = [" "] * (TEXT_COLUMNS + 4)
    for registers in (32, 64, 96, 128, 160, 192, 224, 255):
        end = -(-registers // per_column)
        label = str(registers)
        ticks[end - len(label) : end] = label
    lines.append("warps  " + "".join(ticks).rstrip() + "  registers per thread")
    return "\n".join(lines) + "\n"


def svg_staircase(present: Occupancy) -> str:
    """The staircase as a self-contained SVG element with a title for screen readers."""
    most = present.launch.sm.max_registers_per_thread

    def x(registers: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * registers / (most + 1)

    def y(warps: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * warps / present.max_warps

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img">',
        f"<title>Active warps against registers per thread, {present.threads} threads per block "
        f"on {escape(present.arch)}</title>",
    ]
    for quarter in range(5):
        warps = present.max_warps * quarter // 4
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(warps):.1f}" y2="{y(warps):.1f}" '
            f'stroke="#e3e8ee"/><text x="{_LEFT - 8}" y="{y(warps) + 4:.1f}" '
            f'text-anchor="end">{warps}</text>'
        )
    path = [f"M{x(0):.1f} {y(0):.1f}"]
    for cliff in reversed(present.cliffs):
        path.append(f"V{y(cliff.active_warps):.1f} H{x(cliff.registers_max + 0.5):.1f}")
    path.append(f"V{y(0):.1f} Z")
    parts.append(f'<path d="{" ".join(path)}" fill="#cfe3f7" stroke="#2b6cb0"/>')
    for registers in range(0, most + 1, 32):
        parts.append(
            f'<text x="{x(registers):.1f}" y="{_HEIGHT - _BOTTOM + 18}" '
            f'text-anchor="middle">{registers}</text>'
        )
    parts.append(
        f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">'
        "registers per thread</text>"
    )
    if present.registers:
        place = f'cx="{x(present.registers):.1f}" cy="{y(present.active_warps):.1f}"'
        parts.append(
            f'<circle {place} r="5" fill="#c05621"/>'
            f'<text x="{x(present.registers) + 8:.1f}" y="{y(present.active_warps) - 6:.1f}">'
            f"{present.registers} registers: {present.active_warps} warps</text>"
        )
    parts.append("</svg>")
    return "".join(parts)


def html_fragment(present: Occupancy) -> str:
    """Summary, staircase, cliff table and what reaches the next blocks, as one HTML element."""
    cliffs = "".join(
        f"<tr{_here(present, cliff.active_warps)}><td>{cliff.registers_max}</td>"
        f"<td>{cliff.active_blocks}</td><td>{cliff.active_warps}</td>"
        f"<td>{cliff.occupancy_pct:.1f}</td><td>{cliff.free_shared_bytes_per_block}</td>"
        f"<td>{cliff.slots_per_thread}</td><td>{cliff.static_slots_per_thread}</td></tr>"
        for cliff in present.cliffs
    )
    reach = "".join(f"<li>{escape(row.sentence())}</li>" for row in present.reach)
    return (
        f'<div class="regdem"><style>{STYLE}</style><p>{escape(summary(present))}</p>'
        f"{svg_staircase(present)}<table><thead><tr><th>registers up to</th><th>blocks</th>"
        "<th>warps</th><th>occupancy %</th><th>free shared bytes per block</th>"
        "<th>slots per thread</th><th>of them within 48 KiB</th></tr></thead>"
        f"<tbody>{cliffs}</tbody></table>"
        + (f"<p>To reach more blocks:</p><ul>{reach}</ul>" if reach else "")
        + "</div>"
    )


def summary(present: Occupancy) -> str:
    """One sentence: blocks, warps, per cent, and what limits them."""
    registers = "" if present.registers is None else f", {present.registers} registers"
    head = f"{present.arch}, {present.threads} threads{registers}"
    if present.active_blocks == 0 and present.active_warps == 0:
        return f"{head}: does not fit on an SM; limited by {' and '.join(_names(present))}."
    return (
        f"{head}: {present.active_blocks} blocks of {present.warps_per_block} warps, "
        f"{present.active_warps} of {present.max_warps} warps, {present.occupancy_pct:.1f} %; "
        f"limited by {' and '.join(_names(present))}."
    )


def _names(present: Occupancy) -> list[str]:
    words = {
        "warps": "warp slots",
        "blocks": "block slots",
        "shared": "shared memory",
        "virtual_resources": "virtual resources",
    }
    return [words.get(name, name) for name in present.limiters]


def _here(present: Occupancy, active_warps: int) -> str:
    marked = present.registers is not None and active_warps == present.active_warps
    return ' class="here"' if marked else ""
