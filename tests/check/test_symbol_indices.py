"""Two files may count their symbols differently: what an index names must be the same."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from test_attributes import CASES, faults, shifted, with_rewritten, with_word

from regdem.binary import Cubin, InfoRecord, Kernel
from regdem.binary.info import EXTERNS, PARAM_CBANK
from regdem.binary.symbols import identify, symbol_words
from regdem.check import check_pair, portable
from regdem.check.attributes import attribute_findings

DATA = Path(__file__).resolve().parents[1] / "binary" / "data"


def recounted(kernel: Kernel, by: int = 1000) -> Kernel:
    """The kernel as a file would hold it that has so many more symbols in front."""

    def renamed(record: InfoRecord) -> InfoRecord:
        for at in range(symbol_words(record)):
            record = with_word(record, at, by)
        return record

    return replace(
        kernel,
        info=tuple(renamed(record) for record in kernel.info),
        symbols={index + by: symbol for index, symbol in kernel.symbols.items()},
        functions=tuple(replace(f, symbol_index=f.symbol_index + by) for f in kernel.functions),
        relocations=tuple(replace(r, symbol_index=r.symbol_index + by) for r in kernel.relocations),
        incoming_relocations=tuple(
            replace(r, symbol_index=r.symbol_index + by) for r in kernel.incoming_relocations
        ),
    )


def with_bank(kernel: Kernel, symbol: int, offset: int, size: int) -> Kernel:
    """The kernel with other words in PARAM_CBANK, each as a change of what stands there."""
    info = list(kernel.info)
    (k,) = [k for k, record in enumerate(info) if record.attribute == PARAM_CBANK]
    old = struct.unpack("<IHH", info[k].payload)
    new = (old[0] + symbol, old[1] + offset, old[2] + size)
    info[k] = replace(info[k], payload=struct.pack("<IHH", *new))
    return replace(kernel, info=tuple(info))


@pytest.mark.parametrize(("path", "name"), CASES)
def test_other_counts_of_the_same_symbols_are_the_same(path: Path, name: str) -> None:
    moved = shifted(path, name)
    other = recounted(moved.rewritten)
    assert other.info != moved.rewritten.info
    assert attribute_findings(with_rewritten(moved, other)) == []
    assert portable(recounted(moved.original)) == portable(moved.original)


@pytest.mark.parametrize(("path", "name"), CASES)
def test_faults_are_found_in_a_file_with_other_counts(path: Path, name: str) -> None:
    moved = shifted(path, name)
    for what, kernel in faults(recounted(moved.rewritten)):
        assert attribute_findings(with_rewritten(moved, kernel)), what


@pytest.mark.parametrize("by", [0, 1000])
@pytest.mark.parametrize("change", [(1, 0, 0), (0, 4, 0), (0, -4, 0), (0, 0, 4), (0, 0, -4)])
def test_another_parameter_bank_is_rejected(
    kernels: dict[str, Kernel], by: int, change: tuple[int, int, int]
) -> None:
    kernel = kernels["gather"]
    same = recounted(kernel, by)
    assert check_pair(kernel, same).findings == ()
    other = with_bank(same, *change)
    assert portable(other) != portable(kernel)
    verdict = check_pair(kernel, other)
    assert [finding.kind for finding in verdict.findings] == ["attribute"]
    assert "PARAM_CBANK" in verdict.findings[0].message
    assert verdict.checks["layout"] == "failed"


@pytest.mark.parametrize(
    "change", [{"name": "x"}, {"section": ".nv.constant0.x"}, {"turn": 1}, {"place": 8}]
)
def test_an_index_of_another_symbol_is_rejected(
    kernels: dict[str, Kernel], change: dict[str, str | int]
) -> None:
    kernel = kernels["gather"]
    (index,) = kernel.symbols
    symbol = replace(kernel.symbols[index], **change)  # pyright: ignore[reportArgumentType]
    other = replace(kernel, symbols={index: symbol})
    assert {f.kind for f in check_pair(kernel, other).findings} == {"attribute"}


def test_files_with_and_without_lines_name_the_same_symbols() -> None:
    """`lines` was compiled with -lineinfo by another compiler than `cuda12`: other indices."""
    one, other = (
        Cubin.parse((DATA / f"{name}_sm_90.cubin").read_bytes()).kernel("_Z6printsi")
        for name in ("cuda12", "lines")
    )
    assert one.symbols.keys() != other.symbols.keys()
    named = [{s.name for s in kernel.symbols.values()} for kernel in (one, other)]
    assert named[0] == named[1] == {"vprintf", ".nv.constant0._Z6printsi"}
    assert {r.attribute for r in one.info if symbol_words(r)} == {PARAM_CBANK, EXTERNS}


@pytest.mark.parametrize("path", sorted(DATA.glob("*_sm_90.cubin")), ids=lambda p: p.stem)
def test_no_two_symbols_of_a_file_are_the_same(path: Path) -> None:
    image = Cubin.parse(path.read_bytes()).image
    count = len(image.symbols)
    found = [identify(image, index) for index in range(count)]
    assert None not in found
    assert len(set(found)) == count
    assert identify(image, count) is None
    assert identify(image, -1) is None
