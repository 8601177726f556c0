"""Does the hardware take constant words as operands, as the disassembler does?

ptxas loads them into uniform registers first: of 3.4 million instructions of its sm_90 code none
names one. Here each use of such a uniform register is rewritten to name the word itself; on a GPU,
the results must stay the same, output by output.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from regdem.binary.cubin import Cubin
from regdem.binary.edit import KernelEdit
from regdem.check.operands import named_operand
from regdem.check.view import CodeView, view_of
from regdem.isa.control import get_control, set_control
from regdem.isa.sources import Source, with_source
from regdem.isa.table import table_for
from regdem.tune.launch import Gpu, Launch

FILE = Path(__file__).parent / "data" / "constants.cubin"
CUBIN = Cubin.parse(FILE.read_bytes(), "constants")
NAMES = {"IADD3", "IMAD", "LOP3", "ISETP", "SEL", "SHF", "FFMA", "DFMA", "LEA"}
"""Operations that have the form (IMAD with .WIDE; .HI and VIMNMX have none)."""
_ULDC = 0xAB9
_OUTPUTS = 16


def _loaded(view: CodeView) -> dict[int, dict[int, int]]:
    """Per instruction, which uniform register holds which word (bank << 16 | offset)."""
    found: dict[int, dict[int, int]] = {}
    held: dict[int, int] = {}
    for i in range(len(view)):
        if i in view.target:
            held = {}
        found[i] = dict(held)
        for place in view.writes[i]:
            held.pop(place - 256, None)
        low = view.low[i]
        if low & 0xFFF == _ULDC and view.guard[i] < 0:
            word = (low >> 54 & 0x1F) << 16 | low >> 38 & 0xFFFF
            held.update({place - 256: word + 4 * k for k, place in enumerate(view.writes[i])})
    return found


def with_constants(cubin: Cubin) -> tuple[Cubin, set[str]]:
    """The file with constants for uniform registers, and the operations that name one now."""
    kernel = cubin.kernel("constants")
    view = view_of(kernel.name, kernel.code, kernel.arch)
    words = list(zip(view.low, view.high, strict=True))
    names: set[str] = set()
    for i, held in _loaded(view).items():
        operand = named_operand(*words[i])
        if operand is None or operand.kind != "uniform" or operand.value not in held:
            continue
        place = Source("constant", held[operand.value])
        new = with_source(table_for("sm_90"), (operand.low, operand.high), operand.bit, place)
        if new is not None:
            old = replace(get_control(words[i][1]), reuse=0)
            words[i] = new[0], set_control(new[1], old)
            names.add(view.name[i])
    offsets = np.arange(len(words) + 1, dtype=np.int64) * 16
    edit = KernelEdit(
        code=b"".join(struct.pack("<QQ", *word) for word in words),
        offset_map=offsets,
        target_map=offsets,
        registers_per_thread=kernel.registers_per_thread,
    )
    return cubin.with_kernel(kernel.name, edit), names


def test_every_operation_is_covered() -> None:
    new, names = with_constants(CUBIN)
    assert names == NAMES
    view = view_of("", new.kernel("constants").code, "sm_90")
    found = [named_operand(lo, hi) for lo, hi in zip(view.low, view.high, strict=True)]
    assert sum(o is not None and o.kind == "bank" for o in found) >= len(NAMES)


def _run(gpu: Gpu, data: bytes, numbers: NDArray[np.int32], seed: int) -> NDArray[np.int32]:
    n = len(numbers)
    source, target = gpu.allocate(numbers.nbytes), gpu.allocate(4 * _OUTPUTS * n)
    gpu.upload(source, numbers)
    gpu.fill(target, 0xA5)
    function = gpu.load(data, "constants", 0)
    random = np.random.default_rng(seed)
    a, b = random.integers(-(1 << 20), 1 << 20, 2, dtype=np.int32)
    c = random.integers(0, 1 << 32, dtype=np.uint32)
    s = np.int32(random.integers(1, 31))
    f, g = random.standard_normal(2, dtype=np.float32)
    d, q = random.standard_normal(), random.integers(-(1 << 40), 1 << 40, dtype=np.int64)
    arguments = (source, target, a, b, c, s, f, g, np.float64(d), q, np.int32(n))
    gpu.launch(Launch(function, (n // 256, 1, 1), (256, 1, 1), 0, arguments))
    gpu.synchronise()
    return gpu.download(target).view(np.int32).reshape(n, _OUTPUTS)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(4))
def test_the_hardware_takes_constants_as_operands(seed: int) -> None:
    new, _ = with_constants(CUBIN)
    numbers = np.random.default_rng(seed).integers(-(1 << 21), 1 << 21, 1 << 18, dtype=np.int32)
    with Gpu() as gpu:
        expected = _run(gpu, CUBIN.to_bytes(), numbers, seed)
        found = _run(gpu, new.to_bytes(), numbers, seed)
    differ = (expected != found).any(axis=0).nonzero()[0]
    assert differ.tolist() == [], "outputs of constants.cu that differ"
