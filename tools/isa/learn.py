"""Learns operand layouts: which fields of a shape name registers, with role and width.

    python tools/isa/learn.py SHAPES.npz OUT.json TEMPLATE.cubin NVDISASM

Every candidate field of a sample word is set to two values in turn. A field names a register of a
file if the accesses reported for that file move with it; the run that moves gives the width.
Then each modifier bit of each operation is flipped, which shows bits that change a layout and
layouts that the corpus did not hold.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from harvest import sections
from probe import FILES, Answer, Prober

Word = tuple[int, int]
GPR_BITS = (16, 24, 32, 64)
UGPR_BITS = (16, 24, 32, 40, 64)
PRED_BITS = (12, 16, 24, 68, 77, 81, 84, 87)
CONTROL_FREE = ((1 << 21) - 1) << 41
IDLE_CONTROL = (15 << 41) | (7 << 46) | (7 << 49)  # stall 15, no scoreboards, no waits
BRANCHES = {0x947, 0x547, 0x348, 0x944, 0x344, 0x950, 0x949, 0x948, 0x945, 0x94A, 0x94E}


def get(word: Word, bit: int, width: int) -> int:
    return ((word[0] | (word[1] << 64)) >> bit) & ((1 << width) - 1)


def put(word: Word, bit: int, width: int, value: int) -> Word:
    full = word[0] | (word[1] << 64)
    mask = ((1 << width) - 1) << bit
    full = (full & ~mask) | (value << bit)
    return full & ((1 << 64) - 1), full >> 64


def normal(word: Word) -> Word:
    """Idle control bits, guard PT, and branches to the next instruction."""
    lo, hi = word
    hi = (hi & ~CONTROL_FREE) | IDLE_CONTROL
    word = put((lo, hi), 12, 4, 7)
    if lo & 0xFFF in BRANCHES:
        word = put(word, 16, 8, 0)
        word = put(word, 34, 48, 0)
    return word


def names(text: str, prefix: str, number: int, last: int) -> bool:
    """Whether the text names that register; the file's last number is written with a Z or T."""
    token = (
        f"{prefix}{number}"
        if number != last
        else prefix[:-1] + ("PT" if prefix[-1] == "P" else "RZ")
    )
    return re.search(rf"(?<![A-Z0-9]){token}(?![0-9A-Z])", text) is not None


def probes(word: Word, text: str) -> list[tuple[str, int, int, Word]]:
    """(file, bit, planted value, word) for every field whose value the text names."""
    taken = {get(word, b, 8) for b in GPR_BITS}
    free = [
        v
        for v in (64, 128, 16, 96, 160, 192, 208, 32)
        if not any(v - 8 <= t < v + 16 for t in taken)
    ]
    result: list[tuple[str, int, int, Word]] = []
    for bit in GPR_BITS:
        if not names(text, "R", get(word, bit, 8), 255):
            continue
        result += [("GPR", bit, v, put(word, bit, 8, v)) for v in free[:2]]
    taken = {get(word, b, 6) for b in UGPR_BITS}
    free = [v for v in (40, 16, 24, 48, 8, 32) if not any(v - 4 <= t < v + 4 for t in taken)]
    for bit in UGPR_BITS:
        if not names(text, "UR", get(word, bit, 6), 63):
            continue
        result += [("UGPR", bit, v, put(word, bit, 6, v)) for v in free[:2]]
    for bit in PRED_BITS:
        number = get(word, bit, 3)
        if bit != 12 and not names(text, "P", number, 7) and not names(text, "UP", number, 7):
            continue
        taken3 = {get(word, b, 3) for b in PRED_BITS}
        free3 = [v for v in range(6) if v not in taken3] or [0, 1]
        if len(free3) < 2:
            free3 = [*free3, (free3[0] + 1) % 6]
        result += [("PRED", bit, v, put(word, bit, 3, v)) for v in free3[:2]]
    return result


def run_at(moved: frozenset[int], value: int) -> int:
    width = 0
    while value + width in moved:
        width += 1
    return width


def layout(
    asked: list[tuple[str, int, int, Word]], answers: list[Answer | None]
) -> tuple[str, ...]:
    """The layout as sorted strings `FILE bit role width`."""
    by_field: dict[tuple[str, int], list[tuple[int, Answer]]] = defaultdict(list)
    for (kind, bit, value, _), answer in zip(asked, answers, strict=True):
        if answer is not None:
            by_field[kind, bit].append((value, answer))
    rows: set[str] = set()
    for (kind, bit), pair in by_field.items():
        if len(pair) != 2:
            continue
        (v1, a1), (v2, a2) = pair
        for name in (
            ("GPR",) if kind == "GPR" else ("UGPR",) if kind == "UGPR" else ("PRED", "UPRED")
        ):
            f = FILES.index(name)
            widths: list[int] = []
            for s1, s2 in ((a1.reads[f], a2.reads[f]), (a1.writes[f], a2.writes[f])):
                w1, w2 = run_at(s1 - s2, v1), run_at(s2 - s1, v2)
                if kind == "GPR" and not w1 == w2:
                    w1 = w2 = max(w1, w2) if min(w1, w2) else 0
                if kind == "PRED":
                    w1 = w2 = int(v1 in s1 - s2 and v2 in s2 - s1)
                widths.append(w1 if w1 == w2 else 0)
            role = (1 if widths[0] else 0) | (2 if widths[1] else 0)
            if role:
                rows.add(f"{name} {bit} {role} {max(widths)}")
    return tuple(sorted(rows))


def main() -> None:
    shapes, out, template, nvdisasm = sys.argv[1:5]
    flips = "--flips" in sys.argv[5:]
    data = Path(template).read_bytes()
    code = next(c for _, c in sections(data))
    prober = Prober(nvdisasm, data, (data.index(code), len(code)))
    loaded = np.load(shapes)
    groups: dict[int, dict[Word, Word]] = defaultdict(dict)
    for lo, hi in loaded["samples"].tolist():
        hi_key = hi & ~(0x3FF << 17) & ~0xFF & ~CONTROL_FREE  # predicates, Rc, control
        key = (lo & 0xFFF, hi_key)
        groups[lo & 0xFFF].setdefault(key, normal((lo, hi)))
    random.seed(1)
    samples: list[Word] = []
    for op, words in groups.items():
        chosen = list(words.values())
        if len(chosen) > 40:
            chosen = random.sample(chosen, 40)
        samples += chosen
        for base in random.sample(chosen, min(2, len(chosen))):
            if op not in BRANCHES and flips:
                samples += [
                    put(base, b, 1, 1 - get(base, b, 1)) for b in [*range(72, 81), *range(91, 105)]
                ]
    print(f"{len(samples)} words to probe", flush=True)

    def work(chunk: list[Word]) -> list[tuple[Word, str, tuple[str, ...]]]:
        result: list[tuple[Word, str, tuple[str, ...]]] = []
        for word, base in zip(chunk, prober.ask(chunk), strict=True):
            if base is None:
                continue
            asked = probes(word, base.text)
            answers = prober.ask([p[3] for p in asked])
            result.append((word, base.text, layout(asked, answers)))
        return result

    chunks = [samples[k : k + 24] for k in range(0, len(samples), 24)]
    learned: list[tuple[Word, str, tuple[str, ...]]] = []
    with ThreadPoolExecutor(3) as pool:
        for k, part in enumerate(pool.map(work, chunks)):
            learned += part
            if k % 20 == 0:
                print(f"{k} of {len(chunks)}", flush=True)
    Path(out).write_text(
        json.dumps(
            [[f"{w[0]:016x}", f"{w[1]:016x}", text, list(rows)] for w, text, rows in learned],
            indent=0,
        )
    )
    print(f"{len(learned)} legal words")


if __name__ == "__main__":
    main()
