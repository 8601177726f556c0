"""The folder of a study: one `.cubin`, `.sass` and `.log` per build, `study.json`, `report.html`.

The folder appears whole or not at all: everything is written beside it under another name, which
then takes its place. A folder that holds anything but an earlier study is never touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regdem.analysis.forms import forms_of
from regdem.errors import InputError, UsageError
from regdem.integrations.sass import sass_text
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.study.model import Analysed, Study

DOCUMENT = "study.json"
PAGE = "report.html"
_SUFFIXES = frozenset({".cubin", ".sass", ".log"})


def check_folder(folder: Path) -> None:
    """Raises UsageError unless the folder is new, empty, or an earlier study's and nothing else."""
    if not folder.exists():
        nearest = next(parent for parent in folder.absolute().parents if parent.exists())
        if not nearest.is_dir():
            raise InputError("can't be written: its parent is no folder", file=str(folder))
        return
    if not folder.is_dir():
        raise UsageError("is no folder", file=str(folder), hint="give another --out")
    entries = sorted(os.listdir(folder))
    if not entries:
        return
    foreign = [
        entry
        for entry in entries
        if entry not in (DOCUMENT, PAGE) and Path(entry).suffix not in _SUFFIXES
    ]
    if DOCUMENT not in entries or foreign:
        named = foreign[0] if foreign else f"no {DOCUMENT}"
        raise UsageError(
            f"is not empty and no earlier study ({named})",
            file=str(folder),
            hint="give another --out",
        )


def texts_of(study: Study, workers: int) -> dict[str, Mapping[int, str]]:
    """Per build the text of its instructions by offset; empty where nvdisasm isn't found."""
    cubins = [build.analysed.compiled.cubin or b"" for build in study.builds]
    with ThreadPoolExecutor(max(1, workers)) as pool:
        return {
            build.name: texts.get(study.kernel, {})
            for build, texts in zip(study.builds, pool.map(sass_text, cubins), strict=True)
        }


def listing(one: Analysed, texts: Mapping[int, str]) -> str:
    """The kernel's code: offset, text (the mnemonic without nvdisasm), live registers, loop depth
    and source line.
    """
    program = one.program
    forms = forms_of(program.code)
    anatomy = one.anatomy
    blocks: list[int] = program.block_of.tolist()
    curve = one.code.pressure.curve
    spilled = {site.instruction: site for site in one.code.spills.spills.spill_sites}
    lines = [
        f"// {one.kernel.name}: {one.kernel.arch}, {one.kernel.registers_per_thread} registers per "
        f"thread, {len(program)} instructions",
    ]
    if not texts:
        lines.append("// nvdisasm was not found: mnemonics and words only")
    for i, form in enumerate(forms):
        offset = INSTRUCTION_BYTES * i
        lo, hi = program.code.word(i)
        text = texts.get(offset) or f"{form.name:<12} /* 0x{hi:016x}{lo:016x} */"
        region = anatomy.region(anatomy.region_of[blocks[i]])
        found = one.kernel.line_at(offset)
        remarks = [f"live {curve[i]}"]
        if program.target[i] >= 0:
            remarks.append(f"to 0x{INSTRUCTION_BYTES * int(program.target[i]):04x}")
        if region.depth:
            remarks.append(f"loop {region.depth}")
        if i in spilled:
            remarks.append(f"spill to {spilled[i].space}")
        if found is not None:
            remarks.append(f"{found[0].rsplit('/', 1)[-1]}:{found[1]}")
        lines.append(f"/*{offset:04x}*/  {text:<64} // {', '.join(remarks)}")
    return "\n".join(lines) + "\n"


def write_folder(
    folder: Path,
    study: Study,
    document: str,
    page: str,
    texts: Mapping[str, Mapping[int, str]],
) -> None:
    """Writes the folder whole. Raises InputError if it can't be written, UsageError if it holds
    something else by now.
    """
    check_folder(folder)
    target = folder.absolute()
    fresh = target.with_name(f".{target.name}.{os.getpid()}.part")
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    try:
        fresh.mkdir(parents=True)
        for build in study.builds:
            one = build.analysed
            assert one.compiled.cubin is not None
            fresh.joinpath(f"{build.name}.cubin").write_bytes(one.compiled.cubin)
            fresh.joinpath(f"{build.name}.log").write_text(one.compiled.log)
            text = listing(one, texts.get(build.name, {}))
            fresh.joinpath(f"{build.name}.sass").write_text(text)
        for entry in study.refused:
            fresh.joinpath(f"{entry.spec.name}.log").write_text(entry.compiled.log)
        fresh.joinpath(DOCUMENT).write_text(document)
        fresh.joinpath(PAGE).write_text(page)
        if target.exists():
            os.replace(target, old)
        os.replace(fresh, target)
    except OSError as error:
        if old.exists() and not target.exists():
            os.replace(old, target)
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(f"can't be written: {reason}", file=str(folder)) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
