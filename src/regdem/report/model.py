"""What `inspect` says about one kernel, as values with a JSON form.

Offsets are bytes from the start of the kernel's code; counts are per register file where they
count registers. A kernel that can't be analysed has `refusal` and only what the file's headers
say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from regdem.analysis.ilp import LoopParallelism
from regdem.analysis.spills import Spills, SpillSite
from regdem.errors import RegdemError
from regdem.machine import BlockShape, Occupancy


@dataclass(frozen=True)
class SourceLine:
    """A place in the source, from `-lineinfo`."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"


@dataclass(frozen=True)
class LineLoads:
    """The loads of a source line (global, generic and shared memory; no fills of spills).

    `copies`: how often its rarest form of load stands in the code; `loads`: all of them. `depth`:
    of the deepest one's loop; `loop`: the loops around all of them, by index, the outermost first,
    None where they are not in the same.
    """

    source: SourceLine
    copies: int
    loads: int
    depth: int
    loop: tuple[int, ...] | None


@dataclass(frozen=True)
class PeakValue:
    """A value that is live at the peak.

    `kind`: "stack_pointer"; "constant" (an immediate); "recomputable" (a constant-bank load or a
    special register); "warp_uniform" (copied from uniform registers); "held" (not touched in the
    innermost loop around the peak, or within 64 instructions of it); "working" otherwise.
    `length` counts instructions over which it is live; `width` registers of its tuple.
    """

    web: int
    register: int
    width: int
    kind: str
    definitions: tuple[int, ...]
    uses: tuple[int, ...]
    length: int
    loop_depth: int
    source: SourceLine | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return dict(vars(self)) | {
            "definitions": list(self.definitions),
            "uses": list(self.uses),
            "source": None if self.source is None else vars(self.source),
        }


@dataclass(frozen=True)
class Pressure:
    """GPRs live at each instruction, counted as `nvdisasm -lrm` counts them (R1 included).

    `far_below_pct`: share of the instructions that hold at least 8 registers less than the peak.
    """

    peak: int
    peak_offset: int
    peak_block: int
    peak_loop_depth: int
    peak_source: SourceLine | None
    curve: tuple[int, ...]
    far_below_pct: float
    values: tuple[PeakValue, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; the curve as [offset, gpr] pairs."""
        return {
            "peak": self.peak,
            "peak_offset": self.peak_offset,
            "peak_block": self.peak_block,
            "peak_loop_depth": self.peak_loop_depth,
            "peak_source": None if self.peak_source is None else vars(self.peak_source),
            "far_below_pct": self.far_below_pct,
            "values": [value.to_dict() for value in self.values],
            "curve": [[16 * i, live] for i, live in enumerate(self.curve)],
        }


@dataclass(frozen=True)
class LoopInfo:
    """A loop: from the first to behind the last of its instructions in address order."""

    start_offset: int
    end_offset: int
    depth: int
    header_offset: int
    instructions: int
    max_live_gpr: int
    source: SourceLine | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return dict(vars(self)) | {"source": None if self.source is None else vars(self.source)}


@dataclass(frozen=True)
class GraphSummary:
    """The interference graph of the GPR live ranges.

    `colours`: registers a colouring with aligned tuples needs; `registers_needed`: the count per
    thread that makes (two more are always allocated); `renumbering_saves`: against the present.
    """

    nodes: int
    edges: int
    tuples: int
    colours: int
    registers_needed: int
    renumbering_saves: int

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class Advice:
    """One recommendation with its evidence.

    `gain`: what it is expected to give; `action`: the command or source change that does it.
    `weight` ranks (higher first) and is not shown.
    """

    rule: str
    message: str
    evidence: dict[str, Any]
    gain: str
    action: str
    weight: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "rule": self.rule,
            "message": self.message,
            "evidence": self.evidence,
            "gain": self.gain,
            "action": self.action,
        }


@dataclass(frozen=True)
class Forecast:
    """What a change is predicted to be worth (`report/forecast.py`).

    `kind`: "demote" or "renumber" to `registers` per thread, or "promote". `speedup` with its
    interval `least` to `most`; `bound_by`: what the kernel waits for as it is. `pays`: whether the
    optimiser would take it. `inserted_instructions`: per warp, as often as they run.
    """

    kind: str
    registers: int
    active_warps: int
    speedup: float
    least: float
    most: float
    bound_by: str
    inserted_instructions: float
    pays: bool

    @property
    def words(self) -> str:
        """The speed-up with its interval; a bound for a demotion, which costs more than counted."""
        bound = "at most " if self.kind == "demote" else ""
        interval = f"({self.least:.2f} to {self.most:.2f})"
        return f"predicted {bound}{self.speedup:.2f} times as fast {interval}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "kind": self.kind,
            "registers": self.registers,
            "active_warps": self.active_warps,
            "predicted_speedup": round(self.speedup, 3),
            "predicted_speedup_interval": [round(self.least, 3), round(self.most, 3)],
            "bound_by": self.bound_by,
            "inserted_instructions": round(self.inserted_instructions, 1),
            "pays": self.pays,
        }


@dataclass(frozen=True)
class SpillReport:
    """Spill and array sites with their source lines."""

    spills: Spills
    sources: dict[int, SourceLine] = field(default_factory=lambda: dict[int, SourceLine]())
    has_scratch: bool = False
    """Whether ptxas has a spill area of its own in shared memory; else slots are a rewrite's."""

    def made_by(self, site: SpillSite) -> str:
        """Who put the access there: "source" (an array), "ptxas" or "rewrite"."""
        if site.kind == "array":
            return "source"
        return "rewrite" if site.space == "shared" and not self.has_scratch else "ptxas"

    def mark(self, site: SpillSite) -> str:
        """The site in words, as listings mark it."""
        verb = "store" if site.is_store else "load"
        if site.kind == "array":
            return f"array {verb} ({site.space})"
        if self.made_by(site) == "rewrite":
            return f"slot {verb} (shared, demoted)"
        return f"spill {verb} ({site.space}, by ptxas)"

    @property
    def store_bytes(self) -> int:
        """Spill stores to local memory, bytes per thread, as `ptxas -v` counts them."""
        return self.spills.total_bytes("local", store=True)

    @property
    def load_bytes(self) -> int:
        """Spill loads from local memory, bytes per thread, as `ptxas -v` counts them."""
        return self.spills.total_bytes("local", store=False)

    @property
    def hot(self) -> tuple[SpillSite, ...]:
        """Spill sites inside loops, those in ptxas's own routines left out as in all counts."""
        sites = self.spills.spill_sites
        return tuple(site for site in sites if site.loop_depth and site.is_counted)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        spills = self.spills
        return {
            "local_loads": spills.count("local", store=False),
            "local_stores": spills.count("local", store=True),
            "shared_loads": spills.count("shared", store=False),
            "shared_stores": spills.count("shared", store=True),
            "local_load_bytes": self.load_bytes,
            "local_store_bytes": self.store_bytes,
            "shared_load_bytes": spills.total_bytes("shared", store=False),
            "shared_store_bytes": spills.total_bytes("shared", store=True),
            "array_loads": spills.count("local", store=False, kind="array"),
            "array_stores": spills.count("local", store=True, kind="array"),
            "in_loops": len(self.hot),
            "local_loop_bytes": spills.loop_bytes("local"),
            "shared_loop_bytes": spills.loop_bytes("shared"),
            "bytes_per_iteration": sum(site.bytes_per_thread for site in self.hot),
            "uncounted_bytes": spills.uncounted_bytes,
            "annotated": spills.annotated,
            "sites": [self._site(site) for site in spills.sites],
        }

    def _site(self, site: SpillSite) -> dict[str, Any]:
        source = self.sources.get(site.offset)
        return {
            "offset": site.offset,
            "opcode": site.opcode,
            "space": site.space,
            "kind": site.kind,
            "bytes_per_thread": site.bytes_per_thread,
            "place_bytes": site.place_bytes,
            "loop_depth": site.loop_depth,
            "heat": "hot" if site.loop_depth else "cold",
            "function": site.function,
            "made_by": self.made_by(site),
            "counted": site.is_counted,
            "file": source.file if source else None,
            "line": source.line if source else None,
        }


@dataclass(frozen=True)
class CodeAnalysis:
    """What the instructions say; absent where they are not understood."""

    max_live: dict[str, int]
    instructions: int
    blocks: int
    loops: tuple[LoopInfo, ...]
    pressure: Pressure
    interference: GraphSummary
    spills: SpillReport
    parallelism: tuple[LoopParallelism, ...]
    mix: dict[str, int]
    calls: int
    line_loads: tuple[LineLoads, ...]
    """Loads by source line; empty without line information."""
    frame_reason: str = ""
    """Why the stack frame can't be told apart into words, so that nothing in it is promoted."""


@dataclass(frozen=True)
class Asked:
    """What was said of the launch and of the file, for commands that advice names.

    `block`: its shape, None where only a count (or what the kernel declares) is known. `arch`: the
    one of several in the file, or to compile for. `compile_options`: of a source.
    """

    block: BlockShape | None = None
    arch: str | None = None
    compile_options: tuple[str, ...] = ()


NOTHING_SAID = Asked()


@dataclass(frozen=True)
class KernelReport:
    """Everything about one kernel."""

    name: str
    demangled_name: str
    arch: str
    registers_per_thread: int
    static_shared_bytes: int
    local_bytes: int
    barriers: int
    threads: int | None
    occupancy: Occupancy | None
    analysis: CodeAnalysis | None
    advice: tuple[Advice, ...]
    refusal: RegdemError | None = None
    forecasts: tuple[Forecast, ...] | None = None
    """What the predictor says of the next cliff and of promotion; None where it was not asked."""
    unlaunchable: str | None = None
    """Why the driver accepts no launch with these threads, as "can't be ..."; None: it may."""
    origin: str | None = None
    """Where in a container the kernel's cubin lies; None for a plain cubin."""
    asked: Asked = NOTHING_SAID

    @property
    def boundaries(self) -> tuple[int | None, int | None]:
        """Registers above the next step with more warps, and to spare before there are fewer.

        None: there is no such step, or the block size is not known.
        """
        present = self.occupancy
        if present is None:
            return None, None
        count, warps = self.registers_per_thread, present.active_warps
        more = [cliff.registers_max for cliff in present.cliffs if cliff.active_warps > warps]
        same = [cliff.registers_max for cliff in present.cliffs if cliff.active_warps >= warps]
        above = max((each for each in more if each < count), default=None)
        last = max(same, default=None)
        fewer = any(cliff.active_warps < warps for cliff in present.cliffs)
        return (
            None if above is None else count - above,
            last - count if last is not None and fewer else None,
        )

    def forecast(self, *kinds: str) -> Forecast | None:
        """The forecast of one of these kinds."""
        return next((each for each in self.forecasts or () if each.kind in kinds), None)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, keys and units as in the interface."""
        analysis = self.analysis
        head: dict[str, Any] = {
            "name": self.name,
            "demangled_name": self.demangled_name,
            "arch": self.arch,
            "origin": self.origin,
            "threads": self.threads,
            "registers_per_thread": self.registers_per_thread,
            "max_live": None if analysis is None else analysis.max_live,
            "static_shared_bytes": self.static_shared_bytes,
            "local_bytes": self.local_bytes,
            "barriers": self.barriers,
        }
        code: dict[str, Any] = dict.fromkeys(
            ("instructions", "blocks", "loops", "pressure", "interference", "spills", "ilp")
        )
        if analysis is not None:
            warps = self.occupancy.active_warps if self.occupancy else None
            code = {
                "instructions": analysis.instructions,
                "blocks": analysis.blocks,
                "mix": analysis.mix,
                "calls": analysis.calls,
                "loops": [loop.to_dict() for loop in analysis.loops],
                "pressure": analysis.pressure.to_dict(),
                "interference": analysis.interference.to_dict(),
                "spills": analysis.spills.to_dict(),
                "ilp": {"loops": [loop.to_dict(warps) for loop in analysis.parallelism]},
            }
        return (
            head
            | code
            | {
                "occupancy": None if self.occupancy is None else self.occupancy.to_dict(),
                "registers_above_next_step": self.boundaries[0],
                "registers_to_spare": self.boundaries[1],
                "forecasts": None
                if self.forecasts is None
                else [item.to_dict() for item in self.forecasts],
                "advice": [item.to_dict() for item in self.advice],
                "refused": None if self.refusal is None else self.refusal.to_dict(),
            }
        )

    def _repr_html_(self) -> str:
        from regdem.report.summary import html_summary

        return html_summary(self)
