"""Return addresses: which MOV of a plain number is the address a call returns to.

Problem: on sm_90 a caller passes the return address as an immediate (`MOV R20, 0x120`), without
relocation, and the callee may copy it before it returns. When code moves, these numbers, and
only these, must move with it.

Method: inside each function a register holds either the function's entry value of some register,
or the number of a reaching MOV; copies pass both on, everything else forgets. A return through
"entry value of r" makes r the function's return register. At each call of the function the
register must then hold one MOV whose number is the offset behind the call.

A function that calls others keeps its return address in its stack frame: words at fixed
offsets from R1 hold tokens too (a frame's saved registers are taken not to be overwritten through
pointers, and callees to restore R1).

A kernel in which this can't be told raises `UnsupportedError`.
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.check.graph import Graph, closure_over_calls
from regdem.check.places import MEMORY_BASE
from regdem.check.slots import WORDS_OF_SIZE, signed_offset
from regdem.check.view import CodeView
from regdem.errors import UnsupportedError

_MOVE_IMMEDIATE = 0x802
_STACK_POINTER = 1
_Held = dict[int, int]
_ENTRY = 1 << 24
_STACK = -1
"""Key of what was added to R1 since the function's entry, in bytes."""
_FRAME = -(1 << 40)
"""Keys of stack words: `_FRAME` + bytes from the function's entry value of R1."""
"""Tokens: an instruction index for a MOV, `_ENTRY + r` for the entry value of register r."""


def copied_register(low: int, high: int) -> int | None:
    """The general register that a plain 32-bit move copies, or None where it is none."""
    opcode = low & 0xFFF
    if opcode == 0x202 and (high >> 8 & 0xF) == 0xF:
        return low >> 32 & 0xFF
    plain = (low >> 24 & 0xFF) == 0xFF and not low >> 63 and not high >> 8 & 0xD
    if opcode == 0x224 and plain and (low >> 32 & 0xFF) == 0xFF:  # IMAD of RZ, RZ and the value
        return high & 0xFF
    return None


@dataclass(frozen=True)
class ReturnAddresses:
    """`call_of[m]` is the call whose return address the MOV with index m loads."""

    call_of: dict[int, int]


def return_addresses(
    view: CodeView, graph: Graph, slots: dict[int, tuple[int, ...]]
) -> ReturnAddresses:
    """Find the MOVs that load return addresses in a kernel with calls.

    `slots` maps LDS and STS to the slots they reach, and LDL and STL to the private words of the
    frame; these pass return addresses on like moves.
    """
    if not graph.sites:
        return ReturnAddresses({})
    changed = closure_over_calls(graph, lambda i: _mask(view.writes[i]) | _stored(view, i, slots))
    ends = {entry: _function(view, graph, entry, changed, slots) for entry in graph.functions}
    registers = {entry: _return_register(view, graph, entry, ends) for entry in graph.sites}
    call_of: dict[int, int] = {}
    for entry, states in ends.items():
        for block in sorted(graph.functions[entry]):
            callee = graph.callee(block)
            if callee < 0 or block not in states:
                continue
            call = graph.end[block] - 1
            register = registers[callee]
            if register is None:
                continue
            move = states[block].get(register)
            if move is None or move >= _ENTRY or view.low[move] >> 32 != 16 * (call + 1):
                raise _ambiguous(view, call)
            if call_of.setdefault(move, call) != call:
                raise _ambiguous(view, move)
    return ReturnAddresses(call_of)


def _function(
    view: CodeView,
    graph: Graph,
    entry: int,
    changed: dict[int, int],
    slots: dict[int, tuple[int, ...]],
) -> dict[int, _Held]:
    """What registers hold before the last instruction of each block of one function."""
    at: dict[int, _Held] = {
        entry: {_STACK: 0} | {r: _ENTRY + r for r in [*range(255), *_slot_keys(slots)]}
    }
    ends: dict[int, _Held] = {}
    todo = [entry]
    while todo:
        block = todo.pop()
        held = dict(at[block])
        for i in range(graph.start[block], graph.end[block]):
            if i == graph.end[block] - 1:
                ends[block] = dict(held)
            _step(view, i, held, slots)
        callee = graph.callee(block)
        if callee >= 0:
            own = changed[callee]
            held = {r: token for r, token in held.items() if r < 0 or not own >> r & 1}
        for target, _ in graph.successors(block):
            known = at.get(target)
            met = held if known is None else {r: t for r, t in known.items() if held.get(r) == t}
            if known is None or len(met) != len(known):
                at[target] = dict(met)
                todo.append(target)
    return ends


def _step(view: CodeView, i: int, held: _Held, slots: dict[int, tuple[int, ...]]) -> None:
    low, high = view.low[i], view.high[i]
    tokens: list[int | None] = [None] * len(view.writes[i])
    if i in slots:
        keys = [MEMORY_BASE + slot for slot in slots[i]]
        if view.name[i] in ("STS", "STL"):
            _store(view, i, keys, held)
        elif view.guard[i] < 0:
            tokens = [held.get(key) for key in keys]
    elif view.name[i] in ("STL", "LDL") and _on_stack(view, i) and _STACK in held:
        words = WORDS_OF_SIZE.get(high >> 9 & 7, 1)
        first = _FRAME + held[_STACK] + signed_offset(low)
        keys = [first + 4 * word for word in range(words)]
        if view.name[i] == "LDL":
            tokens = [held.get(key) for key in keys] if view.guard[i] < 0 else tokens
        else:
            _store(view, i, keys, held)
    elif view.guard[i] < 0 and len(tokens) == 1:
        if low & 0xFFF == _MOVE_IMMEDIATE:
            tokens = [i]
        else:
            source = copied_register(low, high)
            tokens = [None if source is None else held.get(source)]
    if _STACK_POINTER in view.writes[i]:
        _move_stack(view, i, held)
    for place, token in zip(view.writes[i], tokens, strict=False):
        held.pop(place, None)
        if token is not None:
            held[place] = token


def _on_stack(view: CodeView, i: int) -> bool:
    return any(row.first == _STACK_POINTER and row.bit == 24 for row in view.rows[i])


def _store(view: CodeView, i: int, keys: list[int], held: _Held) -> None:
    data = [row.first + e for row in view.rows[i] if row.bit == 32 for e in range(row.width)]
    for word, key in enumerate(keys):
        held.pop(key, None)
        if view.guard[i] < 0 and word < len(data) and data[word] in held:
            held[key] = held[data[word]]


def _move_stack(view: CodeView, i: int, held: _Held) -> None:
    """R1 plus a constant; anything else that writes R1 is a new frame (the kernel's entry)."""
    low, high = view.low[i], view.high[i]
    adds = low & 0xFFF in (0x810, 0x836) and (low >> 24 & 0xFF) == _STACK_POINTER
    if adds and (high & 0xFF == 0xFF or low & 0xFFF == 0x836) and view.guard[i] < 0:
        amount = low >> 32
        held[_STACK] = held.get(_STACK, 0) + amount - (amount >> 31 << 32)
    elif low & 0xFFF == 0xB82 and view.guard[i] < 0:
        held[_STACK] = 0
    else:
        held.pop(_STACK, None)


def _return_register(
    view: CodeView, graph: Graph, entry: int, ends: dict[int, dict[int, _Held]]
) -> int | None:
    """The register a function returns through, or None where it never returns."""
    register: int | None = None
    for block in sorted(graph.functions[entry]):
        last = graph.end[block] - 1
        if not graph.flow.returns[last] or block not in ends[entry]:
            continue
        reads = view.reads[last]
        token = ends[entry][block].get(reads[0]) if reads else None
        if token is None or token < _ENTRY or register not in (None, token - _ENTRY):
            raise _ambiguous(view, last)
        register = token - _ENTRY
    return register


def _ambiguous(view: CodeView, i: int) -> UnsupportedError:
    return UnsupportedError(
        "the return address of a call can't be told from other numbers",
        code="return_address",
        kernel=view.kernel,
        offset=16 * i,
    )


def _slot_keys(slots: dict[int, tuple[int, ...]]) -> list[int]:
    return sorted({MEMORY_BASE + slot for words in slots.values() for slot in words})


def _stored(view: CodeView, i: int, slots: dict[int, tuple[int, ...]]) -> int:
    if view.name[i] not in ("STS", "STL") or i not in slots:
        return 0
    return _mask(tuple(MEMORY_BASE + slot for slot in slots[i]))


def _mask(places: tuple[int, ...]) -> int:
    mask = 0
    for place in places:
        mask |= 1 << place
    return mask
