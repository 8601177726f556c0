"""The listing of one kernel as compact columns for the page's script.

`text` is nvdisasm's where given, else the mnemonic with the registers it writes and reads.
`control` packs stall (4 bits), yield, write scoreboard (3), read scoreboard (3), wait mask (6) and
reuse flags (4) from bit 0 up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regdem.analysis.forms import forms_of
from regdem.binary.kernel import Kernel
from regdem.isa.decoded import INSTRUCTION_BYTES, DecodedCode, RegisterFile, Role
from regdem.program.from_kernel import program_of
from regdem.program.loops import loop_depth
from regdem.report.model import CodeAnalysis

_PREFIX = {
    RegisterFile.GPR: "R",
    RegisterFile.UGPR: "UR",
    RegisterFile.PRED: "P",
    RegisterFile.UPRED: "UP",
}
_SOURCE_BYTES = 4 << 20


def listing_data(kernel: Kernel, analysis: CodeAnalysis, text: Mapping[int, str]) -> dict[str, Any]:
    """The columns, each with one entry an instruction, and the source lines they refer to."""
    program = program_of(kernel)
    code = program.code
    depth = loop_depth(program)
    places, line = _lines(kernel, len(code))
    return {
        "name": kernel.name,
        "text": [
            text.get(INSTRUCTION_BYTES * i) or _plain(code, i, form.name)
            for i, form in enumerate(forms_of(code))
        ],
        "live": list(analysis.pressure.curve),
        "control": _control(code),
        "depth": [depth[b] for b in program.block_of.tolist()],
        "leaders": [block.start for block in program.blocks if block.start],
        "line": line,
        "lines": places,
        "marks": [
            [site.instruction, analysis.spills.mark(site)] for site in analysis.spills.spills.sites
        ],
    }


def _control(code: DecodedCode) -> list[int]:
    wide = [
        column.astype("int64")
        for column in (
            code.stall,
            code.yield_bit,
            code.write_scoreboard,
            code.read_scoreboard,
            code.wait_mask,
            code.reuse,
        )
    ]
    packed = wide[0] | wide[1] << 4 | wide[2] << 5 | wide[3] << 8 | wide[4] << 11 | wide[5] << 17
    return packed.tolist()


def _plain(code: DecodedCode, i: int, name: str) -> str:
    written: list[str] = []
    read: list[str] = []
    guard = ""
    for row in range(int(code.operand_start[i]), int(code.operand_start[i + 1])):
        if code.operand_bit[row] == 12:
            guard = f"@{'!' if code.guard_negated[i] else ''}P{int(code.guard[i])} "
            continue
        first, width = int(code.operand_register[row]), int(code.operand_width[row])
        prefix = _PREFIX[RegisterFile(int(code.operand_file[row]))]
        label = f"{prefix}{first}" + (f"-{first + width - 1}" if width > 1 else "")
        role = int(code.operand_role[row])
        if role & Role.WRITE:
            written.append(label)
        if role & Role.READ:
            read.append(label)
    parts = [guard + name]
    if written:
        parts.append("writes " + ", ".join(written))
    if read:
        parts.append("reads " + ", ".join(read))
    return "  ".join(parts)


def _lines(kernel: Kernel, count: int) -> tuple[list[dict[str, Any]], list[int]]:
    """Source lines in order (file, line), and per instruction the index of its line or -1."""
    found = [kernel.line_at(INSTRUCTION_BYTES * i) for i in range(count)]
    keys = sorted({place for place in found if place is not None})
    index = {place: k for k, place in enumerate(keys)}
    texts = {file: _source(file) for file in {file for file, _ in keys}}
    places: list[dict[str, Any]] = []
    for file, line in keys:
        lines = texts[file]
        places.append(
            {
                "short": f"{file.rsplit('/', 1)[-1]}:{line}",
                "text": lines[line - 1].strip() if 0 < line <= len(lines) else "",
            }
        )
    return places, [-1 if place is None else index[place] for place in found]


def _source(path: str) -> Sequence[str]:
    """The lines of a source file, where it can be read here."""
    try:
        if Path(path).stat().st_size > _SOURCE_BYTES:
            return ()
        return Path(path).read_text("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return ()
