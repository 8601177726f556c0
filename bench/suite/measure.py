"""The part that runs on the GPU: one process per kernel, one JSON line per event.

Problem: a variant may fault or hang, and both lose the CUDA context. So the parent starts this
module once per kernel and reads its events; a process that dies or falls silent is ended, the
variant it was at is noted, and a new one is started without it (see `bench/suite/session.py`).

Protocol: `ready` is printed once the inputs are generated; the process then waits for a line on
stdin, so that the parent lets one process at a time use the GPU. Every step starts with a `begin`
event that names the variant.

Method: outputs are filled with 0xA5 (or restored, where the kernel reads them) before each
launch; the default build's bytes are the expected ones, for every seed. Timing is interleaved,
on the last seed's inputs, and times the default twice: the difference is the noise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.suite.kernels import find_spec
from bench.suite.spec import Array, KernelSpec, Problem
from regdem.errors import RegdemError
from regdem.tune.interleave import time_interleaved
from regdem.tune.launch import (
    Argument,
    DeviceArray,
    DriverError,
    Function,
    Gpu,
    Launch,
)

FILL_BYTE = 0xA5
STICKY_EXIT = 3
Record = dict[str, Any]


def emit(event: str, **values: Any) -> None:
    """One event, one line, at once."""
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def load_manifest(folder: Path) -> Record:
    return json.loads((folder / "manifest.json").read_text())


def kernel_record(manifest: Record, name: str) -> Record:
    for record in manifest["kernels"]:
        if record["name"] == name:
            return record
    raise SystemExit(f"no kernel {name} in the manifest")


def spec_of(record: Record) -> KernelSpec:
    """The kernel's specification; ends the process if the folder was prepared for another block."""
    spec = find_spec(record["name"])
    if record.get("block", list(spec.block)) != list(spec.block):
        emit("fatal", reason=f"prepared for blocks of {record['block']}, not {spec.block}")
        sys.exit(1)
    return spec


class Buffers:
    """A problem on the device: allocations, pristine copies of what the kernel changes."""

    def __init__(self, gpu: Gpu, problem: Problem) -> None:
        self._gpu = gpu
        self._problem = problem
        self._arrays: dict[int, DeviceArray] = {}
        self._pristine: dict[int, DeviceArray] = {}
        arguments: list[Argument] = []
        for position, argument in enumerate(problem.arguments):
            if not isinstance(argument, Array):
                arguments.append(argument)
                continue
            array = gpu.allocate(argument.nbytes)
            self._arrays[position] = array
            arguments.append(array)
            if argument.data is not None:
                gpu.upload(array, argument.data)
            if argument.role == "inout":
                copy = gpu.allocate(argument.nbytes)
                gpu.copy(copy, array)
                self._pristine[position] = copy
        self.arguments = tuple(arguments)

    @property
    def restores(self) -> bool:
        """Whether the kernel changes what it reads, so that a launch can't simply be repeated."""
        return bool(self._pristine)

    def restore(self) -> None:
        for position, copy in self._pristine.items():
            self._gpu.copy(self._arrays[position], copy)

    def reset(self) -> None:
        """Outputs to the fill byte, changed inputs to their first values."""
        for position in self._problem.outputs:
            if position not in self._pristine:
                self._gpu.fill(self._arrays[position], FILL_BYTE)
        self.restore()

    def outputs(self) -> dict[int, NDArray[np.uint8]]:
        return {k: self._gpu.download(self._arrays[k]) for k in self._problem.outputs}

    def free(self) -> None:
        for array in (*self._arrays.values(), *self._pristine.values()):
            self._gpu.free(array)


def first_difference(
    expected: dict[int, NDArray[np.uint8]], found: dict[int, NDArray[np.uint8]]
) -> Record | None:
    """Where two sets of outputs differ first (argument, byte, count of bytes); None: nowhere."""
    for position, bytes_expected in expected.items():
        if np.array_equal(bytes_expected, found[position]):
            continue
        different = np.flatnonzero(bytes_expected != found[position])
        return {"argument": position, "byte": int(different[0]), "bytes": int(different.size)}
    return None


def relative_error(got: NDArray[Any], expected: NDArray[Any]) -> float:
    """Largest difference over the largest magnitude; for integers the share that differs."""
    if got.dtype.kind in "iu" and expected.dtype.kind in "iu":
        return float(np.mean(got != expected.astype(got.dtype)))
    want = expected.astype(np.float64)
    scale = float(np.max(np.abs(want))) or 1.0
    error = float(np.max(np.abs(got.astype(np.float64) - want))) / scale
    return error if np.isfinite(error) else float("inf")


class Worker:
    """Loads, checks and times the variants of one kernel."""

    def __init__(self, gpu: Gpu, spec: KernelSpec, record: Record, folder: Path) -> None:
        self._gpu = gpu
        self._spec = spec
        self._folder = folder
        if spec.stack_bytes:
            gpu.set_stack_bytes(spec.stack_bytes)
        self._functions: dict[str, Function] = {}
        self._files = {v["name"]: v["file"] for v in record["variants"] if v.get("file")}

    def add(self, files: dict[str, str]) -> None:
        """Further variants by name: files in the folder."""
        self._files |= files

    def unload(self, names: Sequence[str]) -> None:
        """Frees variants that are not needed again."""
        for name in names:
            if name in self._functions:
                self._gpu.unload(self._functions.pop(name))

    def load(self, names: Sequence[str]) -> list[str]:
        """Loads variants and reports what the driver says of each; failures are left out."""
        loaded: list[str] = []
        spec = self._spec
        for name in names:
            emit("begin", variant=name, step="load")
            try:
                function = self._gpu.load(
                    (self._folder / self._files[name]).read_bytes(),
                    spec.kernel,
                    spec.dynamic_shared_bytes,
                )
                facts = self._gpu.facts(function, spec.threads, spec.dynamic_shared_bytes)
            except (RegdemError, OSError) as error:
                self._failed(name, "load", error)
                continue
            self._functions[name] = function
            loaded.append(name)
            emit("facts", variant=name, **vars(facts))
        return loaded

    def _failed(self, name: str, step: str, error: Exception) -> None:
        emit("failed", variant=name, step=step, reason=str(error))
        if isinstance(error, DriverError) and error.sticky:
            sys.exit(STICKY_EXIT)

    def launch_of(self, name: str, problem: Problem, buffers: Buffers) -> Launch:
        spec = self._spec
        return Launch(
            self._functions[name],
            problem.grid,
            spec.block,
            spec.dynamic_shared_bytes,
            buffers.arguments,
        )

    def run_once(self, name: str, problem: Problem, buffers: Buffers, step: str) -> bool:
        emit("begin", variant=name, step=step)
        try:
            buffers.reset()
            self._gpu.launch(self.launch_of(name, problem, buffers))
            self._gpu.synchronise()
        except DriverError as error:
            self._failed(name, step, error)
            return False
        return True

    def check(self, names: list[str], seed: int, problem: Problem, buffers: Buffers) -> list[str]:
        """Compares every variant's outputs with the default's; returns those that agree."""
        if not self.run_once("default", problem, buffers, "run"):
            return []
        expected = buffers.outputs()
        written = any(np.any(data != FILL_BYTE) for data in expected.values())
        emit("expected", seed=seed, written=bool(written))
        good = ["default"]
        for name in names:
            if name == "default":
                continue
            if not self.run_once(name, problem, buffers, "run"):
                continue
            difference = first_difference(expected, buffers.outputs())
            emit("check", variant=name, seed=seed, identical=difference is None, where=difference)
            if difference is None:
                good.append(name)
        return good

    def compare_with_reference(self) -> None:
        """The default build against numpy on the small problem."""
        if self._spec.reference is None:
            return
        problem = self._spec.make(0, True)
        buffers = Buffers(self._gpu, problem)
        if not self.run_once("default", problem, buffers, "reference"):
            return
        found = buffers.outputs()
        worst = 0.0
        for position, expected in self._spec.reference(problem).items():
            argument = problem.arguments[position]
            assert isinstance(argument, Array)
            got = found[position].view(argument.dtype).reshape(argument.shape)
            worst = max(worst, relative_error(got.reshape(expected.shape), expected))
        emit("reference", relative_error=worst, passed=worst <= self._spec.tolerance)
        buffers.free()

    def time(self, names: list[str], problem: Problem, buffers: Buffers, rounds: int) -> None:
        launches = {name: self.launch_of(name, problem, buffers) for name in names}
        launches["default again"] = launches["default"]
        emit("begin", variant="", step="time")
        before = (lambda _name: buffers.restore()) if buffers.restores else None
        timings = time_interleaved(
            self._gpu,
            launches,
            rounds=rounds,
            warm_up=3,
            before=before,
            least_ms=0.5,
            limit_ms=8000.0,
            progress=lambda turn: emit("round", number=turn),
        )
        for name, timing in timings.items():
            emit(
                "timing",
                variant=name,
                median_ms=timing.median_ms,
                p10_ms=timing.p10_ms,
                p90_ms=timing.p90_ms,
                rounds=timing.rounds,
                samples_ms=[round(sample, 6) for sample in timing.samples_ms],
            )


def measure(args: argparse.Namespace) -> None:
    """All of one kernel: facts, equality on every seed, reference, times."""
    folder = Path(args.folder)
    record = kernel_record(load_manifest(folder), args.kernel)
    spec = spec_of(record)
    skip = set(filter(None, args.skip.split(",")))
    names = [v["name"] for v in record["variants"] if v.get("file") and v["name"] not in skip]
    with ThreadPoolExecutor(max_workers=args.seeds) as pool:
        problems = list(pool.map(lambda seed: spec.make(seed, False), range(args.seeds)))
    emit("ready")
    if not sys.stdin.readline():
        return
    with Gpu() as gpu:
        emit("device", **gpu.describe())
        worker = Worker(gpu, spec, record, folder)
        names = worker.load(names)
        if "default" not in names:
            emit("failed", variant="default", step="load", reason="the default build is missing")
            return
        try:
            worker.compare_with_reference()
        except DriverError:
            raise
        except Exception as error:  # a wrong reference must not cost the measurement
            emit("reference", relative_error=None, passed=False, reason=repr(error))
        for seed, problem in enumerate(problems):
            buffers = Buffers(gpu, problem)
            names = worker.check(names, seed, problem, buffers)
            if seed == len(problems) - 1 and "default" in names:
                worker.time(names, problem, buffers, args.rounds)
            buffers.free()
            if not names:
                return
        emit("end")


def serve(args: argparse.Namespace) -> None:
    """Checks and times what lines on stdin name (JSON, variant to file), each set on its own."""
    folder = Path(args.folder)
    record = kernel_record(load_manifest(folder), args.kernel)
    spec = spec_of(record)
    problem = spec.make(0, False)
    emit("ready")
    first = sys.stdin.readline()
    if not first:
        return
    with Gpu() as gpu:
        emit("device", **gpu.describe())
        worker = Worker(gpu, spec, record, folder)
        buffers = Buffers(gpu, problem)
        worker.load(["default"])
        for line in itertools.chain([first], sys.stdin):
            files: dict[str, str] = json.loads(line)
            worker.add(files)
            names = worker.check(worker.load(list(files)), 0, problem, buffers)
            if names:
                worker.time(names, problem, buffers, args.rounds)
            worker.unload(list(files))
            emit("end")


def launch_once(args: argparse.Namespace) -> None:
    """One launch of each named variant: what sanitizers and profilers watch."""
    folder = Path(args.folder)
    record = kernel_record(load_manifest(folder), args.kernel)
    spec = spec_of(record)
    problem = spec.make(0, not args.full)
    with Gpu() as gpu:
        worker = Worker(gpu, spec, record, folder)
        buffers = Buffers(gpu, problem)
        wanted = args.once.split(",")
        names = worker.load(wanted)
        done = [name for name in names if worker.run_once(name, problem, buffers, "once")]
        emit("end", launched=done)
        if done != wanted:
            sys.exit(1)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.suite.measure", description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("kernel")
    parser.add_argument("--skip", default="", help="variants to leave out, comma-separated")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--once", default="", help="only launch these variants once")
    parser.add_argument("--serve", action="store_true", help="measure what stdin names")
    parser.add_argument("--full", action="store_true", help="with --once: the full size")
    args = parser.parse_args(argv)
    if args.serve:
        serve(args)
    elif args.once:
        launch_once(args)
    else:
        measure(args)


if __name__ == "__main__":
    try:
        main()
    except RegdemError as failure:
        emit("fatal", reason=str(failure))
        sys.exit(STICKY_EXIT)
