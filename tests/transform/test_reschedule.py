"""New orders within blocks: dependences and registers hold, results are proved or refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic import stores_of
from words import EXIT, findings, ldg, program, to_bytes

from regdem.analysis.liveness import liveness
from regdem.analysis.webs import webs
from regdem.binary.cubin import Cubin
from regdem.binary.kernel import Kernel
from regdem.check import check_hazards, check_pair
from regdem.errors import UsageError
from regdem.integrations.toolkit import find_tool
from regdem.isa.decoded import RegisterFile
from regdem.isa.encode import Guard, Word, add_immediate, imad_register, lds, s2r, sts
from regdem.isa.fields import set_field
from regdem.machine import block_shape
from regdem.rescheduling import composed, most_registers, reschedule_kernel, scheduled
from regdem.rewrite import Request, demote_kernel
from regdem.transform.demoted import program_of
from regdem.transform.hazards import repair
from regdem.transform.listing import dependences, peak_of, values_of
from regdem.transform.reschedule import RescheduleOptions, Rescheduling, reschedule
from regdem.transform.segments import Segment, memory_order, segments
from regdem.transform.timeline import Timeline

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = Cubin.parse((ROOT / "examples" / "neighbour" / "neighbour.cubin").read_bytes(), "example")
KERNEL = EXAMPLE.kernel("pair_forces")
DATA = ROOT / "tests" / "check" / "data" / "kernels.cubin"
_STG: Word = (0x0000000402007986, 0x000FE8000C101904)
"""`STG.E desc[UR4][R2.64], R4`."""
_ATOMG: Word = (0x00000004020479A8, 0x000EA800081EE1C4)
"""`ATOMG.E.ADD.STRONG.GPU`: nothing may pass it."""
R2, R4, R6, R8 = 2, 4, 6, 8


def stg(ra: int, rb: int, offset: int = 0) -> Word:
    lo, hi = set_field(*_STG, 24, 8, ra)
    lo, hi = set_field(lo, hi, 32, 8, rb)
    return set_field(lo, hi, 40, 24, offset)


def at(word: Word, offset: int) -> Word:
    """A load or store at another offset."""
    return set_field(*word, 40, 24, offset)


def kernel_of(words: Sequence[Word]) -> Kernel:
    """A kernel of these instructions, with the waits that they need."""
    whole = program([*words, EXIT])
    code = to_bytes(repair(whole, [True] * len(whole)))
    return replace(
        KERNEL,
        code=code,
        functions=(replace(KERNEL.functions[0], offset=0, size=len(code)),),
        branch_tables=(),
        annotations=(),
    )


def words_of(done: Rescheduling) -> list[Word]:
    code = done.edit.code
    return [
        (int.from_bytes(code[k : k + 8], "little"), int.from_bytes(code[k + 8 : k + 16], "little"))
        for k in range(0, len(code), 16)
    ]


T = TypeVar("T")


def made_or_none(make: Callable[[], T]) -> T | None:
    """What is made, or None where nothing better is found."""
    try:
        return make()
    except UsageError as error:
        if error.code != "nothing_to_do":
            raise
        return None


ENTRY = [s2r(R2, 0x21), s2r(3, 0x22)]
LOADS_WITH_USES = [
    *ENTRY,
    *(
        word
        for k in range(4)
        for word in (
            at(ldg(R4 + 2 * k, R2), 64 * k),
            imad_register(R4 + 2 * k, R4 + 2 * k, R4 + 2 * k, R4 + 2 * k),
        )
    ),
    *(stg(R2, R4 + 2 * k, 64 * k) for k in range(4)),
]


def test_loads_go_out_before_the_first_is_waited_for() -> None:
    done = reschedule(kernel_of(LOADS_WITH_USES), RescheduleOptions(40))
    words = words_of(done)
    assert stores_of(words) == stores_of([*LOADS_WITH_USES, EXIT])
    assert findings(words) == []
    names = [program(words).code.table.forms[f].name for f in program(words).code.form_indices]
    assert names[2:6] == ["LDG"] * 4
    (block,) = done.reordered
    assert block.cycles_after < 0.5 * block.cycles_before


def test_one_register_for_all_loads_is_no_obstacle() -> None:
    """The live ranges are apart: other registers are taken, as far as there are any."""
    serial = [
        *ENTRY,
        *(w for k in range(4) for w in (at(ldg(R4, R2), 64 * k), stg(R2, R4, 64 * k + 4096))),
    ]
    with pytest.raises(UsageError):  # loads don't pass stores that may touch the same bytes
        reschedule(kernel_of(serial), RescheduleOptions(40))
    apart = [
        *ENTRY,
        *(w for k in range(4) for w in (at(ldg(R4, R2), 64 * k), sts(R2, 64 * k, R4))),
    ]
    done = reschedule(kernel_of(apart), RescheduleOptions(40))
    assert stores_of(words_of(done)) == stores_of([*apart, EXIT])
    few = reschedule(kernel_of(apart), RescheduleOptions(8))
    assert few.registers_per_thread <= 8 < done.registers_per_thread + 1
    assert stores_of(words_of(few)) == stores_of([*apart, EXIT])


def test_same_input_same_bytes() -> None:
    first, second = (
        reschedule(kernel_of(LOADS_WITH_USES), RescheduleOptions(40)).edit.code for _ in "ab"
    )
    assert first == second


def test_nothing_to_do_is_said() -> None:
    with pytest.raises(UsageError) as caught:
        reschedule(kernel_of([*ENTRY, stg(R2, R2)]), RescheduleOptions(40))
    assert caught.value.code == "nothing_to_do"


def order_of(words: Sequence[Word], slots: Sequence[int] = ()) -> set[tuple[int, int]]:
    p = program([*words, EXIT])
    return set(memory_order(p, Segment(0, 0, len(words)), slots))


def test_order_of_memory() -> None:
    load, store = ldg(R4, R2), stg(R2, R6)
    assert order_of([load, at(load, 64)]) == set()
    assert order_of([load, store, load]) == {(0, 1), (1, 2)}
    read_only = set_field(*load, 77, 4, 4)
    assert order_of([read_only, store, read_only]) == set()
    assert order_of([store, at(store, 64)]) == {(0, 1)}
    assert order_of([lds(R4, R2, 0), store, sts(R2, 64, R6)]) == {(1, 2), (0, 2)}
    # Slots of a rewrite are words that only accesses to themselves touch.
    slots = [lds(R4, R2, 0), sts(R2, 4, R6), sts(R2, 0, R6), lds(R8, R2, 4)]
    assert order_of(slots, range(4)) == {(0, 2), (1, 3)}


def test_atomics_and_stronger_accesses_are_fences() -> None:
    strong = set_field(*ldg(R4, R2), 77, 4, 10)
    for fence in (_ATOMG, strong):
        p = program([*ENTRY, ldg(R6, R2), fence, *ENTRY, ldg(R6, R2), EXIT])
        assert [(s.start, s.end) for s in segments(p)] == [(0, 3), (4, 7)]


def test_guarded_writes_stay_behind_what_their_register_held() -> None:
    """Where the guard is false the old value stays, though nobody may want it."""
    words = [
        s2r(R2, 0x21),
        add_immediate(R4, R2, 1),
        sts(R2, 0, R4),
        sts(R2, 4, R4),
        lds(R4, R2, 8, guard=Guard(0)),
        sts(R2, 12, R4, guard=Guard(0)),
    ]
    p = program([*words, EXIT])
    live = liveness(p, follow_guards=True)
    graph = dependences(Timeline(p, webs(p, live)), Segment(0, 0, len(words)))
    assert {1, 2, 3} <= set(graph.before[4])


@st.composite
def straight_lines(draw: st.DrawFn) -> list[Word]:
    """Arithmetic, loads and stores over a dozen registers, some under guards."""
    words = [s2r(r, 0x21 + r % 3) for r in range(2, 14)]
    for _ in range(draw(st.integers(6, 40))):
        a, b, c, d = (draw(st.integers(2, 13)) for _ in range(4))
        even = 2 * draw(st.integers(1, 6))
        offset = 16 * draw(st.integers(0, 3))
        guard = draw(st.sampled_from([Guard(), Guard(), Guard(), Guard(1), Guard(1, True)]))
        kind = draw(st.integers(0, 6))
        words.append(
            [
                imad_register(a, b, c, d),
                add_immediate(a, b, offset),
                lds(a, b, offset, guard=guard),
                sts(a, offset, b, guard=guard),
                at(ldg(a, even), offset),
                stg(even, a, offset),
                set_field(*at(ldg(a, even), offset), 77, 4, 4),
            ][kind]
        )
    return [*words, *(stg(2, r, 4 * r) for r in range(2, 14))]


@settings(max_examples=30, deadline=None)
@given(straight_lines(), st.integers(16, 40))
def test_generated_programs_store_the_same(words: list[Word], registers: int) -> None:
    kernel = kernel_of(words)
    options = RescheduleOptions(registers, least_gain=0.0, least_cycles=1)
    done = made_or_none(lambda: reschedule(kernel, options))
    if done is None:
        return
    new = words_of(done)
    assert stores_of(new) == stores_of([*words, EXIT])
    assert {f.kind for f in findings(new)} == set()
    assert done.registers_per_thread <= registers
    assert sorted(done.edit.offset_map.tolist()) == [16 * k for k in range(len(words) + 2)]


@settings(max_examples=30, deadline=None)
@given(straight_lines())
def test_pressure_is_what_liveness_counts(words: list[Word]) -> None:
    p = program([*words, EXIT])
    live = liveness(p, follow_guards=True)
    found = webs(p, live)
    timeline = Timeline(p, found)
    segment = Segment(0, 0, len(words))
    start = sum(web.points & 1 for web in found.webs)
    values = values_of(timeline, found, segment, start)
    counted = peak_of(values, timeline.multi_pass[: len(words)], range(len(words)))
    points = [web.points for web in found.webs]
    assert counted == max(
        sum(mask >> point & 1 for mask in points) for point in range(2 * len(words))
    )
    assert counted >= int(live.pressure(RegisterFile.GPR)[: len(words)].max())


REQUEST = Request(block_shape(256))


def kernels() -> list[tuple[Cubin, str]]:
    data = Cubin.parse(DATA.read_bytes(), "kernels")
    return [(EXAMPLE, KERNEL.name), *((data, kernel.name) for kernel in data.kernels)]


@pytest.mark.parametrize(
    ("cubin", "name"), kernels(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_real_kernels_are_proved(cubin: Cubin, name: str) -> None:
    kernel = cubin.kernel(name)
    registers = most_registers(kernel, REQUEST)
    options = RescheduleOptions(registers, least_gain=0.0, least_cycles=1)
    done = made_or_none(lambda: reschedule(kernel, options))
    if done is None:
        return
    new = Cubin.parse(cubin.with_kernel(name, done.edit).to_bytes(), "new").kernel(name)
    assert new.registers_per_thread <= registers
    assert len(new.code) == len(kernel.code)
    known = {(f.kind, f.message) for f in check_hazards(kernel, kernel.arch)}
    assert {(f.kind, f.message) for f in check_hazards(new, new.arch)} <= known
    assert check_pair(kernel, new, threads=256).findings == ()


def test_behind_a_demotion_it_is_one_edit() -> None:
    request = replace(REQUEST, registers=40)
    made = demote_kernel(EXAMPLE, KERNEL, request)
    middle = made[0].kernel(KERNEL.name)
    order = reschedule(
        middle,
        RescheduleOptions(most_registers(middle, request), least_gain=0.0, least_cycles=1),
    )
    edit = composed(made[1].rewrite.edit, order.edit)
    at_once = Cubin.parse(EXAMPLE.with_kernel(KERNEL.name, edit).to_bytes(), "new")
    twice = made[0].with_kernel(KERNEL.name, order.edit)
    new = at_once.kernel(KERNEL.name)
    assert new.code == twice.kernel(KERNEL.name).code
    assert {a.offset for a in new.annotations} == {
        a.offset for a in twice.kernel(KERNEL.name).annotations
    }
    assert check_pair(KERNEL, new, threads=256).findings == ()
    assert program_of(new)


def test_fronts_prove_or_say_that_nothing_is_gained() -> None:
    demoted = demote_kernel(EXAMPLE, KERNEL, replace(REQUEST, registers=40))
    for result in (
        made_or_none(lambda: reschedule_kernel(EXAMPLE, KERNEL, REQUEST)),
        made_or_none(lambda: scheduled(EXAMPLE, KERNEL, REQUEST, demoted)),
    ):
        if result is None:
            continue
        new, done = result
        assert done.verdict.findings == ()
        assert done.after.registers_per_thread == new.kernel(KERNEL.name).registers_per_thread
        assert done.after.active_warps >= done.before.active_warps


@pytest.mark.tools
def test_the_disassembler_takes_it(tmp_path: Path) -> None:
    """It rejects control bits that an instruction can't have, reuse flags above all."""
    nvdisasm = find_tool("nvdisasm")
    if nvdisasm is None:
        pytest.skip("nvdisasm was not found")
    for cubin, name in kernels():
        kernel = cubin.kernel(name)
        options = RescheduleOptions(most_registers(kernel, REQUEST), least_gain=0.0, least_cycles=1)
        done = made_or_none(lambda k=kernel, o=options: reschedule(k, o))
        if done is None:
            continue
        path = tmp_path / f"{name}.cubin"
        path.write_bytes(cubin.with_kernel(name, done.edit).to_bytes())
        ran = subprocess.run([nvdisasm, "-c", path], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr


def test_a_new_order_stays_within_the_registers_asked_for() -> None:
    """Not only within the residency: with 48 registers as many blocks of 128 are resident."""
    request = Request(threads=block_shape(128), registers=44)
    made = demote_kernel(EXAMPLE, KERNEL, request)
    assert made[1].after.registers_per_thread == 44
    _, both = scheduled(EXAMPLE, KERNEL, request, made)
    assert both.rewrite.reordered_blocks > 0
    assert both.after.registers_per_thread <= 44
    with pytest.raises(UsageError, match="can't be a limit"):
        reschedule_kernel(EXAMPLE, KERNEL, replace(request, registers=300))


def test_more_registers_are_told_as_a_bound_on_blocks() -> None:
    request = Request(threads=block_shape(128), registers=80)
    _, done = reschedule_kernel(EXAMPLE, KERNEL, request)
    bounds = [each for each in done.verdict.assumptions if each.startswith("blocks of at most")]
    assert len(bounds) == (done.after.registers_per_thread > 64)  # 65,536 for 1,024 threads
