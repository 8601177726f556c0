"""Does a kernel fit a register count, and if not, which values stand in the way?

The question is put to the interference graph; no code is changed. With OR-tools the answer is exact
within a limit of seconds.
"""

from __future__ import annotations

from typing import Any

from regdem.analysis.exact import exact_bound, exact_fit
from regdem.analysis.interference import Interference, colour, fit, interference
from regdem.analysis.liveness import liveness
from regdem.analysis.webs import Web, webs
from regdem.binary.kernel import Kernel
from regdem.errors import UnsupportedError, UsageError
from regdem.isa.decoded import INSTRUCTION_BYTES
from regdem.program.from_kernel import program_of
from regdem.report.inspection import ALLOCATION_EXTRA

SHOWN_VALUES = 12
"""So many values in the way are named in the text; the JSON has all."""


def fits(
    kernel: Kernel, registers: int, exact_seconds: float | None = None
) -> dict[str, Any] | None:
    """The answer as its JSON form; None for a kernel that is not understood.

    `fits` true is certain (a colouring was found); false with `certain` true as well (more values
    need registers of their own at one point, or the exact solver proved it); false and not certain:
    none was found. exact_seconds: the limit of the exact solver, which then answers; None: greedy
    orders only. `live_at_once` counts the values at that point: a result may take the register of
    an operand that is read for the last time, so it is at most `max_live`, which counts both.
    `fewest` says that no smaller set of values in the way exists.
    """
    if not ALLOCATION_EXTRA < registers <= 255:
        raise UsageError(f"--fits {registers}: legal are {ALLOCATION_EXTRA + 1} to 255")
    try:
        graph = _graph(kernel)
    except UnsupportedError:
        return None
    split = graph.webs
    usable = registers - ALLOCATION_EXTRA
    if exact_seconds is None:
        greedy = fit(graph, usable)
        found, left, fewest = greedy.fits, greedy.in_the_way, greedy.fits
        certain = found or graph.clique > usable
    else:
        answer = exact_fit(graph, usable, exact_seconds)
        found, left, fewest = bool(answer.fits), answer.in_the_way, answer.proved
        certain = answer.fits is not None
    return {
        "registers": registers,
        "fits": found,
        "certain": certain,
        "method": "greedy" if exact_seconds is None else "exact",
        "live_at_once": graph.clique,
        "usable": usable,
        "fewest": fewest,
        "in_the_way": [_value(split.webs[w]) for w in left],
    }


def exact(kernel: Kernel, seconds: float) -> dict[str, Any] | None:
    """The least count of registers by the exact solver; None for a kernel not understood."""
    try:
        graph = _graph(kernel)
    except UnsupportedError:
        return None
    greedy = colour(graph).colours
    bound = exact_bound(graph, greedy, seconds)
    return {
        "registers_at_least": bound.low + ALLOCATION_EXTRA,
        "registers_suffice": bound.high + ALLOCATION_EXTRA,
        "registers_greedy": greedy + ALLOCATION_EXTRA,
        "proved": bound.proved,
    }


def _graph(kernel: Kernel) -> Interference:
    program = program_of(kernel)
    return interference(webs(program, liveness(program)))


def _value(web: Web) -> dict[str, Any]:
    return {
        "register": web.register,
        "definitions": [INSTRUCTION_BYTES * i for i in sorted(set(web.writes))],
        "uses": [INSTRUCTION_BYTES * i for i in sorted(set(web.reads))],
    }


def fits_text(answer: dict[str, Any]) -> str:
    """The answer in words; ends in a newline."""
    head = f"  fits {answer['registers']}?     "
    if answer["fits"]:
        return head + "yes, by renumbering alone\n"
    names = ", ".join(
        f"R{value['register']} (from 0x{min(value['definitions'], default=0):04x})"
        for value in answer["in_the_way"][:SHOWN_VALUES]
    )
    if answer["live_at_once"] > answer["usable"]:
        live, usable = answer["live_at_once"], answer["usable"]
        why = f"{live} values need registers of their own at one point, {usable} are usable"
    elif answer["certain"]:
        why = "no colouring exists"
    else:
        why = "no colouring was found"
    count = len(answer["in_the_way"])
    fewest = "at least " if answer["fewest"] else ""
    values = f"{count} value{'s' if count != 1 else ''}"
    more = f", … and {count - SHOWN_VALUES} more" if count > SHOWN_VALUES else ""
    return f"{head}no: {why}; in the way: {fewest}{values}: {names}{more}\n"


def exact_text(answer: dict[str, Any]) -> str:
    """The least count in words; ends in a newline."""
    low, high = answer["registers_at_least"], answer["registers_suffice"]
    if answer["proved"]:
        found = f"{high} registers are the least (proved)"
    else:
        found = f"between {low} and {high} registers (the solver's limit was reached)"
    return f"  exact        {found}; greedy colouring {answer['registers_greedy']}\n"


def interference_dot(kernel: Kernel) -> str:
    """The interference graph in DOT. Raises UnsupportedError for code not understood."""
    graph = _graph(kernel)
    names = {
        web.index: f"R{web.register} 0x{INSTRUCTION_BYTES * min(web.writes):x}"
        for web in graph.webs.webs
        if web.writes
    }
    return graph.to_dot(names)


def interference_json(kernel: Kernel) -> dict[str, Any]:
    """The interference graph: nodes (a value each) and edges as pairs of node numbers."""
    graph = _graph(kernel)
    return {
        "nodes": [
            {"web": w, "group": graph.webs.webs[w].group, **_value(graph.webs.webs[w])}
            for w in graph.nodes
        ],
        "edges": [list(pair) for pair in graph.edge_list()],
        "tuples": [
            {"webs": list(group.webs), "alignment": group.alignment}
            for group in graph.webs.groups
            if len(group.webs) > 1
        ],
    }
