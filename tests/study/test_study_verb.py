"""`regdem study`: output, the evidence folder, errors, and what is never overwritten."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from studies import DATA, EXAMPLES, exact

from regdem.binary import Cubin
from regdem.cli.main import run
from regdem.cli.schemas import schema
from regdem.study import toolchain
from regdem.study.evidence import listing
from regdem.study.model import Study
from regdem.study.page import study_page
from regdem.study.text import text_study

Capture = pytest.CaptureFixture[str]


def without_predictions(text: str) -> str:
    """The text without figures that change with the predictor."""
    text = re.sub(r"(?m)^(\S+ +\d.*?)[\d.]+$", r"\1N", text)
    text = re.sub(r"(?m)^.*cycles that a warp alone waits.*\n", "", text)
    text = re.sub(r", \d+ % fewer cycles waited", "", text)
    return re.sub(r"predicted [\d.]+ times", "predicted N times", text)


@pytest.mark.tools
@exact
def test_text_of_the_tutorial(window: Study, golden: Callable[[str, str], None]) -> None:
    text = text_study(window).replace(window.source, "window.cu")
    golden("window.txt", without_predictions(re.sub(r"no GPU here; ", "", text)))


@pytest.mark.tools
@exact
def test_text_of_limits(neighbour: Study, golden: Callable[[str, str], None]) -> None:
    text = text_study(neighbour).replace(neighbour.source, "neighbour.cu")
    dropped = ("recommendation", "  predicted", "  the", "note: some")
    kept = [line for line in text.splitlines() if not line.startswith(dropped)]
    text = "\n".join(kept).replace("no GPU here; ", "") + "\n"
    golden("neighbour.txt", without_predictions(text))


@pytest.mark.tools
def test_folder_and_document(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "study"
    command = ["study", "unroll", str(DATA / "series.cu"), "--factors", "1,4", "--threads", "256"]
    command += ["--out", str(out)]
    assert run([*command, "--format", "json"]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema("study"))
    assert value == json.loads((out / "study.json").read_text())
    names = {"unroll-1", "unroll-4"}
    expected = {f"{name}.{kind}" for name in names for kind in ("cubin", "sass", "log")}
    assert {path.name for path in out.iterdir()} == expected | {"study.json", "report.html"}
    for build in value["builds"]:
        kernel = Cubin.parse((out / build["files"]["cubin"]).read_bytes()).kernels[0]
        assert kernel.registers_per_thread == build["registers_per_thread"]
        assert build["ptxas"]["registers"] == build["registers_per_thread"]
        listing = (out / build["files"]["sass"]).read_text()
        assert listing.count("/*") >= build["instructions"]
        assert "LDG" in listing
        assert "Used" in (out / build["files"]["log"]).read_text()
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    assert run([*command, "--format", "json"]) == 0, "an earlier study is replaced"
    assert {path.name: path.read_bytes() for path in out.iterdir()} == first, "byte for byte"


@pytest.mark.tools
def test_json_of_limits_with_refusals(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "study"
    command = ["study", "caps", str(DATA / "dynamic.cu"), "--caps", "255,32", "--threads", "1024"]
    command += ["--launch-bounds", "none", "--out", str(out), "--format", "json"]
    assert run(command) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema("study"))
    assert [entry["name"] for entry in value["refused"]] == ["cap-32-shared"]
    assert (out / "cap-32-shared.log").exists()
    assert not (out / "cap-32-shared.cubin").exists()


@pytest.mark.tools
def test_listing_with_and_without_nvdisasm(window: Study) -> None:
    one = window.build("unroll-40").analysed
    plain = listing(one, {})
    assert "nvdisasm was not found" in plain
    assert plain.count("spill to local") == len(one.code.spills.spills.spill_sites)
    told = listing(one, {0: "LDC R1, c[0x0][0x28]"}).splitlines()
    assert told[1].startswith("/*0000*/  LDC R1, c[0x0][0x28]")
    assert len(told) == one.code.instructions + 1


@pytest.mark.tools
def test_page_is_self_contained(window: Study, neighbour: Study) -> None:
    for study in (window, neighbour):
        page = study_page(study)
        assert "default-src 'none'" in page
        assert not re.search(r'(src|href)="(https?:|//)', page)
        assert page.count("<svg") == page.count("</svg>") >= 4
        assert page.count("<title>") > page.count("<svg"), "every drawing has a title"
        for build in study.builds:
            assert f'id="build-{build.name}"' in page
        ids = re.findall(r' id="([^"]+)"', page)
        assert len(ids) == len(set(ids))


@pytest.mark.tools
def test_page_opens_without_a_word_in_the_console(
    browser: Any, window: Study, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(study_page(window))
    browser.get(path.as_uri())
    assert "take factor" in browser.find_element("css selector", ".take").text
    for figure in browser.find_elements("css selector", "figure svg"):
        assert figure.size["width"] > 300
    before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.find_element("id", "theme").click()
    after = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert before != after, "light and dark"
    browser.find_element("link text", "unroll-40").click()
    assert browser.current_url.endswith("#build-unroll-40")
    wide = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert browser.execute_script(wide), "nothing sticks out"
    assert browser.get_log("browser") == []


@pytest.mark.tools
def test_failed_compile_leaves_nothing(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "study"
    command = ["study", "unroll", str(DATA / "broken.cu"), "--factors", "1,3", "--threads", "32"]
    assert run([*command, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert 'error: identifier "undeclared_t" is undefined' in error
    assert list(tmp_path.iterdir()) == []


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def nothing(name: str) -> None:
        return None

    monkeypatch.setattr(toolchain, "find_tool", nothing)
    source = EXAMPLES / "neighbour" / "neighbour.cu"
    for kind in ("unroll", "caps"):
        command = ["study", kind, str(source), "--threads", "256", "--out", str(tmp_path / "out")]
        assert run(command) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "needs NVIDIA's compiler (pip install 'regdem[tools]', or set CUDA_HOME)" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [{"notes.txt": ""}, {"study.json": "{}", "thesis.tex": ""}])
def test_foreign_folder_is_not_touched(
    tmp_path: Path, content: dict[str, str], capsys: Capture
) -> None:
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    source = str(EXAMPLES / "neighbour" / "neighbour.cu")
    assert run(["study", "caps", source, "--threads", "256", "--out", str(tmp_path)]) == 2
    assert "no earlier study" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == set(content)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["unroll", "missing.cu"], "no such file"),
        (["unroll", "{data}/README.md", "--factors", "1,2"], "starts from a .cu or .ptx file"),
        (["unroll", "{data}/series.cu", "--factors", "1,x"], "whole numbers"),
        (["unroll", "{data}/series.cu", "--define", "1X"], "no identifier"),
        (["caps", "{data}/series.cu", "--caps", "7"], "24 to 255"),
        (["caps", "{data}/series.cu", "--define", "UNROLL"], "NAME=N"),
        (["caps", "{data}/series.cu", "--launch", "missing.toml"], "missing.toml"),
    ],
)
def test_bad_requests(arguments: list[str], message: str, tmp_path: Path, capsys: Capture) -> None:
    words = [argument.replace("{data}", str(DATA)) for argument in arguments]
    command = ["study", *words, "--threads", "256", "--out", str(tmp_path / "out")]
    assert run(command) == 2
    error = capsys.readouterr().err
    assert error.startswith("regdem: error: ")
    assert message in error
    assert list(tmp_path.iterdir()) == []
