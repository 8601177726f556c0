"""The search from the fastest variant on: small steps, proved, measured, the best of them kept.

Problem: the variants that the model makes end where it can't tell better from worse. Schedules a
few moves apart differ by some percent on the machine, and only there.

Method: of the fastest variant so far a number of neighbours are made (`regdem/neighbours.py`), each
with a few instructions moved and proved equal to its parent; the first time also with fewer warps.
They are measured, and the fastest is the parent of the next generation, for as long as generations
are asked for. Every step is proved against the last one, so all are equal to the original.

The idea of measuring moves of machine code is that of CuAsmRL (He and Yoneki, CGO 2025), which
trains a policy to choose them; here chance chooses, and a proof stands where it has tests.

Invariants: a variant's name and bytes follow from its parent's bytes and its number.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from regdem.binary import Cubin
from regdem.errors import RegdemError, UsageError
from regdem.neighbours import lower_residencies, with_fewer_warps, with_near_order
from regdem.rewrite import Request
from regdem.tune.made import Made

CHILDREN = 12
"""Neighbours made in each generation."""
NEAR, FEWER = "+near_", "+fewer_"
"""In the names of steps: another order, fewer warps."""
_DRAWS = 4
"""Orders drawn before a step is given up because none of its moves can be made."""
_MOST_FEWER = 5


@dataclass(frozen=True)
class Step:
    """One neighbour of `parent` to be made; picklable, so that any executor runs it.

    `registers`: what to declare, for fewer warps; 0: another order, the `number`-th.
    """

    parent: Made
    kernel: str
    request: Request
    number: int = 0
    registers: int = 0

    @property
    def name(self) -> str:
        """Of the variant that the search began with, and a hash that stands for the way here."""
        if self.registers:
            return f"{self.parent.name}{FEWER}{self.registers}"
        way = hashlib.sha256(f"{self.parent.cubin_sha256} {self.number}".encode()).hexdigest()
        return f"{self.parent.name.partition(NEAR)[0]}{NEAR}{way[:8]}"

    def run(self) -> Made:
        """The variant. What regdem refuses is its status; other errors are raised."""
        assert self.parent.cubin is not None
        cubin = Cubin.parse(self.parent.cubin, self.parent.name)
        kernel = cubin.kernel(self.kernel)
        status, reason = "nothing_to_do", ""
        for draw in range(_DRAWS):
            try:
                if self.registers:
                    new, done = with_fewer_warps(cubin, kernel, self.request, self.registers)
                else:
                    seed = f"{self.name} {draw}"
                    new, done = with_near_order(cubin, kernel, self.request, seed)
            except RegdemError as error:
                status, reason = error.code, str(error)
                if isinstance(error, UsageError):
                    continue
                break
            details = self.parent.details | {
                "registers_per_thread": done.after.registers_per_thread,
                "active_warps": done.after.active_warps,
                "occupancy_pct": done.after.occupancy_pct,
                "method": done.rewrite.method,
                "checks": dict(done.verdict.checks),
                "parent": self.parent.name,
            }
            return Made(
                self.name, "proved", base=self.parent.base, details=details, cubin=new.to_bytes()
            )
        return Made(self.name, status, reason, self.parent.base)


def steps_from(
    parent: Made, kernel: str, request: Request, generation: int, count: int = CHILDREN
) -> list[Step]:
    """`count` neighbours of a variant to be made; in generation 0 also those with fewer warps."""
    numbers = range(generation * count, (generation + 1) * count)
    steps = [Step(parent, kernel, request, number) for number in numbers]
    if generation == 0:
        assert parent.cubin is not None
        code = Cubin.parse(parent.cubin, parent.name).kernel(kernel)
        lower = lower_residencies(code, request)[:_MOST_FEWER]
        steps += [Step(parent, kernel, request, registers=registers) for registers in lower]
    return steps


__all__ = ["CHILDREN", "FEWER", "NEAR", "Step", "steps_from"]
