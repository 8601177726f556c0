"""The values of a study: builds, what is known of each, and the verdicts.

A study compares builds of one kernel with its first build. Counts "executed" are instructions of
one warp for the same work in every build (`weights`); bytes are per thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from regdem.binary.kernel import Kernel
from regdem.errors import UsageError
from regdem.integrations.compile import Directives
from regdem.predict.model import Prediction
from regdem.program.from_kernel import program_of
from regdem.program.program import Program
from regdem.report.model import CodeAnalysis, KernelReport
from regdem.study.anatomy import Anatomy
from regdem.study.effect import Comparison
from regdem.study.measured import Measurement
from regdem.study.toolchain import Compiled, Resources


@dataclass(frozen=True)
class BuildSpec:
    """One build to make: its file name's stem, what it is in words, and what is asked for.

    `factor` for studies of unrolling; `directives` for studies of caps (None: as the source is).
    `change` is the source change or option by which a user gets this build.
    """

    name: str
    title: str
    factor: int | None = None
    directives: Directives | None = None
    change: str = ""


@dataclass(frozen=True)
class HotLoop:
    """The loop under study in one build, or what it lies in: figures of one turn.

    `copies`: of the first build's loop, so that a turn does the work of that many.
    `loads_in_flight`: long-latency loads outstanding when the warp first waits, `loads_per_wait`
    over all its waits; cycles are of a warp alone, with assumed latencies. None where they can't be
    told. `gone`: the loop is gone, and the figures are of what its copies lie in.
    """

    start_offset: int
    copies: float
    instructions: int
    code_bytes: int
    gone: bool
    loads_in_flight: int | None
    loads_per_wait: float | None
    warp_cycles: int | None
    recurrence_cycles: int | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return dict(vars(self)) | {"copies": round(self.copies, 2)}


@dataclass(frozen=True)
class Executed:
    """What one warp executes for the study's work, by weights; `bytes` per thread."""

    by_class: dict[str, float]
    memory_bytes: float
    local_spill_bytes: float
    shared_spill_bytes: float

    @property
    def instructions(self) -> float:
        """All of them."""
        return sum(self.by_class.values())

    @property
    def overhead(self) -> float:
        """Counters, addresses, branches: everything that is neither work nor a spill."""
        return sum(self.by_class.get(name, 0.0) for name in ("integer", "move", "overhead"))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "instructions": round(self.instructions, 1),
            "by_class": {name: round(count, 1) for name, count in self.by_class.items()},
            "memory_bytes": round(self.memory_bytes, 1),
            "local_spill_bytes": round(self.local_spill_bytes, 1),
            "shared_spill_bytes": round(self.shared_spill_bytes, 1),
        }


@dataclass(frozen=True)
class Mechanism:
    """One way in which a build differs: `effect` is "improved", "hurt" or "neutral"; `short` is the
    message in a few words.
    """

    name: str
    effect: str
    short: str
    message: str
    evidence: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class Verdict:
    """What became of a build. `status`, for unrolling: "baseline", "unrolled", "full_unroll",
    "other_factor", "no_effect"; for caps: "baseline", "same_code", "same_operations",
    "other_operations", "refused".
    """

    status: str
    statement: str
    mechanisms: tuple[Mechanism, ...] = ()

    def of(self, effect: str) -> list[Mechanism]:
        """The mechanisms of one effect."""
        return [mechanism for mechanism in self.mechanisms if mechanism.effect == effect]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "status": self.status,
            "statement": self.statement,
            "mechanisms": [mechanism.to_dict() for mechanism in self.mechanisms],
        }


@dataclass(frozen=True)
class Analysed:
    """A build looked at by itself."""

    spec: BuildSpec
    compiled: Compiled
    kernel: Kernel
    report: KernelReport
    anatomy: Anatomy
    resources: Resources | None

    @cached_property
    def program(self) -> Program:
        """Its control-flow graph."""
        return program_of(self.kernel)

    @property
    def code(self) -> CodeAnalysis:
        """The analysis of its instructions."""
        assert self.report.analysis is not None
        return self.report.analysis

    @property
    def active_blocks(self) -> int:
        """Blocks resident per SM."""
        return self.report.occupancy.active_blocks if self.report.occupancy else 0

    @property
    def active_warps(self) -> int:
        """Warps resident per SM."""
        return self.report.occupancy.active_warps if self.report.occupancy else 0

    @property
    def loop_spill_bytes(self) -> int:
        """Bytes spilled and filled inside loops, each access once."""
        return sum(site.bytes_per_thread for site in self.code.spills.hot)

    @property
    def spill_bytes(self) -> int:
        """Local bytes spilled and filled, as `ptxas -v` counts them."""
        return self.code.spills.store_bytes + self.code.spills.load_bytes

    @property
    def shared_spill_bytes(self) -> int:
        """Shared bytes spilled and filled."""
        found = self.code.spills.spills
        return found.total_bytes("shared", store=True) + found.total_bytes("shared", store=False)


@dataclass(frozen=True)
class Build:
    """A build against the first one."""

    analysed: Analysed
    comparison: Comparison
    executed: Executed
    hot: HotLoop | None
    prediction: Prediction
    same_as: str | None
    verdict: Verdict = field(default_factory=lambda: Verdict("baseline", ""))
    measured: Measurement | None = None

    @property
    def name(self) -> str:
        """The stem of its files."""
        return self.analysed.spec.name

    @property
    def spec(self) -> BuildSpec:
        """What was asked for."""
        return self.analysed.spec


@dataclass(frozen=True)
class Refused:
    """A build that the compiler refused."""

    spec: BuildSpec
    compiled: Compiled

    @property
    def verdict(self) -> Verdict:
        """Its verdict."""
        return Verdict("refused", f"refused by the compiler: {self.compiled.failure}")


@dataclass(frozen=True)
class TargetLoop:
    """A loop of the first build that a study is about."""

    index: int
    line: str
    turns: float
    turns_known: bool
    start_offset: int

    @property
    def title(self) -> str:
        """Its name for people."""
        return f"the loop at {self.line}" if self.line else f"the loop at 0x{self.start_offset:x}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "line": self.line or None,
            "start_offset": self.start_offset,
            "turns": self.turns,
            "turns_known": self.turns_known,
        }


@dataclass(frozen=True)
class Recommendation:
    """What to take, and why."""

    build: str
    message: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class Study:
    """A finished study. `kind`: "unroll" or "caps"."""

    kind: str
    source: str
    source_sha256: str
    kernel: str
    arch: str
    threads: int
    dynamic_shared_bytes: int
    compiler: str
    flags: tuple[str, ...]
    define: str | None
    loops: tuple[TargetLoop, ...]
    builds: tuple[Build, ...]
    refused: tuple[Refused, ...]
    recommendation: Recommendation
    notes: tuple[str, ...]
    device: dict[str, Any] | None = None
    no_times: str | None = None
    """Why there are no times; None where there are."""
    no_counters: str | None = None
    noise: float | None = None
    """By what share the first build's times differ from its own, measured as if it were two."""

    @property
    def base(self) -> Build:
        """The build that others are compared with."""
        return self.builds[0]

    @property
    def outputs_differ(self) -> list[str]:
        """Builds whose outputs are not those of the first."""
        return [b.name for b in self.builds if b.measured is not None and not b.measured.correct]

    def build(self, name: str) -> Build:
        """The build of that name. Raises UsageError if there is none."""
        for build in self.builds:
            if build.name == name:
                return build
        raise UsageError(f"no build named {name!r}")
