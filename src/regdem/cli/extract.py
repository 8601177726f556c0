"""`regdem extract`: the device code in a file, listed or written out piece by piece."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from regdem.binary import Cubin, Entry, open_container
from regdem.cli.options import (
    KernelPattern,
    arch_option,
    debug_option,
    folder_option,
    format_option,
    kernel_option,
)
from regdem.cli.output import Output, dump_json, envelope, input_entry, write_atomically
from regdem.errors import InputError, RegdemError, UsageError

_SUFFIX = {"cubin": ".cubin", "ptx": ".ptx", "ltoir": ".ltoir", "cuda": ".cu"}

EPILOG = """
FILE: a fat binary, a host object, program or library, an archive, a zip or wheel, a folder. Without
-o the pieces are only listed. Files are named after the place in FILE, and hold what FILE holds.
"""


@click.command("extract", epilog=EPILOG, short_help="List and extract embedded device code.")
@click.argument("file")
@folder_option("-o", "--output", "folder", help="Write the pieces there.")
@arch_option()
@kernel_option
@format_option("text", "json")
@debug_option
def command(
    *,
    file: str,
    folder: str | None,
    arch: str | None,
    kernel: KernelPattern | None,
    report: Output,
) -> int:
    """List the cubins and PTX texts in FILE with their kernels, and write them to DIR."""
    rows: list[dict[str, Any]] = []
    for index, entry in enumerate(open_container(file)):
        if arch is not None and (entry.arch or "").rstrip("af") != arch:
            continue
        row = _row(entry, kernel)
        if row is None:
            continue
        if folder is not None and entry.kind in _SUFFIX:
            row["file"] = input_entry(*_write(Path(folder), file, index, entry))
        rows.append(row)
    if not rows:
        raise UsageError("nothing in it is asked for", file=file, hint="without options all is")
    report.emit(
        text=lambda: _text(rows),
        json=lambda: dump_json(envelope({"path": file, "entries": rows})),
    )
    return 0


def _row(entry: Entry, pattern: KernelPattern | None) -> dict[str, Any] | None:
    """What is said of an entry; None where it holds no kernel that is asked for."""
    row: dict[str, Any] = {
        "name": entry.name,
        "kind": entry.kind,
        "arch": entry.arch,
        "size_bytes": entry.size,
    }
    if entry.problem is not None:
        return None if pattern else row | {"problem": entry.problem}
    try:
        kernels = _kernels(entry)
    except RegdemError as error:
        return None if pattern else row | {"problem": error.message}
    if pattern is None:
        return row | {"kernels": [name for name, _ in kernels]}
    chosen = [name for name, demangled in kernels if pattern.matches(name, demangled)]
    return row | {"kernels": chosen} if chosen else None


def _kernels(entry: Entry) -> list[tuple[str, str | None]]:
    if entry.kind == "cubin":
        cubin = Cubin.parse(entry.read(), entry.name)
        return [(kernel.name, kernel.demangled_name) for kernel in cubin.kernels]
    if entry.kind == "ptx":
        from regdem.integrations.compile import entries

        text = entry.read().decode("utf-8", errors="replace")
        return [(name, None) for name in entries(text)]
    return []


def _write(folder: Path, file: str, index: int, entry: Entry) -> tuple[Path, bytes]:
    """Writes one piece; its path and bytes."""
    inside = entry.name.removeprefix(file).removeprefix("!")
    words = re.sub(r"[^A-Za-z0-9_.-]+", "_", inside).strip("._") or str(index)
    suffix = _SUFFIX[entry.kind]
    path = folder / f"{Path(file).stem}.{words.removesuffix(suffix)}{suffix}"
    data = entry.read()
    if entry.kind == "ptx":
        data = data.rstrip(b"\0")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or "error").lower()
        raise InputError(f"can't be made: {reason}", file=str(folder)) from error
    write_atomically(path, data)
    return path, data


def _text(rows: list[dict[str, Any]]) -> str:
    lines: list[str] = []
    for row in rows:
        place = f" -> {row['file']['path']}" if "file" in row else ""
        lines.append(f"{row['name']}  {row['kind']}, {row['size_bytes']:,} bytes{place}")
        if "problem" in row:
            lines.append(f"  {row['problem']}")
        lines.extend(f"  {name}" for name in row.get("kernels", []))
    return "\n".join(lines) + "\n"
