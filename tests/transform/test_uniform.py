"""Values that all threads share, in uniform registers: which they are, and what demotion does."""

from __future__ import annotations

from pathlib import Path

import pytest

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import webs
from regdem.binary.cubin import Cubin
from regdem.check import check_pair
from regdem.isa.decode import decode
from regdem.transform.demote import demote
from regdem.transform.demoted import DemoteOptions, Rewrite, program_of
from regdem.transform.uniform import free_uniform_registers, launch_values, uniform_webs

FILE = Path(__file__).parent / "data" / "uniform.cubin"
CUBIN = Cubin.parse(FILE.read_bytes(), "uniform")
TARGETS = [("shared_terms", 39), ("shared_terms_call", 49), ("shared_terms_call", 43)]


def _loads(code: bytes) -> int:
    decoded = decode(code, "sm_90")
    return [decoded.table.forms[form].name for form in decoded.form_indices].count("ULDC")


def proved(name: str, registers: int, *, uniform: bool = True) -> Rewrite:
    kernel = CUBIN.kernel(name)
    done = demote(kernel, DemoteOptions(registers, 128, 40, uniform=uniform))
    new = Cubin.parse(CUBIN.with_kernel(name, done.edit).to_bytes(), "new").kernel(name)
    assert check_pair(kernel, new, threads=128).findings == ()
    assert new.registers_per_thread <= registers
    code = decode(new.code, new.arch)
    names = [code.table.forms[form].name for form in code.form_indices]
    moved = names.count("R2UR") + names.count("ULDC") - _loads(kernel.code)
    assert moved == sum(d.stores for d in done.uniform)
    return done


@pytest.mark.parametrize(("name", "registers"), TARGETS)
def test_shared_values_need_no_slots(name: str, registers: int) -> None:
    with_them = proved(name, registers)
    without = proved(name, registers, uniform=False)
    assert with_them.uniform
    assert not without.uniform
    assert with_them.slots < without.slots
    assert all(d.slot < 0 and d.stores == 1 for d in with_them.uniform)


def test_without_slots_no_shared_memory_is_taken() -> None:
    done = proved("shared_terms_call", 49)
    assert done.slots == 0
    assert done.shared_bytes == CUBIN.kernel("shared_terms_call").static_shared_bytes


@pytest.mark.parametrize("name", ["shared_terms", "shared_terms_call"])
def test_what_depends_on_the_thread_is_not_shared(name: str) -> None:
    program = program_of(CUBIN.kernel(name))
    code = program.code
    names = [code.table.forms[form].name for form in code.form_indices]
    shared = launch_values(program)
    assert {"FFMA", "LDC"} <= {names[i] for i in shared}
    assert not {"LDG", "MUFU", "FSETP"} & {names[i] for i in shared}
    for i in shared:
        assert names[i] != "S2R" or int(code.words[i, 1]) >> 8 & 0xFF in (0x25, 0x26, 0x27)
    found = webs(program, liveness(program))
    for index in uniform_webs(program, found):
        web = found.webs[index]
        assert [web.register in shared[i] for i in web.writes] == [True]


def test_free_registers_are_those_that_nobody_names() -> None:
    program = program_of(CUBIN.kernel("shared_terms"))
    code = program.code
    rows = code.operand_file == 1
    used = {
        register + k
        for register, width in zip(
            code.operand_register[rows].tolist(), code.operand_width[rows].tolist(), strict=True
        )
        for k in range(width)
    }
    assert used
    assert set(free_uniform_registers(program)) == set(range(63)) - used
