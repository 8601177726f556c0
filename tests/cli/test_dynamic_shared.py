"""Dynamic shared memory that no option gave: seen in the code, and warned of on stderr."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from regdem.analysis.dynamic_shared import RESERVED_SMEM_USED, shows_dynamic_shared
from regdem.binary import Cubin, Kernel
from regdem.binary.info import InfoRecord
from regdem.cli.main import run

TESTS = Path(__file__).resolve().parents[1]
SPILLS = TESTS / "transform" / "data" / "spills.cubin"
KERNELS = TESTS / "check" / "data" / "kernels.cubin"
RELOCATABLE = TESTS / "binary" / "data" / "relocatable_sm_90.cubin"
WORDS = "uses dynamic shared memory"


def kernel(path: Path, name: str) -> Kernel:
    return Cubin.parse(path.read_bytes(), str(path)).kernel(name)


@pytest.mark.parametrize("path", [SPILLS, KERNELS, RELOCATABLE], ids=lambda path: path.stem)
def test_those_that_use_it_are_told_from_the_rest(path: Path) -> None:
    """The sources call them so; what has static shared memory is left open."""
    cubin = Cubin.parse(path.read_bytes(), str(path))
    shown = {each.name for each in cubin.kernels if shows_dynamic_shared(each)}
    assert shown == {each.name for each in cubin.kernels if "dynamic" in each.name}
    assert shown


def test_the_drivers_reserve_is_no_dynamic_memory() -> None:
    """Kernels that use it reach shared memory without any of their own."""
    found = kernel(KERNELS, "dynamic_block")
    record = InfoRecord(2, RESERVED_SMEM_USED, b"\x01\x00")
    assert not shows_dynamic_shared(replace(found, info=(*found.info, record)))
    assert not shows_dynamic_shared(replace(found, arch="sm_80")), "its instructions are not known"


COMMANDS = {
    "inspect": "inspect FILE --kernel K --threads 128 --no-predict",
    "diff": "diff FILE FILE --kernel K --threads 128",
    "gate": "gate FILE registers<=255 --kernel K --threads 128",
    "occupancy": "occupancy FILE --kernel K --threads 128",
    "plan": "plan FILE --kernel K --threads 128",
    "predict": "predict FILE --kernel K --threads 128",
    "demote": "demote FILE --kernel K --threads 128 --registers 20 -o OUT",
    "promote": "promote FILE --kernel K --threads 128 -o OUT",
    "optimize": "optimize FILE --kernel K --threads 128 --effort quick --jobs 1 -o OUT",
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_warned_of_where_no_figure_was_given(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"FILE": str(SPILLS), "K": "^dynamic$", "OUT": str(tmp_path / "out.cubin")}
    words = [names.get(word, word) for word in COMMANDS[verb].split()]
    words += ["--format", "json"]
    assert run(words) == 0
    printed = capsys.readouterr()
    assert WORDS in printed.err
    assert "give --dynamic-shared-bytes" in printed.err
    json.loads(printed.out)
    if verb == "optimize":
        return  # the same once more takes long
    for given in ("512", "0"):
        assert run([*words, "--dynamic-shared-bytes", given]) == 0
        assert WORDS not in capsys.readouterr().err


def test_not_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["occupancy", str(SPILLS), "--kernel", "^(plain|twice)$", "--threads", "128"]) == 0
    assert WORDS not in capsys.readouterr().err
    assert run(["inspect", str(SPILLS), "--kernel", "^dynamic$", "--no-predict"]) == 0
    known = "block size unknown" in (printed := capsys.readouterr()).out
    assert (WORDS in printed.err) == (not known), "where nothing is computed, nothing is wrong"


def test_a_sidecar_says_the_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cache" / "ABC"
    folder.mkdir(parents=True)
    shutil.copy(SPILLS, folder / "k.cubin")
    (folder / "k.json").write_text(json.dumps({"num_warps": 4, "shared": 512, "name": "k"}))
    words = ["inspect", str(tmp_path / "cache"), "--kernel", "^dynamic$", "--no-predict"]
    assert run(words) == 0
    assert WORDS not in capsys.readouterr().err


@pytest.mark.tools
def test_a_study_warns_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(TESTS / "study" / "data" / "dynamic.cu")
    words = ["study", "caps", source, "--caps", "255", "--launch-bounds", "none", "--threads"]
    words += ["128", "--no-pragma", "--out", str(tmp_path / "out")]
    assert run(words) == 0
    assert WORDS in capsys.readouterr().err
    assert run([*words, "--dynamic-shared-bytes", "512"]) == 0
    assert WORDS not in capsys.readouterr().err
