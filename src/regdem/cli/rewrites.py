"""Files whose kernels are rewritten one by one: opened, reported kernel by kernel, written whole.

A kernel may be rewritten, need nothing, or be refused, by its code or by a request that it can't
meet (blocks out of its reach, no block size). One that needs nothing never ends a run; one that is
refused does if it was asked for by `--kernel`. Where nothing at all could be done, the first
refusal is the verb's error, with the count of the others. What a cubin came from (a program, an
object, a fat binary) is written again with the cubin replaced in it, unless OUT is a `.cubin`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from regdem.binary import Cubin, Kernel
from regdem.binary.demangle import demangle
from regdem.cli.kernels import select_kernels
from regdem.cli.options import KernelPattern
from regdem.cli.output import read_input, write_atomically
from regdem.errors import ProofError, RegdemError, UnsupportedError, UsageError
from regdem.inputs import OptimizerInput, file_with, open_inputs
from regdem.rewrite import KernelRewrite

NOTHING = "nothing_to_do"
Done = TypeVar("Done", bound=KernelRewrite)


@dataclass(frozen=True)
class Opened:
    """An input file: its bytes, its cubins, and the selected kernels as (cubin, kernel)."""

    path: str
    data: bytes
    inputs: tuple[OptimizerInput, ...]
    kernels: tuple[tuple[int, Kernel], ...]
    is_named: bool

    def write(self, out: str, cubins: Sequence[Cubin]) -> bytes:
        """Writes the file with other cubins to OUT; a program stays executable."""
        written = file_with(self.path, self.data, self.inputs, cubins, out)
        write_atomically(out, written)
        mode = os.stat(self.path).st_mode
        if written[:4] == self.data[:4] == b"\x7fELF" and mode & stat.S_IXUSR:
            os.chmod(out, stat.S_IMODE(Path(out).stat().st_mode) | mode & 0o111)
        return written


def open_file(
    path: str,
    pattern: KernelPattern | None,
    *,
    arch: str | None = None,
    ptx: str | None = None,
    options: Sequence[str] = (),
    with_ptx: bool = False,
) -> Opened:
    """Opens a cubin, what contains some, or a source that is compiled on the way.

    Raises InputError, UsageError or UnsupportedError; see `open_inputs` and `select_kernels`.
    """
    data = read_input(path)
    inputs = tuple(open_inputs(path, arch=arch, ptx=ptx, options=options, with_ptx=with_ptx))
    places = [(k, kernel) for k, each in enumerate(inputs) for kernel in each.cubin.kernels]
    selected = select_kernels(tuple(kernel for _, kernel in places), pattern, path)
    wanted = {id(kernel) for kernel in selected}
    kernels = tuple(place for place in places if id(place[1]) in wanted)
    return Opened(path, data, inputs, kernels, pattern is not None)


@dataclass(frozen=True)
class Left:
    """A kernel that stays as it is, and why."""

    name: str
    error: RegdemError

    @property
    def status(self) -> str:
        """`nothing_to_do` or `refused`."""
        return NOTHING if self.error.code == NOTHING else "refused"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, one entry of `kernels`."""
        return {
            "name": self.name,
            "status": self.status,
            "code": self.error.code,
            "reason": self.error.message,
        }

    def line(self) -> str:
        """For people."""
        words = "nothing to do" if self.status == NOTHING else "refused"
        hint = f" ({self.error.hint})" if self.error.hint else ""
        return f"{demangle(self.name)}\n  {words}: {self.error.message}{hint}"


@dataclass(frozen=True)
class Rewrites(Generic[Done]):
    """What became of each kernel, and the cubins after it."""

    cubins: tuple[Cubin, ...]
    results: tuple[Done | Left, ...]

    def to_list(self) -> list[dict[str, Any]]:
        """The JSON form, `kernels`."""
        return [
            each.to_dict() if isinstance(each, Left) else {**each.to_dict(), "status": "rewritten"}
            for each in self.results
        ]

    def text(self, summary: Callable[[Done], str]) -> str:
        """All kernels, for people."""
        return "\n".join(
            each.line() if isinstance(each, Left) else summary(each) for each in self.results
        )


def rewrite_each(
    opened: Opened, make: Callable[[Cubin, Kernel], tuple[Cubin, Done]]
) -> Rewrites[Done]:
    """Rewrites kernel after kernel of a file. Raises what ends the run; see the module."""
    cubins = [each.cubin for each in opened.inputs]
    results: list[Done | Left] = []
    for place, kernel in opened.kernels:
        try:
            cubins[place], done = make(cubins[place], cubins[place].kernel(kernel.name))
            results.append(done)
        except (UnsupportedError, ProofError, UsageError) as error:
            if error.kernel is None and isinstance(error, UsageError):
                raise  # about the request, whatever the kernel
            results.append(Left(kernel.name, error))
    _raise_if_failed(results, opened.is_named)
    return Rewrites(tuple(cubins), tuple(results))


def _raise_if_failed(results: Sequence[KernelRewrite | Left], is_named: bool) -> None:
    done = {each.name for each in results if not isinstance(each, Left)}
    left = [each for each in results if isinstance(each, Left)]
    refused = [each for each in left if each.status == "refused" and each.name not in done]
    # Another architecture's copy says less than what stands in the way of one that can be done.
    refused.sort(key=lambda each: each.error.code == "unsupported_architecture")
    if refused and (is_named or not done):
        raise counted(refused[0].error, left)
    if not done and left:
        raise counted(left[0].error, left)


def counted(error: RegdemError, left: Sequence[Left]) -> RegdemError:
    """The error of one of several kernels that were left as they are, with their count."""
    if len(left) > 1:
        nothing = sum(each.status == NOTHING for each in left)
        counts = ((nothing, "need nothing"), (len(left) - nothing, "refused"))
        told = ", ".join(f"{count} {words}" for count, words in counts if count)
        error.hint = f"{error.hint}; " if error.hint else ""
        error.hint += f"nothing was written; of the kernels {told}"
    return error
