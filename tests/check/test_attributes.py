"""What the file says about places must follow the code: correct edits pass, faults are found."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rewrites import NOP, controlled, with_nops

from regdem.binary import Annotation, Cubin, InfoRecord, Kernel, KernelEdit
from regdem.check import check_pair
from regdem.check.attributes import KINDS, Moved, attribute_findings
from regdem.check.view import view_of

FOLDER = Path(__file__).resolve().parents[1]
FILES = [
    FOLDER / "check" / "data" / "kernels.cubin",
    FOLDER / "transform" / "data" / "spills.cubin",
    *(FOLDER / "binary" / "data" / f"{n}_sm_90.cubin" for n in ("cuda12", "lines", "relocatable")),
]
CASES = [
    pytest.param(path, kernel.name, id=f"{path.stem}-{kernel.name}")
    for path in FILES
    for kernel in Cubin.parse(path.read_bytes()).kernels
]
PLACES = {0x1C, 0x1D, 0x28, 0x31, 0x46}


def shifted(path: Path, name: str, every: int = 3) -> Moved:
    """A kernel before and after NOPs went in, as the editor writes it."""
    cubin = Cubin.parse(path.read_bytes())
    kernel = cubin.kernel(name)
    out, steps, places, labels = b"", list[tuple[int, int]](), list[int](), list[int]()
    for i in range(kernel.instruction_count):
        labels.append(len(out))
        if i % every == 1:
            steps.append((-1, len(out) // 16))
            out += struct.pack("<QQ", *controlled(NOP, stall=2, bit=1))
        places.append(len(out))
        steps.append((i, len(out) // 16))
        out += kernel.code[16 * i : 16 * i + 16]
    edit = KernelEdit(out, np.array([*places, len(out)]), np.array([*labels, len(out)]))
    new = Cubin.parse(cubin.with_kernel(name, edit).to_bytes()).kernel(name)
    views = [view_of(name, each.code, each.arch) for each in (kernel, new)]
    return Moved(kernel, new, views[0], views[1], steps)


def with_rewritten(moved: Moved, kernel: Kernel) -> Moved:
    return Moved(moved.original, kernel, moved.first, moved.second, moved.steps)


def with_word(record: InfoRecord, at: int, change: int) -> InfoRecord:
    words = list(record.words)
    words[at] += change
    return replace(record, payload=struct.pack(f"<{len(words)}I", *words))


def places_in(record: InfoRecord) -> list[int]:
    """Positions of words that are places in the code."""
    count = len(record.words)
    if record.attribute in PLACES:
        return list(range(count))
    if record.attribute in (0x44, 0x55):
        return list(range(int(record.attribute == 0x55), count, 2))
    return []


def faults(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Kernels whose file tells something wrong about the code, each by one fault."""
    for k, record in enumerate(kernel.info):
        head, tail = kernel.info[:k], kernel.info[k + 1 :]
        if record.attribute not in (0x05, 0x34):  # `layout` and `branch_tables` have these
            yield f"without {record.name}", replace(kernel, info=(*head, *tail))
            yield f"{record.name} twice", replace(kernel, info=(*head, record, record, *tail))
        for at in places_in(record):
            for change in (16, -16):
                if record.words[at] + change < 0:
                    continue
                moved = with_word(record, at, change)
                yield f"{record.name}[{at}] {change:+}", replace(kernel, info=(*head, moved, *tail))
    for place in range(0, len(kernel.constant2), 4):
        content = bytearray(kernel.constant2)
        content[place] ^= 0x10
        yield f"bank 2 at {place}", replace(kernel, constant2=bytes(content))
    for k, each in enumerate(kernel.relocations):
        head, tail = kernel.relocations[:k], kernel.relocations[k + 1 :]
        yield f"without relocation {k}", replace(kernel, relocations=(*head, *tail))
        to = "addend" if each.target_offset is None else "target_offset"
        for what in ("offset", to, "symbol_index", "type"):
            changes = {what: getattr(each, what) + 3 * 16}
            wrong = replace(each, **changes)
            yield f"relocation {k} {changes}", replace(kernel, relocations=(*head, wrong, *tail))
    for k, each in enumerate(kernel.functions):
        wrong = replace(each, size=each.size - 16)
        functions = (*kernel.functions[:k], wrong, *kernel.functions[k + 1 :])
        yield f"size of {each.name}", replace(kernel, functions=functions)
    for k, table in enumerate(kernel.branch_tables):
        wrong = replace(table, offset=table.offset + 16)
        tables = (*kernel.branch_tables[:k], wrong, *kernel.branch_tables[k + 1 :])
        yield f"indirect branch {k}", replace(kernel, branch_tables=tables)


@pytest.mark.parametrize(("path", "name"), CASES)
def test_what_the_editor_writes_follows_the_code(path: Path, name: str) -> None:
    moved = shifted(path, name)
    assert moved.rewritten.code != moved.original.code
    assert attribute_findings(moved) == []


@pytest.mark.parametrize(("path", "name"), CASES)
def test_every_planted_fault_is_found(path: Path, name: str) -> None:
    moved = shifted(path, name)
    for what, kernel in faults(moved.rewritten):
        found = attribute_findings(with_rewritten(moved, kernel))
        assert found, what
        assert {finding.kind for finding in found} <= KINDS


def test_the_lists_of_unmoved_code_are_stale(kernels: dict[str, Kernel]) -> None:
    """The whole check sees them, as findings about the file's layout."""
    for name in ("jumps", "shuffles", "vectors", "gather"):
        moved = with_nops(kernels[name], 3)
        assert check_pair(kernels[name], moved).findings == ()
        verdict = check_pair(kernels[name], replace(moved, info=kernels[name].info))
        assert verdict.findings
        assert verdict.checks["layout"] == "failed"
        assert verdict.checks["dataflow"] == "proved"
    stale = replace(with_nops(kernels["jumps"], 3), constant2=kernels["jumps"].constant2)
    assert {f.kind for f in check_pair(kernels["jumps"], stale).findings} == {"jump_table"}


def test_mask_registers_follow_their_operands() -> None:
    kernel = Cubin.parse(FILES[2].read_bytes()).kernel("_Z5tablePii")
    steps = [(i, i) for i in range(kernel.instruction_count)]
    view = view_of(kernel.name, kernel.code, kernel.arch)
    listed = [w // 16 for r in kernel.info if r.attribute == 0x28 for w in r.words]
    (k,) = [k for k, r in enumerate(kernel.info) if r.attribute == 0x29]
    record, found = kernel.info[k], 0
    for at, word in enumerate(record.words):
        operands = {row.first for row in view.rows[listed[at]] if row.file == 0 and row.reads}
        for change in (1, 0x10000):
            wrong = with_word(record, at, change if word != 0xFFFFFFFF else -change)
            info = (*kernel.info[:k], wrong, *kernel.info[k + 1 :])
            other = Moved(kernel, replace(kernel, info=info), view, view, steps)
            is_named = word & 0xFF in operands or change > 1 or word == 0xFFFFFFFF
            assert bool(attribute_findings(other)) == is_named
            found += is_named
    assert found > len(record.words)


def test_marks_of_new_accesses_are_the_only_new_ones() -> None:
    path = FOLDER / "transform" / "data" / "spills.cubin"
    moved = shifted(path, "single")
    nop = next(j for i, j in moved.steps if i < 0)
    load = next(j for i, j in moved.steps if i >= 0 and moved.second.memory[j] == "local")
    for at, kind in ((nop, 1), (load, 2)):
        marks = (Annotation(kind, 16 * at),)
        words = [word for mark in marks for word in (mark.kind, mark.offset)]
        record = InfoRecord(4, 0x55, struct.pack(f"<{len(words)}I", *words))
        kernel = replace(moved.rewritten, info=(*moved.rewritten.info, record))
        assert attribute_findings(with_rewritten(moved, kernel))
    memory = ["shared" if j == nop else m for j, m in enumerate(moved.second.memory)]
    record = InfoRecord(4, 0x55, struct.pack("<2I", 1, 16 * nop))
    marked = replace(moved.rewritten, info=(*moved.rewritten.info, record))
    stored = Moved(
        moved.original, marked, moved.first, replace(moved.second, memory=memory), moved.steps
    )
    assert attribute_findings(stored) == []


def test_a_copy_of_an_instruction_with_a_relocation_is_found() -> None:
    moved = shifted(FILES[-1], "_Z5plainPfi")
    relocated = moved.original.relocations[0].offset // 16
    nop = next(j for i, j in moved.steps if i < 0)
    masked = list(moved.second.masked)
    masked[nop] = moved.first.masked[relocated]
    second = replace(moved.second, masked=masked)
    copied = Moved(moved.original, moved.rewritten, moved.first, second, moved.steps)
    assert {f.kind for f in attribute_findings(copied)} == {"relocation"}
