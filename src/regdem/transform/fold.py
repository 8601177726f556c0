"""Constants named by their users: an operand instead of a register.

Problem: a register holds a kernel parameter, another constant word, or an immediate, and its user
could name that itself (`FFMA R0, R1, c[0x0][0x210], R2`). Rematerialisation (`recompute.py`) makes
the value again in front of each use, for an instruction and a register there; a user that names it
needs neither. Where all users of a live range do, its definition goes, and the register is given
back at no cost in memory or instructions.

Method: each operand that reads one register (or an aligned pair) is replaced where all its webs
have one definition that moves constants (`isa/sources.py`), and the operation has the form. An
instruction can name one constant only: its first such operand does. The choice of gaps takes such
uses for no uses at all (`gaps.Value.folded`); what it lets leave is then folded, all of it.

A value in a uniform register that is a constant is put there by ULDC or UMOV, not by way of a
register. A definition whose results nobody reads any more goes. The instruction in front of it
takes over its stall and the one behind it its waits, so that no distance between others shrinks;
where either stands in another block, it stays as a NOP.

Not folded: return addresses and other values of device functions; immediates into operands with a
sign; what is defined in several places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regdem.analysis.webs import STACK_POINTER, Web, Webs
from regdem.isa.control import MAX_STALL, ControlWord, get_control, set_control
from regdem.isa.decoded import IMPLICIT, RegisterFile, Role
from regdem.isa.encode import Word, nop
from regdem.isa.sources import Source, constant_sources, with_source
from regdem.program.loops import loop_depth
from regdem.program.program import Program

_ANY_UNIFORM = Source("uniform", 0)
_LONGEST_REUSE_STALL = 11
"""Reuse flags need a stall count of at most that."""


@dataclass(frozen=True)
class Fold:
    """One operand to replace: its instruction and field, the webs it names, and by what.

    `source` None: the uniform register (the first of an aligned pair) that its value goes to.
    """

    instruction: int
    bit: int
    webs: tuple[int, ...]
    source: Source | None


@dataclass(frozen=True)
class Folds:
    """All operands that may be replaced, no more than one an instruction."""

    by_instruction: Mapping[int, Fold] = field(default_factory=dict[int, Fold])

    def __bool__(self) -> bool:
        return bool(self.by_instruction)

    def are_most_of(self, web: Web) -> bool:
        """Whether more than half of a web's uses could name a uniform register."""
        uses = (self.by_instruction.get(i) for i in web.reads)
        named = sum(f is not None and f.source is None and web.index in f.webs for f in uses)
        return 2 * named > len(web.reads)

    def uses_of(self, parts: Sequence[Web], *, uniform: bool) -> frozenset[int]:
        """Uses that need no register once the value of `parts` (a web or an aligned pair) leaves.

        `uniform`: it then goes to uniform registers.
        """
        mine = {web.index for web in parts}
        found: set[int] = set()
        for i in parts[0].reads:
            fold = self.by_instruction.get(i)
            if fold is None or not mine.issubset(fold.webs):
                continue
            if fold.source is not None or (uniform and len(fold.webs) == len(parts)):
                found.add(i)
        return frozenset(found)


def folds_of(
    program: Program, webs: Webs, uniform: Collection[int] = (), *, banks: bool = False
) -> Folds:
    """What could be folded: constants that one instruction moves, and the webs of `uniform`.

    `banks`: words of constant banks may be operands.
    """
    held = _constants(program, webs)
    if not banks:
        held = {web: source for web, source in held.items() if source.kind == "immediate"}
    folds = _folds(program, webs, lambda named: _together([held.get(web) for web in named]))
    if uniform:

        def to_uniform(named: Sequence[int]) -> Source | None:
            return _ANY_UNIFORM if len(named) <= 2 and all(w in uniform for w in named) else None

        folds = {**_folds(program, webs, to_uniform), **folds}
    return Folds(folds)


def moved_by(program: Program, parts: Sequence[Web]) -> tuple[Source, ...]:
    """The constants that the one definition of a value (one web, or both halves) moves, or none."""
    i = parts[0].writes[0]
    code = program.code
    if any(web.writes != [i] for web in parts) or code.guard[i] != 7 or code.guard_negated[i]:
        return ()
    sources = constant_sources(code.word(i))
    first = parts[0].register - int(code.operand_register[int(code.operand_start[i])])
    return sources[first : first + len(parts)] if first >= 0 and sources else ()


def _constants(program: Program, webs: Webs) -> dict[int, Source]:
    """What each web holds that one unguarded move of a constant defines."""
    code = program.code
    found: dict[int, Source] = {}
    for web in webs.webs:
        if web.whole or len(web.writes) != 1 or not web.reads or web.register == STACK_POINTER:
            continue
        i = web.writes[0]
        if code.guard[i] != 7 or code.guard_negated[i]:
            continue
        sources = constant_sources(code.word(i))
        if not sources:
            continue
        row = int(code.operand_start[i])
        element = web.register - int(code.operand_register[row])
        if code.operand_role[row] == Role.WRITE and 0 <= element < len(sources):
            found[web.index] = sources[element]
    return found


def _folds(
    program: Program, webs: Webs, source_of: Callable[[Sequence[int]], Source | None]
) -> dict[int, Fold]:
    code = program.code
    instruction: list[int] = code.operand_instruction.tolist()
    bits: list[int] = code.operand_bit.tolist()
    result: dict[int, Fold] = {}
    for row, named in webs.of_row.items():
        i = instruction[row]
        if i in result or bits[row] == IMPLICIT or code.operand_role[row] != Role.READ:
            continue
        if code.operand_file[row] != RegisterFile.GPR:
            continue
        source = source_of(named)
        if source is None or with_source(code.table, code.word(i), bits[row], source) is None:
            continue
        if not _reads_besides(program, webs, row, named):
            kept = None if source is _ANY_UNIFORM else source
            result[i] = Fold(i, bits[row], tuple(named), kept)
    return result


def _together(parts: list[Source | None]) -> Source | None:
    """One source for a register or an aligned pair; None where the halves are not neighbours."""
    first = parts[0]
    if first is None or len(parts) > 2:
        return None
    if len(parts) == 1:
        return first
    if first.kind != "constant" or first.value % 8:
        return None
    return first if parts[1] == replace(first, value=first.value + 4) else None


def _reads_besides(program: Program, webs: Webs, row: int, named: Iterable[int]) -> bool:
    """Whether another operand of the same instruction reads one of the webs, too."""
    code = program.code
    i = int(code.operand_instruction[row])
    mine = set(named)
    return any(
        other != row and not mine.isdisjoint(webs.of_row.get(other, ()))
        for other in range(int(code.operand_start[i]), int(code.operand_start[i + 1]))
    )


@dataclass(frozen=True)
class Folded:
    """A value that users name themselves: original register, what it is, how many uses do.

    `is_gone`: its definition went, since nobody else reads it.
    """

    register: int
    web: int
    source: str
    uses: int
    is_gone: bool
    loop_depth: int
    words: int = 1


@dataclass(frozen=True)
class Folding:
    """An edit: words to put in place of others, and what that does.

    `by_register`: values, by their first web, whose uniform registers are named.
    """

    replace: Mapping[int, Word] = field(default_factory=dict[int, Word])
    values: tuple[Folded, ...] = ()
    by_register: frozenset[int] = frozenset()


def folding(
    program: Program,
    folds: Folds,
    values: Iterable[tuple[Sequence[Web], frozenset[int]]],
    uniform: Mapping[int, int],
) -> Folding:
    """The edit that folds some uses of each of `values` (webs, uses).

    `uniform`: the first uniform register of values that have one, by their first web.
    """
    code = program.code
    words: dict[int, Word] = {}
    told: list[Folded] = []
    by_register: set[int] = set()
    depth = loop_depth(program)
    wanted = [(parts, uses) for parts, uses in values if uses]
    for parts, uses in wanted:
        first = parts[0].index
        sources: set[str] = set()
        for i in sorted(uses):
            fold = folds.by_instruction[i]
            source = fold.source or Source("uniform", uniform[first])
            word = with_source(code.table, code.word(i), fold.bit, source)
            assert word is not None
            words[i] = word
            sources.add(str(source))
            if fold.source is None:
                by_register.add(first)
        deepest = max(depth[int(program.block_of[i])] for i in uses)
        name = ", ".join(sorted(sources))
        told.append(Folded(parts[0].register, first, name, len(uses), False, deepest, len(parts)))
    return Folding(words, tuple(told), frozenset(by_register))


def removed(
    program: Program,
    webs: Webs,
    served: Mapping[int, Collection[int]],
    words: Mapping[int, Word],
) -> tuple[dict[int, Word], frozenset[int]]:
    """Takes out definitions that nobody needs: (words to replace, instructions to delete).

    `served`: for webs with one definition that may go, the uses that do without it. `words` are
    replaced already. What stays as a NOP is among the words.
    """
    definitions = {webs.webs[web].writes[0] for web in served}
    needed = {
        i
        for web in webs.webs
        for i in definitions.intersection(web.writes)
        if not set(web.reads).issubset(served.get(web.index, ()))
    }
    return _without(program, definitions - needed, words)


def _without(
    program: Program, gone: Iterable[int], words: Mapping[int, Word]
) -> tuple[dict[int, Word], frozenset[int]]:
    """Takes the instructions `gone` out; `words` are replaced already.

    The stall goes to the instruction in front, the waits to the one behind.
    """
    new = dict(words)
    delete: set[int] = set()

    def control(i: int) -> ControlWord:
        return get_control(new[i][1] if i in new else program.code.word(i)[1])

    def put(i: int, to: ControlWord) -> None:
        lo, hi = new[i] if i in new else program.code.word(i)
        new[i] = lo, set_control(hi, to)

    for i in sorted(gone):
        block = program.blocks[int(program.block_of[i])]
        mine = control(i)
        front = i - 1
        while front in delete:
            front -= 1
        behind = i + 1
        if front >= block.start and behind < block.end:
            before = control(front)
            stall = before.stall + max(1, mine.stall)
            most = _LONGEST_REUSE_STALL if before.reuse else MAX_STALL
            if stall <= most:
                after = control(behind)
                put(front, replace(before, stall=stall))
                put(behind, replace(after, wait_mask=after.wait_mask | mine.wait_mask))
                delete.add(i)
                continue
        lo, hi = nop(mine.stall)
        waits = ControlWord(mine.stall, mine.yield_bit, wait_mask=mine.wait_mask)
        new[i] = lo, set_control(hi, waits)
    return new, frozenset(delete)
