"""Two builds of one kernel: what changed, what got worse, and the likely cause.

A change of residency or of spills inside loops is what a user feels; a register count by itself is
neither good nor bad while the same blocks are resident. Where the block size, and so the residency,
is unknown, the count decides. Spills in shared memory are counted by the same rule as those in
local memory and kept apart; they are no loss where they replace local ones, nor outside loops where
they buy warps. Causes are told from the code: more copies of one source line (`copies.py`), or a
vanished loop in a longer kernel, mean unrolling; a new array access means an index that became
variable. A cause is named only with its evidence, and only where what it is blamed for happened:
unrolling where registers, live values or spills inside loops increased. A factor is advised only
where copies are known to be those of one loop that had one turn each in the first build, and where
that build indexed no local array: then none between the two does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from regdem.report.commands import launch_options
from regdem.report.copies import growth
from regdem.report.metrics import METRICS, Metric, Value
from regdem.report.model import KernelReport

GROWTH = 1.5
"""Instructions after over before from which a vanished loop counts as unrolled."""
FACTOR_SHARE = 4
"""The unroll factor advised is the present one over this."""


@dataclass(frozen=True)
class Change:
    """One metric before and after; `verdict`: better, worse, or changed (neither by itself)."""

    metric: str
    before: Value
    after: Value
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class Cause:
    """A likely cause with its evidence and what to do about it."""

    cause: str
    message: str
    evidence: dict[str, Any]
    action: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class KernelDiff:
    """The comparison of one kernel; `verdict` is worse if anything that counts is."""

    before: KernelReport
    after: KernelReport
    changes: tuple[Change, ...]
    spills_by_depth: tuple[tuple[str, int, int, int], ...]
    """(local or shared, loop depth, spill bytes before, after)."""
    mix: tuple[tuple[str, int, int], ...]
    """(mnemonic, before, after) where it changed, the largest change first."""
    causes: tuple[Cause, ...]
    verdict: str

    @property
    def residency_known(self) -> bool:
        """Whether both have a block size; without one, more registers count as worse."""
        return self.before.occupancy is not None and self.after.occupancy is not None

    @property
    def summary(self) -> str:
        """One sentence."""
        worse = [change for change in self.changes if change.verdict == "worse"]
        better = [change for change in self.changes if change.verdict == "better"]
        if not self.changes:
            return "nothing that is measured changed"
        parts = [f"registers {self.before.registers_per_thread} to "
                 f"{self.after.registers_per_thread}"]  # fmt: skip
        other = [change for change in self.changes if change.verdict == "changed"]
        parts += [_words(c) for c in (*worse, *better, *other) if c.metric in _SUMMARY]
        if not self.residency_known:
            parts.append("residency unknown: give --threads")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "name": self.after.name,
            "before_name": self.before.name,
            "verdict": self.verdict,
            "residency_known": self.residency_known,
            "summary": self.summary,
            "changes": [change.to_dict() for change in self.changes],
            "spills_by_loop_depth": [
                {"space": space, "loop_depth": depth, "before_bytes": old, "after_bytes": new}
                for space, depth, old, new in self.spills_by_depth
            ],
            "instruction_mix": [
                {"opcode": name, "before": before, "after": after}
                for name, before, after in self.mix
            ],
            "causes": [cause.to_dict() for cause in self.causes],
        }


_DECISIVE = (
    "active_blocks",
    "active_warps",
    "occupancy_pct",
    "spill_bytes",
    "loop_spill_bytes",
    "array_accesses",
)
_SHARED = ("shared_spill_bytes", "loop_shared_spill_bytes")
_SUMMARY = ("active_blocks", "loop_spill_bytes", "spill_bytes", *_SHARED, "array_accesses")
_WORDS = {
    "active_blocks": "resident blocks",
    "loop_spill_bytes": "local spill bytes inside loops",
    "spill_bytes": "local spill bytes",
    "shared_spill_bytes": "shared spill bytes",
    "loop_shared_spill_bytes": "shared spill bytes inside loops",
    "array_accesses": "local array accesses",
}


def _words(change: Change) -> str:
    return f"{_WORDS[change.metric]} {_shown(change.before)} to {_shown(change.after)}"


def _shown(value: Value) -> str:
    return "unknown" if value is None else str(value)


def compare(before: KernelReport, after: KernelReport) -> KernelDiff:
    """Compares two reports, made with the same block size."""
    rows = [(metric, metric.read(before), metric.read(after)) for metric in METRICS]
    values = {metric.name: (old, new) for metric, old, new in rows}
    changes = tuple(
        Change(metric.name, old, new, _verdict(metric, values))
        for metric, old, new in rows
        if old != new
    )
    verdicts = {change.verdict for change in changes}
    return KernelDiff(
        before=before,
        after=after,
        changes=changes,
        spills_by_depth=_spills_by_depth(before, after),
        mix=_mix(before, after),
        causes=tuple(_causes(before, after)),
        verdict="worse" if "worse" in verdicts else "better" if "better" in verdicts else "same",
    )


_Values = dict[str, tuple[Value, Value]]


def _verdict(metric: Metric, values: _Values) -> str:
    change = _change(metric.name, values)
    if not change or not metric.better:
        return "changed"
    verdict = "better" if change * metric.better > 0 else "worse"
    if metric.name in _DECISIVE:
        return verdict
    if metric.name == "registers":  # without a block size, it is all there is of residency
        return verdict if None in values["active_warps"] else "changed"
    if metric.name in _SHARED:
        # Slots that took the place of local spills, or that more warps were paid with, are no loss.
        moved = _change("spill_bytes", values) * change < 0
        paid = _change("active_warps", values) > 0 and metric.name == "shared_spill_bytes"
        return "changed" if moved or (paid and verdict == "worse") else verdict
    return "changed"


def _change(name: str, values: _Values) -> float:
    old, new = values[name]
    return 0 if old is None or new is None else new - old


def _spills_by_depth(
    before: KernelReport, after: KernelReport
) -> tuple[tuple[str, int, int, int], ...]:
    def totals(report: KernelReport) -> Counter[tuple[str, int]]:
        found: Counter[tuple[str, int]] = Counter()
        if report.analysis is not None:
            for site in report.analysis.spills.spills.spill_sites:
                if site.is_counted:
                    found[site.space, site.loop_depth] += site.bytes_per_thread
        return found

    old, new = totals(before), totals(after)
    return tuple((*key, old[key], new[key]) for key in sorted({*old, *new}))


def _mix(before: KernelReport, after: KernelReport) -> tuple[tuple[str, int, int], ...]:
    if before.analysis is None or after.analysis is None:
        return ()
    old, new = before.analysis.mix, after.analysis.mix
    rows = [(name, old.get(name, 0), new.get(name, 0)) for name in {*old, *new}]
    changed = [row for row in rows if row[1] != row[2]]
    return tuple(sorted(changed, key=lambda row: (-abs(row[2] - row[1]), row[0])))


def _causes(before: KernelReport, after: KernelReport) -> list[Cause]:
    if before.analysis is None or after.analysis is None:
        return []
    found: list[Cause] = []
    unrolled = _unrolling(before, after)
    if unrolled is not None:
        found.append(unrolled)
    arrays = _arrays(after)
    if arrays > _arrays(before) == 0:
        found.append(
            Cause(
                "dynamic_array",
                f"A local array is indexed at run time now: {arrays} accesses.",
                {"accesses": arrays, "local_bytes": after.local_bytes},
                "index it by constants (unroll the loops over it), or keep it in shared memory",
            )
        )
    if not found and after.registers_per_thread < before.registers_per_thread:
        spilled = [
            sum(
                report.analysis.spills.made_by(site) != "rewrite"
                for site in report.analysis.spills.spills.spill_sites
            )
            for report in (before, after)
            if report.analysis is not None
        ]
        if spilled[1] > spilled[0]:
            found.append(
                Cause(
                    "register_cap",
                    f"Fewer registers than values: {after.registers_per_thread} allocated, and "
                    f"{spilled[1]} spill accesses instead of {spilled[0]}.",
                    {"registers": after.registers_per_thread, "spill_sites": spilled[1]},
                    f"{_promote(after)}demote the uncapped build to this count",
                )
            )
    return found


def _promote(report: KernelReport) -> str:
    """The command that moves spills, and "or"; empty where it would be refused."""
    code = report.analysis
    if report.unlaunchable is not None or code is None or code.frame_reason:
        return ""
    if not any(site.space == "local" for site in code.spills.spills.spill_sites):
        return ""
    return f"regdem promote FILE -o OUT --kernel {report.name}{launch_options(report)}, or "


def _unrolling(before: KernelReport, after: KernelReport) -> Cause | None:
    old, new = before.analysis, after.analysis
    assert old is not None
    assert new is not None
    effect = _effect(before, after)
    if not effect:
        return None
    grown = growth(old.line_loads, new.line_loads)
    vanished = len(new.loops) < len(old.loops)
    if grown is None and not (vanished and new.instructions >= GROWTH * old.instructions):
        return None
    evidence: dict[str, Any] = {
        "loops": [len(old.loops), len(new.loops)],
        "instructions": [old.instructions, new.instructions],
    }
    place, full, factor = "a loop", vanished, 0
    if grown is not None:
        line, was = grown.after, grown.before
        full = grown.is_full if was is not None else vanished
        evidence |= {
            "source": str(line.source),
            "copies": line.copies,
            "copies_before": None if was is None else was.copies,
        }
        place = f"{'the' if grown.is_one_loop else 'a'} loop around {line.source} ({line.copies} "
        place += "copies)" if was is None else f"copies instead of {was.copies})"
        factor = line.copies // FACTOR_SHARE if grown.is_one_loop else 0
    return Cause(
        "full_unroll" if full else "unroll",
        f"A {'full' if full else 'deeper'} unroll of {place} {effect}.",
        evidence,
        _less_unrolling(before, after, factor),
    )


def _less_unrolling(before: KernelReport, after: KernelReport, factor: int) -> str:
    if _arrays(before):
        return f"{_promote(after)}unroll less where that indexes no array at run time, as before"
    less = "unroll less, nearer to the first build's factor: that"
    if factor > 1:
        less = f"unroll partially: #pragma unroll {factor} there"
    return f"{less} keeps some overlap with fewer values live at once"


def _effect(before: KernelReport, after: KernelReport) -> str:
    """What more is in registers, or spilled, in words; empty where nothing is."""
    old, new = before.analysis, after.analysis
    assert old is not None
    assert new is not None
    was, now = (sum(site.bytes_per_thread for site in code.spills.hot) for code in (old, new))
    spills = f"{now} bytes of spills per turn inside a loop"
    if after.registers_per_thread > before.registers_per_thread:
        said = (
            f"takes the kernel from {before.registers_per_thread} to {after.registers_per_thread} "
            f"registers ({old.pressure.peak} to {new.pressure.peak} live at the peak)"
        )
        return said + (f", with {spills}" if now > was else "") + _lost_blocks(before, after)
    if new.pressure.peak > old.pressure.peak:
        said = f"takes the kernel from {old.pressure.peak} to {new.pressure.peak} values live at "
        return f"{said}the peak" + (f", with {spills}" if now > was else "")
    return f"leaves {spills} instead of {was}" if now > was else ""


def _arrays(report: KernelReport) -> int:
    """Accesses to arrays in local memory that are indexed at run time."""
    sites = () if report.analysis is None else report.analysis.spills.spills.sites
    return sum(1 for site in sites if site.kind == "array")


def _lost_blocks(before: KernelReport, after: KernelReport) -> str:
    if before.occupancy is None or after.occupancy is None:
        return ""
    lost = before.occupancy.active_blocks - after.occupancy.active_blocks
    if lost <= 0:
        return ""
    return (
        f", and costs {lost} resident block{'s' if lost > 1 else ''} "
        f"({before.occupancy.active_blocks} to {after.occupancy.active_blocks})"
    )


def text_diff(diff: KernelDiff) -> str:
    """The comparison as plain text; ends in a newline."""
    lines = [f"{diff.after.demangled_name}: {diff.verdict}", f"  {diff.summary}"]
    for change in diff.changes:
        verdict = "" if change.verdict == "changed" else change.verdict
        old, new = _shown(change.before), _shown(change.after)
        row = f"  {change.metric:<20} {old:>8} -> {new:<8} {verdict}"
        lines.append(row.rstrip())
    for space, depth, was, now in diff.spills_by_depth:
        lines.append(f"  {space} spill bytes at loop depth {depth}: {was} -> {now}")
    if diff.mix:
        shown = ", ".join(f"{name} {was} -> {now}" for name, was, now in diff.mix[:8])
        lines.append(f"  instruction mix      {shown}")
    for cause in diff.causes:
        lines += [
            f"  cause                {cause.message}",
            f"  do                   {cause.action}",
        ]
    return "\n".join(lines) + "\n"
