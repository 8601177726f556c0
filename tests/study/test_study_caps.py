"""Register caps, launch bounds and NVIDIA's pragma, from one PTX text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from studies import DATA, EXAMPLES, exact, options

from regdem.errors import InputError, UsageError
from regdem.study.caps import Bounds, parse_bounds, parse_caps
from regdem.study.model import Build, Study
from regdem.study.run import study_caps
from regdem.study.toolchain import find_toolchain
from regdem.study.verdict import recommend

pytestmark = pytest.mark.tools


def registers(study: Study) -> dict[str, int]:
    return {b.name: b.analysed.kernel.registers_per_thread for b in study.builds}


def mechanism(build: Build, name: str) -> str:
    return next(m.message for m in build.verdict.mechanisms if m.name == name)


@exact
def test_every_cliff_and_the_bounds_there(neighbour: Study) -> None:
    found = registers(neighbour)
    assert found["default"] == 48
    assert found["cap-255"] > 48, "a cap switches off ptxas's habit of stopping at cliffs"
    assert (found["cap-48"], found["cap-40"], found["cap-32"]) == (48, 40, 32)
    assert (found["bounds-256x6"], found["bounds-256x8"]) == (40, 32)
    assert neighbour.build("bounds-256x6").same_as == "cap-40"
    assert neighbour.build("bounds-256").same_as == "default"


@exact
def test_verdicts_of_caps(neighbour: Study) -> None:
    build = neighbour.build("cap-32")
    assert "past the cliffs at 32 and 40: 3 resident blocks gained" in mechanism(build, "residency")
    assert "inside loops" in mechanism(build, "local_spills")
    assert build.verdict.status == "other_operations"
    assert neighbour.build("cap-255").verdict.of("hurt")[-1].name == "residency"


def test_the_pragma_where_a_cap_spilled(neighbour: Study) -> None:
    plain, shared = neighbour.build("cap-40").analysed, neighbour.build("cap-40-shared").analysed
    assert plain.spill_bytes > 0
    assert plain.shared_spill_bytes == 0
    assert shared.spill_bytes == 0
    assert shared.shared_spill_bytes > 0
    assert "spilled to shared memory" in mechanism(
        neighbour.build("cap-40-shared"), "shared_spills"
    )
    assert "default-shared" not in registers(neighbour), "what doesn't spill has no use for it"


def test_what_another_build_spares_is_true(neighbour: Study) -> None:
    """Builds with the code of a spilling one spill, too; and the first build may have some."""
    spilling = neighbour.build("cap-32")
    assert any(b.verdict.mechanisms == () for b in neighbour.builds if b.same_as == "cap-32")
    costs = {"cap-32": 1.0, "cap-40": 1.5, "cap-40-shared": 2.0}
    builds = [
        replace(
            build,
            prediction=replace(
                build.prediction, predicted_cycles=costs.get(build.same_as or build.name, 3.0)
            ),
        )
        for build in neighbour.builds
    ]
    found = recommend(builds, unrolled=False)
    assert found.build == spilling.name
    assert "spills inside loops" in found.reason
    assert (
        "losing no blocks and moving no more bytes of local spills than default, cap-40-shared is "
        "predicted 1.50 times as fast" in found.reason
    )
    assert neighbour.build("bounds-256x6").same_as == "cap-40", "which is faster, and spills"


def test_ptxas_agrees_on_spills(neighbour: Study) -> None:
    for build in neighbour.builds:
        resources, spills = build.analysed.resources, build.analysed.code.spills
        assert resources is not None
        assert resources.registers == build.analysed.kernel.registers_per_thread
        if not build.analysed.shared_spill_bytes:
            assert resources.spill_store_bytes == spills.store_bytes
            assert resources.spill_load_bytes == spills.load_bytes


def test_same_operations_are_told() -> None:
    """A cap that only changes registers and order."""
    asked = options(EXAMPLES / "unroll" / "variance.cu", 256)
    study = study_caps(asked, (32,), (), factor=("FACTOR", 1))
    build = study.build("cap-32")
    assert build.verdict.status == "same_operations"
    assert build.analysed.spill_bytes == 0


def test_what_the_compiler_refuses_is_a_result() -> None:
    study = study_caps(options(DATA / "dynamic.cu", 256), (32,), ())
    (refused,) = study.refused
    assert refused.spec.name == "cap-32-shared"
    assert "not allowed for dynamic" in refused.verdict.statement


def test_a_block_that_does_not_fit_is_told() -> None:
    study = study_caps(options(DATA / "dynamic.cu", 1024), (255, 32), (), pragma=False)
    build = study.build("cap-255")
    assert build.analysed.active_blocks == 0
    assert [m.short for m in build.verdict.mechanisms] == ["can't be launched"]
    assert study.recommendation.build != "cap-255"


def test_ptx_gives_the_same_code(tmp_path: Path, neighbour: Study) -> None:
    source = EXAMPLES / "neighbour" / "neighbour.cu"
    text = find_toolchain(source, "sm_90", ()).ptx(source)
    path = tmp_path / "neighbour.ptx"
    path.write_text(text)
    study = study_caps(options(path, 256), (40,), ((Bounds(256, 6)),), pragma=False)
    for name in ("default", "cap-40", "bounds-256x6"):
        assert study.build(name).analysed.kernel.code == neighbour.build(name).analysed.kernel.code


def test_ptx_that_does_not_assemble(tmp_path: Path) -> None:
    path = tmp_path / "bad.ptx"
    path.write_text(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { nonsense; }"
    )
    with pytest.raises(InputError, match="does not compile"):
        study_caps(options(path, 256), None, None)


def test_no_block_size_is_asked_for() -> None:
    from dataclasses import replace

    asked = replace(options(DATA / "dynamic.cu", 256), threads=None)
    with pytest.raises(UsageError, match="block size is not declared"):
        study_caps(asked, (32,), ())


@pytest.mark.parametrize("text", ["", "x", "8", "32,300", "32;40"])
def test_bad_caps(text: str) -> None:
    with pytest.raises(UsageError):
        parse_caps(text)


def test_caps_and_bounds() -> None:
    assert parse_caps("auto") is None
    assert parse_caps("32,64") == (64, 32)
    assert parse_bounds(()) is None
    assert parse_bounds(("auto",)) is None
    assert parse_bounds(("none",)) == ()
    assert parse_bounds(("256", "128,4")) == (Bounds(256, None), Bounds(128, 4))
    for text in ("x", "256,", "0", "2048", "256,0", "1,2,3"):
        with pytest.raises(UsageError):
            parse_bounds((text,))
