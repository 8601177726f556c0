"""Whatever a launch file holds, the answer is a launch or an InputError; no memory is taken."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from regdem.errors import InputError
from regdem.tune.initial import DTYPES, KINDS
from regdem.tune.reading import parse_launch

NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.integers(-4, 70000),
    st.integers(),
    st.floats(),
    st.sampled_from([2**31, 2**63, 2**64, 10**400, True, False]),
)
JUNK: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.text(max_size=8), NUMBERS, st.just([]), st.just({"kind": []})
)


def table(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the keys, each mostly with a value of its kind."""
    return st.fixed_dictionaries({}, optional={k: st.one_of(v, JUNK) for k, v in values.items()})


INIT: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(list(KINDS)),
    table(
        kind=st.sampled_from(list(KINDS)), value=NUMBERS, start=NUMBERS, step=NUMBERS, low=NUMBERS,
        high=NUMBERS, mean=NUMBERS, std=NUMBERS, seed=NUMBERS, file=st.text(max_size=5),
    ),
)  # fmt: skip
ARGUMENT = table(
    shape=st.one_of(NUMBERS, st.lists(st.integers(1, 4), max_size=3), st.lists(NUMBERS)),
    dtype=st.sampled_from(DTYPES),
    init=INIT,
    output=st.sampled_from([True, False, "inout"]),
    value=NUMBERS,
    hex=st.text("0123456789abcdefg ", max_size=9),
)
OUTPUT: st.SearchStrategy[Any] = st.just({"shape": 4, "dtype": "int32", "output": True})
DIMENSION: st.SearchStrategy[Any] = st.one_of(
    st.integers(1, 64), NUMBERS, st.lists(NUMBERS, max_size=4)
)


@given(
    st.one_of(
        JUNK,
        st.fixed_dictionaries(
            {"grid": DIMENSION, "block": DIMENSION,
             "args": st.one_of(JUNK, st.lists(st.one_of(ARGUMENT, OUTPUT), max_size=4))},
            optional={"dynamic_shared_bytes": NUMBERS, "stack_bytes": NUMBERS, "more": JUNK},
        ),
    )
)  # fmt: skip
def test_only_input_errors(value: Any) -> None:
    refusal: InputError | None = None
    try:
        parse_launch(value)
    except InputError as error:
        refusal = error
    if refusal is not None:
        assert refusal.file is not None
        assert "\n" not in refusal.message


@given(INIT, st.sampled_from(DTYPES), st.integers(0, 5))
def test_what_is_accepted_can_be_made(init: Any, dtype: str, seed: int) -> None:
    array = {"shape": [3, 2], "dtype": dtype, "init": init}
    output = {"shape": 4, "dtype": "int32", "output": True}
    try:
        launch = parse_launch({"grid": 1, "block": 32, "args": [array, output]})
    except InputError:
        return
    buffer = launch.problem(seed).buffers[0]
    assert buffer.contents().nbytes == buffer.nbytes
    assert parse_launch(launch.to_dict()).sha256(2) == launch.sha256(2)
