"""Python functions that launch: recorded, repeated, and refused with reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regdem
from regdem.errors import InputError, RegdemError, UsageError
from regdem.tune.parameters import check_arguments, parameters_of
from regdem.tune.problem import BufferArgument, Recorder, ValueArgument
from regdem.tune.reading import parse_launch
from regdem.tune.source import open_launch

EXAMPLES = Path(__file__).parents[2] / "examples"


def written(tmp_path: Path, body: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text("import numpy as np\nimport beside\ndef go(run):\n" + body)
    (tmp_path / "beside.py").write_text("SIZE = 64\n")
    return f"{path}:go"


def test_what_a_function_does_is_recorded(tmp_path: Path) -> None:
    text = written(
        tmp_path,
        "    x = run.input(run.rng.random(beside.SIZE, dtype=np.float32))\n"
        "    y = run.output(beside.SIZE, np.float32)\n"
        "    for step in range(2):\n"
        "        run.launch(grid=2, block=(32,), args=[x, y, np.int32(step), b'\\x01\\x02'])\n",
    )
    source = open_launch(text)
    problem = source.problem(0)
    assert [buffer.role for buffer in problem.buffers] == ["in", "out"]
    assert [buffer.nbytes for buffer in problem.buffers] == [256, 256]
    assert len(problem.launches) == 2
    assert problem.launches[1].arguments == (
        BufferArgument(0), BufferArgument(1), ValueArgument(b"\1\0\0\0"), ValueArgument(b"\1\2"),
    )  # fmt: skip
    again = open_launch(text).problem(0)
    assert np.array_equal(again.buffers[0].contents(), problem.buffers[0].contents())
    other = source.problem(1)
    assert not np.array_equal(other.buffers[0].contents(), problem.buffers[0].contents())
    copied = source.export(tmp_path, 2)
    assert copied == "launch.py:go"
    assert open_launch(f"{tmp_path}/{copied}").sha256(3) == source.sha256(3)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    pass\n", "nothing is launched"),
        ("    1 / 0\n", "fails for seed 0: ZeroDivisionError"),
        ("    raise SystemExit(0)\n", "fails for seed 0: SystemExit"),
        ("    run.launch(grid=1, block=32, args=[4])\n", "argument 0 is a int"),
        ("    run.launch(grid=0, block=32, args=[])\n", "grid holds 0"),
        ("    run.launch(grid=1, block=2048, args=[])\n", "block"),
        ("    run.input([1, 2])\n", "are a list"),
        ("    run.output(-1)\n", "negative"),
        ("    run.launch(grid=1, block=32, args=[])\n", "nothing to compare"),
        (
            "    y = run.output(4)\n    run.launch(grid=1, block=32, args=[y])\n"
            "    run.launch(grid=1, block=64, args=[y])\n",
            "different blocks",
        ),
    ],
)
def test_refusals_name_the_function(tmp_path: Path, body: str, words: str) -> None:
    text = written(tmp_path, body)
    with pytest.raises(InputError, match=words) as caught:
        open_launch(text).problem(0)
    assert caught.value.file == text


def test_names_of_functions(tmp_path: Path) -> None:
    text = written(tmp_path, "    pass\n")
    with pytest.raises(UsageError, match="functions: go"):
        open_launch(text.replace(":go", ":come"))
    with pytest.raises(UsageError, match="names no function"):
        open_launch(text.removesuffix(":go"))
    with pytest.raises(InputError, match="no such file"):
        open_launch(str(tmp_path / "none.py:go"))
    (tmp_path / "bad.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(InputError, match="ModuleNotFoundError"):
        open_launch(str(tmp_path / "bad.py:go"))


def test_recorded_contents_are_copies() -> None:
    run, data = Recorder(0), np.zeros(4)
    x = run.inout(data)
    data[:] = 7
    run.launch(grid=1, block=32, args=[x])
    assert run.problem().buffers[0].contents().tolist() == [0, 0, 0, 0]


def test_arguments_against_the_kernel_s_parameters() -> None:
    kernel = regdem.load(EXAMPLES / "neighbour" / "neighbour.cubin").kernels[0]
    parameters = parameters_of(kernel)
    assert parameters is not None
    assert [p.size for p in parameters] == [8] * 7 + [24] + [4] * 6
    problem = open_launch(f"{EXAMPLES}/neighbour/launch.py:pair_forces").problem(0)
    check_arguments(kernel, problem)

    out: dict[str, Any] = {"shape": [8], "dtype": "float32", "output": True}
    few = parse_launch({"grid": 1, "block": 32, "args": [out]}).problem(0)
    with pytest.raises(RegdemError, match="1 arguments, the kernel takes 14"):
        check_arguments(kernel, few)
    rows = [out] * 7 + [{"hex": "00" * 24}] + [{"dtype": "int64", "value": 1}] * 6
    wrong = parse_launch({"grid": 1, "block": 32, "args": rows}).problem(0)
    with pytest.raises(RegdemError, match=r"args\[8\] is a value of 8 bytes.*has 4"):
        check_arguments(kernel, wrong)


def test_block_against_launch_bounds() -> None:
    kernel = regdem.load(EXAMPLES / "unroll" / "variance_rolled.cubin").kernels[0]
    assert kernel.max_threads == 256
    out: dict[str, Any] = {"shape": [8], "dtype": "float32", "output": True}
    rows = [out] * 4 + [{"dtype": "int32", "value": 1}] * 2
    large = parse_launch({"grid": 1, "block": 512, "args": rows}).problem(0)
    with pytest.raises(RegdemError, match="at most 256"):
        check_arguments(kernel, large)
