"""The check of one rewritten kernel against its original: the phases, in order.

    bytes -> views -> flow and graph of each -> slots -> alignment -> product -> dataflow
                                                  or new order ^
                                                     layout, hazards

Everything is read from the bytes of the two kernels; no hint of who rewrote what is taken.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, replace

from regdem.binary.kernel import Kernel
from regdem.check.align import Alignment, Side, align
from regdem.check.attributes import KINDS as ATTRIBUTE_KINDS
from regdem.check.attributes import Moved, attribute_findings
from regdem.check.dataflow import DataflowCheck, Programs, may_be_dropped, may_be_inserted
from regdem.check.expressions import BlockShape, Expressions
from regdem.check.findings import Check, Finding, Verdict, verdict_of
from regdem.check.flow import BranchTable, flow_of
from regdem.check.graph import Graph, StepFlow, build_graph
from regdem.check.hazards import hazard_findings
from regdem.check.layout import NAMING_SIZE, WINDOW_START, LayoutInput, check_layout, shapes_of
from regdem.check.locals import frame_words, further_words, key_at, located, private_words
from regdem.check.matching import Text
from regdem.check.operands import Unfolded, unfolded
from regdem.check.places import FILE_BASE, MEMORY_BASE
from regdem.check.product import Product, build_product
from regdem.check.reorder import Reordered, in_order, reorder, seems_reordered
from regdem.check.returns import ReturnAddresses, return_addresses
from regdem.check.slots import SharedAccess, SlotMap, shared_accesses, slot_accesses
from regdem.check.uniform import keeps_in, new_registers, reads_new, uniform_findings
from regdem.check.view import CodeView, view_of
from regdem.errors import UnsupportedError

SUPPORTED = ("sm_90",)
_IN_FRAME = -1
"""In place of an address expression: the slot is a word of the stack frame."""
_TOO_CLOSE = re.compile(r"issues (\d+) cycles after \S+ at 0x([0-9a-f]+),")


class Program:
    """One kernel with what is known of it alone."""

    def __init__(self, kernel: Kernel, arch: str) -> None:
        self.kernel = kernel
        self.view: CodeView = view_of(kernel.name, kernel.code, arch)
        self.code: CodeView = self.view
        """As the bytes are; in `view`, operands may be in another form (`operands.py`)."""
        self.flow: StepFlow = flow_of(self.view, _tables(kernel))
        self.graph: Graph = build_graph(self.flow)

    def seen_as(self, view: CodeView) -> Program:
        """The same program in another form."""
        if view is self.view:
            return self
        other = copy.copy(self)
        other.view = view
        return other


_Returns = tuple[ReturnAddresses, ReturnAddresses]


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
        accesses, slots = _slots(first, second, expressions, shapes, dynamic)
        _add_further_words(first, second, slots)
        returns = (
            return_addresses(first.view, first.graph, _memory_words(first, SlotMap())),
            return_addresses(second.view, second.graph, _memory_words(second, slots)),
        )
    except UnsupportedError as error:
        offset = -1 if error.offset is None else error.offset
        finding = Finding(error.code, name, offset, error.message)
        return Verdict(name, (finding,), {"dataflow": "failed"})
    flow_findings, pairs = _check_dataflow(first, second, slots, returns)
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
    return view, build_graph(flow_of(view, _tables(kernel)))


def _tables(kernel: Kernel) -> list[BranchTable]:
    return [
        BranchTable(table.offset // 16, tuple(target // 16 for target in table.targets))
        for table in kernel.branch_tables
    ]


def _dynamic(original: Kernel, given: int | None) -> int | None:
    if given is None and original.uses_dynamic_shared is False:
        return 0
    return given


def _slots(
    first: Program,
    second: Program,
    expressions: Expressions,
    shapes: list[BlockShape],
    dynamic: int | None,
) -> tuple[list[SharedAccess], SlotMap]:
    """Accesses to slots: those beyond anything the original's own accesses may reach.

    Where the size of dynamic shared memory is open, it is taken to be larger than any can be, so
    that only accesses that follow it lie beyond; failing those, none is assumed.
    """
    if not shapes:
        return [], SlotMap()
    accesses = shared_accesses(second.view, second.graph, expressions)
    for size in (NAMING_SIZE, 0) if dynamic is None else (dynamic,):
        slots = slot_accesses(
            accesses,
            expressions,
            replace(shapes[0], dynamic_shared_bytes=size),
            WINDOW_START + first.kernel.static_shared_bytes + size,
            WINDOW_START + second.kernel.static_shared_bytes + size,
        )
        if slots.words:
            return [access for access in accesses if access.instruction in slots.words], slots
    return [], SlotMap()


def _add_further_words(first: Program, second: Program, slots: SlotMap) -> None:
    """Slots in what the stack frame grew by, where nothing of the original is."""
    end, lowest = -first.kernel.local_bytes, -second.kernel.local_bytes
    reached = frame_words(first.view, first.graph).place
    if lowest >= end or min(reached.values(), default=end) < end:
        return
    numbers: dict[int, int] = {}
    frame = frame_words(second.view, second.graph)
    for access, places in further_words(frame, lowest, end).items():
        for place in places:
            if place not in numbers:
                numbers[place] = len(slots.keys)
                slots.keys.append((_IN_FRAME, place))
        slots.words[access] = tuple(numbers[place] for place in places)


def _memory_words(program: Program, slots: SlotMap) -> dict[int, tuple[int, ...]]:
    """Accesses to slots and to private words of the frame, each word with a number of its own."""
    words = dict(slots.words)
    for i, local in private_words(program.view, program.graph).items():
        words[i] = tuple(len(slots.keys) + word - MEMORY_BASE for word in local)
    return words


def _check_dataflow(
    first: Program, second: Program, slots: SlotMap, returns: _Returns
) -> tuple[list[Finding], list[tuple[int, int]]]:
    """Findings, and the matched instructions. Any matching that is proved will do."""
    addresses = (_addresses(first, returns[0]), _addresses(second, returns[1]))
    folds = unfolded(first.view, second.view, addresses[0])
    first, second = first.seen_as(folds.original), second.seen_as(folds.rewritten)
    texts = _texts(first, second, slots, returns, folds, addresses)
    attempt = None
    if seems_reordered(texts.first, texts.second):
        attempt = _prove_reordered(first, second, returns, texts)
        if attempt is not None and not attempt[0]:
            return attempt
    findings, pairs = _prove(first, second, returns, texts, late_entry=False)
    if not findings:
        return findings, pairs
    if pairs:
        again, others = _prove(first, second, returns, texts, late_entry=True)
        if not again:
            return again, others
    if attempt is not None:
        return attempt
    attempt = _prove_reordered(first, second, returns, texts)
    if attempt is not None and (not attempt[0] or not pairs):
        return attempt
    return findings, pairs


@dataclass(frozen=True)
class _Texts:
    """Both programs as they are matched, and what was found out for it.

    `new` are the uniform registers that the rewritten program took into use, `located` the
    original's accesses to the frame that have partners with an equal address. `folds` says which
    operands are in another form, `addresses` which instructions of each have an immediate that is
    an address.
    """

    first: Text
    second: Text
    new: frozenset[int]
    located: frozenset[int]
    folds: Unfolded
    addresses: tuple[frozenset[int], frozenset[int]]


def _addresses(program: Program, returns: ReturnAddresses) -> frozenset[int]:
    """Instructions whose immediates stand for places in the code or for symbols."""
    relocated = (relocation.offset // 16 for relocation in program.kernel.relocations)
    return frozenset((*relocated, *returns.call_of))


def _texts(
    first: Program,
    second: Program,
    slots: SlotMap,
    returns: _Returns,
    folds: Unfolded,
    addresses: tuple[frozenset[int], frozenset[int]],
) -> _Texts:
    promoted = _promoted(first, second, slots)
    new = new_registers(first.view, second.view)
    places = located(*(frame_words(each.view, each.graph) for each in (first, second)))
    return _Texts(
        Text(
            first.view,
            _keys(first, returns[0], {}, places[0]),
            _anchors_of_original(first, returns[0], promoted),
            private_words(first.view, first.graph),
        ),
        Text(
            second.view,
            _keys(second, returns[1], slots.words, places[1], new, folds.folded),
            _anchors_of_rewritten(second, returns[1], slots, new, local_may_go=bool(promoted)),
            {j: tuple(_slot_place(s) for s in words) for j, words in slots.words.items()},
        ),
        new,
        frozenset(places[0]),
        folds,
        addresses,
    )


def _prove(
    first: Program, second: Program, returns: _Returns, texts: _Texts, *, late_entry: bool
) -> tuple[list[Finding], list[tuple[int, int]]]:
    """The proof for instructions in the original's order."""
    sides = (Side(each.view, each.keys, each.fixed) for each in (texts.first, texts.second))
    alignment = align(*sides, late_entry=late_entry)
    findings = _unmatched(first, second, alignment, texts.second.words)
    if findings:
        return findings, []
    return _prove_matched(first, second, returns, texts, in_order(first.view, alignment.pairs))


def _prove_reordered(
    first: Program, second: Program, returns: _Returns, texts: _Texts
) -> tuple[list[Finding], list[tuple[int, int]]] | None:
    """The proof for instructions in any order between fences; None where the fences differ."""
    moved = {function.name: function.offset // 16 for function in second.kernel.functions}
    symbols = [
        (function.offset // 16, moved[function.name])
        for function in first.kernel.functions
        if function.name in moved
    ]
    order = reorder(texts.first, first.flow, texts.second, second.flow, symbols)
    if order is None:
        return None
    pairs = order.pairs_of_instructions()
    matched = {i for i, _ in pairs}, {j for _, j in pairs}
    lost, extra = (
        [i for i, fixed in enumerate(text.fixed) if fixed and i not in own]
        for text, own in zip((texts.first, texts.second), matched, strict=True)
    )
    findings = _unmatched(first, second, Alignment(pairs, lost, extra), texts.second.words)
    partner = dict(pairs)
    findings += [
        Finding(
            "illegal_order",
            second.kernel.name,
            16 * partner.get(passed.late, -1) if passed.late in partner else -1,
            f"{first.view.name[passed.late]} comes before what was {first.view.name[passed.early]} "
            f"at 0x{16 * passed.early:x} of the original: {passed.why}",
        )
        for passed in order.passed
    ]
    if findings:
        return findings, pairs
    return _prove_matched(first, second, returns, texts, order)


def _prove_matched(
    first: Program, second: Program, returns: _Returns, texts: _Texts, order: Reordered
) -> tuple[list[Finding], list[tuple[int, int]]]:
    """The proof over matched instructions; `order` is what the original is run in."""
    place = order.place
    moves = ReturnAddresses({place[i]: call for i, call in returns[0].call_of.items()})
    findings = _check_pairs(order.view, second, (moves, returns[1]), order.pairs)
    product, unequal = build_product(order.view, first.flow, second.view, second.flow, order.pairs)
    findings += unequal
    if product is None or findings:
        return findings, []
    findings += _check_functions(first, second, product, order)
    steps = [(order.origin[i] if i >= 0 else -1, j) for i, j in product.steps]
    findings += attribute_findings(
        Moved(first.kernel, second.kernel, first.view, second.view, steps, order.inside)
    )
    located = frozenset(place[i] for i in texts.located)
    findings += _check_uniform(order.view, second, product, texts.new, located)
    words = dict(texts.second.words)
    inserted = frozenset(j for i, j in product.steps if i < 0)
    findings += uniform_findings(second.code, second.graph, words, texts.new, inserted)
    private = {place[i]: reached for i, reached in texts.first.words.items()}
    programs = Programs(
        order.view,
        second.view,
        private,
        words,
        product,
        located,
        order.commits,
        texts.folds.numbers,
        (frozenset(place[i] for i in texts.addresses[0]), texts.addresses[1]),
    )
    findings += DataflowCheck(programs).findings()
    return findings, order.pairs_of_instructions()


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


def _slot_place(slot: int) -> int:
    return 512 + slot


def _promoted(first: Program, second: Program, slots: SlotMap) -> dict[int, tuple[int, ...]]:
    """Private local accesses of the original, if the rewritten program has fewer of them."""
    before, after = (p.view.memory.count("local") for p in (first, second))
    after -= sum(second.view.memory[j] == "local" for j in slots.words)
    return private_words(first.view, first.graph) if after < before else {}


def _keys(
    program: Program,
    returns: ReturnAddresses,
    slots: dict[int, tuple[int, ...]],
    places: dict[int, int],
    new: frozenset[int] = frozenset(),
    folded: frozenset[int] = frozenset(),
) -> list[Hashable]:
    keys: list[Hashable] = list(program.view.masked)
    for access, place in places.items():
        keys[access] = key_at(program.view, access, place)
    for move in returns.call_of:
        keys[move] = ("return address", program.view.masked[move] & ~(0xFFFFFFFF << 32))
    for access in slots:
        keys[access] = ("slot", access)
    for j in range(len(keys)) if new else ():
        reads = j not in folded and reads_new(program.view, j, new)
        if reads or keeps_in(program.view, j, new):
            keys[j] = ("uniform register", j)
    return keys


def _anchors_of_original(
    first: Program, returns: ReturnAddresses, private: dict[int, tuple[int, ...]]
) -> list[bool]:
    return [
        i in returns.call_of or not may_be_dropped(private, first.view, i)
        for i in range(len(first.view))
    ]


def _anchors_of_rewritten(
    second: Program,
    returns: ReturnAddresses,
    slots: SlotMap,
    new: frozenset[int],
    *,
    local_may_go: bool,
) -> list[bool]:
    """Where private accesses of the original may be gone, those left are matched by their text."""
    return [
        j in returns.call_of
        or not (
            may_be_inserted(slots.words, second.view, j)
            or keeps_in(second.view, j, new)
            or (local_may_go and second.view.memory[j] == "local")
        )
        for j in range(len(second.view))
    ]


def _unmatched(
    first: Program, second: Program, alignment: Alignment, slots: Collection[int]
) -> list[Finding]:
    name = second.kernel.name
    lost = list(alignment.unmatched_rewritten)
    if not lost and not alignment.unmatched_original:
        matched = {j for _, j in alignment.pairs}
        local = [j for j, memory in enumerate(second.view.memory) if memory == "local"]
        lost = [j for j in local if j not in matched and j not in slots]
    findings = [
        Finding(
            "missing_instruction",
            name,
            16 * i,
            f"{first.view.name[i]} of the original has no counterpart (offset in the original)",
        )
        for i in alignment.unmatched_original[:5]
    ]
    findings += [
        Finding(
            "inserted_instruction",
            name,
            16 * j,
            f"{second.view.name[j]} is neither the original's nor of a kind that may be inserted",
        )
        for j in lost[:5]
    ]
    return findings


def _check_pairs(
    original: CodeView, second: Program, returns: _Returns, pairs: list[tuple[int, int]]
) -> list[Finding]:
    """Return addresses and section-relative displacements of matched instructions."""
    name = second.kernel.name
    partner = dict(pairs)
    findings: list[Finding] = []
    for i, j in pairs:
        call = returns[0].call_of.get(i)
        if call is not None and partner.get(call) != returns[1].call_of.get(j):
            message = "the return address is not that of the corresponding call"
            findings.append(Finding("return_address", name, 16 * j, message))
        if original.control[i] not in ("return", "indirect"):
            continue
        if original.target[i] != 0 or second.view.target[j] != 0:
            message = f"{second.view.name[j]} is not relative to the start of the section"
            findings.append(Finding("displacement", name, 16 * j, message))
    return findings


def _check_functions(
    first: Program, second: Program, product: Product, order: Reordered
) -> list[Finding]:
    """Every function symbol must have moved with its code."""
    cuts: set[tuple[int, int]] = set()
    i = j = 0
    for a, b in product.steps:
        if i not in order.inside:
            cuts.add((i, j))
        i += a >= 0
        j += b >= 0
    moved = {function.name: function.offset // 16 for function in second.kernel.functions}
    return [
        Finding("function_symbol", second.kernel.name, function.offset, "a symbol did not move")
        for function in first.kernel.functions
        if (function.offset // 16, moved.get(function.name, -1)) not in cuts
    ]


def _check_uniform(
    original: CodeView,
    second: Program,
    product: Product,
    new: frozenset[int],
    places: frozenset[int],
) -> list[Finding]:
    """Uniform registers belong to the warp, not to the thread that takes a path.

    The state follows one thread, so they must keep their numbers, and inserted instructions may
    write them only before control can diverge, or where each is for one value (`uniform.py`).
    The original's accesses in `places` have equal addresses, whatever the registers.
    """
    view = second.view
    end = product.graph.end[0]
    findings: list[Finding] = []
    for k, (i, j) in enumerate(product.steps):
        if j < 0:
            continue
        written = [p for p in view.writes[j] if _is_uniform(p) and p not in new]
        if i < 0 and k >= end and written:
            message = f"{view.name[j]} writes a uniform register where threads may have diverged"
            findings.append(Finding("uniform_write", view.kernel, 16 * j, message))
        if (
            i >= 0
            and i not in places
            and any(
                a.first != b.first and a.file in (1, 3)
                for a, b in zip(original.rows[i], view.rows[j], strict=True)
            )
        ):
            message = f"{view.name[j]} names another uniform register than the original"
            findings.append(Finding("uniform_renamed", view.kernel, 16 * j, message))
    return findings


def _is_uniform(place: int) -> bool:
    return FILE_BASE[1] <= place < FILE_BASE[2] or place >= FILE_BASE[3]
