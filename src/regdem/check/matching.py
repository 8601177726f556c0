"""Which instruction stands for which, where a rewrite reordered straight-line code.

Problem: `align.py` matches in order. Here both programs have the same fences (`effects.py`) in the
same order, but between two of them anything may have changed places, and registers are numbered
anew, values wait in slots, moves come and go.

Method: both programs are executed with symbols, one stretch after the other, along a spanning tree
of the paths. Each definition of the original makes a new symbol; symbols of one *class* are known
to be equal (copies, and instructions of the same text over the same classes). An instruction of
the rewritten program is the original's if its text and the classes of its operands are; among
several, the one that reads the very same symbols, is used by the like, and was to come first.
Moves and slot accesses that have no counterpart pass symbols on. Where no instruction agrees in all
operands, one that may not be an insertion takes the one that agrees in most. At last, instructions
of one text and equal operands are dealt anew, by whose results matched instructions read.

What comes out is a guess: the proof (`order.py`, `dataflow.py`) uses it and does not believe it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regdem.check.places import FILE_BASE
from regdem.check.purity import is_pure
from regdem.check.readers import Readers
from regdem.check.state import ZERO
from regdem.check.stretches import Stretch
from regdem.check.uniform import copied_place
from regdem.check.view import CodeView, read_at

_MOST_CANDIDATES = 24
_ZERO = -1
_READ = 8
"""Weight of a result that is read; a register that only goes on into a loop counts 1."""
_Guard = tuple[int, bool] | None


@dataclass(frozen=True)
class Text:
    """One program as it is matched.

    `keys[i]` are equal where instructions may match, `fixed[i]` marks those that must, `words` maps
    accesses to memory words that are like registers (private frame, slots) to numbers of theirs.
    """

    view: CodeView
    keys: Sequence[Hashable]
    fixed: Sequence[bool]
    words: Mapping[int, tuple[int, ...]]


@dataclass
class Held:
    """Symbols by register or word; `under` has what one holds where a guard is true."""

    symbol: dict[int, int] = field(default_factory=dict[int, int])
    under: dict[int, tuple[_Guard, int]] = field(default_factory=dict[int, tuple[_Guard, int]])

    def copy(self) -> Held:
        return Held(dict(self.symbol), dict(self.under))


@dataclass(frozen=True)
class _Seen:
    """An instruction of the original as executed: its operands and what it leaves."""

    operands: tuple[int, ...]
    old: tuple[int, ...]
    exact: Hashable
    results: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    """What the registers hold behind it: the results, or under a guard something between."""


class Matcher:
    """Matches one stretch after another."""

    def __init__(self, original: Text, rewritten: Text) -> None:
        self.original = original
        self.rewritten = rewritten
        self._pairs: dict[int, int] = {}
        self._alike: dict[Hashable, list[int]] = {}
        self._votes: Counter[tuple[int, int]] = Counter()
        self._maker: dict[int, int] = {}
        self._users: dict[int, list[tuple[int, int]]] = {}
        self._makers: dict[int, list[int]] = {}
        self._twin: dict[int, int] = {}
        self._class: list[int] = []
        self._classes = 0
        self._numbers: dict[Hashable, int] = {}
        self._entry: dict[int, int] = {}
        self._home: dict[int, int] = {}
        self._readers = (Readers(original.view), Readers(rewritten.view))

    def run(self, stretch: Stretch, first: Held, second: Held) -> None:
        """Match a stretch; the states become those behind it."""
        seen: dict[int, _Seen] = {}
        exact: dict[Hashable, list[int]] = {}
        alike: dict[Hashable, list[int]] = {}
        for i in range(stretch.first, stretch.first_end):
            entry = seen[i] = self._execute(i, first, stretch.first)
            exact.setdefault(entry.exact, []).append(i)
            alike.setdefault(self.original.keys[i], []).append(i)
        left: dict[Hashable, int] = {}
        for j in range(stretch.second, stretch.second_end):
            left[self.rewritten.keys[j]] = left.get(self.rewritten.keys[j], 0) + 1
        for j in range(stretch.second, stretch.second_end):
            key = self.rewritten.keys[j]
            there = self._look(self.rewritten, j, second)
            candidates = exact.get(there.exact, [])
            if not candidates:
                candidates = alike.get(key, [])
                must = self.rewritten.fixed[j] or left[key] <= len(candidates)
                candidates = [
                    i
                    for i in candidates[:_MOST_CANDIDATES]
                    if must or 2 * self._agreeing(seen[i], there) > len(there.operands) > 0
                ]
            left[key] -= 1
            if not candidates:
                self._insert(j, second)
                continue
            i = candidates[0]
            if len(candidates) > 1:
                i = max(
                    candidates[:_MOST_CANDIDATES],
                    key=lambda c: (*self._likeness(c, seen[c], j, there), -c),
                )
            exact[seen[i].exact].remove(i)
            alike[key].remove(i)
            self._pairs[i] = j
            self._alike.setdefault((stretch.first, seen[i].exact), []).append(i)
            self._note(i, seen[i], j, there)
            self._follow(i, j, seen[i], second)

    def join(self, before: tuple[Held, Held], now: tuple[Held, Held]) -> None:
        """Another way into a stretch: what held like symbols there must hold like ones again."""
        places: dict[int, list[int]] = {}
        for place, symbol in before[1].symbol.items():
            places.setdefault(self._twin.get(symbol, symbol), []).append(place)
        for value, symbol in before[0].symbol.items():
            for place in places.get(symbol, ()):
                mine, theirs = now[0].symbol.get(value), now[1].symbol.get(place)
                if mine is None or theirs is None or self._class[mine] != self._class[theirs]:
                    continue
                self._votes[self._maker.get(mine, -1), self._maker.get(theirs, -1)] += 1

    def pairs(self) -> list[tuple[int, int]]:
        """The matching so far."""
        alike = [members for members in self._alike.values() if len(members) > 1]
        for members in sorted(alike, key=max, reverse=True):  # readers before what they read
            self._deal(members)
        return list(self._pairs.items())

    def _deal(self, members: list[int]) -> None:
        left = {i: self._pairs[i] for i in members}
        free = set(left.values())
        votes: Counter[tuple[int, int]] = Counter()
        for i in members:
            for user, operand in self._users.get(i, ()):
                votes[i, self._makers[self._pairs[user]][operand]] += _READ
            for j in free:
                votes[i, j] += self._votes.get((i, j), 0)
        for (i, j), _ in sorted(votes.items(), key=lambda vote: (-vote[1], vote[0])):
            if i in left and j in free:
                self._pairs[i] = j
                del left[i]
                free.remove(j)
        for i, j in list(left.items()):
            if j in free:
                del left[i]
                free.remove(j)
        for i, j in zip(left, sorted(free), strict=True):
            self._pairs[i] = j

    def _note(self, i: int, here: _Seen, j: int, there: _Seen) -> None:
        """Who made the operands of a matched pair."""
        self._makers[j] = [self._maker.get(b, -1) for b in (*there.operands, *there.old)]
        pairs = zip((*here.operands, *here.old), (*there.operands, *there.old), strict=False)
        for operand, (a, b) in enumerate(pairs):
            if a in self._maker and self._class[a] == self._class[b]:
                self._users.setdefault(self._maker[a], []).append((i, operand))

    # -- choosing -----------------------------------------------------------------------------

    def _agreeing(self, here: _Seen, there: _Seen) -> int:
        pairs = zip(here.operands, there.operands, strict=False)
        return sum(self._class[a] == self._class[b] for a, b in pairs)

    def _likeness(self, i: int, here: _Seen, j: int, there: _Seen) -> tuple[int, int, int, int]:
        same, old = (
            sum(a in (b, self._twin.get(b)) for a, b in zip(mine, theirs, strict=False))
            for mine, theirs in ((here.operands, there.operands), (here.old, there.old))
        )
        used = 0
        home = 0
        values, places = self.original.view.writes[i], self.rewritten.view.writes[j]
        for value, place in zip(values, places, strict=False):
            mine, theirs = (
                r.of(k, v) for r, k, v in zip(self._readers, (i, j), (value, place), strict=True)
            )
            used += len(mine & theirs) - len(mine ^ theirs)
            home += self._home.get(value) == place
        return self._agreeing(here, there), same, old + used, home

    # -- executing ----------------------------------------------------------------------------

    def _symbol(self, key: Hashable = None) -> int:
        """A new symbol, in the class of all that have this key, or in a class of its own."""
        number = self._classes if key is None else self._numbers.setdefault(key, self._classes)
        self._classes += number == self._classes
        self._class.append(number)
        return len(self._class) - 1

    def _copy_of(self, symbol: int) -> int:
        """A new symbol in the class of another."""
        self._class.append(self._class[symbol])
        return len(self._class) - 1

    def _get(self, held: Held, value: int, guard: _Guard = None) -> int:
        if guard is not None:
            under = held.under.get(value)
            if under is not None and under[0] == guard:
                return under[1]
        found = held.symbol.get(value)
        if found is None:
            found = self._entry.get(value)
            if found is None:
                found = self._entry[value] = self._symbol()
        return found

    def _put(self, held: Held, value: int, symbol: int, guard: _Guard) -> int:
        """Write a symbol; what is there behind it, under a guard something between two symbols."""
        if guard is None:
            held.symbol[value] = symbol
            held.under.pop(value, None)
            return symbol
        old = self._get(held, value)
        held.under[value] = (guard, symbol)
        new = self._symbol(("where", guard, self._class[symbol], self._class[old]))
        held.symbol[value] = new
        return new

    def _look(self, text: Text, i: int, held: Held) -> _Seen:
        """What an instruction reads; `results` are left open."""
        view = text.view
        guard = self._guard(text, i, held)
        key = text.keys[i]
        reads = view.reads[i]
        if view.memory[i] == "local" and not isinstance(key, int):
            reads = read_at(view, i, 32)  # the address is in the key
        operands = tuple(self._get(held, value, guard) for value in reads)
        old = () if guard is None else tuple(self._get(held, value) for value in view.writes[i])
        uniform = tuple(v for v in view.writes[i] if _is_uniform(v))
        classes = tuple(self._class[symbol] for symbol in operands)
        return _Seen(operands, old, (key, guard, classes, uniform))

    def _guard(self, text: Text, i: int, held: Held) -> _Guard:
        guard = text.view.guard[i]
        if guard < 0:
            return None
        return self._class[self._get(held, guard)], text.view.guard_negated[i]

    def _execute(self, i: int, held: Held, where: int) -> _Seen:
        """An instruction of the original: every result is a new symbol."""
        text = self.original
        seen = self._look(text, i, held)
        guard = self._guard(text, i, held)
        copied = self._copied(text, i, held)
        kind = ("pure",) if is_pure(text.view, i) else ("effect", where)
        results: list[int] = []
        left: list[int] = []
        for element, _ in enumerate(_written(text, i)):
            if copied is not None:
                results.append(self._copy_of(copied[element]))
            else:
                results.append(self._symbol((*kind, seen.exact, element)))
        for value, symbol in zip(_written(text, i), results, strict=True):
            left.append(self._put(held, value, symbol, guard))
            self._maker[symbol] = self._maker[left[-1]] = i
        return replace(seen, results=tuple(results), left=tuple(left))

    def _insert(self, j: int, held: Held) -> None:
        """An instruction of the rewritten program that has no counterpart."""
        text = self.rewritten
        guard = self._guard(text, j, held)
        results = self._copied(text, j, held)
        if results is None:
            exact = self._look(text, j, held).exact
            pure = is_pure(text.view, j)
            results = tuple(
                self._symbol(("pure", exact, element) if pure else None)
                for element in range(len(_written(text, j)))
            )
        for place, symbol in zip(_written(text, j), results, strict=True):
            self._put(held, place, symbol, guard)

    def _follow(self, i: int, j: int, seen: _Seen, held: Held) -> None:
        guard = self._guard(self.rewritten, j, held)
        written = zip(
            _written(self.original, i), _written(self.rewritten, j), seen.results, seen.left,
            strict=False,
        )  # fmt: skip
        for value, place, result, left in written:
            symbol = self._copy_of(result)
            behind = self._put(held, place, symbol, guard)
            self._twin[symbol], self._twin[behind] = result, left
            self._maker[symbol] = self._maker[behind] = j
            self._home[value] = place

    def _copied(self, text: Text, i: int, held: Held) -> tuple[int, ...] | None:
        """The symbols that a move or an access to words passes on."""
        view = text.view
        guard = self._guard(text, i, held)
        words = text.words.get(i)
        if words is not None:
            if view.name[i].startswith("LD"):
                return tuple(self._get(held, word) for word in words)
            data = read_at(view, i, 32) or (_ZERO,) * len(words)
            return tuple(self._get(held, value, guard) for value in data)
        source = copied_place(view.low[i], view.high[i])
        if source is None or len(view.writes[i]) != 1:
            return None
        return (self._get(held, _ZERO if source == ZERO else source, guard),)


def _written(text: Text, i: int) -> tuple[int, ...]:
    """Registers, or the words that a store reaches."""
    words = text.words.get(i)
    if words is not None and text.view.name[i].startswith("ST"):
        return words
    return text.view.writes[i]


def _is_uniform(value: int) -> bool:
    return FILE_BASE[1] <= value < FILE_BASE[2] or value >= FILE_BASE[3]
