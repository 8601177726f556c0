"""Profiles: read from what ncu exports, and used to correct the model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from regdem.binary.cubin import Cubin
from regdem.cli.predict import command
from regdem.errors import UsageError
from regdem.machine import occupancy
from regdem.machine.timing import timing
from regdem.predict.model import learn, predict, speedup
from regdem.predict.profile import Corrections, Profile, corrections, read_profile
from regdem.predict.summary import Traffic, summarise

DATA = Path(__file__).parent / "data" / "patterns.cubin"
DETAILS = """==PROF== Connected to process 7
some output of the application, with, commas
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","other(int)","GPU Speed Of Light Throughput","DRAM Throughput","%","1.00"
"1","7","structures","GPU Speed Of Light Throughput","DRAM Throughput","%","31.50"
"1","7","structures","GPU Speed Of Light Throughput","L2 Cache Throughput","%","40.25"
"1","7","structures","GPU Speed Of Light Throughput","L1/TEX Cache Throughput","%","22.10"
"1","7","structures","Scheduler Statistics","Issue Slots Busy","%","17.00"
"1","7","structures","Warp State Statistics","Stall Long Scoreboard","inst","1,031.5"
"""
RAW = (
    '"ID","Kernel Name","lts__throughput.avg.pct_of_peak_sustained_elapsed",'
    '"smsp__issue_active.avg.per_cycle_active",'
    '"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"\n'
    '"","","%","inst/cycle",""\n'
    '"0","structures(const float4 *, float4 *)","61.5","0.25","9.5"\n'
)


def test_details_page() -> None:
    profile = read_profile(DETAILS, "structures")
    assert (profile.issue_pct, profile.l1_pct) == (17.0, 22.1)
    assert (profile.l2_pct, profile.dram_pct) == (40.25, 31.5)
    assert profile.stalls == {"long_scoreboard": 1031.5}


def test_raw_page() -> None:
    profile = read_profile(RAW, "structures")
    assert (profile.l2_pct, profile.issue_pct) == (61.5, 25.0)
    assert profile.stalls == {"long_scoreboard": 9.5}


def test_json_of_any_shape(tmp_path: Path) -> None:
    issue, dram = (
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    )
    shapes = [
        {issue: 40.0, dram: "60 %"},
        {"kernels": [{"name": "k", "metrics": {issue: {"value": 40, "unit": "%"}, dram: 60}}]},
        [{"metric": issue, "value": 40}, {"Metric Name": dram, "Metric Value": "60"}],
        {"issue_pct": 40, "dram_pct": 60},
    ]
    for shape in shapes:
        profile = read_profile(json.dumps(shape))
        assert (profile.issue_pct, profile.dram_pct) == (40.0, 60.0)
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(shapes[0]))
    assert read_profile(str(file)).dram_pct == 60.0
    known = Profile(issue_pct=40.0, stalls={"long_scoreboard": 2.0})
    assert read_profile(json.dumps(known.to_dict())) == known


def test_issue_from_stall_reasons() -> None:
    profile = Profile(active_warps=16.0, stalls={"long_scoreboard": 6.0, "selected": 2.0})
    assert profile.issue == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no such file.json", "can't be read"),
        ("{broken", "no JSON"),
        ("a,b\n1,2\n", "no column 'Kernel Name'"),
        ('{"gpu__time_duration.sum": 5}', "none of the metrics"),
        ('{"issue_pct": 140}', "not between 0 and 100"),
        ('{"bound": "luck"}', "none of latency-bound"),
        ("[]", "none of the metrics"),
    ],
)
def test_what_is_no_profile_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_profile(text)


def test_a_profile_is_met() -> None:
    kernel = Cubin.parse(DATA.read_bytes(), DATA.name).kernel("gathered")
    half, full = occupancy("sm_90", 256, 64), occupancy("sm_90", 256, 32)
    profile = Profile(issue_pct=30.0, l1_pct=35.0, l2_pct=40.0, dram_pct=20.0)
    answer = predict(kernel, half, profile=profile)
    assert answer.is_profiled
    use = answer.utilisation
    assert use["l2"] / use["issue"] == pytest.approx(4 / 3, rel=0.02)
    assert use["dram"] / use["issue"] == pytest.approx(2 / 3, rel=0.02)
    busier = Profile(issue_pct=80.0, l1_pct=35.0, l2_pct=40.0, dram_pct=20.0)
    gains = [
        speedup(
            predict(kernel, half, correct=learn(kernel, half, each)),
            predict(kernel, full, correct=learn(kernel, half, each)),
        )[0]
        for each in (profile, busier)
    ]
    assert gains[0] > gains[1]


def test_a_profile_counts_less_where_the_code_spills() -> None:
    kernel = Cubin.parse(DATA.read_bytes(), DATA.name).kernel("gathered")
    half, full = occupancy("sm_90", 256, 64), occupancy("sm_90", 256, 32)
    profile = Profile(issue_pct=80.0, l1_pct=35.0, l2_pct=40.0, dram_pct=20.0)
    summary, machine = summarise(kernel), timing("sm_90")
    spilled = replace(summary, traffic={**summary.traffic, "local_load": Traffic(1.0, 1.0, 128.0)})
    assert corrections(spilled, half, profile, machine).share < 0.5
    known = corrections(summary, half, profile, machine)
    assert 0.5 < known.share < 1.0
    assert corrections(spilled, half, Profile(bound="latency-bound"), machine).share == 1.0

    def gain(correct: Corrections | None) -> float:
        before, after = (predict(kernel, o, correct=correct) for o in (half, full))
        return speedup(before, after)[0]

    whole, plain = gain(replace(known, share=1.0)), gain(None)
    assert min(whole, plain) < gain(known) < max(whole, plain)
    corrected = predict(kernel, half, correct=known)
    assert corrected.predicted_cycles == pytest.approx(
        predict(kernel, half, correct=replace(known, share=1.0)).predicted_cycles
    )


def test_words_order_the_gain_of_more_warps() -> None:
    kernel = Cubin.parse(DATA.read_bytes(), DATA.name).kernel("gathered")
    half, full = occupancy("sm_90", 256, 64), occupancy("sm_90", 256, 32)
    gains: dict[str, float] = {}
    for word in ("latency-bound", "memory-bound", "issue-bound"):
        correct = learn(kernel, half, read_profile(word))
        before, after = (predict(kernel, o, correct=correct) for o in (half, full))
        gains[word] = speedup(before, after)[0]
    assert gains["latency-bound"] > gains["memory-bound"]
    assert gains["latency-bound"] > gains["issue-bound"]


def test_command_line() -> None:
    arguments = [str(DATA), "--kernel", "^gathered$", "--threads", "256", "--format", "json"]
    result = CliRunner().invoke(
        command, [*arguments, "--profile", "latency-bound"], standalone_mode=False
    )
    assert result.exception is None
    ranking = json.loads(result.stdout)["ranking"]
    assert ranking[0]["predicted_speedup"] == 1.0
    assert ranking[0]["utilisation_pct"]["l2"] <= 45.1
    plain = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert json.loads(plain.stdout)["ranking"][0]["utilisation_pct"]["l2"] > 50
