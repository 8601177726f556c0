"""The exact solver: legal answers, never worse than greedy, and proofs against brute force."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from regdem.analysis.exact import exact_bound, exact_fit, is_available
from regdem.analysis.interference import Interference, colour, fit, interference
from regdem.analysis.liveness import liveness
from regdem.analysis.webs import Group, Web, Webs, webs
from regdem.binary import Cubin
from regdem.program.from_kernel import program_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytestmark = pytest.mark.skipif(not is_available(), reason="OR-tools is not installed")


def made(*values: tuple[int, int, int, int]) -> Interference:
    """Values as (width, first register, first point, last point)."""
    found: list[Web] = []
    groups: list[Group] = []
    for width, register, first, last in values:
        points = ((1 << (last - first + 1)) - 1) << first
        members = tuple(range(len(found), len(found) + width))
        for k in range(width):
            web = Web(len(found), register + k, points, [last], [first])
            web.group = len(groups)
            found.append(web)
        groups.append(Group(members, width, register, register + width - 1))
    return interference(Webs(tuple(found), tuple(groups), {}))


def brute_force(graph: Interference, registers: int) -> bool:
    groups = graph.webs.groups
    places = [range(0, registers - len(g.webs) + 1, g.alignment) for g in groups]
    for choice in product(*places):
        register_of = {
            w: at + k for at, g in zip(choice, groups, strict=True) for k, w in enumerate(g.webs)
        }
        if all(register_of[a] != register_of[b] for a, b in graph.edge_list()):
            return True
    return False


def fragmented(seed: int) -> Interference:
    """Pairs and singles that begin and end in an order that breaks pairs up."""
    values: list[tuple[int, int, int, int]] = []
    state = seed
    register = 2
    for _ in range(6):
        state = (state * 1103515245 + 12345) % (1 << 31)
        width = 1 + (state >> 8) % 2
        first = (state >> 12) % 12
        length = 3 + (state >> 18) % 10
        register += register % width
        values.append((width, register, first, first + length))
        register += width
    return made(*values)


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_brute_force(seed: int) -> None:
    graph = fragmented(seed)
    for registers in range(graph.clique, graph.clique + 3):
        answer = exact_fit(graph, registers)
        assert answer.fits == brute_force(graph, registers)
        assert answer.proved
    bound = exact_bound(graph, colour(graph).colours)
    assert bound.proved
    assert graph.clique <= bound.high <= colour(graph).colours
    assert brute_force(graph, bound.high)
    assert not brute_force(graph, bound.high - 1)


def test_fewest_values_stand_in_the_way() -> None:
    """Three short values against one long one: taking the long one away is the least."""
    graph = made((1, 2, 0, 30), (1, 3, 0, 8), (1, 4, 10, 18), (1, 5, 20, 28))
    answer = exact_fit(graph, 1)
    assert answer.fits is False
    assert answer.in_the_way == (0,)
    assert len(fit(graph, 1).in_the_way) >= 1


def test_pairs_need_more_than_their_number() -> None:
    """R1 is the stack pointer's, so a pair beside it and nothing else leaves R0 empty."""
    graph = made((1, 1, 0, 20), (2, 2, 0, 20), (2, 4, 0, 20))
    bound = exact_bound(graph, colour(graph).colours)
    assert (graph.clique, bound.low, bound.high) == (5, 6, 6)


def test_a_real_kernel() -> None:
    data = (EXAMPLES / "unroll" / "variance_rolled.cubin").read_bytes()
    (kernel,) = Cubin.parse(data).kernels
    program = program_of(kernel)
    graph = interference(webs(program, liveness(program)))
    greedy = colour(graph).colours
    bound = exact_bound(graph, greedy)
    assert bound.proved
    assert graph.clique <= bound.high <= greedy
    answer = exact_fit(graph, graph.clique - 2)
    assert answer.fits is False
    assert 2 <= len(answer.in_the_way) <= len(fit(graph, graph.clique - 2).in_the_way)
