"""Natural loops and their nesting (Aho, Sethi, Ullman; dominators after Cooper, Harvey, Kennedy).

A back edge is an edge to a dominator; the loop of a header is the union of the bodies of its back
edges. An irreducible cycle has no dominating header: its blocks are found as strongly connected
components that no natural loop covers, and count as one loop headed by their first block.
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.program.program import Program


@dataclass(frozen=True)
class Loop:
    """A loop: its header block, all its blocks, nesting depth (1 = outermost), parent index."""

    header: int
    blocks: frozenset[int]
    depth: int
    parent: int


def loops(program: Program) -> tuple[Loop, ...]:
    """The loops of all functions of `program`, outer before inner."""
    known: tuple[Loop, ...] | None = program.memo.get("loops")
    if known is None:
        known = program.memo["loops"] = _loops(program)
    return known


def _loops(program: Program) -> tuple[Loop, ...]:
    found: dict[int, set[int]] = {}
    for function in range(len(program.functions)):
        members = [b.index for b in program.blocks if b.function == function]
        if members:
            _natural(program, members, found)
            _irreducible(program, members, found)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    result: list[Loop] = []
    for header, body in ordered:
        parent = -1
        for k, outer in enumerate(result):
            if header in outer.blocks and body <= outer.blocks and len(body) < len(outer.blocks):
                parent = k
        depth = result[parent].depth + 1 if parent >= 0 else 1
        result.append(Loop(header, frozenset(body), depth, parent))
    return tuple(result)


def loop_depth(program: Program, nest: tuple[Loop, ...] | None = None) -> list[int]:
    """The loop nesting depth of each block (0 = outside any loop)."""
    depth = [0] * len(program.blocks)
    for loop in loops(program) if nest is None else nest:
        for b in loop.blocks:
            depth[b] = max(depth[b], loop.depth)
    return depth


def block_weights(program: Program, per_level: float = 10.0) -> list[float]:
    """Estimated executions of each block: `per_level` for each loop it lies in.

    A function called from a loop runs as often as its call sites do (summed over the sites).
    """
    depth = loop_depth(program)
    weight = [per_level**d for d in depth]
    entry = [0.0] * len(program.functions)
    entry[0] = 1.0
    for _ in range(min(4, len(program.functions))):
        updated = [0.0] * len(program.functions)
        updated[0] = 1.0
        for site, function in program.callee.items():
            block = program.blocks[int(program.block_of[site])]
            caller = block.function
            updated[function] += weight[block.index] * entry[caller] if caller != function else 0.0
        entry = updated
    return [
        w * max(entry[block.function], 1.0 if block.function == 0 else 0.0)
        for w, block in zip(weight, program.blocks, strict=True)
    ]


def _reverse_postorder(program: Program, members: list[int]) -> list[int]:
    seen = {members[0]}
    order: list[int] = []
    stack: list[tuple[int, int]] = [(members[0], 0)]
    while stack:
        b, k = stack.pop()
        successors = program.blocks[b].successors
        if k < len(successors):
            stack.append((b, k + 1))
            s = successors[k]
            if s not in seen:
                seen.add(s)
                stack.append((s, 0))
        else:
            order.append(b)
    order.reverse()
    return order


def _dominators(program: Program, order: list[int]) -> dict[int, int]:
    position = {b: k for k, b in enumerate(order)}
    idom: dict[int, int] = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for b in order[1:]:
            new = -1
            for p in program.blocks[b].predecessors:
                if p not in idom:
                    continue
                if new < 0:
                    new = p
                    continue
                a, c = p, new
                while a != c:
                    while position[a] > position[c]:
                        a = idom[a]
                    while position[c] > position[a]:
                        c = idom[c]
                new = a
            if new >= 0 and idom.get(b) != new:
                idom[b] = new
                changed = True
    return idom


def _natural(program: Program, members: list[int], found: dict[int, set[int]]) -> None:
    order = _reverse_postorder(program, members)
    idom = _dominators(program, order)
    for b in order:
        for header in program.blocks[b].successors:
            if header not in idom or not _dominates(idom, header, b):
                continue
            body = found.setdefault(header, {header})
            work = [b]
            while work:
                x = work.pop()
                if x in body:
                    continue
                body.add(x)
                work.extend(p for p in program.blocks[x].predecessors if p in idom)


def _dominates(idom: dict[int, int], a: int, b: int) -> bool:
    while b != a and idom[b] != b:
        b = idom[b]
    return a == b


def _irreducible(program: Program, members: list[int], found: dict[int, set[int]]) -> None:
    """Adds cycles that remain when the natural back edges are taken away."""
    inside = set(members)
    back = {(b, h) for h, body in found.items() for b in body if h in program.blocks[b].successors}
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in members:
        if root in index:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            b, k = work.pop()
            if k == 0:
                index[b] = low[b] = len(index)
                stack.append(b)
                on_stack.add(b)
            successors = [
                s
                for s in program.blocks[b].successors
                if s in inside and (b, s) not in back and s != b
            ]
            if k > 0:
                low[b] = min(low[b], low[successors[k - 1]])
            while k < len(successors):
                s = successors[k]
                if s not in index:
                    work.append((b, k + 1))
                    work.append((s, 0))
                    break
                if s in on_stack:
                    low[b] = min(low[b], index[s])
                k += 1
            else:
                if low[b] == index[b]:
                    component: set[int] = set()
                    while True:
                        x = stack.pop()
                        on_stack.discard(x)
                        component.add(x)
                        if x == b:
                            break
                    if len(component) > 1:
                        header = min(component)
                        found.setdefault(header, set()).update(component)
