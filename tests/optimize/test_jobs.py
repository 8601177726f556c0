"""Jobs of the optimiser: what they share, in which order they begin, what is not proved in vain."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from regdem.bases import INPUT, Base
from regdem.binary import Cubin
from regdem.errors import UsageError
from regdem.machine import block_shape
from regdem.rewrite import Request, demote_kernel, prove_first
from regdem.variants import Job, Outcome, VariantSpec, run_jobs

REQUEST = Request(threads=block_shape(256), reschedule=True)


@pytest.fixture(scope="module")
def base(example_path: Path) -> Base:
    return Base(INPUT, "pair_forces", example_path.read_bytes(), "input")


def code_of(outcome: Outcome) -> tuple[str, bytes]:
    return outcome.status, b"" if outcome.done is None else outcome.done.rewrite.edit.code


def test_a_new_order_goes_on_from_the_rewrite_that_is_there(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = VariantSpec("demote_40", "demote", 40)
    first = Job(base, REQUEST, spec).run().done
    assert first is not None
    ordered = replace(spec, name="demote_40_scheduled", after="demote_40", scheduled=True)
    alone = Job(base, REQUEST, ordered).run()

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("regdem.variants.demote_kernel", never)
    behind = Job(base, REQUEST, ordered, first=first).run()
    assert code_of(behind) == code_of(alone)
    assert behind.status in ("proved", "nothing_to_do")
    assert Job(base, REQUEST, ordered).run().status == "internal_error"


@dataclass(frozen=True)
class Named:
    """A job that notes when it begins."""

    name: str
    begun: list[str]

    def run(self) -> str:
        self.begun.append(self.name)
        return self.name.upper()


def test_the_longest_begin_first_and_answers_keep_their_order() -> None:
    begun: list[str] = []
    jobs = [Named(name, begun) for name in "abcd"]
    told: list[tuple[int, str]] = []
    with ThreadPoolExecutor(1) as executor:
        answers = run_jobs(
            jobs, executor, lambda at, answer: told.append((at, answer)), (1.0, 3.0, 2.0, 3.0)
        )
    assert answers == ["A", "B", "C", "D"]
    assert begun == ["b", "d", "c", "a"]
    assert sorted(told) == list(enumerate("ABCD"))


def test_what_is_not_wanted_is_not_proved(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin: Cubin = base.cubin()
    kernel = cubin.kernel(base.kernel)
    _, done = demote_kernel(cubin, kernel, replace(REQUEST, registers=40))

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    def refuse(_: object) -> None:
        raise UsageError("no gain", code="nothing_to_do")

    monkeypatch.setattr("regdem.rewrite.check_pair", never)
    with pytest.raises(UsageError, match="no gain"):
        prove_first(cubin, kernel, REQUEST, [lambda: done.rewrite], refuse)
