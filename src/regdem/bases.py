"""Base builds: what NVIDIA's compiler makes of one kernel when it is asked in different ways.

Problem: a register cap switches off ptxas's own choice and changes the whole schedule, so that a
build capped at N can be twice as slow as the default or a third faster, with no spill at all. The
passes of regdem work on machine code; which machine code they start from matters as much.

Method: from one PTX text, per kernel (`integrations/compile.py`),

    default      as the source says
    block        the launch's block size declared (`.maxntid`)
    pragma       the same, with NVIDIA's spilling to shared memory
    cap_255      no limit of registers but the machine's
    cap_N        `.maxnreg N`, at occupancy cliffs N below the default's count, at it, and above it
                 up to what cap_255 uses
    pragma_N     the same, with the block size and NVIDIA's spilling

and from the PTX that the front end makes of a `.cu` file with its rematerialisation off (`noremat`,
in `FRONTS`), the same again with the front's name before it, at fewer limits: ptxas keeps much of
the order it is given. `COMPARED_FRONTS` are further ones, for callers that compare outputs.

Builds whose code is the same bytes are one base; the others' names are its aliases. Measured on 39
kernels: `.maxnreg N` and `-maxrregcount=N` give the same bytes, with and without `.maxntid`.

Not claimed: that bases compute the same bits. They are the compiler's, and nothing proves them
against each other; what is proved is each rewrite against its base. The fronts' options are not
documented by NVIDIA; where nvcc refuses one, its builds are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from regdem.binary import Cubin, Kernel
from regdem.errors import RegdemError, UsageError
from regdem.integrations.compile import (
    DEFAULT_ARCH,
    Directives,
    assemble,
    entries,
    ptx_of,
    split_options,
    with_directives,
)
from regdem.machine import BlockShape, block_shape, cliff_table
from regdem.rewrite import Request, state_of

INPUT = "input"
DEFAULT = "default"
MOST_REGISTERS = 255
LEAST_REGISTERS = 24
"""Below this ptxas spills whatever is live; no kernel that was measured gained there."""


def _llvm(*options: str) -> tuple[str, ...]:
    """Options of LLVM for nvcc's front end, past the language's own parser."""
    return tuple(word for option in options for word in ("-Xcicc", "--Xopt", "-Xcicc", option))


_NO_REMAT = ("-Xcicc", "-disable-nvvm-remat")
FRONTS = {"noremat": _NO_REMAT}
"""Options of nvcc by the name of the front. This one kept every output of the suite, byte for byte,
and gains most where it gains (docs/results/suite-second.md)."""
_OTHER = {
    "unroll1": _llvm("-unroll-count=1"),
    "unroll2": _llvm("-unroll-count=2"),
    "unroll4": _llvm("-unroll-count=4"),
    "ilp": _llvm("-pre-RA-sched=list-ilp"),
    "hybrid": _llvm("-pre-RA-sched=list-hybrid"),
    "sched4reg": _llvm("-nvptx-sched4reg"),
    "misched": _llvm("-enable-misched"),
    "fast": _llvm("-pre-RA-sched=fast"),
    "linearize": _llvm("-pre-RA-sched=linearize"),
    "newremat": _llvm("-enable-new-nvvm-remat"),
    "nomcse": _llvm("-disable-machine-cse"),
    "nogvn": _llvm("-disable-GVNPass"),
    "noreassoc": _llvm("-disable-ReassociatePass"),
    "nosink": _llvm("-enable-sink=0"),
    "noinstcombine": _llvm("-disable-InstructionCombiningPass"),
}
COMPARED_FRONTS = _OTHER | {
    f"noremat_{name}": (*_NO_REMAT, *_OTHER[name])
    for name in (
        "ilp", "sched4reg", "misched", "fast", "linearize", "nomcse", "nogvn", "noreassoc",
    )
}  # fmt: skip
"""Fronts that unroll, order, or combine otherwise. Which products and sums become one fused
multiply-add depends on that, so some change the last bits of some kernels (docs/results/fronts.md):
they are used only where a GPU compares the outputs."""
ALL_FRONTS = FRONTS | COMPARED_FRONTS


@dataclass(frozen=True)
class Effort:
    """How much is tried.

    `below`, `above`: cliffs around the default's register count at which builds are made. `cliffs`:
    steps down that are tried from each base (one more from the default). `fronts`: cliffs below the
    default's count at which the other fronts' builds are made. `rewrites`: the most rewrites of a
    kernel, the most promising first; `alike`: the most bases that the same rewrite is made of.
    `bound`: a rewrite is tried where the base's own code at the target's residency is predicted to
    need at most this times the cycles of the best found; 0: always. `reschedules`: new orders of
    instructions are tried. `patience`, `budget`: CPU seconds after which one rewrite, and all
    rewrites of a kernel, are given up; 0: never.
    """

    below: int
    above: int
    cliffs: int
    fronts: int
    rewrites: int
    bound: float
    patience: float = 0.0
    budget: float = 0.0
    reschedules: bool = True
    alike: int = 9999


EFFORTS = {
    "quick": Effort(
        1, 2, cliffs=1, fronts=1, rewrites=8, bound=1.0, patience=40.0, budget=90.0,
        reschedules=False, alike=2,
    ),
    "normal": Effort(
        3, 3, cliffs=2, fronts=1, rewrites=32, bound=1.02, patience=120.0, budget=600.0,
        alike=4,
    ),
    "exhaustive": Effort(below=99, above=99, cliffs=99, fronts=99, rewrites=9999, bound=0.0),
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """PTX to build kernels from: its name in messages, the text, ptxas's target and options.

    `file`, `front_options`: the `.cu` file it was made from, and nvcc's options; "" where it was
    given as PTX.
    """

    name: str
    ptx: str
    arch: str = DEFAULT_ARCH
    options: tuple[str, ...] = ()
    file: str = ""
    front_options: tuple[str, ...] = ()

    @property
    def kernels(self) -> list[str]:
        """The kernels it defines."""
        return entries(self.ptx)

    def build(self, directives: dict[str, Directives], kernel: str | None = None) -> bytes:
        """The cubin with directives by kernel; of one kernel alone where that is named."""
        ptx = self.ptx
        for name, what in directives.items():
            ptx = with_directives(ptx, name, what)
        return assemble(ptx, self.arch, self.options, kernel=kernel, name=self.name)

    def front(self, name: str) -> Source | None:
        """What the front end makes with the options of `ALL_FRONTS[name]`; "": the source as it is.

        None where it is no `.cu` file, or the compiler refuses the options.
        """
        if not name:
            return self
        if not self.file:
            return None
        try:
            ptx = ptx_of(self.file, self.arch, (*self.front_options, *ALL_FRONTS[name]))
        except RegdemError:
            return None
        return replace(self, ptx=ptx)


def source_of(path: str | Path, arch: str | None = None, options: Sequence[str] = ()) -> Source:
    """A `.cu` file through nvcc's front end, or a `.ptx` file.

    arch: default sm_90, or what the PTX is for. options: of nvcc; `-Xptxas` is taken apart, and
    with a `.ptx` file all are ptxas's. Raises InputError or UnsupportedError as the compiler does.
    """
    front, back = split_options(options)
    path = Path(path)
    if path.suffix == ".ptx":
        return ptx_source(ptx_of(path), str(path), arch, (*front, *back))
    ptx = ptx_of(path, arch or DEFAULT_ARCH, front)
    back += [o for o in front if o == "-lineinfo" or o.startswith("-maxrregcount")]
    source = ptx_source(ptx, str(path), arch, back)
    return replace(source, file=str(path), front_options=tuple(front))


def ptx_source(
    ptx: str, name: str = "<ptx>", arch: str | None = None, options: Sequence[str] = ()
) -> Source:
    """PTX as a source, for `arch` or what it names itself; `.target sm_90a` makes sm_90 that."""
    target = re.search(r"^\s*\.target\s+(sm_\d+[af]?)", ptx, re.MULTILINE)
    named = target[1] if target else DEFAULT_ARCH
    is_same = arch is None or named.rstrip("af") == arch.rstrip("af")
    return Source(name, ptx, named if is_same or arch is None else arch, tuple(options))


@dataclass(frozen=True)
class Base:
    """One build of one kernel: `data` is a cubin that holds it.

    `source`: "nvcc" (compiled here, trusted) or "input" (the file given). `directives`: how it was
    compiled, None for an input. `front`: of what PTX (a key of `ALL_FRONTS`, or "").
    `aliases`: other builds with the same code. `problem`: the compiler's word where there is no
    such build, and `data` is empty.
    """

    name: str
    kernel: str
    data: bytes
    source: str = "nvcc"
    directives: Directives | None = None
    front: str = ""
    aliases: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_built(self) -> bool:
        """Whether there is such a build."""
        return bool(self.data)

    def cubin(self) -> Cubin:
        """The cubin that holds it."""
        return Cubin.parse(self.data, self.name)

    def code(self) -> Kernel:
        """The kernel in it."""
        return self.cubin().kernel(self.kernel)

    def variant(self, rewrite: str = "") -> str:
        """The name of a rewrite of it: `cap_96+promote`; rewrites of the default have no prefix."""
        if not rewrite:
            return self.name
        return rewrite if self.name in (INPUT, DEFAULT) else f"{self.name}+{rewrite}"


Progress = Callable[[str, str], None]


def base_builds(
    source: Source | str | Path,
    kernel: str | None = None,
    *,
    threads: BlockShape | int,
    arch: str | None = None,
    dynamic_shared_bytes: int = 0,
    effort: str = "normal",
    jobs: int = 1,
    progress: Progress | None = None,
) -> list[Base]:
    """The distinct builds of one kernel, the default first; then those the compiler refuses.

    threads: of the launch's block. effort: a key of `EFFORTS`. jobs: compilers side by side.
    progress(name, status) is called after each. Raises InputError where even the default does not
    compile, UsageError for a kernel that is not there.
    """
    if not isinstance(source, Source):
        source = source_of(source, arch)
    name = kernel or _only_kernel(source)
    shape = block_shape(threads) if isinstance(threads, int) else threads
    request = Request(threads=shape, dynamic_shared_bytes=dynamic_shared_bytes)
    how = EFFORTS[effort]

    def one(plan: BuildPlan) -> Base:
        made = _built(sources[plan.front], name, plan)
        if progress is not None:
            progress(plan.name, "built" if made.is_built else "does_not_compile")
        return made

    sources = {"": source}
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        others = pool.map(source.front, FRONTS)
        first = list(pool.map(one, first_builds(shape)))
        kernels = {each.name: each.code() for each in first if each.is_built}
        widest = kernels.get("cap_255", kernels[DEFAULT])
        more = capped_builds(kernels[DEFAULT], widest.registers_per_thread, request, how)
        for front, made in zip(FRONTS, others, strict=True):
            if made is not None and made.ptx != source.ptx:
                sources[front] = made
                more += front_builds(front, kernels[DEFAULT], request, how)
        return distinct([*first, *pool.map(one, more)])


def compared_builds(
    source: Source,
    known: Sequence[Base],
    *,
    threads: BlockShape,
    dynamic_shared_bytes: int = 0,
    effort: str = "normal",
    jobs: int = 1,
) -> list[Base]:
    """The builds of `COMPARED_FRONTS` whose code is none of `known`'s (of `base_builds`).

    For callers that compare the outputs with the default's. What the compiler refuses is left out.
    """
    default = known[0]
    kernel = default.code()
    request = Request(threads=threads, dynamic_shared_bytes=dynamic_shared_bytes)
    plain = {source.ptx, *(made.ptx for name in FRONTS if (made := source.front(name)) is not None)}
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        others = dict(zip(COMPARED_FRONTS, pool.map(source.front, COMPARED_FRONTS), strict=True))
        sources: dict[str, Source] = {}
        for front, made in others.items():
            if made is not None and made.ptx not in plain:
                plain.add(made.ptx)
                sources[front] = made
        how = EFFORTS[effort]
        plans = [p for front in sources for p in front_builds(front, kernel, request, how)]

        def one(plan: BuildPlan) -> Base:
            return _built(sources[plan.front], default.kernel, plan)

        built = [base for base in pool.map(one, plans) if base.is_built]
    names = {base.name for base in known}
    return [base for base in distinct([*known, *built]) if base.is_built and base.name not in names]


def _built(source: Source, kernel: str, plan: BuildPlan) -> Base:
    """One build; the compiler's refusal is its `problem`. Raises InputError for the default's."""
    try:
        data = source.build({kernel: plan.directives}, kernel)
    except RegdemError as error:
        if plan.name == DEFAULT:
            raise
        return Base(
            plan.name, kernel, b"",
            directives=plan.directives, front=plan.front, problem=error.message,
        )  # fmt: skip
    return Base(plan.name, kernel, data, directives=plan.directives, front=plan.front)


@dataclass(frozen=True)
class BuildPlan:
    """One compilation: its name, what the PTX says, and the front that makes the PTX."""

    name: str
    directives: Directives
    front: str = ""


def first_builds(shape: BlockShape) -> list[BuildPlan]:
    """The builds that need to know nothing of the kernel."""
    return [
        BuildPlan(DEFAULT, Directives()),
        BuildPlan("cap_255", Directives(most_registers=MOST_REGISTERS)),
        BuildPlan("block", Directives(block=shape)),
        BuildPlan("pragma", Directives(block=shape, smem_spilling=True)),
    ]


def capped_builds(
    default: Kernel, widest_registers: int, request: Request, effort: Effort
) -> list[BuildPlan]:
    """Builds at cliffs around the default's count, with and without NVIDIA's spilling."""
    below, above = cliffs_around(default, widest_registers, request)
    chosen = [*above[-effort.above :], *below[: effort.below]]
    plain = [_capped(n) for n in chosen]
    return plain + [_spilling(n, request.threads) for n in (MOST_REGISTERS, *chosen)]


def front_builds(front: str, default: Kernel, request: Request, effort: Effort) -> list[BuildPlan]:
    """Builds from another front's PTX: as it is, without a limit, and at the next cliffs."""
    below, _ = cliffs_around(default, default.registers_per_thread, request)
    shape = request.threads
    plans = [_capped(MOST_REGISTERS), BuildPlan("pragma", Directives(shape, smem_spilling=True))]
    for n in below[: effort.fronts]:
        plans += [_capped(n), _spilling(n, shape)]
    as_it_is = BuildPlan(front, Directives(), front)
    return [as_it_is, *(replace(p, name=f"{front}_{p.name}", front=front) for p in plans)]


def _capped(n: int) -> BuildPlan:
    return BuildPlan(f"cap_{n}", Directives(most_registers=n))


def _spilling(n: int, shape: BlockShape) -> BuildPlan:
    return BuildPlan(f"pragma_{n}", Directives(shape, n, smem_spilling=True))


def cliffs_around(
    default: Kernel, widest_registers: int, request: Request
) -> tuple[list[int], list[int]]:
    """Register counts at which a block more fits: below the default's count, and from it on up to
    below `widest_registers`; both from the highest down."""
    count = default.registers_per_thread
    launch = state_of(default, request, count, default.static_shared_bytes).launch
    steps = [cliff.registers_max for cliff in cliff_table(launch)]
    below = [n for n in steps if LEAST_REGISTERS <= n < count]
    above = [n for n in steps if count <= n < max(widest_registers, count + 1)]
    return below, above


CodeKey = tuple[bytes, int, int, int]


def code_key(kernel: Kernel) -> CodeKey:
    """What makes two builds of a kernel one: code, registers, shared and local bytes."""
    return (
        kernel.code, kernel.registers_per_thread, kernel.static_shared_bytes, kernel.local_bytes
    )  # fmt: skip


def distinct(bases: Iterable[Base]) -> list[Base]:
    """One base for each code, in order, with the names of the others; refusals last."""
    found: dict[CodeKey, Base] = {}
    refused: list[Base] = []
    for base in bases:
        if not base.is_built:
            refused.append(base)
            continue
        key = code_key(base.code())
        known = found.get(key)
        found[key] = base if known is None else replace(known, aliases=(*known.aliases, base.name))
    return [*found.values(), *refused]


def _only_kernel(source: Source) -> str:
    kernels = source.kernels
    if len(kernels) != 1:
        raise UsageError(
            f"there are {len(kernels)} kernels in it", file=source.name, hint="name one"
        )
    return kernels[0]
