"""Who names constants: operand forms of arithmetic, and uses of constants held in registers.

    python tools/isa/constants.py FILE...

Prints, for the sm_90 code of cubins and containers, how many arithmetic instructions name an
immediate, a constant word or a uniform register; and, of all uses of registers that one move of
constants defines, how many are in an instruction that names something already, and how many could
name the constant themselves (`docs/design/demotion.md`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import webs
from regdem.binary import open_container
from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.errors import RegdemError
from regdem.isa.decode import decode
from regdem.transform.demoted import program_of
from regdem.transform.fold import folds_of, moved_by

_KINDS = {1: "registers", 2: "immediate", 3: "constant", 4: "immediate", 5: "constant",
          6: "uniform", 7: "uniform"}  # fmt: skip
_ARITHMETIC = frozenset({"alu", "fma", "imad", "imad_wide", "half", "half_mma", "fp64"})


def _kernels(path: Path) -> Iterator[Kernel]:
    for entry in open_container(path):
        try:
            cubin = Cubin.parse(entry.read())
        except RegdemError:
            continue
        if cubin.arch.startswith("sm_90"):
            yield from cubin.kernels


def _forms(kernel: Kernel, counts: Counter[str]) -> None:
    code = decode(kernel.code, kernel.arch)
    for low, form in zip(code.words[:, 0].tolist(), code.form_indices, strict=True):
        if form >= 0 and code.table.forms[form].latency in _ARITHMETIC:
            counts[_KINDS.get(int(low) >> 9 & 7, "registers")] += 1


def _uses(kernel: Kernel, counts: Counter[str]) -> None:
    try:
        program = program_of(kernel)
    except RegdemError:
        return
    found = webs(program, liveness(program, follow_guards=True))
    folds = folds_of(program, found, banks=True)
    for web in found.webs:
        if web.whole or len(web.writes) != 1 or not moved_by(program, (web,)):
            continue
        named = folds.uses_of((web,), uniform=False)
        counts["uses"] += len(web.reads)
        counts["could name it"] += len(named)
        for i in web.reads:
            taken = int(program.code.words[i, 0]) >> 9 & 7 != 1
            counts["name something else"] += taken and i not in named


def main(paths: list[str]) -> int:
    """Count and print."""
    forms: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    files = 0
    for path in paths:
        files += 1
        for kernel in _kernels(Path(path)):
            _forms(kernel, forms)
            if len(paths) <= 100:
                _uses(kernel, uses)
    print(f"{files} files, {sum(forms.values())} arithmetic instructions")
    for kind in ("registers", "immediate", "uniform", "constant"):
        print(f"  {kind:22} {forms[kind]:9}")
    if uses:
        print(f"{uses['uses']} uses of constants in registers")
        for kind in ("name something else", "could name it"):
            print(f"  {kind:22} {uses[kind]:9}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
