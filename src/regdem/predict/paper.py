"""The predictor of the RegDem paper (arXiv 1907.02894, section 5), for comparison.

Per block the sum of stall counts, with FP64 instructions counted 32 times the occupancy and
quarter-rate ones 4 times; at a wait for a scoreboard that a memory instruction set, what is left of
its latency (200 cycles for global and local, 24 for shared memory). Blocks count 10 times per loop
level. The total is scaled by a(o) / a(best), a(o) = 0.14088 * o^-0.86281, o the occupancy from 0 to
1; the lowest wins.
"""

from __future__ import annotations

from regdem.analysis.forms import forms_of
from regdem.isa.control import SCOREBOARDS
from regdem.program.loops import block_weights
from regdem.program.program import Program

GLOBAL_CYCLES, SHARED_CYCLES = 200, 24
_FACTOR, _EXPONENT = 0.14088, -0.86281
_FP64_FACTOR, _QUARTER_FACTOR = 32.0, 4.0
_LONG = frozenset({"global", "generic", "local", "texture", "surface"})


def paper_stalls(program: Program, occupancy: float) -> float:
    """Loop-weighted stalls of one warp; `occupancy` from 0 to 1."""
    code = program.code
    forms = forms_of(code)
    weights = block_weights(program)
    stall: list[int] = code.stall.tolist()
    waits: list[int] = code.wait_mask.tolist()
    boards = (code.write_scoreboard.tolist(), code.read_scoreboard.tolist())
    total = 0.0
    for block in program.blocks:
        now = 0.0
        pending: dict[int, tuple[float, int]] = {}
        for i in range(block.start, block.end):
            for k in range(SCOREBOARDS):
                if (waits[i] >> k) & 1 and k in pending:
                    since, latency = pending.pop(k)
                    now += max(0.0, latency - (now - since))
            form = forms[i]
            cycles = float(stall[i])
            if form.latency == "fp64":
                cycles *= max(1.0, _FP64_FACTOR * occupancy)
            elif form.latency == "mufu":
                cycles *= max(1.0, _QUARTER_FACTOR * occupancy)
            if form.memory in _LONG or form.memory == "shared":
                latency = GLOBAL_CYCLES if form.memory in _LONG else SHARED_CYCLES
                for board in boards:
                    if board[i] < SCOREBOARDS:
                        pending[board[i]] = (now, latency)
            now += cycles
        total += weights[block.index] * now
    return total


def occupancy_factor(occupancy: float) -> float:
    """a(o) of the paper: relative time at an occupancy from 0 to 1."""
    return _FACTOR * max(occupancy, 1e-3) ** _EXPONENT


def paper_cycles(program: Program, occupancy: float) -> float:
    """The number the paper's predictor ranks by; only ratios between variants mean anything."""
    return paper_stalls(program, occupancy) * occupancy_factor(occupancy) / occupancy_factor(1.0)
