"""Register bank conflicts: operands of one instruction that wait for the same bank.

The register file of a sub-partition has two banks, even and odd numbers; an instruction that reads
two registers of one bank takes the read stage for another cycle. The operand cache spares the read:
an operand whose reuse flag was set before is not fetched. ptxas chooses numbers to avoid conflicts
where it has freedom, so code with fewer registers has more of them; on kernels that are bound by
issue it shows (`docs/design/predict.md`).

How long the cache holds an operand is not documented, and two views are in use. ptxas sets flags
over up to seven instructions, which is what `lasting` takes them for; the constants of the
predictor are fitted with a cache that holds an operand for the next instruction only. In three
kernels of four the counts differ.

Not claimed: which view is right, nor anything of 64-bit and wider operands beyond their first
register.
"""

from __future__ import annotations

from regdem.isa.decoded import RegisterFile, Role
from regdem.program.program import Program

CACHE_SLOT = {24: 0, 32: 1, 64: 2}
"""By bit of an operand's register field: the slot of the operand cache, and its reuse flag."""


def bank_conflicts(program: Program, *, lasting: bool) -> list[int]:
    """Per instruction: reads beyond the first of the fuller bank.

    `lasting`: an operand stays in the cache until its slot is named again, in order of address;
    otherwise it is there for the next instruction of its block only.
    """
    code = program.code
    first: list[int] = code.operand_start.tolist()
    file: list[int] = code.operand_file.tolist()
    role: list[int] = code.operand_role.tolist()
    bit: list[int] = code.operand_bit.tolist()
    register: list[int] = code.operand_register.tolist()
    reuse: list[int] = code.reuse.tolist()
    found = [0] * len(code)
    held: dict[int, int] = {}
    starts: set[int] = set() if lasting else {block.start for block in program.blocks}
    for i in range(len(code)):
        if i in starts:
            held = {}
        fetched: set[int] = set()
        kept = dict(held) if lasting else {}
        for row in range(first[i], first[i + 1]):
            slot = CACHE_SLOT.get(bit[row])
            if slot is None or file[row] != RegisterFile.GPR or not role[row] & Role.READ:
                continue
            if held.get(slot) != register[row]:
                fetched.add(register[row])
            if reuse[i] >> slot & 1:
                kept[slot] = register[row]
            else:
                kept.pop(slot, None)
        held = kept
        odd = sum(number & 1 for number in fetched)
        found[i] = max(0, max(odd, len(fetched) - odd) - 1)
    return found


__all__ = ["CACHE_SLOT", "bank_conflicts"]
