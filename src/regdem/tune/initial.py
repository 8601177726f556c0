"""First contents of the arrays of a launch file: parsed, checked, and made from a seed.

Each initialiser is a small frozen value with `make(dtype, shape, seeds)`; `seeds` is the run's
seed and the argument's position, so that two arrays of one run differ and two runs differ, and the
same numbers come out in every process. numpy's PCG64 streams are stable by numpy's own policy for
`random`, `standard_normal` and `integers` within a release series; the outputs compared are always
of one process, so another numpy only changes which inputs are tried.

bfloat16, which numpy has not, is made in float32 and rounded to nearest even.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from regdem.errors import InputError

HostArray = NDArray[Any]
Kind = np.dtype[Any]
Shape = tuple[int, ...]
Numbers = tuple[float, ...]
Rng = np.random.Generator
Refuse = Callable[[str, str, str | None], InputError]
"""(key, message, hint) to the error: the file and the place of the array are known to it."""

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
SEED_MARK = "{seed}"
_CHUNK = 1 << 20


def storage(dtype: str) -> np.dtype[Any]:
    """The numpy type that holds a dtype: its own, or 16-bit words for bfloat16."""
    return np.dtype(np.uint16 if dtype == "bfloat16" else dtype)


def stored(values: HostArray, dtype: str) -> HostArray:
    """Values as they lie in device memory."""
    if dtype != "bfloat16":
        return np.ascontiguousarray(values.astype(np.dtype(dtype), copy=False))
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    kept = np.where(np.isnan(values), bits | np.uint32(0x400000), rounded)
    return (kept >> np.uint32(16)).astype(np.uint16)


@dataclass(frozen=True)
class Initial:
    """How an array starts. `kind` is one of `KINDS`; the numbers mean what its row says."""

    kind: str
    numbers: tuple[float, ...] = ()
    seed: int = 0
    file: str = ""
    """Of an `npy`: absolute, perhaps with `{seed}` in it."""

    @property
    def varies(self) -> bool:
        """Whether runs with different seeds get different contents."""
        return self.kind in _RANDOM or SEED_MARK in self.file

    def path(self, seed: int) -> Path:
        return Path(self.file.replace(SEED_MARK, str(seed)))

    def make(self, dtype: str, shape: tuple[int, ...], seed: int, position: int) -> HostArray:
        """The array. Raises InputError for an .npy file that does not hold it."""
        if self.kind == "npy":
            return _load(self.path(seed), dtype, shape)
        kind = np.dtype(np.float32) if dtype == "bfloat16" else np.dtype(dtype)
        rng = np.random.default_rng([seed, position, self.seed])
        return stored(_MAKERS[self.kind](kind, shape, self.numbers, rng), dtype)

    def digest(self, seeds: int) -> str:
        """SHA-256 of the .npy files of the first `seeds` seeds; empty for other kinds."""
        if self.kind != "npy":
            return ""
        digest = hashlib.sha256()
        for path in dict.fromkeys(self.path(seed) for seed in range(seeds)):
            try:
                with open(path, "rb") as stream:
                    while block := stream.read(_CHUNK):
                        digest.update(block)
            except OSError as error:
                reason = error.strerror or str(error)
                raise InputError(f"can't be read: {reason}", file=str(path)) from error
        return digest.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The canonical form, as in a launch file."""
        value: dict[str, Any] = {"kind": self.kind}
        value |= dict(zip(KINDS[self.kind], self.numbers, strict=True)) if self.numbers else {}
        if self.kind in _RANDOM:
            value["seed"] = self.seed
        if self.file:
            value["file"] = self.file
        return value


def _filled(value: float) -> Callable[..., HostArray]:
    def make(kind: Kind, shape: Shape, numbers: Numbers, rng: Rng) -> HostArray:
        return np.full(shape, value, kind)

    return make


def _constant(kind: Kind, shape: Shape, numbers: Numbers, rng: Rng) -> HostArray:
    return np.full(shape, numbers[0], kind)


def _arange(kind: Kind, shape: Shape, numbers: Numbers, rng: Rng) -> HostArray:
    start, step = numbers
    count = math.prod(shape)
    if kind.kind in "iub":
        start, step = int(start), int(step)
    wide = np.arange(count, dtype=np.int64 if kind.kind in "iub" else np.float64)
    return (wide * step + start).astype(kind).reshape(shape)


def _uniform(kind: Kind, shape: Shape, numbers: Numbers, rng: Rng) -> HostArray:
    low, high = numbers
    if kind.kind == "c":
        real, imaginary = rng.uniform(low, high, shape), rng.uniform(low, high, shape)
        return (real + 1j * imaginary).astype(kind)
    source = np.float32 if kind.itemsize <= 4 else np.float64
    values = rng.random(shape, dtype=source)
    values *= high - low
    values += low
    return values.astype(kind, copy=False)


def _normal(kind: Kind, shape: Shape, numbers: Numbers, rng: Rng) -> HostArray:
    mean, deviation = numbers
    if kind.kind == "c":
        real, imaginary = rng.standard_normal(shape), rng.standard_normal(shape)
        return (mean + deviation * (real + 1j * imaginary)).astype(kind)
    source = np.float32 if kind.itemsize <= 4 else np.float64
    values = rng.standard_normal(shape, dtype=source)
    values *= deviation
    values += mean
    return values.astype(kind, copy=False)


def _randint(kind: Kind, shape: Shape, numbers: Numbers, rng: Rng) -> HostArray:
    low, high = int(numbers[0]), int(numbers[1])
    if kind.kind in "iu":
        return cast(HostArray, rng.integers(low, high, shape, dtype=kind))
    return cast(HostArray, rng.integers(low, high, shape, dtype=np.int64)).astype(kind)


KINDS: dict[str, tuple[str, ...]] = {
    "zeros": (), "ones": (), "constant": ("value",), "arange": ("start", "step"),
    "uniform": ("low", "high"), "normal": ("mean", "std"), "randint": ("low", "high"), "npy": (),
}  # fmt: skip
_DEFAULTS: dict[str, tuple[float, ...]] = {
    "arange": (0, 1), "uniform": (0.0, 1.0), "normal": (0.0, 1.0)
}  # fmt: skip
_RANDOM = frozenset({"uniform", "normal", "randint"})
_MAKERS: dict[str, Callable[..., HostArray]] = {
    "zeros": _filled(0), "ones": _filled(1), "constant": _constant, "arange": _arange,
    "uniform": _uniform, "normal": _normal, "randint": _randint,
}  # fmt: skip


def _load(path: Path, dtype: str, shape: tuple[int, ...]) -> HostArray:
    data = _open(path)
    if data.dtype != storage(dtype) or data.shape != shape:
        raise InputError(
            f"holds {data.dtype} of shape {list(data.shape)}, not {dtype} of {list(shape)}",
            file=str(path),
        )
    return np.ascontiguousarray(data)


def _open(path: Path) -> HostArray:
    try:
        data: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        reason = error.strerror or "it is no .npy file"
        raise InputError(f"can't be read: {reason}", file=str(path)) from error
    except (ValueError, EOFError) as error:
        raise InputError(f"is no plain .npy file: {error}", file=str(path)) from error
    if not isinstance(data, np.ndarray):
        raise InputError("is an .npz archive, not an .npy file", file=str(path))
    return cast(HostArray, data)


def npy_header(path: Path) -> tuple[str, tuple[int, ...]]:
    """(dtype, shape) of an .npy file, without reading its contents. Raises InputError."""
    data = _open(path)
    return str(data.dtype), tuple(data.shape)


def parse_initial(value: Any, dtype: str, folder: Path, refuse: Refuse) -> Initial:
    """An initialiser from a launch file: a word, or a table with `kind`. Raises by `refuse`."""
    if not isinstance(value, str | dict):
        raise refuse("init", "is neither a word nor a table", f"one of {', '.join(KINDS)}")
    table = {"kind": value} if isinstance(value, str) else cast(dict[str, Any], value)
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise refuse("init.kind", f"is {kind!r}", f"one of {', '.join(KINDS)}")
    known = {"kind", *KINDS[kind]}
    known |= {"seed"} if kind in _RANDOM else {"file"} if kind == "npy" else set()
    for key in table:
        if key not in known:
            raise refuse(
                f"init.{key}", f"is no key of {kind}", f"it has {', '.join(sorted(known))}"
            )
    if kind == "npy":
        return _parse_npy(table, folder, refuse)
    numbers = _numbers(table, kind, dtype, refuse)
    seed = table.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise refuse("init.seed", f"is {seed!r}", "a whole number from 0")
    return Initial(kind, numbers, seed)


def _parse_npy(table: dict[str, Any], folder: Path, refuse: Refuse) -> Initial:
    file = table.get("file")
    if not isinstance(file, str) or not file or "\0" in file:
        raise refuse("init.file", "is no file name", "name an .npy file beside the launch file")
    return Initial("npy", file=str((folder / file).resolve()))


def _numbers(table: dict[str, Any], kind: str, dtype: str, refuse: Refuse) -> tuple[float, ...]:
    numbers: list[float] = []
    for position, key in enumerate(KINDS[kind]):
        default = _DEFAULTS.get(kind)
        value = table.get(key, default[position] if default else None)
        if isinstance(value, bool) and kind == "constant":
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refuse(f"init.{key}", "is missing" if value is None else "is no number", None)
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise refuse(f"init.{key}", "is out of all bounds", None)
        if kind != "constant" and not math.isfinite(value):
            raise refuse(f"init.{key}", f"is {value}", "give a finite number")
        numbers.append(value)
    whole = np.dtype(storage(dtype)).kind in "iub" and dtype != "bfloat16"
    if kind in ("uniform", "normal") and whole:
        raise refuse("init.kind", f"{kind} makes no {dtype}", "use randint for whole numbers")
    if kind in ("uniform", "randint") and not numbers[0] < numbers[1]:
        raise refuse("init", f"low {numbers[0]} is not below high {numbers[1]}", None)
    if kind == "normal" and numbers[1] < 0:
        raise refuse("init.std", f"is {numbers[1]}", "give 0 or more")
    if kind in ("randint", "constant", "arange") and whole:
        _check_range(numbers, kind, dtype, refuse)
    elif kind == "randint" and any(number != int(number) for number in numbers):
        raise refuse("init", "randint has bounds that are not whole", None)
    return tuple(numbers)


def _check_range(numbers: list[float], kind: str, dtype: str, refuse: Refuse) -> None:
    if any(not math.isfinite(number) or number != math.floor(number) for number in numbers):
        raise refuse("init", f"{numbers} are no whole numbers, as {dtype} is", None)
    if kind == "arange":  # it wraps around, as the kernel's own arithmetic would
        if any(abs(number) >= 2**62 for number in numbers):
            raise refuse("init", f"{numbers} are out of bounds", None)
        return
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    most = high + 1 if kind == "randint" else high  # the upper bound is not drawn
    if numbers[0] < low or numbers[-1] > most:
        raise refuse("init", f"{numbers} are out of the range of {dtype}", f"{low} to {high}")
