"""Both programs as they are matched: a key for each instruction, and which must have a partner."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from regdem.check.dataflow import may_be_dropped, may_be_inserted
from regdem.check.locals import frame_words, key_at, located, private_words
from regdem.check.matching import Text
from regdem.check.operands import Unfolded
from regdem.check.returns import ReturnAddresses
from regdem.check.slots import SlotMap
from regdem.check.subject import Program, Returns
from regdem.check.uniform import keeps_in, new_registers, reads_new


@dataclass(frozen=True)
class Texts:
    """Both programs as they are matched, and what was found out for it.

    `new` are the uniform registers that the rewritten program took into use, `located` the
    original's accesses to the frame that have partners with an equal address. `folds` says which
    operands are in another form, `addresses` which instructions of each have an immediate that is
    an address.
    """

    first: Text
    second: Text
    new: frozenset[int]
    located: frozenset[int]
    folds: Unfolded
    addresses: tuple[frozenset[int], frozenset[int]]


def addresses_of(program: Program, returns: ReturnAddresses) -> frozenset[int]:
    """Instructions whose immediates stand for places in the code or for symbols."""
    relocated = (relocation.offset // 16 for relocation in program.kernel.relocations)
    return frozenset((*relocated, *returns.call_of))


def texts_of(
    first: Program,
    second: Program,
    slots: SlotMap,
    returns: Returns,
    folds: Unfolded,
    addresses: tuple[frozenset[int], frozenset[int]],
) -> Texts:
    """Both programs as they are matched; `folds` and `addresses` as in `Texts`."""
    promoted = _promoted(first, second, slots)
    new = new_registers(first.view, second.view)
    places = located(*(frame_words(each.view, each.graph) for each in (first, second)))
    return Texts(
        Text(
            first.view,
            _keys(first, returns[0], {}, places[0]),
            _anchors_of_original(first, returns[0], promoted),
            private_words(first.view, first.graph),
        ),
        Text(
            second.view,
            _keys(second, returns[1], slots.words, places[1], new, folds.folded),
            _anchors_of_rewritten(second, returns[1], slots, new, local_may_go=bool(promoted)),
            {j: tuple(_slot_place(s) for s in words) for j, words in slots.words.items()},
        ),
        new,
        frozenset(places[0]),
        folds,
        addresses,
    )


def _promoted(first: Program, second: Program, slots: SlotMap) -> dict[int, tuple[int, ...]]:
    """Private local accesses of the original, if the rewritten program has fewer of them."""
    before, after = (p.view.memory.count("local") for p in (first, second))
    after -= sum(second.view.memory[j] == "local" for j in slots.words)
    return private_words(first.view, first.graph) if after < before else {}


def _slot_place(slot: int) -> int:
    return 512 + slot


def _keys(
    program: Program,
    returns: ReturnAddresses,
    slots: dict[int, tuple[int, ...]],
    places: dict[int, int],
    new: frozenset[int] = frozenset(),
    folded: frozenset[int] = frozenset(),
) -> list[Hashable]:
    keys: list[Hashable] = list(program.view.masked)
    for access, place in places.items():
        keys[access] = key_at(program.view, access, place)
    for move in returns.call_of:
        keys[move] = ("return address", program.view.masked[move] & ~(0xFFFFFFFF << 32))
    for access in slots:
        keys[access] = ("slot", access)
    for j in range(len(keys)) if new else ():
        reads = j not in folded and reads_new(program.view, j, new)
        if reads or keeps_in(program.view, j, new):
            keys[j] = ("uniform register", j)
    return keys


def _anchors_of_original(
    first: Program, returns: ReturnAddresses, private: dict[int, tuple[int, ...]]
) -> list[bool]:
    return [
        i in returns.call_of or not may_be_dropped(private, first.view, i)
        for i in range(len(first.view))
    ]


def _anchors_of_rewritten(
    second: Program,
    returns: ReturnAddresses,
    slots: SlotMap,
    new: frozenset[int],
    *,
    local_may_go: bool,
) -> list[bool]:
    """Where private accesses of the original may be gone, those left are matched by their text."""
    return [
        j in returns.call_of
        or not (
            may_be_inserted(slots.words, second.view, j)
            or keeps_in(second.view, j, new)
            or (local_may_go and second.view.memory[j] == "local")
        )
        for j in range(len(second.view))
    ]
