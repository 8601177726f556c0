"""Small programs for the tests of control bits: words, and the checker's view of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regdem.check.findings import Finding
from regdem.check.flow import flow_of
from regdem.check.graph import build_graph
from regdem.check.hazards import hazard_findings
from regdem.check.view import view_of
from regdem.isa.control import ControlWord, get_control, set_control
from regdem.isa.decode import decode
from regdem.isa.encode import Word
from regdem.isa.fields import set_displacement, set_field
from regdem.isa.table import table_for
from regdem.program.program import Program, build
from regdem.transform.hazards import repair

EXIT: Word = (0x000000000000794D, 0x000FEA0003800000)
NO_SCOREBOARD = 7
_LDG: Word = (0x0000000402027981, 0x000EA8000C1E1B00)
"""`LDG.E.64.CONSTANT R2, desc[UR4][R2.64]`, as ptxas writes it for a 64-bit pointer."""
_SIZES = {4: 4, 8: 5, 16: 6}
_SIZE_BIT = 73


def ldg(rd: int, ra: int, size: int = 4, **control: int) -> Word:
    """A global load of 4, 8 or 16 bytes; `control` are fields of its `ControlWord`."""
    lo, hi = set_field(*_LDG, 16, 8, rd)
    lo, hi = set_field(lo, hi, 24, 8, ra)
    lo, hi = set_field(lo, hi, _SIZE_BIT, 3, _SIZES[size])
    return with_control((lo, hi), **control)


def branch(instructions: int, predicate: int = 7) -> Word:
    """`@Pn BRA`, relative to the next instruction."""
    word: Word = (0x0000000000000947, 0x000FEA0003800000)
    displacement = table_for("sm_90").forms[int(decode(to_bytes([word])).form[0])].displacement
    assert displacement is not None
    lo, hi = set_displacement(*word, displacement, 16 * instructions)
    return set_field(lo, hi, 12, 3, predicate)


def depbar(scoreboard: int, count: int) -> Word:
    """`DEPBAR.LE SBn, count`."""
    return 0x0000_8000_0000_791A | scoreboard << 44 | count << 38, 0x000FC80000000000


def with_control(word: Word, **fields: int) -> Word:
    """The word with an idle control word but for the fields given."""
    return word[0], set_control(word[1], replace(ControlWord(), **fields))


def program(words: Sequence[Word]) -> Program:
    return build("k", decode(to_bytes(words)))


def to_bytes(words: Sequence[Word]) -> bytes:
    return b"".join(half.to_bytes(8, "little") for word in words for half in word)


def repaired(words: Sequence[Word], inserted: Sequence[int] = ()) -> list[ControlWord]:
    """The control words after `repair`, with the instructions of `inserted` new.

    The checker must have nothing to say about the result.
    """
    done = repair(program(words), [i in inserted for i in range(len(words))])
    assert [w[0] for w in done] == [w[0] for w in words]
    assert findings(done) == []
    return [get_control(hi) for _, hi in done]


def findings(words: Sequence[Word]) -> list[Finding]:
    """What the checker has to say about the hazards of a program."""
    view = view_of("k", to_bytes(words), "sm_90")
    return hazard_findings(view, build_graph(flow_of(view, [])))


def kinds(words: Sequence[Word]) -> set[str]:
    return {finding.kind for finding in findings(words)}
