"""Operands that name a constant or a uniform register where the original reads a register.

Problem: a rewritten program may write `FFMA R0, R1, c[0x0][0x210], R2` for the original's
`FFMA R0, R1, R3, R2`, where R3 holds that word of the constant bank. The two differ in more than
register fields, so that nothing would match.

Method: both are brought to the form with registers. A constant word or an immediate becomes a place
(and a value) of its own, which holds itself at all times, is never written, and stands in the row
of the operand, as the zero register does in `state.py`. An original instruction that moves
constants into registers is a copy of such values (`moved_constants`), so that "R3 holds this word
here" is a fact like any other, and the proof asks for it at the operand. A uniform register in an
operand is the place that it is anyway. Nothing is taken on trust about where folding was done: all
instructions with a text that the rewritten program has more often are looked at, in both.

Which forms mean the same is read from bits 9 to 11 for a closed list of operations; signs and
absolute values go with their operands and are part of the text. Constant banks do not change while
a kernel runs (CUDA leaves writes to them undefined).

Not understood, and so never equal: constants of 64-bit immediates, immediates in operands with a
sign, banks chosen by a register, more words than there are numbers for.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from regdem.check.places import CONSTANTS, FILE_BASE
from regdem.check.uniform import new_registers, uniform_constants
from regdem.check.view import CodeView, OperandRow, view_of
from regdem.errors import UnsupportedError

Word = tuple[str, int]
"""("bank", bank << 16 | byte offset) or ("immediate", 32 bits)."""

_UNIFORM = 1 << (91 - 64)
_SIGN_OF_THIRD = 1 << (75 - 64)
_SECOND_FORMS = {4: "immediate", 5: "bank", 6: "uniform"}
_THIRD_FORMS = {2: "immediate", 3: "bank", 7: "uniform"}
_ADDITIONS = (0x021, 0x029, 0x02A)
_SECOND_OPERAND = (
    0x007, 0x008, 0x009, 0x00B, 0x00C, 0x010, 0x011, 0x012, 0x019, 0x020, 0x023, 0x024, 0x025,
    0x027, 0x028, 0x02B, 0x036, 0x048,
)  # fmt: skip
_THIRD_OPERAND = (0x023, 0x024, 0x025, 0x027, 0x02B)
_RZ, _URZ = 255, 63


@dataclass(frozen=True)
class Operand:
    """An instruction in the form with registers: the word with 0 in one field, and what was there.

    `kind` is "immediate", "bank" or "uniform", `value` as in `Word` or a register number.
    """

    low: int
    high: int
    bit: int
    kind: str
    value: int


@dataclass(frozen=True)
class Unfolded:
    """Both programs in comparable forms.

    `folded` are the instructions of the rewritten program that were brought to another form;
    `numbers` the values that stand for constants.
    """

    original: CodeView
    rewritten: CodeView
    folded: frozenset[int] = frozenset()
    numbers: Mapping[Word, int] = field(default_factory=dict[Word, int])


def named_operand(low: int, high: int) -> Operand | None:
    """What an instruction names in place of a register; None where that isn't understood."""
    base, form = low & 0x1FF, low >> 9 & 7
    if form in _SECOND_FORMS and base in _SECOND_OPERAND:
        kind, bit = _SECOND_FORMS[form], 32
    elif form in _THIRD_FORMS and (base in _THIRD_OPERAND or base in _ADDITIONS):
        kind, bit = _THIRD_FORMS[form], 32 if base in _ADDITIONS else 64
    else:
        return None
    if (kind == "uniform") != bool(high & _UNIFORM):
        return None
    upper = low >> 32
    value = _value(kind, upper)
    if value is None:
        return None
    signs = 0 if kind == "immediate" else upper >> 30
    low = low & 0xFFFFF1FF | 1 << 9
    high &= ~_UNIFORM
    if bit == 32:
        return Operand(low | signs << 62, high, bit, kind, value)
    if signs & 1:
        return None
    low |= (high & 0xFF) << 32 | (1 << 63 if high & _SIGN_OF_THIRD else 0)
    high = high & ~(0xFF | _SIGN_OF_THIRD) | (_SIGN_OF_THIRD if signs else 0)
    return Operand(low, high, bit, kind, value)


def _value(kind: str, upper: int) -> int | None:
    """What bits 32 to 63 name, signs aside."""
    if kind == "immediate":
        return upper
    if kind == "uniform":
        number = upper & 0x3FFFFFFF
        return number if number < _URZ else None
    if upper & 0x3800003F:
        return None
    return (upper >> 22 & 0x1F) << 16 | upper >> 6 & 0xFFFF


def moved_constants(low: int, high: int) -> tuple[Word, ...]:
    """What an instruction moves into its destinations, if that is constants only."""
    opcode, upper, rest = low & 0xFFF, low >> 32, high & ((1 << 41) - 1)
    if opcode == 0x802 and rest == 0xF00:  # MOV
        return (("immediate", upper),)
    if opcode == 0x424 and low >> 24 & 0xFF == _RZ and rest | 0x200 == 0x078E02FF:  # IMAD.MOV
        return (("immediate", upper),)
    if opcode == 0xB82 and low >> 24 & 0xFF == _RZ and rest in (0x800, 0xA00):  # LDC, LDC.64
        place = _value("bank", upper)
        if place is None or upper >> 30:
            return ()
        return tuple(("bank", place + 4 * k) for k in range(2 if rest == 0xA00 else 1))
    return ()


def unfolded(original: CodeView, rewritten: CodeView, kept: Collection[int]) -> Unfolded:
    """Both programs, with operands unfolded where that makes texts equal.

    `kept` are instructions of the original whose immediates the loader may change (relocations).
    """
    more = Counter(rewritten.masked)
    more.subtract(original.masked)
    known = set(original.masked)
    texts = _texts(rewritten, {text for text, count in more.items() if count > 0}, known)
    loaded = _loaded(original, rewritten)
    if not texts:
        return Unfolded(original, rewritten, numbers=_numbers(original, loaded, kept))
    first, second = _Plain(original, texts), _Plain(rewritten, texts)
    numbers = _numbers(original, loaded | first.words() | second.words(), kept)
    (a, _), (b, folded) = first.view_with(numbers), second.view_with(numbers)
    return Unfolded(a, b, folded, numbers)


def _loaded(original: CodeView, rewritten: CodeView) -> set[Word]:
    """Constants that the rewritten program puts into uniform registers that it took into use."""
    new = new_registers(original, rewritten)
    found: set[Word] = set()
    for j, places in enumerate(rewritten.writes):
        if places and places[0] in new:
            found.update(uniform_constants(rewritten.low[j], rewritten.high[j]))
    return found


def _texts(view: CodeView, more: set[int], known: set[int]) -> set[int]:
    """Those texts of `more` that name an operand, and would be `known` with a register there."""
    found: set[int] = set()
    seen: set[int] = set()
    for j, text in enumerate(view.masked):
        if text not in more or text in seen:
            continue
        seen.add(text)
        operand = named_operand(view.low[j], view.high[j])
        if operand is None:
            continue
        try:
            plain = view_of("", struct.pack("<QQ", operand.low, operand.high), "sm_90")
        except UnsupportedError:
            continue
        row = _row_at(plain, 0, operand.bit)
        is_known = row is not None and (operand.kind != "immediate" or row[1].width == 1)
        if is_known and plain.masked[0] in known:
            found.add(text)
    return found


def _row_at(view: CodeView, i: int, bit: int) -> tuple[int, OperandRow] | None:
    """The row of the general register read at `bit`, and its place among the rows."""
    for k, row in enumerate(view.rows[i]):
        if row.bit == bit and row.file == 0 and row.reads and not row.writes:
            return k, row
    return None


class _Plain:
    """The instructions of one program that have certain texts, in the form with registers."""

    def __init__(self, view: CodeView, texts: set[int]) -> None:
        self.view = view
        self.operands: dict[int, Operand] = {}
        for i, text in enumerate(view.masked):
            operand = named_operand(view.low[i], view.high[i]) if text in texts else None
            if operand is not None:
                self.operands[i] = operand
        code = b"".join(struct.pack("<QQ", o.low, o.high) for o in self.operands.values())
        self.plain = view_of(view.kernel, code, "sm_90")

    def _named(self) -> Iterator[tuple[int, int, Operand, int, OperandRow]]:
        """Instruction, its place in `plain`, the operand, and the row it stands for."""
        for k, (i, operand) in enumerate(self.operands.items()):
            found = _row_at(self.plain, k, operand.bit)
            if found is not None:
                yield i, k, operand, *found

    def words(self) -> set[Word]:
        """All constants that are named."""
        return {
            word
            for *_, operand, _, row in self._named()
            if operand.kind != "uniform"
            for word in _words(operand, row.width)
        }

    def view_with(self, numbers: Mapping[Word, int]) -> tuple[CodeView, frozenset[int]]:
        """The program with these instructions in the form with registers, and which they are."""
        masked, rows, reads = [*self.view.masked], [*self.view.rows], [*self.view.reads]
        done: set[int] = set()
        for i, k, operand, at, row in self._named():
            first = _first_place(operand, row.width, numbers)
            if first is None:
                continue
            file = int(operand.kind == "uniform")
            new = (*self.plain.rows[k][:at], replace(row, file=file, first=first))
            rows[i] = (*new, *self.plain.rows[k][at + 1 :])
            reads[i] = tuple(r.first + e for r in rows[i] if r.reads for e in range(r.width))
            masked[i] = self.plain.masked[k]
            done.add(i)
        return replace(self.view, masked=masked, rows=rows, reads=reads), frozenset(done)


def _words(operand: Operand, width: int) -> list[Word]:
    return [(operand.kind, operand.value + 4 * k) for k in range(width)]


def _first_place(operand: Operand, width: int, numbers: Mapping[Word, int]) -> int | None:
    """The place of an operand's low half; None where the halves are no neighbours."""
    if operand.kind == "uniform":
        return FILE_BASE[1] + operand.value if operand.value + width <= _URZ else None
    places = [numbers.get(word, -1) for word in _words(operand, width)]
    first = places[0]
    return first if first >= 0 and places == list(range(first, first + width)) else None


def _numbers(original: CodeView, words: set[Word], kept: Collection[int]) -> dict[Word, int]:
    """Values for constants: those in operands, and those moved together with one of them.

    Neighbours in a bank have neighbouring numbers. Words beyond the last number have none.
    """
    wanted = set(words)
    for i in range(len(original)):
        if i not in kept:
            moved = moved_constants(original.low[i], original.high[i])
            if words.intersection(moved):
                wanted.update(moved)
    return dict(zip(sorted(wanted), range(*CONSTANTS), strict=False))


def copied_constants(
    view: CodeView,
    i: int,
    numbers: Mapping[Word, int],
    kept: Collection[int],
    *,
    uniform: bool = False,
) -> list[tuple[int, int]]:
    """(value, constant) for what instruction `i` moves, if all of it has numbers; else nothing.

    `uniform`: also into uniform registers.
    """
    if not numbers or i in kept:
        return []
    moved = moved_constants(view.low[i], view.high[i])
    if uniform and not moved:
        moved = uniform_constants(view.low[i], view.high[i])
    if len(moved) != len(view.writes[i]) or not all(word in numbers for word in moved):
        return []
    return [(to, numbers[word]) for to, word in zip(view.writes[i], moved, strict=True)]
