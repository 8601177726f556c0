"""The check of one rewritten kernel against its original: the phases, in order.

    bytes -> views -> flow and graph of each -> slots -> alignment -> product -> dataflow
                                                  or new order ^
                                                     layout, hazards

Everything is read from the bytes of the two kernels; no hint of who rewrote what is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from regdem.binary.kernel import Kernel
from regdem.check.attributes import KINDS as ATTRIBUTE_KINDS
from regdem.check.expressions import Expressions
from regdem.check.findings import Check, Finding, Verdict, verdict_of
from regdem.check.flow import flow_of
from regdem.check.graph import Graph, build_graph
from regdem.check.hazards import hazard_findings
from regdem.check.layout import LayoutInput, check_layout, shapes_of
from regdem.check.proof import check_dataflow
from regdem.check.returns import return_addresses
from regdem.check.slots import SlotMap
from regdem.check.subject import Program, add_further_words, memory_words, slots_of, tables_of
from regdem.check.view import CodeView, view_of
from regdem.errors import UnsupportedError

SUPPORTED = ("sm_90",)
_TOO_CLOSE = re.compile(r"issues (\d+) cycles after \S+ at 0x([0-9a-f]+),")


def check_pair(
    original: Kernel,
    rewritten: Kernel,
    arch: str = "sm_90",
    *,
    threads: int | tuple[int, int, int] | None = None,
    dynamic_shared_bytes: int | None = None,
    hazards: bool = True,
) -> Verdict:
    """Prove that `rewritten` does what `original` does, and has no hazard.

    `threads` is the launch's block (a count for any shape of so many threads at most); without
    it the kernel's own launch bounds count. `dynamic_shared_bytes` is the launch's dynamic shared
    memory; without it, any size. What can't be checked is a finding.
    """
    if arch not in SUPPORTED:
        raise UnsupportedError(f"the checker does not know {arch}", hint="it knows sm_90")
    name = rewritten.name
    shapes, assumption = shapes_of(rewritten, threads)
    dynamic = _dynamic(original, dynamic_shared_bytes)
    expressions = Expressions()
    try:
        first, second = Program(original, arch), Program(rewritten, arch)
        accesses, slots = slots_of(first, second, expressions, shapes, dynamic)
        add_further_words(first, second, slots)
        returns = (
            return_addresses(first.view, first.graph, memory_words(first, SlotMap())),
            return_addresses(second.view, second.graph, memory_words(second, slots)),
        )
    except UnsupportedError as error:
        offset = -1 if error.offset is None else error.offset
        finding = Finding(error.code, name, offset, error.message)
        return Verdict(name, (finding,), {"dataflow": "failed"})
    flow_findings, pairs = check_dataflow(first, second, slots, returns)
    layout = check_layout(
        LayoutInput(
            original,
            rewritten,
            first.view,
            second.view,
            accesses,
            expressions,
            shapes,
            dynamic,
        )
    )
    layout += [finding for finding in flow_findings if finding.kind in ATTRIBUTE_KINDS]
    flow_findings = [f for f in flow_findings if f.kind not in ATTRIBUTE_KINDS]
    results: dict[Check, Iterable[Finding]] = {"dataflow": flow_findings, "layout": layout}
    if hazards:
        found = hazard_findings(second.view, second.graph)
        results["hazards"] = _new_hazards(first, found, pairs) if found else found
    return verdict_of(name, results, [assumption] if accesses and assumption else [])


def check_hazards(kernel: Kernel, arch: str = "sm_90") -> list[Finding]:
    """Hazards of one kernel on its own, in code order.

    Raises `UnsupportedError` where the kernel has an instruction or control flow that is not
    understood.
    """
    view, graph = _alone(kernel, arch)
    return hazard_findings(view, graph, arch)


def check_alone(kernel: Kernel, arch: str = "sm_90") -> Verdict:
    """`check_hazards` as a verdict; what is not understood is a finding."""
    try:
        findings = check_hazards(kernel, arch)
    except UnsupportedError as error:
        offset = -1 if error.offset is None else error.offset
        findings = [Finding(error.code, kernel.name, offset, error.message)]
    return verdict_of(kernel.name, {"hazards": findings})


def _alone(kernel: Kernel, arch: str) -> tuple[CodeView, Graph]:
    if arch not in SUPPORTED:
        raise UnsupportedError(f"the checker does not know {arch}", hint="it knows sm_90")
    view = view_of(kernel.name, kernel.code, arch)
    return view, build_graph(flow_of(view, tables_of(kernel)))


def _dynamic(original: Kernel, given: int | None) -> int | None:
    if given is None and original.uses_dynamic_shared is False:
        return 0
    return given


def _new_hazards(
    first: Program, findings: list[Finding], pairs: list[tuple[int, int]]
) -> list[Finding]:
    """The hazards that the original doesn't have.

    The bounds are mined, and rare code of the vendor's own is closer than any they were mined
    from. Where the same two instructions depend on each other in the original, no farther apart,
    the rewritten program is as safe as its original.
    """
    original = {j: i for i, j in pairs}
    known: dict[tuple[str, int, int], int] = {}
    for finding in hazard_findings(first.view, first.graph):
        distance = _distance(finding)
        if distance is not None:
            producer, consumer, cycles = distance
            known[finding.kind, producer, consumer] = cycles
    left: list[Finding] = []
    for finding in findings:
        distance = _distance(finding)
        if distance is not None:
            producer, consumer, cycles = distance
            key = (finding.kind, original.get(producer, -1), original.get(consumer, -1))
            if key in known and cycles >= known[key]:
                continue
        left.append(finding)
    return left


def _distance(finding: Finding) -> tuple[int, int, int] | None:
    """(producer, consumer, cycles between them) of a finding about a fixed latency."""
    told = _TOO_CLOSE.search(finding.message)
    if told is None or finding.kind not in ("raw", "waw", "war"):
        return None
    return int(told[2], 16) // 16, finding.offset // 16, int(told[1])
