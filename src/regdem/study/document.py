"""A study as the value that `study.json` holds; its schema is `regdem schema study`."""

from __future__ import annotations

import hashlib
from typing import Any

from regdem.study.effect import LoopEffect
from regdem.study.model import Analysed, Build, Refused, Study


def study_dict(study: Study) -> dict[str, Any]:
    """The JSON form, without the envelope that every verb's answer begins with."""
    return {
        "study": study.kind,
        "kernel": study.kernel,
        "demangled_name": study.base.analysed.kernel.demangled_name,
        "arch": study.arch,
        "threads": study.threads,
        "dynamic_shared_bytes": study.dynamic_shared_bytes,
        "compiler": study.compiler,
        "flags": list(study.flags),
        "define": study.define,
        "loops": [target.to_dict() for target in study.loops],
        "builds": [_build(study, build) for build in study.builds],
        "refused": [_refused(entry) for entry in study.refused],
        "recommendation": study.recommendation.to_dict(),
        "outputs_differ": study.outputs_differ,
        "device": study.device,
        "no_times": study.no_times,
        "no_counters": study.no_counters,
        "noise": None if study.noise is None else round(study.noise, 6),
        "notes": list(study.notes),
    }


def _build(study: Study, build: Build) -> dict[str, Any]:
    one = build.analysed
    resources = one.resources
    assert one.compiled.cubin is not None
    return {
        "name": build.name,
        "title": build.spec.title,
        "factor": build.spec.factor,
        "change": build.spec.change or None,
        "files": {kind: f"{build.name}.{kind}" for kind in ("cubin", "sass", "log")},
        "cubin_sha256": hashlib.sha256(one.compiled.cubin).hexdigest(),
        "same_code_as": build.same_as,
        "registers_per_thread": one.kernel.registers_per_thread,
        "static_shared_bytes": one.kernel.static_shared_bytes,
        "local_bytes": one.kernel.local_bytes,
        "max_live": one.code.max_live,
        "ptxas": None if resources is None else dict(vars(resources)),
        "spills": _spills(one),
        "occupancy": None if one.report.occupancy is None else one.report.occupancy.to_dict(),
        "instructions": one.code.instructions,
        "executed": build.executed.to_dict(),
        "loops": [_loop(study, build, target.index) for target in study.loops],
        "hot_loop": None if build.hot is None else build.hot.to_dict(),
        "prediction": build.prediction.to_dict(),
        "verdict": build.verdict.to_dict(),
        "measured": None if build.measured is None else build.measured.to_dict(),
    }


def spills_by_depth(one: Analysed) -> list[tuple[int, int, int, int]]:
    """(loop depth, sites, local bytes, shared bytes), by depth."""
    found: dict[int, list[int]] = {}
    for site in one.code.spills.spills.spill_sites:
        row = found.setdefault(site.loop_depth, [0, 0, 0])
        row[0] += 1
        row[1 if site.space == "local" else 2] += site.bytes_per_thread
    return [(depth, *_three(row)) for depth, row in sorted(found.items())]


def _three(row: list[int]) -> tuple[int, int, int]:
    return row[0], row[1], row[2]


def _spills(one: Analysed) -> dict[str, Any]:
    report = one.code.spills
    return {
        "local_store_bytes": report.store_bytes,
        "local_load_bytes": report.load_bytes,
        "shared_store_bytes": report.spills.total_bytes("shared", store=True),
        "shared_load_bytes": report.spills.total_bytes("shared", store=False),
        "in_loops_bytes": one.loop_spill_bytes,
        "by_loop_depth": [
            {"loop_depth": depth, "sites": sites, "local_bytes": local, "shared_bytes": shared}
            for depth, sites, local, shared in spills_by_depth(one)
        ],
    }


def _loop(study: Study, build: Build, index: int) -> dict[str, Any]:
    effect: LoopEffect = build.comparison.effect(index)
    target = next(entry for entry in study.loops if entry.index == index)
    region = None if effect.main is None else build.analysed.anatomy.region(effect.main)
    counter = region.counter if region is not None and not effect.gone else None
    return {
        "line": target.line or None,
        "gone": effect.gone,
        "copies": round(effect.copies, 3),
        "factor": round(effect.factor, 3),
        "counter_step": None if counter is None else counter.step,
        "counter_step_ratio": effect.step_ratio if effect.step_agrees else None,
        "start_offset": None if region is None else region.start_offset,
        "end_offset": None if region is None else region.end_offset,
        "instructions": None if region is None else region.instructions,
        "work": {} if region is None else _work(region.work or region.integer_work),
    }


def _work(work: dict[tuple[str, str], int]) -> dict[str, int]:
    """Amounts by mnemonic: bytes of memory accesses, else operations."""
    totals: dict[str, int] = {}
    for (name, _), amount in work.items():
        totals[name] = totals.get(name, 0) + amount
    return dict(sorted(totals.items()))


def _refused(entry: Refused) -> dict[str, Any]:
    return {
        "name": entry.spec.name,
        "title": entry.spec.title,
        "reason": entry.compiled.failure,
        "files": {"log": f"{entry.spec.name}.log"},
    }
