"""Launch files: what is read, what is refused, and that the shipped schema says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from regdem.cli.schemas import schema
from regdem.errors import InputError
from regdem.tune.problem import MAX_TOTAL_BYTES
from regdem.tune.reading import load_launch_file, parse_launch
from regdem.tune.source import open_launch
from regdem.tune.spec import portable

EXAMPLES = Path(__file__).parents[2] / "examples"
IN: dict[str, Any] = {"shape": [8], "dtype": "float32", "init": "zeros"}
OUT: dict[str, Any] = {"shape": [8], "dtype": "float32", "output": True}


def launch(*args: Any, **more: Any) -> dict[str, Any]:
    return {"grid": [4], "block": 128, "args": list(args) or [IN, OUT], **more}


GOOD: list[dict[str, Any]] = [
    launch(),
    launch(dynamic_shared_bytes=232448, stack_bytes=4096),
    launch(OUT, {"dtype": "int32", "value": -5}, {"dtype": "float64", "value": 1e300}),
    launch(OUT, {"dtype": "bool", "value": True}, {"hex": "00 ff 12", "name": "box"}),
    launch(OUT, {"shape": 4, "dtype": "uint8", "init": {"kind": "constant", "value": 255}}),
    launch({"shape": [2, 3], "dtype": "int64", "init": "arange", "output": "inout"}),
    launch(OUT, IN | {"dtype": "bfloat16", "init": {"kind": "normal", "std": 2}}),
    launch(OUT, IN | {"init": {"kind": "uniform", "low": -1, "high": 1, "seed": 9}}),
    launch(OUT, IN | {"dtype": "complex64", "init": "uniform"}),
    launch(OUT, IN | {"dtype": "uint8", "init": {"kind": "randint", "low": 0, "high": 256}}),
]


@pytest.mark.parametrize("value", GOOD)
def test_accepted_by_parser_and_schema(value: dict[str, Any]) -> None:
    parsed = parse_launch(value)
    jsonschema.validate(value, schema("launch"))
    jsonschema.validate(parsed.to_dict(), schema("launch"))
    assert parse_launch(parsed.to_dict()) == parsed
    for buffer in parsed.problem(1).buffers:
        if buffer.make is not None:
            assert buffer.contents().nbytes == buffer.nbytes


BAD: list[tuple[Any, str]] = [
    ([], "the launch is no table"),
    ({"grid": 1, "block": 1}, "args is missing"),
    (launch(gird=3), "did you mean grid"),
    (launch(block=[32, 64]), "2048 threads"),
    (launch(block=0), "block holds 0"),
    (launch(block=[8, 8, 8, 8]), "has 4 numbers"),
    (launch(grid=[1, 65536]), "grid holds 65536"),
    (launch(grid=[1.5]), "give whole numbers"),
    (launch(grid=True), "give whole numbers"),
    (launch(dynamic_shared_bytes=232449), "dynamic_shared_bytes is 232449"),
    (launch(dynamic_shared_bytes=-1), "dynamic_shared_bytes is -1"),
    (launch(stack_bytes="much"), "stack_bytes"),
    (launch(args={}), "args is no list"),
    (launch(3), r"args\[0\] is no table"),
    (launch(IN), "no array is an output"),
    (launch(OUT | {"init": "zeros"}), "filled with 0xA5"),
    (launch(OUT, {"dtype": "float32"}), "neither an array"),
    (launch(OUT, IN | {"dtype": "float8"}), "one of bool"),
    (launch(OUT, IN | {"dtpye": "x"}), "did you mean dtype"),
    (launch(OUT, IN | {"output": "yes"}), "true, false or"),
    (launch(OUT, {"shape": [8], "dtype": "int32"}), "init is missing"),
    (launch(OUT, IN | {"init": "ramdom"}), "one of zeros"),
    (launch(OUT, IN | {"init": 7}), "neither a word nor a table"),
    (launch(OUT, IN | {"init": {"kind": "uniform", "hi": 1}}), "no key of uniform"),
    (launch(OUT, IN | {"init": {"kind": "uniform", "low": 2, "high": 1}}), "not below"),
    (launch(OUT, IN | {"init": {"kind": "uniform", "seed": -1}}), "init.seed"),
    (launch(OUT, IN | {"init": {"kind": "normal", "std": float("nan")}}), "finite"),
    (launch(OUT, IN | {"dtype": "int32", "init": "uniform"}), "use randint"),
    (launch(OUT, IN | {"dtype": "int8", "init": {"kind": "constant", "value": 128}}), "range"),
    (launch(OUT, IN | {"dtype": "int8", "init": {"kind": "constant", "value": 0.5}}), "whole"),
    (launch(OUT, IN | {"dtype": "int8", "init": {"kind": "constant", "value": 1e999}}), "whole"),
    (launch(OUT, IN | {"init": {"kind": "constant"}}), "init.value is missing"),
    (launch(OUT, {"dtype": "int32", "value": 2**31}), "out of bounds"),
    (launch(OUT, {"dtype": "int32", "value": 1.0}), "give a whole number"),
    (launch(OUT, {"dtype": "bool", "value": 1}), "true or false"),
    (launch(OUT, {"dtype": "float32", "value": "1"}), "give a number"),
    (launch(OUT, {"hex": "0g"}), "hexadecimal"),
    (launch(OUT, {"hex": ""}), "holds 0 bytes"),
]


@pytest.mark.parametrize(("value", "words"), BAD, ids=[words for _, words in BAD])
def test_refused_with_key_and_hint(value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        parse_launch(value, "my.json")
    assert caught.value.file == "my.json"
    assert caught.value.code in ("bad_launch", "bad_input")


HOSTILE = [
    [2**62, 2**62],
    [2**200],
    [10**5000],
    [-1],
    [0],
    [True],
    [1.0],
    ["8"],
    [],
    [1] * 33,
    [MAX_TOTAL_BYTES],
    None,
    {"x": 1},
]


@pytest.mark.parametrize("shape", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_shapes_are_refused_and_nothing_is_allocated(shape: Any) -> None:
    with pytest.raises(InputError, match="shape"):
        parse_launch(launch(OUT, IN | {"shape": shape}))


def test_many_large_arrays_are_too_much_together() -> None:
    large = IN | {"shape": [MAX_TOTAL_BYTES // 8]}
    with pytest.raises(InputError, match="larger than any GPU"):
        parse_launch(launch(OUT, large, large, large))


def test_hostile_numbers() -> None:
    with pytest.raises(InputError, match="grid"):
        parse_launch(launch(grid=10**5000))
    with pytest.raises(InputError, match="bounds"):
        parse_launch(launch(OUT, {"dtype": "float64", "value": 10**400}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[" * 200000, "nested too deeply|is no JSON"),
        ('{"grid": 1, "grid": 2}', "stands there twice"),
        ("\udcff", "UTF-8"),
    ],
)
def test_files_that_are_no_launch(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "launch.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=words) as caught:
        load_launch_file(path)
    assert caught.value.file == str(path)


def test_missing_and_huge_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        load_launch_file(tmp_path / "none.json")
    path = tmp_path / "huge.json"
    with open(path, "wb") as stream:
        stream.truncate(17 << 20)
    with pytest.raises(InputError, match="larger than"):
        load_launch_file(path)


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    toml = tmp_path / "launch.toml"
    toml.write_text(
        "grid = [4]\nblock = 128\n"
        '[[args]]\nshape = [8]\ndtype = "float32"\ninit = {kind = "uniform", high = 2.0}\n'
        '[[args]]\nshape = [8]\ndtype = "float32"\noutput = true\n'
        '[[args]]\ndtype = "int32"\nvalue = 8\n'
    )
    value = launch(
        IN | {"init": {"kind": "uniform", "high": 2.0}}, OUT, {"dtype": "int32", "value": 8}
    )
    same = tmp_path / "launch.json"
    same.write_text(json.dumps(value))
    assert load_launch_file(toml).sha256(3) == load_launch_file(same).sha256(3)


def test_inputs_depend_on_seed_position_and_the_array_s_own_seed() -> None:
    array = IN | {"shape": [1000], "init": {"kind": "uniform", "seed": 1}}
    other = IN | {"shape": [1000], "init": {"kind": "uniform", "seed": 2}}
    parsed = parse_launch(launch(OUT, array, array, other))

    def contents(seed: int) -> list[bytes]:
        return [b.contents().tobytes() for b in parsed.problem(seed).buffers if b.make]

    assert contents(0) == contents(0)
    assert len({*contents(0), *contents(1)}) == 6


def test_initial_values() -> None:
    def made(dtype: str, init: Any) -> np.ndarray[Any, Any]:
        spec = launch(OUT, {"shape": [2, 3], "dtype": dtype, "init": init})
        return parse_launch(spec).problem(0).buffers[1].contents()

    assert made("int16", "ones").tolist() == [[1, 1, 1], [1, 1, 1]]
    assert made("int8", {"kind": "arange", "start": 126}).reshape(-1).tolist() == [
        126, 127, -128, -127, -126, -125,
    ]  # fmt: skip
    assert made("float64", {"kind": "arange", "step": 0.5}).reshape(-1)[-1] == 2.5
    drawn = made("uint8", {"kind": "randint", "low": 3, "high": 5})
    assert set(drawn.reshape(-1).tolist()) <= {3, 4}
    # bfloat16 1.0 is 0x3f80; 1 + 2^-8 lies half-way and rounds to even
    assert made("bfloat16", "ones").dtype == np.uint16
    assert int(made("bfloat16", {"kind": "constant", "value": 1.00390625})[0, 0]) == 0x3F80
    assert int(made("bfloat16", {"kind": "constant", "value": 1.01171875})[0, 0]) == 0x3F82
    assert made("complex128", "normal").dtype == np.complex128


def test_npy_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
    file = {"init": {"kind": "npy", "file": "x.npy"}}
    parsed = parse_launch(launch(OUT, file), folder=tmp_path)
    assert parsed.problem(0).buffers[1].contents().tolist() == [[0, 1, 2], [3, 4, 5]]
    jsonschema.validate(launch(OUT, file), schema("launch"))
    with pytest.raises(InputError, match=r"x\.npy holds int32"):
        parse_launch(launch(OUT, file | {"dtype": "float32"}), folder=tmp_path)
    with pytest.raises(InputError, match=r"x\.npy holds \[2, 3\]"):
        parse_launch(launch(OUT, file | {"shape": [3, 2]}), folder=tmp_path)
    with pytest.raises(InputError, match=r"y\.npy can't be read"):
        parse_launch(launch(OUT, {"init": {"kind": "npy", "file": "y.npy"}}), folder=tmp_path)
    before = parsed.sha256(3)
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.int32))
    assert parsed.sha256(3) != before, "contents are part of the launch"


def test_npy_files_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "evil.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="no plain"):
        parse_launch(launch(OUT, {"init": {"kind": "npy", "file": "evil.npy"}}), folder=tmp_path)


def test_npy_per_seed_and_a_portable_copy(tmp_path: Path) -> None:
    for seed in range(2):
        np.save(tmp_path / f"x{seed}.npy", np.full(4, seed, np.float32))
    file = {"init": {"kind": "npy", "file": "x{seed}.npy"}}
    parsed = parse_launch(launch(OUT, file), folder=tmp_path)
    assert parsed.varies
    assert parsed.problem(1).buffers[1].contents().tolist() == [1, 1, 1, 1]
    value, files = portable(parsed, 2)
    assert sorted(files) == ["arg1-0.npy", "arg1-1.npy"]
    elsewhere = tmp_path / "copy"
    elsewhere.mkdir()
    for name, path in files.items():
        (elsewhere / name).write_bytes(path.read_bytes())
    assert parse_launch(value, folder=elsewhere).sha256(2) == parsed.sha256(2)


def test_the_shipped_example() -> None:
    path = EXAMPLES / "unroll" / "variance.launch.json"
    jsonschema.validate(json.loads(path.read_text()), schema("launch"))
    source = open_launch(str(path))
    assert source.varies
    assert source.problem(0).blocks == 1024
