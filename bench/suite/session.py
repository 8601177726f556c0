"""The parent of the measuring processes: starts, watches and restarts them, keeps results.

One GPU, one process on it at a time; other processes generate their inputs meanwhile. A process
that exits early or says nothing for `stall_s` seconds loses the variant it was at, and the kernel
is measured again without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

Record = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Limits:
    """Seconds a worker may take to generate inputs, be silent, and run in all; restarts."""

    generate_s: float = 120.0
    stall_s: float = 25.0
    total_s: float = 120.0
    restarts: int = 6


def empty_result() -> Record:
    return {
        "facts": {},
        "failed": {},
        "checks": [],
        "timings": {},
        "reference": None,
        "device": None,
        "notes": [],
        "complete": False,
    }


def fold(result: Record, event: Record) -> None:
    """Adds one event of a worker to a kernel's result."""
    kind = event["event"]
    if kind == "facts":
        result["facts"][event["variant"]] = {
            k: v for k, v in event.items() if k not in ("event", "variant")
        }
    elif kind == "failed":
        result["failed"][event["variant"]] = f"{event['step']}: {event['reason']}"
    elif kind == "check":
        result["checks"].append(event)
    elif kind == "timing":
        result["timings"][event["variant"]] = event
    elif kind in ("reference", "device"):
        result[kind] = {k: v for k, v in event.items() if k != "event"}
    elif kind == "expected" and not event["written"]:
        result["notes"].append(f"seed {event['seed']}: the default wrote nothing")
    elif kind == "fatal":
        result["notes"].append(event["reason"])
    elif kind == "end":
        result["complete"] = True


def worker_environment() -> dict[str, str]:
    """The environment of a worker: this checkout's package and bench folder on the path."""
    path = os.pathsep.join(
        [str(REPOSITORY), str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")]
    )
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def _pump(stream: IO[str], into: queue.Queue[str | None]) -> None:
    for line in stream:
        into.put(line)
    into.put(None)


class Process:
    """A worker and the queue of its lines."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=worker_environment(),
            cwd=REPOSITORY,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: list[str] = []
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        threading.Thread(
            target=_pump, args=(self._process.stdout, self._lines), daemon=True
        ).start()
        threading.Thread(
            target=self._errors.extend, args=(self._process.stderr,), daemon=True
        ).start()

    def next_event(self, timeout_s: float) -> Record | None:
        """The next event; None at the end. Raises TimeoutError when there is none in time."""
        try:
            line = self._lines.get(timeout=max(timeout_s, 0.01))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            return None
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            return {"event": "noise", "text": line.strip()}
        if isinstance(event, dict) and "event" in event:
            return event  # pyright: ignore[reportUnknownVariableType]
        return {"event": "noise"}

    def send(self, line: str) -> None:
        """One line for the worker; nothing where it is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def end(self, grace_s: float = 5.0) -> int:
        """Waits for the end, then kills the whole group. Returns the exit status."""
        try:
            return self._process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            try:
                return self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                return -9

    @property
    def errors(self) -> str:
        return "".join(self._errors[-3:]).strip()[-300:]


def _follow(process: Process, result: Record, limits: Limits) -> tuple[str, str]:
    """Lets a worker run and folds its events; (variant it was at, how it ended)."""
    at = ""
    deadline = time.monotonic() + limits.total_s
    process.send("go")
    while True:
        try:
            event = process.next_event(min(limits.stall_s, deadline - time.monotonic()))
        except TimeoutError:
            return at, "no answer in time"
        if event is None:
            return at, f"exit status {process.end()} {process.errors}".strip()
        if event["event"] == "begin":
            at = event["variant"]
        fold(result, event)


def _one_attempt(
    command: list[str], result: Record, gpu: threading.Lock, limits: Limits
) -> tuple[bool, str, str]:
    """(finished, variant it stopped at, why)."""
    process = Process(command)
    at, why = "", ""
    try:
        event = process.next_event(limits.generate_s)
        if event is None or event["event"] != "ready":
            return False, "", f"no inputs: {process.errors or event}"
        with gpu:
            try:
                at, why = _follow(process, result, limits)
            finally:
                process.end(grace_s=0.0)  # before anyone else gets the GPU
    except TimeoutError:
        why = "the inputs took too long"
    finally:
        process.end(grace_s=0.0)
    return result["complete"], at, why


def measure_kernel(
    folder: Path,
    name: str,
    gpu: threading.Lock,
    *,
    limits: Limits,
    rounds: int,
    seeds: int,
    worker: list[str] | None = None,
) -> Record:
    """Measures one kernel in as many processes as it takes."""
    skipped: dict[str, str] = {}
    notes: list[str] = []
    result = empty_result()
    for _ in range(limits.restarts + 1):
        result = empty_result()
        base = worker or [sys.executable, "-m", "bench.suite.measure"]
        command = [*base, str(folder), name, "--rounds", str(rounds), "--seeds", str(seeds)]
        if skipped:
            command += ["--skip", ",".join(skipped)]
        finished, at, why = _one_attempt(command, result, gpu, limits)
        if finished:
            break
        lost = at or "(before any variant)"
        notes.append(f"{lost}: {result['failed'].get(at, why)}")
        if at in ("", "default"):
            break
        skipped[at] = result["failed"].get(at, why)
    result["failed"] = {**result["failed"], **skipped}
    result["notes"] = notes + result["notes"]
    return result


def measure_all(
    folder: Path,
    names: list[str],
    *,
    workers: int,
    limits: Limits,
    rounds: int,
    seeds: int,
    budget_s: float,
    done: Callable[[str, Record], None],
    worker: list[str] | None = None,
) -> None:
    """Measures kernels until all are done or `budget_s` is over; calls `done` after each."""
    gpu = threading.Lock()
    keep = threading.Lock()
    deadline = time.monotonic() + budget_s

    def one(name: str) -> None:
        if time.monotonic() > deadline:
            result = empty_result()
            result["notes"].append("not run: the time budget was over")
        else:
            result = measure_kernel(
                folder, name, gpu, limits=limits, rounds=rounds, seeds=seeds, worker=worker
            )
        with keep:
            done(name, result)

    with ThreadPoolExecutor(max_workers=max(workers, 1)) as pool:
        list(pool.map(one, names))
