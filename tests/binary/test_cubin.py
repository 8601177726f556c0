"""Reading: what the file says about its kernels, and bytes that stay the same."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from regdem.binary import Cubin
from regdem.binary.demangle import demangle, qualified_name
from regdem.errors import UsageError

from .support import CUBINS, DATA

NAMES = {"_Z5plainPfi", "_Z6sharedPfi", "_Z12dynamic_callPfi", "_Z5tablePii", "_Z6printsi"}


def load(name: str) -> Cubin:
    return Cubin.parse((DATA / name).read_bytes(), name)


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_every_flavour_is_read_and_written_back(path: Path) -> None:
    cubin = Cubin.parse(path.read_bytes(), path.name)
    assert cubin.to_bytes() == path.read_bytes()
    assert cubin.arch == path.stem[path.stem.index("sm_") :]
    assert cubin.is_relocatable == path.stem.startswith("relocatable")
    assert {kernel.name for kernel in cubin.kernels} == NAMES == set(cubin.kernel_names)
    for kernel in cubin.kernels:
        assert 0 < kernel.registers_per_thread <= 255
        assert len(kernel.code) % 128 == 0
        assert kernel.functions[0].is_kernel
        assert kernel.functions[0].offset == 0


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_shared_memory_is_counted_without_the_reserve(path: Path) -> None:
    cubin = Cubin.parse(path.read_bytes())
    kernel = cubin.kernel("_Z6sharedPfi")
    assert kernel.static_shared_bytes == 1024
    linked_reserve = cubin.sm >= 90 and not cubin.is_relocatable
    assert kernel.reserved_shared_bytes == (1024 if linked_reserve else 0)
    assert kernel.shared_section_bytes == 1024 + kernel.reserved_shared_bytes
    assert kernel.max_block == (256, 1, 1)
    assert kernel.max_threads == 256
    assert kernel.required_block is None
    assert kernel.barriers == 1
    assert cubin.kernel("_Z5plainPfi").barriers == 0


def test_device_functions_are_listed() -> None:
    kernel = load("lines_sm_90.cubin").kernel("_Z12dynamic_callPfi")
    assert len(kernel.functions) == 2
    slow = kernel.functions[1]
    assert "slow" in slow.name
    assert not slow.is_kernel
    assert slow.offset + slow.size <= len(kernel.code)
    assert kernel.local_bytes > 0


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_jump_tables_are_found_in_the_constant_bank(path: Path) -> None:
    kernel = Cubin.parse(path.read_bytes()).kernel("_Z5tablePii")
    assert kernel.branch_tables
    for table in kernel.branch_tables:
        assert table.table_offset is not None
        assert all(0 <= t < len(kernel.code) and t % 16 == 0 for t in table.targets)
        start = table.table_offset
        words = kernel.constant2[start : start + 4 * len(table.targets)]
        assert words == b"".join(t.to_bytes(4, "little") for t in table.targets)


def test_dynamic_shared_memory_is_seen_in_relocatable_code() -> None:
    cubin = load("relocatable_sm_90.cubin")
    assert cubin.kernel("_Z12dynamic_callPfi").uses_dynamic_shared is True
    assert cubin.kernel("_Z6sharedPfi").uses_dynamic_shared is False
    assert load("lines_sm_90.cubin").kernel("_Z12dynamic_callPfi").uses_dynamic_shared is None


def test_relocations_name_places_in_the_code() -> None:
    kernel = load("relocatable_sm_90.cubin").kernel("_Z6printsi")
    assert kernel.relocations
    own = [r for r in kernel.relocations if r.symbol == kernel.name]
    assert own
    assert all(r.target_offset == r.addend for r in own)
    assert any(r.symbol == "vprintf" and r.target_offset is None for r in kernel.relocations)


def test_source_lines() -> None:
    cubin = load("lines_sm_90.cubin")
    kernel = cubin.kernel("_Z6sharedPfi")
    place = kernel.line_at(0x10)
    assert place is not None
    assert place[0].endswith("mixed.cu")
    text = (DATA / "mixed.cu").read_text().splitlines()
    assert "shared" in text[place[1] - 1] or "threadIdx" in text[place[1] - 1]
    assert kernel.has_sass_lines
    assert load("linked_sm_75.cubin").kernels[0].line_at(0) is None
    assert not load("linked_sm_75.cubin").kernels[0].has_sass_lines


def test_kernels_are_values() -> None:
    kernel = load("lines_sm_90.cubin").kernels[0]
    again = pickle.loads(pickle.dumps(kernel))
    assert again == kernel


def test_an_unknown_kernel_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no kernel named 'nothing'"):
        load("linked_sm_75.cubin").kernel("nothing")


def test_names_are_demangled() -> None:
    kernel = load("linked_sm_75.cubin").kernel("_Z12dynamic_callPfi")
    assert kernel.demangled_name.startswith("dynamic_call")
    assert demangle("main") == "main"
    assert demangle("_Zbroken!") == "_Zbroken!"


@pytest.mark.parametrize(
    ("mangled", "expected"),
    [
        ("_Z5plainPfi", "plain"),
        ("_ZN3foo3barEi", "foo::bar"),
        ("_ZN12_GLOBAL__N_13barEi", "(anonymous namespace)::bar"),
        ("_ZN99999x", "_ZN99999x"),
        ("_Z", "_Z"),
    ],
)
def test_the_fallback_reads_qualified_names(mangled: str, expected: str) -> None:
    assert qualified_name(mangled) == expected


def doubling_name(levels: int) -> str:
    """A name whose readable form doubles with every level."""
    digits = ["", *"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    return "_Z1fSt4pairIiiE" + "".join(f"S_I{2 * f'S{digits[i]}_'}E" for i in range(levels))


def test_a_name_that_expands_without_bound_costs_little() -> None:
    started = time.monotonic()
    assert demangle(doubling_name(3)).startswith("f(")
    assert len(demangle(doubling_name(20))) <= 1 << 16
    assert demangle(doubling_name(34)) == "f"
    assert time.monotonic() - started < 8
