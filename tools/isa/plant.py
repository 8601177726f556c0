"""Learns operand layouts by planting distinct registers in every field of a word at once.

    python tools/isa/plant.py OUT.json TEMPLATE.cubin CUBIN_OR_DIR... [--nvdisasm PATH]
    python tools/isa/plant.py FIELDS.txt TEMPLATE.cubin CUBIN_OR_DIR... --find-fields

Shapes (operation and modifier bits) are collected from a corpus. Which fields of an operation can
name a register stands in `fields_sm_90.txt`; `--find-fields` proposes it: a candidate field of some
shapes is set to two values, one field at a time, and the accesses that the disassembler reports
must move with it. Then every shape is asked once, with a different, aligned register in each field:
the runs of registers read and written at each planted number are that field's role and width.
Registers that no field explains are an error of the field list and are printed.

Words go to the disassembler as straight-line code in a template cubin (`-lrm narrow`). Illegal
words would make it refuse the file: they are found first, in raw mode, which prints one error for
each illegal word; a group of words is repeated 1, 2, 4, ... times, so that one count names them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from harvest import sections
from numpy.typing import NDArray
from verify import ask

Fields = dict[int, set[tuple[int, str]]]
Access = tuple[int, int]  # registers read and written, as masks packed like analysis/bits.py
Layout = tuple[str, ...]

HERE = Path(__file__).resolve().parent
WIDTH = {"GPR": 8, "UGPR": 6, "PRED": 3, "UPRED": 3}
BASE = {"GPR": 0, "UGPR": 256, "PRED": 320, "UPRED": 328}
SIZE = {"GPR": 255, "UGPR": 63, "PRED": 7, "UPRED": 7}
PLANTED = {
    "GPR": {16: 0x08, 24: 0xD0, 32: 0xA0, 40: 0xC8, 64: 0xB0},
    "UGPR": {16: 0x08, 24: 0x10, 32: 0x20, 40: 0x38, 64: 0x30},
    "PRED": {12: 0, 68: 1, 77: 2, 81: 3, 84: 4, 87: 5},
    "UPRED": {12: 0, 24: 6, 68: 1, 77: 2, 81: 3, 84: 4, 87: 5},
}
"""Numbers far enough apart that no tuple reaches the next, aligned for the widest."""

TRIED = {"GPR": (0x40, 0x90), "UGPR": (8, 24), "PRED": (1, 2), "UPRED": (1, 2)}

NOP = (0x7918, 0x000FC00000000000)
EXIT = (0x794D, 0x000FEA0003800000)
CONTROL = ((1 << 64) - 1) ^ ((1 << 41) - 1)
IDLE = 0x000FC00000000000
# Need their surroundings, or their operands are not settled: see FORCED, FLOW, OMITTED in build.py.
BY_HAND = {0x944, 0x344, 0x950, 0x949, 0x94A, 0x94B, 0x94C, 0x94F, 0x943}
BY_HAND |= {0x9F0, 0x9F1, 0x9F2, 0x9F3, 0xDF0, 0xDF1, 0xDF2, 0xDF3}
BRANCHES = {0x947: 48, 0x547: 48, 0x948: 48, 0x945: 30}  # width of the displacement at bit 34
SPARSE = 73  # HMMA reads a metadata register only with this bit
FULL_WORD = {0xF60, 0xF63, 0xF66, 0xF6C, 0xF6F, 0xF69, 0xF99, 0xF9B, 0xF9D, 0xF9F}


def get(word: int, bit: int, width: int) -> int:
    return (word >> bit) & ((1 << width) - 1)


def put(word: int, bit: int, width: int, value: int) -> int:
    return (word & ~(((1 << width) - 1) << bit)) | (value << bit)


def pack(words: list[int]) -> NDArray[np.uint64]:
    low = (1 << 64) - 1
    return np.array([(w & low, w >> 64) for w in words], dtype=np.uint64).reshape(-1, 2)


def normal(low: int, high: int) -> int:
    """The word with idle control bits; branches go to the next instruction."""
    word = low | ((high & ~CONTROL) | IDLE) << 64
    operation = low & 0xFFF
    if operation in BRANCHES:
        word = put(word, 34, BRANCHES[operation], 0)
        word = word if operation == 0x945 else put(word, 16, 8, 0)
    return put(word, 12, 3, 1) if operation == 0x94D else word  # EXIT must not end the code


class Oracle:
    """Asks the disassembler about words."""

    def __init__(self, nvdisasm: str, template: bytes, folder: Path) -> None:
        self.nvdisasm, self.template, self.folder = nvdisasm, template, folder
        code = next(c for _, c in sections(template))
        self.offset, self.capacity = template.index(code), len(code) // 16

    def _illegal(self, words: list[int]) -> int:
        path = self.folder / "raw.bin"
        path.write_bytes(pack(words).tobytes())
        command = [self.nvdisasm, "-b", "SM90a", str(path)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        return run.stderr.count("Illegal instruction")

    def legal(self, words: list[int], group: int = 11) -> list[int]:
        """The words that the disassembler accepts."""
        if not words:
            return []
        bad = self._illegal(words)
        if bad in (0, len(words)):
            return [] if bad else words
        if len(words) <= group:
            repeated = [w for k, w in enumerate(words) for _ in range(1 << k)]
            named = self._illegal(repeated)
            return [w for k, w in enumerate(words) if not named >> k & 1]
        half = len(words) // 2
        return self.legal(words[:half], group) + self.legal(words[half:], group)

    def ask(self, words: list[int]) -> dict[int, Access]:
        """What each legal word reads and writes."""
        result: dict[int, Access] = {}
        room = self.capacity - 2
        for at in range(0, len(words), room):
            part = words[at : at + room]
            rest = self.capacity - len(part) - 1
            code = np.concatenate([pack(part), np.array([NOP] * rest + [EXIT], dtype=np.uint64)])
            end = self.offset + 16 * self.capacity
            path = self.folder / "planted.cubin"
            path.write_bytes(self.template[: self.offset] + code.tobytes() + self.template[end:])
            marks = ask(self.nvdisasm, path)
            for word, read, written in zip(marks.words, marks.reads, marks.writes, strict=True):
                whole = int(word[0]) | int(word[1]) << 64
                result.setdefault(whole, (_mask(read), _mask(written)))
        return {w: result[w] for w in words if w in result}


def _mask(row: NDArray[np.uint64]) -> int:
    return int.from_bytes(row.astype("<u8").tobytes(), "little")


def shapes(paths: list[Path], fields: Fields) -> dict[int, list[int]]:
    """By operation, one normal word for every combination of its modifier bits."""
    seen: dict[tuple[int, int], int] = {}
    for path in paths:
        for _, code in sections(path.read_bytes()):
            words = np.frombuffer(code[: len(code) // 16 * 16], dtype="<u8").reshape(-1, 2).copy()
            words[:, 1] &= np.uint64(CONTROL ^ ((1 << 64) - 1))
            key = words & np.array([0xFFF, (1 << 64) - 1 - 0xFF], dtype=np.uint64)
            texture = np.isin(key[:, 0], list(FULL_WORD))
            key[texture] = words[texture]
            _, first = np.unique(key, axis=0, return_index=True)
            for low, high in words[first].tolist():
                operation = low & 0xFFF
                if operation in BY_HAND:
                    continue
                word = normal(low, high)
                rest = word
                for bit, file in fields.get(operation, ()):
                    rest = put(rest, bit, WIDTH[file], 0)
                seen.setdefault((operation, rest >> (40 if operation in FULL_WORD else 72)), word)
    result: dict[int, list[int]] = defaultdict(list)
    for (operation, _), word in seen.items():
        result[operation].append(word)
    return result


def transferred(found: dict[int, list[int]]) -> list[int]:
    """Words with the modifiers of one operand form of an operation in its other forms.

    Bits 9 to 11 choose the form (register, immediate, constant, uniform). A corpus seldom shows
    every modifier with each of them.
    """
    result: set[int] = set()
    arithmetic = [op for op in found if op & 0x1FF < 0x140 and op not in BRANCHES]
    for operation in arithmetic:
        base = found[operation][0]
        for sibling in arithmetic:
            if sibling == operation or (sibling ^ operation) & 0x1FF:
                continue
            for word in found[sibling]:
                moved = put(base, 72, 19, get(word, 72, 19))
                result.add(put(moved, 92, 13, get(word, 92, 13)))
    return sorted(result)


def usable(word: int, fields: set[tuple[int, str]]) -> list[tuple[int, str]]:
    """The fields of a word's operation, without those that overlap a wider one."""
    wide = any(bit == 64 and file == "GPR" for bit, file in fields)
    sparse = word & 0xFFF != 0x23C or bool(get(word, SPARSE, 1))
    return sorted(
        (bit, file)
        for bit, file in fields
        if not (wide and 64 < bit < 72) and (sparse or (bit, file) != (40, "GPR"))
    )


def plant(word: int, fields: set[tuple[int, str]]) -> int:
    """The word with a different register in each field."""
    for bit, file in sorted(usable(word, fields), key=lambda f: WIDTH[f[1]]):
        word = put(word, bit, WIDTH[file], PLANTED[file][bit])
    return word


def layout(word: int, access: Access, fields: set[tuple[int, str]]) -> tuple[Layout, Access]:
    """The layout `FILE bit role width`, and the accesses that no field explains."""
    left = list(access)
    rows: list[str] = []
    for bit, file in usable(word, fields):
        widths = [0, 0]
        for k in (0, 1):
            first = BASE[file] + PLANTED[file][bit]
            limit = 1 if file in ("PRED", "UPRED") else SIZE[file]
            while widths[k] < limit and left[k] >> (first + widths[k]) & 1:
                left[k] ^= 1 << (first + widths[k])
                widths[k] += 1
        role = (1 if widths[0] else 0) | (2 if widths[1] else 0)
        if role:
            rows.append(f"{file} {bit} {role} {max(widths)}")
    return tuple(rows), (left[0], left[1])


def find_fields(oracle: Oracle, paths: list[Path], per_operation: int = 8) -> Fields:
    """Fields that move an access when they are set to two values in turn."""
    trials: list[tuple[int, int, str, int, int]] = []
    for operation, words in shapes(paths, {}).items():
        for word in words[:per_operation]:
            for file, bits in PLANTED.items():
                for bit in bits:
                    values = TRIED[file]
                    pair = [put(word, bit, WIDTH[file], v) for v in values]
                    trials.append((operation, bit, file, pair[0], pair[1]))
    wanted = sorted({w for trial in trials for w in trial[3:]})
    answers = oracle.ask(oracle.legal(wanted))
    found: Fields = defaultdict(set)
    for operation, bit, file, a, b in trials:
        if a not in answers or b not in answers:
            continue
        at = [BASE[file] + get(w, bit, WIDTH[file]) for w in (a, b)]
        for k in (0, 1):
            gone, come = answers[a][k] & ~answers[b][k], answers[b][k] & ~answers[a][k]
            if gone >> at[0] & 1 and come >> at[1] & 1:
                found[operation].add((bit, file))
    return found


def read_fields(path: Path) -> Fields:
    result: Fields = {}
    for line in path.read_text().splitlines():
        if not line.startswith("0x"):
            continue
        operation, rest = line.split(" ", 1)
        pairs = [item.split() for item in rest.split(", ")]
        result[int(operation, 16)] = {(int(bit), file) for file, bit in pairs}
    return result


def write_fields(path: Path, fields: Fields) -> None:
    lines = [
        f"0x{operation:03x} " + ", ".join(f"{file} {bit}" for bit, file in sorted(found))
        for operation, found in sorted(fields.items())
    ]
    path.write_text("\n".join(lines) + "\n")


def texts(oracle: Oracle, words: list[int]) -> list[str]:
    """The words' text."""
    path = oracle.folder / "text.bin"
    path.write_bytes(pack(words).tobytes())
    run = subprocess.run(
        [oracle.nvdisasm, "-b", "SM90a", str(path)], capture_output=True, text=True, check=True
    )
    return [m[1].strip() for m in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+(.*?) ?;", run.stdout)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("template", type=Path, help="cubin with one long kernel of 255 registers")
    parser.add_argument("corpus", nargs="+", type=Path)
    parser.add_argument("--fields", type=Path, default=HERE / "fields_sm_90.txt")
    parser.add_argument("--find-fields", action="store_true")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    options = parser.parse_args()
    corpus = sorted(p for r in options.corpus for p in ([r] if r.is_file() else r.rglob("*.cubin")))
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(options.nvdisasm, options.template.read_bytes(), Path(folder))
        if options.find_fields:
            write_fields(options.out, find_fields(oracle, corpus))
            return
        fields = read_fields(options.fields)
        found = shapes(corpus, fields)
        words = [word for group in found.values() for word in group] + transferred(found)
        planted = sorted({plant(word, fields.get(word & 0xFFF, set())) for word in words})
        answers = oracle.ask(oracle.legal(planted))
        rows: list[list[object]] = []
        unexplained: Counter[str] = Counter()
        words = list(answers)
        for word, text in zip(words, texts(oracle, words), strict=True):
            rows_of, left = layout(word, answers[word], fields.get(word & 0xFFF, set()))
            if any(left):
                unexplained[f"0x{word & 0xFFF:03x} {text}"] += 1
                continue
            rows.append([f"{word & (1 << 64) - 1:016x}", f"{word >> 64:016x}", text, list(rows_of)])
    options.out.write_text(json.dumps(rows, indent=0))
    print(f"{len(planted)} shapes, {len(rows)} layouts, {len(unexplained)} not explained")
    for text, count in unexplained.most_common(40):
        print(f"  {count} {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
