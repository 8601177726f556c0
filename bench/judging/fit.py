"""Fits the model's free constants, and predicts each kernel with constants fitted without it.

The constants are few and coarse (`GRID`). From values that are plausible without any measurement
of whole kernels (`PRIOR`), one at a time is moved to where the loss over the other kernels is
least, if that is worth `_STEP`, twice around. Losses are remembered by setting and kernel, so that
leaving each kernel out once costs little more than one fit. What a profile is used with
(`PROFILE_GRID`) is fitted in the same way, on kernels with counters, behind the other constants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from bench.judging.data import Group
from bench.judging.scores import Score, Total, both, total, varied
from regdem.machine.timing import Timing

GRID: dict[str, tuple[float, ...]] = {
    "l2_bytes_per_cycle": (24.0, 32.0, 40.0, 48.0),
    "local_slots": (1.0, 1.5, 2.0, 3.0),
    "local_share_of_l2": (0.5, 1.0, 2.0, 4.0),
    "code_cache_bytes": (131072.0, 163840.0, 196608.0, 262144.0),
    "loads_apart": (0.0, 0.25, 0.5, 1.0),
    "bank_conflict_cycles": (0.0, 0.25, 0.5, 0.75),
    "local_capacity": (0.5, 0.75, 1.0, 1.5),
    "store_through": (0.25, 0.5, 0.75, 1.0),
    "softness": (2.0, 3.0, 4.0, 5.0),
    "memory_softness": (2.0, 2.5, 3.0, 4.0),
    "branch_cycles": (0.0, 2.0, 4.0, 8.0),
    "start_cycles": (0.0, 250.0, 500.0),
    "kept_power": (0.0, 0.5, 1.0),
    "pending_lost": (0.0, 0.25, 0.5),
}
"""What loads and moves first, knees behind: the other way round the knees make up for it, and the
fit ends where no single step leads on."""
Setting = tuple[float, ...]
PRIOR: Setting = (32.0, 1.0, 1.0, 131072.0, 1.0, 0.5, 1.0, 1.0, 4.0, 3.0, 4.0, 500.0, 0.5, 0.0)
"""Half of L2's port to an SM; one slot; all of L2; the 128 KiB of instruction cache measured on
Volta (Jia et al., arXiv 1804.06826); places on their own; half of the conflicts hidden; all of L1;
stores written through; soft knees, softer where memory is busy; a pipeline refill; about a latency
of DRAM to start a block; hits of other warps' lines halfway between those that stay and all; loads
that follow each other at once meet in L1."""
PROFILE_GRID: dict[str, tuple[float, ...]] = {
    "profile_peak": (0.7, 0.85, 1.0),
    "profile_time_power": (0.0, 0.5, 1.0),
    "profile_least_wait": (0.125, 0.25, 0.5),
}
PROFILE_PRIOR: Setting = (1.0, 1.0, 0.25)
"""A pipe is full at its peak; a warp's time is what was measured, at least a quarter of it."""
_ROUNDS = 2
_STEP = 0.001


def setting_of(machine: Timing, grid: Iterable[str] = tuple(GRID)) -> Setting:
    """The free constants' present values, in the order of `grid`."""
    own = {"l2_bytes_per_cycle": machine.l2_bytes_per_cycle}
    return tuple(own.get(name, machine.model.get(name, 0.0)) for name in grid)


def with_setting(machine: Timing, setting: Setting, grid: Iterable[str] = tuple(GRID)) -> Timing:
    """The machine with these constants."""
    values = dict(zip(grid, setting, strict=True))
    l2 = values.pop("l2_bytes_per_cycle", machine.l2_bytes_per_cycle)
    return dataclasses.replace(
        machine, model={**machine.model, **values}, l2_bytes_per_cycle=l2
    )  # fmt: skip


class Fit:
    """Settings tried on kernels, remembered."""

    def __init__(
        self,
        groups: Sequence[Group],
        machine: Timing,
        *,
        grid: bool,
        profiled: bool = False,
        constants: Mapping[str, tuple[float, ...]] | None = None,
        prior: Setting = PRIOR,
    ) -> None:
        self.constants = GRID if constants is None else constants
        self.prior = prior
        self.groups = groups
        self.machine = machine
        self.grid = grid
        self.profiled = profiled
        self._known: dict[tuple[Setting, int], tuple[Score, Score | None]] = {}

    def scores(self, k: int, setting: Setting) -> tuple[Score, Score | None]:
        """Of group `k`: over all builds, and over those of the input alone."""
        key = setting, k
        if key not in self._known:
            machine = with_setting(self.machine, setting, self.constants)
            self._known[key] = both(self.groups[k], machine, grid=self.grid, profiled=self.profiled)
        return self._known[key]

    def loss(self, kept: Iterable[int], setting: Setting) -> float:
        """Mean loss over groups."""
        total, count = 0.0, 0
        for k in kept:
            every, part = self.scores(k, setting)
            total += every.loss + (part.loss if part else 0.0)
            count += 1 + (part is not None)
        return total / max(1, count)

    def best(self, without: str = "") -> Setting:
        """The setting with the least loss over the kernels other than `without`."""
        kept = [k for k, group in enumerate(self.groups) if group.kernel != without]
        setting = self.prior
        least = self.loss(kept, setting)
        for _ in range(_ROUNDS):
            start = setting
            for place, values in enumerate(self.constants.values()):
                tried = [(*setting[:place], value, *setting[place + 1 :]) for value in values]
                losses = [self.loss(kept, each) for each in tried]
                if min(losses) < least - _STEP:
                    least = min(losses)
                    setting = tried[losses.index(least)]
            if setting == start:
                break
        return setting

    def sensitivity(self) -> list[tuple[str, float, Total, Total]]:
        """Each constant at each of its values, the others in use: means over all builds, and over
        those made from the input alone."""
        now = setting_of(self.machine)
        names = {group.kernel for group in self.groups}
        found: list[tuple[str, float, Total, Total]] = []
        for place, (name, values) in enumerate(GRID.items()):
            for value in values:
                tried = (*now[:place], value, *now[place + 1 :])
                every, parts = self.judged(dict.fromkeys(names, tried))
                found.append((name, value, total(varied(every)), total(varied(parts))))
        for name, value in self.machine.model.items():
            fitted = name in GRID or name in PROFILE_GRID
            for changed in () if fitted else (value / 2, value, 2 * value):
                model = {**self.machine.model, name: changed}
                machine = dataclasses.replace(self.machine, model=model)
                other = Fit(self.groups, machine, grid=True)
                every, parts = other.judged(dict.fromkeys(names, now))
                means = total(varied(every)), total(varied(parts))
                found.append((f"{name} (grid known)", changed, *means))
        return found

    def settings(self) -> dict[str, Setting]:
        """By kernel: the constants fitted to all other kernels."""
        names = dict.fromkeys(group.kernel for group in self.groups)
        return {name: self.best(without=name) for name in names}

    def judged(self, settings: Mapping[str, Setting]) -> tuple[list[Score], list[Score]]:
        """Scores of every group with its kernel's constants: over all builds, and over those made
        from the input alone."""
        every: list[Score] = []
        parts: list[Score] = []
        for k, group in enumerate(self.groups):
            whole, part = self.scores(k, settings[group.kernel])
            every.append(whole)
            if part is not None:
                parts.append(part)
        return every, parts


def judged_profiled(
    groups: Sequence[Group], machine: Timing, settings: Mapping[str, Setting]
) -> tuple[tuple[list[Score], list[Score]], dict[str, Setting]]:
    """Scores of kernels whose input is profiled, and the constants that each was judged with.

    `settings`: the other constants by kernel, fitted without it; on top of them those of
    `PROFILE_GRID` are fitted to the other kernels with counters.
    """
    fits = {
        setting: Fit(
            groups, with_setting(machine, setting), grid=False, profiled=True,
            constants=PROFILE_GRID, prior=PROFILE_PRIOR,
        )
        for setting in {settings[group.kernel] for group in groups}
    }  # fmt: skip
    every: list[Score] = []
    parts: list[Score] = []
    own: dict[str, Setting] = {}
    for k, group in enumerate(groups):
        fit = fits[settings[group.kernel]]
        if group.kernel not in own:
            own[group.kernel] = fit.best(without=group.kernel)
        whole, part = fit.scores(k, own[group.kernel])
        every.append(whole)
        if part is not None:
            parts.append(part)
    return (every, parts), own
