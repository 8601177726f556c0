"""Text of instructions, from nvdisasm where it is found."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from regdem.integrations.toolkit import find_tool

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*(?:/\*.*)?$")
_NOTE = re.compile(r"\s*\(\*.*?\*\)")
TIMEOUT_S = 300


def sass_text(cubin: bytes) -> dict[str, dict[int, str]]:
    """Per kernel (mangled name) the text of each instruction by offset.

    Empty where nvdisasm is not found or rejects the file; nothing rests on it.
    """
    tool = find_tool("nvdisasm")
    if tool is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="regdem-") as folder:
        path = Path(folder, "in.cubin")
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [tool, "-c", str(path)],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return {}
    return parse_sass(done.stdout) if done.returncode == 0 else {}


def parse_sass(text: str) -> dict[str, dict[int, str]]:
    """What `nvdisasm -c` printed, by section and offset, without `;` and annotations."""
    found: dict[str, dict[int, str]] = {}
    current: dict[int, str] = {}
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section:
            current = found.setdefault(section.group(1), {})
            continue
        instruction = _LINE.match(line)
        if instruction:
            words = _NOTE.sub("", instruction.group(2)).rstrip(" ;")
            current[int(instruction.group(1), 16)] = " ".join(words.split())
    return found
