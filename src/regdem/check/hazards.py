"""Hazards: every dependence of a program is met by stalls or scoreboards, along every path.

Method: `pipeline.py` finds, by a fixpoint over the control flow, which producers may still be in
flight at each instruction and the least number of cycles since they issued. Here each dependence
it reports is judged: a fixed-latency producer must be at least as far away as the mined bound
for that pair and operand (`regdem.machine.latency`); a variable-latency one must have been waited
for; a wait must not come too early behind the instruction that sets its scoreboard. Control bits
must be legal.

Not claimed: anything about the operands' values, about throughput, or about instructions that
synchronise with other threads beyond their registers.
"""

from __future__ import annotations

from regdem.check.findings import Finding
from regdem.check.graph import Graph
from regdem.check.pipeline import SCOREBOARD_DELAY_CYCLES, Pipeline
from regdem.check.scoreboards import describe
from regdem.check.timing import timing_of
from regdem.check.view import CodeView
from regdem.machine.latency import LatencyTable, latency_table

_MOST_FINDINGS = 50
_NO_SCOREBOARD = 7
_UNMODELLED = ("DMMA",)
"""Double-precision tensor instructions: ptxas chains them in ways the model calls hazards."""


class HazardObserver:
    """Judges dependences; one finding per (kind, producer, consumer)."""

    def __init__(self, view: CodeView, table: LatencyTable) -> None:
        self.view = view
        self.table = table
        self.findings: dict[tuple[str, int, int], Finding] = {}

    def fixed(self, kind: str, producer: int, consumer: int, role: str, age: int) -> None:
        """A result of known latency: enough cycles?"""
        names = self.view.timing_name
        required = self.table.required(kind, names[producer], names[consumer], role)
        if age >= required:
            return
        self._add(
            kind.lower(),
            producer,
            consumer,
            f"{self.view.name[consumer]} issues {age} cycles after "
            f"{self.view.name[producer]} at 0x{16 * producer:x}, {required} are needed",
        )

    def pending(self, kind: str, producer: int, consumer: int, cover: int) -> None:
        """A result or operand still in flight: was it waited for?"""
        name = self.view.name[producer]
        what = "reads its operands" if kind == "WAR" else "has its result"
        self._add(
            f"{kind.lower()}_scoreboard",
            producer,
            consumer,
            f"{self.view.name[consumer]} comes before {name} at 0x{16 * producer:x} {what}: "
            f"{describe(cover)} it",
        )

    def early_wait(self, scoreboard: int, consumer: int, age: int) -> None:
        """A wait that may miss the scoreboard."""
        self._add(
            "early_wait",
            scoreboard,
            consumer,
            f"{self.view.name[consumer]} waits for scoreboard {scoreboard} {age} cycles after it "
            f"is set; it takes {SCOREBOARD_DELAY_CYCLES}",
        )

    def _add(self, kind: str, producer: int, consumer: int, message: str) -> None:
        key = (kind, producer, consumer)
        if key not in self.findings and len(self.findings) < _MOST_FINDINGS:
            self.findings[key] = Finding(kind, self.view.kernel, 16 * consumer, message)


def hazard_findings(view: CodeView, graph: Graph, arch: str = "sm_90") -> list[Finding]:
    """All hazards of a program, in code order."""
    for i, name in enumerate(view.name):
        if name in _UNMODELLED:
            message = f"the timing of {name} is not understood"
            return [Finding("unmodelled_instruction", view.kernel, 16 * i, message)]
    observer = HazardObserver(view, latency_table(arch))
    Pipeline(view, timing_of(view), graph).observe(observer)
    findings = [*observer.findings.values(), *_illegal_controls(view)]
    return sorted(findings, key=lambda finding: (finding.offset, finding.kind))


def _illegal_controls(view: CodeView) -> list[Finding]:
    """Control words that the vendor's disassembler rejects."""
    code = view.code
    findings: list[Finding] = []
    columns = (code.stall, code.yield_bit, code.reuse, code.write_scoreboard, code.read_scoreboard)
    for i, (stall, bit, reuse, write, read) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        problem = ""
        if bit and (stall == 0 or stall >= 12):
            problem = f"the yield bit with a stall of {stall}"
        elif reuse and (not bit or stall > 11) and view.name[i] != "DEPBAR":
            problem = "reuse flags without the yield bit"
        elif write not in range(6) and write != _NO_SCOREBOARD:
            problem = f"write scoreboard {write}"
        elif read not in range(6) and read != _NO_SCOREBOARD:
            problem = f"read scoreboard {read}"
        elif view.name[i] == "STS" and write != _NO_SCOREBOARD:
            problem = "a write scoreboard on a store"
        if problem:
            message = f"{view.name[i]} has {problem}, which is no legal encoding"
            findings.append(Finding("control_bits", view.kernel, 16 * i, message))
    return findings
