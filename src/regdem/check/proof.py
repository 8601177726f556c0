"""The proof of one rewritten program: a matching, in order or not, and what must hold over it.

In-order matching comes first, unless many texts stand in another order; then the original is run
in the order found, which must be a legal one. Which matching is found can't make a wrong rewrite
pass: the dataflow over the product of both programs decides.
"""

from __future__ import annotations

from collections.abc import Collection

from regdem.check.align import Alignment, Side, align
from regdem.check.attributes import Moved, attribute_findings
from regdem.check.dataflow import DataflowCheck, Programs
from regdem.check.findings import Finding
from regdem.check.operands import unfolded
from regdem.check.places import FILE_BASE
from regdem.check.product import Product, build_product
from regdem.check.reorder import Reordered, in_order, reorder, seems_reordered
from regdem.check.returns import ReturnAddresses
from regdem.check.slots import SlotMap
from regdem.check.subject import Program, Returns
from regdem.check.texts import Texts, addresses_of, texts_of
from regdem.check.uniform import uniform_findings
from regdem.check.view import CodeView


def check_dataflow(
    first: Program, second: Program, slots: SlotMap, returns: Returns
) -> tuple[list[Finding], list[tuple[int, int]]]:
    """Findings, and the matched instructions. Any matching that is proved will do."""
    addresses = (addresses_of(first, returns[0]), addresses_of(second, returns[1]))
    folds = unfolded(first.view, second.view, addresses[0])
    first, second = first.seen_as(folds.original), second.seen_as(folds.rewritten)
    texts = texts_of(first, second, slots, returns, folds, addresses)
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


def _prove(
    first: Program, second: Program, returns: Returns, texts: Texts, *, late_entry: bool
) -> tuple[list[Finding], list[tuple[int, int]]]:
    """The proof for instructions in the original's order."""
    sides = (Side(each.view, each.keys, each.fixed) for each in (texts.first, texts.second))
    alignment = align(*sides, late_entry=late_entry)
    findings = _unmatched(first, second, alignment, texts.second.words)
    if findings:
        return findings, []
    return _prove_matched(first, second, returns, texts, in_order(first.view, alignment.pairs))


def _prove_reordered(
    first: Program, second: Program, returns: Returns, texts: Texts
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
    first: Program, second: Program, returns: Returns, texts: Texts, order: Reordered
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
    original: CodeView, second: Program, returns: Returns, pairs: list[tuple[int, int]]
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
