"""One file from the choices of several kernels, which may come from different builds.

Problem: a base build is a whole file; two kernels of one source may be best in two of them.

Method: register limits, block sizes and pragmas are directives of one kernel, so one PTX text can
hold a different set for each. It is assembled once more with the chosen directives; every kernel
of the result must be, byte for byte, the base it was chosen from (or what the file had before);
then the rewrites are written into it and proved again there.

Where that does not hold, as with a file that another compiler made, `combine` says so and the
caller chooses among rewrites of the file as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regdem.bases import Source, code_key
from regdem.binary import Cubin, Kernel
from regdem.check import check_pair
from regdem.errors import RegdemError
from regdem.rewrite import Request
from regdem.variants import Outcome


class NotCombined(Exception):
    """The builds can't stand in one file; the message says why."""


def combine(
    cubin: Cubin,
    chosen: Mapping[str, Outcome],
    requests: Mapping[str, Request],
    source: Source | None,
) -> Cubin:
    """The cubin with the chosen outcome of each kernel named; the others as they are.

    Raises NotCombined where the chosen builds can't be put into one file.
    """
    wanted = {name: _base_kernel(outcome) for name, outcome in chosen.items()}
    if all(same_code(kernel, cubin.kernel(name)) for name, kernel in wanted.items()):
        return _rewritten(cubin, chosen)
    only = next(iter(chosen.values()))
    if len(cubin.kernels) == 1 and only.base is not None:
        merged = only.base.cubin()
        if [kernel.name for kernel in merged.kernels] == [only.base.kernel]:
            return _rewritten(merged, chosen)
    if source is None:
        raise NotCombined("the builds are not of one file")
    merged = _assembled(source, chosen)
    names = {kernel.name for kernel in merged.kernels}
    for kernel in cubin.kernels:
        if kernel.name not in names:
            raise NotCombined(f"{source.name} does not define {kernel.name}")
        if not same_code(wanted.get(kernel.name, kernel), merged.kernel(kernel.name)):
            raise NotCombined(f"{kernel.name} differs in the file that holds all kernels")
    new = _rewritten(merged, chosen)
    _prove(merged, new, chosen, requests)
    return new


def same_code(a: Kernel, b: Kernel) -> bool:
    """Whether two builds of a kernel are one."""
    return code_key(a) == code_key(b)


def _base_kernel(outcome: Outcome) -> Kernel:
    assert outcome.base is not None
    return outcome.base.code()


def _assembled(source: Source, chosen: Mapping[str, Outcome]) -> Cubin:
    fronts = {outcome.base.front for outcome in chosen.values() if outcome.base is not None}
    whole = source.front(fronts.pop()) if len(fronts) == 1 else None
    if whole is None:
        raise NotCombined("the builds are not of one PTX text")
    directives = {
        name: outcome.base.directives
        for name, outcome in chosen.items()
        if outcome.base is not None and outcome.base.directives is not None
    }
    try:
        return Cubin.parse(whole.build(directives), source.name)
    except RegdemError as error:
        raise NotCombined(error.message) from error


def _rewritten(cubin: Cubin, chosen: Mapping[str, Outcome]) -> Cubin:
    for name, outcome in chosen.items():
        if outcome.done is not None:
            cubin = cubin.with_kernel(name, outcome.done.rewrite.edit)
    return cubin


def _prove(
    before: Cubin, after: Cubin, chosen: Mapping[str, Outcome], requests: Mapping[str, Request]
) -> None:
    """The proofs were of files with one kernel; this is another file."""
    written = Cubin.parse(after.to_bytes(), after.name)
    rewritten: Sequence[str] = [name for name, o in chosen.items() if o.done is not None]
    for name in rewritten:
        verdict = check_pair(
            before.kernel(name),
            written.kernel(name),
            before.arch,
            threads=requests[name].threads.threads,
        )
        if verdict.findings:
            raise NotCombined(f"{name} is not proved in the file that holds all kernels")
