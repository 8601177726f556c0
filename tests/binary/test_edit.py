"""Edits: the identity, inserted code that everything follows, added sections, refusals."""

from __future__ import annotations

import random
import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regdem.binary import Annotation, Cubin, Kernel, KernelEdit, elf, info
from regdem.binary.layout import rebuild
from regdem.errors import UnsupportedError, UsageError

from .support import CUBINS, DATA, insert, tool


def identity(kernel: Kernel) -> KernelEdit:
    return KernelEdit(kernel.code, np.arange(kernel.instruction_count + 1) * 16)


def inserted(
    cubin: Cubin, seed: int, probability: float = 0.15
) -> tuple[Cubin, dict[str, list[int]]]:
    """Every kernel with code inserted; the offset maps by kernel."""
    rng, maps = random.Random(seed), dict[str, list[int]]()
    for kernel in cubin.kernels:
        code, offsets, targets = insert(kernel, rng, probability)
        edit = KernelEdit(
            code,
            offsets,
            targets,
            registers_per_thread=kernel.registers_per_thread + 7,
            shared_bytes=kernel.static_shared_bytes + 4096,
        )
        cubin = cubin.with_kernel(kernel.name, edit)
        maps[kernel.name] = offsets.tolist()
    return cubin, maps


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_the_identity_edit_changes_no_byte(path: Path) -> None:
    cubin = Cubin.parse(path.read_bytes())
    for kernel in cubin.kernels:
        assert cubin.with_kernel(kernel.name, identity(kernel)).to_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_everything_follows_inserted_code(path: Path) -> None:
    before = Cubin.parse(path.read_bytes())
    edited, maps = inserted(before, seed=3)
    after = Cubin.parse(edited.to_bytes())
    assert [k.name for k in after.kernels] == [k.name for k in before.kernels]
    for old, new in zip(before.kernels, after.kernels, strict=True):
        offsets = maps[old.name]
        assert new.symbol_index == old.symbol_index
        assert new.registers_per_thread == old.registers_per_thread + 7
        assert new.static_shared_bytes == old.static_shared_bytes + 4096
        assert new.local_bytes == old.local_bytes
        assert len(new.info) == len(old.info)
        assert [len(r.payload) for r in new.info] == [len(r.payload) for r in old.info]
        for was, now in zip(old.info, new.info, strict=True):
            if was.attribute in info.OFFSET_LISTS:
                assert list(now.words) == [offsets[w // 16] for w in was.words]
        for f, g in zip(old.functions, new.functions, strict=True):
            assert f.name == g.name
            assert g.size >= f.size
        for was, now in zip(old.branch_tables, new.branch_tables, strict=True):
            assert now.offset == offsets[was.offset // 16]
            assert now.table_offset == was.table_offset
        for was, now in zip(old.relocations, new.relocations, strict=True):
            assert now.offset == offsets[was.offset // 16] + was.offset % 16
        assert old.code[:16] in new.code


def test_lines_follow_inserted_code() -> None:
    before = Cubin.parse((DATA / "lines_sm_90.cubin").read_bytes())
    after, maps = inserted(before, seed=5, probability=0.6)
    for old, new in zip(before.kernels, after.kernels, strict=True):
        assert len(old.lines) == len(new.lines) > 0
        for offset, place in enumerate(maps[old.name][:-1]):
            assert old.line_at(16 * offset) == new.line_at(place)


def test_long_insertions_need_other_line_opcodes() -> None:
    before = Cubin.parse((DATA / "lines_sm_90.cubin").read_bytes())
    after, maps = inserted(before, seed=6, probability=0.98)
    for old, new in zip(before.kernels, after.kernels, strict=True):
        for offset, place in enumerate(maps[old.name][:-1]):
            assert old.line_at(16 * offset) == new.line_at(place)


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_sections_keep_their_alignment_and_segments_their_sections(path: Path) -> None:
    after, _ = inserted(Cubin.parse(path.read_bytes()), seed=4)
    image = after.image
    assert image.header.section_count == len(image.sections)
    for section in image.sections[1:]:
        if section.file_size:
            assert section.offset % max(section.alignment, 1) == 0, section.name
    loads = [s for s in image.segments if s.type == elf.PT_LOAD]
    for section in image.sections:
        if (
            loads
            and section.flags & elf.SHF_ALLOC
            and section.file_size
            and section.flags < 1 << 28
        ):
            assert any(
                s.offset <= section.offset
                and section.offset + section.size <= s.offset + s.file_size
                for s in loads
            ), section.name


def without_shared(cubin: Cubin) -> tuple[Cubin, str]:
    """The cubin with one kernel's shared section renamed away, as if it had none."""
    name = "_Z5plainPfi"
    data = cubin.to_bytes().replace(
        f".nv.shared.{name}\0".encode(), f".nv.shareX.{name}\0".encode()
    )
    return Cubin.parse(data), name


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_a_shared_section_is_added(path: Path) -> None:
    cubin, name = without_shared(Cubin.parse(path.read_bytes()))
    old = cubin.kernel(name)
    assert old.shared_section_bytes == 0
    edited = cubin.with_kernel(name, replace(identity(old), shared_bytes=2048))
    after = Cubin.parse(edited.to_bytes())
    new = after.kernel(name)
    assert new.static_shared_bytes == 2048
    assert new.code == old.code
    section = after.shared_section(name)
    assert section is not None
    assert (
        section.info
        == new.section_index
        == old.section_index + (section.index <= old.section_index)
    )
    assert section.flags == 0x43
    names = [s.name for s in after.image.sections if s.index != section.index]
    assert names == [s.name for s in cubin.image.sections]
    for was, now in zip(cubin.kernels, after.kernels, strict=True):
        assert was.code == now.code
        assert was.info == now.info
        assert was.functions == now.functions
    grown = [s for s in after.image.segments if s.type == 1 and s.flags & elf.PF_W]
    was_grown = [s for s in cubin.image.segments if s.type == 1 and s.flags & elf.PF_W]
    if grown:
        assert grown[-1].memory_size - was_grown[-1].memory_size == section.size


def declaring(cubin: Cubin, kernel: Kernel, *records: tuple[int, tuple[int, int, int]]) -> Cubin:
    """The cubin with these block sizes declared for the kernel, and no others."""
    section = cubin.info_section(kernel.name)
    assert section is not None
    kept = [r for r in kernel.info if r.attribute not in (info.MAX_THREADS, info.REQNTID)]
    added = [info.InfoRecord(4, kind, struct.pack("<3I", *shape)) for kind, shape in records]
    content = {section.index: info.pack_info([*added, *kept])}
    return Cubin.parse(rebuild(cubin.image, content, {}, {}, None))


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
@pytest.mark.parametrize(
    ("declared", "wanted", "most"),
    [
        ([], 96, 96),
        ([(info.MAX_THREADS, (1024, 1, 1))], 256, 256),
        ([(info.MAX_THREADS, (16, 16, 2))], 256, 256),
        ([(info.MAX_THREADS, (128, 1, 1))], 256, 128),
        ([(info.MAX_THREADS, (16, 16, 1))], 256, 256),
        ([(info.REQNTID, (8, 8, 1)), (info.MAX_THREADS, (1024, 1, 1))], 256, 1024),
    ],
)
def test_the_largest_block_is_only_ever_lowered(
    path: Path, declared: list[tuple[int, tuple[int, int, int]]], wanted: int, most: int
) -> None:
    cubin = Cubin.parse(path.read_bytes())
    name = cubin.kernels[0].name
    cubin = declaring(cubin, cubin.kernel(name), *declared)
    before = cubin.kernel(name)
    edited = cubin.with_kernel(name, replace(identity(before), max_threads=wanted))
    after = Cubin.parse(edited.to_bytes()).kernel(name)
    assert after.max_threads == most
    assert after.required_block == before.required_block
    limit = (info.MAX_THREADS,)
    others = [[r for r in k.info if r.attribute not in limit] for k in (before, after)]
    assert others[0] == others[1]
    if before.max_threads == most:
        assert edited.to_bytes() == cubin.to_bytes()
    assert edited.with_kernel(name, identity(after)).to_bytes() == edited.to_bytes()


def test_a_block_of_no_or_too_many_threads_is_refused() -> None:
    cubin = Cubin.parse(CUBINS[0].read_bytes())
    kernel = cubin.kernels[0]
    for threads in (0, 1025):
        with pytest.raises(UsageError):
            cubin.with_kernel(kernel.name, replace(identity(kernel), max_threads=threads))


@pytest.mark.tools
def test_the_vendors_tools_read_the_largest_block(tmp_path: Path) -> None:
    cubin = Cubin.parse((DATA / "lines_sm_90.cubin").read_bytes())
    kernel = cubin.kernel("_Z6printsi")
    edit = replace(identity(kernel), max_threads=96)
    out = tmp_path / "out.cubin"
    out.write_bytes(cubin.with_kernel(kernel.name, edit).to_bytes())
    found = tool("cuobjdump")
    assert found is not None
    dump = subprocess.run([found, "-elf", str(out)], capture_output=True, text=True, check=False)
    section = dump.stdout.split(f".nv.info.{kernel.name}\n")[-1]
    limit = section.partition("EIATTR_MAX_THREADS")[2]
    assert re.search(r"Value:\s*0x60 0x1 0x1", limit[:200])


def test_registers_in_records_are_renamed_and_annotations_added() -> None:
    cubin = Cubin.parse((DATA / "lines_sm_90.cubin").read_bytes())
    kernel = cubin.kernel("_Z6printsi")
    record = next(r for r in kernel.info if r.attribute == info.COOP_GROUP_MASK_REGIDS)
    register = record.words[0] & 0xFF
    edit = replace(
        identity(kernel),
        register_map={register: 77},
        new_annotations=(Annotation(1, 0x20), Annotation(1, 0x10)),
    )
    after = cubin.with_kernel(kernel.name, edit).kernel(kernel.name)
    moved = next(r for r in after.info if r.attribute == info.COOP_GROUP_MASK_REGIDS)
    assert moved.words[0] == (record.words[0] & ~0xFF) | 77
    assert after.annotations == (Annotation(1, 0x10), Annotation(1, 0x20))


def test_annotations_of_removed_instructions_go() -> None:
    cubin = Cubin.parse((DATA / "lines_sm_90.cubin").read_bytes())
    name = "_Z6printsi"
    kernel = cubin.kernel(name)
    marks = (Annotation(1, 0x10), Annotation(1, 0x20))
    edit = replace(identity(kernel), new_annotations=marks)
    cubin = cubin.with_kernel(name, edit)
    removed = np.zeros(kernel.instruction_count, bool)
    removed[1] = True
    edit = replace(identity(kernel), removed=removed)
    assert cubin.with_kernel(name, edit).kernel(name).annotations == marks[1:]
    exits = next(r for r in kernel.info if r.attribute == info.EXIT_INSTR_OFFSETS)
    removed[exits.words[0] // 16] = True
    with pytest.raises(UnsupportedError, match="EXIT_INSTR_OFFSETS was removed"):
        cubin.with_kernel(name, replace(identity(kernel), removed=removed))


def test_before_sm_90_the_section_header_has_the_register_count() -> None:
    cubin = Cubin.parse((DATA / "linked_sm_75.cubin").read_bytes())
    kernel = cubin.kernel("_Z5plainPfi")
    edit = replace(identity(kernel), registers_per_thread=41)
    after = cubin.with_kernel(kernel.name, edit)
    assert after.image.sections[kernel.section_index].info >> 24 == 41
    assert after.kernel(kernel.name).registers_per_thread == 41
    low = after.image.sections[kernel.section_index].info & 0xFFFFFF
    assert low == cubin.image.sections[kernel.section_index].info & 0xFFFFFF


def with_attribute(cubin: Cubin, kernel: Kernel, attribute: int) -> Cubin:
    """Turn the kernel's SW_WAR record into another attribute."""
    section = cubin.info_section(kernel.name)
    assert section is not None
    data = bytearray(cubin.to_bytes())
    content = cubin.image.content(section)
    data[section.offset + content.index(bytes((4, 0x36, 4, 0))) + 1] = attribute
    return Cubin.parse(bytes(data))


def test_an_unknown_attribute_refuses_the_kernel_by_name() -> None:
    cubin = Cubin.parse((DATA / "lines_sm_90.cubin").read_bytes())
    kernel = cubin.kernel("_Z5plainPfi")
    odd = with_attribute(cubin, kernel, 0xE7)
    assert odd.kernel(kernel.name).info[-1].name == "0xe7"
    with pytest.raises(UnsupportedError, match="attribute 0xe7") as caught:
        odd.with_kernel(kernel.name, identity(kernel))
    assert caught.value.kernel == kernel.name
    odd = with_attribute(cubin, kernel, 0x40)
    with pytest.raises(UnsupportedError, match="INSTR_REG_MAP"):
        odd.with_kernel(kernel.name, identity(kernel))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"code": b"12345"}, "whole number"),
        ({"offset_map": np.zeros(3, np.int64)}, "offset_map needs an entry"),
        ({"target_map": np.full(3, 1)}, "target_map needs"),
        ({"registers_per_thread": 256}, "256 registers"),
        ({"shared_bytes": -1}, "negative"),
    ],
)
def test_impossible_edits_are_usage_errors(change: dict[str, object], message: str) -> None:
    cubin = Cubin.parse((DATA / "linked_sm_75.cubin").read_bytes())
    kernel = cubin.kernel("_Z5plainPfi")
    with pytest.raises(UsageError, match=message):
        cubin.with_kernel(kernel.name, replace(identity(kernel), **change))  # type: ignore[arg-type]


def listing(path: Path, *options: str) -> list[str]:
    """nvdisasm's text without addresses; labels as the number of the line they stand before."""
    disassembler = tool("nvdisasm")
    assert disassembler is not None
    run = subprocess.run(
        [disassembler, "-c", *options, str(path)], capture_output=True, text=True, check=True
    )
    labels, lines = dict[str, int](), list[str]()
    for line in run.stdout.splitlines():
        line = " ".join(re.sub(r"/\*[0-9a-f]{4,}\*/", "", line).split())
        label = re.fullmatch(r"(\.L_x_\d+):", line)
        if label:
            labels[label[1]] = len(lines)
        elif (
            line
            and "0xdead" not in line
            and not re.match(
                r"\.(size|byte|short|word|dword|weak|align|zero|elftype|section|nv\.shared)", line
            )
        ):
            if "MOV" in line or "LEPC" in line:
                line = re.sub(r"0x[0-9a-f]+", "H", line)
            lines.append(re.sub(r"(BRX|CALL\.REL\S*|RET\.REL\S*) (R\d+) -?0x\w+", r"\1 \2", line))
    return [re.sub(r"\.L_x_\d+", lambda m: f"@{labels.get(m[0])}", line) for line in lines]


@pytest.mark.tools
@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_the_vendor_reads_the_same_program(path: Path, tmp_path: Path) -> None:
    edited, _ = inserted(Cubin.parse(path.read_bytes()), seed=8)
    out = tmp_path / "edited.cubin"
    out.write_bytes(edited.to_bytes())
    options = ("-g",) if "lines" in path.name else ()
    assert listing(out, *options) == listing(path, *options)
    dumper = tool("cuobjdump")
    assert dumper is not None
    for option in ("-elf", "-res-usage"):
        dump = subprocess.run([dumper, option, str(out)], capture_output=True, text=True)
        assert dump.returncode == 0, dump.stderr
        assert not dump.stderr
    text = subprocess.run([dumper, "-elf", str(out)], capture_output=True, text=True).stdout
    for kernel in edited.kernels:
        pattern = (
            rf"function: {kernel.name}\(\S+\)\s+register count: {kernel.registers_per_thread}\b"
        )
        assert re.search(pattern, text)


@pytest.mark.tools
@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_the_vendor_reads_an_added_section(path: Path, tmp_path: Path) -> None:
    cubin, name = without_shared(Cubin.parse(path.read_bytes()))
    kernel = cubin.kernel(name)
    edit = replace(identity(kernel), shared_bytes=2048)
    out, plain = tmp_path / "edited.cubin", tmp_path / "plain.cubin"
    out.write_bytes(cubin.with_kernel(name, edit).to_bytes())
    plain.write_bytes(cubin.to_bytes())
    assert listing(out) == listing(plain)
