"""Builds every variant of every kernel on a machine that needs no GPU.

The result is a folder with the cubins and `manifest.json`; it travels to the machine with the
GPU. A variant that can't be made stays in the manifest with the reason.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.suite.cliffs import next_cliffs, resident_blocks
from bench.suite.spec import KernelSpec
from bench.suite.toolchain import (
    ARCH,
    Outcome,
    Resources,
    at_once,
    call,
    compile_command,
    inject,
    nvcc_version,
    parse_resources,
    ptxas_command,
    regdem_command,
)
from bench.suite.variants import (
    DEFAULT,
    Build,
    Facts,
    Variant,
    rewrites_of,
    suite_variants,
    ten_variants,
)
from regdem.bases import CodeKey, code_key
from regdem.binary import Cubin
from regdem.binary.atomic import write_atomically

MOST_ABOVE = 4
"""Register counts from the default's up to that of cap 255, at which builds are made too."""
_REWRITE_S = 900.0
FASTEST = 3
"""How many of the builds that were measured as fastest are rewritten further."""
MOST_WIDER = 4
"""Register counts above the default's, with fewer blocks, at which new orders are made."""
KERNELS = Path(__file__).resolve().parent.parent / "kernels"

Record = dict[str, Any]


@dataclass(frozen=True)
class Built:
    """A compiled build: the file, ptxas's report and the commands; or why there is none."""

    path: Path | None
    resources: Resources | None
    commands: tuple[str, ...]
    reason: str = ""
    seconds: float = 0.0


def _reason(outcome: Outcome) -> str:
    lines = [line for line in (outcome.stderr + outcome.stdout).splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    return (telling or lines or [f"exit status {outcome.status}"])[0][:400]


def _portable(command: tuple[str, ...], out: Path) -> str:
    """A command as anyone could type it: no paths of this machine."""
    words: list[str] = []
    for word in command:
        word = word.replace(str(out) + "/", "").replace(str(KERNELS) + "/", "")
        words.append(Path(word).name if word.startswith("/") else word)
    return " ".join(words)


def _cache_key(spec: KernelSpec, how: Build) -> str:
    """Everything a build depends on."""
    digest = hashlib.sha256((KERNELS / spec.source).read_bytes())
    flags = (*spec.nvcc_flags, *how.front_options)
    facts = (how.name, spec.kernel, spec.block, flags, ARCH, nvcc_version())
    if how.cap is not None and is_bounded(spec):
        facts = (*facts, "cap as a directive")
    digest.update(repr(facts).encode())
    return digest.hexdigest()[:32]


def build(spec: KernelSpec, how: Build, out: Path) -> Built:
    """`compile_build`, or its result from the folder `build-cache` beside `out`."""
    cache = out.parent / "build-cache"
    cache.mkdir(parents=True, exist_ok=True)
    stem = cache / _cache_key(spec, how)
    note, image = stem.with_suffix(".json"), stem.with_suffix(".cubin")
    target = out / f"{spec.name}.{how.name}.cubin"
    if note.exists():
        saved: Record = json.loads(note.read_text())
        if saved["built"] and image.exists():
            target.write_bytes(image.read_bytes())
        if not saved["built"] or image.exists():
            resources = Resources(**saved["resources"]) if saved["resources"] else None
            path = target if saved["built"] else None
            commands = tuple(saved["commands"])
            return Built(path, resources, commands, saved["reason"], saved["seconds"])
    built = compile_build(spec, how, out)
    if built.path is not None:
        image.write_bytes(built.path.read_bytes())
    note.write_text(
        json.dumps(
            {
                "built": built.path is not None,
                "resources": asdict(built.resources) if built.resources else None,
                "commands": built.commands,
                "reason": built.reason,
                "seconds": built.seconds,
            }
        )
    )
    return built


_locks: dict[Path, threading.Lock] = {}
_guard = threading.Lock()


def _one_at_a_time(path: Path) -> threading.Lock:
    """The lock of a file that several builds need."""
    with _guard:
        return _locks.setdefault(path, threading.Lock())


def _ptx_of(spec: KernelSpec, how: Build, out: Path) -> tuple[str | None, Outcome | None]:
    """The PTX a build starts from (compiled, or shipped as the source); None: not compiled."""
    source = KERNELS / spec.source
    if source.suffix == ".ptx":
        return source.read_text(), None
    saved = out.parent / "build-cache" / f"{_cache_key(spec, Build(front=how.front))}.ptx"
    with _one_at_a_time(saved):
        return _ptx_from(spec, how, out, saved)


def _ptx_from(
    spec: KernelSpec, how: Build, out: Path, saved: Path
) -> tuple[str | None, Outcome | None]:
    if saved.exists():
        return saved.read_text(), None
    source = KERNELS / spec.source
    ptx = out / f"{spec.name}.{how.name}.base.ptx"
    flags = (*spec.nvcc_flags, *how.front_options)
    done = call(compile_command(source, ptx, kind="ptx", cap=None, flags=flags))
    text = ptx.read_text() if done.ok else None
    ptx.unlink(missing_ok=True)
    if text is not None:
        write_atomically(saved, text.encode())
    return text, done


def is_bounded(spec: KernelSpec) -> bool:
    """Whether the source has launch bounds: ptxas ignores `-maxrregcount` beside them."""
    return "__launch_bounds__" in (KERNELS / spec.source).read_text()


def compile_build(spec: KernelSpec, how: Build, out: Path) -> Built:
    """Compiles one build of a kernel into `out`."""
    source = KERNELS / spec.source
    target = out / f"{spec.name}.{how.name}.cubin"
    commands: tuple[str, ...] = ()
    seconds = 0.0
    as_directive = how.cap is not None and is_bounded(spec)
    if source.suffix == ".ptx" and how.front:
        return Built(None, None, (), "PTX has no front end")
    if source.suffix == ".ptx" or how.pragma or how.front or as_directive:
        text, first = _ptx_of(spec, how, out)
        if first is not None:
            commands, seconds = (_portable(first.command, out),), first.seconds
        if text is None:
            reason = _reason(first) if first is not None else "no PTX"
            return Built(None, None, commands, reason, seconds)
        if how.pragma or (how.cap is not None and (as_directive or source.suffix == ".ptx")):
            try:
                text = inject(text, spec.kernel, spec.block, how.cap, pragma=how.pragma)
            except ValueError as error:
                return Built(None, None, commands, str(error), seconds)
            limit = None
        else:
            limit = how.cap
        ptx = out / f"{spec.name}.{how.name}.ptx"
        ptx.write_text(text)
        done = call(ptxas_command(ptx, target, limit))
        ptx.unlink()
    else:
        flags = (*spec.nvcc_flags, *how.front_options)
        done = call(compile_command(source, target, kind="cubin", cap=how.cap, flags=flags))
    commands = (*commands, _portable(done.command, out))
    seconds += done.seconds
    if not done.ok or not target.exists():
        target.unlink(missing_ok=True)
        return Built(None, None, commands, _reason(done), seconds)
    resources = parse_resources(done.stderr + done.stdout, spec.kernel)
    return Built(target, resources, commands, seconds=seconds)


def rewrite_command(spec: KernelSpec, variant: Variant, source: Path, target: Path) -> list[str]:
    """The `regdem` call of a rewritten variant."""
    assert variant.rewrite is not None
    how = variant.rewrite
    start = KERNELS / spec.source if how.from_source else source
    command = [*regdem_command(), how.verb, str(start), "-o", str(target)]
    command += ["--kernel", f"^{spec.kernel}$", "--threads", ",".join(map(str, spec.block))]
    if how.registers is not None:
        command += ["--registers", str(how.registers)]
    if spec.dynamic_shared_bytes:
        command += ["--dynamic-shared-bytes", str(spec.dynamic_shared_bytes)]
    if how.verb == "optimize":
        command += ["--jobs", "1"]
    if how.from_source:
        command += [f"--compile-option={flag}" for flag in spec.nvcc_flags]
    return [*command, *how.options, "--format", "json"]


def _tool_error(outcome: Outcome) -> tuple[str, str]:
    """(status, reason) of a failed `regdem` call."""
    try:
        error = json.loads(outcome.stdout)["error"]
        return "refused", f"{error['code']}: {error['message']}"
    except (json.JSONDecodeError, KeyError, TypeError):
        pass
    status = "refused" if outcome.status in (1, 2) else "failed"
    return status, _reason(outcome)


def _tool_summary(stdout: str, kernel: str) -> Record:
    """The part of the tool's JSON that is kept: before, after, counts, checks, choice."""
    try:
        kernels: list[Record] = json.loads(stdout)["kernels"]
    except (json.JSONDecodeError, KeyError, TypeError):
        return {}
    for entry in kernels:
        if entry.get("name") == kernel:
            keys = ("before", "after", "inserted_instructions", "removed_instructions")
            summary = {key: entry[key] for key in (*keys, "chosen", "checks") if key in entry}
            summary["demoted"] = len(entry.get("demoted") or ())
            summary["rematerialised"] = len(entry.get("rematerialised") or ())
            return summary
    return {}


def _finish(record: Record, path: Path) -> Record:
    data = path.read_bytes()
    record["file"] = path.name
    record["sha256"] = hashlib.sha256(data).hexdigest()
    record["bytes"] = len(data)
    record["status"] = "built"
    return record


def make_variant(spec: KernelSpec, variant: Variant, base: Built, out: Path) -> Record:
    """Makes one variant from its build; the record says what came of it."""
    record: Record = {
        "name": variant.name,
        "family": variant.family,
        "status": "refused",
        "reason": base.reason,
        "commands": list(base.commands),
        "build_seconds": round(base.seconds, 3),
    }
    if base.resources is not None:
        record |= asdict(base.resources)
    if base.path is None:
        return record
    if variant.rewrite is None:
        return _finish(record, base.path)
    target = out / f"{spec.name}.{variant.name}.cubin"
    command = rewrite_command(spec, variant, base.path, target)
    done = call(command, timeout_s=_REWRITE_S, cwd=out)
    record["commands"].append(_portable(done.command, out))
    record["rewrite_seconds"] = round(done.seconds, 3)
    if not done.ok or not target.exists():
        target.unlink(missing_ok=True)
        record["status"], record["reason"] = _tool_error(done)
        return record
    record["tool"] = _tool_summary(done.stdout, spec.kernel)
    after = record["tool"].get("after") or {}
    if "registers_per_thread" in after:
        record["registers"] = after["registers_per_thread"]
    return _finish(record, target)


def plan(spec: KernelSpec, default: Built, widest: Built) -> tuple[list[int], list[Variant]]:
    """The next cliffs of a kernel's default build, and the variants to make.

    `widest` is the build with cap 255.
    """
    if default.resources is None:
        return [], [DEFAULT]
    facts = facts_of(spec, default.resources, (widest.resources or default.resources).registers)
    if spec.group == "ten":
        return list(facts.below), ten_variants(facts)
    return list(facts.below), suite_variants(facts)


def facts_of(spec: KernelSpec, build: Resources, most_registers: int) -> Facts:
    """Cliffs around a build; those above it up to `most_registers`."""
    shared = build.static_shared_bytes + spec.dynamic_shared_bytes
    below = next_cliffs(spec.threads, build.registers, shared, 3)
    above = next_cliffs(spec.threads, most_registers, shared, 9)
    above = [t for t in above if t >= build.registers]
    counts = range(build.registers, 256)
    most = {resident_blocks(spec.threads, n, shared): n for n in counts}
    now = resident_blocks(spec.threads, build.registers, shared)
    wider = [most[blocks] for blocks in sorted(most, reverse=True) if blocks < now][:MOST_WIDER]
    spills = build.spill_store_bytes > 0
    return Facts(below, above[-MOST_ABOVE:], spills, build.registers, most[now], wider)


def finished(record: Record, out: Path) -> bool:
    """Whether a variant of an earlier preparation need not be made again.

    Refusals that say that the tool itself failed, or did not have the verb, are tried again.
    """
    if record.get("file"):
        return (out / record["file"]).exists()
    again = ("internal_error", "no verb", "exit status", "no end within", "Traceback")
    return not any(word in (record.get("reason") or "") for word in again)


def prepare_kernel(
    spec: KernelSpec,
    out: Path,
    say: Callable[[str], None],
    wanted: str = "",
    before: dict[str, Record] | None = None,
    fastest: Sequence[str] = (),
) -> Record:
    """Every variant of one kernel whose name matches `wanted` (and the default).

    `before` holds the records of an earlier preparation by variant; what is finished there stays.
    `fastest`: names of builds that were measured; then their rewrites are made, and all that was
    made before stays. Builds, and then rewrites, are made side by side (`toolchain.at_once` bounds
    the commands).
    """
    default = build(spec, DEFAULT.build, out)
    widest = build(spec, Build(255), out)
    cliffs, variants = plan(spec, default, widest)
    if fastest:
        variants = [DEFAULT, *_rewrites_of_fastest(spec, variants, fastest, before or {}, out)]
    variants = [v for v in variants if v is DEFAULT or re.search(wanted, v.name)]
    plain = [replace(v.build, front="") for v in variants]
    hows = list(dict.fromkeys([DEFAULT.build, Build(255), *plain, *(v.build for v in variants)]))
    record: Record = {
        "name": spec.name,
        "kernel": spec.kernel,
        "group": spec.group,
        "source": spec.source,
        "source_sha256": hashlib.sha256((KERNELS / spec.source).read_bytes()).hexdigest(),
        "block": list(spec.block),
        "dynamic_shared_bytes": spec.dynamic_shared_bytes,
        "cliffs": cliffs,
        "variants": [],
    }
    if default.resources is not None:
        facts = default.resources
        record["resident_blocks"] = resident_blocks(
            spec.threads, facts.registers, facts.static_shared_bytes + spec.dynamic_shared_bytes
        )

    def one(variant: Variant) -> Record:
        earlier = (before or {}).get(variant.name)
        if earlier is not None and variant.rewrite is not None and finished(earlier, out):
            return earlier
        made = make_variant(spec, variant, builds[variant.build], out)
        note = made["reason"] if made["status"] != "built" else f"{made.get('registers', '?')} regs"
        say(f"{spec.name:22s} {variant.name:20s} {made['status']:8s} {note[:90]}")
        return made

    with ThreadPoolExecutor(max_workers=max(len(variants), 1)) as pool:
        builds = dict(zip(hows, pool.map(lambda how: build(spec, how, out), hows), strict=True))
        first = _first_alike(builds, spec.kernel)
        worth = [v for v in variants if not _is_repeated(v, first)]
        record["variants"] = list(pool.map(one, worth))
    if fastest:
        made = {variant["name"] for variant in record["variants"]}
        earlier = [variant for variant in (before or {}).values() if variant["name"] not in made]
        record["variants"] += earlier
    used = {made.get("file") for made in record["variants"]}
    for built in builds.values():
        if built.path is not None and built.path.name not in used:
            built.path.unlink(missing_ok=True)
    return record


def _rewrites_of_fastest(
    spec: KernelSpec,
    planned: Sequence[Variant],
    fastest: Sequence[str],
    before: dict[str, Record],
    out: Path,
) -> list[Variant]:
    """The first `FASTEST` different builds of those names and their rewrites; not what is there."""
    plain = {variant.name: variant for variant in planned if variant.rewrite is None}
    named = {name: variant.build for name, variant in plain.items()}
    builds = {named[name]: build(spec, named[name], out) for name in fastest if name in named}
    alike = _first_alike(builds, spec.kernel)
    found: dict[str, Variant] = {}
    for how in list(dict.fromkeys(alike.values()))[:FASTEST]:
        made = builds[how].resources
        if made is not None:
            facts = facts_of(spec, made, made.registers)
            here = [plain[how.name], *rewrites_of(how, facts)]
            found |= {v.name: v for v in here if v.name not in before}
    return list(found.values())


def _is_repeated(variant: Variant, first: dict[Build, Build]) -> bool:
    """Whether a variant starts from machine code that another build stands for, or from none.

    `first`: of each build that compiled, the first with the same code. Builds of NVIDIA's own
    levers are always measured; another front's, where they differ from all before them.
    """
    if variant.build.front:
        return first.get(variant.build) != variant.build
    if variant.rewrite is None or variant.build == DEFAULT.build:
        return False
    return first.get(variant.build) in (None, DEFAULT.build)


def _first_alike(builds: dict[Build, Built], kernel: str) -> dict[Build, Build]:
    """Of each build that compiled, the first with the same code and resources."""
    seen: dict[CodeKey, Build] = {}
    first: dict[Build, Build] = {}
    for how, built in builds.items():
        if built.path is not None:
            code = Cubin.parse(built.path.read_bytes(), how.name).kernel(kernel)
            first[how] = seen.setdefault(code_key(code), how)
    return first


def _earlier(out: Path) -> dict[str, Record]:
    """Kernels of an earlier, possibly interrupted preparation, by name."""
    return {
        record["name"]: record
        for path in out.glob("*.json")
        if path.name != "manifest.json" and "variants" in (record := json.loads(path.read_text()))
    }


def _same_source(spec: KernelSpec, old: dict[str, Record]) -> dict[str, Record] | None:
    """An earlier preparation's variants, if source and block are still the same."""
    record = old.get(spec.name)
    digest = hashlib.sha256((KERNELS / spec.source).read_bytes()).hexdigest()
    if record is None or record.get("source_sha256") != digest:
        return None
    if record.get("block") != list(spec.block):
        return None
    return {variant["name"]: variant for variant in record["variants"]}


def prepare(
    specs: list[KernelSpec],
    out: Path,
    *,
    jobs: int,
    say: Callable[[str], None],
    variants: str = "",
    resume: bool = False,
    fastest: dict[str, list[str]] | None = None,
) -> Record:
    """Makes all variants, or those that match `variants`, and writes `manifest.json`.

    `jobs` kernels are prepared at a time. `fastest`: by kernel, the builds whose rewrites are to be
    added to what is there.
    """
    out.mkdir(parents=True, exist_ok=True)
    started = time.time()
    old = _earlier(out) if resume or fastest is not None else {}

    def one(spec: KernelSpec) -> Record:
        try:
            first = (fastest or {}).get(spec.name, [])
            if fastest is not None and not first:
                return old[spec.name]
            record = prepare_kernel(spec, out, say, variants, _same_source(spec, old), first)
            (out / f"{spec.name}.json").write_text(json.dumps(record))
            return record
        except Exception as error:  # one kernel must not end the run
            say(f"{spec.name:22s} {'':20s} failed   {error!r}")
            return {"name": spec.name, "variants": [], "error": repr(error)}

    at_once(jobs)
    with ThreadPoolExecutor(max_workers=max(len(specs), 1)) as pool:
        kernels = list(pool.map(one, specs))
    manifest: Record = {
        "schema_version": 1,
        "arch": ARCH,
        "nvcc": nvcc_version(),
        "prepared_unix_s": round(started),
        "prepare_seconds": round(time.time() - started, 1),
        "kernels": kernels,
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest
