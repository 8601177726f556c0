"""Colourings are legal, whatever the graph; the bound holds."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regdem.analysis.interference import (
    Interference,
    as_allocated,
    colour,
    fit,
    interference,
    intervals,
)
from regdem.analysis.liveness import liveness
from regdem.analysis.webs import Group, Web, Webs, webs
from regdem.binary import Cubin
from regdem.program.from_kernel import program_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@st.composite
def random_webs(draw: st.DrawFn) -> Webs:
    """Single registers and aligned pairs with random live intervals, in registers of their own."""
    found: list[Web] = []
    groups: list[Group] = []
    register = 2
    for _ in range(draw(st.integers(1, 14))):
        width = draw(st.sampled_from([1, 1, 2, 4]))
        register = -(-register // width) * width
        first = draw(st.integers(0, 40))
        length = draw(st.integers(1, 12))
        members: list[int] = []
        for k in range(width):
            web = Web(len(found), register + k, ((1 << length) - 1) << first, [first], [first])
            web.group = len(groups)
            members.append(web.index)
            found.append(web)
        groups.append(Group(tuple(members), width, register, register + width - 1))
        register += width
    return Webs(tuple(found), tuple(groups), {})


def check_legal(graph: Interference, register_of: dict[int, int]) -> None:
    for a, b in graph.edge_list():
        assert register_of[a] != register_of[b]
    for group in graph.webs.groups:
        placed = [w for w in group.webs if w in register_of]
        shifts = {register_of[w] - graph.webs.webs[w].register for w in placed}
        assert len(shifts) <= 1, "a tuple keeps its distances"
        assert all(shift % group.alignment == 0 for shift in shifts)


@given(random_webs())
def test_random_colourings_are_legal(split: Webs) -> None:
    graph = interference(split)
    for a in graph.nodes:
        for b in graph.nodes:
            overlap = bool(split.webs[a].points & split.webs[b].points)
            assert (b in graph.neighbours[a]) == (overlap and a != b)
    found = colour(graph)
    check_legal(graph, found.register_of)
    assert graph.clique <= found.colours <= as_allocated(graph).colours
    assert found.colours == max(found.register_of.values()) + 1
    assert fit(graph, found.colours).fits
    too_few = fit(graph, graph.clique - 1)
    assert not too_few.fits
    assert too_few.in_the_way


@given(st.integers(0, (1 << 70) - 1))
def test_intervals_are_the_runs_of_bits(points: int) -> None:
    runs = intervals(points)
    assert sum(((1 << (last - first + 1)) - 1) << first for first, last in runs) == points
    assert all(a[1] + 1 < b[0] for a, b in pairwise(runs))


@pytest.mark.parametrize("name", ["neighbour/neighbour", "unroll/variance_unrolled"])
def test_real_kernels(name: str) -> None:
    (kernel,) = Cubin.parse((EXAMPLES / f"{name}.cubin").read_bytes()).kernels
    program = program_of(kernel)
    graph = interference(webs(program, liveness(program)))
    found = colour(graph)
    check_legal(graph, found.register_of)
    assert found.colours + 2 <= kernel.registers_per_thread
    assert all(
        register == 1
        for web, register in found.register_of.items()
        if graph.webs.webs[web].register == 1
    )
    assert graph.to_dot().count(" -- ") == graph.edges
