"""Whatever the bytes are, the only failures are typed errors, soon and without much memory."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regdem.binary import Cubin, KernelEdit
from regdem.errors import InputError, RegdemError

from .support import CUBINS, DATA

BASES = [path.read_bytes() for path in CUBINS]


def read_everything(data: bytes) -> None:
    """Parse, build all kernels, edit one: RegdemError is fine, anything else is a bug."""
    try:
        cubin = Cubin.parse(data, "x")
        for kernel in cubin.kernels:
            _ = kernel.demangled_name
            _ = kernel.line_at(0x40)
    except InputError:
        return
    for kernel in cubin.kernels[:2]:
        count = kernel.instruction_count
        places = np.append(np.arange(count) * 16 + 16, 16 * count + 16)
        labels = np.append(np.arange(count) * 16, 16 * count + 16)
        try:
            edit = KernelEdit(
                bytes(16) + kernel.code, places, labels, registers_per_thread=99, shared_bytes=512
            )
            cubin.with_kernel(kernel.name, edit)
        except RegdemError:
            pass


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"hello, this is text\n" * 40, "not an ELF"),
        (b"\x7fELF", "truncated"),
        (BASES[0][:63], "truncated"),
        (BASES[0][:1000], "truncated"),
        (BASES[0][:-1], "outside|truncated"),
        (b"\x7fELF\x01" + BASES[0][5:], "64-bit"),
    ],
)
def test_one_clear_sentence(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Cubin.parse(data, "some.cubin")
    assert caught.value.file == "some.cubin"
    assert "\n" not in str(caught.value)


def test_a_host_elf_is_named_as_such() -> None:
    data = bytearray(BASES[0])
    data[18:20] = struct.pack("<H", 62)
    with pytest.raises(InputError, match="machine 62"):
        Cubin.parse(bytes(data))


def test_an_unknown_architecture_is_refused() -> None:
    data = bytearray((DATA / "lines_sm_90.cubin").read_bytes())
    data[49] = 201
    with pytest.raises(InputError, match="unknown architecture"):
        Cubin.parse(bytes(data))


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_truncation_anywhere(path: Path) -> None:
    data = path.read_bytes()
    for size in range(0, len(data), max(len(data) // 60, 1)):
        with pytest.raises(InputError):
            Cubin.parse(data[:size])


def test_flipped_bits() -> None:
    """Random flips in the headers and tables of every flavour, for a few seconds."""
    rng = random.Random(7)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        data = bytearray(rng.choice(BASES))
        for _ in range(rng.choice((1, 1, 2, 8, 64))):
            place = rng.choice(
                (rng.randrange(64), rng.randrange(len(data)), len(data) - 1 - rng.randrange(3000))
            )
            data[place] ^= 1 << rng.randrange(8)
        read_everything(bytes(data))


@settings(max_examples=60, deadline=None)
@given(
    base=st.sampled_from(BASES),
    section=st.integers(0, 60),
    field=st.integers(0, 9),
    value=st.sampled_from([0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1, 16]),
)
def test_hostile_section_headers(base: bytes, section: int, field: int, value: int) -> None:
    data = bytearray(base)
    table = struct.unpack_from("<Q", data, 40)[0]
    start, width = [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8),
                    (56, 8)][field]  # fmt: skip
    place = table + 64 * section + start
    if place + width <= len(data):
        data[place : place + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
    read_everything(bytes(data))


@settings(max_examples=60, deadline=None)
@given(base=st.sampled_from(BASES), data=st.data())
def test_hostile_section_contents(base: bytes, data: st.DataObject) -> None:
    cubin = Cubin.parse(base)
    section = data.draw(st.sampled_from([s for s in cubin.image.sections if s.file_size]))
    at = section.offset + data.draw(st.integers(0, section.file_size - 1))
    new = data.draw(st.binary(min_size=1, max_size=24))
    read_everything(base[:at] + new + base[at + len(new) :])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_behind_the_magic(data: bytes) -> None:
    read_everything(b"\x7fELF\x02\x01\x01\x41\x08" + data)
