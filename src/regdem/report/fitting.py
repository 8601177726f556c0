"""Does a kernel fit a register count, and if not, which values stand in the way?

The question is put to the interference graph; no code is changed.
"""

from __future__ import annotations

from typing import Any

from regdem.analysis.interference import fit, interference
from regdem.analysis.liveness import liveness
from regdem.analysis.webs import webs
from regdem.binary.kernel import Kernel
from regdem.errors import UnsupportedError, UsageError
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.program.from_kernel import program_of
from regdem.report.inspection import ALLOCATION_EXTRA


def fits(kernel: Kernel, registers: int) -> dict[str, Any] | None:
    """The answer as its JSON form; None for a kernel that is not understood.

    `fits` true is certain (a colouring was found); false with `certain` true as well (more values
    are live at one point); false and not certain: the heuristic found none.
    """
    if not ALLOCATION_EXTRA < registers <= 255:
        raise UsageError(f"--fits {registers}: legal are {ALLOCATION_EXTRA + 1} to 255")
    try:
        program = program_of(kernel)
    except UnsupportedError:
        return None
    split = webs(program, liveness(program))
    graph = interference(split)
    usable = registers - ALLOCATION_EXTRA
    answer = fit(graph, usable)
    most = graph.clique
    return {
        "registers": registers,
        "fits": answer.fits,
        "certain": answer.fits or most > usable,
        "live_at_once": most,
        "usable": usable,
        "in_the_way": [
            {
                "register": split.webs[w].register,
                "definitions": [INSTRUCTION_BYTES * i for i in sorted(set(split.webs[w].writes))],
                "uses": [INSTRUCTION_BYTES * i for i in sorted(set(split.webs[w].reads))],
            }
            for w in answer.in_the_way
        ],
    }


def fits_text(answer: dict[str, Any]) -> str:
    """The answer in words; ends in a newline."""
    head = f"  fits {answer['registers']}?     "
    if answer["fits"]:
        return head + "yes, by renumbering alone\n"
    names = ", ".join(
        f"R{value['register']} (from 0x{min(value['definitions'], default=0):04x})"
        for value in answer["in_the_way"][:12]
    )
    why = (
        f"{answer['live_at_once']} registers are live at one point, {answer['usable']} are usable"
        if answer["certain"]
        else "no colouring was found"
    )
    return f"{head}no: {why}; in the way: {names}\n"


def interference_dot(kernel: Kernel) -> str:
    """The interference graph in DOT. Raises UnsupportedError for code not understood."""
    program = program_of(kernel)
    split = webs(program, liveness(program))
    names = {
        web.index: f"R{web.register} 0x{INSTRUCTION_BYTES * min(web.writes):x}"
        for web in split.webs
        if web.writes
    }
    return interference(split).to_dot(names)
