"""Compares the decoder's operands with the disassembler's life-range columns, per instruction.

    python tools/isa/verify.py [--cache DIR] [--nvdisasm PATH] [--part K/N] [--samples OUT.npz]
                               CUBIN_OR_DIR...

For every instruction and register file (GPR, UGPR, PRED, UPRED) the registers read and written
according to `regdem.isa.decode` must equal the marks that `nvdisasm -hex -c -lrm narrow` prints.
Rows of CALL show the callee's summary instead of the instruction's operands; they are left out,
and counted. Instructions outside the table are counted by operation and named. The exit status is
1 if anything disagrees.

The disassembler is slow, the decoder is not: with `--cache` its marks are kept, one file a cubin,
so that a new table is verified against the same marks in seconds. `--samples` writes the words that
are not in the table or disagree, as a first look at them.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from harvest import sections
from numpy.typing import NDArray

from regdem.analysis.bits import FILE_BASE, def_words, use_words
from regdem.isa import RegisterFile, decode
from regdem.isa.decoded import IMPLICIT

FILES = ("GPR", "UGPR", "PRED", "UPRED")
WORDS = 6  # 64-bit words of a packed mask, as in analysis/bits.py
_FIRST = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?) ?;")
_SECOND = re.compile(r"^\s+/\* 0x[0-9a-f]{16} \*/")
_READ = str.maketrans({"v": "1", "x": "1", "^": "0", ":": "0", " ": "0"})
_WRITTEN = str.maketrans({"^": "1", "x": "1", "v": "0", ":": "0", " ": "0"})


@dataclass
class Marks:
    """What the disassembler says about the instructions of one cubin."""

    words: NDArray[np.uint64]  # (n, 2)
    reads: NDArray[np.uint64]  # (n, WORDS) packed as in analysis/bits.py
    writes: NDArray[np.uint64]
    call: NDArray[np.bool_]


@dataclass
class Tally:
    """Sums over cubins."""

    cubins: int = 0
    instructions: int = 0
    calls: int = 0
    operands: int = 0
    unknown: Counter[str] = field(default_factory=Counter[str])
    disagreements: Counter[str] = field(default_factory=Counter[str])
    bad_instructions: int = 0
    examples: dict[str, str] = field(default_factory=dict[str, str])
    lessons: list[NDArray[np.uint64]] = field(default_factory=list[NDArray[np.uint64]])


def rows(lines: Iterable[str]) -> Iterator[tuple[str, int, str, int, int]]:
    """(section, offset, text, reads, writes) of every printed instruction."""
    section = ""
    names: list[str] = []
    columns: list[tuple[int, int]] = []  # first character of the marks, bit of register 0
    pending: tuple[int, str] | None = None
    for line in lines:
        if line.startswith("//---"):
            section, pending = line.split()[1], None
            continue
        first = _FIRST.match(line)
        if first:
            pending = (int(first[1], 16), first[2])
            continue
        bar = line.rfind("// |")
        if bar < 0:
            continue
        if pending is None or not _SECOND.match(line):
            cells = line[bar + 4 :].split("|")[:-1]
            found = [c.strip() for c in cells]
            if found and all(c in FILES for c in found):
                names = found
            elif cells and cells[0].lstrip().startswith("#"):
                columns = [
                    (c.index("#") + 2, FILE_BASE[RegisterFile[n]])
                    for c, n in zip(cells, names, strict=True)
                ]
            continue
        reads = writes = 0
        for cell, (at, base) in zip(line[bar + 4 :].split("|"), columns, strict=False):
            marks = cell[at:]
            if not marks.strip(" :"):
                continue
            backwards = marks[::-1]
            reads |= int(backwards.translate(_READ), 2) << base
            writes |= int(backwards.translate(_WRITTEN), 2) << base
        yield section, pending[0], pending[1], reads, writes
        pending = None


def ask(nvdisasm: str, path: Path) -> Marks:
    """Runs the disassembler over one cubin. Raises `RuntimeError` if it fails."""
    code = dict(sections(path.read_bytes()))
    words: list[bytes] = []
    reads: list[bytes] = []
    writes: list[bytes] = []
    call: list[bool] = []
    command = [nvdisasm, "-hex", "-c", "-lrm", "narrow", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        assert run.stdout is not None
        for section, offset, text, read, written in rows(run.stdout):
            words.append(code[section][offset : offset + 16])
            reads.append(read.to_bytes(8 * WORDS, "little"))
            writes.append(written.to_bytes(8 * WORDS, "little"))
            call.append("CALL" in text)
    if run.returncode or not words:
        raise RuntimeError(f"no code printed, exit status {run.returncode}")
    packed = [
        np.frombuffer(b"".join(column), dtype="<u8").reshape(-1, width)
        for column, width in ((words, 2), (reads, WORDS), (writes, WORDS))
    ]
    return Marks(packed[0], packed[1], packed[2], np.array(call, dtype=bool))


def marks_of(nvdisasm: str, path: Path, cache: Path | None) -> Marks:
    """The marks of a cubin, from the cache if it has them."""
    if cache is None:
        return ask(nvdisasm, path)
    stored = cache / (hashlib.sha256(path.read_bytes()).hexdigest()[:24] + ".npz")
    if not stored.exists():
        marks = ask(nvdisasm, path)
        np.savez_compressed(
            stored, words=marks.words, reads=marks.reads, writes=marks.writes, call=marks.call
        )
        return marks
    with np.load(stored) as data:
        return Marks(data["words"], data["reads"], data["writes"], data["call"])


def _named(row: NDArray[np.uint64], file: RegisterFile) -> list[int]:
    value = int.from_bytes(row.tobytes(), "little") >> FILE_BASE[file]
    size = {RegisterFile.GPR: 256, RegisterFile.UGPR: 64}.get(file, 8)
    return [k for k in range(size) if (value >> k) & 1]


def compare(marks: Marks, tally: Tally) -> None:
    """Adds one cubin to the tally."""
    code = decode(marks.words)
    names = [form.name for form in code.table.forms]
    opcode = (marks.words[:, 0] & np.uint64(0xFFF)).astype(np.int64)
    known = code.form >= 0
    for op, count in zip(*np.unique(opcode[~known], return_counts=True), strict=True):
        tally.unknown[f"0x{int(op):03x}"] += int(count)
    tally.cubins += 1
    tally.instructions += len(code)
    tally.calls += int(marks.call.sum())
    asked = known & ~marks.call
    tally.operands += int(np.count_nonzero(asked[code.operand_instruction]))
    bad = np.zeros(len(code), dtype=bool)
    # The columns leave out the predicates that R2P and P2R move by a mask.
    role = np.where(code.operand_bit == IMPLICIT, 0, code.operand_role).astype(np.uint8)
    shown = replace(code, operand_role=role)
    for what, mine, theirs in (
        ("read", use_words(shown), marks.reads),
        ("written", def_words(shown), marks.writes),
    ):
        for i in np.flatnonzero(asked & (mine != theirs).any(axis=1)).tolist():
            bad[i] = True
            for file in RegisterFile:
                got, want = _named(mine[i], file), _named(theirs[i], file)
                if got == want:
                    continue
                key = f"0x{opcode[i]:03x} {names[code.form[i]]} {file.name} {what}"
                tally.disagreements[key] += 1
                low, high = (int(v) for v in marks.words[i])
                example = f"0x{low:016x} 0x{high:016x} table {got} disassembler {want}"
                tally.examples.setdefault(key, example)
    tally.bad_instructions += int(bad.sum())
    tally.lessons.append(marks.words[bad | ~known])


def show(tally: Tally, seconds: float) -> None:
    """Prints the totals."""
    unknown = sum(tally.unknown.values())
    share = 100 * unknown / max(1, tally.instructions)
    print(f"cubins          {tally.cubins:,}")
    print(f"instructions    {tally.instructions:,}")
    print(f"  rows of CALL  {tally.calls:,} (not compared)")
    print(f"  not in table  {unknown:,} ({share:.4f} %) {dict(tally.unknown.most_common(40))}")
    print(f"operands        {tally.operands:,}")
    print(f"disagreements   {tally.bad_instructions:,}")
    for key, count in tally.disagreements.most_common(60):
        print(f"  {count:7,} {key}: {tally.examples[key]}")
    print(f"seconds         {seconds:.0f}", flush=True)


def main() -> int:
    """Runs the comparison; see the module's text."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("inputs", nargs="+", type=Path, help="cubins or folders of them")
    parser.add_argument("--cache", type=Path, help="keep the disassembler's marks in this folder")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth cubin, from the Kth")
    parser.add_argument("--samples", type=Path, help="write what has to be learned to this file")
    options = parser.parse_args()
    if options.cache:
        options.cache.mkdir(parents=True, exist_ok=True)
    files = sorted(p for r in options.inputs for p in ([r] if r.is_file() else r.rglob("*.cubin")))
    part, parts = (int(t) for t in options.part.split("/"))
    tally, begin = Tally(), time.monotonic()
    for path in files[part::parts]:
        try:
            compare(marks_of(options.nvdisasm, path, options.cache), tally)
        except RuntimeError as error:
            print(f"left out: {path.name}: {error}", file=sys.stderr)
    if options.samples:
        words = np.unique(np.concatenate([*tally.lessons, np.zeros((0, 2), np.uint64)]), axis=0)
        np.savez_compressed(options.samples, samples=words)
    show(tally, time.monotonic() - begin)
    return 1 if tally.bad_instructions else 0


if __name__ == "__main__":
    raise SystemExit(main())
