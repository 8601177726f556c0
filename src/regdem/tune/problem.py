"""What is launched, as a value: buffers, launches, and the recorder that Python functions fill.

Problem: every variant of a kernel has to be launched on exactly the same inputs, again and again,
in a process that may be killed and started anew. So a launch is no code that runs each time but a
description that is replayed: buffers with a role, and one or more launches that name them.

Method: a launch file (`spec.py`) gives one launch; a Python function is called once per seed with
a `Recorder`, and what it asks for is recorded. Contents are made by a function, when needed, so
that shapes can be looked at without generating gigabytes.

Invariants: all launches of a problem have the same block (a proof of slots holds for one block
size). Contents are a pure function of the seed.

Not claimed: a function whose launches depend on the results of earlier launches can't be recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from regdem.errors import InputError

Dim3 = tuple[int, int, int]
HostArray = NDArray[Any]
Role = Literal["in", "out", "inout"]

MAX_BLOCK_THREADS = 1024
MAX_BLOCK: Dim3 = (1024, 1024, 64)
MAX_GRID: Dim3 = (2**31 - 1, 65535, 65535)
MAX_DYNAMIC_SHARED_BYTES = 227 * 1024
MAX_TOTAL_BYTES = 2**38
"""All buffers of one problem, 256 GiB: more than any GPU has; larger sizes are mistakes."""
MAX_ARGUMENT_BYTES = 32764
"""Parameters of one kernel (4,096 before CUDA 12.1)."""


@dataclass(frozen=True)
class Buffer:
    """A device buffer: its role, size in bytes, and what makes its first contents ("out": None)."""

    role: Role
    nbytes: int
    name: str
    dtype: str
    make: Callable[[], HostArray] | None = None

    def contents(self) -> HostArray:
        """The first contents, C-contiguous and of `nbytes`. Raises InputError if they are not."""
        assert self.make is not None
        try:
            data = np.ascontiguousarray(self.make())
        except MemoryError as error:
            raise InputError(f"{self.name}: {self.nbytes} bytes don't fit in memory") from error
        if data.nbytes != self.nbytes:
            raise InputError(f"{self.name}: {data.nbytes} bytes were made, not {self.nbytes}")
        return data


@dataclass(frozen=True)
class BufferArgument:
    """An argument that is the address of buffer number `index`."""

    index: int


@dataclass(frozen=True)
class ValueArgument:
    """An argument passed by value: a number or a struct, as its bytes."""

    raw: bytes


Argument = BufferArgument | ValueArgument


@dataclass(frozen=True)
class OneLaunch:
    """One launch: shape and arguments, in the order of the kernel's parameters."""

    grid: Dim3
    block: Dim3
    dynamic_shared_bytes: int
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Problem:
    """Everything of one seed: buffers and the launches that are replayed, in order."""

    buffers: tuple[Buffer, ...]
    launches: tuple[OneLaunch, ...]
    stack_bytes: int = 0
    """Stack per thread to ask the driver for; 0 keeps the default."""

    @property
    def block(self) -> Dim3:
        return self.launches[0].block

    @property
    def blocks(self) -> int:
        """Blocks of the largest launch."""
        return max(launch.grid[0] * launch.grid[1] * launch.grid[2] for launch in self.launches)

    @property
    def dynamic_shared_bytes(self) -> int:
        """The most of any launch."""
        return max(launch.dynamic_shared_bytes for launch in self.launches)

    @property
    def total_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Numbers of the buffers that are compared."""
        return tuple(k for k, buffer in enumerate(self.buffers) if buffer.role != "in")

    def check(self) -> None:
        """Raises InputError where there is nothing to launch or compare, or too much to hold."""
        if not self.launches:
            raise InputError("nothing is launched", hint="call run.launch(...) in the function")
        if len({launch.block for launch in self.launches}) > 1:
            raise InputError(
                "the launches have different blocks", hint="tune one block size at a time"
            )
        if not self.outputs:
            raise InputError(
                "no array is an output, so there is nothing to compare",
                hint='mark what the kernel writes: "output": true, or "inout" if it reads it too',
            )
        if self.total_bytes > MAX_TOTAL_BYTES:
            raise InputError(
                f"the arrays take {self.total_bytes} bytes together, more than {MAX_TOTAL_BYTES}",
                hint="check the shapes",
            )

    def shape(self) -> tuple[Any, ...]:
        """What must be the same for every seed: sizes, roles and launch shapes."""
        return (
            tuple((buffer.role, buffer.nbytes) for buffer in self.buffers),
            tuple((e.grid, e.block, e.dynamic_shared_bytes) for e in self.launches),
            self.stack_bytes,
        )


def dim3(value: Any, what: str, most: Dim3) -> Dim3:
    """A launch dimension from a number or one to three numbers. Raises InputError."""
    parts = list(cast(Sequence[Any], value)) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(parts) <= 3:
        raise InputError(f"{what} has {len(parts)} numbers", hint="give one to three")
    sizes: list[int] = []
    for part, limit in zip(parts, most, strict=False):
        number = part.item() if isinstance(part, np.integer) else part
        if isinstance(number, bool) or not isinstance(number, int):
            raise InputError(f"{what} holds {_short(part)}", hint="give whole numbers")
        if not 1 <= number <= limit:
            raise InputError(
                f"{what} holds {_short(number)}", hint=f"1 to {', '.join(map(str, most))} (x, y, z)"
            )
        sizes.append(number)
    sizes += [1] * (3 - len(sizes))
    return (sizes[0], sizes[1], sizes[2])


def block_of(value: Any, what: str) -> Dim3:
    """The same for a block: at most 1,024 threads in all."""
    block = dim3(value, what, MAX_BLOCK)
    threads = block[0] * block[1] * block[2]
    if threads > MAX_BLOCK_THREADS:
        raise InputError(
            f"{what} has {threads} threads", hint=f"at most {MAX_BLOCK_THREADS} in a block"
        )
    return block


def dynamic_shared_of(value: Any, what: str) -> int:
    """Bytes of dynamic shared memory. Raises InputError for what no SM has."""
    number = value.item() if isinstance(value, np.integer) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise InputError(f"{what} is {_short(value)}", hint="give bytes, a whole number")
    if not 0 <= number <= MAX_DYNAMIC_SHARED_BYTES:
        raise InputError(
            f"{what} is {_short(number)}", hint=f"0 to {MAX_DYNAMIC_SHARED_BYTES} bytes"
        )
    return number


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        return "a number out of all bounds"
    return text if len(text) <= 40 else text[:37] + "..."


class Recorder:
    """What a launch function is given: it makes buffers and launches the kernel.

    `seed` is the number of the input set (0, 1, ...); `rng` is a numpy generator that depends on
    nothing else, so that every process makes the same inputs. Nothing runs while the function
    does: what it asks for is recorded and replayed for every variant.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = np.random.default_rng([seed, 0x7E6DE3])
        self.stack_bytes = 0
        self._buffers: list[Buffer] = []
        self._launches: list[OneLaunch] = []

    def input(self, data: HostArray) -> BufferArgument:
        """A buffer that the kernel only reads."""
        return self._hold("in", data)

    def inout(self, data: HostArray) -> BufferArgument:
        """A buffer it reads and writes: put back before every launch, compared after it."""
        return self._hold("inout", data)

    def output(self, shape: int | Sequence[int], dtype: Any = np.uint8) -> BufferArgument:
        """A buffer it only writes: filled with 0xA5 before every launch, compared after it."""
        kind = np.dtype(dtype)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        count = 1
        for size in sizes:
            if size < 0:
                raise InputError(f"an output has the shape {sizes}", hint="no negative sizes")
            count *= int(size)
        self._buffers.append(
            Buffer("out", count * kind.itemsize, f"buffer {len(self._buffers)}", str(kind))
        )
        return BufferArgument(len(self._buffers) - 1)

    def launch(
        self,
        *,
        grid: Any,
        block: Any,
        args: Sequence[Any],
        dynamic_shared_bytes: int = 0,
    ) -> None:
        """Launches the kernel. `args`: buffers of this recorder and numpy scalars (their size is
        the parameter's: `np.int32(n)`, not `n`); a structured scalar or bytes for a struct.
        """
        where = f"launch {len(self._launches)}"
        arguments: list[Argument] = []
        for position, argument in enumerate(args):
            if isinstance(argument, BufferArgument):
                arguments.append(argument)
            elif isinstance(argument, np.generic):
                arguments.append(ValueArgument(argument.tobytes()))
            elif isinstance(argument, bytes):
                arguments.append(ValueArgument(argument))
            else:
                raise InputError(
                    f"{where}: argument {position} is a {type(argument).__name__}",
                    hint="give a buffer of this run or a numpy scalar such as np.int32(4)",
                )
        self._launches.append(
            OneLaunch(
                dim3(grid, f"{where}: grid", MAX_GRID),
                block_of(block, f"{where}: block"),
                dynamic_shared_of(dynamic_shared_bytes, f"{where}: dynamic_shared_bytes"),
                tuple(arguments),
            )
        )

    def problem(self) -> Problem:
        """What was recorded, checked. Raises InputError."""
        problem = Problem(tuple(self._buffers), tuple(self._launches), self.stack_bytes)
        problem.check()
        return problem

    def _hold(self, role: Role, data: Any) -> BufferArgument:
        if not isinstance(data, np.ndarray) or cast(HostArray, data).dtype.hasobject:
            kind = type(cast(object, data)).__name__
            raise InputError(f"a buffer's contents are a {kind}", hint="give a numpy array")
        held = np.ascontiguousarray(cast(HostArray, data)).copy()
        number = len(self._buffers)
        self._buffers.append(
            Buffer(role, held.nbytes, f"buffer {number}", str(held.dtype), lambda: held)
        )
        return BufferArgument(number)
