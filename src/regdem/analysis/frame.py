"""The stack frame as words: which of them only plain loads and stores at R1 + constant reach.

Problem: a word of the frame may live elsewhere (in shared memory) only if everything that reaches
it is known. ptxas keeps spills at fixed offsets of R1; arrays that are indexed at run time, and
anything handed to a device function by address, are reached through other registers.

Method: R1 must be set in the straight code at the entry, before any access, by unguarded
instructions that write nothing else; every other reader of R1 must be a LDL or STL of 32, 64 or
128 bits with R1 as its
only address. Then no pointer into the frame exists, and each word is private. Words that one access
reaches together form a group, to be moved as a whole.

Where R1 is read by anything else, or local memory is reached through another register, no word is
private: `Frame.reason` says what stands in the way. Not claimed: that a frame with an array in it
has no private words; they can't be told apart from the code alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.analysis.forms import forms_of
from regdem.analysis.webs import STACK_POINTER
from regdem.isa.decoded import RegisterFile, Role
from regdem.isa.fields import get_field
from regdem.program.program import Program

WORD_BYTES = 4
WORDS_OF_SIZE = {4: 1, 5: 2, 6: 4}
"""32-bit words by the memory size field, bits 73 to 75."""
_ADDRESS_BIT, _STORE_DATA_BIT, _LOAD_DATA_BIT = 24, 32, 16
_SETS_STACK_POINTER = frozenset({"LDC", "MOV", "IMAD", "IADD3", "VIADD", "IADD"})


@dataclass(frozen=True)
class FrameAccess:
    """One LDL or STL: its instruction, the frame offset of its first word, its data register."""

    instruction: int
    is_store: bool
    place_bytes: int
    words: int
    register: int


@dataclass(frozen=True)
class Frame:
    """All accesses, the instructions that set R1, and why nothing is private ("" if it is)."""

    accesses: tuple[FrameAccess, ...]
    definitions: tuple[int, ...]
    reason: str
    offset: int = -1
    """The instruction that `reason` is about, or -1."""

    def groups(self) -> list[tuple[int, ...]]:
        """Frame offsets of words that some access reaches together, each group ascending."""
        parent: dict[int, int] = {}

        def find(x: int) -> int:
            parent.setdefault(x, x)
            while parent[x] != x:
                parent[x] = parent[parent[x]]
                x = parent[x]
            return x

        for access in self.accesses:
            first = find(access.place_bytes)
            for k in range(1, access.words):
                other = find(access.place_bytes + WORD_BYTES * k)
                parent[max(first, other)] = first = min(first, other)
        members: dict[int, list[int]] = {}
        for place in sorted(parent):
            members.setdefault(find(place), []).append(place)
        return [tuple(each) for each in members.values()]


def frame_of(program: Program) -> Frame:
    """Finds the frame's accesses and whether they are all there is."""
    code = program.code
    forms = forms_of(code)
    reads: dict[int, list[int]] = {}
    writes: dict[int, list[int]] = {}
    for row, i in enumerate(code.operand_instruction.tolist()):
        if code.operand_file[row] != RegisterFile.GPR:
            continue
        first, width = int(code.operand_register[row]), int(code.operand_width[row])
        if not first <= STACK_POINTER < first + width:
            continue
        if code.operand_role[row] & Role.WRITE:
            writes.setdefault(i, []).append(row)
        if code.operand_role[row] & Role.READ:
            reads.setdefault(i, []).append(row)
    local = [i for i, form in enumerate(forms) if form.memory == "local"]
    definitions = tuple(sorted(writes))
    start = _straight_start(program)
    accesses: list[FrameAccess] = []
    for i in local:
        access = _access(program, i, forms[i].name)
        if access is None:
            return Frame((), definitions, "local memory is reached by a computed address", i)
        accesses.append(access)
    for i in sorted(reads):
        if i not in writes and forms[i].memory != "local":
            return Frame((), definitions, f"{forms[i].name} takes the stack's address", i)
    for i in definitions:
        alone = sum(bool(role & Role.WRITE) for role in _roles(program, i)) == 1
        if (
            int(program.block_of[i]) not in start
            or (local and i > local[0])
            or code.guard[i] != 7
            or not alone
            or forms[i].name not in _SETS_STACK_POINTER
        ):
            return Frame((), definitions, "the stack pointer moves", i)
    return Frame(tuple(accesses), definitions, "")


def _straight_start(program: Program) -> set[int]:
    """The blocks that run once and first, one behind the other."""
    found = {0}
    block = program.blocks[0]
    while not block.predecessors[1:] and len(block.successors) == 1:
        block = program.blocks[block.successors[0]]
        if len(block.predecessors) != 1 or block.index in found:
            break
        found.add(block.index)
    return found


def _roles(program: Program, i: int) -> list[int]:
    code = program.code
    return code.operand_role[int(code.operand_start[i]) : int(code.operand_start[i + 1])].tolist()


def _access(program: Program, i: int, name: str) -> FrameAccess | None:
    code = program.code
    lo, hi = (int(word) for word in code.words[i])
    words = WORDS_OF_SIZE.get(get_field(lo, hi, 73, 3))
    if name not in ("LDL", "STL") or words is None:
        return None
    data = _STORE_DATA_BIT if name == "STL" else _LOAD_DATA_BIT
    for row in range(int(code.operand_start[i]), int(code.operand_start[i + 1])):
        bit, register = int(code.operand_bit[row]), int(code.operand_register[row])
        file = int(code.operand_file[row])
        if file == RegisterFile.PRED and bit == 12:
            continue  # the guard
        if file != RegisterFile.GPR or bit not in (_ADDRESS_BIT, data):
            return None
        if bit == _ADDRESS_BIT and (register, int(code.operand_width[row])) != (STACK_POINTER, 1):
            return None
        if bit == data and register <= STACK_POINTER < register + int(code.operand_width[row]):
            return None
    if get_field(lo, hi, _ADDRESS_BIT, 8) != STACK_POINTER:
        return None
    value = get_field(lo, hi, 40, 24)
    place = value - ((value & 0x800000) << 1)
    if place % WORD_BYTES:
        return None
    return FrameAccess(i, name == "STL", place, words, get_field(lo, hi, data, 8))
