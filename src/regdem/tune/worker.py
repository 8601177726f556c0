"""The process that owns a GPU: reads commands, measures, and is allowed to die.

A kernel may fault, which loses the CUDA context, or never end. So measuring happens here, and the
parent (`process.py`) ends this process and starts another. Lines of JSON go both ways: one command
a line in, events out; before everything that may hang a `step` event says what it is.

| command | answers with |
|---|---|
| `{"do": "open", "file"}` | `opened` |
| `{"do": "measure", "file"}` | `measured` |
| `{"do": "compare", "files": {name: file}}` | `compared` |

`error` instead of an answer carries a `RegdemError`; the process ends after it if the context is
lost. The first event is `device`, or `error` with code `no_gpu`.

Events go to a copy of the standard output, which itself is turned to standard error: what kernels
and launch functions print can't be taken for events.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from regdem.errors import RegdemError
from regdem.tune.clocks import Clocks
from regdem.tune.launch import DriverError, Gpu
from regdem.tune.measuring import Bench
from regdem.tune.source import open_launch

NO_DEVICE = frozenset({-1, 3, 34, 35, 100, 101, 999})
"""Driver results of a machine without a usable GPU: no library, not initialised, stub, too old,
no device, no such device."""


class Events:
    """Writes events, one line each, at once."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, event: str, **values: Any) -> None:
        self._stream.write(json.dumps({"event": event, **values}) + "\n")
        self._stream.flush()

    def error(self, error: RegdemError, *, lost: bool) -> None:
        self("error", lost=lost, **error.to_dict())


def private_stdout() -> IO[str]:
    """The standard output for events alone; file descriptor 1 is standard error from now on."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream


def no_gpu(error: DriverError) -> RegdemError:
    """The error of a machine without a GPU."""
    return RegdemError(
        f"tuning measures on an NVIDIA GPU, and there is none: {error.message}",
        code="no_gpu",
        hint="--prepare-only makes and proves the variants here, to be measured elsewhere",
    )


def serve(args: argparse.Namespace, events: Events, commands: IO[str], library: Any) -> int:
    """Answers commands until they end. Returns the exit status."""
    try:
        gpu = Gpu(args.gpu, library)
    except DriverError as error:
        events.error(no_gpu(error) if error.result in NO_DEVICE else error, lost=True)
        return 1
    try:
        with gpu:
            clocks = Clocks(gpu.uuid)
            events("device", **gpu.describe(), driver=clocks.driver(), clocks=clocks.read())
            bench: Bench | None = None
            for line in commands:
                command = json.loads(line)
                if bench is None:
                    bench = Bench(
                        gpu,
                        open_launch(args.launch),
                        args.kernel,
                        seeds=args.seeds,
                        rounds=args.rounds,
                        budget_ms=args.budget_ms,
                        step=lambda what: events("step", what=what),
                        clocks=clocks,
                        tolerance=args.tolerance,
                    )
                answer(bench, command, events)
    except DriverError as error:
        events.error(error, lost=True)
        return 1
    except RegdemError as error:
        events.error(error, lost=True)
        return 1
    return 0


def answer(bench: Bench, command: dict[str, Any], events: Events) -> None:
    """Carries out one command. Raises RegdemError where the process is of no use after it."""
    if command["do"] == "open":
        events("opened", **vars(bench.open(Path(command["file"]).read_bytes())))
    elif command["do"] == "measure":
        events("measured", **bench.measure(Path(command["file"]).read_bytes()).to_dict())
    elif command["do"] == "compare":
        cubins = {name: Path(file).read_bytes() for name, file in command["files"].items()}
        events("compared", samples=bench.compare(cubins))


def main(argv: Sequence[str] | None = None, library: Any = None) -> int:
    """The process. `library`: a driver to use in place of the real one."""
    parser = argparse.ArgumentParser(prog="python -m regdem.tune.worker")
    parser.add_argument("--launch", required=True)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--budget-ms", type=float, required=True)
    parser.add_argument("--tolerance", type=float, default=0.0)
    args = parser.parse_args(argv)
    return serve(args, Events(private_stdout()), sys.stdin, library)


if __name__ == "__main__":
    sys.exit(main())
