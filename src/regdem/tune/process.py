"""The parent's side of a measuring process: starts it, waits with a limit, starts it anew.

A process that exits or says nothing in time loses the variant it was at: that variant is recorded
as failed with the step it was in, and the next variant gets a new process, in which the original
is loaded and run again. The original itself failing, or a GPU that does not come back, ends the
tuning with an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import regdem
from regdem.errors import RegdemError
from regdem.tune.results import Measurement, Opened

WORKER = (sys.executable, "-P", "-m", "regdem.tune.worker")
START_S = 120.0
_OPEN_TIMES = 5
_TIMED_LAUNCHES = 3 * 7 + 2
Event = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What a measuring process is told: launch (as `open_launch` reads it), kernel, and how much.

    `limit_s`: seconds one variant may take; the original with its inputs may take five times that.
    `tolerance`: relative difference up to which floating-point outputs count as equal; 0 for bytes.
    """

    launch: str
    kernel: str
    seeds: int = 3
    rounds: int = 25
    limit_s: float = 120.0
    tolerance: float = 0.0


class Lost(Exception):
    """The process is gone: `words` say how, `error` is what it said last, if anything."""

    def __init__(self, words: str, error: RegdemError | None = None) -> None:
        super().__init__(words)
        self.words = words
        self.error = error


class GpuProcess:
    """A GPU behind a process of its own; see `results.Device`.

    `command` starts the process (tests pass another); `gpu` is the driver's number of the device.
    """

    def __init__(self, gpu: int, settings: Settings, command: Iterable[str] = WORKER) -> None:
        self._gpu = gpu
        self._settings = settings
        self._command = tuple(command)
        self._folder = tempfile.TemporaryDirectory(prefix="regdem-tune-")
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: deque[str] = deque(maxlen=20)
        self._original: bytes | None = None
        self._step = ""

    @property
    def label(self) -> str:
        return f"gpu {self._gpu}"

    def start(self) -> dict[str, Any]:
        """Starts the process; facts of the GPU. Raises RegdemError (`no_gpu`)."""
        self._spawn()
        try:
            event = self._event("device", START_S)
        except Lost as lost:
            raise lost.error or RegdemError(
                f"{self.label}: the measuring process does not start: {lost.words}",
                code="gpu_lost",
            ) from None
        return {key: value for key, value in event.items() if key != "event"}

    def open(self, original: bytes) -> Opened:
        """Loads and runs the original. Raises RegdemError: its own, or code `launch_failed`."""
        self._original = original
        limit = self._settings.limit_s
        try:
            event = self._ask({"do": "open", "file": self._file("original", original)}, "opened",
                              _OPEN_TIMES * limit)  # fmt: skip
        except Lost as lost:
            self._kill()
            if lost.error is not None and lost.error.code != "cuda_driver":
                raise lost.error from None
            raise RegdemError(
                f"the unmodified kernel can't be measured: {lost.words}",
                code="launch_failed",
                hint="check the launch: sizes, order and contents of the arguments",
                kernel=self._settings.kernel,
            ) from None
        opened = Opened(event["facts"], event["launch_ms"], event["seeds"])
        needed = opened.launch_ms / 1000 * (_TIMED_LAUNCHES + 2 * opened.seeds)
        if needed > limit:
            raise RegdemError(
                f"one launch takes {opened.launch_ms / 1000:.1f} s, too long for a limit of "
                f"{limit:g} s a variant",
                code="bad_usage",
                hint=f"make the launch smaller, or give --limit {round(2 * needed) + 1}",
            )
        return opened

    def measure(self, name: str, cubin: bytes) -> Measurement:
        """One variant; a fault or hang is a result too."""
        self._revive()
        try:
            event = self._ask({"do": "measure", "file": self._file(name, cubin)}, "measured",
                              self._settings.limit_s)  # fmt: skip
        except Lost as lost:
            self._kill()
            return Measurement("failed", f"{self._step}: {lost.words}")
        return Measurement.from_dict({k: v for k, v in event.items() if k != "event"})

    def compare(self, variants: dict[str, bytes]) -> dict[str, list[float]]:
        """Several variants in the same rounds. Raises RegdemError (`launch_failed`)."""
        self._revive()
        files = {name: self._file(name, cubin) for name, cubin in variants.items()}
        limit = self._settings.limit_s * (1 + len(variants))
        try:
            return self._ask({"do": "compare", "files": files}, "compared", limit)["samples"]
        except Lost as lost:
            self._kill()
            raise RegdemError(
                f"{', '.join(variants)}: {self._step}: {lost.words}", code="launch_failed"
            ) from None

    def close(self) -> None:
        """Ends the process and removes its files."""
        self._kill()
        self._folder.cleanup()

    # --- the process ----------------------------------------------------------------------------

    def _spawn(self) -> None:
        settings = self._settings
        command = [
            *self._command, "--launch", settings.launch, "--kernel", settings.kernel,
            "--gpu", str(self._gpu), "--seeds", str(settings.seeds),
            "--rounds", str(settings.rounds), "--budget-ms", str(500 * settings.limit_s),
            "--tolerance", repr(settings.tolerance),
        ]  # fmt: skip
        home = str(Path(regdem.__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        self._lines = queue.Queue()
        self._errors = deque(maxlen=20)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        _thread(_pump, self._process.stdout, self._lines)
        _thread(self._errors.extend, self._process.stderr)

    def _revive(self) -> None:
        """A process with the original loaded; the one there is, or a new one."""
        if self._process is not None and self._process.poll() is None:
            return
        assert self._original is not None, "open() comes first"
        try:
            self.start()
            self.open(self._original)
        except RegdemError as error:
            raise RegdemError(
                f"{self.label} does not come back after a failure: {error.message}",
                code="gpu_lost",
                hint="what was measured is kept; run the command again to go on",
            ) from error

    def _ask(self, command: Event, answer: str, limit_s: float) -> Event:
        process = self._process
        if process is None or process.stdin is None:
            raise Lost("the measuring process is not there")
        try:
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
        except OSError:
            pass  # its last words are read below
        return self._event(answer, limit_s)

    def _event(self, wanted: str, limit_s: float) -> Event:
        """The wanted event. Raises Lost at an error event, at the end, and after `limit_s`."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0.01))
            except queue.Empty:
                raise Lost(f"no end within {limit_s:g} s") from None
            if line is None:
                raise Lost(f"the measuring process ended {self._how()}")
            event: Event = json.loads(line)
            if event["event"] == wanted:
                return event
            if event["event"] == "step":
                self._step = event["what"]
            elif event["event"] == "error":
                raise Lost(event["message"], _error(event))

    def _how(self) -> str:
        process = self._process
        if process is None:
            return "because it was told to"
        status = process.wait()
        with contextlib.suppress(ValueError):
            return f"by signal {signal.Signals(-status).name}"
        said = " ".join("".join(self._errors).split())[-300:]
        return f"with status {status}{': ' if said else ''}{said}"

    def _kill(self) -> None:
        process = self._process
        self._process = None
        if process is None:
            return
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)

    def _file(self, name: str, cubin: bytes) -> str:
        path = Path(self._folder.name) / (
            "original" if name == "original" else f"{abs(hash(name)):x}"
        )
        path.write_bytes(cubin)
        return str(path)


def _pump(stream: IO[str], into: queue.Queue[str | None]) -> None:
    for line in stream:
        into.put(line)
    into.put(None)


def _thread(target: Any, *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()


def _error(event: Event) -> RegdemError:
    return RegdemError(
        event["message"],
        code=event["code"],
        hint=event["hint"],
        file=event["file"],
        kernel=event["kernel"],
        offset=event["offset"],
    )
