"""The text of a tuning with hundreds of variants fits a screen; the evidence keeps all."""

from __future__ import annotations

import json
from dataclasses import replace

from regdem.tune.made import Made
from regdem.tune.report import SHOWN
from regdem.tune.store import Store
from regdem.tune.tuner import Choices, tune

from .conftest import FakeDevice, Prepared

MANY = 60
NAMES = [f"variant_{k:02}" for k in range(MANY)]
PREDICTIONS = {name: (1.2 - 0.001 * k, 1.1, 1.3) for k, name in enumerate(NAMES)}


def test_the_fastest_and_what_must_not_be_overlooked(prepared: Prepared) -> None:
    folder = prepared(**PREDICTIONS)
    wrong, faulty = frozenset({"variant_50"}), frozenset({"variant_40"})
    speedups = {name: 1.3 - 0.002 * k for k, name in enumerate(NAMES)}
    device = FakeDevice(speedups, wrong, faulty)
    result = tune(None, out=folder, devices=[device], choices=Choices(exhaustive=True, jobs=1))
    lines = result.text().splitlines()
    rows = [line for line in lines if line.startswith("variant_")]
    names = [row.split()[0] for row in rows]
    assert names == [*NAMES[:SHOWN], "variant_50", "variant_40"], "the fastest first"
    assert "DIFFERENT" in rows[-2]
    rest = MANY - SHOWN - 2
    assert f"  ... {rest} more, in results.json: {rest} measured" in lines
    assert lines[1].startswith("original: 48 registers")
    assert any(line.startswith("REJECTED variant_50") for line in lines)
    assert any(line.startswith("FAILED variant_40") for line in lines)
    assert len(json.loads(result.to_json())["variants"]) == MANY
    page = (folder / "report.html").read_text()
    assert all(f"<code>{name}</code>" in page for name in NAMES)


def test_the_best_is_shown_wherever_it_is(prepared: Prepared) -> None:
    """The last session may choose one that was not among the first."""
    folder = prepared(**PREDICTIONS)
    device = FakeDevice(dict.fromkeys(NAMES, 1.2))
    result = tune(None, out=folder, devices=[device], choices=Choices(exhaustive=True, jobs=1))
    late = replace(result, best=NAMES[-1])
    assert f"\n{NAMES[-1]} " in late.text()
    assert f"... {MANY - SHOWN - 1} more" in late.text()


def test_few_are_all_shown(prepared: Prepared) -> None:
    few = dict(list(PREDICTIONS.items())[:4])
    result = tune(None, out=prepared(**few), devices=[FakeDevice()], choices=Choices(jobs=1))
    text = result.text()
    assert all(f"\n{name} " in text for name in few)
    assert " more" not in text


def test_reasons_of_many_that_were_not_made_are_counted(prepared: Prepared) -> None:
    folder = prepared(**PREDICTIONS)
    with Store(folder) as store:
        (making,) = {row[0] for row in store.rows("select making from made")}
        for k in range(SHOWN + 7):
            refused = Made(f"refused_{k:02}", "no_free_register", "there is none", "input")
            store.put_made(making, refused, MANY + k)
    result = tune(None, out=folder, prepare_only=True, choices=Choices(jobs=1))
    text = result.text()
    assert text.count(": no_free_register: there is none") == SHOWN
    assert "  7 more: no_free_register" in text
    assert f"... {MANY - SHOWN} more, in results.json: {MANY - SHOWN} prepared" in text
    assert len(text.splitlines()) < 2 * SHOWN + 10
