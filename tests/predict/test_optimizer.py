"""The optimiser: makes, proves and predicts; writes the best or says why not."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

import regdem
from regdem.binary.cubin import Cubin
from regdem.check import check_pair
from regdem.cli.optimize import command as optimize_command
from regdem.cli.predict import command as predict_command
from regdem.cli.promote import command as promote_command
from regdem.cli.schemas import schema
from regdem.errors import UsageError
from regdem.machine import block_shape
from regdem.optimizer import KernelChoice, Options, optimize_cubin
from regdem.rewrite import Request
from regdem.variants import variant_specs

DATA = Path(__file__).parent.parent / "transform" / "data" / "spills.cubin"
REQUEST = Request(threads=block_shape(256))


@pytest.fixture(scope="module")
def cubin() -> Cubin:
    return Cubin.parse(DATA.read_bytes(), "spills.cubin")


def choice(cubin: Cubin, name: str) -> tuple[Cubin, KernelChoice]:
    new, choices = optimize_cubin(cubin, [cubin.kernel(name)], [REQUEST])
    return new, choices[0]


def test_spills_are_promoted_and_proved(cubin: Cubin) -> None:
    new, done = choice(cubin, "single")
    assert done.chosen is not None
    assert done.chosen.spec.name.startswith("recover_32")  # into registers, which are there
    verdict = check_pair(cubin.kernel("single"), new.kernel("single"), threads=256)
    assert not verdict.findings
    typical, least, most = done.gain(done.chosen)
    assert least <= typical <= most
    assert typical > 1.02


def test_nothing_to_gain_leaves_the_input(cubin: Cubin) -> None:
    new, done = choice(cubin, "plain")
    assert done.chosen is None
    assert "no spills to promote" in done.reason
    assert new.to_bytes() == cubin.to_bytes()
    body = done.to_dict()
    assert body["chosen"] == "input"
    assert body["before"] == body["after"]


def test_variants_are_at_cliffs_above_the_present_residency(cubin: Cubin) -> None:
    kernel = cubin.kernel("single")
    names = [spec.name for spec in variant_specs(kernel, REQUEST) if not spec.after]
    assert names == ["promote", "recover_32", "recover_40", "renumber"]
    ordered = variant_specs(kernel, replace(REQUEST, reschedule=True))
    orders = ["schedule", "schedule_40", "schedule_48", "schedule_64", "schedule_80"]
    assert [spec.name for spec in ordered if not spec.after] == [*names, *orders]
    few = Request(threads=block_shape(256), dynamic_shared_bytes=0)
    assert variant_specs(cubin.kernel("plain"), few, effort="quick") == []
    full = variant_specs(replace(kernel, registers_per_thread=255), REQUEST)
    assert [(s.name, s.local_slots > 0) for s in full if "demote_128" in s.name] == [
        ("demote_128", False), ("demote_128_stored", False), ("demote_128_local", True)
    ]  # fmt: skip


def test_command_line(tmp_path: Path) -> None:
    out, folder = tmp_path / "out.cubin", tmp_path / "all"
    arguments = [str(DATA), "-o", str(out), "--threads", "256", "--kernel", "^single$"]
    arguments += ["--jobs", "1", "--format", "json", "--all-variants", str(folder)]
    result = CliRunner().invoke(optimize_command, arguments, standalone_mode=False)
    assert result.exception is None
    jsonschema.validate(json.loads(result.stdout), schema("optimize"))
    body = json.loads(result.stdout)["kernels"][0]
    assert body["chosen"].startswith("recover_32")
    assert body["after"]["predicted_cycles"] < body["before"]["predicted_cycles"]
    assert body["checks"] == {"dataflow": "proved", "layout": "clean", "hazards": "clean"}
    status = {entry["name"]: entry["status"] for entry in body["variants"]}
    assert status["promote"] == status["recover_32"] == "proved"
    assert (folder / "single.promote.cubin").exists()
    assert out.read_bytes() == (folder / f"single.{body['chosen']}.cubin").read_bytes()


def test_a_budget_ends_the_making_of_rewrites(
    cubin: Cubin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regdem.optimizer.ROUND", 1)
    options = Options(budget_s=1e-6)
    _, choices = optimize_cubin(cubin, [cubin.kernel("single")], [REQUEST], options)
    done = choices[0]
    assert [o.status for o in done.outcomes if o.status != "skipped"] != []
    left = [o for o in done.outcomes if o.status == "skipped"]
    assert len(left) >= 2
    assert all("CPU time" in o.reason or "was not made" in o.reason for o in left)
    assert Options(budget_s=0.0).budget == math.inf


def test_rank_of_files(tmp_path: Path) -> None:
    out = tmp_path / "promoted.cubin"
    arguments = [str(DATA), "-o", str(out), "--threads", "256", "--kernel", "^single$"]
    arguments += ["--format", "json"]
    result = CliRunner().invoke(promote_command, arguments, standalone_mode=False)
    assert result.exception is None
    jsonschema.validate(json.loads(result.stdout), schema("promote"))
    for model in ("throughput", "paper"):
        arguments = [str(DATA), str(out), "--threads", "256", "--kernel", "^single$"]
        arguments += ["--model", model, "--format", "json"]
        result = CliRunner().invoke(predict_command, arguments, standalone_mode=False)
        assert result.exception is None
        jsonschema.validate(json.loads(result.stdout), schema("predict"))
        ranking = json.loads(result.stdout)["ranking"]
        assert [entry["file"] for entry in ranking] == [str(out), str(DATA)]


def test_kernels_of_other_names_are_ranked_apart() -> None:
    """Text: a rank for each of two builds of a kernel; JSON: the order of all, and both ranks."""
    names = ("plain", "array", "single")
    options = [str(DATA), str(DATA), "--threads", "256", "--kernel", f"^({'|'.join(names)})$"]
    result = CliRunner().invoke(predict_command, options, standalone_mode=False)
    assert result.exception is None
    groups = [group.splitlines() for group in result.stdout.partition("\n")[2].split("\n\n")]
    assert sorted(group[0].split()[-2] for group in groups) == sorted(names)
    for group in groups:
        assert [line.split()[0] for line in group] == ["1", "2"]
        assert len({line.split()[-2] for line in group}) == 1
    result = CliRunner().invoke(
        predict_command, [*options, "--format", "json"], standalone_mode=False
    )
    value = json.loads(result.stdout)
    jsonschema.validate(value, schema("predict"))
    ranking = value["ranking"]
    assert [entry["rank"] for entry in ranking] == list(range(1, 7))
    cycles = [entry["predicted_cycles"] for entry in ranking]
    assert cycles == sorted(cycles)
    for name in names:
        assert [e["kernel_rank"] for e in ranking if e["name"] == name] == [1, 2]


def test_python_interface(tmp_path: Path) -> None:
    module = regdem.load(DATA)
    kernel = module.kernel("single")
    done = regdem.promote(kernel, threads=256)
    assert not regdem.check(kernel, done.kernel, threads=256).findings
    assert not regdem.check(kernel).findings
    assert "promoted" in done.to_dict()
    assert done._repr_html_().startswith("<table>")  # pyright: ignore[reportPrivateUsage]
    (tmp_path / "out.cubin").write_bytes(done.to_bytes())
    again = pickle.loads(pickle.dumps(kernel))
    assert again == kernel
    assert again.source is None
    with pytest.raises(UsageError):
        regdem.promote(again, threads=256)
    best = regdem.optimize(Cubin.parse(DATA.read_bytes(), "x").to_bytes(), threads=256)
    assert {each.name for each in best.kernels} == {k.name for k in module.kernels}
