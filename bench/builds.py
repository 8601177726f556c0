"""`python -m bench.builds`: which ways of asking ptxas give the same code.

Over the kernels of the suite. Prints the counts that `docs/design/optimize.md` states. Needs nvcc
and ptxas, no GPU.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.suite.kernels import ALL
from bench.suite.spec import KernelSpec
from regdem.bases import Source, source_of
from regdem.binary import Cubin, Kernel
from regdem.combine import same_code
from regdem.errors import RegdemError
from regdem.integrations.compile import Directives, compile_source
from regdem.machine import BlockShape

KERNELS = Path(__file__).resolve().parent / "kernels"
STEPS = (-16, -8, 16)
"""Limits, as differences to the default's register count, besides 255."""


def built(source: Source, kernel: str, directives: Directives, *options: str) -> Kernel | None:
    """One build, or None where ptxas refuses it."""
    asked = Source(source.name, source.ptx, source.arch, (*source.options, *options))
    try:
        return Cubin.parse(asked.build({kernel: directives}, kernel)).kernel(kernel)
    except RegdemError:
        return None


def look(spec: KernelSpec) -> Counter[str]:
    """What agrees for one kernel."""
    path = KERNELS / spec.source
    source = source_of(path, options=spec.nvcc_flags)
    default = built(source, spec.kernel, Directives())
    assert default is not None
    counts: Counter[str] = Counter(kernels=1)
    if path.suffix == ".cu":
        whole = Cubin.parse(compile_source(path, options=spec.nvcc_flags)).kernel(spec.kernel)
        counts["sources"] += 1
        counts["sources: nvcc and ptxas on its PTX agree"] += same_code(whole, default)
    block = BlockShape(*spec.block)
    alone = built(source, spec.kernel, Directives(block))
    counts["block alone: another build"] += alone is None or not same_code(alone, default)
    has_bounds = default.max_threads is not None or default.required_block is not None
    limits = [255, *(default.registers_per_thread + step for step in STEPS)]
    for limit in (n for n in limits if 24 <= n <= 255):
        option = built(source, spec.kernel, Directives(), f"-maxrregcount={limit}")
        directive = built(source, spec.kernel, Directives(most_registers=limit))
        both = built(source, spec.kernel, Directives(block, limit))
        pragma = built(source, spec.kernel, Directives(block, limit, smem_spilling=True))
        if option is None or directive is None or both is None:
            continue
        where = "with launch bounds" if has_bounds else "without launch bounds"
        counts[f"limits {where}"] += 1
        counts[f"limits {where}: option and directive agree"] += same_code(option, directive)
        counts["limits: block beside a limit changes something"] += not same_code(directive, both)
        if pragma is not None and not both.local_bytes and not same_code(pragma, both):
            counts["limits: the pragma changes a build that does not spill"] += 1
    return counts


def main() -> None:
    """Looks at every kernel and prints the counts."""
    total: Counter[str] = Counter()
    with ThreadPoolExecutor(2) as pool:
        for counts in pool.map(look, ALL):
            total.update(counts)
    for name, count in sorted(total.items()):
        print(f"{count:5d}  {name}")


if __name__ == "__main__":
    main()
