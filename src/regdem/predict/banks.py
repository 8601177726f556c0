"""Register bank conflicts: operands of one instruction that wait for the same bank.

The register file of a sub-partition has two banks, even and odd numbers; an instruction that reads
two registers of one bank takes the read stage for another cycle. The operand cache spares the read:
an operand whose reuse flag was set by the instruction before is not fetched. ptxas chooses numbers
to avoid conflicts where it has freedom, so code with fewer registers has more of them; on kernels
that are bound by issue it shows (`docs/design/predict.md`).
"""

from __future__ import annotations

from regdem.isa.decoded import RegisterFile, Role
from regdem.program.program import Program

_SLOT = {24: 0, 32: 1, 64: 2}


def conflicts(program: Program) -> list[int]:
    """Per instruction: reads beyond the first of the fuller bank."""
    code = program.code
    first: list[int] = code.operand_start.tolist()
    file: list[int] = code.operand_file.tolist()
    role: list[int] = code.operand_role.tolist()
    bit: list[int] = code.operand_bit.tolist()
    register: list[int] = code.operand_register.tolist()
    reuse: list[int] = code.reuse.tolist()
    found = [0] * len(code)
    held: dict[int, int] = {}
    starts = {block.start for block in program.blocks}
    for i in range(len(code)):
        if i in starts:
            held = {}
        fetched: set[int] = set()
        kept: dict[int, int] = {}
        for row in range(first[i], first[i + 1]):
            slot = _SLOT.get(bit[row])
            if slot is None or file[row] != RegisterFile.GPR or not role[row] & Role.READ:
                continue
            if held.get(slot) != register[row]:
                fetched.add(register[row])
            if reuse[i] >> slot & 1:
                kept[slot] = register[row]
        held = kept
        odd = sum(number & 1 for number in fetched)
        found[i] = max(0, max(odd, len(fetched) - odd) - 1)
    return found
