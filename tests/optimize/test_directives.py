"""What builds of one PTX text differ in: directives and the pragma, put where ptxas reads them."""

from __future__ import annotations

import pytest

from regdem.bases import EFFORTS, Base, capped_builds, distinct, first_builds, ptx_source
from regdem.errors import UsageError
from regdem.integrations.compile import SMEM_SPILLING, Directives, entries, with_directives
from regdem.machine import BlockShape

PTX = """.version 9.0
.target sm_90a
.address_size 64
	// .globl	one
/* .entry hidden( ) { } */
.visible .entry one(
	.param .u64 one_param_0,
	.param .align 8 .b8 one_param_1[16]
)
.maxntid 512, 1, 1
.minnctapersm 2
{
	ret; // { not a body }
}
.visible .entry one_more(.param .u64 p)
.reqntid 64, 2, 1
{
	ret;
}
.entry bare { ret; }
"""
SHAPE = BlockShape(16, 8)


def directives_of(ptx: str, kernel: str) -> str:
    after = ptx.split(f".entry {kernel}", 1)[1]
    return " ".join(after.split("{", 1)[0].split(")")[-1].split())


def test_entries_in_order_without_comments() -> None:
    assert entries(PTX) == ["one", "one_more", "bare"]


def test_block_and_limit_replace_those_of_the_source() -> None:
    new = with_directives(PTX, "one", Directives(SHAPE, 64))
    assert directives_of(new, "one") == ".maxntid 16, 8, 1 .maxnreg 64"
    assert directives_of(new, "one_more") == ".reqntid 64, 2, 1"
    assert new.count("ret;") == PTX.count("ret;")


def test_a_block_alone_keeps_the_bound_on_blocks() -> None:
    new = with_directives(PTX, "one", Directives(SHAPE))
    assert directives_of(new, "one") == ".minnctapersm 2 .maxntid 16, 8, 1"


def test_a_required_block_stays() -> None:
    new = with_directives(PTX, "one_more", Directives(SHAPE, 40))
    assert directives_of(new, "one_more") == ".reqntid 64, 2, 1 .maxnreg 40"


def test_the_pragma_is_first_in_the_body_and_there_once() -> None:
    new = with_directives(PTX, "bare", Directives(smem_spilling=True))
    assert new.split(".entry bare", 1)[1].split("{", 1)[1].lstrip().startswith(SMEM_SPILLING)
    assert with_directives(new, "bare", Directives(smem_spilling=True)).count(SMEM_SPILLING) == 1


def test_no_directives_leave_the_meaning() -> None:
    assert with_directives(PTX, "one", Directives()).split() == PTX.split()


def test_an_unknown_kernel_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        with_directives(PTX, "two", Directives(SHAPE))
    assert caught.value.kernel == "two"
    assert "one_more" in (caught.value.hint or "")


def test_the_feature_set_of_the_ptx_is_kept() -> None:
    assert ptx_source(PTX).arch == "sm_90a"
    assert ptx_source(PTX, arch="sm_90").arch == "sm_90a"
    assert ptx_source(PTX, arch="sm_100").arch == "sm_100"


def test_names_of_variants() -> None:
    assert Base("default", "k", b"").variant("demote_40") == "demote_40"
    assert Base("input", "k", b"", "input").variant("promote") == "promote"
    assert Base("cap_96", "k", b"").variant("promote") == "cap_96+promote"
    assert Base("cap_96", "k", b"").variant() == "cap_96"


def test_first_builds_need_no_kernel() -> None:
    assert [plan.name for plan in first_builds(SHAPE)] == ["default", "cap_255", "block", "pragma"]


def test_refused_builds_stay_with_their_reason() -> None:
    refused = Base("pragma", "k", b"", problem="no")
    assert distinct([refused]) == [refused]
    assert not refused.is_built


def test_caps_stand_at_cliffs_around_the_default(example_kernel: object) -> None:
    from regdem.binary import Kernel
    from regdem.rewrite import Request

    assert isinstance(example_kernel, Kernel)
    request = Request(threads=BlockShape(256))
    quick = [p.name for p in capped_builds(example_kernel, 96, request, EFFORTS["quick"])]
    # 48 registers, itself a cliff at 256 threads; 40 is the next one down, 64 the next one up.
    plain, spilling = ["cap_64", "cap_48", "cap_40"], ["pragma_64", "pragma_48", "pragma_40"]
    assert quick == [*plain, "pragma_255", *spilling]
    normal = [p.name for p in capped_builds(example_kernel, 96, request, EFFORTS["normal"])]
    assert normal[:5] == ["cap_80", "cap_64", "cap_48", "cap_40", "cap_32"]


def test_the_papers_combinations_have_names_of_their_own() -> None:
    from regdem.transform.paper import combinations, parse_passes
    from regdem.variants import paper_name

    names = [paper_name("cfg", passes, 40) for passes in combinations()]
    assert names[0] == "regdem-cfg_40"
    assert len(set(names)) == 8
    assert parse_passes("all") == combinations()[0]
    assert parse_passes("none") == frozenset()
    assert parse_passes("eliminate, reschedule") == {"eliminate", "reschedule"}
    with pytest.raises(UsageError):
        parse_passes("compact")


def test_the_papers_variants_are_proved_in_all_combinations(example_kernel: object) -> None:
    from regdem.binary import Kernel
    from regdem.rewrite import Request, demote_kernel
    from regdem.transform.paper import combinations

    assert isinstance(example_kernel, Kernel)
    assert example_kernel.source is not None
    accesses: dict[frozenset[str], int] = {}
    for passes in combinations():
        request = Request(
            threads=BlockShape(256), registers=40, candidates="cfg", paper_passes=passes
        )
        _, done = demote_kernel(example_kernel.source, example_kernel, request)
        assert done.after.registers_per_thread <= 40
        accesses[passes] = sum(d.loads + d.stores for d in done.rewrite.demoted)
    everything, nothing = combinations()[0], combinations()[-1]
    assert accesses[everything] < accesses[nothing]
