"""What the optimiser starts from: a cubin, and PTX that the same kernels can be built from.

| file | cubin | PTX |
|---|---|---|
| `K.cu`, `K.ptx` | its default build, made here | what the front end makes, or the file |
| `K.cubin` | the file | `ptx=`, else `K.ptx` beside it if that compiles to the same code |
| fat binary, object, program, library | each embedded one | the embedded text with its kernels |

A PTX file that merely lies beside a cubin may be of another day: it is taken only if the compiler
found here makes exactly the cubin's code of it. One that is named, or embedded in the same file, is
believed; one that is named and does not compile, or is of other kernels, is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regdem.bases import Source, ptx_source, source_of
from regdem.binary import Cubin, Entry, open_container
from regdem.binary.embed import replace_cubins
from regdem.combine import same_code
from regdem.errors import InputError, RegdemError, UsageError
from regdem.integrations.compile import ptx_of
from regdem.integrations.toolkit import find_tool
from regdem.isa.table import supported_architectures

SOURCES = (".cu", ".ptx")


@dataclass(frozen=True)
class OptimizerInput:
    """One cubin to optimise. `label`: the path, or the entry of the container it lies in, which is
    the one at `position` (-1 for a cubin or source by itself).

    `is_compiled`: the cubin is the default build of `source`. `notes`: what the user should know.
    """

    label: str
    cubin: Cubin
    source: Source | None = None
    is_compiled: bool = False
    notes: tuple[str, ...] = ()
    position: int = -1


def open_inputs(
    path: str | Path,
    *,
    arch: str | None = None,
    ptx: str | Path | None = None,
    options: Sequence[str] = (),
    with_ptx: bool = True,
) -> list[OptimizerInput]:
    """The cubins of a file, each with its PTX where there is one.

    arch: what to compile for (default sm_90, or what the PTX is for), and which embedded cubins to
    keep (default all). ptx: the PTX of a cubin. options: of the compiler, for sources. with_ptx:
    whether to look for PTX at all. Raises InputError, UsageError or UnsupportedError as `load` and
    the compiler do.
    """
    path = Path(path)
    if path.suffix in SOURCES and path.is_file():
        if ptx is not None:
            raise UsageError("a source is compiled; PTX goes with a cubin", file=str(path))
        source = source_of(path, arch, options)
        cubin = Cubin.parse(source.build({}), str(path))
        return [OptimizerInput(str(path), cubin, source, is_compiled=True)]
    entries = open_container(path)
    kept = [
        (position, entry)
        for position, entry in enumerate(entries)
        if entry.kind == "cubin" and (arch is None or entry.arch == arch)
    ]
    if not kept:
        kinds = ", ".join(sorted({entry.kind for entry in entries}))
        wanted = f" for {arch}" if arch else ""
        raise InputError(
            f"no compiled device code{wanted} in it", file=str(path), hint=f"only {kinds}"
        )
    given = None if ptx is None else ptx_of(ptx)
    texts = [entry for entry in entries if entry.kind == "ptx"]
    found: list[OptimizerInput] = []
    for position, entry in kept:
        if with_ptx or given is not None:
            one = _with_ptx(entry, path, texts, given, ptx, options)
        else:
            one = OptimizerInput(entry.name, Cubin.parse(entry.read(), entry.name))
        is_plain = len(entries) == 1 and entry.name == str(path)
        found.append(one if is_plain else replace(one, position=position))
    return found


def _with_ptx(
    entry: Entry,
    path: Path,
    texts: Sequence[Entry],
    given: str | None,
    given_name: str | Path | None,
    options: Sequence[str],
) -> OptimizerInput:
    cubin = Cubin.parse(entry.read(), entry.name)
    if given is not None:
        if cubin.arch not in supported_architectures():
            return OptimizerInput(entry.name, cubin)
        source = ptx_source(given, str(given_name), cubin.arch, options)
        _refuse_other_ptx(source, cubin)
        return OptimizerInput(entry.name, cubin, source)
    if find_tool("ptxas") is None:
        return OptimizerInput(entry.name, cubin)
    if texts:
        return OptimizerInput(entry.name, cubin, _embedded(cubin, texts, options))
    beside = path.with_suffix(".ptx")
    if entry.name != str(path) or not beside.is_file():
        return OptimizerInput(entry.name, cubin)
    try:
        source = ptx_source(ptx_of(beside), str(beside), cubin.arch, options)
        made = Cubin.parse(source.build({}), str(beside))
    except RegdemError as error:
        return OptimizerInput(entry.name, cubin, notes=(f"{beside} is not used: {error.message}",))
    if _is_default_build(cubin, made):
        used = f"{beside} is used: it compiles to the same code, so builds of it are tried as well"
        return OptimizerInput(entry.name, cubin, source, notes=(used,))
    note = f"{beside} is not used: it compiles to other code; --ptx {beside} uses it all the same"
    return OptimizerInput(entry.name, cubin, notes=(note,))


def _refuse_other_ptx(source: Source, cubin: Cubin) -> None:
    """PTX that is named must be usable: to go on without it would answer another question.

    Raises InputError with the compiler's message where it does not compile, UsageError where it is
    of other kernels, UnsupportedError without a compiler.
    """
    wanted = {kernel.name for kernel in cubin.kernels}
    if wanted and not wanted & set(source.kernels):
        raise UsageError(
            "defines none of the file's kernels",
            file=source.name,
            hint=f"it defines: {', '.join(source.kernels[:5]) or 'none'}",
        )
    source.build({})


def _embedded(cubin: Cubin, texts: Sequence[Entry], options: Sequence[str]) -> Source | None:
    """The PTX with the cubin's kernels, the one for the newest architecture."""
    wanted = {kernel.name for kernel in cubin.kernels}
    found: list[tuple[int, Source]] = []
    for text in texts:
        ptx = text.read().rstrip(b"\0").decode("utf-8", errors="surrogateescape")
        source = ptx_source(ptx, text.name, cubin.arch, options)
        if wanted <= set(source.kernels):
            digits = "".join(c for c in text.arch or "" if c.isdigit())
            found.append((int(digits or 0), source))
    usable = [each for each in found if each[0] <= int(cubin.arch.removeprefix("sm_").rstrip("af"))]
    return max(usable, key=lambda each: each[0])[1] if usable else None


def _is_default_build(cubin: Cubin, made: Cubin) -> bool:
    """The same kernels, and the same constants and initial values of globals."""
    by_name = {kernel.name: kernel for kernel in made.kernels}
    same = all(
        kernel.name in by_name and same_code(kernel, by_name[kernel.name])
        for kernel in cubin.kernels
    )
    return same and _constants(cubin) == _constants(made)


def _constants(cubin: Cubin) -> dict[str, bytes]:
    return {
        section.name: cubin.image.content(section)
        for section in cubin.image.sections
        if section.name.startswith((".nv.constant", ".nv.global"))
    }


def file_with(
    path: str | Path,
    data: bytes,
    inputs: Sequence[OptimizerInput],
    cubins: Sequence[Cubin],
    out: str | Path,
) -> bytes:
    """The bytes to write: the new cubin, or the container `data` with the new cubins in it.

    `cubins[k]` takes the place of `inputs[k].cubin`. Where `out` ends in `.cubin` and only one
    cubin has changed, that one comes out of its container. Raises UnsupportedError where a cubin
    does not fit in its place.
    """
    if len(inputs) == 1 and inputs[0].position < 0:
        return cubins[0].to_bytes()
    changed = {
        each.position: new.to_bytes()
        for each, new in zip(inputs, cubins, strict=True)
        if new is not each.cubin
    }
    if Path(out).suffix == ".cubin":
        whole = [n for each, n in zip(inputs, cubins, strict=True) if each.position in changed]
        whole = whole or [n for n in cubins if n.kernels]
        if len(whole) != 1:
            raise UsageError(
                f"{len(whole)} cubins can't be written as one",
                file=str(path),
                hint="name one with --arch or --kernel, or write a file of the input's kind",
            )
        return whole[0].to_bytes()
    return replace_cubins(data, changed, name=str(path))
