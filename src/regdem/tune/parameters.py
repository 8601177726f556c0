"""The parameters a kernel declares, against the arguments of a launch.

A cubin lists ordinal, offset and size of every parameter (EIATTR_KPARAM_INFO). A launch with an
argument too few, or a 4-byte scalar where 8 bytes are wanted, would read stray bytes; so it is
refused before anything runs. Kernels without the records (very old, or hand-made) are not checked.
"""

from __future__ import annotations

from dataclasses import dataclass

from regdem.binary import Kernel
from regdem.errors import InputError
from regdem.tune.problem import Argument, BufferArgument, OneLaunch, Problem

_KPARAM_INFO = 0x17
_ADDRESS_BYTES = 8


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter: position, offset in the parameter area and size, in bytes."""

    ordinal: int
    offset: int
    size: int


def parameters_of(kernel: Kernel) -> tuple[Parameter, ...] | None:
    """The declared parameters in order; None where the kernel does not say.

    Payload: u32 index, u16 ordinal, u16 offset, u32 flags with the size from bit 18 on.
    """
    found: dict[int, Parameter] = {}
    for record in kernel.info:
        if record.attribute != _KPARAM_INFO or len(record.payload) < 12:
            continue
        _, place, flags = record.words[:3]
        found[place & 0xFFFF] = Parameter(place & 0xFFFF, place >> 16, flags >> 18)
    if not found or sorted(found) != list(range(len(found))):
        return None
    return tuple(found[k] for k in range(len(found)))


def check_arguments(kernel: Kernel, problem: Problem) -> None:
    """Raises InputError (code `bad_launch`) where a launch does not fit the kernel."""
    parameters = parameters_of(kernel)
    for launch in problem.launches:
        _check_block(kernel, launch)
        if parameters is None:
            continue
        if len(parameters) != len(launch.arguments):
            sizes = ", ".join(str(parameter.size) for parameter in parameters)
            raise InputError(
                f"the launch has {len(launch.arguments)} arguments, the kernel takes "
                f"{len(parameters)}",
                hint=f"sizes of its parameters in bytes: {sizes}" if sizes else None,
                kernel=kernel.name,
                code="bad_launch",
            )
        for parameter, argument in zip(parameters, launch.arguments, strict=True):
            _check_size(kernel, parameter, argument)


def _check_size(kernel: Kernel, parameter: Parameter, argument: Argument) -> None:
    size = _ADDRESS_BYTES if isinstance(argument, BufferArgument) else len(argument.raw)
    if size == parameter.size:
        return
    what = "an array's address" if isinstance(argument, BufferArgument) else "a value"
    raise InputError(
        f"args[{parameter.ordinal}] is {what} of {size} bytes, the kernel's parameter has "
        f"{parameter.size}",
        hint="check order and dtype of the arguments; a struct by value is {hex = ...}",
        kernel=kernel.name,
        code="bad_launch",
    )


def _check_block(kernel: Kernel, launch: OneLaunch) -> None:
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if kernel.required_block is not None and launch.block != kernel.required_block:
        wanted = ",".join(map(str, kernel.required_block))
        raise InputError(
            f"the block {launch.block} is not the one the kernel requires",
            hint=f"it was compiled for {wanted}",
            kernel=kernel.name,
            code="bad_launch",
        )
    if kernel.max_threads is not None and threads > kernel.max_threads:
        raise InputError(
            f"a block of {threads} threads, but the kernel was compiled for at most "
            f"{kernel.max_threads}",
            hint="see __launch_bounds__",
            kernel=kernel.name,
            code="bad_launch",
        )
