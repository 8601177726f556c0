"""A launch file as a value: grid, block and arguments of a kernel, and the problem they make.

`reading.py` makes it from JSON or TOML, with checks. Its canonical form, every default written out,
gives its hash and the copy that travels to another machine.

Invariant: nothing is allocated before a buffer's contents are asked for.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regdem.tune.initial import SEED_MARK, Initial, storage
from regdem.tune.problem import (
    Argument,
    Buffer,
    BufferArgument,
    Dim3,
    OneLaunch,
    Problem,
    Role,
    ValueArgument,
)


@dataclass(frozen=True)
class ArraySpec:
    """An array argument. `initial` is None for outputs, which start as 0xA5 in every byte."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role
    initial: Initial | None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * storage(self.dtype).itemsize

    def to_dict(self) -> dict[str, Any]:
        """The canonical form."""
        value: dict[str, Any] = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}
        if self.initial is not None:
            value["init"] = self.initial.to_dict()
        return value | {"output": {"in": False, "out": True, "inout": "inout"}[self.role]}


@dataclass(frozen=True)
class ValueSpec:
    """A scalar, or a struct passed by value, as its bytes."""

    name: str
    raw: bytes
    text: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The canonical form."""
        return {"name": self.name, **self.text}


@dataclass(frozen=True)
class LaunchFile:
    """A parsed launch file."""

    path: str
    grid: Dim3
    block: Dim3
    dynamic_shared_bytes: int
    stack_bytes: int
    arguments: tuple[ArraySpec | ValueSpec, ...]

    def to_dict(self) -> dict[str, Any]:
        """The canonical form: a launch file itself, every default written out."""
        return {
            "grid": list(self.grid),
            "block": list(self.block),
            "dynamic_shared_bytes": self.dynamic_shared_bytes,
            "stack_bytes": self.stack_bytes,
            "args": [argument.to_dict() for argument in self.arguments],
        }

    @property
    def varies(self) -> bool:
        """Whether another seed gives other inputs."""
        return any(initial.varies for initial in self._initials())

    def _initials(self) -> list[Initial]:
        arrays = [each for each in self.arguments if isinstance(each, ArraySpec)]
        return [each.initial for each in arrays if each.initial is not None]

    def sha256(self, seeds: int) -> str:
        """Hash of the canonical form and of the .npy files read for `seeds` seeds.

        Names don't count, contents do: a launch keeps its hash when its folder moves.
        """
        value = self.to_dict()
        for argument in value["args"]:
            argument.pop("name")
            argument.get("init", {}).pop("file", None)
        digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode())
        for initial in self._initials():
            digest.update(initial.digest(seeds).encode())
        return digest.hexdigest()

    def problem(self, seed: int) -> Problem:
        """The launch with the inputs of one seed. Raises InputError."""
        buffers: list[Buffer] = []
        arguments: list[Argument] = []
        for position, each in enumerate(self.arguments):
            if isinstance(each, ValueSpec):
                arguments.append(ValueArgument(each.raw))
                continue
            arguments.append(BufferArgument(len(buffers)))
            buffers.append(_buffer(each, seed, position))
        launch = OneLaunch(self.grid, self.block, self.dynamic_shared_bytes, tuple(arguments))
        problem = Problem(tuple(buffers), (launch,), self.stack_bytes)
        problem.check()
        return problem


def _buffer(array: ArraySpec, seed: int, position: int) -> Buffer:
    initial = array.initial
    name = array.name
    if initial is None:
        return Buffer(array.role, array.nbytes, name, array.dtype)
    return Buffer(
        array.role,
        array.nbytes,
        name,
        array.dtype,
        lambda: initial.make(array.dtype, array.shape, seed, position),
    )


def portable(launch: LaunchFile, seeds: int) -> tuple[dict[str, Any], dict[str, Path]]:
    """The canonical form with .npy names made local, and those files: what to copy elsewhere."""
    value = launch.to_dict()
    files: dict[str, Path] = {}
    for k, argument in enumerate(launch.arguments):
        if not isinstance(argument, ArraySpec) or argument.initial is None:
            continue
        initial = argument.initial
        if initial.kind != "npy":
            continue
        mark = f"-{SEED_MARK}" if SEED_MARK in initial.file else ""
        name = f"arg{k}{mark}.npy"
        value["args"][k]["init"]["file"] = name
        for seed in range(seeds if mark else 1):
            files[name.replace(SEED_MARK, str(seed))] = initial.path(seed)
    return value, files
