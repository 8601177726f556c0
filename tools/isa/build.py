"""Builds the shipped instruction table from learned layouts.

    python tools/isa/build.py LEARNED.json... SCOREBOARDS.json OUT.json

Layouts come from `plant.py`, completion by scoreboard from `scoreboards.py`; what an operation does
to memory and control flow is a fact of its mnemonic and stands below. For every operation the
fewest modifier bits that tell its layouts apart are chosen greedily.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

SIZE_BITS = (73, 74, 75)  # access size of memory operations
ROLES = ("", "r", "w", "rw")
CANDIDATE_BITS = [67, *range(72, 105), *range(40, 64)]
MEMORY = {
    "LDG": "global r", "STG": "global w", "RED": "global rw", "REDG": "global rw",
    "ATOMG": "global rw",
    "LDS": "shared r", "STS": "shared w", "ATOMS": "shared rw", "LDSM": "shared r",
    "STSM": "shared w",
    "LDL": "local r", "STL": "local w", "LDC": "constant r", "ULDC": "constant r",
    "LD": "generic r", "ST": "generic w", "ATOM": "generic rw", "QSPC": "other r",
    "LDGSTS": "other rw", "UBLKCP": "other rw", "UBLKRED": "other rw", "UBLKPF": "other r",
    "UTMALDG": "other rw", "UTMASTG": "other rw", "UTMAREDG": "other rw", "UTMAPF": "other r",
    "UTMACCTL": "other rw", "UTMACMDFLUSH": "other rw", "SYNCS": "shared rw", "CCTL": "other rw",
    "CCTLL": "other rw", "MEMBAR": "other rw", "FENCE": "other rw", "ERRBAR": "other rw",
    "ARRIVES": "shared rw", "STAS": "shared w", "REDAS": "shared rw", "HGMMA": "shared r",
    "QGMMA": "shared r",
    "IGMMA": "shared r", "BGMMA": "shared r", "LDGDEPBAR": "other r", "DEPBAR": "other r",
    "TEX": "texture r", "TLD": "texture r", "TLD4": "texture r", "TMML": "texture r",
    "TXD": "texture r",
    "TXQ": "texture r", "SULD": "surface r", "SUST": "surface w", "SURED": "surface rw",
    "SUATOM": "surface rw", "BAR": "other rw", "UCGABAR_ARV": "other rw",
    "UCGABAR_WAIT": "other rw",
    "MATCH": "none", "GETLMEMBASE": "none", "LDGMC": "global r",
}  # fmt: skip
CONTROL = {
    "BRA": "branch", "BRX": "indirect", "JMX": "indirect", "JMP": "branch", "EXIT": "exit",
    "RET": "return", "BSSY": "bssy", "BSYNC": "bsync", "WARPSYNC": "warpsync", "BAR": "barrier",
    "BREAK": "other", "BMOV": "other", "KILL": "exit", "LEPC": "other", "YIELD": "none",
    "RPCMOV": "other",
    "BRXU": "indirect", "JMXU": "indirect", "CALL": "call",
}  # fmt: skip
LATENCY = {
    "DADD": "fp64", "DMUL": "fp64", "DFMA": "fp64", "DSETP": "fp64", "DMMA": "fp64_mma",
    "HMMA": "mma", "IMMA": "mma", "BMMA": "mma", "QMMA": "mma", "HGMMA": "gmma", "IGMMA": "gmma",
    "QGMMA": "gmma", "BGMMA": "gmma",
    "HADD2": "half", "HMUL2": "half", "HFMA2": "half", "HSET2": "half", "HSETP2": "half",
    "HMNMX2": "half",
    "FADD": "fma", "FMUL": "fma", "FFMA": "fma", "IMAD": "imad", "IDP": "imad", "IDP4A": "imad",
    "CS2R": "cs2r", "MUFU": "mufu", "S2R": "special", "S2UR": "special", "SHFL": "shuffle",
}  # fmt: skip


def latency(name: str, text: str, op: int, variable: bool) -> str:
    memory = MEMORY.get(name, "").split(" ")[0]
    if variable:
        if memory and memory != "none":
            return f"memory_{memory}"
        return {"MUFU": "mufu", "SHFL": "shuffle", "S2R": "special", "S2UR": "special"}.get(
            name, "variable"
        )
    if name in ("IMAD", "UIMAD") and (".WIDE" in text or ".HI" in text):
        return "imad_wide" if name == "IMAD" else "uniform"
    if name == "HFMA2" and ".MMA" in text:
        return "half_mma"
    if name == "R2UR":
        return "r2ur"
    if name in LATENCY:
        return LATENCY[name]
    if name.startswith("U") and name not in ("UNPACK",):
        return "uniform"
    if CONTROL.get(name, "none") != "none":
        return "control"
    return "alu"


def bits(word: tuple[int, int], bit: int) -> int:
    return ((word[0] | (word[1] << 64)) >> bit) & 1


# Control transfers through a register: the probe can't disassemble them out of their context.
# Encodings and widths are measured on whole kernels.
FORCED = {
    0x949: ("BRX R6", ("GPR 24 1 2", "PRED 12 1 1", "PRED 87 1 1")),
    0x950: ("RET.REL.NODEC R20", ("GPR 24 1 2", "PRED 12 1 1", "PRED 87 1 1")),
    0x344: ("CALL.REL.NOINC R20", ("GPR 24 1 2", "PRED 12 1 1", "PRED 87 1 1")),
    0x944: ("CALL.REL.NOINC", ("PRED 12 1 1", "PRED 87 1 1")),
    0x945: ("BSSY B0", ("PRED 12 1 1", "PRED 87 1 1")),
    0x355: ("BMOV.32.CLEAR R16, B6", ("GPR 16 2 1", "PRED 12 1 1")),
    0x356: ("BMOV.32 B6, R16", ("GPR 32 1 1", "PRED 12 1 1")),
}


# Branches whose form decides the flow, not only the operands: (bits, text, operands, displacement,
# falls through). BRA.DIV and BRA.CONV go on to the next instruction where the warp does not diverge
# or converge, whatever their guard; WARPSYNC jumps only with .COLLECTIVE (bit 86).
FLOW = {
    0x947: (
        ({91: 0, 33: 0}, "BRA P2, `(.L)", ("PRED 12 1 1", "PRED 87 1 1"), "branch", False),
        ({91: 0, 33: 1}, "BRA.CONV `(.L)", ("PRED 12 1 1", "PRED 87 1 1"), "branch", True),
        ({91: 1}, "BRA.DIV UR4, `(.L)", ("PRED 12 1 1", "PRED 87 1 1", "UGPR 24 1 1"), "branch",
         True),
    ),
    0x547: (
        ({}, "BRA.U UP0, `(.L)", ("PRED 12 1 1", "PRED 87 1 1", "UPRED 24 1 1"), "branch", False),
    ),
    0x348: (
        ({86: 0}, "WARPSYNC R4", ("PRED 12 1 1", "PRED 87 1 1", "GPR 24 1 1"), "", False),
        ({86: 1}, "WARPSYNC.COLLECTIVE R4, `(.L)", ("PRED 12 1 1", "PRED 87 1 1", "GPR 24 1 1"),
         "branch", False),
    ),
    0x948: (
        ({86: 0}, "WARPSYNC.ALL", ("PRED 12 1 1", "PRED 87 1 1"), "", False),
        ({86: 1}, "WARPSYNC.COLLECTIVE `(.L)", ("PRED 12 1 1", "PRED 87 1 1"), "branch", False),
    ),
}  # fmt: skip


# Predicates moved by an immediate mask (bits 32 to 38), which the life-range columns leave out:
# P2R reads them, R2P writes them.
IMPLICIT = {0x803: "PRED r 32 7", 0x804: "PRED w 32 7"}


# Operands of an operation (bits 0-8) that are printed only when used, and rarely are.
HIDDEN = {0x025: ("PRED 81 2 1",), 0x027: ("PRED 81 2 1",), 0x1A7: ("GPR 24 1 1",)}


# Left out, so that kernels with them are refused: their operands stay in flight until
# WARPGROUP.DEPBAR, and their predicate is stored inverted (7 is UP0), which no operand row can say.
# LDGMC and BRXU are rare and not understood well enough.
OMITTED = {"HGMMA", "IGMMA", "QGMMA", "BGMMA", "LDGMC", "BRXU"}

# Rare in the corpora; they read their sources late like every other access to memory.
VARIABLE = {"STSM", "ARRIVES"}

# Operations whose widths depend on many modifier bits (texture dimensions and masks, matrix sizes,
# types of atomics): a form covers only what was seen in all of these bits, so that an unseen
# variant stays outside the table instead of being guessed.
_HIGH = (*range(72, 81), *range(84, 87), *range(91, 105))
EXACT: dict[str, tuple[int, ...]] = {
    **{n: (*range(46, 64), *_HIGH) for n in ("TEX", "TLD", "TLD4", "TXD", "TXQ", "TMML")},
    **{n: (*range(46, 64), *_HIGH) for n in ("SULD", "SUST", "SURED", "SUATOM")},
    **dict.fromkeys(("UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UTMACCTL"), _HIGH),
    **dict.fromkeys(
        ("UBLKCP", "UBLKRED", "UBLKPF", "SYNCS", "STAS", "REDAS", "ARRIVES", "RPCMOV"), _HIGH
    ),
    **{n: (*range(73, 76), *range(87, 93)) for n in ("LDGMC", "STSM", "LDSM")},
    **{n: (*range(73, 76), 91) for n in ("ATOMG", "ATOMS", "ATOM", "REDG", "RED")},
}
_FIELD_BITS = {"GPR": 8, "UGPR": 6, "PRED": 4, "UPRED": 4}  # a predicate's negation follows it


def exact(
    name: str, samples: list[tuple[tuple[int, int], str, tuple[str, ...]]]
) -> list[tuple[dict[int, int], str, tuple[str, ...]]]:
    """One leaf for each combination of the operation's modifier bits that was seen."""
    taken = {
        int(row.split()[1]) + k
        for _, _, rows in samples
        for row in rows
        for k in range(_FIELD_BITS[row.split()[0]])
    }
    chosen = [b for b in EXACT[name] if b not in taken]
    seen: dict[tuple[int, ...], list[tuple[tuple[int, int], str, tuple[str, ...]]]] = {}
    for sample in samples:
        seen.setdefault(tuple(bits(sample[0], b) for b in chosen), []).append(sample)
    leaves: list[tuple[dict[int, int], str, tuple[str, ...]]] = []
    for key, group in seen.items():
        here = dict(zip(chosen, key, strict=True))
        for match, text, layout in split(group):
            leaves.append(({**here, **match}, text, layout))
    return leaves


def forced(op: int) -> list[tuple[tuple[int, int], str, tuple[str, ...]]]:
    if op not in FORCED:
        return []
    text, rows = FORCED[op]
    return [((op | 0xFFFF0000 | (255 << 32), 0xFF), text, rows)]


def complete(
    samples: list[tuple[tuple[int, int], str, tuple[str, ...]]],
) -> list[tuple[tuple[int, int], str, tuple[str, ...]]]:
    """Adds operands that a sample could not show because its field names RZ or PT."""
    known: dict[tuple[str, str], set[str]] = defaultdict(set)
    for _, _, rows in samples:
        for row in rows:
            file, bit, _, _ = row.split()
            known[file, bit].add(row)
    for row in HIDDEN.get(samples[0][0][0] & 0x1FF, ()):
        known[row.split()[0], row.split()[1]].add(row)
    result: list[tuple[tuple[int, int], str, tuple[str, ...]]] = []
    for word, text, rows in samples:
        have = {row.split()[1] for row in rows}
        added = set(rows)
        for (file, bit), options in known.items():
            width, null = {"GPR": (8, 255), "UGPR": (6, 63)}.get(file, (3, 7))
            value = ((word[0] | (word[1] << 64)) >> int(bit)) & ((1 << width) - 1)
            if bit not in have and value == null and len(options) == 1:
                added |= options
        result.append((word, text, tuple(sorted(added))))
    return result


def split(
    samples: list[tuple[tuple[int, int], str, tuple[str, ...]]],
) -> list[tuple[dict[int, int], str, tuple[str, ...]]]:
    """Decision tree over modifier bits: leaves are (bit values, text, layout)."""
    layouts = {s[2] for s in samples}
    if len(layouts) == 1:
        return [({}, samples[0][1], samples[0][2])]
    best: tuple[float, int] | None = None
    fields = {(int(b), _FIELD_BITS[f]) for s in samples for f, b, *_ in (r.split() for r in s[2])}
    sized = re.sub(r"^@!?U?P\w+\s+", "", samples[0][1]).split()[0].split(".")[0] in MEMORY
    for bit in sorted(
        set(CANDIDATE_BITS), key=lambda b: (not (sized and b in SIZE_BITS), b < 64, b)
    ):
        if sized and bit < 72:
            continue
        if any(first <= bit < first + width for first, width in fields):
            continue
        sides = (
            [s for s in samples if not bits(s[0], bit)],
            [s for s in samples if bits(s[0], bit)],
        )
        if not sides[0] or not sides[1]:
            continue
        impurity = 0.0
        for side in sides:
            counts = Counter(s[2] for s in side)
            impurity += len(side) - max(counts.values())
            impurity += 0.01 * len(counts)
        impurity += 0.001 * (bit < 64)
        if sized and bit in SIZE_BITS:
            impurity -= 0.5
        if best is None or impurity < best[0]:
            best = (impurity, bit)
    if best is None:
        counts = Counter(s[2] for s in samples)
        print("ambiguous", samples[0][1], counts, file=sys.stderr)
        layout = max(counts, key=lambda k: (len(k), counts[k]))
        return [({}, samples[0][1], layout)]
    bit = best[1]
    leaves: list[tuple[dict[int, int], str, tuple[str, ...]]] = []
    for value in (0, 1):
        for match, text, layout in split([s for s in samples if bits(s[0], bit) == value]):
            leaves.append(({bit: value, **match}, text, layout))
    return leaves


def alignment(width: int) -> int:
    return 1 if width == 1 else 2 if width == 2 else 4 if width <= 4 else 8


def main() -> None:
    *learned, scoreboards, out = sys.argv[1:]
    by_op: dict[int, list[tuple[tuple[int, int], str, tuple[str, ...]]]] = defaultdict(list)
    for lo, hi, text, rows in (row for p in learned for row in json.loads(Path(p).read_text())):
        word = (int(lo, 16), int(hi, 16))
        by_op[word[0] & 0xFFF].append((word, text, tuple(rows)))
    for op in FORCED:
        by_op[op] = []
    for op in FLOW:
        by_op.setdefault(op, [])
    signals = json.loads(Path(scoreboards).read_text())
    variable_names: set[str] = set()
    names: dict[int, str] = {}
    for op, samples in by_op.items():
        samples = samples or forced(op) or [((op, 0), FLOW[op][0][1], ())]
        names[op] = re.sub(r"^@!?U?P\w+\s+", "", samples[0][1]).split()[0].split(".")[0]
        counts = signals.get(f"0x{op:03x}", [0, 0, 0, 0])
        if counts[1] or counts[2]:
            variable_names.add(f"{names[op]}")
    rows: list[str] = []
    for op in sorted(by_op):
        name = names[op]
        if name in OMITTED:
            continue
        counts = signals.get(f"0x{op:03x}", [0, 0, 0, 0])
        variable = bool(counts[1] or counts[2]) or (name in variable_names and name in MEMORY)
        variable |= name in VARIABLE
        samples = complete(by_op[op] + forced(op)) if by_op[op] or forced(op) else []
        if op in FLOW:
            leaves = [(dict(m), t, tuple(sorted(rows))) for m, t, rows, _, _ in FLOW[op]]
        else:
            leaves = exact(name, samples) if name in EXACT else split(samples)
        for match, text, layout in leaves:
            operands = sorted(
                (f"{f} {b} {ROLES[int(r)]} {w} {alignment(int(w))}"
                 for f, b, r, w in (row.split() for row in layout)),
                key=lambda t: int(t.split()[1]),
            )  # fmt: skip
            memory = MEMORY.get(name, "none").split(" ")
            flags: list[str] = []
            if len(memory) > 1:
                flags += ["reads"] if "r" in memory[1] else []
                flags += ["writes"] if "w" in memory[1] else []
            if variable:
                flags.append("variable")
            if latency(name, text, op, variable) in ("mma", "gmma", "fp64_mma"):
                flags.append("multi_pass")
            control = CONTROL.get(name, "none")
            displacement = ""
            if name == "CALL" and op in (0x344,):
                control, displacement = "call_register", "branch"
            elif (name == "CALL" and op == 0x944) or (
                name in ("BRA", "RET", "BRX", "WARPSYNC") and op in (0x950, 0x949)
            ):
                displacement = "branch"
            elif name == "BSSY":
                displacement = "bssy"
            elif name == "LEPC":
                displacement = "lepc"
            elif name == "CALL":
                control = "call_register"
            if op in FLOW:
                displacement, falls = next(
                    (d, f) for m, t, _, d, f in FLOW[op] if (m, t) == (match, text)
                )
                flags += ["falls_through"] if falls else []
                if name == "WARPSYNC":
                    control = "warpsync" if displacement else "none"
            row: dict[str, object] = {"opcode": f"0x{op:03x}", "name": name, "operands": operands}
            if match:
                row["match"] = {str(b): v for b, v in sorted(match.items())}
            if memory[0] != "none":
                row["memory"] = memory[0]
            if control != "none":
                row["control"] = control
            if displacement:
                row["displacement"] = displacement
            if op in IMPLICIT:
                row["implicit"] = [IMPLICIT[op]]
            row["latency"] = latency(name, text, op, variable)
            if flags:
                row["flags"] = " ".join(flags)
            row["example"] = text
            rows.append(json.dumps(row))
    head = {"arch": "sm_90", "made_by": "tools/isa/build.py"}
    text = json.dumps(head)[:-1] + ', "forms": [\n' + ",\n".join(rows) + "\n]}\n"
    Path(out).write_text(text)
    print(f"{len(rows)} forms of {len(by_op)} operations")


if __name__ == "__main__":
    main()
