"""Launch files read: JSON or TOML into a `LaunchFile`, or an error that says what to write.

Problem: to measure a kernel it has to be launched, and a file that says how is easier to keep and
to send to another machine than a host program. Errors in it should be found before anything runs,
and say which key of which file is wrong and what to write.

Method: the file is read into plain values (with limits on size and nesting) and every key is
checked by hand, for good messages. The JSON Schema `regdem schema launch` describes the same; a
test holds the two together.

Invariants: no key is ignored; nothing is allocated.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from pathlib import Path
from typing import Any, cast

import numpy as np

from regdem.errors import InputError
from regdem.tune.initial import DTYPES, Initial, npy_header, parse_initial, storage
from regdem.tune.problem import (
    MAX_ARGUMENT_BYTES,
    MAX_GRID,
    MAX_TOTAL_BYTES,
    Role,
    block_of,
    dim3,
    dynamic_shared_of,
)
from regdem.tune.spec import ArraySpec, LaunchFile, ValueSpec

MAX_FILE_BYTES = 16 << 20
_KEYS = ("grid", "block", "dynamic_shared_bytes", "stack_bytes", "args")
_ARRAY_KEYS = ("name", "shape", "dtype", "init", "output")
_SCALAR_KEYS = ("name", "dtype", "value")
_STRUCT_KEYS = ("name", "hex")
_ROLES: dict[Any, Role] = {False: "in", True: "out", "inout": "inout"}


def load_launch_file(path: str | Path) -> LaunchFile:
    """Reads and checks a launch file (`.toml`, else JSON). Raises InputError with file and key."""
    file = Path(path)
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"is larger than {MAX_FILE_BYTES} bytes", file=str(path))
        text = file.read_text("utf-8")
    except OSError as error:
        raise InputError(
            f"can't be read: {(error.strerror or str(error)).lower()}", file=str(path)
        ) from error
    except UnicodeDecodeError as error:
        raise InputError("is no UTF-8 text", file=str(path)) from error
    value = _decode(text, file)
    return parse_launch(value, str(path), file.resolve().parent)


def _decode(text: str, path: Path) -> Any:
    is_toml = path.suffix.lower() == ".toml"
    try:
        return tomllib.loads(text) if is_toml else json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        what = "TOML" if is_toml else "JSON"
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"is no {what}: {reason}", file=str(path)) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return value


class _Reader:
    """Checks of one file: every refusal names the file and the key."""

    def __init__(self, path: str, folder: Path) -> None:
        self.path = path
        self.folder = folder

    def refuse(self, key: str, message: str, hint: str | None = None) -> InputError:
        return InputError(f"{key} {message}", hint=hint, file=self.path, code="bad_launch")

    def keys(self, value: Any, known: tuple[str, ...], where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refuse(where, "is no table of keys and values", f"keys: {', '.join(known)}")
        table = cast(dict[str, Any], value)
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                raise self.refuse(f"{where}: {str(key)[:60]!r}", "is no key here", hint)
        return table

    def dimension(self, make: Any, *arguments: Any) -> Any:
        try:
            return make(*arguments)
        except InputError as error:
            raise InputError(
                error.message, hint=error.hint, file=self.path, code="bad_launch"
            ) from None

    def whole(self, value: Any, key: str, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(key, f"is {str(value)[:40]!r}", "give a whole number")
        if not low <= value <= high:
            raise self.refuse(key, "is out of bounds", f"{low} to {high}")
        return value


def parse_launch(value: Any, path: str = "<launch>", folder: Path | None = None) -> LaunchFile:
    """Checks the plain values of a launch file. `folder`: where its .npy files lie.

    Raises InputError (code `bad_launch`) that names the file, the key and what to write.
    """
    reader = _Reader(path, folder or Path.cwd())
    table = reader.keys(value, _KEYS, "the launch")
    for key in ("grid", "block", "args"):
        if key not in table:
            raise reader.refuse(key, "is missing", "a launch has at least grid, block and args")
    entries = table["args"]
    if not isinstance(entries, list):
        raise reader.refuse("args", "is no list", "one entry per parameter, in their order")
    rows = cast(list[Any], entries)
    if len(rows) > MAX_ARGUMENT_BYTES:
        raise reader.refuse("args", f"has {len(rows)} entries", "a kernel has no such number")
    arguments = tuple(_argument(reader, row, f"args[{k}]") for k, row in enumerate(rows))
    total = 0
    for k, argument in enumerate(arguments):
        total += argument.nbytes if isinstance(argument, ArraySpec) else 0
        if total > MAX_TOTAL_BYTES:
            raise reader.refuse(
                f"args[{k}].shape",
                "makes the arrays larger than any GPU's memory",
                f"at most {MAX_TOTAL_BYTES} bytes together",
            )
    launch = LaunchFile(
        path,
        reader.dimension(dim3, table["grid"], "grid", MAX_GRID),
        reader.dimension(block_of, table["block"], "block"),
        reader.dimension(
            dynamic_shared_of, table.get("dynamic_shared_bytes", 0), "dynamic_shared_bytes"
        ),
        reader.whole(table.get("stack_bytes", 0), "stack_bytes", 0, 512 << 10),
        arguments,
    )
    reader.dimension(lambda: launch.problem(0))
    return launch


def _argument(reader: _Reader, value: Any, where: str) -> ArraySpec | ValueSpec:
    if not isinstance(value, dict):
        raise reader.refuse(where, "is no table", "write an array, a scalar or {hex = ...}")
    table = cast(dict[str, Any], value)
    name = table.get("name", where)
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise reader.refuse(f"{where}.name", "is no short text")
    if "hex" in table:
        return _struct(reader, reader.keys(table, _STRUCT_KEYS, where), where, name)
    if "value" in table:
        return _scalar(reader, reader.keys(table, _SCALAR_KEYS, where), where, name)
    return _array(reader, reader.keys(table, _ARRAY_KEYS, where), where, name)


def _struct(reader: _Reader, table: dict[str, Any], where: str, name: str) -> ValueSpec:
    text = table["hex"]
    try:
        raw = bytes.fromhex(text)
    except (TypeError, ValueError):
        raise reader.refuse(f"{where}.hex", "is no hexadecimal text", 'as "00ff 3f80"') from None
    if not 0 < len(raw) <= MAX_ARGUMENT_BYTES:
        raise reader.refuse(f"{where}.hex", f"holds {len(raw)} bytes", f"1 to {MAX_ARGUMENT_BYTES}")
    return ValueSpec(name, raw, {"hex": raw.hex()})


def _dtype(reader: _Reader, table: dict[str, Any], where: str) -> str:
    dtype = table.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        shown = "is missing" if dtype is None else f"is {str(dtype)[:40]!r}"
        raise reader.refuse(f"{where}.dtype", shown, f"one of {', '.join(DTYPES)}")
    return dtype


def _scalar(reader: _Reader, table: dict[str, Any], where: str, name: str) -> ValueSpec:
    dtype = _dtype(reader, table, where)
    value = table["value"]
    key = f"{where}.value"
    is_whole = storage(dtype).kind in "iu" and dtype != "bfloat16"
    if dtype == "bool" and not isinstance(value, bool):
        raise reader.refuse(key, f"is {str(value)[:40]!r}", "true or false")
    if dtype != "bool" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise reader.refuse(key, f"is {str(value)[:40]!r}", f"give a number, as {dtype} is")
    if is_whole:
        reader.whole(value, key, int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    elif isinstance(value, int) and abs(value) > 2**1000:
        raise reader.refuse(key, "is out of bounds")
    initial = Initial("constant", (value,))
    raw = initial.make(dtype, (1,), 0, 0).tobytes()
    return ValueSpec(name, raw, {"dtype": dtype, "value": value})


def _array(reader: _Reader, table: dict[str, Any], where: str, name: str) -> ArraySpec:
    role = _role(reader, table, where)
    source = table.get("init")
    if role == "out" and source is not None:
        raise reader.refuse(
            f"{where}.init",
            "is given for an output, which is filled with 0xA5 before each launch",
            'leave it out, or say "output": "inout" if the kernel reads the array too',
        )
    if isinstance(source, dict) and cast(dict[str, Any], source).get("kind") == "npy":
        return _npy_array(reader, table, where, name, role)
    if "shape" not in table:
        raise reader.refuse(
            where,
            "is neither an array (shape, dtype, init) nor a scalar (dtype, value)",
            "arrays have a shape, scalars a value, structs a hex",
        )
    dtype = _dtype(reader, table, where)
    shape = _shape(reader, table["shape"], where, storage(dtype).itemsize)
    if role != "out" and source is None:
        raise reader.refuse(f"{where}.init", "is missing", "say how the array starts, as zeros")
    initial = None if role == "out" else _initial(reader, source, dtype, where)
    return ArraySpec(name, dtype, shape, role, initial)


def _role(reader: _Reader, table: dict[str, Any], where: str) -> Role:
    output = table.get("output", False)
    if not isinstance(output, bool) and output != "inout":
        raise reader.refuse(f"{where}.output", f"is {str(output)[:40]!r}", 'true, false or "inout"')
    return _ROLES[output]


def _initial(reader: _Reader, source: Any, dtype: str, where: str) -> Initial:
    return parse_initial(
        source,
        dtype,
        reader.folder,
        lambda key, message, hint: reader.refuse(f"{where}.{key}", message, hint),
    )


def _shape(reader: _Reader, value: Any, where: str, item_bytes: int) -> tuple[int, ...]:
    sizes = cast(list[Any], value) if isinstance(value, list) else [value]
    if not 1 <= len(sizes) <= 32:
        raise reader.refuse(f"{where}.shape", f"has {len(sizes)} numbers", "1 to 32")
    total = item_bytes
    for size in sizes:
        total *= reader.whole(size, f"{where}.shape", 1, MAX_TOTAL_BYTES)
        if total > MAX_TOTAL_BYTES:
            raise reader.refuse(
                f"{where}.shape", "is larger than any GPU's memory", f"{MAX_TOTAL_BYTES} bytes"
            )
    return tuple(sizes)


def _npy_array(
    reader: _Reader, table: dict[str, Any], where: str, name: str, role: Role
) -> ArraySpec:
    """An array whose dtype and shape may be left to the file."""
    initial = _initial(reader, table["init"], "float32", where)
    path = initial.path(0)
    try:
        found, shape = npy_header(path)
    except InputError as error:
        raise reader.refuse(f"{where}.init.file", f"{path.name} {error.message}") from error
    dtype = _dtype(reader, table, where) if "dtype" in table else found
    if dtype not in DTYPES or str(storage(dtype)) != found:
        raise reader.refuse(
            f"{where}.dtype", f"is {dtype}, but {path.name} holds {found}", "mend either"
        )
    if not shape or 0 in shape:
        raise reader.refuse(f"{where}.init.file", f"{path.name} holds no elements")
    if "shape" in table:
        wanted = _shape(reader, table["shape"], where, storage(dtype).itemsize)
        if wanted != shape:
            raise reader.refuse(
                f"{where}.shape", f"is {list(wanted)}, but {path.name} holds {list(shape)}"
            )
    _shape(reader, list(shape), where, storage(dtype).itemsize)
    return ArraySpec(name, dtype, shape, role, initial)
