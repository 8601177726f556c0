"""The measured choice: variants are made on the CPU while the GPU measures those that are ready.

Phases, in order:

1. every device starts (`no_gpu` is known at once), then opens the original and its inputs in a
   thread of its own;
2. this thread makes variants (`workshop`) and puts them on the `Board`; device threads take the
   most promising that the stopping rule leaves, compare outputs, time, and store;
3. where generations are asked for, small steps from the fastest variant on (`steps`) are made and
   measured in turns;
4. the best few that beat the original by more than the noise are timed once more, together in the
   same rounds; the best of those is chosen, if it still beats the noise there. Choosing the
   largest of many noisy numbers overrates it; the last session's number does not suffer from that.

Invariants: nothing is chosen that was not compared byte for byte on every seed. Each result is in
the store before the next is begun. A device that fails for good ends the tuning, with all that was
measured kept.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regdem.binary.demangle import demangle
from regdem.errors import RegdemError, UsageError
from regdem.tune.board import Board
from regdem.tune.choosing import choose, describe_made, describe_measurement, distinct
from regdem.tune.evidence import write_evidence
from regdem.tune.made import Made
from regdem.tune.outcome import FINALISTS, Final, Row, TuneResult
from regdem.tune.process import GpuProcess, Settings
from regdem.tune.results import Comparison, Device, Measurement, Opened, sets_of_inputs
from regdem.tune.steps import steps_from
from regdem.tune.store import Store, key_of, sha256
from regdem.tune.tuning import (
    Building,
    Choices,
    Tuning,
    open_tuning,
    refuse_foreign,
    resume_tuning,
    save_tuning,
)
from regdem.tune.workshop import make_all, run_each

METHOD = 1
"""Part of every measurement's key: raised when measuring changes its meaning."""
PATIENCE = 4
"""Generations of steps without a gain after which the search ends."""
Progress = Callable[[str], None]


def tune(
    path: str | os.PathLike[str] | None,
    launch: str | None = None,
    *,
    out: str | os.PathLike[str],
    kernel: str | None = None,
    gpus: Sequence[int] = (0,),
    choices: Choices | None = None,
    executor: Executor | None = None,
    devices: Sequence[Device] | None = None,
    prepare_only: bool = False,
    building: Building | None = None,
    progress: Progress | None = None,
) -> TuneResult:
    """Makes, proves and measures variants of one kernel; the evidence is in the folder `out`.

    path: a cubin, a file that holds cubins, or a `.cu` or `.ptx` source; None: what `out` was
    prepared for. launch: a launch file or `module.py:function`. executor: any
    `concurrent.futures.Executor` for the CPU side; None: processes of this machine. devices: what
    measures, in place of the GPUs numbered in `gpus`. prepare_only: no GPU is used. building: how
    sources are compiled, and the PTX of a cubin, from which base builds are made as from a source.

    Raises RegdemError with code `no_gpu` without a GPU, `launch_failed` where the unmodified
    kernel can't be run, InputError for a launch that does not fit, UsageError.
    """
    choices = choices or Choices()
    folder = Path(out)
    if path is None:
        tuning = resume_tuning(folder, choices, launch)
    elif launch is None:
        raise UsageError("nothing says how the kernel is launched", hint="give --launch")
    else:
        tuning = open_tuning(os.fspath(path), launch, kernel, choices, building)
        refuse_foreign(tuning, folder)
    say = progress or _silent
    if tuning.lacks_dynamic_shared:
        say(
            f"warning: {demangle(tuning.kernel)} uses dynamic shared memory, and the launch gives "
            "it none: set its dynamic_shared_bytes"
        )
    with ExitStack() as stack:
        # Processes that are forked should be there before this one has threads.
        pool = stack.enter_context(_pool(executor, choices.jobs))
        measuring: Sequence[Device] = () if prepare_only else _devices(devices, gpus, tuning)
        for device in measuring:
            stack.callback(device.close)
        gpu = None if prepare_only else _start(measuring)
        store = stack.enter_context(Store(folder))
        save_tuning(tuning, folder)
        run = _Run(tuning, store, pool, say, gpu)
        result = run.prepare() if prepare_only else run.measure(measuring)
        write_evidence(result, folder)
    return result


def _silent(_: str) -> None:
    return None


@contextmanager
def _pool(executor: Executor | None, jobs: int) -> Generator[Executor | None]:
    """The executor given, or processes; none for one job."""
    if executor is not None or jobs == 1:
        yield executor
        return
    with ProcessPoolExecutor(jobs, initializer=_leave_quietly) as pool:
        pool.submit(int).result()
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _leave_quietly() -> None:
    """In a worker: Ctrl-C, which a terminal sends to all processes, ends it without a word."""

    def end(*_: object) -> None:
        os._exit(130)

    signal.signal(signal.SIGINT, end)


def _devices(
    given: Sequence[Device] | None, gpus: Sequence[int], tuning: Tuning
) -> Sequence[Device]:
    if given is not None:
        return given
    if not gpus or len(set(gpus)) != len(gpus):
        raise UsageError("name each GPU once")
    settings = Settings(
        tuning.launch.text,
        tuning.kernel,
        tuning.seeds,
        tuning.choices.rounds,
        tuning.choices.limit_s,
    )
    return [GpuProcess(number, settings) for number in gpus]


def _start(devices: Sequence[Device]) -> dict[str, Any]:
    """Facts of the GPUs, which must be of one kind."""
    facts = [device.start() for device in devices]
    names = sorted({str(each["name"]) for each in facts})
    if len(names) > 1:
        raise UsageError(f"the GPUs differ: {', '.join(names)}", hint="tune for one kind at a time")
    return facts[0] | {"gpus": len(devices)}


@dataclass
class _Run:
    """One run of a tuning."""

    tuning: Tuning
    store: Store
    executor: Executor | None
    say: Progress
    gpu: dict[str, Any] | None
    reused: int = 0

    # --- making ---------------------------------------------------------------------------------

    def prepare(self) -> TuneResult:
        """Makes every variant, measures none."""
        made: dict[str, Made] = {}

        def add(one: Made) -> None:
            made[one.name] = one

        self._make(add)
        rows = [Row(one, None, "not measured") for one in made.values()]
        return TuneResult.of(self.tuning, self.gpu, None, rows, None, "nothing was measured")

    def _make(
        self,
        add: Callable[[Made], None],
        fastest: Callable[[int], Sequence[str]] | None = None,
    ) -> None:
        """All variants: from the store, and made where they are not in it."""
        tuning, store = self.tuning, self.store
        known = store.made(tuning.making)
        if known and store.is_complete(tuning.making):
            self.say(f"{len(known)} variants were made before")
            for made in known.values():
                add(made)
            return
        if tuning.needs_source and tuning.source is None:
            raise UsageError(
                "not all variants were made",
                file=str(store.folder),
                hint="give the source again, where its compiler is",
            )
        count = 0

        def keep(made: Made) -> None:
            nonlocal count
            if made.name not in known:
                store.put_made(tuning.making, made, count)
            count += 1
            done = "made" if made.is_usable else "not made"
            self.say(f"{done} {made.name}: {describe_made(made)} [{count}]")
            add(made)

        make_all(tuning.order, self.executor, known, keep, fastest)
        store.set_complete(tuning.making)

    # --- measuring ------------------------------------------------------------------------------

    def measure(self, devices: Sequence[Device]) -> TuneResult:
        """Makes and measures at the same time, then times the best together."""
        board = Board(exhaustive=self.tuning.choices.exhaustive)
        opened: dict[str, Opened] = {}
        threads: list[threading.Thread] = []
        try:
            threads += [
                threading.Thread(target=self._work, args=(device, board, opened), daemon=True)
                for device in devices
            ]
            for thread in threads:
                thread.start()
            self._make(lambda made: self._offer(board, made), board.fastest_builds)
            self._search(board)
            board.end_making()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # a join without limit would not see Ctrl-C
            if board.error is not None:
                raise board.error
            return self._conclude(board, devices[0], opened[devices[0].label])
        finally:
            board.stop()
            for device in devices:
                device.close()
            for thread in threads:
                thread.join(5)

    def _search(self, board: Board) -> None:
        """Generations of steps from the fastest variant on, until none has gained for a while."""
        tuning = self.tuning
        making = key_of(tuning.making, "steps")  # apart: a second run takes the same way again
        known = self.store.made(making)
        original = Made(tuning.original.name, "built", cubin=tuning.original.data)
        parent, reached, idle = original, 1.0, 0
        for generation in range(tuning.choices.generations):
            best = max(board.timed(), key=lambda each: each[1].speedup, default=None)
            if board.is_stopped:
                return
            idle += 1
            if best is not None and best[1].speedup > reached:
                parent, reached, idle = best[0], best[1].speedup, 0
            if idle > PATIENCE:
                self.say(f"no step has gained for {PATIENCE} generations")
                return
            self.say(
                f"generation {generation + 1} of {tuning.choices.generations}: steps from "
                f"{parent.name}, {reached:.3f} times as fast"
            )
            steps = steps_from(parent, tuning.kernel, tuning.order.request, generation)
            there = [known[step.name] for step in steps if step.name in known]
            for made in there:
                self._offer(board, made)
            rest = [step for step in steps if step.name not in known]
            for step, result in run_each(rest, self.executor):
                made = result
                if not isinstance(made, Made):
                    why = f"{type(made).__name__}: {made}".rstrip(": ")
                    made = Made(step.name, "internal_error", why, step.parent.base)
                self.store.put_made(making, made, len(known))
                known[made.name] = made
                self._offer(board, made)

    def _work(self, device: Device, board: Board, opened: dict[str, Opened]) -> None:
        """One device's thread."""
        try:
            first = device.open(self.tuning.original.data)
            opened[device.label] = first
            self.say(
                f"{device.label}: the original takes {first.launch_ms:.4g} ms, "
                f"the same outputs twice on {sets_of_inputs(first.seeds)}"
            )
            while (made := board.take()) is not None:
                measurement = self._measure(device, board, made)
                if board.record(made.name, measurement):
                    words = describe_measurement(made, measurement)
                    self.say(f"{device.label}: {made.name}: {words}")
        except BaseException as error:  # goes on in the main thread
            board.stop(error)

    def _measure(self, device: Device, board: Board, made: Made) -> Measurement:
        """Measures a variant, unless one with the same bytes has been; keeps what comes of it."""
        key, limit_s = self._key(made), self.tuning.choices.limit_s
        known = self.store.measured(key, limit_s)
        if known is not None:
            return known
        assert made.cubin is not None
        measurement = device.measure(made.name, made.cubin)
        if not board.is_stopped:  # the end of everything is no failure of this variant
            self.store.put_measured(key, made.name, limit_s, measurement)
        return measurement

    def _offer(self, board: Board, made: Made) -> None:
        if board.error is not None:
            raise board.error
        known = None
        if made.is_usable:
            known = self.store.measured(self._key(made), self.tuning.choices.limit_s)
            self.reused += known is not None
        board.add(made, known)

    def _key(self, *variants: Made) -> str:
        tuning, gpu = self.tuning, self.gpu or {}
        return key_of(
            METHOD, gpu.get("name"), gpu.get("driver"), gpu.get("driver_cuda_version"),
            tuning.launch_sha256, tuning.seeds, tuning.choices.rounds,
            sha256(tuning.original.data), tuning.kernel,
            [made.cubin_sha256 for made in variants],
        )  # fmt: skip

    # --- choosing -------------------------------------------------------------------------------

    def _conclude(self, board: Board, device: Device, opened: Opened) -> TuneResult:
        made, measured, excluded = board.made(), board.measured(), board.excluded()
        if self.reused:
            self.say(f"{self.reused} measurements were there from before")
        faster = [
            (made[name], comparison)
            for name, measurement in measured.items()
            if (comparison := measurement.comparison) is not None and comparison.is_faster
        ]
        faster.sort(key=lambda entry: (-entry[1].speedup, entry[0].name))
        finals = self._finals(device, distinct([one for one, _ in faster]))
        rows = [Row(one, measured.get(name), excluded.get(name, "")) for name, one in made.items()]
        best, reason = choose(finals, rows)
        return TuneResult.of(self.tuning, self.gpu, opened, rows, best, reason, finals)

    def _finals(self, device: Device, candidates: list[Made]) -> list[Final]:
        chosen = candidates[:FINALISTS]
        if not chosen:
            return []
        key = self._key(*chosen)
        samples = self.store.compared(key)
        if samples is None:
            names = ", ".join(made.name for made in chosen)
            self.say(f"{device.label}: once more, in the same rounds: {names}")
            samples = device.compare({made.name: made.cubin or b"" for made in chosen})
            self.store.put_compared(key, samples)
        found: list[Final] = []
        for made in chosen:
            comparison = Comparison.of(samples["original"], samples["again"], samples[made.name])
            found.append(Final(made.name, comparison))
        return found


__all__ = ["Building", "Choices", "RegdemError", "TuneResult", "tune"]
