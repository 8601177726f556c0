"""The symbolic state: which value of the original each place of the rewritten program holds.

Places are the rewritten program's registers and slots; values are the original's registers and
words of its private local memory, each standing for *what it holds now*. A fact "place l holds
value v" is kept unconditionally (`hold`) or under the truth of a predicate of the original
(`when`): predicated definitions, and stores under the same guard, need the latter. Following
regalloc2's checker, facts are met by intersection where paths join, a definition of v removes v
from all places, and a write to a place removes what it held.

A value the original has not written on any path has no content to preserve: `undefined` values
count as held everywhere. (Reading one twice may then give two different contents; a program that
depends on two reads of an undefined register being equal is not covered by the proof.)

Conditions: c = 2 * (value number of the predicate) + (1 where negated).
`available` is a set of pure instructions of the original whose destination still holds what
they would compute now; it lets an inserted copy of one of them be recognised (rematerialisation).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from regdem.check.places import FILE_BASE, MEMORY_BASE, PREDICATE_VERSIONS

Facts = tuple[int, dict[int, int]]
"""A place's content: values held always, and further values held under conditions."""

NOTHING: Facts = (0, {})
UNKNOWN = -1
"""A guard of the rewritten program that is no known predicate of the original."""
ALWAYS = -2
"""No guard."""

ZERO = MEMORY_BASE - 1
"""Value and place of the zero register: always held, never written. So are those of constants."""

_PREDICATES = ((1 << PREDICATE_VERSIONS[1]) - 1) & ~((1 << FILE_BASE[2]) - 1)


@dataclass
class State:
    """Facts at one point of the product program; see the module's docstring."""

    hold: dict[int, int]
    when: dict[int, dict[int, int]]
    undefined: int
    undefined_when: dict[int, int]
    available: int

    @staticmethod
    def entry(values: int, constants: Collection[int] = ()) -> State:
        """Nothing is held but constants; every other value of the mask `values` is undefined."""
        known = {place: 1 << place for place in (ZERO, *constants)}
        return State(known, {}, values & ~sum(known.values()), {}, 0)

    def copy(self) -> State:
        """A state that can be changed without changing this one."""
        return State(
            dict(self.hold),
            {place: dict(facts) for place, facts in self.when.items()} if self.when else {},
            self.undefined,
            dict(self.undefined_when),
            self.available,
        )

    def holds(self, place: int, value: int, guard: int = ALWAYS) -> bool:
        """Whether `place` holds `value`, where `guard` is true."""
        known = self.hold.get(place, 0) | self.undefined
        if guard >= 0:
            known |= self.when.get(place, {}).get(guard, 0) | self.undefined_when.get(guard, 0)
        return bool(known >> value & 1)

    def facts(self, place: int) -> Facts:
        """What `place` holds, for a copy."""
        return self.hold.get(place, 0), self.when.get(place, {})

    def predicate_in(self, place: int) -> int:
        """A predicate of the original that `place` holds now, or -1."""
        held = self.hold.get(place, 0)
        if held >> place & 1:
            return place
        held &= _PREDICATES
        return held.bit_length() - 1 if held else -1

    # -- the original writes ------------------------------------------------------------------

    def redefine(self, values: int, guard: int = ALWAYS) -> None:
        """The original writes the values of a mask, where `guard` is true: all copies are stale."""
        if guard >= 0:
            self._redefine_under(values, guard)
        else:
            keep = ~values
            for place, held in self.hold.items():
                if held & values:
                    self.hold[place] = held & keep
            for facts in self.when.values():
                for condition in facts:
                    facts[condition] &= keep
            self.undefined &= keep
            for condition in self.undefined_when:
                self.undefined_when[condition] &= keep
        predicates = values & _PREDICATES
        if predicates:
            self._forget_conditions(predicates)

    def _redefine_under(self, values: int, guard: int) -> None:
        keep = ~values
        other = guard ^ 1
        for place in {*self.hold, *self.when}:
            held = self.hold.get(place, 0)
            facts = self.when.get(place)
            lost = held & values
            if not lost and facts is None:
                continue
            still = lost | (facts.get(other, 0) if facts else 0)
            self.hold[place] = held & keep
            if facts is not None:
                for condition in facts:
                    facts[condition] &= keep
            if still:
                self.when.setdefault(place, {})[other] = still
        lost = self.undefined & values
        still = lost | self.undefined_when.get(other, 0)
        self.undefined &= keep
        for condition in self.undefined_when:
            self.undefined_when[condition] &= keep
        if still:
            self.undefined_when[other] = still

    def _forget_conditions(self, predicates: int) -> None:
        for place in list(self.when):
            facts = self.when[place]
            for condition in [c for c in facts if predicates >> (c >> 1) & 1]:
                del facts[condition]
            if not facts:
                del self.when[place]
        for condition in [c for c in self.undefined_when if predicates >> (c >> 1) & 1]:
            del self.undefined_when[condition]

    def copy_values(self, pairs: Sequence[tuple[int, int]], guard: int = ALWAYS) -> None:
        """The original copies values (destination, source): holders of a source gain the copy."""
        gained: list[tuple[int, int]] = []
        undefined = 0
        values = 0
        for destination, source in pairs:
            values |= 1 << destination
            if self.undefined >> source & 1:
                undefined |= 1 << destination
            gained.extend(
                (place, destination)
                for place in {*self.hold, *self.when}
                if self.holds(place, source, guard)
            )
        self.redefine(values, guard)
        if guard < 0:
            self.undefined |= undefined
        for place, value in gained:
            self._gain(place, value, guard)

    def commit(self, register_of: Mapping[int, int], dead: int) -> None:
        """Versions become what registers hold (version -> register), and all of `dead` end.

        See `order.py`: this is a copy of all at once, behind which no version is looked at again.
        """
        stale = dead
        for register in register_of.values():
            stale |= 1 << register

        def renamed(mask: int) -> int:
            if not mask & stale:
                return mask
            new = mask & ~stale
            for version, register in register_of.items():
                new |= (mask >> version & 1) << register
            return new

        def conditions(facts: Mapping[int, int]) -> dict[int, int]:
            kept: dict[int, int] = {}
            for condition, mask in facts.items():
                value = register_of.get(condition >> 1, condition >> 1)
                if value == condition >> 1 and stale >> value & 1:
                    continue
                kept[2 * value + (condition & 1)] = renamed(mask)
            return kept

        self.hold = {place: renamed(mask) for place, mask in self.hold.items()}
        self.when = {place: conditions(facts) for place, facts in self.when.items()}
        self.undefined = renamed(self.undefined)
        self.undefined_when = conditions(self.undefined_when)

    def _gain(self, place: int, value: int, guard: int) -> None:
        if guard < 0 or self.holds(place, value, guard ^ 1):
            self.hold[place] = self.hold.get(place, 0) | 1 << value
            return
        facts = self.when.setdefault(place, {})
        facts[guard] = facts.get(guard, 0) | 1 << value

    # -- the rewritten program writes ---------------------------------------------------------

    def write(self, contents: Iterable[tuple[int, Facts]], guard: int = ALWAYS) -> None:
        """The rewritten program writes places; `guard` is a condition, ALWAYS or UNKNOWN."""
        for place, (always, under) in contents:
            if guard == ALWAYS:
                self.hold[place] = always
                if under:
                    self.when[place] = dict(under)
                else:
                    self.when.pop(place, None)
            elif guard == UNKNOWN:
                old = self.hold.get(place, 0)
                self.hold[place] = (always | self.undefined) & (old | self.undefined)
                self.when.pop(place, None)
            else:
                self._write_under(place, always | under.get(guard, 0), guard)

    def _write_under(self, place: int, new: int, guard: int) -> None:
        other = guard ^ 1
        facts = self.when.get(place, {})
        old = self.hold.get(place, 0) | facts.get(other, 0)
        undefined = self.undefined
        both = (new | undefined | self.undefined_when.get(guard, 0)) & (
            old | undefined | self.undefined_when.get(other, 0)
        )
        both &= ~undefined
        self.hold[place] = both
        kept = {
            condition: mask
            for condition, mask in ((guard, new & ~both), (other, old & ~both))
            if mask
        }
        if kept:
            self.when[place] = kept
        else:
            self.when.pop(place, None)

    # -- control flow -------------------------------------------------------------------------

    def assume(self, condition: int) -> None:
        """A branch tells that `condition` holds."""
        other = condition ^ 1
        for place in list(self.when):
            facts = self.when[place]
            gained = facts.pop(condition, 0)
            facts.pop(other, None)
            if gained:
                self.hold[place] = self.hold.get(place, 0) | gained
            if not facts:
                del self.when[place]
        self.undefined |= self.undefined_when.pop(condition, 0)
        self.undefined_when.pop(other, None)

    def met_with(self, other: State) -> tuple[State, bool]:
        """What holds in both states, and whether that is less than this one."""
        undefined = self.undefined & other.undefined
        hold: dict[int, int] = {}
        for place in self.hold.keys() | other.hold.keys():
            both = (self.hold.get(place, 0) | self.undefined) & (
                other.hold.get(place, 0) | other.undefined
            )
            both &= ~undefined
            if both:
                hold[place] = both
        undefined_when: dict[int, int] = {}
        for c in self.undefined_when.keys() | other.undefined_when.keys():
            both = (self.undefined_when.get(c, 0) | self.undefined) & (
                other.undefined_when.get(c, 0) | other.undefined
            )
            both &= ~undefined
            if both:
                undefined_when[c] = both
        when: dict[int, dict[int, int]] = {}
        for place in self.when.keys() | other.when.keys():
            facts = self._met_conditions(other, place, hold.get(place, 0), undefined)
            if facts:
                when[place] = facts
        met = State(hold, when, undefined, undefined_when, self.available & other.available)
        return met, met != self

    def _met_conditions(
        self, other: State, place: int, already: int, undefined: int
    ) -> dict[int, int]:
        mine = self.when.get(place, {})
        theirs = other.when.get(place, {})
        found: dict[int, int] = {}
        for c in mine.keys() | theirs.keys():
            first = self.hold.get(place, 0) | mine.get(c, 0) | self.undefined
            second = other.hold.get(place, 0) | theirs.get(c, 0) | other.undefined
            first |= self.undefined_when.get(c, 0)
            second |= other.undefined_when.get(c, 0)
            both = first & second & ~already & ~undefined
            if both:
                found[c] = both
        return found

    def after_call(self, returned: State, values: int, places: int, stale: int = 0) -> State:
        """Behind a call: what the callee left, and what it can't have changed.

        This state is the one before the call; `values` and `places` are the masks of what the
        callee, and all it calls, may write in the original and in the rewritten program; `stale`
        the pure instructions of the original that involve such a value.
        """
        keep = ~values
        state = returned.copy()
        for place, held in self.hold.items():
            if not places >> place & 1:
                state.hold[place] = state.hold.get(place, 0) | (held & keep)
        for place, facts in self.when.items():
            if places >> place & 1:
                continue
            for condition, held in facts.items():
                if not values >> (condition >> 1) & 1 and held & keep:
                    own = state.when.setdefault(place, {})
                    own[condition] = own.get(condition, 0) | (held & keep)
        state.undefined |= self.undefined & keep
        state.available |= self.available & ~stale
        return state
