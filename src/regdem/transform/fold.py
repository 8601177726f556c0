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

A definition whose results nobody reads any more goes. The instruction in front of it takes over its
stall and the one behind it its waits, so that no distance between others shrinks; where either
stands in another block, it stays as a NOP.

Not folded: return addresses and other values of device functions; immediates into operands with a
sign; what is defined in several places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regdem.analysis.webs import STACK_POINTER, Web, Webs
from regdem.isa.control import MAX_STALL, ControlWord, get_control, set_control
from regdem.isa.decoded import IMPLICIT, RegisterFile, Role
from regdem.isa.encode import Word, nop
from regdem.isa.sources import Source, constant_sources, with_source
from regdem.program.loops import loop_depth
from regdem.program.program import Program

_LONGEST_REUSE_STALL = 11
"""Reuse flags need a stall count of at most that."""


@dataclass(frozen=True)
class Fold:
    """One operand to replace: instruction, new word, what it names, and the webs it then spares."""

    instruction: int
    word: Word
    source: Source
    webs: tuple[int, ...]


@dataclass(frozen=True)
class Folds:
    """All operands that may name a constant, no more than one an instruction."""

    by_instruction: Mapping[int, Fold] = field(default_factory=dict[int, Fold])

    def uses_of(self, web: Web) -> frozenset[int]:
        """Uses of `web` that need no register then."""
        folds = self.by_instruction
        return frozenset(i for i in web.reads if i in folds and web.index in folds[i].webs)


def constant_folds(program: Program, webs: Webs) -> Folds:
    """What could be folded, constants moved by one instruction each."""
    held = _constants(program, webs)
    return _folds(program, webs, held.get) if held else Folds()


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


def _folds(program: Program, webs: Webs, held: Callable[[int], Source | None]) -> Folds:
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
        source = _together([held(web) for web in named])
        if source is None or _reads_besides(program, webs, row, named):
            continue
        word = with_source(code.table, code.word(i), bits[row], source)
        if word is not None:
            result[i] = Fold(i, word, source, tuple(named))
    return Folds(result)


def _together(parts: list[Source | None]) -> Source | None:
    """One source for a register or an aligned pair; None where the halves are not neighbours."""
    first = parts[0]
    if first is None or len(parts) > 2:
        return None
    if len(parts) == 1:
        return first
    step = {"constant": 4, "uniform": 1, "immediate": 0}[first.kind]
    if not step or first.value % (2 * step):
        return None
    return first if parts[1] == replace(first, value=first.value + step) else None


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
    """An edit: words to put in place of others, instructions that go, and what that does."""

    replace: Mapping[int, Word] = field(default_factory=dict[int, Word])
    delete: frozenset[int] = frozenset()
    values: tuple[Folded, ...] = ()


def folding(
    program: Program,
    webs: Webs,
    folds: Folds,
    values: Iterable[tuple[Sequence[Web], frozenset[int]]],
) -> Folding:
    """The edit that folds some uses of each of `values` (webs, uses)."""
    wanted = [(parts, uses) for parts, uses in values if uses]
    if not wanted:
        return Folding()
    by_instruction = {i: folds.by_instruction[i] for _, uses in wanted for i in uses}
    definitions = {parts[0].writes[0] for parts, _ in wanted}
    gone = _unread(webs, by_instruction, definitions)
    words = {i: fold.word for i, fold in by_instruction.items()}
    depth = loop_depth(program)
    told = tuple(
        Folded(
            parts[0].register,
            parts[0].index,
            str(by_instruction[min(uses)].source),
            len(uses),
            parts[0].writes[0] in gone,
            max(depth[int(program.block_of[i])] for i in uses),
            len(parts),
        )
        for parts, uses in wanted
    )
    new, delete = _without(program, gone, words)
    return Folding(new, delete, told)


def _unread(webs: Webs, folded: Mapping[int, Fold], definitions: set[int]) -> set[int]:
    """Those of `definitions` whose results nobody reads once the instructions are folded."""
    alive = {
        i
        for web in webs.webs
        for i in definitions.intersection(web.writes)
        if any(u not in folded or web.index not in folded[u].webs for u in web.reads)
    }
    return definitions - alive


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
