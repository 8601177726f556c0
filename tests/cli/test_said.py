"""What is left out, taken for granted or refused is said, and why."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from regdem.cli.main import run

TESTS = Path(__file__).resolve().parents[1]
SPILLS = TESTS / "transform" / "data" / "spills.cubin"


@pytest.mark.parametrize("budget", ["0.001", "60"])
def test_optimize_says_for_which_reason_variants_were_not_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], budget: str
) -> None:
    what = ["optimize", str(SPILLS), "--kernel", "^twice$", "--threads", "128", "--jobs", "1"]
    what += ["--budget-s", budget, "-o", str(tmp_path / "out.cubin"), "--force"]
    assert run([*what, "--format", "json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    skipped = [v["reason"] for v in kernel["variants"] if v["status"] == "skipped"]
    assert run(what) == 0
    text = capsys.readouterr().out
    said = re.findall(r"^  (\d+) more: not tried, (beyond .*)$", text, re.MULTILINE)
    limits = Counter(reason for reason in skipped if reason.startswith("beyond"))
    assert {reason: int(count) for count, reason in said} == limits
    assert (f"beyond the budget of {budget} s of CPU time" in limits) == (budget == "0.001")
    rest = re.findall(r"^  (\d+) more: (?:could not win|not tried, as )", text, re.MULTILINE)
    assert sum(map(int, rest)) == len(skipped) - limits.total()
