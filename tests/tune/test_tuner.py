"""The loop: order, stopping, resumption, rejection and choice, with a device that pretends."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from regdem.bases import source_of
from regdem.binary import Cubin
from regdem.check import check_pair
from regdem.cli.schemas import schema
from regdem.errors import InputError, RegdemError, UsageError
from regdem.tune.results import Measurement
from regdem.tune.store import STORE_NAME, Store
from regdem.tune.tuner import Building, Choices, TuneResult, tune

from .conftest import NEIGHBOUR, FakeDevice, Prepared

ONE_JOB = Choices(jobs=1)
PREDICTIONS = {
    "hopeful": (1.3, 1.2, 1.4),
    "good": (1.2, 1.1, 1.3),
    "fair": (1.1, 1.0, 1.2),
    "poor": (0.8, 0.7, 0.9),
}


def run(folder: Path, device: FakeDevice, choices: Choices = ONE_JOB) -> TuneResult:
    return tune(None, out=folder, devices=[device], choices=choices)


def test_from_a_file_to_the_best_with_evidence(tmp_path: Path, neighbour_launch: str) -> None:
    # demotion to the next cliff, 40 registers, is what this example is for
    device = FakeDevice({"demote_40": 1.2, "demote_40_stored": 1.2, "demote_32": 1.05})
    said: list[str] = []
    folder = tmp_path / "evidence"
    with ThreadPoolExecutor(2) as executor:
        result = tune(
            NEIGHBOUR, neighbour_launch, out=folder, devices=[device], executor=executor,
            choices=Choices(exhaustive=True), progress=said.append,
        )  # fmt: skip
    assert result.best == "demote_40"
    assert "demote_40" in device.compared[0]
    assert len(device.compared) == 1
    assert device.closed >= 1
    written = json.loads((folder / "results.json").read_text())
    jsonschema.validate(written, schema("tune"))
    assert written["best"] == "demote_40"
    assert written["gpu"]["name"] == "Fake GPU"
    by_name = {row["name"]: row for row in written["variants"]}
    assert by_name["demote_40"]["measured"]["speedup"] == pytest.approx(1.2006, abs=1e-3)
    assert by_name["demote_40"]["proof"] == "proved"
    page = (folder / "report.html").read_text()
    assert "demote_40" in page
    assert "http" not in page.replace("http-equiv", "").lower()
    assert any("predicted" in line for line in said)
    # what is written as the best is the variant that was measured, and it is proved
    best = Cubin.parse((folder / "best.cubin").read_bytes())
    original = Cubin.parse(NEIGHBOUR.read_bytes())
    name = original.kernels[0].name
    assert best.kernel(name).registers_per_thread == 40
    verdict = check_pair(original.kernel(name), best.kernel(name), "sm_90", threads=256)
    assert not verdict.findings
    variants = {path.name for path in (folder / "variants").iterdir()}
    assert variants == {f"{row.made.name}.cubin" for row in result.rows if row.made.is_usable}
    text = result.text()
    assert "best: demote_40" in text
    assert "identical" in text


def test_measures_in_the_order_of_prediction_and_stops(prepared: Prepared) -> None:
    device = FakeDevice({"hopeful": 1.25, "good": 1.2, "fair": 1.1})
    result = run(prepared(**PREDICTIONS), device)
    assert device.measured == ["hopeful", "good", "fair"]
    assert result.best == "hopeful"
    (poor,) = [row for row in result.rows if row.made.name == "poor"]
    assert poor.status == "excluded"
    assert "predicted at most 0.90" in poor.reason
    jsonschema.validate(result.to_dict(), schema("tune"))


def test_exhaustive_goes_on(prepared: Prepared) -> None:
    device = FakeDevice({"poor": 1.5, "hopeful": 1.3})
    result = run(prepared(**PREDICTIONS), device, Choices(exhaustive=True, jobs=1))
    assert sorted(device.measured) == sorted(PREDICTIONS)
    assert result.best == "poor"


def test_equal_bytes_are_measured_once(prepared: Prepared) -> None:
    folder = prepared(**PREDICTIONS)
    with Store(folder) as store:
        (making,) = {row[0] for row in store.rows("select making from made")}
        good = store.made(making)["good"]
        store.put_made(making, replace(good, name="twin"), 9)
    device = FakeDevice({"good": 1.2, "twin": 1.2})
    result = run(folder, device)
    assert len({"good", "twin"} & set(device.measured)) == 1
    twins = [row for row in result.rows if row.made.name in ("good", "twin")]
    assert twins[0].measurement == twins[1].measurement
    assert len(device.compared[0]) == 1


def test_a_second_run_measures_nothing_again(prepared: Prepared) -> None:
    folder = prepared(**PREDICTIONS)
    first = FakeDevice({"hopeful": 1.25})
    before = run(folder, first).to_json()
    second = FakeDevice({"hopeful": 9.0})
    assert run(folder, second).to_json() == before
    assert second.measured == []
    assert second.compared == []
    other_gpu = FakeDevice({"hopeful": 1.25}, name="Another GPU")
    run(folder, other_gpu)
    assert other_gpu.measured == first.measured
    more_rounds = FakeDevice({"hopeful": 1.25})
    run(folder, more_rounds, Choices(rounds=30, jobs=1))
    assert more_rounds.measured == first.measured


def test_an_interrupted_run_loses_the_variant_it_was_at(prepared: Prepared) -> None:
    folder = prepared(**PREDICTIONS)
    first = FakeDevice({"hopeful": 1.25}, interrupt_at="fair")
    with pytest.raises(KeyboardInterrupt):
        run(folder, first)
    assert first.measured == ["hopeful", "good"]
    assert first.closed >= 1
    second = FakeDevice({"hopeful": 9.0})
    result = run(folder, second)
    assert second.measured == ["fair"]
    assert result.best == "hopeful"
    assert result.finals[0].comparison.speedup == 9.0 * 1.0005, "the final session was not run yet"


def test_an_interrupted_making_goes_on(tmp_path: Path, neighbour_launch: str) -> None:
    folder, made = tmp_path / "x", list[str]()

    def stop_after_two(line: str) -> None:
        if line.startswith(("made ", "not made ")):
            made.append(line)
        if len(made) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(NEIGHBOUR, neighbour_launch, out=folder, prepare_only=True, choices=ONE_JOB,
             progress=stop_after_two)  # fmt: skip
    with Store(folder) as store:
        (making,) = {row[0] for row in store.rows("select making from made")}
        assert len(store.made(making)) == 2
        assert not store.is_complete(making)
    result = tune(None, out=folder, prepare_only=True, choices=ONE_JOB)
    whole = tune(
        NEIGHBOUR, neighbour_launch, out=tmp_path / "y", prepare_only=True, choices=ONE_JOB
    )
    assert [row.to_dict() for row in result.rows] == [row.to_dict() for row in whole.rows]
    with Store(folder) as store:
        assert store.is_complete(making)


def test_different_outputs_reject_a_variant(prepared: Prepared) -> None:
    folder = prepared(**PREDICTIONS)
    device = FakeDevice({"hopeful": 2.0, "good": 1.2}, wrong=frozenset({"hopeful"}))
    result = run(folder, device)
    assert [row.made.name for row in result.rejected] == ["hopeful"]
    assert result.best == "good"
    assert "REJECTED hopeful" in result.text()
    assert "DIFFERENT" in result.text()
    evidence = json.loads((folder / "rejected" / "hopeful.json").read_text())
    assert evidence["difference"]["argument"] == "args[5]"
    assert (folder / evidence["cubin"]).exists()
    assert 'role="alert"' in (folder / "report.html").read_text()
    jsonschema.validate(result.to_dict(), schema("tune"))


def test_a_variant_that_faults_is_no_end(prepared: Prepared) -> None:
    folder = prepared(**PREDICTIONS)
    device = FakeDevice({"good": 1.2}, faulty=frozenset({"hopeful"}))
    result = run(folder, device)
    assert result.best == "good"
    assert [row.made.name for row in result.failed] == ["hopeful"]
    assert "FAILED hopeful: run: CUDA_ERROR_ILLEGAL_ADDRESS" in result.text()
    patient = FakeDevice({"good": 1.2})
    run(folder, patient, Choices(limit_s=500, jobs=1))
    assert patient.measured == ["hopeful"], "more time is another chance for what failed"


def test_nothing_faster_keeps_the_input(prepared: Prepared) -> None:
    folder = prepared(**PREDICTIONS)
    result = run(folder, FakeDevice({"hopeful": 1.0005}))
    assert result.best is None
    assert "no variant is faster beyond the noise" in result.reason
    assert result.to_bytes() == NEIGHBOUR.read_bytes()
    assert (folder / "best.cubin").read_bytes() == NEIGHBOUR.read_bytes()


def test_the_last_session_decides(prepared: Prepared) -> None:
    lucky = FakeDevice({"hopeful": 1.4, "good": 1.2}, finals={"hopeful": 0.99, "good": 1.19})
    result = run(prepared(**PREDICTIONS), lucky)
    assert result.best == "good"
    nothing = FakeDevice({"hopeful": 1.4}, finals={"hopeful": 1.0}, name="other")
    result = run(prepared(**PREDICTIONS), nothing)
    assert result.best is None
    assert "timed once more" in result.reason


def test_two_gpus_share_the_work(prepared: Prepared) -> None:
    predictions = {f"v{k}": (1.1, 1.0, 1.5) for k in range(8)}
    meeting = threading.Barrier(2, timeout=10)

    class Slow(FakeDevice):
        def measure(self, name: str, cubin: bytes) -> Measurement:
            if len(self.measured) < 3:
                meeting.wait()  # both are at work at the same time
            return super().measure(name, cubin)

    devices = [Slow(label="gpu 0"), Slow(label="gpu 1")]
    result = tune(None, out=prepared(**predictions), devices=devices, choices=ONE_JOB)
    assert sorted(devices[0].measured + devices[1].measured) == sorted(predictions)
    assert all(row.status == "measured" for row in result.rows)
    unlike = [FakeDevice(), FakeDevice(label="gpu 1", name="Other")]
    with pytest.raises(UsageError, match="the GPUs differ"):
        tune(None, out=prepared(**predictions), devices=unlike, choices=ONE_JOB)


def test_failures_of_the_device_end_the_tuning(prepared: Prepared) -> None:
    class Dying(FakeDevice):
        def measure(self, name: str, cubin: bytes) -> Measurement:
            if self.measured:
                raise RegdemError("does not come back", code="gpu_lost")
            return super().measure(name, cubin)

    folder = prepared(**PREDICTIONS)
    with pytest.raises(RegdemError, match="does not come back"):
        run(folder, Dying())
    after = FakeDevice()
    run(folder, after)
    assert "hopeful" not in after.measured, "what was measured before is kept"


def test_no_gpu_leaves_nothing_behind(tmp_path: Path, neighbour_launch: str) -> None:
    folder = tmp_path / "x"
    with pytest.raises(RegdemError) as caught:
        tune(NEIGHBOUR, neighbour_launch, out=folder, devices=[FakeDevice(present=False)])
    assert caught.value.code == "no_gpu"
    assert not folder.exists()


def test_a_job_that_dies_is_a_missing_variant(tmp_path: Path, neighbour_launch: str) -> None:
    class Fragile(ThreadPoolExecutor):
        count = 0

        def submit(self, fn, /, *args, **kwargs):  # pyright: ignore
            self.count += 1
            if self.count == 3:
                raise RuntimeError("the worker is gone")
            return super().submit(fn, *args, **kwargs)  # pyright: ignore

    with Fragile(1) as executor:
        result = tune(NEIGHBOUR, neighbour_launch, out=tmp_path / "x", executor=executor,
                      prepare_only=True)  # fmt: skip
    lost = [row for row in result.rows if row.status == "internal_error"]
    assert len(lost) == 1
    assert "the worker is gone" in lost[0].reason
    assert sum(row.status == "prepared" for row in result.rows) >= 2


def test_damaged_folders(prepared: Prepared, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing was prepared"):
        run(tmp_path / "empty", FakeDevice())
    folder = prepared(**PREDICTIONS)
    with Store(folder), pytest.raises(UsageError, match="another regdem tune"):
        run(folder, FakeDevice())
    (folder / STORE_NAME).write_bytes(b"no database" * 100)
    with pytest.raises(InputError, match="can't be used"):
        run(folder, FakeDevice())
    (folder / "tuning.json").write_text("{}")
    with pytest.raises(InputError, match="is damaged"):
        run(folder, FakeDevice())


def test_a_lost_variant_file_is_noticed(prepared: Prepared) -> None:
    folder = prepared(**PREDICTIONS)
    (folder / "variants" / "good.cubin").write_bytes(b"something else")
    device = FakeDevice()
    result = run(folder, device)
    assert "good" not in device.measured
    assert "good" not in {row.made.name for row in result.rows}, "made anew from the input"
    assert device.measured


@pytest.mark.tools
def test_a_source_is_prepared_here_and_measured_elsewhere(tmp_path: Path) -> None:
    examples, folder = NEIGHBOUR.parents[1], tmp_path / "x"
    source = tmp_path / "variance.cu"
    source.write_text((examples / "unroll" / "variance.cu").read_text())
    choices = Choices(effort="quick", jobs=2, exhaustive=True)
    prepared = tune(
        source, str(examples / "unroll" / "variance.launch.json"), out=folder,
        choices=choices, prepare_only=True,
    )  # fmt: skip
    builds = [row for row in prepared.rows if row.made.status == "built"]
    rewrites = [row for row in prepared.rows if row.made.status == "proved"]
    assert builds
    assert rewrites
    source.unlink()
    moved = folder.rename(tmp_path / "elsewhere")
    device = FakeDevice({builds[0].made.name: 1.4})
    result = tune(None, out=moved, choices=choices, devices=[device])
    assert len(device.measured) == len(builds) + len(rewrites)
    assert result.tuning.original.name == "default"
    assert result.best == builds[0].made.name
    assert result.to_bytes() == builds[0].made.cubin
    jsonschema.validate(result.to_dict(), schema("tune"))
    with Store(moved) as store:
        store.path_of(builds[0].made.name).unlink()
    with pytest.raises(UsageError, match="give the source again"):
        tune(None, out=moved, choices=choices, devices=[FakeDevice()])


@pytest.mark.tools
def test_a_cubin_with_its_ptx_has_base_builds_too(tmp_path: Path) -> None:
    examples = NEIGHBOUR.parents[1] / "unroll"
    ptx = tmp_path / "variance.ptx"
    ptx.write_text(source_of(examples / "variance.cu").ptx)
    result = tune(
        examples / "variance_unrolled.cubin", str(examples / "variance.launch.json"),
        out=tmp_path / "x", choices=Choices(effort="quick"), prepare_only=True,
        building=Building(ptx=str(ptx)),
    )  # fmt: skip
    names = {row.made.name: row.made.status for row in result.rows}
    assert names["default"] == "built"
    assert result.tuning.original.name == "input"


@pytest.mark.tools
def test_other_front_ends_are_compared_and_the_fastest_build_is_rewritten(tmp_path: Path) -> None:
    examples = NEIGHBOUR.parents[1] / "unroll"
    faster = dict.fromkeys(("cap_32", "cap_40", "noremat"), 1.2)
    device = FakeDevice({"ilp": 1.5, **faster}, wrong=frozenset({"unroll4"}))
    result = tune(
        examples / "variance.cu", str(examples / "variance.launch.json"), out=tmp_path / "x",
        choices=Choices(jobs=2, exhaustive=True), devices=[device],
    )  # fmt: skip
    status = {row.made.name: row.status for row in result.rows}
    assert status["unroll4"] == "unlike"
    assert not result.rejected
    assert result.best == "ilp"
    assert status["ilp+demote_32"] == "measured"
    assert status["noremat_ilp+demote_32"] == "skipped"
    jsonschema.validate(result.to_dict(), schema("tune"))
    without = tune(
        examples / "variance.cu", str(examples / "variance.launch.json"), out=tmp_path / "y",
        choices=Choices(jobs=2, front_ends=False), prepare_only=True,
    )  # fmt: skip
    assert not [row for row in without.rows if row.made.may_differ]


def test_a_folder_with_other_things_in_it_is_refused(
    tmp_path: Path, neighbour_launch: str, prepared: Prepared
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="no earlier tuning"):
        tune(NEIGHBOUR, neighbour_launch, out=folder, devices=[FakeDevice()], choices=ONE_JOB)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    other = prepared(**PREDICTIONS)
    text = json.loads((other / "tuning.json").read_text())
    (other / "tuning.json").write_text(json.dumps(text | {"kernel": "another"}))
    with pytest.raises(UsageError, match="another kernel, another"):
        tune(NEIGHBOUR, neighbour_launch, out=other, devices=[FakeDevice()], choices=ONE_JOB)
