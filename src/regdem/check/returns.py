"""Return addresses: which MOV of a plain number is the address a call returns to.

Problem: on sm_90 a caller passes the return address as an immediate (`MOV R20, 0x120`), without
relocation, and the callee may copy it before it returns. When code moves, these numbers, and
only these, must move with it.

Method: inside each function a register holds either the function's entry value of some register,
or the number of a reaching MOV; copies pass both on, everything else forgets. A return through
"entry value of r" makes r the function's return register. At each call of the function the
register must then hold one MOV whose number is the offset behind the call.

A kernel in which this can't be told raises `UnsupportedError`.
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.check.graph import Graph, closure_over_calls
from regdem.check.view import CodeView
from regdem.errors import UnsupportedError

_MOVE_IMMEDIATE = 0x802
_Held = dict[int, int]
_ENTRY = 1 << 20
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


def return_addresses(view: CodeView, graph: Graph) -> ReturnAddresses:
    """Find the MOVs that load return addresses in a kernel with calls."""
    if not graph.sites:
        return ReturnAddresses({})
    changed = closure_over_calls(graph, lambda i: _mask(view.writes[i]))
    ends = {entry: _function(view, graph, entry, changed) for entry in graph.functions}
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
    view: CodeView, graph: Graph, entry: int, changed: dict[int, int]
) -> dict[int, _Held]:
    """What registers hold before the last instruction of each block of one function."""
    at: dict[int, _Held] = {entry: {r: _ENTRY + r for r in range(255)}}
    ends: dict[int, _Held] = {}
    todo = [entry]
    while todo:
        block = todo.pop()
        held = dict(at[block])
        for i in range(graph.start[block], graph.end[block]):
            if i == graph.end[block] - 1:
                ends[block] = dict(held)
            _step(view, i, held)
        callee = graph.callee(block)
        if callee >= 0:
            held = {r: token for r, token in held.items() if not changed[callee] >> r & 1}
        for target, _ in graph.successors(block):
            known = at.get(target)
            met = held if known is None else {r: t for r, t in known.items() if held.get(r) == t}
            if known is None or len(met) != len(known):
                at[target] = dict(met)
                todo.append(target)
    return ends


def _step(view: CodeView, i: int, held: _Held) -> None:
    token: int | None = None
    if view.guard[i] < 0:
        if view.low[i] & 0xFFF == _MOVE_IMMEDIATE:
            token = i
        else:
            source = copied_register(view.low[i], view.high[i])
            token = None if source is None else held.get(source)
    for place in view.writes[i]:
        held.pop(place, None)
        if token is not None:
            held[place] = token


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


def _mask(places: tuple[int, ...]) -> int:
    mask = 0
    for place in places:
        mask |= 1 << place
    return mask
