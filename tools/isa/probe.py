"""Asks the disassembler which registers an encoded instruction reads and writes.

Words are planted in the code section of a template cubin; `nvdisasm -hex -lrm narrow` prints per
instruction and register file a mark: `^` written, `v` read, `x` both. One illegal word makes the
disassembler refuse the file and name an address: the word is recorded as illegal, replaced by a
NOP, and the file is tried again.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

NOP = (0x0000000000007918, 0x000FDE0000000000)
EXIT = (0x000000000000794D, 0x000FEA0003800000)
BRA_SELF = (0xFFFFFFFC00FC7947, 0x000FC0000383FFFF)
FILES = ("GPR", "UGPR", "PRED", "UPRED")
_ADDRESS = re.compile(r"address 0x([0-9a-f]+)", re.I)
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?);")


@dataclass(frozen=True)
class Answer:
    """Text and accesses: `reads[file]`, `writes[file]` are frozensets of register numbers."""

    text: str
    reads: tuple[frozenset[int], ...]
    writes: tuple[frozenset[int], ...]


class Prober:
    """Runs words through nvdisasm. `arch_flags` patches nothing: the template sets the target."""

    def __init__(self, nvdisasm: str, template: bytes, section: tuple[int, int]) -> None:
        self.nvdisasm = nvdisasm
        self.template = template
        self.offset, self.size = section
        self.capacity = self.size // 16 - 2

    def ask(self, words: list[tuple[int, int]], batch: int = 300) -> list[Answer | None]:
        """One answer per word, `None` where the disassembler rejects it."""
        result: list[Answer | None] = []
        batch = min(batch, self.capacity)
        for at in range(0, len(words), batch):
            result.extend(self._batch(words[at : at + batch]))
        return result

    def _batch(self, words: list[tuple[int, int]]) -> list[Answer | None]:
        illegal: set[int] = set()
        while True:
            out, err = self._run([NOP if k in illegal else w for k, w in enumerate(words)])
            found = _ADDRESS.search(err)
            if found and not out.strip():
                k = int(found[1], 16) // 16
                if k in illegal or k >= len(words):
                    raise RuntimeError(err)
                illegal.add(k)
                continue
            if err.strip() and not out.strip():
                if len(words) == 1:
                    return [None]
                half = len(words) // 2
                return self._batch(words[:half]) + self._batch(words[half:])
            answers = parse(out)
            return [None if k in illegal else answers.get(16 * k) for k in range(len(words))]

    def _run(self, words: list[tuple[int, int]]) -> tuple[str, str]:
        count = self.size // 16
        # The last instruction must not fall through, or the life-range analysis gives up.
        body = [*words, *[NOP] * (count - len(words) - 2), EXIT, BRA_SELF]
        code = b"".join(lo.to_bytes(8, "little") + hi.to_bytes(8, "little") for lo, hi in body)
        data = self.template[: self.offset] + code + self.template[self.offset + self.size :]
        with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
            Path(f.name).write_bytes(data)
            run = subprocess.run(
                [self.nvdisasm, "-hex", "-c", "-lrm", "narrow", f.name],
                capture_output=True,
                text=True,
                check=False,
            )
        return run.stdout, run.stderr


def parse(text: str) -> dict[int, Answer]:
    """Answers by offset, from the output of `nvdisasm -hex -lrm narrow` for one section."""
    result: dict[int, Answer] = {}
    columns: list[tuple[int, str]] = []
    names: list[str] = []
    pending: tuple[int, str] | None = None
    for line in text.splitlines():
        bar = line.find("// |")
        if bar < 0:
            continue
        cells = line[bar + 4 :].split("|")[:-1]
        body = line[:bar]
        if any(c.strip() in FILES for c in cells):
            names = [c.strip() for c in cells]
            continue
        if cells and cells[0].lstrip().startswith("#"):
            columns = [(c.index("#") + 2, n) for c, n in zip(cells, names, strict=False)]
            continue
        found = _LINE.search(body)
        if found:
            pending = (int(found[1], 16), found[2].strip())
        if pending is None or "/* 0x" not in body or found:
            if not (found and any(set(c) & set("^vx") for c in cells)):
                continue
        reads = {f: set[int]() for f in FILES}
        writes = {f: set[int]() for f in FILES}
        for cell, (first, name) in zip(cells, columns, strict=False):
            for k, mark in enumerate(cell[first:]):
                if mark in "vx":
                    reads[name].add(k)
                if mark in "^x":
                    writes[name].add(k)
        assert pending is not None
        result[pending[0]] = Answer(
            pending[1],
            tuple(frozenset(reads[f]) for f in FILES),
            tuple(frozenset(writes[f]) for f in FILES),
        )
        pending = None
    return result
